//! The section `services`: the load limits of each service. Beyond a limit, a service returns RESOURCE_EXHAUSTED with a retry delay.

use crate::ValueWithOrigin;

/// Limits of an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorLimits {
    /// Executions in memory: those that run, not those that wait for a decision or a long delay.
    pub executions: ValueWithOrigin<u32>,
    /// Steps of executions in memory: one principal may have half of them, and one execution with those of its steps' plans a quarter.
    pub steps: ValueWithOrigin<u32>,
    /// Open WatchExecution and WaitExecution requests.
    pub watchers: ValueWithOrigin<u32>,
}

/// Limits of a tool runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerLimits {
    /// Calls that have started, have not ended, and do not wait for a decision.
    pub calls: ValueWithOrigin<u32>,
}

/// Limits of an approval gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// Pending approvals.
    pub approvals: ValueWithOrigin<u32>,
    /// Concurrent previews; each may hold the content of the files of a call in memory.
    pub previews: ValueWithOrigin<u32>,
    /// Open WatchApprovals requests.
    pub watchers: ValueWithOrigin<u32>,
}

/// Limits of the services.
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
    /// 10,000 executions at about 50 KiB of memory each, 200,000 steps at about 3 KiB, and 10,000 watchers.
    fn default() -> Self {
        Self {
            executions: ValueWithOrigin::default_of(10_000),
            steps: ValueWithOrigin::default_of(200_000),
            watchers: ValueWithOrigin::default_of(10_000),
        }
    }
}

impl Default for RunnerLimits {
    /// 4,096 calls: if all are commands, 12,000 processes and 30,000 open files.
    fn default() -> Self {
        Self { calls: ValueWithOrigin::default_of(4096) }
    }
}

impl Default for GateLimits {
    /// 10,000 approvals, 16 previews of up to about 50 MiB each, 10,000 watchers.
    fn default() -> Self {
        Self {
            approvals: ValueWithOrigin::default_of(10_000),
            previews: ValueWithOrigin::default_of(16),
            watchers: ValueWithOrigin::default_of(10_000),
        }
    }
}

impl Services {
    /// Each limit with its name in the file.
    pub(crate) fn rows(&self) -> [(&'static str, &ValueWithOrigin<u32>); 7] {
        let Self { executor, runner, gate } = self;
        [
            ("executor.executions", &executor.executions),
            ("executor.steps", &executor.steps),
            ("executor.watchers", &executor.watchers),
            ("runner.calls", &runner.calls),
            ("gate.approvals", &gate.approvals),
            ("gate.previews", &gate.previews),
            ("gate.watchers", &gate.watchers),
        ]
    }
}
