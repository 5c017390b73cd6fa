//! Schedules as clients see them.

use belay_proto::v1::{
    self,
    schedule_record::{Origin as OriginMessage, Outcome as OutcomeMessage},
};
use belay_schedule::{Firing, Origin, Outcome, Record, SkipReason};
use tonic::Status;

use super::{
    definition::{name, time},
    stored::{StoredSchedule, has_ended},
};
use crate::{ExecutionReader, names::ExecutionName};

/// How many of the next times are shown.
const NEXT_TIMES: usize = 10;

/// A schedule as clients see it, without its plan and the values of its inputs.
pub(super) async fn show(
    reading: &ExecutionReader,
    schedule: StoredSchedule,
    now: i64,
) -> Result<v1::Schedule, Status> {
    let (namespace, id, key) = (schedule.namespace().to_owned(), schedule.id().to_owned(), schedule.key());
    let StoredSchedule { definition, specification, state, .. } = schedule;
    let mut running = Vec::new();
    for firing in &state.running {
        let execution_id = firing.execution_id(&id);
        if !has_ended(reading, &ExecutionName { namespace: namespace.clone(), id: execution_id.clone() }).await? {
            running.push(execution_id);
        }
    }
    let next_times = match &state.paused {
        Some(_) => Vec::new(),
        None => specification.upcoming(now.max(state.decided), NEXT_TIMES).map(time).collect(),
    };
    let execution =
        definition.execution.map(|execution| v1::ScheduledExecution { source: None, inputs: None, ..execution });
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    Ok(v1::Schedule {
        name: name(&key),
        execution,
        paused: state.paused.is_some(),
        pause_reason: reading.sealer.shown(state.paused.unwrap_or_default()),
        next_times,
        running,
        waiting: i32::try_from(state.queue.len() + state.starting.len()).unwrap_or(i32::MAX),
        started: count(state.started),
        skipped: count(state.skipped),
        failed: count(state.failed),
        records: state.records.iter().map(|kept| record(&id, kept)).collect(),
        ..definition
    })
}

fn record(schedule: &str, record: &Record) -> v1::ScheduleRecord {
    let Record { first, last, count, origin, outcome } = record;
    let (outcome, problem) = match outcome {
        Outcome::Started => (OutcomeMessage::Started, String::new()),
        Outcome::Skipped(SkipReason::Missed) => (OutcomeMessage::Missed, String::new()),
        Outcome::Skipped(SkipReason::Paused) => (OutcomeMessage::Paused, String::new()),
        Outcome::Skipped(SkipReason::Overlap) => (OutcomeMessage::Overlap, String::new()),
        Outcome::Skipped(SkipReason::QueueFull) => (OutcomeMessage::QueueFull, String::new()),
        Outcome::Skipped(SkipReason::Superseded) => (OutcomeMessage::Superseded, String::new()),
        Outcome::Failed(why) => (OutcomeMessage::Failed, why.clone()),
    };
    let execution_id = match outcome {
        OutcomeMessage::Started => Firing { nominal: *first, origin: *origin }.execution_id(schedule),
        _ => String::new(),
    };
    let origin = match origin {
        Origin::Schedule => OriginMessage::Schedule,
        Origin::Backfill => OriginMessage::Backfill,
        Origin::Trigger => OriginMessage::Trigger,
    };
    v1::ScheduleRecord {
        first_time: Some(time(*first)),
        last_time: Some(time(*last)),
        count: i64::try_from(*count).unwrap_or(i64::MAX),
        origin: origin.into(),
        outcome: outcome.into(),
        execution_id,
        problem,
    }
}
