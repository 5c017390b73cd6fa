//! The values that the schemas of tools mark as secret: where they stand in plans, inputs, arguments and results. Pure.

use std::collections::BTreeSet;

use belay_execution::{
    BlobRef, Body, ChildEnd, Created, Event, Execution, ExecutionEvent, Json, OperationEnd, OperationEvent, StepEvent,
    ToolFacts, Work,
};
use belay_plan::{Plan, PlanStep, StepKind, StepSpec, Template, ToolStep};
use belay_redaction::{leaves, marked};
use serde_json::Value;

/// The marked values of an execution that begins: what its plan writes in marked arguments, and the inputs that it puts there.
pub(crate) fn of_created(created: &Created) -> Vec<String> {
    of_plan(&created.plan, &created.tools, &created.inputs.value())
}

/// The marked values of a plan with these inputs.
pub(crate) fn of_plan(plan: &Plan, tools: &[ToolFacts], inputs: &Value) -> Vec<String> {
    let mut found = MarkedValues { tools, values: Vec::new() };
    for input in found.in_plan(plan) {
        found.add(inputs.get(&input));
    }
    found.values
}

/// The values that stand at these places.
pub(crate) fn at(places: &[String], json: &Json) -> Vec<String> {
    let mut values = Vec::new();
    if !places.is_empty() {
        for (_, value) in marked(&json.value(), places) {
            leaves(value, &mut |value| values.push(value));
        }
    }
    values
}

/// The marked values that an event of this execution brings. `original` returns a value that became a blob, if it is at hand.
pub(crate) fn of_event(
    execution: &Execution,
    event: &Event,
    original: &dyn Fn(&BlobRef) -> Option<Json>,
) -> Vec<String> {
    match &event.body {
        Body::Execution(ExecutionEvent::PlanUpdated(updated)) => {
            of_plan(&updated.plan, &updated.tools, &execution.created().inputs.value())
        }
        Body::Operation { event: OperationEvent::Requested(Work::ToolCall(request)), .. } => {
            let facts = execution.tools().iter().find(|facts| facts.tool == request.tool);
            let Some(places) = facts.map(|facts| &facts.secret_arguments).filter(|places| !places.is_empty()) else {
                return Vec::new();
            };
            let large = request.arguments.blob().and_then(original);
            request.arguments.inline().or(large.as_ref()).map_or_else(Vec::new, |arguments| at(places, arguments))
        }
        Body::Step { step, event: StepEvent::OutputSet { output, .. }, .. } => {
            let step = execution.step_key(step.as_str()).map(|key| execution.step(key).spec());
            step.map_or_else(Vec::new, |step| at(&of_output(step, execution.tools()), output))
        }
        Body::Step { step, event: StepEvent::CachedResultUsed { result, .. }, .. } => {
            let large = result.blob().and_then(original);
            let places =
                execution.step_key(step.as_str()).map(|key| of_output(execution.step(key).spec(), execution.tools()));
            let value = result.inline().or(large.as_ref());
            places.zip(value).map_or_else(Vec::new, |(places, value)| at(&places, value))
        }
        Body::Operation {
            id: child,
            event: OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Completed { output }, .. }),
        } => {
            let step = execution.step_key(child.step.as_str()).map(|key| execution.step(key).spec());
            step.map_or_else(Vec::new, |step| at(&of_output(step, execution.tools()), output))
        }
        _ => Vec::new(),
    }
}

/// The places in a step's output that its calls mark: one of them has returned it. What a step with a plan returns has the outputs of that plan's steps.
fn of_output(step: &StepSpec, tools: &[ToolFacts]) -> Vec<String> {
    let calls = step.named_calls();
    let facts = calls.filter_map(|call| tools.iter().find(|facts| facts.used_as == call.tool));
    let mut places: Vec<String> = facts.flat_map(|facts| facts.secret_result.iter().cloned()).collect();
    if let StepKind::Plan(PlanStep { plan, .. }) = step.kind() {
        for inner in plan.steps() {
            let id = pointer(inner.id());
            places.extend(of_output(inner, tools).iter().map(|place| format!("/outputs{id}{place}")));
        }
    }
    // The outputs of the entries of a list, or of several calls.
    if step.has_entries() {
        places = places.iter().map(|place| format!("/*{place}")).chain(places.iter().cloned()).collect();
    }
    places
}

struct MarkedValues<'a> {
    tools: &'a [ToolFacts],
    values: Vec<String>,
}

