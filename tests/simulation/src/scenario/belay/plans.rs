//! Generates plans from the seed: small graphs that use every feature of plans.

use std::time::Duration;

use belay_proto::v1::{self, ErrorClass, RecoveryStrategy as Strategy, step_spec, wait_step::Condition};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use super::inputs;
use super::policy;
use super::tools::{APPEND, LOOK, PUBLISH, PUT, REMOVE, SEND, WIPE, WRITE, changes_files};

/// The maximum length of a value, in bytes: several pages, so that a commit can be torn.
const MAX_VALUE_BYTES: usize = 9000;

/// A plan of 1 to 8 steps.
pub(super) fn generate(random: &mut StdRng, id: String) -> v1::Plan {
    let count = random.random_range(1..=8);
    v1::Plan {
        inputs: Vec::new(),
        // Not by chance, so that what the seeds have found before they find again.
        outputs: (count == 3).then(|| outputs(count)),
        id,
        description: String::new(),
        steps: (0..count).map(|index| step(random, index)).collect(),
        stop_on_error: random.random_bool(0.25),
        parallelism: random.random_range(0..=4),
        timeout: random.random_bool(0.15).then(|| milliseconds(random, 500, 6000)),
        audit_level: 0,
        labels: Default::default(),
        dry_run: false,
        allowed_commands: None,
        network: String::new(),
        escalation: None,
        resources: Vec::new(),
        on_error: Vec::new(),
        budget: None,
        limits: Vec::new(),
    }
}

/// Outputs of a plan with so many steps: the result of each, and how it ended.
fn outputs(count: usize) -> v1::Payload {
    let of_step = |index: usize| {
        ["result", "state"].map(|what| (format!("{what}-{index}"), json!(format!("${{s{index}.{what}}}"))))
    };
    let outputs: serde_json::Map<String, Value> = (0..count).flat_map(of_step).collect();
    v1::Payload::of_json(Value::Object(outputs).to_string())
}

/// A plan of 4 to 8 steps that all append to one file at once.
pub(super) fn crowd(random: &mut StdRng, id: String) -> v1::Plan {
    let step = |index| {
        let arguments = json!({"ms": 100, "value": index, "path": format!("{}0", policy::FREE)});
        let tool = v1::ToolStep {
            tool: APPEND.to_owned(),
            arguments: Some(v1::Payload::of_json(arguments.to_string())),
            ..Default::default()
        };
        let max_attempts = random.random_range(1..=2);
        let retry = v1::RetryPolicy { max_attempts, ..Default::default() };
        let kind = Some(step_spec::Kind::Tool(tool));
        v1::StepSpec { id: format!("s{index}"), retry: Some(retry), kind, ..v1::StepSpec::default() }
    };
    let steps: Vec<_> = (0..8).map(step).collect();
    let count = random.random_range(4..=steps.len());
    v1::Plan { id, steps: steps.into_iter().take(count).collect(), ..v1::Plan::default() }
}

/// A plan with many executions of the plans of its steps, most of which end as soon as they have begun.
pub(super) fn brood(random: &mut StdRng, id: String) -> v1::Plan {
    let step = |random: &mut StdRng, index: usize| {
        let calls = random.random_bool(0.25);
        let arguments = json!({"ms": random.random_range(1..4), "value": index});
        let tool = v1::ToolStep {
            tool: LOOK.to_owned(),
            arguments: Some(v1::Payload::of_json(arguments.to_string())),
            ..v1::ToolStep::default()
        };
        let only = v1::StepSpec {
            id: "only".to_owned(),
            condition: if calls { String::new() } else { "1 == 2".to_owned() },
            kind: Some(step_spec::Kind::Tool(tool)),
            ..v1::StepSpec::default()
        };
        let own = v1::Plan { id: format!("plan-of-s{index}"), steps: vec![only], ..v1::Plan::default() };
        let entries: Vec<usize> = (0..random.random_range(3..=12)).collect();
        v1::StepSpec {
            id: format!("s{index}"),
            depends_on: (0..index).filter(|_| random.random_bool(0.3)).map(|index| format!("s{index}")).collect(),
            for_each: random.random_bool(0.6).then(|| v1::Payload::of_json(json!(entries).to_string())),
            kind: Some(step_spec::Kind::Plan(Box::new(v1::PlanStep { plan: Some(own), inputs: None }))),
            ..v1::StepSpec::default()
        }
    };
    let steps = (0..random.random_range(1..=4)).map(|index| step(random, index)).collect();
    v1::Plan { id, steps, parallelism: random.random_range(1..=16), ..v1::Plan::default() }
}

