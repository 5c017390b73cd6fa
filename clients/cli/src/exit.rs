//! The process's exit code: the one place that knows what each number means.

use belay_proto::v1::{ErrorClass, Execution, Failure, execution::State};
use belay_reasons as reasons;

/// An exit code of `belay`. REQUIREMENTS section 3 fixes the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    /// All went well.
    pub(crate) const OK: Exit = Exit(0);
    /// A fault of Belay or of the machine; also an execution that was cancelled.
    pub(crate) const INTERNAL: Exit = Exit(1);
    /// Refused, or used wrongly: nothing happened.
    pub(crate) const REFUSED: Exit = Exit(2);
    /// The execution failed, in a class without a separate number.
    pub(crate) const FAILED: Exit = Exit(30);
    /// A model had all its turns, or repeated itself.
    pub(crate) const TURN_LIMIT: Exit = Exit(31);
    /// A call tried to reach outside the workspace.
    pub(crate) const SANDBOX_VIOLATION: Exit = Exit(32);
    /// A person or the policy denied a call.
    pub(crate) const DENIED: Exit = Exit(33);
    /// A time limit ran out.
    pub(crate) const TIMED_OUT: Exit = Exit(34);
    /// No step failed, and a step that others needed was skipped, or all were.
    pub(crate) const PARTIAL: Exit = Exit(35);
    /// SIGHUP, as shells count it: 128 + 1.
    pub(crate) const HUNG_UP: Exit = Exit(129);
    /// SIGINT, as shells count it: 128 + 2.
    pub(crate) const INTERRUPTED: Exit = Exit(130);
    /// SIGPIPE, as shells count it: 128 + 13.
    pub(crate) const CLOSED_PIPE: Exit = Exit(141);
    /// SIGTERM, as shells count it: 128 + 15.
    pub(crate) const TERMINATED: Exit = Exit(143);

    /// The exit code for an execution that has ended. PARTIAL counts as failed where a step failed.
    pub(crate) fn of_execution(execution: &Execution) -> Exit {
        match execution.state() {
            State::Completed => Exit::OK,
            State::TimedOut => Exit::TIMED_OUT,
            State::Partial if execution.failure.is_none() => Exit::PARTIAL,
            State::Failed | State::Partial if execution.failure.as_ref().is_some_and(has_had_all_turns) => {
                Exit::TURN_LIMIT
            }
            State::Failed | State::Partial => match execution.failure.as_ref().map(|failure| failure.error_class()) {
                Some(ErrorClass::SandboxViolation) => Exit::SANDBOX_VIOLATION,
                Some(ErrorClass::ApprovalDenied | ErrorClass::PolicyDenied) => Exit::DENIED,
                Some(ErrorClass::Timeout) => Exit::TIMED_OUT,
                Some(ErrorClass::Cancelled | ErrorClass::OutcomeUnknown | ErrorClass::Internal) => Exit::INTERNAL,
                _ => Exit::FAILED,
            },
            _ => Exit::INTERNAL,
        }
    }
}

/// Whether a model has had all its turns, or has repeated itself: the table of reasons gives these their exit code.
pub(crate) fn has_had_all_turns(failure: &Failure) -> bool {
    reasons::find(&failure.reason).is_some_and(|reason| reason.exit == Exit::TURN_LIMIT.0)
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::Failure;

    use super::*;

    fn ended(state: State, class: Option<ErrorClass>) -> Execution {
        let failure = class.map(|class| Failure { error_class: class.into(), ..Default::default() });
        Execution { state: state.into(), failure, ..Default::default() }
    }

    // S2-X-26: a model that has had all its turns.
    #[test]
    fn the_limit_of_turns_has_a_code_of_its_own() {
        for reason in ["TURN_LIMIT", "AGENT_STUCK"] {
            let mut execution = ended(State::Failed, Some(ErrorClass::BudgetExhausted));
            assert_eq!(Exit::of_execution(&execution), Exit::FAILED);
            execution.failure.as_mut().unwrap().reason = reason.to_owned();
            assert_eq!(Exit::of_execution(&execution).0, 31, "{reason}");
        }
    }

    // S2-X-26: exit codes 0, 1, 30 to 34.
    #[test]
    fn tells_the_truth_about_an_execution() {
        let cases = [
            (State::Completed, None, 0),
            (State::Cancelled, None, 1),
            (State::TimedOut, None, 34),
            (State::Failed, None, 30),
            (State::Failed, Some(ErrorClass::Crash), 30),
            (State::Failed, Some(ErrorClass::RateLimit), 30),
            (State::Failed, Some(ErrorClass::Fatal), 30),
            (State::Failed, Some(ErrorClass::AgentUnavailable), 30),
            (State::Partial, Some(ErrorClass::Transient), 30),
            (State::Partial, None, 35),
            (State::Failed, Some(ErrorClass::InvalidArguments), 30),
            (State::Failed, Some(ErrorClass::InvalidResult), 30),
            (State::Failed, Some(ErrorClass::PreconditionFailed), 30),
            (State::Failed, Some(ErrorClass::PostconditionFailed), 30),
            (State::Failed, Some(ErrorClass::SandboxViolation), 32),
            (State::Failed, Some(ErrorClass::ApprovalDenied), 33),
            (State::Partial, Some(ErrorClass::PolicyDenied), 33),
            (State::Failed, Some(ErrorClass::Timeout), 34),
            (State::Failed, Some(ErrorClass::Internal), 1),
            (State::Failed, Some(ErrorClass::OutcomeUnknown), 1),
        ];
        for (state, class, code) in cases {
            assert_eq!(Exit::of_execution(&ended(state, class)), Exit(code), "{state:?} {class:?}");
        }
    }
}
