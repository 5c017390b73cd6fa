//! The steps of an execution: records in an arena that only grows.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    ops::{Deref, DerefMut, Index, IndexMut},
    sync::Arc,
    time::Duration,
};

use belay_plan::{Condition, Outcome, Plan, RunWhen, StepSpec, ToolStep, compensation_id, entry_id};
use belay_reasons as reasons;

use super::{
    account::Account,
    agent::{AgentEntry, AgentItem},
    cache::StepCache,
    read_turn::ReadTurn,
};
use crate::{
    BudgetLevel, BudgetUnit, CachedFrom, CarriedLayers, Failure, Json, Payload, PendingApproval, Receipt, SkipReason,
    StepId, StepState, Timestamp,
};

/// The position of a step in its execution's arena. The plan's steps come first, in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepKey(u32);

impl StepKey {
    /// The step at this position.
    ///
    /// # Panics
    /// When it is 2³² or more; a plan has at most 10,000 steps.
    pub fn new(position: usize) -> Self {
        Self(u32::try_from(position).expect("an execution has fewer than 2^32 steps"))
    }

    /// Its position.
    pub fn position(self) -> usize {
        self.0 as usize
    }
}

/// The owner of a budget: a step, or, with `None`, the execution.
pub(crate) type AccountKey = Option<StepKey>;

/// Whether there is enough for a turn of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnSupply {
    /// There is.
    Enough,
    /// Others hold what it needs.
    Held,
    /// It may use more than is left.
    TooLittle { account: AccountKey, unit: BudgetUnit, left: u64 },
}

/// Reports that are to be recorded.
pub(crate) type DueReports = BTreeSet<(AccountKey, BudgetUnit, BudgetLevel)>;

/// Why an execution has a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepRole {
    /// The plan names it.
    Planned,
    /// It is the step for one entry of a list, or for one of several calls.
    Item {
        /// The step of the plan that runs for each entry, or makes the calls.
        of: StepKey,
        /// The position of the entry or the call, from 0.
        index: u32,
    },
    /// It undoes what another step has done.
    Compensates {
        /// That step.
        step: StepKey,
    },
}

/// The entries of a step that runs for each entry of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Items {
    /// The steps for the entries, in order, which is ascending; more than [`Self::listed`] when the list was longer before the step was made to run again.
    pub(crate) steps: Vec<StepKey>,
    /// How many entries the list has; `None` before it is read, since the step was last made to run again.
    pub(crate) listed: Option<usize>,
    /// How many of the steps for these entries have not ended.
    pub(crate) open: usize,
}

impl Items {
    /// The steps for the entries of the list as it is; none before it is read.
    pub(crate) fn current(&self) -> &[StepKey] {
        &self.steps[..self.listed.unwrap_or_default()]
    }
}

/// A step: its place in the plan, and its progress.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepRecord {
    pub(crate) id: StepId,
    pub(crate) spec: Arc<StepSpec>,
    pub(crate) role: StepRole,
    /// The entry of the list, for the step of one; what identifies the call, for the step of one.
    pub(crate) item: Option<Json>,
    /// The same, parsed, for the step of an entry of a step with a goal.
    agent_item: Option<Box<AgentItem>>,
    /// Its parts as they were read, for a turn of a model.
    pub(crate) read_turn: ReadTurn,
    /// The entries, for a step that runs for each entry of a list.
    pub(crate) items: Items,
    /// The steps that it depends on.
    pub(crate) dependencies: Vec<StepKey>,
    /// The steps that depend on it, ascending.
    pub(crate) dependents: Vec<StepKey>,
    /// Its operations in flight; part of the index.
    pub(crate) open: OpenOperations,
    /// The part that its events determine. Its fields are read and written as those of the step.
    progress: StepProgress,
}

