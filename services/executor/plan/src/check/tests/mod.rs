//! The rules one by one, and what holds for every plan.

mod properties;
mod rules;

use serde_json::{Value, json};

use crate::{Plan, PlanDraft, RunWhen, StepDraft, StepKindDraft};

pub(super) fn step(id: &str, depends_on: &[&str]) -> StepDraft {
    step_with(id, depends_on, json!({}))
}

pub(super) fn step_with(id: &str, depends_on: &[&str], arguments: Value) -> StepDraft {
    StepDraft {
        group: String::new(),
        id: id.to_owned(),
        description: String::new(),
        title: String::new(),
        depends_on: depends_on.iter().map(|&id| id.into()).collect(),
        run_when: RunWhen::Success,
        condition: String::new(),
        for_each: None,
        repeat: None,
        fail_fast: false,
        group_timeouts: Default::default(),
        fail_fast_groups: Vec::new(),
        fallback: Vec::new(),
        compensate: None,
        resources: Vec::new(),
        preconditions: Vec::new(),
        postconditions: Vec::new(),
        output_schema: None,
        budget: None,
        timeout: None,
        attempt_timeout: None,
        exclusive: false,
        network: None,
        verbatim: Vec::new(),
        retry: None,
        on_error: Default::default(),
        kind: StepKindDraft::Tool { tool: "noop".to_owned(), arguments },
    }
}

pub(super) fn draft(steps: Vec<StepDraft>) -> PlanDraft {
    PlanDraft { id: "demo".to_owned(), steps, ..PlanDraft::default() }
}

/// The violations of a draft, one line each.
pub(super) fn violations(draft: PlanDraft) -> Vec<String> {
    Plan::new(draft).expect_err("the plan is refused").violations.iter().map(ToString::to_string).collect()
}

/// Asserts that a draft has one violation, whose line begins like this.
#[track_caller]
pub(super) fn assert_refused(draft: PlanDraft, expected: &str) {
    let found = violations(draft);
    assert!(found.len() == 1 && found[0].starts_with(expected), "expected one of {expected:?}, found {found:#?}");
}
