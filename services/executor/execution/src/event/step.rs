//! Events about an attempt at a step.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{Amounts, CarriedLayers, Failure, Json, Payload, StepId, Timestamp};

/// An event of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepEvent {
    /// An attempt started.
    Started,
    /// The attempt failed, and another one is planned.
    RetryScheduled {
        /// The failure of the attempt.
        failure: Failure,
        /// How many retries there have been, this one included.
        retry_count: u32,
        /// The delay.
        delay: Duration,
        /// When the next attempt may start.
        not_before: Timestamp,
    },
    /// All attempts of its call have failed, and another call takes its place.
    FallbackSwitched {
        /// The failure of the call.
        failure: Failure,
        /// The tool of the call that failed, as the plan names it.
        from: String,
        /// The tool of the call that takes its place, as the plan names it.
        to: String,
        /// The reason of the principal who asked for it; empty when none did.
        reason: String,
    },
    /// All attempts of its call have failed, and an earlier result of the same call takes the place of its own.
    CachedResultUsed {
        /// The failure of the step.
        failure: Failure,
        /// The result.
        result: Payload,
        /// Where it comes from.
        source: CachedFrom,
    },
    /// It has read the list for each entry of which it runs. Each is a step of its own; those that have completed for the same entry stay as they are.
    ItemsListed {
        /// The position of the first of them: more than 0 for what is added to those that were listed before.
        first: usize,
        /// The entries, in order.
        items: Vec<Json>,
    },
    /// The steps for all entries have ended, and none has failed.
    ItemsCollected {
        /// Their outputs in the order of the entries, null for each that was skipped: the step's output.
        output: Payload,
    },
    /// It completed; its output is the result of its last operation.
    Completed {
        /// The progress of the execution.
        progress: Progress,
        /// From the first attempt's start to now.
        duration: Duration,
    },
    /// It failed for good.
    Failed {
        /// The failure of the step.
        failure: Failure,
        /// The progress of the execution.
        progress: Progress,
    },
    /// It will not run, or its approval was decided to skip it.
    Skipped {
        /// Why.
        reason: SkipReason,
        /// The step because of which it is skipped.
        because: Option<StepId>,
        /// The group with `fail_fast` in which that step failed; `None` for another reason.
        group: Option<String>,
        /// The progress of the execution.
        progress: Progress,
    },
    /// It had started and was stopped.
    Cancelled {
        /// The progress of the execution.
        progress: Progress,
    },
    /// Whether its call took effect is not known.
    OutcomeUnknown {
        /// The facts that are known about the call.
        failure: Failure,
    },
    /// A principal found out what its call did.
    Resolved {
        /// The outcome that the principal found.
        resolution: Resolution,
        /// How the principal knows.
        reason: String,
    },
    /// A principal skips it; the steps that depend on it run as if it had completed without an output.
    SkipRequested {
        /// The principal's reason.
        reason: String,
    },
    /// A principal gave its output; it completes without running.
    OutputSet {
        /// The output.
        output: Json,
        /// The principal's reason.
        reason: String,
    },
    /// A principal has it begin with a conversation that a model has had in another execution, as it was after one of its turns.
    ConversationCarriedOver {
        /// The conversation: `belay_agent::CarriedConversation` as JSON.
        conversation: Payload,
        /// How many turns it has.
        turns: u32,
        /// The layers of what the calls of these turns have changed, when that was not committed: the step begins with them.
        layers: Option<CarriedLayers>,
        /// The amounts that the step had used of its budget.
        spent: Amounts,
        /// The principal's reason.
        reason: String,
    },
    /// A principal had its next attempt start now.
    RetryAdvanced {
        /// The principal's reason.
        reason: String,
    },
    /// A principal cancelled its next attempt; it fails as its last one did.
    RetryCancelled {
        /// The principal's reason.
        reason: String,
    },
}

/// Where a result comes from that takes the place of a call's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedFrom {
    /// The name of the execution in which a call returned it; empty for the step's own.
    pub execution: String,
    /// When the call returned it.
    pub completed_at: Timestamp,
    /// How old it was when it was used.
    pub age: Duration,
}

/// How a step's next attempt is changed that waits for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryChange {
    /// It starts now.
    Now,
    /// There is none: the step fails as its last attempt did.
    Cancel,
    /// It is the first of the step's next call.
    Fallback,
}

/// The outcome of a call, as a principal found it, that was unknown before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It did what it was to do, with this result.
    Completed(Json),
    /// It failed, and is not tried again.
    Failed,
    /// It did nothing, or doing it twice does no harm: it is made again, in the same attempt.
    Again,
}

/// How many steps have ended, out of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps that have ended.
    pub done: usize,
    /// All steps.
    pub total: usize,
}

/// Why a step was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SkipReason {
    /// A step it depends on failed.
    DependencyFailed,
    /// A step it depends on was skipped or cancelled.
    DependencySkipped,
    /// Another step failed, and the plan says to stop then.
    StopOnError,
    /// The execution was cancelled first.
    Cancelled,
    /// The execution ran out of time first.
    TimedOut,
    /// The decision on its approval was to skip it.
    ApprovalSkipped,
    /// Its call required approval, and the execution was started not to ask.
    NonInteractive,
    /// A principal skipped it.
    Requested,
    /// A principal changed the plan, which no longer has it.
    PlanUpdated,
    /// The list for an entry of which it was to run has become shorter.
    NotListed,
    /// Its condition was false, or it was for another end of a step that it depends on: a failure that there was not, or an outcome that it names.
    ConditionFalse,
}
