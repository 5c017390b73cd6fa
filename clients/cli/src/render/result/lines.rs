//! The events of an execution as the lines of an executor stage: `step_start`, `tool_call`, `tool_result`, `step_complete`. Keeps only what runs.

use std::{collections::HashMap, time::Duration};

use belay_proto::v1::{ApprovalNeed, ErrorClass, ExecutionEvent, Failure};
use pbjson_types::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    executor::{Numbers, error_code, failed, stage_status, title},
    recorded::message,
};
use crate::render::{
    event_description::{ApprovalChange, CallChange, EventChange, ExecutionChange, StepChange, StepEnd, describe},
    json, time,
    tracked_execution::TrackedExecution,
    words,
};

/// How events are printed as lines for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EventShape {
    /// The contract's events
    #[default]
    Belay,
    /// The lines of an executor stage: step_start, tool_call, tool_result, step_complete
    #[value(alias = "s2")]
    Executor,
}

/// Makes the lines.
#[derive(Debug, Default)]
pub(crate) struct EventLines {
    shape: EventShape,
    /// The steps that have started and not ended, with the time at which they started.
    steps: HashMap<String, Option<Timestamp>>,
    /// The calls that have not ended, by step: the tool, and the time at which it was called.
    calls: HashMap<String, (String, Option<Timestamp>)>,
    /// The approvals that steps need, by step, until they are asked for.
    needs: HashMap<String, ApprovalNeed>,
    numbers: Numbers,
}

impl EventLines {
    /// The state before any event.
    pub(crate) fn new(shape: EventShape) -> EventLines {
        EventLines { shape, ..EventLines::default() }
    }

    /// The line of the next event, if it has one. `tracked` has to know the event.
    pub(crate) fn take(
        &mut self,
        event: &ExecutionEvent,
        tracked: &TrackedExecution,
    ) -> Result<Option<Value>, json::JsonError> {
        match self.shape {
            EventShape::Belay => json::of_event(event, tracked.execution()).map(Some),
            EventShape::Executor => self.of_stage(event, tracked),
        }
    }

    fn of_stage(
        &mut self,
        event: &ExecutionEvent,
        tracked: &TrackedExecution,
    ) -> Result<Option<Value>, json::JsonError> {
        let id = &event.step_id;
        let line = match describe(event).change {
            EventChange::Step(change) => self.of_step(event, change, tracked)?,
            EventChange::Execution(change) => of_execution(change),
            EventChange::None => None,
        };
        let Some((kind, fields)) = line else { return Ok(None) };
        if self.numbers.counted != tracked.execution().steps.len() {
            self.numbers = Numbers::of(tracked.execution());
        }
        let number = self.numbers.step(id);
        let mut line: Map<String, Value> = Map::from_iter([("type".to_owned(), kind.into())]);
        if id.is_empty() || number.is_some() {
            line.insert("task".to_owned(), number.map_or(1, |(task, _)| task).into());
        }
        if !id.is_empty() {
            line.extend(number.map(|(_, step)| ("step".to_owned(), step.into())));
            line.insert("step_id".to_owned(), id.clone().into());
        }
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        Ok(Some(line.into()))
    }

    /// The type and the fields of the line about a step. `None` when the step is retried, waits, or is changed by a person: a stage has no line
    /// for that.
    fn of_step(
        &mut self,
        event: &ExecutionEvent,
        change: StepChange<'_>,
        tracked: &TrackedExecution,
    ) -> Result<Option<(&'static str, Value)>, json::JsonError> {
        let id = &event.step_id;
        let line = match change {
            StepChange::Started => {
                // Another attempt is the same step.
                if self.steps.contains_key(id) {
                    return Ok(None);
                }
                self.steps.insert(id.clone(), event.record_time);
                ("step_start", json!({ "title": tracked.step(id).map(title) }))
            }
            StepChange::Ended(end) => {
                let (status, failure) = match end {
                    StepEnd::Completed => ("success", None),
                    StepEnd::Failed(failure) => (failure.map_or("failed", failed), failure),
                    StepEnd::Skipped(_) => ("skipped", None),
                    StepEnd::Cancelled => ("cancelled", None),
                };
                ("step_complete", self.step_ended(event, tracked, status, failure))
            }
            StepChange::Call(change) => match change {
                CallChange::Requested(call) => {
                    self.calls.insert(id.clone(), (call.tool.clone(), event.record_time));
                    let params = json::of(call)?["arguments"].take();
                    ("tool_call", json!({ "tool": call.tool, "params": params }))
                }
                CallChange::Completed(call) => {
                    let output = json::of(call)?["result"].take();
                    ("tool_result", self.call_ended(event, "success", None, Some(output)))
                }
                CallChange::Denied(failure) => ("tool_result", self.call_ended(event, "denied", failure, None)),
                CallChange::Failed(failure) => {
                    let status = match failure.map(Failure::error_class) {
                        Some(ErrorClass::Timeout) => "timeout",
                        Some(ErrorClass::SandboxViolation) => "denied",
                        _ => "error",
                    };
                    ("tool_result", self.call_ended(event, status, failure, None))
                }
                CallChange::WithoutOutcome(failure) => ("tool_result", self.call_ended(event, "error", failure, None)),
                CallChange::Dispatched => return Ok(None),
            },
            StepChange::Approval(ApprovalChange::Needed(need)) => {
                self.needs.insert(id.clone(), need.cloned().unwrap_or_default());
                return Ok(None);
            }
            StepChange::Approval(ApprovalChange::Requested(name)) => {
                ("approval_request", self.approval(name, id, tracked))
            }
            StepChange::Approval(ApprovalChange::Decided(_))
            | StepChange::AttemptFailed(_)
            | StepChange::OutcomeUnknown(_)
            | StepChange::Resolved(_)
            | StepChange::Output(_)
            | StepChange::CachedResult(_)
            | StepChange::WaitStarted(_)
            | StepChange::WaitEnded
            | StepChange::ChildStarted(_)
            | StepChange::ChildEnded
            | StepChange::None => return Ok(None),
        };
        Ok(Some(line))
    }

