//! The progress of an execution as a whole, besides its state, its steps and its operations.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Account, Requests, Signals, StepKey};
use crate::{Created, Failure, Json, PauseCause, Payload, Timestamp, Totals};

/// The part of an execution that its events alone determine, besides its state, its steps and its operations: a snapshot has it as it
/// is, in the order of these fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutionProgress {
    pub(crate) last_sequence: u64,
    pub(crate) last_time: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    /// The outputs of its plan, or why it has none.
    pub(crate) outputs: Option<Result<Payload, Failure>>,
    /// When it last resumed after its end.
    pub(crate) resumed_after_end_at: Option<Timestamp>,
    /// When its time limit ends it.
    pub(crate) deadline: Option<Timestamp>,
    /// Since when it is in `AwaitingApproval`; `None` in other states.
    pub(crate) awaiting_since: Option<Timestamp>,
    /// How long it has been in `AwaitingApproval` before.
    pub(crate) waited: Duration,
    pub(crate) paused: Option<PausedBy>,
    /// Until when a rate limit pauses it, unless it is paused already.
    pub(crate) queued_until: Option<Timestamp>,
    /// The steps whose models have asked for the verification of what they have done, until the execution is paused for that.
    pub(crate) verification_due: Vec<StepKey>,
    /// How often the plan's escalation has had what failed run again, since a principal did.
    pub(crate) escalations: u32,
    /// Whether the escalation has paused it for a person since.
    pub(crate) is_escalated: bool,
    pub(crate) stop: Option<Stop>,
    /// Since what steps have done is being undone.
    pub(crate) compensation: Option<Compensation>,
    /// The requests that controlled it.
    pub(crate) requests: Requests,
    /// Signals that no step has taken yet.
    pub(crate) signals: Signals,
    /// The answers of persons that hold for the execution.
    pub(crate) held_answers: HeldAnswers,
    /// The ledger that the last intent names.
    pub(crate) ledger_id: String,
    pub(crate) first_failure: Option<Failure>,
    pub(crate) totals: Totals,
    /// The account of the plan's budget.
    pub(crate) account: Account,
    /// Whether it waits for its limits or holds them.
    pub(crate) limits: LimitState,
    /// When the first step of each group with a time limit started, since the execution was last retried.
    pub(crate) groups: BTreeMap<String, Timestamp>,
    /// The groups with `fail_fast` of which a step has failed, with the first that did.
    pub(crate) failed_groups: BTreeMap<String, StepKey>,
}

impl ExecutionProgress {
    /// The progress of an execution with this many steps that was created at this time.
    pub(super) fn new(created: &Created, steps: usize, time: Timestamp) -> Self {
        Self {
            last_sequence: 1,
            last_time: time,
            started_at: None,
            ended_at: None,
            outputs: None,
            resumed_after_end_at: None,
            deadline: created.deadline,
            awaiting_since: None,
            waited: Duration::ZERO,
            paused: None,
            queued_until: None,
            verification_due: Vec::new(),
            escalations: 0,
            is_escalated: false,
            stop: None,
            compensation: None,
            requests: Requests::default(),
            signals: Signals::default(),
            held_answers: HeldAnswers::new(),
            ledger_id: String::new(),
            first_failure: None,
            totals: Totals { total: steps, ..Totals::default() },
            limits: LimitState::None,
            groups: BTreeMap::new(),
            failed_groups: BTreeMap::new(),
            account: Account::with_spent(created.spent),
        }
    }
}

/// Answers by the digest of their form, each with the sequence number of its event.
pub(crate) type HeldAnswers = BTreeMap<String, (u64, Json)>;

/// Whether an execution waits for its limits or holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitState {
    /// Neither: it has none, has not asked for them, or has ended.
    None,
    /// It waits for its turn, since this time.
    Waiting(Timestamp),
    /// It holds all of them, until it ends.
    Held,
}

/// The pause of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PausedBy {
    pub(crate) principal: String,
    pub(crate) since: Timestamp,
    pub(crate) discard_calls: bool,
    /// When it resumes automatically.
    pub(crate) resume_at: Option<Timestamp>,
    /// The cause.
    pub(crate) cause: PauseCause,
    /// The reason, in words.
    pub(crate) reason: String,
}

impl PausedBy {
    /// The reason, when the budget of the namespace is used up: such a pause ends with the budget's window.
    pub(crate) fn namespace_budget(&self) -> Option<&str> {
        (self.cause == PauseCause::Budget && self.resume_at.is_some()).then_some(&*self.reason)
    }

    /// The reason, when a model has asked for verification.
    pub(crate) fn verification(&self) -> Option<&str> {
        (self.cause == PauseCause::Verification).then_some(&*self.reason)
    }
}

/// The compensation of steps, in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compensation {
    /// Why no further step had started before that.
    pub(crate) stop: Option<Stop>,
    /// How many of the steps that undo others have not ended.
    pub(crate) open: usize,
}

/// Why no further step starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stop {
    /// A step failed in a plan that stops on an error, or failed fatally.
    Error {
        step: StepKey,
    },
    Cancelled,
    /// Killed: nothing is compensated.
    Killed,
    Deadline,
}

impl Stop {
    /// Whether the execution ends for it, and not for a step that failed.
    pub(crate) fn is_of_execution(self) -> bool {
        matches!(self, Self::Cancelled | Self::Killed | Self::Deadline)
    }
}