/// The part of a step that only its events determine: a snapshot has it as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepProgress {
    /// The step that undoes what this one has done, once that is to be undone.
    pub(crate) compensation: Option<StepKey>,
    /// The number of the event with which it completed; 0 before that.
    pub(crate) completed_by: u64,
    pub(crate) state: StepState,
    pub(crate) attempt: u32,
    /// How many attempts had been made when it was last made to run again; 0 for a step that was not. Calls are named by their attempt, so the
    /// numbers continue.
    pub(crate) attempts_before: u32,
    /// The index of the call that it makes: 0 for its own, 1 for the first that takes its place.
    pub(crate) call: usize,
    /// How many attempts had been made when that call took the place of the one before, or when it was last made to run again.
    pub(crate) attempts_before_call: u32,
    /// Operations of this attempt so far.
    pub(crate) operations: u32,
    /// How many of those were made before what it does now: for its checks, or as its own call.
    pub(crate) operations_before_purpose: u32,
    /// How many questions its last call has asked: each is an operation.
    pub(crate) questions: u32,
    /// How far its attempt is: how many of its preconditions hold, its own call, and of its postconditions.
    pub(crate) checked: usize,
    /// Calls for what it does now that conflicted with another commit.
    pub(crate) conflicts: u32,
    /// Whether a call for what it does now failed while others committed, and was made again for that reason.
    pub(crate) failed_during_commits: bool,
    /// Dependencies that have not ended as it wants.
    pub(crate) open_dependencies: usize,
    pub(crate) started_at: Option<Timestamp>,
    /// When the current attempt started.
    pub(crate) attempt_started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) not_before: Option<Timestamp>,
    /// When it entered its state.
    pub(crate) since: Timestamp,
    /// How long it has waited for approvals; not counted as its own time.
    pub(crate) waited: Duration,
    pub(crate) output: Option<Payload>,
    /// What it adds to the conversation, for a turn of a model.
    pub(crate) asked: Option<Payload>,
    /// The conversation with which it begins, for a step with a goal that was carried over from another execution.
    pub(crate) carried: Option<Box<CarriedTurns>>,
    /// The layer of changes of its completed call, which are part of the effect of the step that it is an entry of; empty when there are none, or when they
    /// are committed.
    pub(crate) layer: String,
    /// Boxed, like `authorization`: most steps have neither, and a plan may have 10,000 steps.
    pub(crate) failure: Option<Box<Failure>>,
    pub(crate) failed_attempts: Vec<FailedAttempt>,
    pub(crate) skipped: Option<(SkipReason, Option<StepKey>)>,
    /// The group with `fail_fast` in which that step has failed; `None` when it was skipped for another reason.
    pub(crate) skipped_group: Option<Box<str>>,
    /// Why it will be skipped: a step that it depends on ended otherwise than it wants.
    pub(crate) to_skip: Option<(SkipReason, StepKey)>,
    /// How its last operation ended, until the step is resolved by that.
    pub(crate) end: Option<AttemptEnd>,
    /// Its memory of calls and their results; `None` unless its plan lets it use an earlier result.
    pub(crate) cache: Option<Box<StepCache>>,
    /// The authorization of the call that completed it.
    pub(crate) authorization: Option<Box<Authorization>>,
    /// The account of its budget. That of a step of the plan has what is used for the entries of its list as well.
    pub(crate) account: Account,
}

impl Deref for StepRecord {
    type Target = StepProgress;

    fn deref(&self) -> &StepProgress {
        &self.progress
    }
}

impl DerefMut for StepRecord {
    fn deref_mut(&mut self) -> &mut StepProgress {
        &mut self.progress
    }
}

impl StepRecord {
    /// Where its output comes from, when it is an earlier result.
    pub(crate) fn cached_from(&self) -> Option<&CachedFrom> {
        self.cache.as_ref()?.used.as_ref()
    }

    /// Whether it has started, since it was last made to run again.
    pub(crate) fn has_started(&self) -> bool {
        self.attempt > self.attempts_before
    }

    /// Whether its attempt has started and its next operation is still to be requested.
    pub(crate) fn needs_operation(&self) -> bool {
        matches!(self.state, StepState::Ready | StepState::Running)
            && self.has_started()
            && self.open.all == 0
            && self.items.open == 0
            && self.end.is_none()
    }

    /// Whether steps for the entries of its list, or for its calls, do what there is to do.
    pub(crate) fn has_entries(&self) -> bool {
        self.role == StepRole::Planned && self.spec.has_entries()
    }

    /// Whether it holds one of the plan's slots while it works.
    pub(crate) fn needs_slot(&self) -> bool {
        !self.has_entries() && self.spec.kind().needs_slot()
    }

    /// The resources that no other step may use at the same time.
    pub(crate) fn resources(&self) -> &[String] {
        if self.has_entries() { &[] } else { self.spec.resources() }
    }

