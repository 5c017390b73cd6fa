//! Defects that Belay once had or must never have, so that tests can plant them and show that they find each of them: the simulation, and attacks.
//!
//! The code that prevents each calls [`is_planted`] and does not prevent it when that returns true. Without the feature `plant`, which only the simulation
//! and dev-dependencies enable, it is the constant `false`.

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
    /// A timer that became due while the executor was away is never loaded.
    LostTimer,
    /// A start does not look for what is due: the first look comes with the next timer, or half a minute later.
    LateTimer,
    /// The outputs of the steps for the entries of a list are collected in the order in which these have ended.
    UnorderedCollection,
    /// The output of the first entry of a list is missing from what is collected.
    IncompleteCollection,
    /// A list that is read again keeps what was done for other entries.
    StaleEntries,
    /// A step whose calls have one effect commits it without what the first of them has changed.
    LayerLeftOut,
    /// Calls are made as if nothing was held of a budget for those under way.
    HeldBudgetIgnored,
    /// A driver that is taken up again counts nothing of what the calls in flight hold of the budget of their namespace.
    NamespaceHoldsForgotten,
    /// A schedule forgets what it is about to start when it stores what it has decided.
    ScheduledStartsForgotten,
    /// No execution is woken when a limit over executions has room again.
    LimitTurnsForgotten,
    /// Limits over executions have room for all.
    LimitsIgnored,
    /// The questions of a call have the same ids whenever the runner runs it: what a person answers to one run is told to the next.
    QuestionOfAnotherRun,
    /// The execution of a step's plan can be deleted before its parent has recorded its end.
    UnrecordedChildDeleted,
    /// The message of a child's end leaves the inbox as soon as its parent knows the end, and not with the event that records it.
    UnstoredEndDropped,
    /// The same, its name is free at once, and the execution of a step's plan that is not there is created, whether or not it was before.
    LostChildStartedAgain,
    /// An executor that does not drive all executions does not drive the children of those that it drives.
    ChildNotDriven,
    /// An execution that is paused or resumed keeps what it knew of its children: a pause that was carried out in a child and never recorded has no end.
    PauseOfChildKept,
    /// A repeated request that would be refused by now is refused, although it has started an execution.
    RepetitionRefused,
    /// A fork does not take over the first output that it has to.
    ForkForgetsOutput,
    /// Retention deletes the execution of a step's plan while the execution of that step is in progress.
    ChildOfRunningTaken,
    /// A message for a webhook is sent again when the wall clock has come to its time, which one that was ahead has given it.
    WallClockMessages,
    /// Whether a change is protected is judged by its path as it is shown: one with what looks like a secret in it is committed unasked.
    ShownPathJudged,
    /// The settings can show a state directory to commands, with the keys and sockets that decide what commands may do.
    StateDirectoryShown,
    /// A folder of the host that a command sees is mounted as it is: the command connects to the sockets in it.
    HostSocketsReached,
    /// A process in another user namespace, such as a command in a sandbox, is taken for the user that it has outside.
    ForeignPeerTrusted,
    /// A path that the settings show to commands is checked by its name: a symbolic link leads around the check.
    LinkedSourceTrusted,
    /// In the block of a private key everything is hidden, also code that whoever approves the file has to see.
    CodeHiddenAsKey,
    /// The content of a change is looked up by its shown path: two changes that read alike have one content.
    ContentByShownPath,
    /// A principal that may not decide approvals can have the policy decide them.
    AutoForEveryone,
    /// A future that waits for a slot of a store gets it and keeps it, also when nobody polls it any more.
    UnpolledKeepsSlot,
    /// A path in a tool's result is written as people are shown it: another tool takes it for another file, or for none.
    PrintedPathHandedOn,
    /// A command that was not started because others have used up a limit fails for good, as if the machine could not run any.
    SharedLimitIsFinal,
    /// A command may open as many files as the runner: it puts so many descriptors in flight over sockets that no other command starts.
    RunnersOpenFiles,
    /// A test of the sandbox that was lost counts as one that has failed: no command runs until the runner is started again.
    LostTestIsFinal,
    /// The gate does what an executor asks that another has replaced: a person is asked again for an answer that the other has.
    GateTakesReplaced,
    /// A model that was asked when its executor ended is asked again as if nothing had been: nothing is recorded of the first time.
    LostTurnAskedAgain,
    /// The tokens of an answer that was lost with its executor count as nothing.
    LostTurnNotCounted,
}

/// Whether a defect is planted: in this process, or for this thread.
#[cfg(feature = "plant")]
pub fn is_planted(defect: Defect) -> bool {
    planted::is_planted(defect)
}

/// Whether a defect is planted: none can be.
#[cfg(not(feature = "plant"))]
pub const fn is_planted(_: Defect) -> bool {
    false
}