impl MarkedValues<'_> {
    fn add(&mut self, value: Option<&Value>) {
        value.into_iter().for_each(|value| leaves(value, &mut |value| self.values.push(value)));
    }

    /// Adds what the plan writes in marked arguments; returns the inputs that it puts there.
    fn in_plan(&mut self, plan: &Plan) -> BTreeSet<String> {
        let mut inputs = BTreeSet::new();
        for step in plan.steps() {
            let checks = step.preconditions().iter().chain(step.postconditions()).filter_map(|check| check.call());
            let calls = step.named_calls().chain(step.compensate());
            for ToolStep { tool, arguments } in calls.chain(checks) {
                if let Some(facts) = self.tools.iter().find(|facts| facts.used_as == *tool) {
                    self.in_template(arguments, &facts.secret_arguments, &mut inputs);
                }
            }
            if let StepKind::Plan(PlanStep { plan: inner, inputs: given }) = step.kind() {
                let places: Vec<String> = self.in_plan(inner).iter().map(|input| pointer(input)).collect();
                self.in_template(given, &places, &mut inputs);
            }
        }
        for input in &inputs {
            self.add(plan.inputs().get(input).and_then(|input| input.default.as_ref()));
        }
        inputs
    }

    /// Adds what stands at these places and names nothing; what names an input adds that to `inputs`.
    fn in_template(&mut self, template: &Template, places: &[String], inputs: &mut BTreeSet<String>) {
        if places.is_empty() {
            return;
        }
        let references = template.reference_paths();
        for (place, value) in marked(template.source(), places) {
            let is_below =
                |path: &str| path.strip_prefix(&place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            inputs.extend(template.named_inputs().filter(|(path, _)| is_below(path)).map(|(_, name)| name.to_owned()));
            let mut literal = value.clone();
            for reference in references.iter().filter(|path| is_below(path)) {
                literal.pointer_mut(&reference[place.len()..]).into_iter().for_each(|value| *value = Value::Null);
            }
            leaves(&literal, &mut |value| self.values.push(value));
        }
    }
}

/// The place of a member in an object.
fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use belay_execution::RecoveryClass;
    use belay_plan::Format;
    use serde_json::json;

    use super::*;

    fn tools() -> Vec<ToolFacts> {
        vec![ToolFacts {
            used_as: "login".into(),
            tool: "login".into(),
            recovery: RecoveryClass::ReadOnly,
            default_timeout: std::time::Duration::ZERO,
            secret_arguments: vec!["/pin".into(), "/list/*/key".into()],
            secret_result: vec!["/session".into()],
            ..ToolFacts::default()
        }]
    }

    #[test]
    fn literals_inputs_and_defaults_at_marked_places_are_found() {
        let text = json!({"id": "p", "inputs": {"a": {}, "b": {"default": "of b"}, "c": {}}, "steps": [
            {"id": "one", "tool": "login", "arguments": {"pin": "1", "name": "bob", "list": [{"key": 2}, {"key": "x${inputs.a}", "other": "y"}]}},
            {"id": "two", "tool": "login", "arguments": {"pin": "${inputs.b}"}, "fallback": [{"tool": "login", "arguments": {"pin": "3"}}],
             "compensate": {"tool": "login", "arguments": {"pin": "4"}}},
            {"id": "three", "tool": "other", "arguments": {"pin": "no", "c": "${inputs.c}"}},
            {"id": "four", "inputs": {"i": "5", "j": "no", "k": "${inputs.c.part}"}, "plan": {"id": "q", "inputs": {"i": {}, "j": {}, "k": {}}, "steps": [
                {"id": "deep", "tool": "login", "arguments": {"pin": "${inputs.i}", "list": [{"key": "${inputs.k}"}], "more": "${inputs.j}"}}]}},
        ]});
        let plan = Plan::parse_with(Format::Json, &text.to_string(), |_| Vec::new()).unwrap();
        let inputs = json!({"a": "of a", "b": "given b", "c": {"part": 7}});
        let found: BTreeSet<String> = of_plan(&plan, &tools(), &inputs).into_iter().collect();
        // Of an input that is named in part all is hidden: its parts are not told apart.
        let wanted = ["1", "2", "3", "4", "5", "7", "given b", "of a", "of b", "part"];
        assert_eq!(found, wanted.map(str::to_owned).into());
        assert_eq!(
            at(&of_output(&plan.steps()[0], &tools()), &Json::canonical(&json!({"session": ["s"], "x": 1}))),
            ["s"]
        );
    }
}
