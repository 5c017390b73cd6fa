//! The calls that a plan would make, for a request that starts nothing.

use std::borrow::Cow;

use belay_execution::Json;
use belay_plan::{JUDGE_TOOL, MODEL_TOOL, ModelPlace, Plan, PlanPart, StepValue, Template, is_own_tool};
use belay_proto::{runner_v1, v1};
use serde_json::{Value, json};

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
    // A model is asked by the executor, and no policy decides about that.
    let mut of_runners: Vec<&mut v1::PlannedCall> = calls.iter_mut().filter(|call| !is_own_tool(&call.tool)).collect();
    let sent = of_runners.iter().map(|call| planned(call)).collect();
    let checked = registry.runner.check_calls(sent, namespace.to_owned()).await;
    for (call, network) in of_runners.iter_mut().zip(checked.networks) {
        call.network = network;
    }
    for (call, decision) in of_runners.into_iter().zip(checked.decisions) {
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
        let step = planned.step();
        let Some(id) = ids.get(step.step) else { return Vec::new() };
        // A plan within a step has inputs of its own.
        let is_outer = step.within.is_empty();
        let value = |_: &str, what| (is_outer && what == StepValue::Input).then_some(Cow::Borrowed(&values));
        let mut known = |template: &Template| template.resolve_known(&value, &mut room);
        let (place, tool, network, (arguments, has_templates)) = match planned {
            PlanPart::Call(call) => {
                // The arguments of a call that a model may make are the model's.
                let Some(arguments) = call.arguments else { return Vec::new() };
                (call.place.pointer(""), call.tool, call.network_asked(takes_network(call.tool)), known(arguments))
            }
            // Those that take over would be asked the same.
            PlanPart::Model { place: ModelPlace::Fallback(_), .. } => return Vec::new(),
            PlanPart::Model { place: ModelPlace::Judge(check), task, .. } => {
                (check.pointer(), JUDGE_TOOL, None, known(task))
            }
            PlanPart::Model { place: ModelPlace::Own, model, task, tools, .. } => {
                let (task, has_templates) = known(task);
                ("/agent".to_owned(), MODEL_TOOL, None, (first_prompt(model, &task["task"], tools), has_templates))
            }
            PlanPart::Form { .. } | PlanPart::Output { .. } | PlanPart::Condition { .. } => return Vec::new(),
        };
        calls.push(v1::PlannedCall {
            step_id: id.clone(),
            field: format!("/steps/{}{}{place}", step.step, step.within),
            tool: tool.to_owned(),
            arguments: Some(v1::Payload::of_json(arguments.to_string())),
            has_templates,
            decision: None,
            network: network.unwrap_or_default().to_owned(),
        });
        Vec::new()
    };
    // It was checked before.
    drop(plan_with(&Source::Message(message), collect));
    calls
}

/// What a model is asked first. Of its tools the names, since a plan is looked at for what it says and not for what runners do.
fn first_prompt(model: &str, task: &Value, tools: &[String]) -> Value {
    let belay_agent::Beginning { instructions, tools: own } = belay_agent::beginning(&[], None);
    let names = tools.iter().map(String::as_str).chain(own.iter().map(|tool| tool.name.as_str()));
    json!({"model": model, "instructions": instructions, "tools": names.collect::<Vec<_>>(), "message": task})
}

#[cfg(test)]
mod tests {
    use belay_plan::Format;
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    /// S0-03, S2-X-28: what a model would be asked is shown, and it is not asked.
    #[test]
    fn the_first_prompt_of_a_model_is_among_the_calls() {
        let text = "
id: p
inputs: {topic: {schema: {type: string}}}
steps:
  - {id: a, tool: noop}
  - {id: b, depends_on: [a], agent: {model: m, task: 'about ${inputs.topic}, after ${a.result}', tools: [noop]}}
";
        let plan = Plan::parse(Format::Yaml, text).unwrap();
        let calls = of_plan(&plan, &Json::from_text(r#"{"topic": "tests"}"#), &|_| false);
        let [_, asked] = calls.as_slice() else { panic!("a call and a prompt: {calls:?}") };
        assert_eq!((asked.field.as_str(), asked.tool.as_str()), ("/steps/1/agent", MODEL_TOOL));
        assert!(asked.has_templates);
        let arguments: Value = serde_json::from_str(asked.arguments.as_ref().unwrap().as_json().unwrap()).unwrap();
        let expected = json!({
            "model": "m",
            "instructions": belay_agent::INSTRUCTIONS,
            "tools": ["noop", "complete_step", "read_result"],
            "message": "about ${inputs.topic}, after ${a.result}",
        });
        assert_eq!(arguments, expected);
    }

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
