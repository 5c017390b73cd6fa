//! The fixtures of this crate's unit tests.

use belay_plan::{Format, Plan};

use crate::{
    ApprovalMode, Created, DecideContext, Event, Execution, ExecutionEvent, RecoveryClass, Timestamp, ToolFacts,
};

/// An execution of this plan, in YAML, after its first decisions. Its tools are `t`, and some that are recovered otherwise.
pub(crate) fn started(plan: &str, now: Timestamp) -> Execution {
    let facts = |tool: &str, recovery| ToolFacts {
        takes_network: tool == "run_terminal",
        used_as: tool.into(),
        tool: tool.into(),
        recovery,
        default_timeout: std::time::Duration::from_secs(1),
        ..ToolFacts::default()
    };
    let created = Created {
        uid: "u".into(),
        plan: Plan::parse(Format::Yaml, plan).unwrap(),
        inputs: crate::Json::from_text("{}"),
        start_at: None,
        parent_step: String::new(),
        forked_from: String::new(),
        allotment: None,
        spent: crate::Amounts::default(),
        approval_mode: ApprovalMode::Wait,
        workspace: crate::Workspace::Directory("/w".into()),
        labels: Default::default(),
        tools: ["t", "run_terminal", "read_file", "find_files"]
            .map(|tool| facts(tool, if tool == "t" { RecoveryClass::Transactional } else { RecoveryClass::ReadOnly }))
            .into(),
        deadline: None,
        trace: Default::default(),
        shard: 0,
        limits: Vec::new(),
    };
    let body = ExecutionEvent::Created(Box::new(created)).into();
    let mut execution = Execution::create(Event { sequence: 1, time: now, actor: None, body }).unwrap();
    execution.advance(DecideContext { now, ledger_id: "l" });
    execution
}