fn step(random: &mut StdRng, index: usize) -> v1::StepSpec {
    let depends_on: Vec<usize> = (0..index).filter(|_| random.random_bool(0.25)).collect();
    let mut arguments = json!({"ms": random.random_range(1..150), "value": value(random, index)});
    let attempts = *[1, 1, 2, 3, 4].choose(random).expect("not empty");
    if random.random_bool(0.3) {
        let class = class(random);
        arguments["class"] = i32::from(class).into();
        arguments["fails"] = random.random_range(1..=4).into();
    }
    let hangs = random.random_bool(0.1);
    if hangs {
        arguments["hangs"] = random.random_range(1..=2).into();
    }
    let tool = tool(random);
    if changes_files(tool) {
        let (one, other) = (path(random), path(random));
        if other != one && random.random_bool(0.2) {
            arguments["also"] = other.into();
        }
        arguments["path"] = one.into();
    }
    let exclusive = changes_files(tool) && random.random_bool(0.12);
    let tool = v1::ToolStep {
        tool: tool.to_owned(),
        arguments: Some(v1::Payload::of_json(arguments.to_string())),
        exclusive,
        ..Default::default()
    };
    v1::StepSpec {
        id: format!("s{index}"),
        depends_on: depends_on.into_iter().map(|index| format!("s{index}")).collect(),
        timeout: random.random_bool(0.1).then(|| milliseconds(random, 300, 3000)),
        attempt_timeout: (hangs || random.random_bool(0.1)).then(|| milliseconds(random, 50, 600)),
        retry: (attempts > 1).then(|| v1::RetryPolicy {
            max_attempts: attempts,
            backoff: (1..attempts).map(|_| milliseconds(random, 1, 400)).collect(),
            ..v1::RetryPolicy::default()
        }),
        kind: Some(step_spec::Kind::Tool(tool)),
        ..v1::StepSpec::default()
    }
}

/// The signal that steps wait for.
pub(super) const SIGNAL: &str = "go";

/// Makes about half of the steps wait instead of calling a tool.
pub(super) fn add_waits(random: &mut StdRng, plan: &mut v1::Plan) {
    for step in &mut plan.steps {
        if random.random_bool(0.5) {
            continue;
        }
        let condition = match random.random_range(0..100) {
            0..35 => Condition::Duration(milliseconds(random, 1, 2000)),
            35..70 => Condition::Signal(SIGNAL.to_owned()),
            _ => Condition::Form(v1::Form {
                title: "How many runs?".to_owned(),
                description: String::new(),
                schema: json!({"type": "object", "required": ["run"], "properties": {"run": {"type": "integer"}}})
                    .to_string(),
            }),
        };
        let is_timed = matches!(condition, Condition::Duration(_));
        step.timeout = (!is_timed && random.random_bool(0.3)).then(|| milliseconds(random, 300, 3000));
        (step.attempt_timeout, step.retry) = (None, None);
        step.kind = Some(step_spec::Kind::Wait(v1::WaitStep { condition: Some(condition) }));
    }
}

/// Makes all steps wait for a time: an executor that starts again has nothing else to do meanwhile.
pub(super) fn sleep(random: &mut StdRng, plan: &mut v1::Plan) {
    plan.timeout = None;
    for step in &mut plan.steps {
        let condition = Some(Condition::Duration(milliseconds(random, 500, 6000)));
        (step.timeout, step.attempt_timeout, step.retry) = (None, None, None);
        step.kind = Some(step_spec::Kind::Wait(v1::WaitStep { condition }));
    }
}

/// Makes about a third of the steps carry out a plan instead of calling a tool.
pub(super) fn add_plans(random: &mut StdRng, plan: &mut v1::Plan) {
    for step in &mut plan.steps {
        if random.random_bool(0.65) {
            continue;
        }
        let deeper = if random.random_bool(0.3) { random.random_range(1..MAX_NESTED_PLANS) } else { 0 };
        add_plan(random, step, deeper);
        bound_attempts(step, MAX_ATTEMPTS_TOGETHER);
    }
}

