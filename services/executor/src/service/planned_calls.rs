//! The calls that a plan would make, for a request that starts nothing.

use std::borrow::Cow;

use belay_execution::Json;
use belay_plan::{Plan, PlanPart, StepValue};
use belay_proto::{runner_v1, v1};

use crate::{
    ExecutionRegistry,
    intake::submitted::{Source, plan_with},
    wire,
};

/// How much the values of inputs may add to the calls of a plan, each of which may name all of them. Beyond it templates stay as they are written.
const MAX_VALUES_BYTES: usize = 1024 * 1024;

/// The calls of a valid plan, with the values of its inputs and what the policy of the namespace decides about each.
pub(super) async fn planned_calls(
    registry: &ExecutionRegistry,
    namespace: &str,
    plan: &Plan,
    inputs: &Json,
) -> Vec<v1::PlannedCall> {
    let catalogue = registry.runner.catalogue(false).await.ok();
    let takes_network = |tool: &str| catalogue.as_ref().is_some_and(|catalogue| catalogue.takes_network(tool));
    let mut calls = of_plan(plan, inputs, &takes_network);
    let planned = |call: &v1::PlannedCall| runner_v1::PlannedCall {
        tool: call.tool.clone(),
        arguments: call.arguments.clone(),
        network: call.network.clone(),
        is_own: false,
    };
    let checked = registry.runner.check_calls(calls.iter().map(planned).collect(), namespace.to_owned()).await;
    for (call, network) in calls.iter_mut().zip(checked.networks) {
        call.network = network;
    }
    for (call, decision) in calls.iter_mut().zip(checked.decisions) {
        call.decision = Some(decision).filter(|decision| decision.verdict != 0);
    }
    calls
}

/// The calls of a plan, without decisions.
fn of_plan(plan: &Plan, inputs: &Json, takes_network: &dyn Fn(&str) -> bool) -> Vec<v1::PlannedCall> {
    let message = wire::plan_message(plan);
    let ids: Vec<String> = message.steps.iter().map(|step| step.id.clone()).collect();
    let (values, mut room, mut calls) = (inputs.value(), MAX_VALUES_BYTES, Vec::new());
    let collect = |planned: PlanPart<'_>| {
        if let PlanPart::Call(call) = planned
            && let (Some(arguments), Some(id)) = (call.arguments, ids.get(call.step.step))
        {
            // A plan within a step has inputs of its own.
            let is_outer = call.step.within.is_empty();
            let value = |_: &str, what| (is_outer && what == StepValue::Input).then_some(Cow::Borrowed(&values));
            let (arguments, has_templates) = arguments.resolve_known(&value, &mut room);
            let place = call.place.pointer("");
            calls.push(v1::PlannedCall {
                step_id: id.clone(),
                field: format!("/steps/{}{}{place}", call.step.step, call.step.within),
                tool: call.tool.to_owned(),
                arguments: Some(v1::Payload::of_json(arguments.to_string())),
                has_templates,
                decision: None,
                network: call.network_asked(takes_network(call.tool)).unwrap_or_default().to_owned(),
            });
        }
        Vec::new()
    };
    // It was checked before.
    drop(plan_with(&Source::Message(message), collect));
    calls
}

#[cfg(test)]
mod tests {
    use belay_plan::Format;
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_calls_of_a_plan_have_the_values_of_inputs_and_keep_other_templates() {
        let text = "
id: p
inputs: {topic: {schema: {type: string}}}
steps:
  - {id: a, tool: noop, arguments: {output: 'about ${inputs.topic}'}, fallback: [{tool: noop, arguments: {output: '$${x}'}}]}
  - id: checks
    depends_on: [a]
    steps: [{id: b, tool: noop, arguments: {output: '${a.result} and ${inputs.topic}', fail: '${inputs.topic}'}}]
  - id: c
    plan:
      id: inner
      inputs: {topic: {schema: {type: string}, default: x}}
      steps: [{id: d, tool: noop, arguments: {output: '${inputs.topic}'}}]
";
        let plan = Plan::parse(Format::Yaml, text).unwrap();
        let found: Vec<_> = of_plan(&plan, &Json::from_text(r#"{"topic": "tests"}"#), &|_| false)
            .into_iter()
            .map(|call| {
                let arguments = call.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
                let arguments: serde_json::Value = serde_json::from_str(arguments).unwrap();
                (call.step_id, call.field, arguments, call.has_templates)
            })
            .collect();
        let call = |step: &str, field: &str, arguments, has_templates| {
            (step.to_owned(), field.to_owned(), arguments, has_templates)
        };
        let large = format!(r#"{{"topic": "{}"}}"#, "x".repeat(MAX_VALUES_BYTES / 2));
        let sizes = of_plan(&plan, &Json::from_text(large.as_str()), &|_| false)
            .into_iter()
            .map(|call| call.encoded_len())
            .sum::<usize>();
        assert!(sizes > MAX_VALUES_BYTES / 2 && sizes < MAX_VALUES_BYTES, "one of three fits: {sizes}");
        assert_eq!(
            found,
            [
                call("a", "/steps/0", json!({"output": "about tests"}), false),
                call("a", "/steps/0/fallback/0", json!({"output": "${x}"}), false),
                call("b", "/steps/1", json!({"output": "${a.result} and ${inputs.topic}", "fail": "tests"}), true),
                call("c", "/steps/2/plan/steps/0", json!({"output": "${inputs.topic}"}), true),
            ]
        );
    }
}