    /// The fields of a request for an approval: the operation, its files, why the plan does it, and how much harm it may do.
    fn approval(&mut self, approval: &str, step: &str, tracked: &TrackedExecution) -> Value {
        // A watch that began after the call was held knows neither files nor risk.
        let need = self.needs.remove(step);
        let effect = need.as_ref().and_then(|need| need.effect.as_ref());
        let files: Vec<&str> = effect.iter().flat_map(|effect| &effect.changes).map(|change| &*change.path).collect();
        let risk = need.as_ref().map(|need| words::risk(need.risk())).filter(|risk| !risk.is_empty());
        let planned = tracked.execution().plan.as_ref().and_then(|plan| plan.steps.iter().find(|spec| spec.id == step));
        let described = planned.map(|spec| spec.description.as_str()).filter(|description| !description.is_empty());
        json!({
            "approval": approval,
            "operation": self.calls.get(step).map(|(tool, _)| tool),
            "files": files,
            "reason": described.or_else(|| tracked.step(step).map(title)),
            "risk": risk,
        })
    }

    fn call_ended(
        &mut self,
        event: &ExecutionEvent,
        status: &str,
        failure: Option<&Failure>,
        output: Option<Value>,
    ) -> Value {
        let mut fields = json!({ "status": status });
        if let Some((tool, since)) = self.calls.remove(&event.step_id) {
            fields["tool"] = tool.into();
            fields["duration_ms"] = between(since.as_ref(), event.record_time.as_ref()).into();
        }
        if let Some(output) = output {
            fields["output"] = output;
        }
        with_error(fields, failure)
    }

    fn step_ended(
        &mut self,
        event: &ExecutionEvent,
        tracked: &TrackedExecution,
        status: &str,
        failure: Option<&Failure>,
    ) -> Value {
        let step = tracked.step(&event.step_id);
        // A watch that began after the step's start knows it from the snapshot.
        let known = || step.and_then(|step| step.start_time);
        let start = self.steps.remove(&event.step_id).flatten().or_else(known);
        self.calls.remove(&event.step_id);
        let fields = json!({
            "title": step.map(title),
            "status": status,
            "duration_ms": between(start.as_ref(), event.record_time.as_ref()),
        });
        with_error(fields, failure)
    }
}

/// The type and the fields of the line about an execution; `None` until it ends.
fn of_execution(change: ExecutionChange<'_>) -> Option<(&'static str, Value)> {
    let finished = match change {
        ExecutionChange::Finished(finished) => finished,
        ExecutionChange::Started
        | ExecutionChange::State(_)
        | ExecutionChange::Paused(_)
        | ExecutionChange::Retried(_)
        | ExecutionChange::PlanUpdated(_)
        | ExecutionChange::CompensationStarted(_)
        | ExecutionChange::ItemsListed(_)
        | ExecutionChange::Signal(_) => return None,
    };
    let duration = finished.duration.as_ref().map(time::duration).unwrap_or_default();
    let fields = json!({
        "status": stage_status(finished.state()),
        "next_stage": Some(&finished.next_stage).filter(|stage| !stage.is_empty()),
        "duration_ms": milliseconds(duration),
    });
    Some(("stage_complete", fields))
}

fn with_error(mut fields: Value, failure: Option<&Failure>) -> Value {
    if let Some(failure) = failure {
        fields["error"] = message(failure).into();
        fields["error_code"] = error_code(failure).into();
    }
    fields
}

fn between(from: Option<&Timestamp>, to: Option<&Timestamp>) -> u64 {
    milliseconds(time::between(from, to.and_then(time::since_epoch)).unwrap_or_default())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
