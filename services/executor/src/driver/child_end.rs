//! The end of an execution that carries out the plan of a step, as its parent records it.

use belay_defects::{Defect, is_planted};
use belay_execution::{ChildEnd, ErrorClass, Execution, ExecutionState, Failure, Json, Payload, StepRole, StepState};
use belay_proto::payload::MAX_INLINE_BYTES;
use belay_reasons as reasons;
use belay_redaction::Redactor;

use crate::{names::ExecutionName, owned::messages::ChildResult, store::secrets};

/// The failure of a step whose child was created and is not in the store any more.
pub(super) fn lost(name: &ExecutionName) -> Failure {
    let message = format!(
        "The execution `{}`, which carried out the step's plan, is not in the store any more, and its result is not known: find out what it has done \
         before the step runs again.",
        name.id
    );
    Failure::new(ErrorClass::OutcomeUnknown, reasons::CHILD_LOST, message)
}

/// The failure of a step whose child another principal has cancelled.
pub(super) fn cancelled(name: &ExecutionName) -> Failure {
    let message = format!("The execution `{}`, which carried out the step's plan, was cancelled.", name.id);
    Failure::new(ErrorClass::Cancelled, reasons::CHILD_CANCELLED, message)
}

/// The result of a child, whose secrets this redactor hides, for its parent; `None` when it has not ended.
pub(super) fn end_of(name: &ExecutionName, execution: &Execution, redactor: &Redactor) -> Option<ChildResult> {
    let end = how_ended(name, execution)?;
    let secrets = match &end {
        ChildEnd::Completed { output } => secrets::found_in(redactor, output),
        ChildEnd::Failed { .. } | ChildEnd::Cancelled => Vec::new(),
    };
    Some(ChildResult { end, secrets, spent: execution.spent() })
}

/// How a child has ended; `None` when it has not. Its output has the outputs that its plan declares, or else those of the steps on which no other depends.
fn how_ended(name: &ExecutionName, execution: &Execution) -> Option<ChildEnd> {
    let failed = |class, reason, message: String| ChildEnd::Failed { failure: Failure::new(class, reason, message) };
    match execution.state() {
        ExecutionState::Completed => Some(match output_of(name, execution) {
            Ok(output) => ChildEnd::Completed { output },
            Err(message) => failed(ErrorClass::InvalidResult, reasons::CHILD_REFUSED, message),
        }),
        ExecutionState::Cancelled => Some(ChildEnd::Cancelled),
        ExecutionState::Partial | ExecutionState::Failed | ExecutionState::TimedOut => {
            let first = execution.first_failure();
            let class = first.map_or(ErrorClass::Internal, |failure| failure.class);
            let why = first.map_or("it did not complete", |failure| failure.message.as_str());
            let message = format!("The execution `{}`, which carried out the step's plan, failed: {why}", name.id);
            Some(failed(class, reasons::CHILD_FAILED, message))
        }
        _ if is_planted(Defect::StaleView) => {
            Some(failed(ErrorClass::Internal, reasons::CHILD_FAILED, "it did not complete".to_owned()))
        }
        ExecutionState::Pending
        | ExecutionState::Running
        | ExecutionState::Paused
        | ExecutionState::AwaitingApproval
        | ExecutionState::Cancelling => None,
    }
}

fn output_of(name: &ExecutionName, execution: &Execution) -> Result<Json, String> {
    match execution.outputs() {
        Some(outputs) => declared(name, outputs),
        None => of_last_steps(name, execution),
    }
}

/// The outputs that the plan declares.
fn declared(name: &ExecutionName, outputs: Result<&Payload, &Failure>) -> Result<Json, String> {
    let outputs =
        outputs.map_err(|failure| format!("The execution `{}` has no outputs: {}", name.id, failure.message))?;
    outputs.inline().cloned().ok_or_else(|| {
        format!(
            "The outputs of `{}` have {} bytes, and the limit for the output of a step that carries out a plan is {MAX_INLINE_BYTES}: let its steps \
             write files, and let the outputs name their paths.",
            name.id,
            outputs.size()
        )
    })
}

fn of_last_steps(name: &ExecutionName, execution: &Execution) -> Result<Json, String> {
    let plan = execution.plan();
    let mut outputs = serde_json::Map::new();
    let mut size = 0;
    for step in execution.steps() {
        let is_last = plan.step_index(step.id().as_str()).is_some_and(|index| plan.dependents(index).is_empty());
        if step.role() != StepRole::Planned || !is_last || step.state() != StepState::Completed {
            continue;
        }
        let Some(output) = step.output() else { continue };
        size += output.size();
        let json = output.inline().filter(|_| size <= MAX_INLINE_BYTES as u64).ok_or_else(|| {
            format!(
                "The outputs of the last steps of `{}` have {size} bytes, and the limit for the output of a step that carries out a plan is \
                 {MAX_INLINE_BYTES}: end the plan with a step that returns less, such as the path of a file.",
                name.id
            )
        })?;
        outputs.insert(step.id().as_str().to_owned(), json.value());
    }
    let output = serde_json::json!({"execution": name.to_string(), "outputs": outputs});
    if belay_json::is_too_deep(&output) {
        return Err(format!(
            "The outputs of the last steps of `{}` are nested deeper than {} levels together: end the plan with a step that returns less.",
            name.id,
            belay_json::MAX_DEPTH
        ));
    }
    Ok(Json::canonical(&output))
}
