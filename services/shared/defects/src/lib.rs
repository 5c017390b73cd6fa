//! Defects that Belay once had or must never have, so that the simulation can plant them and show that it finds each of them.
//!
//! The code that prevents each calls [`is_planted`] and does not prevent it when that returns true. Without the feature `plant`, which only the simulation
//! enables, it is the constant `false`.

/// A defect to plant. Each comment describes what goes wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Defect {
    /// The executor sends the acknowledgement of a call once: when it is lost, the row stays in the ledger forever.
    AcknowledgementNotRetried = 1,
    /// The runner keeps serving when it cannot write its ledger, and reports a commit whose row could not be written as an unknown outcome,
    /// although no file was changed.
    UncommittedReportedUnknown,
    /// A step fails when the disk of its workspace is full, instead of waiting for space.
    FullDiskFailsSteps,
    /// The executor does not create an approval again at a gate that lost its store: the execution waits forever.
    LostApprovalNotRecreated,
    /// Timers use the wall clock: when it is set back by an hour, an execution waits for an hour.
    WallClockTimers,
    /// The runner discards an approved effect when its grant is not valid by the runner's clock.
    ExpiredGrantDropsEffect,
    /// A watcher that has seen more than a restored journal holds is rejected forever.
    CursorAheadRejected,
    /// A watcher whose events were lost with the journal continues without a reset, once the journal has grown past its cursor.
    StaleCursorTrusted,
    /// The runner does not start while one row of its ledger cannot be decoded.
    UnreadableRowStopsStart,
    /// A call that conflicts with other commits is repeated without a limit.
    EndlessReruns,
    /// Each task that the executor keeps for all executions (timers, decisions, notices, acknowledgements, deletions) panics once.
    TasksPanic,
    /// A batch whose answer the journal lost is taken for committed without asking the store.
    LostAnswerTrusted,
    /// A timer that is earlier than the one being waited for wakes no task: its execution is not loaded at its time.
    LostWakeUp,
    /// The executor sends a call that an earlier driver may have sent under a new name, which the runner does not find in its ledger. The same with the
    /// execution of a step's plan and the journal.
    DoubleDispatch,
    /// The events of a transition are appended in another order than the one in which they were decided.
    UnorderedAppend,
    /// The runner does not check whether a grant was spent.
    GrantReuse,
    /// The journal takes what an executor writes that another has replaced.
    NoFence,
    /// A reader is shown an execution as of an earlier revision than its row, and a parent takes a state of its child that is not an end for a failure.
    StaleView,
    /// The execution of a step's plan works in a folder of its own, where the workspace is one that the tool runner makes.
    ChildInAnotherFolder,
    /// What became due while the executor was away is never loaded.
    LostTimer,
    /// A start does not look for what is due: the first look comes with the next timer, or half a minute later.
    LateTimer,
    /// The outputs of the steps for the entries of a list are collected in the order in which these have ended.
    UnorderedCollection,
    /// The output of the first entry of a list is missing from what is collected.
    IncompleteCollection,
    /// A list that is read again keeps what was done for other entries.
    StaleEntries,
    /// The execution of a step's plan can be deleted before its parent has recorded its end.
    UnrecordedChildDeleted,
    /// The same, its name is free at once, and the execution of a step's plan that is not there is created, whether or not it was before.
    LostChildStartedAgain,
    /// An executor that does not drive all executions does not drive the children of those that it drives.
    ChildNotDriven,
    /// An execution that is paused or resumed keeps what it knew of its children: a pause that was carried out in a child and never recorded has no end.
    PauseOfChildKept,
    /// A fork does not take over the first output that it has to.
    ForkForgetsOutput,
    /// Retention deletes the execution of a step's plan while the execution of that step is in progress.
    ChildOfRunningTaken,
    /// A message for a webhook is sent again when the wall clock has come to its time, which one that was ahead has given it.
    WallClockMessages,
}

/// Whether a defect is planted in this process.
#[cfg(feature = "plant")]
pub fn is_planted(defect: Defect) -> bool {
    planted::DEFECT.load(std::sync::atomic::Ordering::Relaxed) == defect as u8
}

/// Whether a defect is planted in this process: none can be.
#[cfg(not(feature = "plant"))]
pub const fn is_planted(_: Defect) -> bool {
    false
}

#[cfg(feature = "plant")]
pub use planted::plant;

#[cfg(feature = "plant")]
mod planted {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Defect;

    /// The planted defect's number; 0 for none.
    pub(super) static DEFECT: AtomicU8 = AtomicU8::new(0);

    /// Plants a defect in this process, for good. One process has one at most.
    pub fn plant(defect: Defect) {
        DEFECT.store(defect as u8, Ordering::Relaxed);
    }
}
