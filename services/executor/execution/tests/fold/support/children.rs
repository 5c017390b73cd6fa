//! The executions of steps' plans, as an executor drives them. A child takes as many seconds as its inputs say (`takes`, 1 by default), and fails
//! with the class that they name (`fails`: `transient` or `fatal`), in its first `times` attempts.

use std::collections::BTreeMap;

use belay_execution::{
    Amounts, Body, ChildEnd, ChildPause, ErrorClass, Execution, Failure, Json, Operation, OperationEnd, OperationEvent,
    OperationId, OperationKind, OperationReport, RequiredAction, Timestamp,
};
use serde_json::Value;

use super::play::Happening;

#[derive(Clone, Debug)]
struct Running {
    ends: Timestamp,
    is_paused: bool,
    is_cancelled: bool,
}

/// The amounts that a child that ends by itself has used. For a child that is cancelled they are unknown.
const SPENT: Amounts = Amounts { calls: 1, output_bytes: 1, tokens: 0, cost_micros: 0 };

#[derive(Clone, Debug, Default)]
pub(crate) struct Children(BTreeMap<OperationId, Running>);

impl Children {
    /// Performs the driver's action for a child.
    pub(crate) fn perform(
        &mut self,
        id: &OperationId,
        operation: &Operation,
        required: RequiredAction,
        now: Timestamp,
    ) {
        let inputs = inputs_of(operation);
        let takes = std::time::Duration::from_secs(inputs["takes"].as_u64().unwrap_or(1));
        let start = || Running { ends: now.saturating_add(takes), is_paused: false, is_cancelled: false };
        let running = self.0.entry(id.clone()).or_insert_with(start);
        match required {
            RequiredAction::Dispatch if running.is_paused => {
                (running.is_paused, running.ends) = (false, running.ends.max(now))
            }
            RequiredAction::Dispatch => {}
            RequiredAction::Pause => running.is_paused = true,
            RequiredAction::Cancel | RequiredAction::Kill if !running.is_cancelled => {
                (running.is_cancelled, running.ends) = (true, now)
            }
            RequiredAction::Cancel | RequiredAction::Kill => {}
            RequiredAction::RequestApproval | RequiredAction::Commit | RequiredAction::Discard => {
                panic!("{required:?} is not for the execution of a plan")
            }
        }
    }

    /// Returns the next updates about the executor's children, with their times.
    pub(crate) fn happenings<'a>(
        &'a self,
        execution: &'a Execution,
    ) -> impl Iterator<Item = (Timestamp, Happening)> + 'a {
        execution.operations().filter_map(|operation| {
            let OperationKind::Child { created, pause, .. } = &operation.kind else { return None };
            let id = execution.operation_id(operation.key);
            let running = self.0.get(&id)?;
            let about = |event| (None, Body::Operation { id: id.clone(), event });
            if !*created {
                return Some((execution.last_time(), about(OperationEvent::Reported(OperationReport::ChildCreated))));
            }
            if running.is_cancelled {
                return Some((
                    running.ends,
                    about(OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Cancelled, spent: None })),
                ));
            }
            let is_paused = execution.paused_by().is_some();
            match (*pause, running.is_paused) {
                (ChildPause::Paused, true) => None,
                (_, true) => is_paused
                    .then(|| (execution.last_time(), about(OperationEvent::Reported(OperationReport::ChildPaused)))),
                (ChildPause::Runs, false) => Some((
                    running.ends,
                    about(OperationEvent::Ended(OperationEnd::Child { end: end(operation), spent: Some(SPENT) })),
                )),
                (_, false) => (!is_paused)
                    .then(|| (execution.last_time(), about(OperationEvent::Reported(OperationReport::ChildResumed)))),
            }
        })
    }
}

fn inputs_of(operation: &Operation) -> Value {
    operation.child().expect("the execution of a plan").inputs.value()
}

fn end(operation: &Operation) -> ChildEnd {
    let inputs = inputs_of(operation);
    let class = match inputs["fails"].as_str() {
        _ if inputs["times"].as_u64().is_some_and(|times| u64::from(operation.key.attempt) > times) => None,
        Some("transient") => Some(ErrorClass::Transient),
        Some(_) => Some(ErrorClass::Fatal),
        None => None,
    };
    match class {
        Some(class) => ChildEnd::Failed { failure: Failure::new(class, "CHILD_FAILED", "Its plan failed.") },
        None => ChildEnd::Completed { output: Json::canonical(&serde_json::json!({"ran": operation.key.attempt})) },
    }
}