/// The text to give to another process of this program, for [`take_over`], so that the defects planted for this thread are planted there, too.
#[cfg(feature = "plant")]
pub fn handed_on() -> Option<String> {
    planted::handed_on()
}

/// The text to give to another process: none.
#[cfg(not(feature = "plant"))]
pub const fn handed_on() -> Option<String> {
    None
}

/// Plants in this process what [`handed_on`] has returned in the one that started it.
#[cfg(feature = "plant")]
pub fn take_over(handed_on: Option<&str>) {
    planted::take_over(handed_on);
}

/// Plants nothing.
#[cfg(not(feature = "plant"))]
pub const fn take_over(_: Option<&str>) {}

#[cfg(feature = "plant")]
pub use planted::{assert_attack_needs, plant, with_planted};

#[cfg(feature = "plant")]
mod planted {
    use std::{
        cell::Cell,
        sync::atomic::{AtomicU8, Ordering},
    };

    use super::Defect;

    /// The number of the defect of this process; 0 for none.
    static DEFECT: AtomicU8 = AtomicU8::new(0);

    thread_local! {
        /// The defect of this thread.
        static DEFECT_HERE: Cell<Option<Defect>> = const { Cell::new(None) };
    }

    pub(super) fn is_planted(defect: Defect) -> bool {
        DEFECT.load(Ordering::Relaxed) == defect as u8 || DEFECT_HERE.get() == Some(defect)
    }

    /// Plants a defect in this process, for good. One process has one at most.
    pub fn plant(defect: Defect) {
        DEFECT.store(defect as u8, Ordering::Relaxed);
    }

    pub(super) fn handed_on() -> Option<String> {
        let here = DEFECT_HERE.get().map_or_else(|| DEFECT.load(Ordering::Relaxed), |defect| defect as u8);
        (here != 0).then(|| here.to_string())
    }

    pub(super) fn take_over(handed_on: Option<&str>) {
        if let Some(number) = handed_on.and_then(|number| number.parse().ok()) {
            DEFECT.store(number, Ordering::Relaxed);
        }
    }

    /// Plants a defect for what this thread does in `attack`. Other threads do not have it, so that the tests beside this one are not disturbed.
    pub fn with_planted<T>(defect: Defect, attack: impl FnOnce() -> T) -> T {
        /// Restores what was planted before, also after a panic.
        struct PlantedDefect(Option<Defect>);

        impl Drop for PlantedDefect {
            fn drop(&mut self) {
                DEFECT_HERE.set(self.0);
            }
        }

        let _before = PlantedDefect(DEFECT_HERE.replace(Some(defect)));
        attack()
    }

    /// Runs an attack, which returns as an error what it has achieved, without the defect and with it.
    ///
    /// # Panics
    /// Unless the attack achieves nothing without the defect, and with it something in whose description `achieved` stands.
    #[track_caller]
    pub fn assert_attack_needs(defect: Defect, achieved: &str, attack: impl Fn() -> Result<(), String>) {
        if let Err(what) = attack() {
            panic!("{what}");
        }
        match with_planted(defect, attack) {
            Ok(()) => {
                panic!("the attack achieves nothing with {defect:?} planted, so it does not test what prevents it")
            }
            Err(what) => {
                assert!(what.contains(achieved), "with {defect:?} planted the attack achieves something else: {what}")
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// An attack that only the defect lets through.
        fn attack() -> Result<(), String> {
            if is_planted(Defect::GrantReuse) { Err("a grant was used twice".to_owned()) } else { Ok(()) }
        }

        fn refusal(achieved: &'static str, attack: fn() -> Result<(), String>) -> String {
            let run = || assert_attack_needs(Defect::GrantReuse, achieved, attack);
            let panic = std::panic::catch_unwind(run).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        }

        #[test]
        fn an_attack_has_to_need_the_defect() {
            assert_attack_needs(Defect::GrantReuse, "used twice", attack);
            assert!(refusal("used thrice", attack).contains("something else: a grant was used twice"));
            assert!(refusal("", || Ok(())).contains("achieves nothing with GrantReuse"));
            assert_eq!(refusal("broken", || Err("is broken".to_owned())), "is broken");
            assert!(!is_planted(Defect::GrantReuse), "a panic leaves nothing planted");
        }

        #[test]
        fn only_one_thread_and_one_defect_are_concerned() {
            with_planted(Defect::GrantReuse, || {
                assert!(is_planted(Defect::GrantReuse) && !is_planted(Defect::NoFence));
                with_planted(Defect::NoFence, || assert!(!is_planted(Defect::GrantReuse)));
                assert!(is_planted(Defect::GrantReuse));
            });
            assert!(!is_planted(Defect::GrantReuse));
        }
    }
}
