//! A plan before it runs: what would happen, a line for each step.

use std::collections::HashSet;

use belay_proto::v1::{Payload, Plan, RunWhen, StepSpec, step_spec::Kind};
use serde_json::Value;

use super::{
    call,
    text::{Line, Style, clean, shorten, table},
    time, words,
};

/// The longest call that is shown for a step, in characters.
const MAX_CALL: usize = 100;

/// The plan as it would run, with at most `max_steps` of its steps.
pub(crate) fn preview(plan: &Plan, max_steps: usize) -> Vec<Line> {
    let mut lines = vec![heading(plan)];
    if !plan.description.is_empty() {
        lines.push(Line::default().and(Style::Dim, format!("  {}", plan.description)));
    }
    let ids: HashSet<&str> = plan.steps.iter().map(|step| step.id.as_str()).collect();
    lines.extend(table(&plan.steps.iter().take(max_steps).map(|step| row(step, &ids)).collect::<Vec<_>>()));
    if let Some(more @ 1..) = plan.steps.len().checked_sub(max_steps) {
        lines.push(Line::default().and(Style::Dim, format!("  … and {more} more; --dry-run shows all")));
    }
    lines
}

/// The plan's name, how many steps it has, and its limits.
pub(super) fn heading(plan: &Plan) -> Line {
    let pace = match plan.parallelism {
        ..=1 => "one at a time".to_owned(),
        most => format!("up to {most} at once"),
    };
    let stop = if plan.stop_on_error { ", stops on an error" } else { "" };
    let limit = plan
        .timeout
        .as_ref()
        .map(|limit| format!(", at most {}", time::short(time::duration(limit))))
        .unwrap_or_default();
    let budget = plan.budget.as_ref().map(|budget| format!(", {}", words::budget_limits(budget))).unwrap_or_default();
    let network = if plan.network.is_empty() { String::new() } else { format!(", network {}", clean(&plan.network)) };
    Line::new("plan ")
        .and(Style::Strong, &plan.id)
        .and(Style::Plain, format!(": {}, {pace}{stop}{limit}{budget}{network}", words::steps(plan.steps.len())))
}

