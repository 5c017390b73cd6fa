//! Plans as their authors write them: with groups of steps, retry policies for kinds of steps, and a working memory. What such a document means is computed
//! here from the user guide alone.

use std::ops::Range;

use belay_proto::v1::{self, check, step_spec};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Map, Value, json};

use super::client::Order;
use super::{inputs, plans};

/// The input that is the working memory.
const MEMORY: &str = "memory";

/// A group of steps of a plan.
struct Group {
    id: &'static str,
    steps: Range<usize>,
    depends_on: Vec<String>,
    condition: String,
    retry: Option<v1::RetryPolicy>,
    attempt_timeout: Option<pbjson_types::Duration>,
}

/// Has an order send a document. Its plan becomes what the document means.
pub(super) fn write(random: &mut StdRng, order: &mut Order) {
    let plan = &mut order.plan;
    let is_call = |step: &v1::StepSpec| matches!(step.kind, Some(step_spec::Kind::Tool(_)));
    if !plan.steps.iter().all(is_call) {
        return;
    }
    for step in plan.steps.iter_mut().filter(|_| random.random_bool(0.4)) {
        step.retry = None;
    }
    let memory = random.random_bool(0.5).then(|| json!({"topic": "remembered", "list": [1, 2]}));
    if let Some(memory) = &memory {
        remember(random, plan);
        let values = order.inputs.values.get_or_insert_default();
        values[MEMORY] = memory.clone();
        if random.random_bool(0.3) {
            values[MEMORY] = json!({"topic": "given"});
            order.inputs.given.get_or_insert_default()[MEMORY] = values[MEMORY].clone();
        }
    }
    let mut steps: Vec<Value> = plan.steps.iter().map(step).collect();
    let groups = groups(random, plan);
    if let Some(outer) = groups.last() {
        depend_on(random, plan, &mut steps, outer);
    }
    groups.iter().for_each(|group| hand_down(plan, group));
    let defaults = retry_defaults(random, plan);
    let mut document = of_plan(plan);
    document["retry_defaults"] = defaults;
    if let Some(memory) = memory {
        document[MEMORY] = memory.clone();
        plan.inputs.push(v1::PlanInput {
            name: MEMORY.to_owned(),
            default_value: Some(v1::Payload::of_json(memory.to_string())),
            ..v1::PlanInput::default()
        });
    }
    // Inner groups come first, and lie at the end of the outer ones: nothing moves that is still to be put into a group.
    let mut taken = 0;
    for group in &groups {
        let (begin, end) = (group.steps.start, group.steps.end - taken);
        let inner: Vec<Value> = steps.drain(begin..end).collect();
        steps.insert(begin, of_group(group, inner));
        taken += group.steps.len() - 1;
    }
    document["steps"] = steps.into();
    order.document = Some(document.to_string());
}

/// Has some steps use the working memory.
fn remember(random: &mut StdRng, plan: &mut v1::Plan) {
    for step in &mut plan.steps {
        let Some(step_spec::Kind::Tool(tool)) = &mut step.kind else { continue };
        if step.for_each.is_none() && random.random_bool(0.3) {
            let mut arguments = json_of(tool.arguments.as_ref());
            arguments["value"] = "${inputs.memory.topic}".into();
            tool.arguments = Some(v1::Payload::of_json(arguments.to_string()));
        }
    }
}

/// None, one, or one and another in it, the inner one first. Both end with the same step.
fn groups(random: &mut StdRng, plan: &v1::Plan) -> Vec<Group> {
    let count = plan.steps.len();
    if random.random_bool(0.25) {
        return Vec::new();
    }
    let begin = random.random_range(0..count);
    let end = random.random_range(begin + 1..=count);
    let mut groups = Vec::new();
    if random.random_bool(0.4) {
        let inner = random.random_range(begin..end);
        groups.push(group(random, plan, "inner", inner..end));
    }
    groups.push(group(random, plan, "outer", begin..end));
    groups
}