    /// The call that it makes: its own, or one that has taken its place; `None` for a step that calls no tool.
    pub(crate) fn current_call(&self) -> Option<&ToolStep> {
        match self.role {
            StepRole::Planned => self.spec.calls().nth(self.call),
            StepRole::Item { index, .. } => match self.spec.several() {
                Some(several) => several.calls().nth(index as usize).or_else(|| several.commit()),
                None => match self.spec.agent() {
                    Some(agent) => self.agent_entry()?.call(agent),
                    None => self.spec.calls().nth(self.call),
                },
            },
            StepRole::Compensates { .. } => self.spec.compensate(),
        }
    }

    /// Whether it commits what the calls of a step have changed.
    pub(crate) fn commits_step(&self) -> bool {
        let StepRole::Item { index, .. } = self.role else { return false };
        if self.spec.agent().is_some() {
            return self.agent_entry() == Some(AgentEntry::Commit);
        }
        self.spec.several().is_some_and(|several| several.commit().is_some() && index as usize == several.calls().len())
    }

    /// Whether its call is one that neither the plan nor a model makes: it commits what the calls of a step have changed, or drops what of it conflicts.
    pub(crate) fn manages_layers(&self) -> bool {
        self.commits_step() || self.agent_entry() == Some(AgentEntry::Rebase)
    }

    /// Whether what its calls change is committed as one.
    pub(crate) fn has_one_effect(&self) -> bool {
        let commits = || match self.spec.agent() {
            Some(agent) => agent.commit().is_some(),
            None => self.spec.several().is_some_and(|several| several.commit().is_some()),
        };
        self.has_entries() && commits()
    }

    /// The call that takes the place of the current one when that has failed.
    pub(crate) fn next_call(&self) -> Option<&ToolStep> {
        self.spec.calls().nth(self.call + 1).filter(|_| self.compensates().is_none())
    }

    /// The call that undoes what it does; `None` for a step that does nothing itself, or undoes another.
    pub(crate) fn compensation_call(&self) -> Option<&ToolStep> {
        self.spec.compensate().filter(|_| !self.has_entries() && self.compensates().is_none())
    }

    /// The step whose work it undoes.
    pub(crate) fn compensates(&self) -> Option<StepKey> {
        match self.role {
            StepRole::Planned | StepRole::Item { .. } => None,
            StepRole::Compensates { step } => Some(step),
        }
    }

    /// Whether the totals of the execution count it. What undoes a step is no part of what was to be done, and what a model calls on its way no part of the plan.
    pub(crate) fn is_counted(&self) -> bool {
        self.compensates().is_none() && !self.is_of_agent()
    }

    /// After which ends of the steps that it depends on it runs. Work is undone whether what was undone before it could be or not.
    pub(crate) fn run_when(&self) -> RunWhen {
        match self.role {
            StepRole::Planned | StepRole::Item { .. } => self.spec.run_when(),
            StepRole::Compensates { .. } => RunWhen::Always,
        }
    }

    /// The outcomes after which it runs of a step that it depends on; `None` when [`Self::run_when`] says that.
    pub(crate) fn outcomes_of(&self, on: &StepId) -> Option<&BTreeSet<Outcome>> {
        match self.role {
            StepRole::Planned | StepRole::Item { .. } => self.spec.outcomes_of(on.as_str()),
            StepRole::Compensates { .. } => None,
        }
    }

    /// The condition under which it runs. For a step that runs for each entry of a list it is evaluated once, for all.
    pub(crate) fn condition(&self) -> Option<&Condition> {
        self.spec.condition().filter(|_| self.role == StepRole::Planned)
    }

    /// The step of the plan for an entry of whose list it runs.
    pub(crate) fn runs_for(&self) -> Option<StepKey> {
        match self.role {
            StepRole::Planned | StepRole::Compensates { .. } => None,
            StepRole::Item { of, .. } => Some(of),
        }
    }
}

/// The failures of a tool that are its answer, and that go to the model: everything else of their class passes, and is tried again first. What has had all of its time would have it
/// again, and nothing to show for it.
const ANSWERS: [&str; 5] =
    [reasons::TOOL_FAILED, reasons::COMMAND_FAILED, reasons::FILE_IO_FAILED, reasons::DISK_LIMIT, reasons::TIMEOUT];

impl StepRecord {
    /// What it is among the entries of a step with a goal; `None` for any other step.
    pub(crate) fn agent_entry(&self) -> Option<AgentEntry> {
        AgentEntry::of(self.agent_item.as_deref()?, self.spec.agent()?)
    }

