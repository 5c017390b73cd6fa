//! A step as readers see it.

use std::time::Duration;

use belay_plan::{StepKind, StepSpec, ToolStep};

use super::{
    Authorization, Execution, FailedAttempt, Operation, Operations, StepKey, StepRecord, StepRole, agent::AgentEntry,
};
use crate::{Amounts, CachedFrom, Failure, Json, Payload, SkipReason, StepId, StepState, Timestamp, event::child_id};

/// The current state of one step.
#[derive(Clone, Copy, Debug)]
pub struct StepView<'a> {
    /// The step's position.
    pub key: StepKey,
    pub(super) record: &'a StepRecord,
    pub(super) operations: &'a Operations,
    /// The state of the step that undoes what this one has done.
    pub(super) compensation: Option<StepState>,
}

impl<'a> StepView<'a> {
    /// Its id.
    pub fn id(&self) -> &'a StepId {
        &self.record.id
    }

    /// The specification of the step.
    pub fn spec(&self) -> &'a StepSpec {
        &self.record.spec
    }

    /// Why the execution has it.
    pub fn role(&self) -> StepRole {
        self.record.role
    }

    /// A short line for people.
    pub fn title(&self) -> &'a str {
        match self.record.spec.title() {
            title if title == self.record.spec.id() => &self.record.id,
            title => title,
        }
    }

    /// The call that it makes: its own, or one that has taken its place; `None` for a step that calls no tool.
    pub fn call(&self) -> Option<&'a ToolStep> {
        self.record.current_call()
    }

    /// The entry of the list for which it runs; `None` for a step of the plan.
    pub fn item(&self) -> Option<&'a Json> {
        self.record.item.as_ref()
    }

    /// The state of the step that undoes what this one has done; `None` while that stays.
    pub fn compensation(&self) -> Option<StepState> {
        self.compensation
    }

    /// Whether it runs for each entry of a list: the steps for the entries do what there is to do.
    pub fn has_entries(&self) -> bool {
        self.record.has_entries()
    }

    /// Whether it runs for each entry of a list, and has read that.
    pub fn is_listed(&self) -> bool {
        self.record.items.listed.is_some()
    }

    /// The steps for the entries of the list for each of which it runs, in order; none before it has read the list.
    pub fn items(&self) -> &'a [StepKey] {
        self.record.items.current()
    }

    /// Whether it is an entry of a step with a goal: what becomes of it is for the model to hear.
    pub fn is_of_agent(&self) -> bool {
        self.record.is_of_agent()
    }

    /// Its state.
    pub fn state(&self) -> StepState {
        self.record.state
    }

    /// The current or last attempt, from 1; 0 before the first.
    pub fn attempt(&self) -> u32 {
        self.record.attempt
    }

    /// The number of the last attempt that it may make.
    pub fn max_attempts(&self) -> u32 {
        let attempts = if self.record.has_entries() { 1 } else { self.record.spec.retry().max_attempts };
        // A rate limit that is queued for later has made more of them.
        self.record.attempts_before_call.saturating_add(attempts).max(self.record.attempt)
    }

    /// When its first attempt started.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.record.started_at
    }

    /// When the current attempt started; `None` between attempts and after the last.
    pub fn attempt_started_at(&self) -> Option<Timestamp> {
        self.record.attempt_started_at
    }

    /// How long it has waited for decisions so far, not counting a wait that is still open.
    pub fn waited(&self) -> Duration {
        self.record.waited
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.record.ended_at
    }

    /// Its output, once it has completed.
    pub fn output(&self) -> Option<&'a Payload> {
        self.record.output.as_ref()
    }

    /// The last failure.
    pub fn failure(&self) -> Option<&'a Failure> {
        self.record.failure.as_deref()
    }

    /// Where its output comes from, when that is an earlier result of the same call.
    pub fn cached_from(&self) -> Option<&'a CachedFrom> {
        self.record.cached_from()
    }

    /// Its attempts that failed, in order, those before it was made to run again included.
    pub fn failed_attempts(&self) -> &'a [FailedAttempt] {
        &self.record.failed_attempts
    }

    /// The authorization of the call that completed it; `None` before that, and when the call changed nothing.
    pub fn authorization(&self) -> Option<&'a Authorization> {
        self.record.authorization.as_deref()
    }

    /// Why it was skipped, and because of which step.
    pub fn skipped(&self) -> Option<(SkipReason, Option<StepKey>)> {
        self.record.skipped
    }

    /// The group with `fail_fast` in which the step failed because of which it was skipped; `None` for another reason.
    pub fn skipped_group(&self) -> Option<&str> {
        self.record.skipped_group.as_deref()
    }

    /// How many calls with the purpose of the current one, its own or that of a check, conflicted with another commit in this attempt.
    pub fn conflicts(&self) -> u32 {
        self.record.conflicts
    }

    /// Whether a call with that purpose was made again because it failed while others committed.
    pub fn failed_during_commits(&self) -> bool {
        self.record.failed_during_commits
    }

    /// Its operations in flight.
    pub fn operations(&self) -> impl DoubleEndedIterator<Item = &'a Operation> {
        self.operations.of_step(self.key)
    }

    /// The amounts that its operations have used; of a step with entries, those of all of them.
    pub fn spent(&self) -> Amounts {
        self.record.account.spent
    }

    /// The turn of a model that it is, or whose answer it is of; `None` for any other step.
    pub fn turn(&self) -> Option<u32> {
        self.record.turn()
    }

    /// The model that is asked in a step with a goal, or that a turn asks, by its name in the settings: the last one that was asked. Empty for any other step.
    pub fn model<'e>(&'e self, execution: &'e Execution) -> &'e str {
        let turns = self.record.items.current().iter().rev().map(|&entry| &execution.steps[entry]);
        let asked = turns.chain([self.record]).find_map(StepRecord::asked_model).map(|(_, model)| model);
        asked.or_else(|| self.record.spec.agent().map(belay_plan::AgentStep::model)).unwrap_or_default()
    }

    /// The model that it asks, by its name in the settings; `None` for any other step than a turn.
    pub fn asked_model(&self) -> Option<&str> {
        self.record.asked_model().map(|(_, model)| model)
    }

    /// The model whose call it makes, by its name in the settings, and the turn with which the model has asked for it; `None` for any other step.
    pub fn called_by<'e>(&self, execution: &'e Execution) -> Option<(&'e str, u32)> {
        let Some(AgentEntry::Call { .. }) = self.record.agent_entry() else { return None };
        self.asking_model(execution)
    }

    /// The model in whose answer it stands, and the turn, for a call of a model and for the completion.
    pub(crate) fn asking_model<'e>(&self, execution: &'e Execution) -> Option<(&'e str, u32)> {
        let turn = self.record.turn()?;
        let whole = &execution.steps[self.record.runs_for()?];
        let turns = whole.items.current().iter().rev().map(|&entry| &execution.steps[entry]);
        let asked = turns.filter(|entry| entry.turn() == Some(turn));
        asked.filter_map(StepRecord::asked_model).map(|(_, model)| (model, turn)).next()
    }

    /// How many turns of its model have begun since it was last made to run again, for a step with a goal.
    pub fn turns(&self, execution: &Execution) -> u32 {
        execution.turns_of(self.record)
    }

    /// What it adds to the conversation, for a turn of a model that has been requested.
    pub fn asked(&self) -> Option<&'a Payload> {
        self.record.asked.as_ref()
    }

    /// How many turns of another execution it begins with; 0 for a step that begins anew.
    pub fn carried_turns(&self) -> u32 {
        self.record.carried.as_ref().map_or(0, |carried| carried.turns)
    }

    /// The id of the execution that carries out its plan in its current attempt; `None` for a step that has begun none.
    pub fn child(&self, execution: &Execution) -> Option<String> {
        let begun = matches!(self.record.spec.kind(), StepKind::Plan(_)) && self.record.operations > 0;
        let begun = begun && self.record.compensates().is_none();
        begun.then(|| {
            let (attempt, number) = (self.record.attempt, self.record.operations);
            child_id(&execution.created.uid, self.record.id.as_str(), attempt, number)
        })
    }

    /// The approvals that it waits for, and the forms whose answer it waits for, by their names at the gate.
    pub fn approvals(&self) -> impl Iterator<Item = &'a str> {
        self.operations().filter_map(|operation| operation.requested_approval().or(operation.requested_answer()))
    }
}
