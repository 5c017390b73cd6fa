//! `belay executions get`.

use belay_proto::v1::{Execution, ExecutionView, GetExecutionRequest};

use super::super::Context;
use crate::{
    args::{Which, help},
    clock,
    connect::{Client, Needs, Session},
    exit::Exit,
    failure::Failure,
    names,
    render::execution,
};

/// Show an execution: its steps, their failures, what it waits for, what to type next
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions get @last"))]
pub(crate) struct Get {
    #[command(flatten)]
    which: Which,
}

/// Shows the execution.
pub(crate) async fn get(context: &Context, verb: Get) -> Result<Exit, Failure> {
    let mut session = Session::open(&context.place, Needs::Records).await?;
    // Services that run only for the moment of this command drive nothing on.
    let is_driven = !session.is_embedded();
    let answer = ask(&mut session.client, &context.namespace, &verb.which.id).await;
    session.close().await;
    let execution = answer?;
    context.screen.show(&execution, || {
        execution::full(&context.place.with_workspace(execution.clone()), is_driven, clock::now())
    })?;
    Ok(Exit::OK)
}

async fn ask(client: &mut Client, namespace: &str, id: &str) -> Result<Execution, Failure> {
    let name = names::resolve(client, namespace, id).await?;
    let view = ExecutionView::Full.into();
    Ok(client.get_execution(GetExecutionRequest { name, view }).await?.into_inner())
}