    /// The turn of the model that it is, or whose answer it is of; `None` for any other step.
    pub(crate) fn turn(&self) -> Option<u32> {
        self.agent_entry()?;
        self.agent_item.as_ref()?.turn()
    }

    /// Whether with it the model of a step says that the step is done.
    pub(crate) fn is_completion(&self) -> bool {
        matches!(self.agent_entry(), Some(AgentEntry::Completion { .. }))
    }

    /// The same, and asks for the verification of what it has done.
    pub(crate) fn asks_for_verification(&self) -> bool {
        self.is_completion() && self.agent_item.as_ref().is_some_and(|item| item.asks_for_verification())
    }

    /// The place of the model that it asks among those of its step, and its name; `None` for any other step than a turn.
    pub(crate) fn asked_model(&self) -> Option<(usize, &str)> {
        let AgentEntry::Turn(_) = self.agent_entry()? else { return None };
        let place = self.agent_item.as_ref()?.model();
        Some((place, self.spec.agent()?.models().nth(place)?))
    }

    /// Has the step run for this entry.
    pub(crate) fn set_item(&mut self, item: Json) {
        self.item = Some(item);
        self.parse_item();
    }

    /// Carries out this from here on.
    pub(crate) fn set_spec(&mut self, spec: Arc<StepSpec>) {
        self.spec = spec;
        self.parse_item();
    }

    /// Parses the entry: its kind follows from it and from the spec.
    fn parse_item(&mut self) {
        let item = self.item.as_ref().filter(|_| self.is_of_agent());
        self.agent_item = item.and_then(AgentItem::parse).map(Box::new);
    }

    /// Whether it is the first turn of its step's model, before which the preconditions of the step are checked.
    pub(crate) fn is_first_turn(&self) -> bool {
        matches!(self.agent_entry(), Some(AgentEntry::Turn(_)))
            && self.agent_item.as_ref().is_some_and(|item| item.is_first_turn())
    }

    /// Whether its call takes over what the calls of its step have changed in another execution.
    pub(crate) fn takes_over_layers(&self) -> bool {
        self.agent_entry() == Some(AgentEntry::Rebase)
            && self.agent_item.as_ref().is_some_and(|item| item.takes_over_layers())
    }

    /// Whether it is an entry of a step with a goal: what becomes of it is for the model to hear.
    pub(crate) fn is_of_agent(&self) -> bool {
        matches!(self.role, StepRole::Item { .. }) && self.spec.agent().is_some()
    }

    /// Whether another attempt at a call of a model may follow this failure. What is the answer of a tool goes to the model instead.
    pub(crate) fn is_tried_again(&self, failure: &Failure) -> bool {
        let is_answer = ANSWERS.contains(&&*failure.reason);
        !matches!(self.agent_entry(), Some(AgentEntry::Call { .. })) || !is_answer
    }
}

/// A conversation that another execution has had, with which a step begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CarriedTurns {
    /// `belay_agent::CarriedConversation` as JSON.
    pub(crate) conversation: Payload,
    /// How many turns it has.
    pub(crate) turns: u32,
    /// What the calls of these turns have changed, where that was not committed.
    pub(crate) layers: Option<CarriedLayers>,
}

/// How many operations of a step are in flight. Maintained together with the index, and rebuilt with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenOperations {
    /// All of them.
    pub(crate) all: u32,
    /// Calls that wait for an approval.
    pub(crate) awaiting: u32,
    /// Calls that were approved and wait for a slot.
    pub(crate) queued: u32,
}

/// How an operation ended, as far as its step is concerned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum AttemptEnd {
    Completed,
    Failed(Failure),
    Denied(Failure),
    /// Denied by a decision that skips the step.
    Skipped,
    /// A principal skips the step; it has no operation.
    SkipRequested,
    /// The plan no longer has the step; it has no operation.
    Removed,
    Cancelled,
    Unknown(Failure),
}

/// The authorization of a call: by a person, by the policy on behalf of one, or by a rule alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorization {
    /// The policy rule that allowed it or that required the approval.
    pub rule: String,
    /// The approver: a person, or `policy` in an execution that asks no person; `None` when no approval was required.
    pub approver: Option<String>,
    /// How many paths it created, modified and deleted.
    pub changes: [u32; 3],
}