fn group(random: &mut StdRng, plan: &v1::Plan, id: &'static str, steps: Range<usize>) -> Group {
    let depends_on = (steps.start > 0 && random.random_bool(0.6))
        .then(|| plan.steps[random.random_range(0..steps.start)].id.clone())
        .into_iter()
        .collect();
    let condition = match random.random_range(0..10) {
        0..6 => "",
        // Without inputs there is nothing to ask of them.
        _ if plan.inputs.is_empty() => "1 == 1",
        6..8 => "1 == 1",
        _ => inputs::EVEN,
    };
    Group {
        id,
        steps,
        depends_on,
        condition: condition.to_owned(),
        retry: random.random_bool(0.6).then(|| retry(random)),
        attempt_timeout: random.random_bool(0.2).then(|| plans::milliseconds(random, 300, 900)),
    }
}

fn retry(random: &mut StdRng) -> v1::RetryPolicy {
    let max_attempts = random.random_range(1..=4);
    let backoff = (1..max_attempts).map(|_| plans::milliseconds(random, 1, 300)).collect();
    v1::RetryPolicy { max_attempts, backoff, ..v1::RetryPolicy::default() }
}

/// Has some of the steps after a group wait for the group, in the document and in what it means.
fn depend_on(random: &mut StdRng, plan: &mut v1::Plan, steps: &mut [Value], group: &Group) {
    let within = &plan.steps[group.steps.clone()];
    let waited_for = within.iter().filter(|step| runs_when_all_goes_well(step));
    let mut ids: Vec<String> = waited_for.map(|step| step.id.clone()).collect();
    if ids.is_empty() {
        ids = within.iter().map(|step| step.id.clone()).collect();
    }
    for index in group.steps.end..plan.steps.len() {
        let names_one = plan.steps[index].outcomes.iter().any(|named| ids.contains(&named.step));
        if random.random_bool(0.5) && !names_one {
            plan.steps[index].depends_on.extend(ids.iter().cloned());
            let mut written = steps[index]["depends_on"].as_array().cloned().unwrap_or_default();
            written.push(group.id.into());
            steps[index]["depends_on"] = written.into();
        }
    }
}

/// Gives the steps of a group what it says of them.
fn hand_down(plan: &mut v1::Plan, group: &Group) {
    let own: Vec<String> = plan.steps[group.steps.clone()].iter().map(|step| step.id.clone()).collect();
    for step in &mut plan.steps[group.steps.clone()] {
        let begins = !plans::dependencies(step).iter().any(|on| own.contains(on));
        if begins {
            step.depends_on.extend(group.depends_on.iter().cloned());
        }
        if !group.condition.is_empty() && (begins || may_follow_skipped(step)) {
            step.condition = match step.condition.is_empty() {
                true => group.condition.clone(),
                false => format!("({}) && ({})", group.condition, step.condition),
            };
        }
        step.retry = step.retry.take().or_else(|| group.retry.clone());
        step.attempt_timeout = step.attempt_timeout.or(group.attempt_timeout);
    }
}

/// Whether a step runs when every step before it completes; a group is waited for without the others.
fn runs_when_all_goes_well(step: &v1::StepSpec) -> bool {
    let mut named = step.outcomes.iter();
    step.run_when() != v1::RunWhen::Failure
        && named.all(|named| named.outcomes().any(|one| one == v1::Outcome::Success))
}

/// Whether a step may run after one that was skipped.
fn may_follow_skipped(step: &v1::StepSpec) -> bool {
    let mut named = step.outcomes.iter();
    matches!(step.run_when(), v1::RunWhen::Always | v1::RunWhen::NoneFailed)
        || named.any(|named| named.outcomes().any(|one| one == v1::Outcome::Skipped))
}

/// The dependency of a step: an id, or an id with outcomes.
fn of_dependency(step: &v1::StepSpec, on: &str) -> Value {
    let Some(named) = plans::outcomes_of(step, on) else { return on.into() };
    let words = named.outcomes().map(|outcome| match outcome {
        v1::Outcome::Unspecified => "",
        v1::Outcome::Success => "success",
        v1::Outcome::Failure => "failure",
        v1::Outcome::Skipped => "skipped",
    });
    json!({"step": on, "on": words.collect::<Vec<_>>()})
}

