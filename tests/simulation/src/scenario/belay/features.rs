//! Adds to generated plans what only some scenarios have: checks that look at files or run commands, resources, escalations.

use std::time::Duration;

use belay_proto::v1::{self, check, step_spec};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;

use super::tools::{self, FAIL, PASS};
use super::{plans, policy};

/// Gives some steps checks that look for a file or run a command, before and after their calls.
pub(super) fn add_checks(random: &mut StdRng, plan: &mut v1::Plan) {
    let paths: Vec<String> = plan.steps.iter().filter_map(path_of).collect();
    for step in &mut plan.steps {
        if !matches!(step.kind, Some(step_spec::Kind::Tool(_))) {
            continue;
        }
        if random.random_bool(0.2) {
            let checks = (0..random.random_range(1..=2)).map(|_| check(random, &paths));
            step.preconditions.extend(checks);
        }
        if random.random_bool(0.15) {
            step.postconditions.push(check(random, &paths));
        }
    }
}

/// Has steps that may fall back wait longer for their next attempt, so that a person sees them waiting.
pub(super) fn wait_longer(random: &mut StdRng, plan: &mut v1::Plan) {
    for step in plan.steps.iter_mut().filter(|step| !step.fallback.is_empty()) {
        for delay in step.retry.iter_mut().flat_map(|retry| &mut retry.backoff) {
            *delay = plans::milliseconds(random, 300, 1500);
        }
    }
}

/// The file that a step changes.
fn path_of(step: &v1::StepSpec) -> Option<String> {
    let Some(step_spec::Kind::Tool(tool)) = &step.kind else { return None };
    let arguments: Value = serde_json::from_str(tool.arguments.as_ref()?.as_json()?).ok()?;
    arguments["path"].as_str().map(str::to_owned)
}

/// Mostly a command that succeeds; a file is there when a step has written it before.
fn check(random: &mut StdRng, paths: &[String]) -> v1::Check {
    let check = match random.random_range(0..100) {
        0..35 => check::Check::File(match paths.is_empty() {
            true => plans::path(random),
            false => paths[random.random_range(0..paths.len())].clone(),
        }),
        _ => {
            let word = if random.random_bool(0.9) { PASS } else { FAIL };
            let mut arguments = vec![word.to_owned(), random.random_range(1..80).to_string()];
            // What it writes is committed as for any call.
            arguments.extend(random.random_bool(0.3).then(|| format!("{}0", policy::FREE)));
            check::Check::Command(v1::Command { arguments })
        }
    };
    v1::Check { check: Some(check) }
}

/// The call that a check takes; `None` for an expression.
pub(super) fn call_of(check: &v1::Check) -> Option<v1::ToolStep> {
    let (tool, arguments) = match check.check.as_ref()? {
        // No step of these plans has a goal.
        check::Check::Condition(_) | check::Check::Judge(_) => return None,
        check::Check::File(path) => (tools::FIND, serde_json::json!({ "path": path })),
        check::Check::Command(command) => (tools::COMMAND, serde_json::json!({"command": command.arguments})),
    };
    let arguments = Some(v1::Payload::of_json(arguments.to_string()));
    Some(v1::ToolStep { tool: tool.to_owned(), arguments, ..v1::ToolStep::default() })
}

/// In some plans, has some steps call a tool that asks people.
pub(super) fn ask(random: &mut StdRng, plan: &mut v1::Plan) {
    for step in &mut plan.steps {
        let Some(step_spec::Kind::Tool(tool)) = &mut step.kind else { continue };
        if tool.exclusive || !random.random_bool(0.3) {
            continue;
        }
        let arguments = tool.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
        let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        for file in ["path", "also"] {
            arguments.as_object_mut().and_then(|arguments| arguments.remove(file));
        }
        arguments["asks"] = random.random_range(1..=3).into();
        if random.random_bool(0.4) {
            arguments["patience"] = random.random_range(200..3000).into();
        }
        tool.tool = tools::ASK.to_owned();
        tool.arguments = Some(v1::Payload::of_json(arguments.to_string()));
    }
}