/// How deep plans may be nested.
const MAX_NESTED_PLANS: usize = 5;

/// How often the innermost step of nested plans may be tried, for all entries and attempts of the steps around it together: a run has an end that one can
/// wait for.
const MAX_ATTEMPTS_TOGETHER: i32 = 64;

/// Takes attempts from a step and from those of its plan, the innermost first, so that no step begins more often than `most`, or once for each entry.
fn bound_attempts(step: &mut v1::StepSpec, most: i32) {
    let list = step.for_each.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
    let entries = serde_json::from_str::<Vec<Value>>(list).map_or(1, |entries| entries.len().max(1));
    let most = (most / i32::try_from(entries).unwrap_or(most)).max(1);
    let attempts = step.retry.as_ref().map_or(1, |retry| retry.max_attempts).clamp(1, most);
    if let Some(retry) = &mut step.retry {
        retry.max_attempts = attempts;
        retry.backoff.truncate(usize::try_from(attempts - 1).unwrap_or(0));
    }
    if let Some(step_spec::Kind::Plan(child)) = &mut step.kind
        && let Some(own) = &mut child.plan
    {
        own.steps.iter_mut().for_each(|step| bound_attempts(step, most / attempts));
    }
}

/// Has a step carry out a plan of one or two steps, one of which has a plan again, and so on as often as `deeper` says.
fn add_plan(random: &mut StdRng, step: &mut v1::StepSpec, deeper: usize) {
    let mut own = generate(random, format!("plan-of-{}", step.id));
    own.steps.truncate(2);
    own.outputs = own.outputs.map(|_| outputs(own.steps.len()));
    let inputs = inputs::add_to_child(random, step, &mut own);
    if deeper > 0 {
        let place = random.random_range(0..own.steps.len());
        add_plan(random, &mut own.steps[place], deeper - 1);
    }
    step.kind = Some(step_spec::Kind::Plan(Box::new(v1::PlanStep { plan: Some(own), inputs })));
}

/// Has some steps run for each entry of a list, gives some a call to fall back to, some one that undoes them, and some something that has to hold before or after their call.
pub(super) fn extend(random: &mut StdRng, plan: &mut v1::Plan) {
    for (index, step) in plan.steps.iter_mut().enumerate() {
        let Some(step_spec::Kind::Tool(own)) = &mut step.kind else { continue };
        if random.random_bool(0.3) {
            let entry = |entry: usize| match random.random_bool(0.2) && index > 0 {
                true => json!(format!("${{s{}.result.run}}", entry % index)),
                false => json!(100 * index + entry),
            };
            let entries: Vec<Value> = (0..[0, 1, 2, 2, 3][index % 5]).map(entry).collect();
            step.for_each = Some(v1::Payload::of_json(Value::from(entries).to_string()));
            let arguments = own.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
            let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            arguments["value"] = "${item.value}".into();
            own.arguments = Some(v1::Payload::of_json(arguments.to_string()));
        }
        if random.random_bool(0.4) {
            let count = random.random_range(1..=2);
            let fallback = |number: u32| v1::ToolStep {
                tool: [SEND, PUT, LOOK][random.random_range(0..3)].to_owned(),
                arguments: Some(v1::Payload::of_json(json!({"ms": 20, "value": 5000 + number}).to_string())),
                ..v1::ToolStep::default()
            };
            step.fallback = (0..count).map(fallback).collect();
        }
        if random.random_bool(0.5) && step.for_each.is_none() {
            let value = match random.random_bool(0.5) {
                true => format!("${{{}.result.run}}", step.id).into(),
                false => json!(7000 + index),
            };
            step.compensate = Some(Box::new(v1::ToolStep {
                tool: [SEND, PUT, APPEND][random.random_range(0..3)].to_owned(),
                arguments: Some(v1::Payload::of_json(
                    json!({"ms": 20, "value": value, "path": format!("{}0", policy::FREE)}).to_string(),
                )),
                ..v1::ToolStep::default()
            }));
        }
        step.on_error = match random.random_range(0..100) {
            0..30 => {
                let arguments = own.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
                let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                arguments["wavers"] = true.into();
                own.arguments = Some(v1::Payload::of_json(arguments.to_string()));
                [ErrorClass::Transient, ErrorClass::Timeout].map(|class| on_error(class, Strategy::UseCache)).into()
            }
            30..40 => vec![on_error(ErrorClass::InvalidArguments, Strategy::Compensate)],
            _ => Vec::new(),
        };
        let holds = |condition: String| v1::Check { check: Some(v1::check::Check::Condition(condition)) };
        if random.random_bool(0.2) {
            step.preconditions = vec![holds("1 == 1".to_owned()), holds(format!("{index} % 4 != 3"))];
        }
        if random.random_bool(0.2) && step.for_each.is_none() {
            step.postconditions = vec![holds(format!("${{{}.result.run}} % 3 != 2", step.id))];
        }
    }
}