/// A policy for one or two of the tools of a plan: what the document says, which the steps without a policy get.
fn retry_defaults(random: &mut StdRng, plan: &mut v1::Plan) -> Value {
    let mut defaults = Map::new();
    let tools: Vec<String> = plan.steps.iter().filter_map(|step| tool(step).map(|tool| tool.tool.clone())).collect();
    for _ in 0..random.random_range(0..=2) {
        let Some(name) = tools.choose(random) else { continue };
        if defaults.contains_key(name) {
            continue;
        }
        let policy = retry(random);
        defaults.insert(name.clone(), of_retry(&policy));
        let of_kind = |step: &&mut v1::StepSpec| tool(step).is_some_and(|tool| tool.tool == *name);
        for step in plan.steps.iter_mut().filter(of_kind) {
            step.retry.get_or_insert_with(|| policy.clone());
        }
    }
    defaults.into()
}

fn tool(step: &v1::StepSpec) -> Option<&v1::ToolStep> {
    match &step.kind {
        Some(step_spec::Kind::Tool(tool)) => Some(tool),
        _ => None,
    }
}

fn json_of(payload: Option<&v1::Payload>) -> Value {
    let text = payload.and_then(v1::Payload::as_json).unwrap_or("{}");
    serde_json::from_str(text).unwrap_or_default()
}

fn of_duration(duration: &pbjson_types::Duration) -> Value {
    format!("{}ms", duration.seconds * 1000 + i64::from(duration.nanos) / 1_000_000).into()
}

fn of_retry(retry: &v1::RetryPolicy) -> Value {
    let backoff: Vec<Value> = retry.backoff.iter().map(of_duration).collect();
    json!({"max_attempts": retry.max_attempts, "backoff": backoff})
}

fn of_call(call: &v1::ToolStep) -> Value {
    json!({"tool": call.tool, "arguments": json_of(call.arguments.as_ref())})
}

fn of_check(check: &v1::Check) -> Value {
    match &check.check {
        Some(check::Check::Condition(condition)) => json!({ "condition": condition }),
        Some(check::Check::File(file)) => json!({ "file": file }),
        Some(check::Check::Command(command)) => json!({"command": command.arguments}),
        Some(check::Check::Judge(judge)) => filled(json!({"judge": judge.criterion, "model": judge.model})),
        None => Value::Null,
    }
}

/// Leaves out what is null, false or empty.
fn filled(object: Value) -> Value {
    let Value::Object(fields) = object else { return object };
    let is_filled = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(entries) => !entries.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    };
    fields.into_iter().filter(|(_, value)| is_filled(value)).collect::<Map<String, Value>>().into()
}

/// The plan without its steps, and without what only documents have.
fn of_plan(plan: &v1::Plan) -> Value {
    let escalation = plan.escalation.as_ref().map(|escalation| {
        let backoff: Vec<Value> = escalation.backoff.iter().map(of_duration).collect();
        let then = if escalation.pause { "pause" } else { "fail" };
        json!({"retries": escalation.retries, "backoff": backoff, "then": then})
    });
    let inputs = plan.inputs.iter().map(|input| {
        let schema = input.schema.as_ref().map(|schema| json_of(Some(schema)));
        let default = input.default_value.as_ref().map(|value| json_of(Some(value)));
        (input.name.clone(), filled(json!({"schema": schema, "default": default})))
    });
    let resources = plan.resources.iter().map(|resource| (resource.name.clone(), json!(resource.capacity)));
    filled(json!({
        "id": plan.id,
        "stop_on_error": plan.stop_on_error,
        "parallelism": (plan.parallelism > 0).then_some(plan.parallelism),
        "timeout": plan.timeout.as_ref().map(of_duration),
        "escalation": escalation,
        "inputs": inputs.collect::<Map<String, Value>>(),
        "outputs": plan.outputs.as_ref().map(|outputs| json_of(Some(outputs))),
        "resources": resources.collect::<Map<String, Value>>(),
    }))
}

