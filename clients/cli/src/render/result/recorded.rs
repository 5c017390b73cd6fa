//! An execution as its result is read, and what every shape of a result needs to know of it.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use belay_proto::v1::{
    AuditEntry, Execution, ExecutionEvent, Failure, Payload, Step, StepSpec, ToolCallRequested, execution_event::Kind,
    payload::Content, step, step::State, step_spec,
};
use pbjson_types::Timestamp;
use serde_json::{Map, Value, json};

use crate::render::{call, time};

/// An execution as its result is read: the contract's messages, and what its events say about calls.
pub(crate) struct RecordedExecution {
    /// In FULL view, with the steps in FULL view.
    pub(crate) execution: Execution,
    /// The calls of tools.
    pub(crate) calls: Calls,
    /// The entries of the audit log, for the shapes that have them.
    pub(crate) audit: Vec<AuditEntry>,
    /// When it is read; an execution that has not ended has lasted until then.
    pub(crate) now: Duration,
}

/// The calls of an execution's steps as its events describe them, by step.
#[derive(Debug, Default)]
pub(crate) struct Calls(HashMap<String, Call>);

#[derive(Debug, Default)]
struct Call {
    /// How many calls the step has made with each tool as the plan names it; `None` is the step's own, the others are of its fallbacks.
    counts: HashMap<Option<String>, u64>,
    /// The tool of a fallback that has taken the place of the step's own.
    fallback: Option<String>,
    /// The arguments of the last call, resolved.
    arguments: Option<Payload>,
}

impl Calls {
    /// Takes the next event.
    pub(crate) fn take(&mut self, event: &ExecutionEvent) {
        if let Some(Kind::ToolCallRequested(ToolCallRequested { arguments, .. })) = &event.kind {
            let call = self.0.entry(event.step_id.clone()).or_default();
            *call.counts.entry(call.fallback.clone()).or_default() += 1;
            call.arguments.clone_from(arguments);
        }
        if let Some(Kind::StepFallbackSwitched(switched)) = &event.kind {
            self.0.entry(event.step_id.clone()).or_default().fallback = Some(switched.fallback_tool.clone());
        }
        // Each step that runs again begins with its own tool.
        if let Some(Kind::ExecutionRetried(retried)) = &event.kind {
            for id in &retried.step_ids {
                self.0.entry(id.clone()).or_default().fallback = None;
            }
        }
    }

    /// The arguments of the last call of each step, for replacing references to blobs by their values.
    pub(crate) fn arguments(&mut self) -> impl Iterator<Item = &mut Payload> {
        self.0.values_mut().filter_map(|call| call.arguments.as_mut())
    }

    /// How many calls each tool got from a step; `None` is the step's own.
    pub(super) fn counts(&self, step: &str) -> impl Iterator<Item = (Option<&str>, u64)> {
        let counts = self.0.get(step).into_iter().flat_map(|call| &call.counts);
        counts.map(|(tool, count)| (tool.as_deref(), *count))
    }

    pub(super) fn input(&self, step: &str) -> Value {
        let arguments = self.0.get(step).and_then(|call| call.arguments.as_ref());
        arguments.map_or_else(|| json!({}), value)
    }
}

pub(super) fn completed(execution: &Execution) -> impl Iterator<Item = &Step> {
    execution.steps.iter().filter(|step| step.state() == State::Completed)
}

/// The steps whose outputs are the execution's result: those of the plan that completed, and that no other completed step depends on. In the plan's order.
pub(crate) fn last_completed(execution: &Execution) -> Vec<&Step> {
    let ids: HashSet<&str> = completed(execution).map(|step| step.step_id.as_str()).collect();
    let used: HashSet<String> = specs(execution)
        .filter(|spec| ids.contains(spec.id.as_str()))
        .flat_map(|spec| dependencies(spec, &ids))
        .collect();
    // The output of an entry of a list is in that of the step that reads the list.
    completed(execution).filter(|step| step.item.is_none() && !used.contains(&step.step_id)).collect()
}

/// The outputs that the plan declares. Without them the output of the last completed step; of several, an object with the output of each by its id. `None` while
/// no step has completed, and where the declared outputs are refused.
pub(crate) fn final_result(execution: &Execution) -> Option<Value> {
    if execution.outputs.is_some() || execution.outputs_failure.is_some() {
        return execution.outputs.as_ref().map(value);
    }
    match last_completed(execution).as_slice() {
        [] => None,
        [only] => Some(output(only).unwrap_or_default()),
        several => {
            let of_each = several.iter().map(|step| (step.step_id.clone(), output(step).unwrap_or_default()));
            Some(of_each.collect::<Map<String, Value>>().into())
        }
    }
}

/// The step that a result of one call is about: the first that failed, else the last one that completed.
pub(super) fn decisive(execution: &Execution) -> Option<&Step> {
    first_failed(execution).or_else(|| last_completed(execution).pop())
}

