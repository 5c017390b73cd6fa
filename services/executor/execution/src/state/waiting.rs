//! The ends that executions and steps wait for.

use super::{Execution, LimitState, Operation, OperationKey, StepKey, StepView};
use crate::{StepState, Timestamp};

/// A reason why an execution or a step waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The end of the execution of the step's plan.
    Child {
        /// Since when.
        since: Timestamp,
        /// The operation that it is.
        child: OperationKey,
    },
    /// The time that a step waits for, or at which its next round begins.
    Time {
        /// Since when.
        since: Timestamp,
        /// Until when.
        until: Timestamp,
    },
    /// The next attempt.
    Timer {
        /// Since when.
        since: Timestamp,
        /// Until when.
        until: Timestamp,
    },
    /// The namespace has used up its budget of a window, which has to end.
    NamespaceBudget {
        /// Since when.
        since: Timestamp,
        /// When the window ends.
        until: Timestamp,
    },
    /// Its turn in its limits over executions.
    Limits {
        /// Since when.
        since: Timestamp,
    },
    /// A principal has to resume it, or its time has to come.
    Resume {
        /// Since when.
        since: Timestamp,
        /// When it resumes automatically; `None` means never.
        until: Option<Timestamp>,
    },
    /// A person has to find out what a call did.
    Outcome {
        /// Since when.
        since: Timestamp,
        /// The step.
        step: StepKey,
    },
    /// A signal.
    Signal {
        /// Since when.
        since: Timestamp,
        /// Until when; `None` means without a limit.
        until: Option<Timestamp>,
        /// The wait.
        wait: OperationKey,
    },
    /// A person's answer to a form.
    Form {
        /// Since when.
        since: Timestamp,
        /// Until when; `None` means without a limit.
        until: Option<Timestamp>,
        /// The wait.
        wait: OperationKey,
    },
    /// A running call.
    Call {
        /// Since when.
        since: Timestamp,
    },
    /// A call has to be approved.
    Approval {
        /// Since when.
        since: Timestamp,
        /// The operation.
        operation: OperationKey,
    },
}

impl Execution {
    /// The reasons why the execution as a whole waits; empty when it has ended or can make progress.
    pub fn waiting(&self) -> Vec<Waiting> {
        if self.state.is_terminal() {
            return Vec::new();
        }
        if let Some(paused) = &self.paused {
            let (since, until) = (paused.since, paused.resume_at);
            return vec![match (paused.namespace_budget(), until) {
                (Some(_), Some(until)) => Waiting::NamespaceBudget { since, until },
                _ => Waiting::Resume { since, until },
            }];
        }
        if let LimitState::Waiting(since) = self.limits {
            return vec![Waiting::Limits { since }];
        }
        if let Some(until) = self.created.start_at.filter(|_| self.started_at.is_none() && self.stop.is_none()) {
            return vec![Waiting::Time { since: self.created_at, until }];
        }
        let mut waiting: Vec<Waiting> =
            self.index.unknown.iter().map(|&step| Waiting::Outcome { since: self.steps[step].since, step }).collect();
        waiting.extend(self.index.approval_requested.iter().filter_map(|&operation| {
            let since = self.operations.get(operation)?.pending_approval.as_ref()?.since;
            Some(Waiting::Approval { since, operation })
        }));
        waiting.extend(self.operations.iter().filter_map(Operation::waiting));
        if !self.is_parked() {
            return waiting;
        }
        if let Some(&(until, step)) = self.index.backing_off.first() {
            waiting.push(Waiting::Timer { since: self.steps[step].since, until });
        }
        if let Some(&(until, step)) = self.index.ready_from.first() {
            waiting.push(Waiting::Time { since: self.steps[step].since, until });
        }
        // Of many the first stands for all: each step says its own.
        let child = self.operations.iter().find(|operation| operation.child().is_some());
        waiting.extend(child.map(|operation| Waiting::Child { since: operation.since, child: operation.key }));
        waiting
    }
}

impl StepView<'_> {
    /// The reason why it waits.
    pub fn waiting(&self) -> Option<Waiting> {
        let since = self.record.since;
        match self.record.state {
            StepState::BackingOff => self.record.not_before.map(|until| Waiting::Timer { since, until }),
            StepState::OutcomeUnknown => Some(Waiting::Outcome { since, step: self.key }),
            // The steps for the entries say what they wait for.
            StepState::Running if self.record.has_entries() => None,
            StepState::Running => Some(match self.operations().find(|operation| operation.child().is_some()) {
                Some(operation) => Waiting::Child { since, child: operation.key },
                // Its next call is not made yet: the execution is paused, or others hold what the call needs of a budget.
                None if self.record.open.all == 0 => return None,
                None => Waiting::Call { since },
            }),
            StepState::AwaitingApproval => {
                self.operations().next().map(|operation| Waiting::Approval { since, operation: operation.key })
            }
            StepState::Waiting => self.operations().find_map(Operation::waiting),
            StepState::Ready => self.record.not_before.map(|until| Waiting::Time { since, until }),
            StepState::Pending
            | StepState::Completed
            | StepState::Failed
            | StepState::Skipped
            | StepState::Cancelled => None,
        }
    }
}
