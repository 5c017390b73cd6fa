//! Documents: what they mean, what is wrong with them and where, and what they may not do to their reader.

mod groups;
mod hostile;
mod meaning;
mod refusals;
mod shapes;

use crate::{Format, Plan, StepKind, StepSpec, Violation};

pub(super) fn read(text: &str) -> Plan {
    Plan::parse(Format::Auto, text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub(super) fn violations(text: &str) -> Vec<Violation> {
    Plan::parse(Format::Auto, text).expect_err(text).violations
}

/// Asserts that a text has exactly these violations, given as how their lines begin and the place where each of them stands.
#[track_caller]
pub(super) fn assert_refused(text: &str, expected: &[(&str, (u32, u32))]) {
    let found = violations(text);
    let matches = found.len() == expected.len()
        && found.iter().zip(expected).all(|(violation, (start, place))| {
            violation.to_string().starts_with(start) && (violation.line, violation.column) == *place
        });
    assert!(matches, "expected {expected:#?}, found {found:#?} in\n{text}");
}

/// A plan of one step, with these lines in it.
pub(super) fn one_step(lines: &str) -> String {
    format!("id: demo\nsteps:\n  - id: a\n    tool: noop\n    {lines}\n")
}

pub(super) fn arguments(step: &StepSpec) -> &serde_json::Value {
    let StepKind::Tool(tool) = step.kind() else { panic!("a tool step") };
    tool.arguments.source()
}

pub(super) const REQUEST: &str = r#"{
  "plan": {
    "id": "plan-123",
    "description": "Generate and publish blog post",
    "steps": [
      {"id": "step-2", "order": 2, "skillId": "moderate_content",
       "params": {"contentSource": "${step-1.result.content}"}, "dependencies": ["step-1"]},
      {"id": "step-3", "order": 3, "skillId": "analyze_seo",
       "params": {"contentSource": "${step-1.result}"}, "dependencies": ["step-1"]},
      {"id": "step-1", "order": 1, "skillId": "generate_content", "params": {"topic": "GraphQL"},
       "retry": {"maxAttempts": 3, "backoffMs": [1000, 2000, 4000]}}
    ],
    "metadata": {"createdBy": "planner", "confidence": 0.9}
  },
  "context": {"traceId": "trace-456", "environment": "production"},
  "config": {"timeout": 120000, "stopOnError": true, "parallel": true, "dryRun": false, "auditLevel": "standard"}
}"#;

// S2-X-21: the settings of that planner's executor hold for the steps that say nothing of it themselves.
#[test]
fn settings_of_another_planners_executor_are_read() {
    let steps = "steps:
  - {id: a, tool: t}
  - {id: b, tool: t, retry: {max_attempts: 1}, timeout: 9s}
  - {id: c, plan: {id: q, steps: [{id: d, tool: t}]}}
  - {id: e, wait: {signal: go}}";
    let read = |config: &str| {
        let text = format!("plan:\n  id: p\n  {}\nconfig: {config}\n", steps.replace('\n', "\n  "));
        let plan = Plan::parse(Format::Yaml, &text).unwrap();
        let of_step = |step: &std::sync::Arc<crate::StepSpec>| {
            let retry = step.retry();
            let delays = (1..retry.max_attempts).map(|n| retry.delay(n - 1).as_millis()).collect::<Vec<_>>();
            (retry.max_attempts, delays, step.timeout().map(|timeout| timeout.as_secs()))
        };
        plan.steps().iter().map(of_step).collect::<Vec<_>>()
    };
    let config = "{max_turns_per_step: 10, retry_count: 3, retry_backoff_base_ms: 1000, step_timeout_seconds: 120, \
                  token_budget_percent: 30, workspace_only: true}";
    let default = (4, vec![1000, 2000, 4000], Some(120));
    let [none, own] = [(1, Vec::new(), None), (1, Vec::new(), Some(9))];
    assert_eq!(read(config), [default.clone(), own.clone(), default.clone(), none.clone()]);
    let alone = (4, vec![1000, 2000, 4000], None);
    assert_eq!(read("{retry_count: 3}"), [alone.clone(), own.clone(), alone.clone(), none.clone()]);
    assert_eq!(read("{retry_backoff_base_ms: 1000}"), read("{retry_count: 3}"));
    assert_eq!(read("{retry_count: 0}")[0], none);
    let longest = read("{retry_count: 99, retry_backoff_base_ms: 31536000000}").remove(0);
    assert!(longest.0 == 100 && longest.1.iter().all(|delay| *delay == 31_536_000_000), "{longest:?}");
}