fn of_group(group: &Group, steps: Vec<Value>) -> Value {
    filled(json!({
        "id": group.id,
        "depends_on": group.depends_on,
        "condition": group.condition,
        "retry": group.retry.as_ref().map(of_retry),
        "attempt_timeout": group.attempt_timeout.as_ref().map(of_duration),
        "steps": steps,
    }))
}

fn step(step: &v1::StepSpec) -> Value {
    let own = tool(step).cloned().unwrap_or_default();
    let run_when = match step.run_when() {
        v1::RunWhen::Unspecified | v1::RunWhen::Success => None,
        v1::RunWhen::Failure => Some("failure"),
        v1::RunWhen::Always => Some("always"),
        v1::RunWhen::NoneFailed => Some("none_failed"),
    };
    let mut written = filled(json!({
        "id": step.id,
        "tool": own.tool,
        "arguments": json_of(own.arguments.as_ref()),
        "exclusive": own.exclusive,
        "depends_on": step.depends_on.iter().map(|on| of_dependency(step, on)).collect::<Vec<Value>>(),
        "condition": step.condition,
        "run_when": run_when,
        "fallback": step.fallback.iter().map(of_call).collect::<Vec<Value>>(),
        "compensate": step.compensate.as_deref().map(of_call),
        "resources": step.resources,
        "preconditions": step.preconditions.iter().map(of_check).collect::<Vec<Value>>(),
        "postconditions": step.postconditions.iter().map(of_check).collect::<Vec<Value>>(),
        "timeout": step.timeout.as_ref().map(of_duration),
        "attempt_timeout": step.attempt_timeout.as_ref().map(of_duration),
        "retry": step.retry.as_ref().map(of_retry),
    }));
    if let Some(v1::Repeat { until, max, delay }) = &step.repeat {
        written["repeat"] = filled(json!({"until": until, "max": max, "delay": delay.as_ref().map(of_duration)}));
    }
    if !step.group_timeouts.is_empty() {
        let of_group = |limit: &v1::GroupTimeout| (limit.group.clone(), limit.timeout.as_ref().map(of_duration).into());
        written["group_timeouts"] = step.group_timeouts.iter().map(of_group).collect::<Map<String, Value>>().into();
    }
    if !step.fail_fast_groups.is_empty() {
        written["fail_fast_groups"] = step.fail_fast_groups.clone().into();
    }
    if step.fail_fast {
        written["fail_fast"] = true.into();
    }
    // An empty list is one, too.
    if let Some(list) = &step.for_each {
        written["for_each"] = json_of(Some(list));
    }
    written
}

/// The outcomes that a step names, by the steps of which it does.
fn outcomes_by_step(step: &v1::StepSpec) -> Value {
    let of_step = |named: &v1::DependencyOutcomes| {
        let mut outcomes = named.outcomes.clone();
        outcomes.sort_unstable();
        (named.step.clone(), outcomes.into())
    };
    step.outcomes.iter().map(of_step).collect::<Map<String, Value>>().into()
}

/// The attempts and conditions of a step, which its groups and defaults may have set.
pub(super) fn terms(step: &v1::StepSpec) -> Value {
    json!([
        step.id,
        step.run_when().as_str_name().replace("UNSPECIFIED", "SUCCESS"),
        outcomes_by_step(step),
        step.condition,
        of_retry(&step.retry.clone().unwrap_or(v1::RetryPolicy { max_attempts: 1, ..v1::RetryPolicy::default() })),
        step.timeout.as_ref().map(of_duration),
        step.attempt_timeout.as_ref().map(of_duration),
        step.resources,
        step.fallback.iter().map(of_call).collect::<Vec<Value>>(),
        step.preconditions.iter().chain(&step.postconditions).map(of_check).collect::<Vec<Value>>(),
    ])
}
