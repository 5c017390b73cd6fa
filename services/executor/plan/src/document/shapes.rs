//! Defaults of the documents of other planners, and how the documents are told apart.

use std::{collections::BTreeMap, time::Duration};

use crate::{Backoff, Escalation, PlanDraft, StepDraft, Then, limits::MAX_LABEL_BYTES, retry::Profile};

use super::tree::{Kind, Node};

/// The programs that the executor stage lets commands start. The policy's preset `allow-list` has the same.
pub const EXECUTOR_STAGE_COMMANDS: [&str; 9] =
    ["dotnet", "npm", "yarn", "git", "make", "cargo", "go", "python", "node"];

/// The executor stage's time limit of a step.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// How often the executor stage tries what has failed again as a whole, before it asks a person.
const STAGE_RETRIES: u32 = 2;

/// The executor agent's time limit of an attempt.
const AGENT_TIMEOUT: Duration = Duration::from_secs(300);

/// Whether this is a task plan.
pub(super) fn is_task_plan(plan: &Node) -> bool {
    plan.field("steps").is_none() && (plan.field("tasks").is_some() || plan.field("Tasks").is_some())
}

/// Whether this is a plan of the executor agent, which names its task.
pub(super) fn is_agent_plan(plan: &Node) -> bool {
    ["plan_id", "planId", "task_id"].into_iter().any(|name| plan.field(name).is_some())
}

/// Sets the defaults of the executor stage, for fields that neither its plan nor the settings beside it give.
pub(super) fn task_plan_defaults(draft: &mut PlanDraft) {
    for step in draft.steps.iter_mut().filter(|step| step.kind.retried_as().is_some()) {
        step.timeout = step.timeout.or(Some(STEP_TIMEOUT));
        step.retry.get_or_insert_with(|| Profile::Executor.policy());
    }
    draft.escalation.get_or_insert(Escalation { retries: STAGE_RETRIES, backoff: Backoff::DEFAULT, then: Then::Pause });
    draft.allowed_commands.get_or_insert_with(|| EXECUTOR_STAGE_COMMANDS.map(str::to_owned).into());
}

/// Sets the defaults of the executor agent, for fields that its plan does not give: three attempts of each step, each of at most 300 s. Its `timeout`
/// is that of an attempt.
pub(super) fn agent_defaults(steps: &mut [StepDraft]) {
    for step in steps.iter_mut().filter(|step| step.kind.retried_as().is_some()) {
        let timeout = step.timeout.take().unwrap_or(AGENT_TIMEOUT);
        step.attempt_timeout.get_or_insert(timeout);
        step.retry.get_or_insert_with(|| Profile::Agent.policy());
    }
}

/// A text, number or boolean as text.
pub(super) fn scalar(node: &Node) -> Option<String> {
    match &node.kind {
        Kind::Text(text) => Some(text.clone()),
        Kind::Number(number) => Some(number.to_string()),
        Kind::Bool(value) => Some(value.to_string()),
        Kind::Null | Kind::List(_) | Kind::Map(_) => None,
    }
}

/// As much of a text as a label has room for, on one line.
pub(super) fn first_bytes(text: &str, most: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line[..line.floor_char_boundary(most)].trim().to_owned()
}

/// Adds what these fields of an object say as labels, where it is a text, a number or a boolean, and no label has the name already.
pub(super) fn labels_of(node: &Node, names: &[&str], labels: &mut BTreeMap<String, String>) {
    for name in names {
        let value =
            node.field(name).and_then(|entry| scalar(&entry.value)).map(|text| first_bytes(&text, MAX_LABEL_BYTES));
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            labels.entry((*name).to_owned()).or_insert(value);
        }
    }
}
