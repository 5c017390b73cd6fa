//! `belay executions get`.

use belay_proto::v1::{ExecutionView, GetExecutionRequest};

use super::super::Context;
use crate::{
    args::{Which, help},
    clock,
    exit::Exit,
    failure::Failure,
    names,
    render::execution,
};

/// Show an execution: its steps, why they failed, what it waits for, what to type next
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions get @last"))]
pub(crate) struct Get {
    #[command(flatten)]
    which: Which,
}

/// Shows the execution.
pub(crate) async fn get(context: &Context, verb: Get) -> Result<Exit, Failure> {
    let execution = context
        .ask(async |client| {
            let name = names::resolve(client, &context.namespace, &verb.which.id).await?;
            let request = GetExecutionRequest {
                name,
                view: ExecutionView::Full.into(),
            };
            Ok(client.get_execution(request).await?.into_inner())
        })
        .await?;
    context
        .screen
        .show(&execution, || execution::full(&execution, clock::now()))?;
    Ok(Exit::OK)
}
