//! Attributes of a step: its dependencies, calls, checks, limits and retries.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use belay_reasons::ErrorClass;
use serde_json::Value;

use super::{
    StepSpec,
    checks::{Check, CheckPlace},
};
use crate::{
    AgentStep, Budget, CallsStep, Condition, Dependency, FormSpec, Outcome, RecoveryStrategy, Repeat, RetryPolicy,
    RunWhen, StepKind, Template, ToolStep, recovery::MAX_QUEUED_ATTEMPTS,
};

impl StepSpec {
    /// Unique in the plan.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A short line for people; the id when the author gave none.
    pub fn title(&self) -> &str {
        if self.title.is_empty() { &self.id } else { &self.title }
    }

    /// The purpose of the step and the reason for it, as its author wrote them; often empty.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The id of the outermost group that it was written in, for people; empty when it stands in none.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The positions of the steps that must have ended first, those named in templates included; ascending and unique.
    pub fn dependencies(&self) -> &[usize] {
        &self.dependencies
    }

    /// The dependencies that the author listed, as they were written.
    pub fn depends_on(&self) -> &[Dependency] {
        &self.depends_on
    }

    /// The outcomes after which it runs of the step with this id; `None` when [`Self::run_when`] says that.
    pub fn outcomes_of(&self, step: &str) -> Option<&BTreeSet<Outcome>> {
        self.outcomes.get(step)
    }

    /// After which ends of its dependencies it runs, of those whose outcomes it does not name.
    pub fn run_when(&self) -> RunWhen {
        self.run_when
    }

    /// The condition that must be true for the step to run, once its dependencies allow it.
    pub fn condition(&self) -> Option<&Condition> {
        self.condition.as_ref()
    }

    /// The list for each entry of which it runs; `None` when it runs once.
    pub fn for_each(&self) -> Option<&Template> {
        self.for_each.as_ref()
    }

    /// Whether no more of its entries or calls start once one has failed.
    pub fn fail_fast(&self) -> bool {
        self.fail_fast
    }

    /// The longest times of the groups that it stands in, by their ids: from the start of the first of a group's steps.
    pub fn group_timeouts(&self) -> &BTreeMap<String, Duration> {
        &self.group_timeouts
    }

    /// The groups that it stands in of which no step starts once one has failed, by their ids, the innermost first.
    pub fn fail_fast_groups(&self) -> &[String] {
        &self.fail_fast_groups
    }

    /// Until when it runs again; `None` when it does not.
    pub fn repeat(&self) -> Option<&Repeat> {
        self.repeat.as_ref()
    }

    /// The calls that take the place of its own, one after the other, when all attempts of the one before have failed.
    pub fn fallback(&self) -> impl ExactSizeIterator<Item = &ToolStep> {
        self.fallback.iter().map(|fallback| &fallback.call)
    }

    /// The call that undoes what it has done.
    pub fn compensate(&self) -> Option<&ToolStep> {
        self.compensate.as_ref().map(|other| &other.call)
    }

    /// All calls that it may make itself to complete: its own, then those that take its place; none for a step that calls no tool, or several.
    pub fn calls(&self) -> impl Iterator<Item = &ToolStep> {
        self.kind.own_call().into_iter().chain(self.fallback())
    }

    /// The calls that it makes side by side; `None` for a step of another kind.
    pub fn several(&self) -> Option<&CallsStep> {
        self.kind.several()
    }

    /// The calls that it makes side by side, in the order of their results; none for a step of another kind.
    pub fn listed_calls(&self) -> impl Iterator<Item = &ToolStep> {
        self.several().into_iter().flat_map(CallsStep::calls)
    }

    /// The goal towards which a model works in it; `None` for a step of another kind.
    pub fn agent(&self) -> Option<&AgentStep> {
        self.kind.agent()
    }

    /// All calls of tools that it may make, those that a model may ask for included, for what is to be known of their tools.
    pub fn named_calls(&self) -> impl Iterator<Item = &ToolStep> {
        let offered =
            self.agent().into_iter().flat_map(|agent| agent.tools().iter().chain(agent.files()).chain(agent.found()));
        self.calls().chain(self.listed_calls()).chain(offered)
    }

    /// Whether steps of its own do its work: one for each entry of its list, for each of its calls, for each of its rounds, or for each turn of its model.
    pub fn has_entries(&self) -> bool {
        self.for_each.is_some() || self.repeat.is_some() || self.several().is_some() || self.agent().is_some()
    }

    /// The most that its calls may use; `None` means no limit of its own.
    pub fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }

    /// Resources that it uses and that no other step may use at the same time; ascending and unique.
    pub fn resources(&self) -> &[String] {
        &self.resources
    }

    /// Checks that must hold before each of its attempts.
    pub fn preconditions(&self) -> &[Check] {
        &self.preconditions
    }

    /// Checks that must hold once its call has ended with a result.
    pub fn postconditions(&self) -> &[Check] {
        &self.postconditions
    }

    /// Returns the check at this place; `None` when the step has none there.
    pub fn check(&self, place: CheckPlace) -> Option<&Check> {
        match place {
            CheckPlace::Before(place) => self.preconditions.get(place),
            CheckPlace::After(place) => self.postconditions.get(place),
        }
    }

    /// The JSON Schema of its output.
    pub fn output_schema(&self) -> Option<&Value> {
        self.output_schema.as_ref()
    }

    /// The longest time for all attempts and the waits between them; `None` means no limit.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The longest time for one attempt; `None` means [`Self::timeout`], and the tool's default where there is none either.
    pub fn attempt_timeout(&self) -> Option<Duration> {
        self.attempt_timeout
    }

    /// Whether no other call may commit in the workspace while the step's call runs.
    pub fn exclusive(&self) -> bool {
        self.exclusive
    }

    /// The network profile of the step's commands; `None` for their own loopback alone.
    pub fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }

    /// When to retry.
    pub fn retry(&self) -> &RetryPolicy {
        &self.retry
    }

    /// The strategy for a final failure of this class; `None` when the step fails.
    pub fn recovery(&self, class: ErrorClass) -> Option<RecoveryStrategy> {
        self.on_error.get(&class).copied()
    }

    /// Whether an earlier result may take the place of its call's.
    pub fn may_use_cache(&self) -> bool {
        self.on_error.values().any(|strategy| *strategy == RecoveryStrategy::UseCache)
    }

    /// Whether a rate limit pauses its execution until there is room again.
    pub fn queues_for_later(&self) -> bool {
        self.retry.rate_limit.queues_for_later() || self.is_queued_on_error()
    }

    /// How many attempts it may have when they fail with this class.
    pub fn max_attempts(&self, class: ErrorClass) -> u32 {
        match class {
            ErrorClass::RateLimit if self.is_queued_on_error() => self.retry.max_attempts.max(MAX_QUEUED_ATTEMPTS),
            _ => self.retry.max_attempts,
        }
    }

    fn is_queued_on_error(&self) -> bool {
        self.recovery(ErrorClass::RateLimit) == Some(RecoveryStrategy::QueueForLater)
    }

    /// The form that a person has to answer, when the step waits for that.
    pub fn form(&self) -> Option<&FormSpec> {
        self.kind.form()
    }

    /// The work that the step does.
    pub fn kind(&self) -> &StepKind {
        &self.kind
    }
}
