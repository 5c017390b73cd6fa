//! Executions on the screen: one in full, many in a table, and the summary at the end of one.

mod end;
mod list;
mod steps;

use std::time::Duration;

use belay_proto::v1::{Execution, ExecutionLimit, LimitState, execution, payload::Content, waiting_reason};
use serde_json::Value;

use self::steps::{failed_attempts, step_row};
use super::{
    text::{Line, Style, shorten, table},
    time, words,
};
use crate::{
    follow::is_over,
    names,
    next::{self, about, of_server},
};

pub(crate) use end::{report, summary};
pub(crate) use list::{changed, list, removed};
pub(crate) use steps::{calls, step};

/// Everything a person asks about one execution.
pub(crate) fn full(execution: &Execution, is_driven: bool, now: Duration) -> Vec<Line> {
    let state = execution.state();
    let mut lines = vec![
        Line::default()
            .and(Style::Strong, names::id(&execution.name))
            .and(Style::Plain, "  ")
            .and(words::execution_style(state), words::execution_state(state))
            .and(Style::Plain, format!("  {}", took_in_words(execution, now).unwrap_or_default())),
    ];
    lines.extend(table(&facts(execution)));
    if !execution.steps.is_empty() {
        lines.push(Line::default().and(Style::Strong, "steps"));
        lines.extend(table(&execution.steps.iter().map(|step| step_row(step, now)).collect::<Vec<_>>()));
    }
    lines.extend(execution.steps.iter().flat_map(failed_attempts));
    lines.extend(outputs(execution));
    if let (true, Some(failure)) = (execution.steps.is_empty(), &execution.failure) {
        lines.push(Line::default().and(Style::Bad, words::failure(failure)));
    }
    if !is_over(state) {
        lines.extend(
            execution
                .waiting
                .iter()
                .filter(|reason| !words::is_own_call(reason))
                .map(|reason| Line::default().and(Style::Warn, words::waiting(reason, now))),
        );
    }
    lines.push(next::line(next_command(execution, is_driven)));
    lines
}

/// The longest value of an output that is shown, in characters.
const MAX_OUTPUT_CHARS: usize = 200;

/// The outputs that the plan declares, a row each, or why there are none; nothing while it has none.
fn outputs(execution: &Execution) -> Vec<Line> {
    if let Some(failure) = &execution.outputs_failure {
        return vec![Line::default().and(Style::Warn, format!("no outputs: {}", words::failure(failure)))];
    }
    let heading = || Line::default().and(Style::Strong, "outputs");
    match execution.outputs.as_ref().and_then(|outputs| outputs.content.as_ref()) {
        Some(Content::Json(text)) => {
            let Ok(Value::Object(outputs)) = serde_json::from_str(text) else { return Vec::new() };
            let row = |(name, value): (String, Value)| {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                vec![(Style::Strong, name), (Style::Plain, shorten(&shown, MAX_OUTPUT_CHARS))]
            };
            std::iter::once(heading()).chain(table(&outputs.into_iter().map(row).collect::<Vec<_>>())).collect()
        }
        Some(Content::Blob(blob)) => {
            let command = about(&["executions", "result"], &execution.name, &[]);
            vec![heading().and(Style::Plain, format!("  {} bytes, which `{command}` prints", blob.size_bytes))]
        }
        None => Vec::new(),
    }
}

fn facts(execution: &Execution) -> Vec<Vec<(Style, String)>> {
    let started_by =
        if execution.principal.is_empty() { String::new() } else { format!(" by {}", execution.principal) };
    let created = execution.create_time.as_ref().map(|created| time::date_and_time(created) + &started_by);
    let totals = execution.totals.as_ref().map(|totals| format!("{} of {}", words::totals(totals), totals.total));
    let facts = [
        ("plan", Some(execution.plan_id.clone())),
        ("fork of", Some(names::id(&execution.forked_from).to_owned())),
        ("accepted", created),
        ("started", execution.start_time.as_ref().map(time::date_and_time)),
        ("ended", execution.end_time.as_ref().map(time::date_and_time)),
        (
            "deadline",
            execution.deadline_time.as_ref().filter(|_| execution.end_time.is_none()).map(time::date_and_time),
        ),
        ("steps", totals),
        ("limits", Some(limits(execution))),
        ("used", words::spent(execution)),
        ("workspace", Some(execution.workspace.clone())),
        ("labels", Some(labels(execution))),
        ("trace", words::trace_id(execution)),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| {
            Some(vec![(Style::Dim, name.to_owned()), (Style::Plain, value.filter(|value| !value.is_empty())?)])
        })
        .collect()
}

/// `deploy-prod (1 at once), hourly (10 in 1h): held`.
fn limits(execution: &Execution) -> String {
    let bound = |limit: &ExecutionLimit| match &limit.rate {
        Some(rate) => {
            let window = rate.window.as_ref().map(time::duration).unwrap_or_default();
            format!("{} in {}", rate.starts, time::short(window))
        }
        None => format!("{} at once", limit.at_once),
    };
    let limits = execution.limits.iter().map(|limit| format!("{} ({})", limit.key, bound(limit)));
    let state = match execution.limit_state() {
        LimitState::Unspecified => "",
        LimitState::Waiting => ": waiting",
        LimitState::Held => ": held",
    };
    let all = limits.collect::<Vec<_>>().join(", ");
    if all.is_empty() { all } else { all + state }
}

/// From the acceptance to the end, or to now: `12s`, or `12s, and 40s waiting for approval`, where the first is the machine's.
pub(super) fn took_in_words(execution: &Execution, now: Duration) -> Option<String> {
    let end = execution.end_time.as_ref().map_or(Some(now), time::since_epoch);
    let whole = time::between(execution.create_time.as_ref(), end)?;
    let before = execution.approval_wait.as_ref().map(time::duration).unwrap_or_default();
    // It has done nothing else since the last of its steps began to wait.
    let is_waiting = execution.state() == execution::State::AwaitingApproval;
    let waits = execution.waiting.iter().filter(|wait| is_waiting && wait.kind() == waiting_reason::Kind::Approval);
    let since = waits.filter_map(|wait| time::since_epoch(wait.begin_time.as_ref()?)).max();
    let waited = before + since.map(|since| now.saturating_sub(since)).unwrap_or_default();
    let machine = time::short(whole.saturating_sub(waited));
    Some(match waited.as_secs() {
        0 => machine,
        _ => format!("{machine}, and {} waiting for approval", time::short(waited)),
    })
}

/// The command to type next about an execution; one that no process drives has to be resumed, in any state.
fn next_command(execution: &Execution, is_driven: bool) -> String {
    let name = execution.name.as_str();
    let said = execution.waiting.iter().map(|reason| reason.next_command.as_str()).find(|command| !command.is_empty());
    // It resumes when the window of the budget of its namespace ends; one that is resumed before that is paused again.
    let waits_for_limit = execution.waiting.iter().any(|reason| reason.kind() == waiting_reason::Kind::Limit);
    let is_to_resume = execution.state() == execution::State::Paused && !waits_for_limit;
    match execution.state() {
        state if !is_over(state) && (is_to_resume || !is_driven) => about(&["executions", "resume"], name, &[]),
        state if is_over(state) => about(&["executions", "get"], name, &["-o", "json"]),
        _ => said.and_then(of_server).unwrap_or_else(|| about(&["executions", "watch"], name, &[])),
    }
}

/// `a=b team=x`.
fn labels(execution: &Execution) -> String {
    execution.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