/// The row of a step: its call, after which others, and under which conditions.
pub(super) fn row(step: &StepSpec, ids: &HashSet<&str>) -> Vec<(Style, String)> {
    let mut conditions = Vec::new();
    let after = call::dependencies(step, |id| ids.contains(id));
    let (named, after): (Vec<String>, Vec<String>) =
        after.into_iter().partition(|id| words::outcomes_of(step, id).is_some());
    if !after.is_empty() {
        let how = match step.run_when() {
            RunWhen::Failure => "after a failure of",
            RunWhen::Always => "after any end of",
            RunWhen::NoneFailed => "after any end but a failure of",
            RunWhen::Unspecified | RunWhen::Success => "after",
        };
        conditions.push(format!("{how} {}", after.join(", ")));
    }
    for id in named {
        conditions.push(format!("after {id} ({})", words::outcomes_of(step, &id).unwrap_or_default()));
    }
    if !step.condition.is_empty() {
        conditions.push(format!("if {}", shorten(&clean(&step.condition), MAX_CALL)));
    }
    if let Some(list) = step.for_each.as_ref().and_then(Payload::as_json) {
        let entries = serde_json::from_str::<Value>(list).unwrap_or_default();
        conditions.push(match entries {
            Value::Array(entries) => format!("for each of {}", words::entries(entries.len())),
            Value::Object(list) => format!("for each of a matrix of {}", dimensions(&list)),
            other => format!("for each of {}", shorten(&clean(other.as_str().unwrap_or_default()), MAX_CALL)),
        });
    }
    if step.fail_fast {
        conditions.push("none after one that fails".to_owned());
    }
    if let Some(repeat) = &step.repeat {
        let delay = repeat.delay.as_ref().map(|delay| format!(", {} after each", time::short(time::duration(delay))));
        let until = shorten(&clean(&repeat.until), MAX_CALL);
        conditions.push(format!("again until {until} (at most {} rounds{})", repeat.max, delay.unwrap_or_default()));
    }
    if !step.fallback.is_empty() {
        let tools: Vec<String> = step.fallback.iter().map(|call| clean(&call.tool)).collect();
        conditions.push(format!("else {}", tools.join(", ")));
    }
    for (word, count) in [("before", step.preconditions.len()), ("after", step.postconditions.len())] {
        if count > 0 {
            conditions.push(format!("{} {word}", words::checks(count)));
        }
    }
    if let Some(undoes) = &step.compensate {
        conditions.push(format!("undone by {}", clean(&undoes.tool)));
    }
    if !step.resources.is_empty() {
        let names: Vec<String> = step.resources.iter().map(|name| clean(name)).collect();
        conditions.push(format!("alone with {}", names.join(", ")));
    }
    let network = match &step.kind {
        Some(Kind::Tool(call)) => call.network.as_str(),
        Some(Kind::Calls(calls)) => calls.network.as_str(),
        Some(Kind::Agent(agent)) => agent.network.as_str(),
        Some(Kind::Wait(_) | Kind::Plan(_)) | None => "",
    };
    if !network.is_empty() {
        conditions.push(format!("network {}", clean(network)));
    }
    if let Some(attempts) = step.retry.as_ref().map(|retry| retry.max_attempts).filter(|attempts| *attempts > 1) {
        conditions.push(format!("up to {attempts} attempts"));
    }
    if let Some(budget) = &step.budget {
        conditions.push(words::budget_limits(budget));
    }
    for group in &step.fail_fast_groups {
        conditions.push(format!("of the group {}, which fails fast", clean(group)));
    }
    for limit in &step.group_timeouts {
        let timeout = limit.timeout.as_ref().map(|timeout| time::short(time::duration(timeout))).unwrap_or_default();
        conditions.push(format!("at most {timeout} with the group {}", clean(&limit.group)));
    }
    if let Some(limit) = &step.timeout {
        conditions.push(format!("at most {}", time::short(time::duration(limit))));
    }
    vec![
        (Style::Strong, step.id.clone()),
        (Style::Plain, shorten(&call::of_step(step), MAX_CALL)),
        (Style::Dim, conditions.join(", ")),
    ]
}

