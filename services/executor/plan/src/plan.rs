//! The checked plan: its settings and its steps. What a step does, and what is checked around its calls, is below it.

mod as_draft;
mod checks;
mod plan_part;
mod step;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

use crate::{
    AuditLevel, Budget, Condition, Dependency, Escalation, ExecutionLimit, Input, OnError, OtherCall, Outcome,
    PlanDraft, Repeat, RetryPolicy, RunWhen, StepKind, StepKindDraft, Template,
};

pub(crate) use checks::{CRITERION, call_of};
pub use checks::{Check, CheckPlace};
pub use plan_part::{CallPlace, ConditionPlace, ModelPlace, PlanPart, PlannedCall, PlannedStep};

/// A valid plan: ids are unique, dependencies exist and form no cycle, templates are well formed and name steps, and all values are within
/// their limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) stop_on_error: bool,
    pub(crate) parallelism: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) escalation: Option<Escalation>,
    pub(crate) resources: BTreeMap<String, u32>,
    pub(crate) audit_level: Option<AuditLevel>,
    pub(crate) allowed_commands: Option<Vec<String>>,
    pub(crate) network: Option<String>,
    pub(crate) budget: Option<Budget>,
    pub(crate) limits: Vec<ExecutionLimit>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) dry_run: bool,
    pub(crate) inputs: BTreeMap<String, Input>,
    /// An object; `None` when the plan declares none.
    pub(crate) outputs: Option<Template>,
    pub(crate) steps: Vec<Arc<StepSpec>>,
    /// By step: the steps that depend on it, ascending.
    pub(crate) dependents: Vec<Vec<usize>>,
    pub(crate) index: HashMap<String, usize>,
}

/// The specification of one step in a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSpec {
    pub(crate) id: String,
    /// As it was written: empty when the id serves.
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) group: String,
    pub(crate) depends_on: Vec<Dependency>,
    pub(crate) dependencies: Vec<usize>,
    /// The outcomes that it names of steps that it depends on, by their ids.
    pub(crate) outcomes: BTreeMap<String, BTreeSet<Outcome>>,
    pub(crate) run_when: RunWhen,
    pub(crate) condition: Option<Condition>,
    pub(crate) for_each: Option<Template>,
    pub(crate) repeat: Option<Repeat>,
    pub(crate) fail_fast: bool,
    pub(crate) group_timeouts: BTreeMap<String, Duration>,
    pub(crate) fail_fast_groups: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) exclusive: bool,
    pub(crate) network: Option<String>,
    pub(crate) verbatim: Vec<String>,
    pub(crate) retry: RetryPolicy,
    pub(crate) on_error: OnError,
    pub(crate) fallback: Vec<OtherCall>,
    pub(crate) compensate: Option<OtherCall>,
    pub(crate) resources: Vec<String>,
    pub(crate) preconditions: Vec<Check>,
    pub(crate) postconditions: Vec<Check>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) budget: Option<Budget>,
    pub(crate) kind: StepKind,
}

impl Plan {
    /// The author's name for the plan.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The purpose of the plan, for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Whether the first failed step stops the execution.
    pub fn stop_on_error(&self) -> bool {
        self.stop_on_error
    }

    /// How many levels of plans are in the plans of its steps: 0 when no step has one.
    pub fn nested_levels(&self) -> usize {
        let of_step = |step: &Arc<StepSpec>| step.kind().plan().map_or(0, |plan| 1 + plan.nested_levels());
        self.steps.iter().map(of_step).max().unwrap_or(0)
    }

    /// How many steps may run at once; at least 1.
    pub fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// The longest time the whole execution may take; `None` means no limit.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The reaction to failures of steps; `None` when the execution ends.
    pub fn escalation(&self) -> Option<&Escalation> {
        self.escalation.as_ref()
    }

    /// How many steps may use a resource of this name at the same time; at least 1.
    pub fn capacity(&self, resource: &str) -> usize {
        self.resources.get(resource).map_or(1, |&capacity| usize::try_from(capacity.max(1)).unwrap_or(usize::MAX))
    }

    /// How much of the audit log is listed when nothing else is asked for; `None` when the author said nothing.
    pub fn audit_level(&self) -> Option<AuditLevel> {
        self.audit_level
    }

    /// The programs that its commands may start, of those that the policy allows; `None`: all of these.
    pub fn allowed_commands(&self) -> Option<&[String]> {
        self.allowed_commands.as_deref()
    }

    /// The network profile of calls whose step names none, where their tool takes one; `None` for their own loopback alone.
    pub fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }

    /// The labels of its executions, beside those that a start gives.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Whether a start of it only says what would happen.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The values that an execution is started with, by their names.
    pub fn inputs(&self) -> &BTreeMap<String, Input> {
        &self.inputs
    }

    /// The values that are the result of an execution, by their names: an object whose strings may hold templates; `None` when the plan declares none.
    pub fn outputs(&self) -> Option<&Template> {
        self.outputs.as_ref()
    }

    /// The steps, in the plan's order. A step may depend on a later one.
    pub fn steps(&self) -> &[Arc<StepSpec>] {
        &self.steps
    }

    /// The position in [`Plan::steps`] of the step with this id.
    pub fn step_index(&self, id: &str) -> Option<usize> {
        self.index.get(id).copied()
    }

    /// The positions of the steps that depend on a step, ascending.
    ///
    /// # Panics
    /// When `step` is not the position of a step.
    pub fn dependents(&self, step: usize) -> &[usize] {
        &self.dependents[step]
    }

    /// The same with this time limit of each step that calls a tool or carries out a plan, in plans of steps as well.
    #[must_use]
    pub fn with_step_timeout(&self, timeout: Duration) -> Self {
        fn limit(draft: &mut PlanDraft, timeout: Duration) {
            for step in draft.steps.iter_mut().filter(|step| step.kind.retried_as().is_some()) {
                step.timeout = Some(timeout);
                if let StepKindDraft::Plan { plan, .. } = &mut step.kind {
                    limit(plan, timeout);
                }
            }
        }
        let mut draft = self.to_draft();
        limit(&mut draft, timeout);
        Self::stored(draft).expect("a time limit makes no plan invalid")
    }

    /// The most that the calls of all steps may use; `None` means no limit.
    pub fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }

    /// The limits that its executions share with others of the namespace.
    pub fn limits(&self) -> &[ExecutionLimit] {
        &self.limits
    }

    /// Whether it, or one of its steps, has a budget.
    pub fn has_budgets(&self) -> bool {
        self.budget.is_some() || self.steps.iter().any(|step| step.budget.is_some())
    }
}
