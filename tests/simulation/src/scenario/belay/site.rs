//! The machines of the scenarios, who works on them, and how long what may take.

use std::time::Duration;

use crate::fault;

pub(super) const EXECUTOR: &str = "executor";
pub(super) const RUNNER: &str = "runner";
pub(super) const GATE: &str = "gate";
pub(super) const CLIENTS: [&str; 2] = ["alice", "bob"];
pub(super) const PEOPLE: [&str; 2] = ["pat", "quinn"];
pub(super) const LOOKER: &str = "lou";
pub(super) const FORGER: &str = "mallory";
pub(super) const AUDITOR: &str = "auditor";
pub(super) const SITE: fault::Site = fault::Site {
    servers: &[EXECUTOR, RUNNER, GATE],
    everyone: &[EXECUTOR, RUNNER, GATE, CLIENTS[0], CLIENTS[1], PEOPLE[0], PEOPLE[1]],
    requests: &[
        ("AcknowledgeToolCalls", [EXECUTOR, RUNNER]),
        ("AcknowledgeToolCalls", [EXECUTOR, RUNNER]),
        ("AcknowledgeApprovals", [EXECUTOR, GATE]),
        ("CallTool", [EXECUTOR, RUNNER]),
        ("CancelToolCall", [EXECUTOR, RUNNER]),
        ("CommitEffect", [EXECUTOR, RUNNER]),
        ("CreateApproval", [EXECUTOR, GATE]),
        ("GetEffect", [GATE, RUNNER]),
        ("GetGrant", [EXECUTOR, GATE]),
        ("DecideApproval", [GATE, GATE]),
        ("StartExecution", [EXECUTOR, EXECUTOR]),
    ],
    for_good: true,
};

/// Faults begin and executions start within this time.
pub(super) const HORIZON: Duration = Duration::from_secs(4);
/// Every execution must end within this time after the last fault, unless tools run: retries and forks of nested lists begin late and take long.
pub(super) const MAX_RECOVERY: Duration = Duration::from_secs(60);
/// How often that time begins again while tools run: lists of nested plans, retried and forked, one call after the other, have taken 18 minutes.
pub(super) const MAX_EXTENSIONS: usize = 40;
/// A tool runs within this time where something continues.
pub(super) const RECENTLY: Duration = Duration::from_secs(10);
/// The auditor has read everything within this time, one thing after the other: some seeds make hundreds of executions, each with approvals.
pub(super) const MAX_READING: Duration = Duration::from_secs(300);

/// The limit of simulated time, longer than any run.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(4000);
