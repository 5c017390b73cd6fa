//! Many executions: a table of them, and a line for each change of one.

use std::time::Duration;

use belay_proto::v1::{Execution, ExecutionRemoved, WaitingReason, waiting_reason};

use super::{labels, took_in_words};
use crate::{
    names,
    render::{
        text::{Line, Style, table},
        time, words,
    },
};

/// How wide the state is in a watch of all executions: `awaiting_approval` and a gap.
const STATE_COLUMNS: usize = 19;

/// A table of executions in BASIC view, the columns' names first.
pub(crate) fn list(executions: &[Execution], now: Duration) -> Vec<Line> {
    let heading = ["ID", "STATE", "PLAN", "AGE", "BY", "LABELS"].map(|name| (Style::Dim, name.to_owned())).to_vec();
    let rows = executions.iter().map(|execution| {
        let state = execution.state();
        let age = time::between(execution.create_time.as_ref(), Some(now)).map(time::short).unwrap_or_default();
        vec![
            (Style::Strong, names::id(&execution.name).to_owned()),
            (words::execution_style(state), state_in_list(execution)),
            (Style::Plain, execution.plan_id.clone()),
            (Style::Plain, age),
            (Style::Plain, execution.principal.clone()),
            (Style::Dim, labels(execution)),
        ]
    });
    table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>())
}

/// `running`, or `pending (limit)` for one that waits for its turn in a limit.
fn state_in_list(execution: &Execution) -> String {
    let state = execution.state();
    let waits = |reason: &WaitingReason| reason.kind() == waiting_reason::Kind::Limit;
    let word = words::execution_state(state);
    if execution.waiting.iter().any(waits) { format!("{word} (limit)") } else { word }
}

/// An execution as it is now, for a watch of all: `failed  e1  deploy  12s  TOOL_FAILED`.
pub(crate) fn changed(execution: &Execution, now: Duration) -> Line {
    let state = execution.state();
    let took = took_in_words(execution, now).unwrap_or_default();
    let waits: Vec<String> =
        execution.waiting.iter().map(|reason| words::word(reason.kind().as_str_name(), "KIND_")).collect();
    let mut line = Line::default()
        .column(words::execution_style(state), words::execution_state(state), STATE_COLUMNS)
        .and(Style::Strong, names::id(&execution.name))
        .and(Style::Plain, format!("  {}  {took}", execution.plan_id));
    if let Some(failure) = &execution.failure {
        line = line.and(Style::Bad, format!("  {}", words::reason(failure)));
    }
    if !waits.is_empty() {
        line = line.and(Style::Warn, format!("  waits for {}", waits.join(", ")));
    }
    line
}

/// An execution that a watch of all is to forget.
pub(crate) fn removed(removed: &ExecutionRemoved) -> Line {
    let what = if removed.deleted { "deleted" } else { "no longer matches" };
    Line::default().column(Style::Dim, what, STATE_COLUMNS).and(Style::Strong, names::id(&removed.name))
}
