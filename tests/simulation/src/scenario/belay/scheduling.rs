//! Schedules while clocks jump, power fails and processes are killed: each nominal time is decided once, and what is started exists once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_defects::Defect;
use belay_proto::v1::{self, schedule::Overlap, schedule_service_client::ScheduleServiceClient, step_spec};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::client::{RPC_TIMEOUT, connect, pause};
use super::hosts;
use super::plain::Plain;
use super::site::{CLIENTS, EXECUTOR, GATE, HORIZON, MAX_RECOVERY, RUNNER, SITE};
use super::tools::LOOK;
use crate::checker::Checker;
use crate::fault::{self, Fault, Schedule};
use crate::trace;

/// The schedules: id, interval in seconds, and policy for overlaps. A clock that is ahead passes over fewer times than are counted one by one.
const SCHEDULES: [(&str, i64, Overlap); 4] = [
    ("allow", 3600, Overlap::Allow),
    ("skip", 120, Overlap::Skip),
    ("queue", 1800, Overlap::Queue),
    ("cancel", 900, Overlap::CancelOlder),
];
/// One client alone.
const HERE: fault::Site = fault::Site { everyone: &[EXECUTOR, RUNNER, GATE, CLIENTS[0]], ..SITE };
const PARENT: &str = "namespaces/default";
/// Longer than a clock is ahead: no time is missed.
const CATCH_UP: i64 = 30 * 86_400;

/// What a client has seen, kept outside of the machines.
#[derive(Debug, Default)]
struct Seen {
    /// The names of the executions that triggers have answered.
    triggered: BTreeSet<String>,
    /// Everything at the end.
    end: Option<End>,
}

/// The schedules and the names of the executions at the end.
#[derive(Debug)]
struct End {
    schedules: Vec<v1::Schedule>,
    executions: Vec<String>,
}

type Record = Arc<Mutex<Seen>>;

/// Belay as it is, with schedules, and an executor that is killed and whose clock jumps by hours.
///
/// # Errors
/// A description of the violation.
pub fn scheduling(seed: u64) -> Result<(), String> {
    run(seed)
}

/// A defect of the services' own code: [`Defect::ScheduledStartsForgotten`].
///
/// # Errors
/// A description of the violation.
pub fn scheduled_starts_forgotten(seed: u64) -> Result<(), String> {
    belay_defects::plant(Defect::ScheduledStartsForgotten);
    run(seed)
}

fn run(seed: u64) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let Plain { mut world, checker, outside: _ } = Plain::new(&mut random, seed);
    let record = Record::default();
    let healed = Arc::new(Mutex::new(false));
    world.client(CLIENTS[0], work(random.random(), record.clone(), Arc::clone(&healed), checker.clone()));
    world.schedule(fault::generate(&mut random, HERE, HORIZON));
    world.schedule(faults(&mut random));

    let failed = |error: Box<dyn std::error::Error>| error.to_string();
    world.run_until(HORIZON, || checker.verdict().is_err()).map_err(failed)?;
    trace::event("all faults have ended");
    world.heal();
    *healed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    let is_read = || record.lock().unwrap_or_else(PoisonError::into_inner).end.is_some();
    let is_over = || is_read() || checker.verdict().is_err();
    if !world.run_until(4 * MAX_RECOVERY, is_over).map_err(failed)? {
        checker.violation("the schedules do not come to rest");
    }
    checker.verdict()?;
    let seen = record.lock().unwrap_or_else(PoisonError::into_inner);
    for violation in audit(&seen) {
        checker.violation(violation);
    }
    checker.verdict()
}

/// The executor's clock jumps by up to a day, ahead and back, and it is killed.
fn faults(random: &mut StdRng) -> Schedule {
    let mut schedule = Schedule::new();
    for _ in 0..6 {
        let at = HORIZON.mul_f64(random.random());
        let ahead = random.random_range(-20_000..86_400);
        let lasts = Duration::from_millis(random.random_range(50..900));
        schedule.push((at, Fault::Clock { host: EXECUTOR, ahead, lasts }));
        schedule.push((HORIZON.mul_f64(random.random()), Fault::Kill { host: EXECUTOR }));
    }
    schedule
}

