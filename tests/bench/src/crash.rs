//! Kills the executor while it works, starts it again, and checks all events.

use std::{collections::HashMap, path::Path};

use belay_proto::v1::{ExecutionEvent, execution_event::Kind};
use belay_service_kit::{Clock as _, SystemClock};
use serde::Serialize;

use crate::{Result, belay::Belay, place::Place, subject::Load};

/// The result of one kill.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Crash {
    /// From the kill to the first event of a step that was recorded after it, over all executions.
    pub(crate) next_step_ms: f64,
    /// The number of executions that the new process reported as taken over.
    pub(crate) recovered: usize,
}

/// Starts a load, kills the executor when an execution is a quarter through, starts it again on the same state, and lets everything end.
///
/// # Errors
/// When a step of any execution was lost or recorded twice, or an execution had ended before the kill.
pub(crate) async fn crash(binaries: &Path, place: &Place, load: Load) -> Result<Crash> {
    let mut belay = Belay::start(binaries, place).await?;
    let names = belay.begin(load).await?;
    let last = names.last().ok_or("a load has at least one execution")?;
    let mut completed = 0;
    belay
        .events(last, |kind| {
            completed += u32::from(matches!(kind, Kind::StepCompleted(_)));
            completed >= load.steps / 4
        })
        .await?;

    let killed_at = SystemClock.now_micros();
    belay.lose_executor(place).await?;
    belay.finish(&names, load.steps).await?;

    let mut histories = Vec::new();
    for name in &names {
        let events = belay.events(name, |_| false).await?;
        exactly_once(&events, load.steps).map_err(|wrong| format!("after a kill -9, {name}: {wrong}"))?;
        histories.push(events);
    }
    let ended_before =
        histories.iter().filter(|events| events.last().is_none_or(|event| time(event) <= killed_at)).count();
    if ended_before > 0 {
        return Err(format!(
            "{ended_before} executions ended before the kill, so the load is too small to show anything"
        )
        .into());
    }
    let next = histories.iter().filter_map(|events| next_step(events, killed_at)).min();
    let next = next.ok_or("no step was recorded after the kill")?;
    let recovered = |events: &&Vec<ExecutionEvent>| {
        events.iter().any(|event| matches!(event.kind, Some(Kind::ExecutionRecovered(_))))
    };
    Ok(Crash { next_step_ms: (next - killed_at) as f64 / 1e3, recovered: histories.iter().filter(recovered).count() })
}

/// When the first step started or ended after this time.
pub(crate) fn next_step(events: &[ExecutionEvent], after: i64) -> Option<i64> {
    let of_step = |event: &&ExecutionEvent| matches!(event.kind, Some(Kind::StepStarted(_) | Kind::StepCompleted(_)));
    events.iter().filter(of_step).map(time).filter(|time| *time > after).min()
}

fn time(event: &ExecutionEvent) -> i64 {
    event.record_time.as_ref().map_or(0, belay_proto::micros)
}

/// The events have no gap, and every step has one start, one call, one result and one end.
pub(crate) fn exactly_once(events: &[ExecutionEvent], steps: u32) -> std::result::Result<(), String> {
    let mut seen: HashMap<(&str, &str), u32> = HashMap::new();
    for (event, expected) in events.iter().zip(1..) {
        if event.sequence != expected {
            return Err(format!("event {} stands where event {expected} should", event.sequence));
        }
        let what = match event.kind {
            Some(Kind::StepStarted(_)) => "start",
            Some(Kind::ToolCallRequested(_)) => "request",
            Some(Kind::ToolCallCompleted(_)) => "result",
            Some(Kind::StepCompleted(_)) => "end",
            _ => continue,
        };
        *seen.entry((event.step_id.as_str(), what)).or_default() += 1;
    }
    if let Some(((step, what), times)) = seen.iter().find(|(_, times)| **times != 1) {
        return Err(format!("step {step} has {times} events of the kind `{what}`"));
    }
    for what in ["start", "request", "result", "end"] {
        let there = seen.keys().filter(|(_, kind)| *kind == what).count();
        if u32::try_from(there) != Ok(steps) {
            return Err(format!("{there} of {steps} steps have an event of the kind `{what}`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use belay_proto::v1;

    use super::*;

    fn history(kinds: impl IntoIterator<Item = (&'static str, Kind)>) -> Vec<ExecutionEvent> {
        let event = |((step, kind), sequence)| ExecutionEvent {
            sequence,
            step_id: String::from(step),
            kind: Some(kind),
            ..Default::default()
        };
        kinds.into_iter().zip(1..).map(event).collect()
    }

    fn step(id: &'static str) -> [(&'static str, Kind); 4] {
        [
            (id, Kind::StepStarted(v1::StepStarted::default())),
            (id, Kind::ToolCallRequested(v1::ToolCallRequested::default())),
            (id, Kind::ToolCallCompleted(v1::ToolCallCompleted::default())),
            (id, Kind::StepCompleted(v1::StepCompleted::default())),
        ]
    }

    #[test]
    fn a_whole_history_passes() {
        let created = ("", Kind::ExecutionCreated(Box::default()));
        let events = history([created].into_iter().chain(step("s0")).chain(step("s1")));
        assert_eq!(exactly_once(&events, 2), Ok(()));
    }

    #[test]
    fn a_lost_a_doubled_and_a_missing_event_are_seen() {
        let whole = history(step("s0").into_iter().chain(step("s1")));
        let wrong = |events: &[ExecutionEvent], steps| exactly_once(events, steps).unwrap_err();

        assert_eq!(wrong(&whole, 3), "2 of 3 steps have an event of the kind `start`");
        let mut gap = whole.clone();
        gap.remove(2);
        assert_eq!(wrong(&gap, 2), "event 4 stands where event 3 should");
        let twice = history(step("s0").into_iter().chain(step("s1")).chain([step("s1")[1].clone()]));
        assert_eq!(wrong(&twice, 2), "step s1 has 2 events of the kind `request`");
        let unfinished = history(step("s0").into_iter().chain(step("s1").into_iter().take(3)));
        assert_eq!(wrong(&unfinished, 2), "1 of 2 steps have an event of the kind `end`");
    }
}