/// Has some steps make two or three calls instead of their own, which is one of these. `one_effect`: what the calls of half of these steps change is
/// committed as one.
pub(super) fn add_calls(random: &mut StdRng, plan: &mut v1::Plan, one_effect: bool) {
    let calls_one =
        |step: &&mut v1::StepSpec| matches!(step.kind, Some(step_spec::Kind::Tool(_))) && step.for_each.is_none();
    for (index, step) in plan.steps.iter_mut().filter(calls_one).enumerate() {
        if random.random_bool(if one_effect { 0.4 } else { 0.25 }) {
            call_several(random, index, step);
            // Mostly where the calls change something.
            let changes = matches!(&step.kind, Some(step_spec::Kind::Calls(several)) if several.calls.iter().any(|call| call.tool == APPEND));
            if one_effect && random.random_bool(if changes { 0.9 } else { 0.3 }) {
                has_one_effect(step);
            }
        }
    }
}

/// The call that commits what those of a step have changed.
pub(super) fn commit_of(step: &v1::CallsStep) -> Option<v1::ToolStep> {
    (step.effects() == v1::calls_step::Effects::PerStep).then(|| v1::ToolStep {
        tool: COMMIT.to_owned(),
        arguments: Some(v1::Payload::of_json("{}")),
        ..v1::ToolStep::default()
    })
}

/// The tool of that call.
pub(super) const COMMIT: &str = "commit_changes";

/// The tool that drops what of the changes of a step conflicts with what others have done.
pub(super) const REBASE: &str = "rebase_changes";

fn has_one_effect(step: &mut v1::StepSpec) {
    if let Some(step_spec::Kind::Calls(several)) = &mut step.kind {
        several.set_effects(v1::calls_step::Effects::PerStep);
        step.preconditions = Vec::new();
    }
}

fn call_several(random: &mut StdRng, index: usize, step: &mut v1::StepSpec) {
    let Some(step_spec::Kind::Tool(own)) = step.kind.take() else { unreachable!("it calls one tool") };
    let exclusive = own.exclusive;
    let call = |place: usize| {
        let arguments = own.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
        let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        if place > 0 {
            arguments["value"] = (10_000 + 100 * index + place).into();
        }
        let arguments = Some(v1::Payload::of_json(arguments.to_string()));
        v1::ToolStep { arguments, exclusive: false, ..own.clone() }
    };
    let calls = (0..random.random_range(2..=3)).map(call).collect();
    (step.fallback, step.compensate, step.postconditions) = (Vec::new(), None, Vec::new());
    step.kind = Some(step_spec::Kind::Calls(v1::CallsStep { calls, exclusive, ..v1::CallsStep::default() }));
}

/// Whether steps of its own do a step's work: for the entries of a list, for its rounds, or for its calls.
pub(super) fn has_entries(step: &v1::StepSpec) -> bool {
    step.for_each.is_some() || step.repeat.is_some() || matches!(step.kind, Some(step_spec::Kind::Calls(_)))
}

/// Calls that change nothing and fail now and then, whose earlier results are used; the same plan each time but for its order.
pub(super) fn recalling(random: &mut StdRng) -> v1::Plan {
    let step = |index: usize| {
        let arguments = json!({"ms": 10, "value": index % 2, "wavers": true});
        let tool = v1::ToolStep {
            tool: LOOK.to_owned(),
            arguments: Some(v1::Payload::of_json(arguments.to_string())),
            ..v1::ToolStep::default()
        };
        v1::StepSpec {
            id: format!("s{index}"),
            on_error: vec![on_error(ErrorClass::Transient, Strategy::UseCache)],
            kind: Some(step_spec::Kind::Tool(tool)),
            ..v1::StepSpec::default()
        }
    };
    let steps = (0..random.random_range(2..=5)).map(step).collect();
    let parallelism = random.random_range(1..=3);
    v1::Plan { id: "recalling".to_owned(), steps, parallelism, ..v1::Plan::default() }
}

