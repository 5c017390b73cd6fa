//! Lines about the executions that a command changes: how many, and which.

use belay_proto::v1::Execution;

use crate::{
    clock,
    render::{
        execution,
        text::{Line, Style},
    },
};

/// The most executions that are listed.
const MAX_SHOWN: usize = 20;

/// `1 execution`, `2 executions`.
pub(crate) fn counted(count: usize) -> String {
    format!("{count} execution{}", if count == 1 { "" } else { "s" })
}

/// The executions as a table, the first of them where they are many.
pub(crate) fn shown(executions: &[Execution]) -> Vec<Line> {
    let first = &executions[..executions.len().min(MAX_SHOWN)];
    let mut lines = execution::list(first, clock::now());
    if executions.len() > first.len() {
        lines.push(Line::default().and(Style::Dim, format!("and {} more", executions.len() - first.len())));
    }
    lines
}