impl Authorization {
    /// The authorization of a call with this receipt; `None` for a call that changed nothing and needed no approval.
    pub(crate) fn of(receipt: &Receipt, pending: Option<&PendingApproval>) -> Option<Self> {
        let approver = pending.and_then(|pending| pending.decided.as_ref()).map(|decided| decided.principal.clone());
        if receipt.effect.is_none() && approver.is_none() {
            return None;
        }
        let asked = pending.map(|pending| &pending.requirement.decision);
        let rule = asked.or(receipt.decision.as_ref()).map(|decision| decision.rule.clone()).unwrap_or_default();
        let changes =
            receipt.effect.as_ref().map_or([0; 3], |effect| [effect.created, effect.modified, effect.deleted]);
        Some(Self { rule, approver, changes })
    }
}

/// How many of a step's failed attempts keep their last output in memory, the latest first. The events keep the output of all.
const MAX_OUTPUTS_KEPT: usize = 3;

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Its number, from 1.
    pub attempt: u32,
    /// The failure.
    pub failure: Failure,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl StepRecord {
    /// The step of one entry of a list depends on nothing: it is there once the list is read.
    fn new(id: StepId, spec: Arc<StepSpec>, role: StepRole, time: Timestamp) -> Self {
        let open_dependencies = match role {
            StepRole::Planned => spec.dependencies().len(),
            StepRole::Item { .. } | StepRole::Compensates { .. } => 0,
        };
        let progress = StepProgress {
            compensation: None,
            completed_by: 0,
            state: if open_dependencies == 0 { StepState::Ready } else { StepState::Pending },
            attempt: 0,
            attempts_before: 0,
            call: 0,
            attempts_before_call: 0,
            operations: 0,
            operations_before_purpose: 0,
            questions: 0,
            checked: 0,
            conflicts: 0,
            failed_during_commits: false,
            open_dependencies,
            started_at: None,
            attempt_started_at: None,
            ended_at: None,
            not_before: None,
            since: time,
            waited: Duration::ZERO,
            output: None,
            asked: None,
            carried: None,
            failure: None,
            failed_attempts: Vec::new(),
            skipped: None,
            skipped_group: None,
            to_skip: None,
            end: None,
            cache: None,
            authorization: None,
            layer: String::new(),
            account: Account::default(),
        };
        Self {
            id,
            role,
            item: None,
            agent_item: None,
            read_turn: ReadTurn::default(),
            items: Items::default(),
            dependencies: Vec::new(),
            dependents: Vec::new(),
            spec,
            open: OpenOperations::default(),
            progress,
        }
    }

    /// Forgets how it ended: it waits for its dependencies as if it had not run. What is kept of it are its failed attempts, and their number.
    pub(crate) fn reset(&mut self, time: Timestamp) {
        (self.attempts_before, self.call, self.attempts_before_call) = (self.attempt, 0, self.attempt);
        (self.items.listed, self.items.open) = (None, 0);
        (self.compensation, self.completed_by) = (None, 0);
        (self.state, self.since) = (StepState::Pending, time);
        (self.conflicts, self.failed_during_commits, self.checked) = (0, false, 0);
        (self.started_at, self.attempt_started_at, self.ended_at, self.not_before) = (None, None, None, None);
        self.waited = Duration::ZERO;
        (self.output, self.asked, self.failure, self.authorization) = (None, None, None, None);
        self.layer.clear();
        (self.skipped, self.skipped_group, self.to_skip, self.end) = (None, None, None, None);
        // Its last result can still take the place of the next.
        if let Some(cache) = &mut self.cache {
            (cache.used, cache.calls) = (None, Vec::new());
        }
    }

    /// Its progress.
    pub(super) fn progress(&self) -> &StepProgress {
        &self.progress
    }

    /// Replaces its progress, with that of a snapshot.
    pub(super) fn set_progress(&mut self, progress: StepProgress) {
        self.progress = progress;
    }

    /// Records the failure of an attempt.
    pub(crate) fn failed(&mut self, attempt: u32, failure: &Failure, ended_at: Timestamp) {
        self.failure = Some(Box::new(failure.clone()));
        self.failed_attempts.push(FailedAttempt { attempt, failure: failure.clone(), ended_at });
        let with_output = self.failed_attempts.iter_mut().rev().filter(|failed| failed.failure.last_output.is_some());
        with_output.skip(MAX_OUTPUTS_KEPT).for_each(|failed| failed.failure.last_output = None);
    }
}

