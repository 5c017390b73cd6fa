//! The section `services`: how much each service takes on at a time. Beyond it, it answers RESOURCE_EXHAUSTED with a delay.

use crate::Sourced;

/// What an executor takes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorLimits {
    /// Executions in memory: those that run, and not those that wait for a person or for long.
    pub executions: Sourced<u32>,
    /// Requests that wait for something to happen: WatchExecution and WaitExecution.
    pub watchers: Sourced<u32>,
}

/// What a tool runner takes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerLimits {
    /// Calls that have begun and have neither ended nor come to wait for a decision.
    pub calls: Sourced<u32>,
}

/// What an approval gate takes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// Approvals that nobody has decided.
    pub approvals: Sourced<u32>,
    /// Previews that are made at once; each may hold the contents of a call's files in memory.
    pub previews: Sourced<u32>,
    /// WatchApprovals requests.
    pub watchers: Sourced<u32>,
}

/// What the services take on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// The executor.
    pub executor: ExecutorLimits,
    /// The tool runner.
    pub runner: RunnerLimits,
    /// The approval gate.
    pub gate: GateLimits,
}

impl Default for ExecutorLimits {
    /// 10,000 executions, which take some 50 KiB of memory each, and as many watchers.
    fn default() -> Self {
        Self { executions: Sourced::default_of(10_000), watchers: Sourced::default_of(10_000) }
    }
}

impl Default for RunnerLimits {
    /// 4,096 calls: where all are commands, that is 12,000 processes and 30,000 open files.
    fn default() -> Self {
        Self { calls: Sourced::default_of(4096) }
    }
}

impl Default for GateLimits {
    /// 10,000 approvals, 16 previews of up to some 50 MiB each, 10,000 watchers.
    fn default() -> Self {
        Self {
            approvals: Sourced::default_of(10_000),
            previews: Sourced::default_of(16),
            watchers: Sourced::default_of(10_000),
        }
    }
}

impl Services {
    /// Each limit with its name in the file.
    pub(crate) fn rows(&self) -> [(&'static str, &Sourced<u32>); 6] {
        let Self { executor, runner, gate } = self;
        [
            ("executor.executions", &executor.executions),
            ("executor.watchers", &executor.watchers),
            ("runner.calls", &runner.calls),
            ("gate.approvals", &gate.approvals),
            ("gate.previews", &gate.previews),
            ("gate.watchers", &gate.watchers),
        ]
    }
}
