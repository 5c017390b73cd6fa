//! `belay executions cancel`.

use belay_proto::v1::CancelExecutionRequest;

use super::{super::Context, refused};
use crate::{
    args::{Which, help},
    clock,
    exit::Exit,
    failure::Failure,
    names,
    render::execution,
};

/// Stop an execution: running calls are cancelled, other steps are skipped
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions cancel @last --reason 'wrong plan'"))]
pub(crate) struct Cancel {
    #[command(flatten)]
    which: Which,
    /// Why; kept with the execution
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Asks it to stop.
pub(crate) async fn cancel(context: &Context, verb: Cancel) -> Result<Exit, Failure> {
    let execution = context
        .ask(async |client| {
            let name = names::resolve(client, &context.namespace, &verb.which.id).await?;
            let request = CancelExecutionRequest { name: name.clone(), reason: verb.reason, ..Default::default() };
            let answer = client.cancel_execution(request).await;
            Ok(answer.map_err(|status| refused(&status, &name))?.into_inner())
        })
        .await?;
    context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
    Ok(Exit::OK)
}
