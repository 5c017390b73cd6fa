//! Every reason that Belay gives for an error, in one table: the services' errors, the exit codes and messages of `belay`,
//! `belay explain` and docs/errors.md come from it.
//!
//! Each reason is a constant ([`WORKSPACE_FULL`]), so that a misspelt one does not compile. No other code writes a reason as text;
//! `tests/architecture` checks that.

mod exit;
pub mod facts;
mod page;
mod store_fault;
mod table;

pub use exit::{EXIT_CODES, ExitCode, exit_code};
pub use page::page;
pub use store_fault::StoreFault;
pub use table::*;

/// The topic of a reason: the sections of docs/errors.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The command line, plans, and the files that people write.
    Input,
    /// Executions as a whole.
    Executions,
    /// Steps and the calls of tools.
    Calls,
    /// The tools that work on files and run commands.
    Tools,
    /// The models that steps ask.
    Models,
    /// Approvals, grants and the policy.
    Approvals,
    /// The state directory, the stores and the keys.
    Stores,
    /// Servers, connections and callers.
    Servers,
    /// Requests between the services; people rarely see these.
    Internal,
    /// gRPC codes without a reason of Belay's.
    Grpc,
}

impl Topic {
    /// All of them, in the order of the page.
    pub const ALL: [Topic; 10] = [
        Topic::Input,
        Topic::Executions,
        Topic::Calls,
        Topic::Tools,
        Topic::Models,
        Topic::Approvals,
        Topic::Stores,
        Topic::Servers,
        Topic::Internal,
        Topic::Grpc,
    ];

    /// The section's heading.
    pub fn title(self) -> &'static str {
        match self {
            Topic::Input => "Command line, plans and settings",
            Topic::Executions => "Executions",
            Topic::Calls => "Steps and tool calls",
            Topic::Tools => "Files and commands",
            Topic::Models => "Models",
            Topic::Approvals => "Policy and approvals",
            Topic::Stores => "State directory and stores",
            Topic::Servers => "Servers and callers",
            Topic::Internal => "Between the services",
            Topic::Grpc => "gRPC codes without a reason of Belay's",
        }
    }
}

/// The classes into which every failure of a call falls: the contract's `ErrorClass`. The class decides whether a step may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum ErrorClass {
    /// The process that did the work was killed from outside.
    Crash,
    /// A quota is used up.
    RateLimit,
    /// Neither a retry nor continuing the plan can help.
    Fatal,
    /// The program or agent that does the work is not available.
    AgentUnavailable,
    /// Any other failure of a tool.
    Transient,
    /// A time limit ran out.
    Timeout,
    /// The arguments do not fit the tool's schema.
    InvalidArguments,
    /// The tool's result does not fit its schema.
    InvalidResult,
    /// A condition for the start of the step's call does not hold.
    PreconditionFailed,
    /// A condition for the result of the step's call does not hold.
    PostconditionFailed,
    /// The call tried to access something outside its workspace.
    SandboxViolation,
    /// A person denied the call.
    ApprovalDenied,
    /// The policy denied the call.
    PolicyDenied,
    /// A budget of the plan or the step is used up.
    BudgetExhausted,
    /// The call was cancelled.
    Cancelled,
    /// Whether the call took effect is not known.
    OutcomeUnknown,
    /// A fault in Belay itself.
    Internal,
}

