//! The meaning of the exit codes of `belay`.

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCode {
    /// The number that the shell sees.
    pub code: u8,
    /// Its meaning, in a few words.
    pub what: &'static str,
    /// Advice for the caller.
    pub advice: &'static str,
}

/// Every exit code, in order.
pub const EXIT_CODES: &[ExitCode] = &[
    ExitCode { code: 0, what: "Done; an execution completed.", advice: "Nothing." },
    ExitCode {
        code: 1,
        what: "A fault of Belay or of the machine; or the execution was cancelled.",
        advice: "The last line of the error has a code: `belay explain CODE`.",
    },
    ExitCode {
        code: 2,
        what: "Refused or used wrongly. Nothing happened.",
        advice: "Correct what the error names, and give the command again.",
    },
    ExitCode {
        code: 30,
        what: "The execution failed: a step failed.",
        advice: "`belay executions get @last` shows each step's error and what its program printed last.",
    },
    ExitCode {
        code: 31,
        what: "The execution failed: a model had all its turns, or repeated itself.",
        advice: "`belay executions get @last` lists its turns and calls. Raise `agent.max_turns`, or make the task smaller or clearer.",
    },
    ExitCode {
        code: 32,
        what: "The execution failed: a step tried to reach outside its workspace, or the sandbox is not available.",
        advice: "`belay executions get @last` names the path or the layer; `belay doctor` examines the machine.",
    },
    ExitCode {
        code: 33,
        what: "The execution failed: the policy or a person denied a call. Of `belay network check`: the profile refuses what was asked for.",
        advice: "`belay executions get @last` has the rule or the person's words. Change the plan or the policy. `belay network check` has the line that allows it.",
    },
    ExitCode {
        code: 34,
        what: "A time limit ran out: a step's, the plan's, or `--wait-timeout`; after the last one the execution is kept.",
        advice: "Raise the limit that the error names; after `--wait-timeout`, `belay executions resume @last` or `watch @last` returns to it.",
    },
    ExitCode {
        code: 35,
        what: "The execution ended in part: nothing failed, and a step was skipped that others needed, or every step was.",
        advice: "`belay executions get @last` shows what was skipped and why.",
    },
    ExitCode {
        code: 129,
        what: "The terminal was closed (SIGHUP).",
        advice: "`belay executions list` shows what was started; an execution is kept and can be resumed.",
    },
    ExitCode {
        code: 130,
        what: "Interrupted by Ctrl-C (SIGINT).",
        advice: "`belay executions list` shows what was started; an execution is kept and can be resumed.",
    },
    ExitCode {
        code: 141,
        what: "The reader of the output has closed it (SIGPIPE).",
        advice: "`belay executions list` shows what was started; an execution is kept and can be resumed.",
    },
    ExitCode {
        code: 143,
        what: "Terminated (SIGTERM).",
        advice: "`belay executions list` shows what was started; an execution is kept and can be resumed.",
    },
];

/// The meaning of an exit code.
pub fn exit_code(code: u8) -> Option<&'static ExitCode> {
    EXIT_CODES.iter().find(|known| known.code == code)
}