fn on_error(class: ErrorClass, strategy: Strategy) -> v1::OnError {
    v1::OnError { error_class: class.into(), strategy: strategy.into() }
}

/// The strategy that a plan has for a step that fails with this class.
pub(super) fn strategy(step: &v1::StepSpec, class: Option<ErrorClass>) -> Option<Strategy> {
    step.on_error.iter().find(|entry| Some(entry.error_class()) == class).map(v1::OnError::strategy)
}

/// A list of two to four entries, of which some have what an earlier step has returned, in a plan that fails and undoes that step now and then: when it
/// continues, the list is read again, with other entries.
pub(super) fn listing(random: &mut StdRng, id: String) -> v1::Plan {
    let call = |tool: &str, arguments: Value| v1::ToolStep {
        tool: tool.to_owned(),
        arguments: Some(v1::Payload::of_json(arguments.to_string())),
        ..v1::ToolStep::default()
    };
    let step = |id: &str, depends_on: &[&str], call| v1::StepSpec {
        id: id.to_owned(),
        depends_on: depends_on.iter().map(|id| (*id).to_owned()).collect(),
        kind: Some(step_spec::Kind::Tool(call)),
        ..v1::StepSpec::default()
    };
    let mut first = step("first", &[], call(SEND, json!({"ms": 5, "value": 1})));
    first.compensate = Some(Box::new(call(SEND, json!({"ms": 5, "value": 2}))));
    let mut list = step("list", &["first"], call(LOOK, json!({"ms": "${item.value}", "value": "${item.value}"})));
    let entry = |random: &mut StdRng| match random.random_bool(0.5) {
        true => json!("${first.result.run}"),
        false => json!(random.random_range(1..80)),
    };
    let entries: Vec<Value> = (0..random.random_range(2..=4)).map(|_| entry(random)).collect();
    list.for_each = Some(v1::Payload::of_json(Value::from(entries).to_string()));
    // As often as it is tried before a person has the execution go on, or not.
    let fails = random.random_range(0..=1);
    let class = i32::from(ErrorClass::InvalidArguments);
    let last = step("last", &["list"], call(LOOK, json!({"ms": 1, "value": 3, "fails": fails, "class": class})));
    v1::Plan { id, steps: vec![first, list, last], parallelism: random.random_range(1..=4), ..v1::Plan::default() }
}

/// Gives about half of the steps that depend on others a condition, or lets them run after a failure or in any case.
pub(super) fn add_conditions(random: &mut StdRng, plan: &mut v1::Plan) {
    for step in &mut plan.steps {
        let Some(first) = step.depends_on.first() else { continue };
        step.run_when = match random.random_range(0..100) {
            0..60 => v1::RunWhen::Unspecified,
            60..80 => v1::RunWhen::Failure,
            _ => v1::RunWhen::Always,
        }
        .into();
        step.condition = match random.random_range(0..100) {
            0..50 => String::new(),
            50..70 => format!("${{{first}.state}} != \"completed\" || ${{{first}.failure}} == null"),
            70..85 => format!("has(${{{first}.result}}.run) && ${{{first}.result.run}} % 2 == 0"),
            85..95 => format!("${{{first}.failure}} != null && ${{{first}.failure.code}} != \"\""),
            _ => format!("${{{first}.result}}"),
        };
    }
}

/// Has some steps that depend on others run after outcomes that they name, or when none has failed, and some ask what became of another's entries.
pub(super) fn add_joins(random: &mut StdRng, plan: &mut v1::Plan) {
    let have_entries: Vec<String> =
        plan.steps.iter().filter(|step| has_entries(step)).map(|step| step.id.clone()).collect();
    for step in &mut plan.steps {
        let Some(first) = step.depends_on.first().cloned() else { continue };
        if step.run_when() == v1::RunWhen::Unspecified {
            match random.random_range(0..100) {
                0..40 => step.outcomes = outcomes(random, &step.depends_on),
                40..60 => step.run_when = v1::RunWhen::NoneFailed.into(),
                _ => {}
            }
        }
        if step.condition.is_empty() && have_entries.contains(&first) && random.random_bool(0.5) {
            step.condition = match random.random_bool(0.5) {
                true => format!("${{{first}.results ?? []}}.exists(r, r.state == \"completed\" && r.failure == null)"),
                false => format!("${{{first}.results ?? []}}.all(r, r.state == \"failed\" || r.failure == null)"),
            };
        }
    }
}