pub(super) fn first_failed(execution: &Execution) -> Option<&Step> {
    let failed = execution.steps.iter().filter(|step| step.state() == State::Failed);
    failed.min_by_key(|step| step.end_time.as_ref().and_then(time::since_epoch))
}

pub(super) fn specs(execution: &Execution) -> impl Iterator<Item = &StepSpec> {
    execution.plan.iter().flat_map(|plan| &plan.steps)
}

/// The steps among `known` that a step waits for.
pub(super) fn dependencies(spec: &StepSpec, known: &HashSet<&str>) -> Vec<String> {
    let mut all = call::dependencies(spec, |id| known.contains(id));
    all.retain(|id| known.contains(id.as_str()));
    all
}

/// The step of the plan that says what a step does: of an entry of a list, the step that reads the list.
pub(super) fn planned_id(step: &Step) -> &str {
    step.item.as_ref().map_or(&step.step_id, |item| &item.step_id)
}

/// The steps, without the turns of models and what these have called: those are no part of what was to be done.
pub(super) fn steps_of_plan(execution: &Execution) -> impl Iterator<Item = &Step> {
    let agents: HashSet<&str> = execution
        .steps
        .iter()
        .filter(|step| matches!(step.detail, Some(step::Detail::Agent(_))))
        .map(|step| step.step_id.as_str())
        .collect();
    let of_agent = move |step: &Step| step.item.as_ref().is_some_and(|item| agents.contains(item.step_id.as_str()));
    execution.steps.iter().filter(move |step| !of_agent(step))
}

/// The tool that each step of the plan calls first.
pub(super) fn own_tools(execution: &Execution) -> HashMap<&str, &str> {
    let mut tools = HashMap::new();
    for spec in specs(execution) {
        if let Some(step_spec::Kind::Tool(call)) = &spec.kind {
            tools.insert(spec.id.as_str(), call.tool.as_str());
        }
    }
    tools
}

/// The tool of a step as its plan names it; of a fallback that has taken its place, that one's; `calls` of one that makes several, `wait` of one that waits, `plan` of one that carries out a plan.
pub(super) fn tool(step: &Step) -> &str {
    match &step.detail {
        Some(step::Detail::Tool(detail)) => &detail.tool,
        Some(step::Detail::Wait(_)) => "wait",
        Some(step::Detail::Calls(_)) => "calls",
        Some(step::Detail::Plan(_)) => "plan",
        Some(step::Detail::Agent(_)) => "agent",
        None => "",
    }
}

/// The output of a step that has one.
pub(super) fn output(step: &Step) -> Option<Value> {
    step.output.as_ref().map(value)
}

/// A payload as JSON. A blob that was not read stays a reference to it.
pub(super) fn value(payload: &Payload) -> Value {
    match &payload.content {
        Some(Content::Json(text)) => serde_json::from_str(text).unwrap_or_else(|_| text.clone().into()),
        Some(Content::Blob(blob)) => json!({ "blob": { "digest": blob.digest, "sizeBytes": blob.size_bytes } }),
        None => Value::Null,
    }
}

/// The standard output of a program; the result of a tool that is no command as text.
pub(super) fn text_of(step: &Step) -> String {
    let last = step.failure.as_ref().filter(|_| step.state() == State::Failed);
    if let Some(failure) = last {
        return failure.last_output.as_ref().map(|last| last.stdout.clone()).unwrap_or_default();
    }
    match output(step) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(value) => value["stdout"].as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

/// The exit code of a step's program. Without a program, 0 for a step that completed, and `None` for another.
pub(super) fn exit_code(step: &Step) -> Option<i64> {
    if step.state() == State::Completed {
        return Some(output(step).and_then(|value| value["exit_code"].as_i64()).unwrap_or(0));
    }
    step.failure.as_ref()?.metadata.get("exit_code")?.parse().ok()
}

/// A failure in one line: what went wrong, or its code.
pub(super) fn message(failure: &Failure) -> &str {
    if failure.message.is_empty() { &failure.reason } else { &failure.message }
}

/// The whole milliseconds between two times; 0 where there is no start. Without an end, until `now`.
pub(super) fn milliseconds(from: Option<&Timestamp>, to: Option<&Timestamp>, now: Duration) -> u64 {
    let to = to.and_then(time::since_epoch).unwrap_or(now);
    u64::try_from(time::between(from, Some(to)).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// A time as the canonical JSON of the contract has it.
pub(super) fn when(timestamp: &Timestamp) -> Value {
    time::rfc3339(timestamp).map(|text| text.replace("+00:00", "Z")).into()
}

/// How long the execution has lasted since its first step started, or since it was accepted.
pub(super) fn lasted(RecordedExecution { execution, now, .. }: &RecordedExecution) -> u64 {
    let start = execution.start_time.as_ref().or(execution.create_time.as_ref());
    milliseconds(start, execution.end_time.as_ref(), *now)
}
