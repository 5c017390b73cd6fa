//! `belay executions signal`.

use belay_proto::v1::{Payload, SignalExecutionRequest, payload::Content};

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

/// Send a signal to an execution: a step that waits for it continues
///
/// A signal that no step waits for yet is kept until one does.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions signal @last deployed --payload '{\"version\": 7}'"))]
pub(crate) struct Signal {
    #[command(flatten)]
    which: Which,
    /// The signal's name, as the plan has it
    #[arg(value_name = "NAME")]
    signal: String,
    /// What the signal carries, which becomes the result of the step that waits for it
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Send it once, however often the command runs with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    request_id: String,
}

/// Sends the signal.
pub(crate) async fn signal(context: &Context, verb: Signal) -> Result<Exit, Failure> {
    let Signal { which, signal, payload, request_id } = verb;
    let payload = payload.map(|json| Payload { content: Some(Content::Json(json)) });
    let execution = context
        .ask(Needs::Records, async |client| {
            let name = names::resolve(client, &context.namespace, &which.id).await?;
            let request = SignalExecutionRequest { name: name.clone(), signal, payload, request_id };
            let answer = client.signal_execution(request).await;
            Ok(answer.map_err(|status| refused(&status, &name))?.into_inner())
        })
        .await?;
    context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
    Ok(Exit::OK)
}