async fn work(seed: u64, record: Record, healed: Arc<Mutex<bool>>, checker: Checker) -> turmoil::Result {
    let mut random = StdRng::seed_from_u64(seed);
    let mut asker = Asker { checker };
    for (id, interval, overlap) in SCHEDULES {
        let request = create(id, interval, overlap);
        asker
            .until_answered(|mut client| {
                let request = request.clone();
                async move { client.create_schedule(request).await }
            })
            .await;
    }
    let mut number = 0;
    while !*healed.lock().unwrap_or_else(PoisonError::into_inner) {
        pause(&mut random, 400).await;
        number += 1;
        let (id, ..) = SCHEDULES[random.random_range(0..SCHEDULES.len())];
        let request = v1::TriggerScheduleRequest { name: name(id), request_id: format!("t{number}") };
        // Twice, with one request id: one execution.
        let mut answers = BTreeSet::new();
        for _ in 0..2 {
            let request = request.clone();
            let answer = asker.ask(|mut client| async move { client.trigger_schedule(request).await }).await;
            answers.extend(answer.map(|answer| answer.execution));
        }
        if answers.len() > 1 {
            asker.checker.violation(format_args!("a repeated trigger has started another execution: {answers:?}"));
        }
        record.lock().unwrap_or_else(PoisonError::into_inner).triggered.extend(answers);
    }
    at_rest(&mut asker).await;
    // From here on nothing fires, so that what is read belongs together.
    for (id, ..) in SCHEDULES {
        let request = v1::PauseScheduleRequest { name: name(id), reason: "the end".to_owned() };
        asker
            .until_answered(|mut client| {
                let request = request.clone();
                async move { client.pause_schedule(request).await }
            })
            .await;
    }
    let schedules = at_rest(&mut asker).await;
    let executions = executions().await;
    record.lock().unwrap_or_else(PoisonError::into_inner).end = Some(End { schedules, executions });
    Ok(())
}

