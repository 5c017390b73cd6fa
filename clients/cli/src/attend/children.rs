//! The questions of executions that carry out the plans of steps: they are asked at the terminal of the outer one.

use std::collections::VecDeque;

use belay_proto::v1::{ExecutionView, GetExecutionRequest};
use tonic::Status;

use crate::{connect::Client, render::call::awaited_children};

/// The most executions that are read at a time.
const MAX_READ: usize = 128;

/// The approvals that wait for a decision in these executions, and in those that they wait for.
pub(super) async fn asked(client: &mut Client, executions: Vec<String>) -> Result<Vec<String>, Status> {
    let (mut asked, mut unread) = (Vec::new(), VecDeque::from(executions));
    for _ in 0..MAX_READ {
        let Some(name) = unread.pop_front() else { break };
        let request = GetExecutionRequest { name, view: ExecutionView::Full.into() };
        let execution = client.get_execution(request).await?.into_inner();
        asked.extend(execution.steps.iter().flat_map(|step| step.approvals.iter().cloned()));
        unread.extend(awaited_children(&execution).map(str::to_owned));
    }
    Ok(asked)
}