/// In one plan of three, limits how many calls it makes. The steps for which there is none fail: nobody is there to raise a budget.
pub(super) fn limit(random: &mut StdRng, plan: &mut v1::Plan) {
    if random.random_bool(0.33) {
        let on_exhausted = v1::ExhaustedAction::Fail.into();
        plan.budget =
            Some(v1::Budget { calls: Some(random.random_range(2..=8)), on_exhausted, ..v1::Budget::default() });
    }
}

/// Has some steps that make one call repeat it, most of them more than once, some lists fail fast, and in one plan of three some steps have little time
/// together, and some do not start once one of them has failed.
pub(super) fn repeat(random: &mut StdRng, plan: &mut v1::Plan) {
    if random.random_bool(0.33) {
        let timeout = Some(belay_proto::duration(Duration::from_millis(random.random_range(100..20_000))));
        for step in &mut plan.steps {
            if random.random_bool(0.3) {
                step.fail_fast_groups.push("within".to_owned());
            }
            if random.random_bool(0.6) {
                step.fail_fast_groups.push("together".to_owned());
            }
            if random.random_bool(0.6) {
                step.group_timeouts = vec![v1::GroupTimeout { group: "together".to_owned(), timeout }];
            }
        }
    }
    for step in &mut plan.steps {
        let makes_one = matches!(step.kind, Some(step_spec::Kind::Tool(_))) && !plans::has_entries(step);
        let is_plain = step.compensate.is_none() && step.postconditions.is_empty();
        if makes_one && is_plain && random.random_bool(0.7) {
            let delay = random.random_bool(0.5).then(|| random.random_range(1..3_000));
            let odd = random.random_range(0..2);
            step.repeat = Some(v1::Repeat {
                until: format!("${{{}.result.run}} % 2 == {odd}", step.id),
                max: random.random_range(1..=3),
                delay: delay.map(|ms| belay_proto::duration(Duration::from_millis(ms))),
            });
        }
        let runs_together = step.for_each.is_some() || matches!(step.kind, Some(step_spec::Kind::Calls(_)));
        step.fail_fast = runs_together && random.random_bool(0.3);
    }
}

/// A resource that several steps may use at once.
const API: &str = "api";
/// A resource that one step may use at a time: the plan does not name it.
const PORT: &str = "port";

/// In two plans of three, has steps share resources, with more slots than these allow.
pub(super) fn share(random: &mut StdRng, plan: &mut v1::Plan) {
    if random.random_bool(0.33) {
        return;
    }
    plan.parallelism = random.random_range(3..=6);
    plan.resources = vec![v1::PlanResource { name: API.to_owned(), capacity: random.random_range(1..=3) }];
    for step in &mut plan.steps {
        if matches!(step.kind, Some(step_spec::Kind::Wait(_)) | None) {
            continue;
        }
        step.resources.extend(random.random_bool(0.6).then(|| API.to_owned()));
        step.resources.extend(random.random_bool(0.25).then(|| PORT.to_owned()));
    }
}

/// Has what fails run again after everything else, and then a person waited for, or not. Some of it fails often.
pub(super) fn escalate(random: &mut StdRng, plan: &mut v1::Plan) {
    let pause = random.random_bool(0.5);
    let retries = random.random_range(i32::from(!pause)..=3);
    let delays = random.random_range(0..=retries);
    let backoff = (0..delays).map(|_| plans::milliseconds(random, 1, 1200)).collect();
    plan.escalation = Some(v1::Escalation { retries, backoff, exponential: None, pause });
    for step in &mut plan.steps {
        let Some(step_spec::Kind::Tool(tool)) = &mut step.kind else { continue };
        let arguments = tool.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
        let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        if random.random_bool(0.3) {
            arguments["fails"] = random.random_range(1..=8).into();
            arguments["class"] = i32::from(v1::ErrorClass::Transient).into();
            tool.arguments = Some(v1::Payload::of_json(arguments.to_string()));
        }
    }
}
