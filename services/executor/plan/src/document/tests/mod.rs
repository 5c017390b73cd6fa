//! Documents: what they mean, what is wrong with them and where, and what they may not do to their reader.

mod groups;
mod hostile;
mod meaning;
mod refusals;

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
