//! `belay executions pause`.

use belay_proto::v1::PauseExecutionRequest;

use super::{super::Context, refused};
use crate::{
    args::{Which, help},
    clock,
    connect::Needs,
    exit::Exit,
    failure::Failure,
    names,
    render::execution,
};

/// Pause an execution: running calls end, nothing new starts
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions pause @last"))]
pub(crate) struct Pause {
    #[command(flatten)]
    which: Which,
}

/// Requests the pause.
pub(crate) async fn pause(context: &Context, verb: Pause) -> Result<Exit, Failure> {
    let execution = context
        .ask(Needs::Records, async |client| {
            let name = names::resolve(client, &context.namespace, &verb.which.id).await?;
            let request = PauseExecutionRequest { name: name.clone(), ..Default::default() };
            let answer = client.pause_execution(request).await;
            Ok(answer.map_err(|status| refused(&status, &name))?.into_inner())
        })
        .await?;
    context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
    Ok(Exit::OK)
}
