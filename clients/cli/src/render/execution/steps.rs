//! The steps of an execution, the attempts that failed, and the calls of tools: a row each.

use std::time::Duration;

use belay_proto::v1::{Failure, Step, ToolCall, payload::Content, step::State};

use crate::render::{
    call, output,
    text::{Line, Style, table},
    time,
    tracked_execution::{has_ended, machine_time, waited_for_people},
    words,
};

/// The most lines of each stream of an attempt's last output that are shown.
const OUTPUT_IN_FULL: usize = 40;

/// A step, how each of its calls ended, and its output.
pub(crate) fn step(step: &Step, made: &[ToolCall], now: Duration) -> Vec<Line> {
    let mut lines = table(&[step_row(step, now)]);
    match made {
        [] => lines.extend(failed_attempts(step)),
        [only] => lines.extend(failure_of(only)),
        _ => lines.extend(calls(made, now)),
    }
    if let Some(Content::Json(output)) = step.output.as_ref().and_then(|output| output.content.as_ref()) {
        let pretty = serde_json::from_str::<serde_json::Value>(output).map(|value| format!("{value:#}"));
        lines.push(Line::default().and(Style::Strong, "output"));
        lines.extend(pretty.as_ref().unwrap_or(output).lines().map(Line::new));
    }
    lines
}

/// Why each of a step's attempts failed, with what its program wrote last. An attempt that has nothing to add to the step's row is left out.
pub(super) fn failed_attempts(step: &Step) -> Vec<Line> {
    let mut lines = Vec::new();
    for failed in &step.failed_attempts {
        let Some(failure) = &failed.failure else { continue };
        let mut more = words::details(failure);
        more.extend(output::last(failure, OUTPUT_IN_FULL));
        if more.is_empty() && step.failed_attempts.len() == 1 {
            continue;
        }
        let attempt = match step.max_attempts {
            ..=1 => String::new(),
            most => format!(", attempt {} of {most}", failed.attempt),
        };
        let when = failed.end_time.as_ref().map(|end| format!(", {}", time::date_and_time(end))).unwrap_or_default();
        let heading = Line::new("  ").and(Style::Strong, &step.step_id).and(Style::Dim, format!("{attempt}{when}: "));
        lines.push(heading.and(Style::Plain, words::failure(failure)));
        lines.extend(more.iter().map(|text| Line::new("     ").and(Style::Plain, text)));
    }
    lines
}

/// Calls of tools, one row each; below each that failed what its program wrote last.
pub(crate) fn calls(calls: &[ToolCall], now: Duration) -> Vec<Line> {
    let rows: Vec<_> = calls.iter().map(|call| call_row(call, now)).collect();
    let more = calls.iter().map(failure_of);
    table(&rows).into_iter().zip(more).flat_map(|(row, more)| std::iter::once(row).chain(more)).collect()
}

fn call_row(call: &ToolCall, now: Duration) -> Vec<(Style, String)> {
    let end = call.end_time.as_ref().map_or(Some(now), time::since_epoch);
    let number = match call.operation {
        ..=1 => format!("attempt {}", call.attempt),
        number => format!("attempt {}, call {number}", call.attempt),
    };
    vec![
        (words::call_style(call.state()), words::call_state(call.state())),
        (Style::Strong, call.step_id.clone()),
        (Style::Plain, number),
        (Style::Plain, call.tool.clone()),
        (Style::Dim, call.request_time.as_ref().map(time::date_and_time).unwrap_or_default()),
        (Style::Plain, time::between(call.request_time.as_ref(), end).map(time::short).unwrap_or_default()),
        (Style::Plain, call.failure.as_ref().map(words::failure).unwrap_or_default()),
    ]
}

/// The rest of a call's failure besides its reason: the details, and the last output of its program.
fn failure_of(call: &ToolCall) -> Vec<Line> {
    let more = |failure: &Failure| {
        words::details(failure).into_iter().chain(output::last(failure, OUTPUT_IN_FULL)).collect::<Vec<_>>()
    };
    let more = call.failure.as_ref().map(more).unwrap_or_default();
    more.iter().map(|text| Line::new("     ").and(Style::Plain, text)).collect()
}

pub(super) fn step_row(step: &Step, now: Duration) -> Vec<(Style, String)> {
    let state = step.state();
    let attempts = match step.attempt {
        ..=1 => String::new(),
        attempt => format!("attempt {attempt} of {}", step.max_attempts),
    };
    let took = match has_ended(state) {
        true => machine_time(step),
        false => time::between(step.start_time.as_ref(), Some(now)).map(|took| took.saturating_sub(waited(step, now))),
    };
    let took = took.map(time::short).unwrap_or_default();
    let mut notes = Vec::new();
    if let Some(waited) = waited_for_people(step) {
        notes.push(format!("and {} waiting for approval", time::short(waited)));
    }
    if state == State::Skipped {
        notes.push(words::skipped_step(step));
    } else if let Some(failure) = step.failure.as_ref().filter(|_| state != State::Completed) {
        notes.push(words::failure(failure));
    }
    notes.extend(step.cached_result.as_ref().map(words::cached));
    if let Some(waiting) = step.waiting.as_ref().filter(|_| !has_ended(state)) {
        notes.push(words::waiting(waiting, now));
    }
    let id = if step.title.is_empty() || step.title == step.step_id {
        step.step_id.clone()
    } else {
        format!("{} ({})", step.step_id, step.title)
    };
    vec![
        (words::step_style(state), words::step_state(state)),
        (Style::Strong, id),
        (Style::Plain, call::kind_of(step)),
        (Style::Plain, took),
        (Style::Plain, attempts),
        (Style::Plain, notes.join("; ")),
    ]
}

/// How long a step that has not ended has waited for decisions.
fn waited(step: &Step, now: Duration) -> Duration {
    let before = step.approval_wait.as_ref().map(time::duration).unwrap_or_default();
    let waits = step.waiting.as_ref().filter(|_| step.state() == State::AwaitingApproval);
    before + time::between(waits.and_then(|waits| waits.begin_time.as_ref()), Some(now)).unwrap_or_default()
}