impl ErrorClass {
    /// Its name in the contract, without `ERROR_CLASS_`.
    pub fn name(self) -> &'static str {
        match self {
            ErrorClass::Crash => "CRASH",
            ErrorClass::RateLimit => "RATE_LIMIT",
            ErrorClass::Fatal => "FATAL",
            ErrorClass::AgentUnavailable => "AGENT_UNAVAILABLE",
            ErrorClass::Transient => "TRANSIENT",
            ErrorClass::Timeout => "TIMEOUT",
            ErrorClass::InvalidArguments => INVALID_ARGUMENTS,
            ErrorClass::InvalidResult => INVALID_RESULT,
            ErrorClass::PreconditionFailed => PRECONDITION_FAILED,
            ErrorClass::PostconditionFailed => POSTCONDITION_FAILED,
            ErrorClass::SandboxViolation => "SANDBOX_VIOLATION",
            ErrorClass::ApprovalDenied => APPROVAL_DENIED,
            ErrorClass::PolicyDenied => POLICY_DENIED,
            ErrorClass::BudgetExhausted => BUDGET_EXHAUSTED,
            ErrorClass::Cancelled => CANCELLED,
            ErrorClass::OutcomeUnknown => OUTCOME_UNKNOWN,
            ErrorClass::Internal => INTERNAL,
        }
    }

    /// The exit code of an execution that failed with this class.
    pub fn exit(self) -> u8 {
        match self {
            ErrorClass::Crash
            | ErrorClass::RateLimit
            | ErrorClass::Fatal
            | ErrorClass::AgentUnavailable
            | ErrorClass::Transient
            | ErrorClass::InvalidArguments
            | ErrorClass::InvalidResult
            | ErrorClass::PreconditionFailed
            | ErrorClass::PostconditionFailed => 30,
            ErrorClass::SandboxViolation => 32,
            ErrorClass::ApprovalDenied | ErrorClass::PolicyDenied => 33,
            ErrorClass::Timeout => 34,
            ErrorClass::BudgetExhausted | ErrorClass::Cancelled | ErrorClass::OutcomeUnknown | ErrorClass::Internal => {
                1
            }
        }
    }

    /// Whether a step that failed with this class may be retried.
    pub fn is_retryable(self) -> bool {
        match self {
            ErrorClass::Crash
            | ErrorClass::RateLimit
            | ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::InvalidResult => true,
            ErrorClass::Fatal
            | ErrorClass::AgentUnavailable
            | ErrorClass::InvalidArguments
            | ErrorClass::PreconditionFailed
            | ErrorClass::PostconditionFailed
            | ErrorClass::SandboxViolation
            | ErrorClass::ApprovalDenied
            | ErrorClass::PolicyDenied
            | ErrorClass::BudgetExhausted
            | ErrorClass::Cancelled
            | ErrorClass::OutcomeUnknown
            | ErrorClass::Internal => false,
        }
    }
}

/// A gRPC status code, as its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// CANCELLED
    Cancelled = 1,
    /// UNKNOWN
    Unknown = 2,
    /// INVALID_ARGUMENT
    InvalidArgument = 3,
    /// DEADLINE_EXCEEDED
    DeadlineExceeded = 4,
    /// NOT_FOUND
    NotFound = 5,
    /// ALREADY_EXISTS
    AlreadyExists = 6,
    /// PERMISSION_DENIED
    PermissionDenied = 7,
    /// RESOURCE_EXHAUSTED
    ResourceExhausted = 8,
    /// FAILED_PRECONDITION
    FailedPrecondition = 9,
    /// ABORTED
    Aborted = 10,
    /// OUT_OF_RANGE
    OutOfRange = 11,
    /// UNIMPLEMENTED
    Unimplemented = 12,
    /// INTERNAL
    Internal = 13,
    /// UNAVAILABLE
    Unavailable = 14,
    /// DATA_LOSS
    DataLoss = 15,
    /// UNAUTHENTICATED
    Unauthenticated = 16,
}

