//! `belay executions pause`.

use belay_proto::v1::{PauseExecutionRequest, execution::State};

use super::{
    super::Context,
    refused,
    select::{BulkAction, Selected, Selection, each},
};
use crate::{
    args::help,
    clock,
    connect::{Client, Needs},
    exit::Exit,
    failure::Failure,
    render::execution,
};

/// Pause executions: running calls end, nothing new starts
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions pause @last"))]
pub(crate) struct Pause {
    #[command(flatten)]
    selection: Selection,
}

const PAUSED: BulkAction =
    BulkAction { verb: "pause", done: "paused", states: &[State::Pending, State::Running, State::AwaitingApproval] };

/// Requests the pause.
pub(crate) async fn pause(context: &Context, verb: Pause) -> Result<Exit, Failure> {
    let pause = async |client: &mut Client, name: String| {
        let request = PauseExecutionRequest { name, ..Default::default() };
        Ok(client.pause_execution(request).await?.into_inner())
    };
    context
        .ask(Needs::Records, async |client| match verb.selection.resolve(context, client, &PAUSED).await? {
            Selected::None(exit) => Ok(exit),
            Selected::Named(names) if names.len() == 1 => {
                let paused = pause(client, names[0].clone()).await;
                let execution = paused.map_err(|status| refused(&status, &names[0]))?;
                context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
                Ok(Exit::OK)
            }
            Selected::Named(names) | Selected::Matching(names) => each(context, client, &PAUSED, names, pause).await,
        })
        .await
}