/// Some outcomes of some of the steps that another depends on.
fn outcomes(random: &mut StdRng, depends_on: &[String]) -> Vec<v1::DependencyOutcomes> {
    let mut named = Vec::new();
    for step in depends_on {
        if random.random_bool(0.3) {
            continue;
        }
        let all = [v1::Outcome::Success, v1::Outcome::Failure, v1::Outcome::Skipped];
        let mut outcomes: Vec<i32> =
            all.into_iter().filter(|_| random.random_bool(0.6)).map(|outcome| outcome.into()).collect();
        if outcomes.is_empty() {
            outcomes.push(v1::Outcome::Failure.into());
        }
        named.push(v1::DependencyOutcomes { step: step.clone(), outcomes });
    }
    named
}

/// The outcomes that a step names of another.
pub(super) fn outcomes_of<'a>(step: &'a v1::StepSpec, on: &str) -> Option<&'a v1::DependencyOutcomes> {
    step.outcomes.iter().find(|named| named.step == on)
}

fn tool(random: &mut StdRng) -> &'static str {
    match random.random_range(0..100) {
        0..10 => LOOK,
        10..20 => PUT,
        20..40 => SEND,
        40..50 => PUBLISH,
        50..53 => WIPE,
        53..75 => APPEND,
        75..87 => WRITE,
        _ => REMOVE,
    }
}

/// A path to one of a few files, so that calls touch the same ones; its name selects the policy rule.
pub(super) fn path(random: &mut StdRng) -> String {
    let kind = match random.random_range(0..100) {
        0..40 => policy::FREE,
        40..75 => policy::SHOWN,
        75..93 => policy::ASKED,
        _ => policy::KEPT,
    };
    format!("{kind}{}", u8::from(random.random_bool(0.25)))
}

/// A number, a long text, or the result of an earlier step.
fn value(random: &mut StdRng, index: usize) -> Value {
    let earlier = random.random_range(0..index.max(1));
    match random.random_range(0..100) {
        0..25 if index > 0 => format!("${{s{earlier}.result.run}}").into(),
        25..40 if index > 0 => format!("after ${{s{earlier}.result.run}}").into(),
        40..60 => "x".repeat(random.random_range(0..MAX_VALUE_BYTES)).into(),
        _ => random.random_range(0..1000).into(),
    }
}

fn class(random: &mut StdRng) -> ErrorClass {
    match random.random_range(0..100) {
        0..70 => ErrorClass::Transient,
        70..80 => ErrorClass::RateLimit,
        80..90 => ErrorClass::InvalidArguments,
        _ => ErrorClass::Fatal,
    }
}

pub(super) fn milliseconds(random: &mut StdRng, least: u64, most: u64) -> pbjson_types::Duration {
    belay_proto::duration(Duration::from_millis(random.random_range(least..=most)))
}

/// The ids of a step's dependencies: those it lists, and those whose results it uses.
pub(super) fn dependencies(step: &v1::StepSpec) -> Vec<String> {
    let arguments = match &step.kind {
        Some(step_spec::Kind::Tool(tool)) => vec![tool.arguments.as_ref()],
        Some(step_spec::Kind::Calls(listed)) => listed.calls.iter().map(|call| call.arguments.as_ref()).collect(),
        Some(step_spec::Kind::Plan(plan)) => vec![plan.inputs.as_ref()],
        Some(step_spec::Kind::Agent(_) | step_spec::Kind::Wait(_)) | None => Vec::new(),
    };
    let arguments = arguments.into_iter().filter_map(|payload| payload?.as_json());
    let list = step.for_each.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
    let used = arguments.chain([list, step.condition.as_str()]).flat_map(|text| text.split("${").skip(1));
    let used = used.filter(|rest| !rest.starts_with("item.") && !rest.starts_with("inputs."));
    let used = used.filter_map(|rest| rest.split_once('.')).map(|(id, _)| id.to_owned());
    let mut all: Vec<String> = step.depends_on.iter().cloned().chain(used).collect();
    all.sort_unstable();
    all.dedup();
    all
}