/// The dimensions of a matrix, by name: what it leaves out and adds is none.
fn dimensions(list: &serde_json::Map<String, Value>) -> String {
    let fields = list.get("matrix").and_then(Value::as_object);
    let names = fields.into_iter().flat_map(|fields| fields.keys());
    let names: Vec<String> =
        names.filter(|name| !["include", "exclude"].contains(&name.as_str())).map(|name| clean(name)).collect();
    shorten(&names.join(" and "), MAX_CALL)
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{CallsStep, DependencyOutcomes, Outcome, Repeat, RetryPolicy, ToolStep, step_spec};

    use super::*;

    #[test]
    fn says_what_would_run_in_which_order() {
        let step = |id: &str, after: &[&str]| StepSpec {
            id: id.to_owned(),
            depends_on: after.iter().map(|id| (*id).to_owned()).collect(),
            kind: Some(step_spec::Kind::Tool(ToolStep {
                tool: "read_file".to_owned(),
                arguments: Some(Payload::of_json(r#"{"path":"a"}"#)),
                ..Default::default()
            })),
            ..Default::default()
        };
        let retry = Some(RetryPolicy { max_attempts: 3, ..Default::default() });
        let plan = Plan {
            id: "p".to_owned(),
            steps: vec![
                step("a", &[]),
                StepSpec { retry, ..step("b", &["a"]) },
                StepSpec {
                    for_each: Some(Payload::of_json(r#""${b.result}""#)),
                    fallback: vec![ToolStep { tool: "noop".to_owned(), ..Default::default() }],
                    resources: vec!["db".to_owned()],
                    compensate: Some(Box::new(ToolStep { tool: "delete_file".to_owned(), ..Default::default() })),
                    ..step("c", &[])
                },
                StepSpec { for_each: Some(Payload::of_json("[1,2]")), ..step("d", &[]) },
                StepSpec {
                    repeat: Some(Repeat {
                        until: "${f.result.ok} && ${a.result}".to_owned(),
                        max: 9,
                        delay: Some(pbjson_types::Duration { seconds: 5, nanos: 0 }),
                    }),
                    ..step("f", &[])
                },
                StepSpec {
                    for_each: Some(Payload::of_json(r#"{"matrix":{"os":["a"],"exclude":[],"v":"${b.result}"}}"#)),
                    ..step("e", &[])
                },
            ],
            stop_on_error: true,
            timeout: Some(pbjson_types::Duration { seconds: 90, nanos: 0 }),
            network: "ci".to_owned(),
            ..Default::default()
        };
        let text = |most| preview(&plan, most).iter().map(|line| line.render(false)).collect::<Vec<_>>();
        assert_eq!(text(1)[1..], ["  a  read a", "  … and 5 more; --dry-run shows all"]);
        assert_eq!(
            text(9),
            [
                "plan p: 6 steps, one at a time, stops on an error, at most 1m 30s, network ci",
                "  a  read a",
                "  b  read a  after a, up to 3 attempts",
                "  c  read a  after b, for each of ${b.result}, else noop, undone by delete_file, alone with db",
                "  d  read a  for each of 2 entries",
                "  f  read a  after a, again until ${f.result.ok} && ${a.result} (at most 9 rounds, 5s after each)",
                "  e  read a  after b, for each of a matrix of os and v",
            ]
        );
    }

    #[test]
    fn says_which_network_a_step_has() {
        let call = ToolStep { tool: "noop".to_owned(), network: "registries".to_owned(), ..Default::default() };
        let calls = CallsStep { network: "ci".to_owned(), ..Default::default() };
        for (kind, expected) in [(Kind::Tool(call), "network registries"), (Kind::Calls(calls), "network ci")] {
            let step = StepSpec { id: "a".to_owned(), kind: Some(kind), ..Default::default() };
            let text = table(&[row(&step, &HashSet::from(["a"]))])[0].render(false);
            assert!(text.ends_with(expected), "{text}");
        }
    }

    #[test]
    fn says_when_a_step_would_run() {
        let step = StepSpec {
            id: "tell".to_owned(),
            depends_on: vec!["a".to_owned()],
            run_when: RunWhen::Failure.into(),
            condition: "${a.failure.code} != 'x'".to_owned(),
            ..Default::default()
        };
        let told = |step: &StepSpec| table(&[row(step, &HashSet::from(["a", "b", "c"]))])[0].render(false);
        let text = told(&step);
        assert!(text.contains("after a failure of a, if ${a.failure.code} != 'x'"), "{text}");
        let text = told(&StepSpec { run_when: RunWhen::NoneFailed.into(), ..step.clone() });
        assert!(text.contains("after any end but a failure of a, if"), "{text}");
        let of = |step: &str, outcomes: &[Outcome]| DependencyOutcomes {
            step: step.to_owned(),
            outcomes: outcomes.iter().map(|outcome| (*outcome).into()).collect(),
        };
        let joins = StepSpec {
            depends_on: ["a", "b", "c"].map(str::to_owned).into(),
            run_when: 0,
            outcomes: vec![
                of("c", &[Outcome::Success, Outcome::Skipped]),
                of("b", &[Outcome::Success, Outcome::Failure, Outcome::Skipped]),
            ],
            ..step
        };
        let text = told(&joins);
        assert!(text.contains("after a, after b (any end), after c (success or skipped), if"), "{text}");
    }
}
