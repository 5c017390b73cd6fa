//! The draft that a plan can be made of again.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Plan, StepSpec, checks::Check};
use crate::{ExecutionLimit, OnError, OtherCall, PlanDraft, Repeat, RetryPolicy, StepDraft, Template};

impl Plan {
    /// The plan as a draft; [`Plan::new`] and [`Plan::stored`] make the same plan of it.
    pub fn to_draft(&self) -> PlanDraft {
        PlanDraft {
            id: self.id.clone(),
            description: self.description.clone(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.as_ref().map(outputs_of).unwrap_or_default(),
            steps: self.steps.iter().map(|step| step.to_draft()).collect(),
            stop_on_error: self.stop_on_error,
            parallelism: u32::try_from(self.parallelism).expect("it came from a u32"),
            timeout: self.timeout,
            escalation: self.escalation.clone(),
            on_error: OnError::new(),
            resources: self.resources.clone(),
            audit_level: self.audit_level,
            allowed_commands: self.allowed_commands.clone(),
            network: self.network.clone(),
            budget: self.budget,
            limits: self.limits.iter().map(ExecutionLimit::to_draft).collect(),
            labels: self.labels.clone(),
            dry_run: self.dry_run,
        }
    }
}

/// The outputs as they were written.
fn outputs_of(template: &Template) -> BTreeMap<String, Value> {
    let written = template.source().as_object().into_iter().flatten();
    written.map(|(name, value)| (name.clone(), value.clone())).collect()
}

impl StepSpec {
    /// The step as a draft.
    pub fn to_draft(&self) -> StepDraft {
        StepDraft {
            id: self.id.clone(),
            title: self.title.clone(),
            group: self.group.clone(),
            description: self.description.clone(),
            depends_on: self.depends_on.clone(),
            run_when: self.run_when,
            condition: self.condition.as_ref().map(|condition| condition.source().to_owned()).unwrap_or_default(),
            for_each: self.for_each.as_ref().map(|list| list.source().clone()),
            fail_fast: self.fail_fast,
            group_timeouts: self.group_timeouts.clone(),
            fail_fast_groups: self.fail_fast_groups.clone(),
            repeat: self.repeat.as_ref().map(Repeat::to_draft),
            timeout: self.timeout,
            attempt_timeout: self.attempt_timeout,
            exclusive: self.exclusive,
            network: self.network.clone(),
            verbatim: self.verbatim.clone(),
            retry: (self.retry != RetryPolicy::default() || self.kind.agent().is_some()).then(|| self.retry.clone()),
            on_error: self.on_error.clone(),
            fallback: self.fallback.iter().map(OtherCall::to_draft).collect(),
            compensate: self.compensate.as_ref().map(OtherCall::to_draft),
            resources: self.resources.clone(),
            preconditions: self.preconditions.iter().map(Check::to_draft).collect(),
            postconditions: self.postconditions.iter().map(Check::to_draft).collect(),
            output_schema: self.output_schema.clone(),
            budget: self.budget,
            kind: self.kind.to_draft(),
        }
    }
}