/// All steps of an execution.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Steps {
    records: Vec<StepRecord>,
    keys: HashMap<StepId, StepKey>,
    /// By group with `fail_fast`: its steps that do not start once one of them has failed, in order.
    skippable: BTreeMap<String, Vec<StepKey>>,
}

impl Steps {
    /// Appends steps, which [`Self::connect`] then connects.
    ///
    /// # Errors
    /// The id, when a step has it already.
    pub(crate) fn append(&mut self, specs: &[Arc<StepSpec>], time: Timestamp) -> Result<(), StepId> {
        self.records.reserve(specs.len());
        self.keys.reserve(specs.len());
        for spec in specs {
            self.push(StepRecord::new(spec.id().into(), Arc::clone(spec), StepRole::Planned, time))?;
        }
        Ok(())
    }

    /// Appends the step for the entry of the list that a step runs for, whose position is the number of steps that there are for it.
    ///
    /// # Errors
    /// Its id, when a step has it already. The author of a plan cannot give such an id.
    pub(crate) fn append_item(&mut self, of: StepKey, item: Json, time: Timestamp) -> Result<StepKey, StepId> {
        let list = &self[of];
        let index = list.items.steps.len();
        let id = StepId::from(entry_id(&list.id, index));
        let role = StepRole::Item { of, index: u32::try_from(index).unwrap_or(u32::MAX) };
        let mut record = StepRecord::new(id, Arc::clone(&list.spec), role, time);
        record.set_item(item);
        let key = self.push(record)?;
        self[of].items.steps.push(key);
        Ok(key)
    }

    /// The step that undoes what another has done: the one that did so before, or one that is appended.
    ///
    /// # Errors
    /// Its id, when a step has it that is there for something else. The author of a plan cannot give such an id.
    pub(crate) fn compensation(&mut self, of: StepKey, time: Timestamp) -> Result<StepKey, StepId> {
        let undone = &self[of];
        let id = StepId::from(compensation_id(&undone.id));
        let role = StepRole::Compensates { step: of };
        if let Some(known) = self.key(&id) {
            return if self[known].role == role { Ok(known) } else { Err(id) };
        }
        let record = StepRecord::new(id, Arc::clone(&undone.spec), role, time);
        self.push(record)
    }

    fn push(&mut self, record: StepRecord) -> Result<StepKey, StepId> {
        let key = StepKey::new(self.records.len());
        match self.keys.entry(record.id.clone()) {
            Entry::Occupied(known) => return Err(known.key().clone()),
            Entry::Vacant(place) => place.insert(key),
        };
        self.records.push(record);
        Ok(key)
    }

    /// Connects the steps as a plan says that has all of them but those which it has removed: those have no part in it.
    pub(crate) fn connect(&mut self, plan: &Plan) {
        for record in &mut self.records {
            (record.dependencies, record.dependents) = (Vec::new(), Vec::new());
        }
        let keys: Vec<StepKey> = plan.steps().iter().map(|spec| self.keys[spec.id()]).collect();
        for (spec, &step) in plan.steps().iter().zip(&keys) {
            self[step].dependencies = spec.dependencies().iter().map(|&on| keys[on]).collect();
            for &on in spec.dependencies() {
                self[keys[on]].dependents.push(step);
            }
        }
        self.records.iter_mut().for_each(|record| record.dependents.sort_unstable());
        self.skippable = self.find_skippable(&keys);
    }

    /// The steps of a group with `fail_fast` that do not start once one of them has failed, in order.
    pub(crate) fn skippable(&self, group: &str) -> &[StepKey] {
        self.skippable.get(group).map_or(&[], Vec::as_slice)
    }

    /// The step with this id.
    pub(crate) fn key(&self, id: &str) -> Option<StepKey> {
        self.keys.get(id).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (StepKey, &StepRecord)> {
        self.records.iter().enumerate().map(|(position, record)| (StepKey::new(position), record))
    }
}

impl Index<StepKey> for Steps {
    type Output = StepRecord;

    fn index(&self, step: StepKey) -> &StepRecord {
        &self.records[step.position()]
    }
}

impl IndexMut<StepKey> for Steps {
    fn index_mut(&mut self, step: StepKey) -> &mut StepRecord {
        &mut self.records[step.position()]
    }
}