/// The schedules, when nothing of them waits or runs.
async fn at_rest(asker: &mut Asker) -> Vec<v1::Schedule> {
    loop {
        let request = v1::ListSchedulesRequest { parent: PARENT.to_owned(), ..Default::default() };
        let answer = asker.ask(|mut client| async move { client.list_schedules(request).await }).await;
        if let Some(page) = answer
            && page.schedules.iter().all(|schedule| schedule.waiting == 0 && schedule.running.is_empty())
        {
            return page.schedules;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The names of all executions.
async fn executions() -> Vec<String> {
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListExecutionsRequest {
            parent: PARENT.to_owned(),
            page_size: 1_000,
            page_token: page_token.clone(),
            ..Default::default()
        };
        let Ok(page) = connect(hosts::EXECUTOR_URI).list_executions(request).await else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        let page = page.into_inner();
        names.extend(page.executions.into_iter().map(|execution| execution.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return names;
        }
    }
}

/// Asks the executor, whose refusals are violations.
struct Asker {
    checker: Checker,
}

impl Asker {
    async fn ask<T, Fut>(&mut self, ask: impl FnOnce(ScheduleServiceClient<Channel>) -> Fut) -> Option<T>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let client = ScheduleServiceClient::new(hosts::channel(hosts::EXECUTOR_URI));
        match tokio::time::timeout(RPC_TIMEOUT, ask(client)).await {
            Ok(Ok(answer)) => Some(answer.into_inner()),
            Ok(Err(refused)) => {
                let is_ours = std::error::Error::source(&refused).is_none();
                let codes =
                    [Code::InvalidArgument, Code::AlreadyExists, Code::NotFound, Code::DataLoss, Code::Internal];
                if is_ours && codes.contains(&refused.code()) {
                    self.checker.violation(format_args!("{:?}: {}", refused.code(), refused.message()));
                }
                None
            }
            Err(_) => None,
        }
    }

    async fn until_answered<T, Fut>(&mut self, ask: impl Fn(ScheduleServiceClient<Channel>) -> Fut)
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        while self.ask(&ask).await.is_none() && self.checker.verdict().is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn name(id: &str) -> String {
    format!("{PARENT}/schedules/{id}")
}

fn create(id: &str, interval: i64, overlap: Overlap) -> v1::CreateScheduleRequest {
    let arguments = Some(v1::Payload::of_json(r#"{"ms":20}"#));
    let tool = v1::ToolStep { tool: LOOK.to_owned(), arguments, ..Default::default() };
    let step = v1::StepSpec { id: "a".to_owned(), kind: Some(step_spec::Kind::Tool(tool)), ..Default::default() };
    let plan = v1::Plan { id: "scheduled".to_owned(), steps: vec![step], ..Default::default() };
    let seconds = |seconds| Some(pbjson_types::Duration { seconds, nanos: 0 });
    let execution =
        v1::ScheduledExecution { source: Some(v1::scheduled_execution::Source::Plan(plan)), ..Default::default() };
    let schedule = v1::Schedule {
        interval: seconds(interval),
        overlap: overlap.into(),
        catch_up_window: seconds(CATCH_UP),
        execution: Some(execution),
        ..Default::default()
    };
    v1::CreateScheduleRequest {
        parent: PARENT.to_owned(),
        schedule_id: id.to_owned(),
        schedule: Some(schedule),
        request_id: format!("create-{id}"),
        ..Default::default()
    }
}

/// Compares what the schedules say with the executions that there are.
fn audit(seen: &Seen) -> Vec<String> {
    let Some(End { schedules, executions }) = &seen.end else { return vec!["nothing was read".to_owned()] };
    let mut violations = Vec::new();
    for lost in seen.triggered.iter().filter(|name| !executions.contains(name)) {
        violations.push(format!("a trigger has answered {lost}, which does not exist"));
    }
    seen.triggered.iter().for_each(|_| trace::count("triggers of schedules"));
    let by_id: BTreeMap<&str, &v1::Schedule> =
        schedules.iter().map(|schedule| (schedule.name.rsplit('/').next().unwrap_or_default(), schedule)).collect();
    for (id, interval, overlap) in SCHEDULES {
        let Some(schedule) = by_id.get(id) else {
            violations.push(format!("schedule {id} is gone"));
            continue;
        };
        let prefix = format!("{PARENT}/executions/{id}-");
        let own: Vec<&str> = executions.iter().filter_map(|name| name.strip_prefix(&prefix)).collect();
        let fired = own.iter().filter(|rest| !rest.ends_with("-trigger")).count() as i64;
        (0..fired).for_each(|_| trace::count("firings of schedules"));
        (0..schedule.skipped).for_each(|_| trace::count("times that schedules skipped"));
        let started = own.len() as i64;
        if schedule.started != started || schedule.failed != 0 {
            let (said, failed) = (schedule.started, schedule.failed);
            violations.push(format!("{id} says {said} started and {failed} failed, and {started} executions exist"));
        }
        let created = schedule.create_time.as_ref().map_or(0, |time| time.seconds);
        let decided = schedule.records.iter().filter(|record| record.origin() == v1::schedule_record::Origin::Schedule);
        let last = decided.filter_map(|record| record.last_time.as_ref()).map(|time| time.seconds).max();
        let Some(last) = last else { continue };
        let passed = last.div_euclid(interval) - created.div_euclid(interval);
        if fired + schedule.skipped != passed {
            let skipped = schedule.skipped;
            violations
                .push(format!("{id}: {passed} times have passed, and {fired} were carried out and {skipped} skipped"));
        }
        let is_paused = |record: &v1::ScheduleRecord| record.outcome() == v1::schedule_record::Outcome::Paused;
        if overlap == Overlap::Allow && schedule.skipped > 0 && !schedule.records.iter().any(is_paused) {
            violations.push(format!("{id} has skipped {} times, and there was no reason to", schedule.skipped));
        }
    }
    violations
}
