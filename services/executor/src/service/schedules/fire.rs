//! The task that fires: it decides, stores what it has decided, starts and cancels executions, and stores that they are.
//!
//! Between any two of these it may be killed. What is stored as to be started is started again then, under the same id and for the same request, which
//! starts nothing twice; what is not stored is decided again.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_execution::Control;
use belay_schedule::{Firing, decide};
use futures::future::select_all;
use tonic::Status;

use super::{
    super::requests,
    start::{self, Start},
    stored::{self, StoredSchedule, has_ended},
};
use crate::{ExecutionRegistry, names::ExecutionName, owned::schedule_changes::ScheduleKey};

/// How many schedules are read at once.
const PAGE: usize = 64;
/// The delay before what has failed is tried again, in seconds.
const RETRY_AFTER: i64 = 2;
/// The least time between two rounds, so that what ends at once does not keep a processor busy.
const LEAST_PAUSE: Duration = Duration::from_millis(20);
const SECOND: i64 = 1_000_000;

/// The times and ends that a schedule waits for.
#[derive(Debug, Default)]
struct Awaited {
    /// When it is looked at again, in seconds since the Unix epoch.
    wake_at: Option<i64>,
    /// The executions whose end lets another one start.
    ends: Vec<ExecutionName>,
}

/// Fires until the service stops.
pub(crate) async fn run(registry: Weak<ExecutionRegistry>) {
    let mut awaited: BTreeMap<ScheduleKey, Awaited> = BTreeMap::new();
    // Executions whose cancellation was asked for by this process.
    let mut cancelled = HashSet::new();
    let mut open: BTreeSet<ScheduleKey> = BTreeSet::new();
    let mut is_read = false;
    loop {
        let Some(this) = registry.upgrade() else { return };
        if !is_read {
            match all(&this).await {
                Ok(keys) => {
                    open.extend(keys);
                    is_read = true;
                }
                Err(error) => tracing::warn!(%error, "The schedules cannot be read; retrying"),
            }
        }
        open.extend(this.schedules.take());
        let now = seconds(&this);
        open.extend(
            awaited.iter().filter(|(_, on)| on.wake_at.is_some_and(|at| at <= now)).map(|(key, _)| key.clone()),
        );
        for key in std::mem::take(&mut open) {
            match step(&this, &key, &mut cancelled).await {
                Ok(Some(on)) => drop(awaited.insert(key, on)),
                Ok(None) => drop(awaited.remove(&key)),
                Err(error) => {
                    tracing::warn!(schedule = key.1, %error, "A schedule cannot be decided; retrying");
                    awaited.insert(key, Awaited { wake_at: Some(now + RETRY_AFTER), ends: Vec::new() });
                }
            }
        }
        let earliest =
            awaited.values().filter_map(|on| on.wake_at).chain((!is_read).then_some(now + RETRY_AFTER)).min();
        let longest = this.reading.thresholds.longest_sleep;
        let until = |at: i64| at.saturating_mul(SECOND).saturating_sub(this.reading.clock.now_micros());
        let pause = earliest.map_or(longest, |at| Duration::from_micros(u64::try_from(until(at)).unwrap_or(0)));
        let shutdown = this.reading.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = this.schedules.wait() => {}
            key = one_ended(&this, &awaited) => drop(open.insert(key)),
            () = tokio::time::sleep(pause.min(longest)) => {}
        }
        drop(this);
        tokio::time::sleep(LEAST_PAUSE).await;
    }
}

fn seconds(registry: &ExecutionRegistry) -> i64 {
    registry.reading.clock.now_micros().div_euclid(SECOND)
}

/// The names of all schedules.
async fn all(registry: &ExecutionRegistry) -> Result<Vec<ScheduleKey>, Status> {
    let (mut keys, mut after) = (Vec::new(), ScheduleKey::default());
    loop {
        let page = stored::rows(&registry.reading, "", &after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(keys) };
        after = (last.namespace.clone(), last.id.clone());
        keys.extend(page.into_iter().map(|row| (row.namespace, row.id)));
    }
}

