//! Plans.

use std::time::Duration;

use belay_plan::{Backoff, InvalidPlan, Plan, PlanDraft, RetryPolicy, StepDraft, StepKindDraft, Violation};
use belay_proto::v1;

/// A checked plan from a message.
pub(crate) fn plan_from(message: v1::Plan) -> Result<Plan, InvalidPlan> {
    Plan::new(draft(message)?)
}

/// What a client sent, in the domain's terms.
fn draft(message: v1::Plan) -> Result<PlanDraft, InvalidPlan> {
    let mut violations = Vec::new();
    let mut steps = Vec::with_capacity(message.steps.len());
    for (index, step) in message.steps.into_iter().enumerate() {
        let at = |field: &str| format!("steps[{index}].{field}");
        let Some(v1::step::Kind::Tool(tool)) = step.kind else {
            violations.push(violation(at("kind"), "a step needs a kind; set `tool`"));
            continue;
        };
        let arguments = if tool.arguments.is_empty() {
            serde_json::Value::Object(serde_json::Map::new())
        } else {
            match serde_json::from_str(&tool.arguments) {
                Ok(arguments) => arguments,
                Err(error) => {
                    violations.push(violation(at("tool.arguments"), format!("is not JSON: {error}")));
                    continue;
                }
            }
        };
        let retry = step.retry.map(|retry| retry_from(retry, &at("retry"), &mut violations));
        steps.push(StepDraft {
            id: step.id,
            title: step.title,
            depends_on: step.depends_on,
            timeout: duration_from(step.timeout.as_ref(), || at("timeout"), &mut violations),
            attempt_timeout: duration_from(step.attempt_timeout.as_ref(), || at("attempt_timeout"), &mut violations),
            exclusive: tool.exclusive,
            retry,
            kind: StepKindDraft::Tool { tool: tool.tool, arguments },
        });
    }
    let parallelism = u32::try_from(message.parallelism).unwrap_or_else(|_| {
        violations.push(violation("parallelism".into(), "must not be negative"));
        0
    });
    let timeout = duration_from(message.timeout.as_ref(), || "timeout".into(), &mut violations);
    if !violations.is_empty() {
        return Err(InvalidPlan { violations });
    }
    Ok(PlanDraft {
        id: message.id,
        description: message.description,
        steps,
        stop_on_error: message.stop_on_error,
        parallelism,
        timeout,
    })
}

fn violation(field: String, message: impl Into<String>) -> Violation {
    Violation { field, message: message.into(), line: 0, column: 0 }
}

fn duration_from(
    duration: Option<&pbjson_types::Duration>,
    field: impl Fn() -> String,
    violations: &mut Vec<Violation>,
) -> Option<Duration> {
    let converted = belay_proto::to_duration(duration?);
    if converted.is_none() {
        violations.push(violation(field(), "must not be negative"));
    }
    converted
}

fn retry_from(retry: v1::RetryPolicy, field: &str, violations: &mut Vec<Violation>) -> RetryPolicy {
    let max_attempts = u32::try_from(retry.max_attempts).unwrap_or_else(|_| {
        violations.push(violation(format!("{field}.max_attempts"), "must not be negative"));
        1
    });
    let exponential = retry.exponential.filter(|_| retry.backoff.is_empty());
    let backoff = match exponential {
        Some(exponential) => {
            let mut part = |name: &str, value: Option<&pbjson_types::Duration>| {
                duration_from(value, || format!("{field}.exponential.{name}"), violations)
            };
            let (initial, max) = (part("initial", exponential.initial.as_ref()), part("max", exponential.max.as_ref()));
            Backoff::Exponential {
                initial: initial.unwrap_or(Duration::from_secs(1)),
                factor: exponential.factor,
                max: max.unwrap_or(Duration::from_secs(30)),
            }
        }
        None => {
            let at = |index: usize| format!("{field}.backoff[{index}]");
            let delays = retry.backoff.iter().enumerate();
            Backoff::List(
                delays.filter_map(|(index, delay)| duration_from(Some(delay), || at(index), violations)).collect(),
            )
        }
    };
    RetryPolicy { max_attempts, backoff }
}

/// A plan as a message.
pub(crate) fn plan_message(plan: &Plan) -> v1::Plan {
    let draft = plan.to_draft();
    v1::Plan {
        id: draft.id,
        description: draft.description,
        steps: draft.steps.into_iter().map(step_message).collect(),
        stop_on_error: draft.stop_on_error,
        parallelism: i32::try_from(draft.parallelism).unwrap_or(i32::MAX),
        timeout: draft.timeout.map(belay_proto::duration),
    }
}

fn step_message(step: StepDraft) -> v1::Step {
    let StepKindDraft::Tool { tool, arguments } = step.kind;
    v1::Step {
        id: step.id,
        title: step.title,
        depends_on: step.depends_on,
        timeout: step.timeout.map(belay_proto::duration),
        attempt_timeout: step.attempt_timeout.map(belay_proto::duration),
        retry: step.retry.map(|retry| retry_message(&retry)),
        kind: Some(v1::step::Kind::Tool(v1::ToolStep {
            tool,
            arguments: arguments.to_string(),
            exclusive: step.exclusive,
        })),
    }
}

fn retry_message(retry: &RetryPolicy) -> v1::RetryPolicy {
    let max_attempts = i32::try_from(retry.max_attempts).unwrap_or(i32::MAX);
    match &retry.backoff {
        Backoff::List(delays) => v1::RetryPolicy {
            max_attempts,
            backoff: delays.iter().copied().map(belay_proto::duration).collect(),
            exponential: None,
        },
        Backoff::Exponential { initial, factor, max } => v1::RetryPolicy {
            max_attempts,
            backoff: Vec::new(),
            exponential: Some(v1::ExponentialBackoff {
                initial: Some(belay_proto::duration(*initial)),
                factor: *factor,
                max: Some(belay_proto::duration(*max)),
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_comes_back_as_it_was() {
        let text = "
            id: p
            parallelism: 3
            timeout: 5m
            steps:
              - {id: a, tool: noop, arguments: {output: {n: 9007199254740993}}, retry: {max_attempts: 3, backoff: [1s, 2s]}}
              - {id: b, tool: noop, depends_on: [a], timeout: 30s, attempt_timeout: 1s, exclusive: true, retry: {max_attempts: 2}}
              - {id: c, title: C, tool: noop, arguments: {output: '${a.result.n}'}}
        ";
        let plan = Plan::parse(belay_plan::Format::Yaml, text).unwrap();
        assert_eq!(plan_from(plan_message(&plan)).unwrap(), plan);
    }

    #[test]
    fn what_a_message_cannot_mean_is_named() {
        let step = v1::Step {
            id: "a".into(),
            timeout: Some(pbjson_types::Duration { seconds: -1, nanos: 0 }),
            ..v1::Step::default()
        };
        let tool = v1::step::Kind::Tool(v1::ToolStep { tool: "noop".into(), arguments: "{".into(), exclusive: false });
        let message = v1::Plan {
            id: "p".into(),
            parallelism: -1,
            steps: vec![step.clone(), v1::Step { kind: Some(tool), ..step }],
            ..v1::Plan::default()
        };
        let fields: Vec<String> =
            plan_from(message).unwrap_err().violations.into_iter().map(|violation| violation.field).collect();
        assert_eq!(fields, ["steps[0].kind", "steps[1].tool.arguments", "parallelism"]);
    }
}