impl Code {
    /// Its name, which is also the reason of a bare status.
    pub fn name(self) -> &'static str {
        match self {
            Code::Cancelled => CANCELLED,
            Code::Unknown => UNKNOWN,
            Code::InvalidArgument => INVALID_ARGUMENT,
            Code::DeadlineExceeded => DEADLINE_EXCEEDED,
            Code::NotFound => NOT_FOUND,
            Code::AlreadyExists => ALREADY_EXISTS,
            Code::PermissionDenied => PERMISSION_DENIED,
            Code::ResourceExhausted => RESOURCE_EXHAUSTED,
            Code::FailedPrecondition => FAILED_PRECONDITION,
            Code::Aborted => ABORTED,
            Code::OutOfRange => OUT_OF_RANGE,
            Code::Unimplemented => UNIMPLEMENTED,
            Code::Internal => INTERNAL,
            Code::Unavailable => UNAVAILABLE,
            Code::DataLoss => DATA_LOSS,
            Code::Unauthenticated => UNAUTHENTICATED,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The stable word that programs compare.
    pub name: &'static str,
    /// Its section.
    pub topic: Topic,
    /// How `belay` exits when this is why.
    pub exit: u8,
    /// Whether the same command, request or call may succeed when it is made again unchanged.
    pub retryable: bool,
    /// The classes of step failures that carry it; empty for reasons of requests and commands.
    pub classes: &'static [ErrorClass],
    /// The gRPC codes of errors that carry it; empty for reasons of steps and of the command line.
    pub codes: &'static [Code],
    /// The event.
    pub what: &'static str,
    /// Advice for a person.
    pub advice: &'static str,
}

/// The reason with this name. Case does not matter, nor `-` instead of `_`.
pub fn find(name: &str) -> Option<&'static Reason> {
    let name = name.trim().replace('-', "_");
    ALL.iter().find(|reason| reason.name.eq_ignore_ascii_case(&name))
}

/// How much a name must resemble another to be suggested; 1 is the same.
const ALIKE: f64 = 0.8;

/// The names that a mistyped one probably meant, the likeliest first, at most three.
pub fn similar(name: &str) -> Vec<&'static str> {
    let name = name.trim().replace('-', "_").to_ascii_uppercase();
    let mut likely: Vec<_> = ALL
        .iter()
        .map(|reason| {
            // People remember parts of a name.
            let holds = name.len() >= 3 && reason.name.split('_').any(|word| word == name);
            (if holds { 1.0 } else { strsim::jaro_winkler(reason.name, &name) }, reason.name)
        })
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .collect();
    likely.sort_by(|a, b| b.0.total_cmp(&a.0));
    likely.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_whole_and_no_two_have_one_name() {
        let names: BTreeSet<_> = ALL.iter().map(|reason| reason.name).collect();
        assert_eq!(names.len(), ALL.len());
        for reason in ALL {
            let name = reason.name;
            assert!(exit_code(reason.exit).is_some(), "{name}: no such exit code");
            assert!(
                reason.what.ends_with('.') && reason.advice.ends_with('.'),
                "{name}: sentences end with a full stop"
            );
            assert!(!reason.what.contains("  ") && !reason.advice.contains("  "), "{name}");
        }
    }

    /// A reason that only steps give exits as its class does: the two ways to the exit code agree. Two have an exit code of their own, by their names.
    #[test]
    fn the_exit_code_of_a_step_s_reason_is_its_class_s() {
        let has_own = |reason: &&Reason| [TURN_LIMIT, AGENT_STUCK].contains(&reason.name);
        assert!(ALL.iter().filter(has_own).all(|reason| reason.exit == 31));
        for reason in ALL.iter().filter(|reason| reason.codes.is_empty() && !has_own(reason)) {
            if let [first, ..] = reason.classes {
                assert_eq!(reason.exit, first.exit(), "{}", reason.name);
            }
        }
    }

    #[test]
    fn a_bare_grpc_code_has_its_row() {
        for reason in ALL.iter().filter(|reason| reason.topic == Topic::Grpc) {
            assert!(reason.codes.iter().any(|code| code.name() == reason.name), "{}", reason.name);
        }
    }

    #[test]
    fn a_mistyped_reason_is_recognised() {
        assert_eq!(find("workspace-full").map(|reason| reason.name), Some(WORKSPACE_FULL));
        assert_eq!(find("nothing"), None);
        assert_eq!(similar("WORKSPACE_FUL").first(), Some(&WORKSPACE_FULL));
        assert!(similar("locked").contains(&STORE_LOCKED));
        assert!(similar("zzz").is_empty());
    }
}