/// Decides about a schedule, and does what follows; `None` when it is there no more.
async fn step(
    registry: &Arc<ExecutionRegistry>,
    key: &ScheduleKey,
    cancelled: &mut HashSet<ExecutionName>,
) -> Result<Option<Awaited>, Status> {
    let turn = registry.schedules.turn().await;
    let Some(row) = stored::row(&registry.reading, key).await? else { return Ok(None) };
    let mut schedule = StoredSchedule::read(row)?;
    record_ends(registry, &mut schedule, cancelled).await?;
    let decision = decide(&schedule.specification, &schedule.state, seconds(registry));
    let skipped = decision.state.skipped.saturating_sub(schedule.state.skipped);
    schedule.state = decision.state;
    if is_planted(Defect::ScheduledStartsForgotten) {
        let starting = std::mem::take(&mut schedule.state.starting);
        schedule.store(registry).await?;
        schedule.state.starting = starting;
    } else {
        schedule.store(registry).await?;
    }
    (0..skipped).for_each(|_| registry.measures.schedule("skipped"));
    drop(turn);
    let started = start_all(registry, &schedule).await;
    cancel(registry, &schedule, cancelled).await;
    if !started.is_empty() {
        let _turn = registry.schedules.turn().await;
        let Some(row) = stored::row(&registry.reading, key).await? else { return Ok(None) };
        schedule = StoredSchedule::read(row)?;
        for (firing, outcome) in started {
            match outcome {
                Start::Exists => schedule.state.record_start(firing),
                Start::Never(why) => schedule.state.record_failure(firing, registry.reading.sealer.shown(why)),
                Start::Later(_) => {}
            }
        }
        schedule.store(registry).await?;
    }
    let state = &schedule.state;
    let retry_at = (!state.starting.is_empty()).then(|| seconds(registry) + RETRY_AFTER);
    let ends = match state.queue.is_empty() {
        true => Vec::new(),
        false => state.running.iter().map(|firing| name(&schedule, *firing)).collect(),
    };
    // What waits is looked at again when nothing runs that it would wait for.
    let queued_at =
        (!state.queue.is_empty() && state.running.is_empty() && state.paused.is_none()).then(|| seconds(registry));
    let wake_at = decision.wake_at.into_iter().chain(retry_at).chain(queued_at).min();
    Ok(Some(Awaited { wake_at, ends }))
}

fn name(schedule: &StoredSchedule, firing: Firing) -> ExecutionName {
    ExecutionName { namespace: schedule.namespace().to_owned(), id: firing.execution_id(schedule.id()) }
}

async fn record_ends(
    registry: &ExecutionRegistry,
    schedule: &mut StoredSchedule,
    cancelled: &mut HashSet<ExecutionName>,
) -> Result<(), Status> {
    for firing in schedule.state.running.clone() {
        let execution = name(schedule, firing);
        if has_ended(&registry.reading, &execution).await? {
            schedule.state.record_end(firing);
            cancelled.remove(&execution);
        }
    }
    Ok(())
}

async fn start_all(registry: &Arc<ExecutionRegistry>, schedule: &StoredSchedule) -> Vec<(Firing, Start)> {
    let mut started = Vec::new();
    for firing in &schedule.state.starting {
        let (namespace, id) = (schedule.namespace(), schedule.id());
        let outcome = start::start(registry, namespace, id, &schedule.definition, *firing).await;
        match &outcome {
            Start::Exists => {
                registry.measures.schedule("started");
                tracing::info!(schedule = id, execution = firing.execution_id(id), "A schedule has fired");
            }
            Start::Never(why) => {
                let why = registry.reading.sealer.shown(why.clone());
                registry.measures.schedule("failed");
                tracing::warn!(schedule = id, execution = firing.execution_id(id), why, "A schedule could not fire");
            }
            Start::Later(why) => {
                let why = registry.reading.sealer.shown(why.clone());
                tracing::warn!(schedule = id, execution = firing.execution_id(id), why, "A schedule fires later");
            }
        }
        let goes_on = !matches!(outcome, Start::Later(_));
        started.push((*firing, outcome));
        if !goes_on {
            break;
        }
    }
    started
}

async fn cancel(registry: &Arc<ExecutionRegistry>, schedule: &StoredSchedule, cancelled: &mut HashSet<ExecutionName>) {
    for firing in &schedule.state.cancelling {
        let execution = name(schedule, *firing);
        if cancelled.contains(&execution) {
            continue;
        }
        let reason = format!("schedule `{}` starts a newer one", schedule.id());
        let control = Control::Cancel { reason, kill: false };
        let caller = start::planner(&schedule.definition.principal);
        let asked =
            requests::ask(registry, &caller, &execution.to_string(), control, String::new(), String::new()).await;
        match asked {
            Ok(_) => drop(cancelled.insert(execution)),
            // It may have ended by itself; otherwise the next round asks again.
            Err(error) => tracing::info!(%execution, %error, "An execution of a schedule is not cancelled"),
        }
    }
}

/// Returns the schedule of which an execution that others wait for has ended. Never returns when none is waited for.
async fn one_ended(registry: &ExecutionRegistry, awaited: &BTreeMap<ScheduleKey, Awaited>) -> ScheduleKey {
    let ends = awaited.iter().flat_map(|(key, on)| on.ends.iter().map(move |execution| (key, execution)));
    let ends: Vec<_> = ends
        .map(|(key, execution)| {
            Box::pin(async move {
                ended(registry, execution).await;
                key.clone()
            })
        })
        .collect();
    match ends.is_empty() {
        true => std::future::pending().await,
        false => select_all(ends).await.0,
    }
}

async fn ended(registry: &ExecutionRegistry, execution: &ExecutionName) {
    loop {
        let Ok(row) = registry.reading.follower.find(execution).await else { return };
        let feed = registry.reading.feed(row.key);
        let mut end = feed.subscribe_end();
        // Read after the subscription, so that an end in between is not missed.
        if has_ended(&registry.reading, execution).await.unwrap_or(true) {
            return;
        }
        if end.wait_for(Option::is_some).await.is_ok() {
            return;
        }
    }
}
