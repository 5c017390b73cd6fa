//! `belay executions pause`.

use std::time::Duration;

use belay_proto::v1::{PauseExecutionRequest, execution::State};
use pbjson_types::Timestamp;

use super::select::{BulkAction, ConfirmedSelection, Selection, each};
use crate::{
    args::help,
    clock,
    connect::{Client, Requirement},
    context::Context,
    exit::Exit,
    failure::Failure,
    refused::refused,
    render::{execution, time},
};

/// Pause executions: running calls end, nothing new starts
///
/// They continue with `belay executions resume`, or by themselves with --until or --for.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions pause @last"))]
pub(crate) struct Pause {
    #[command(flatten)]
    selection: Selection,
    /// Resume by itself at this time, such as 2026-12-01T09:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, conflicts_with = "duration")]
    until: Option<Timestamp>,
    /// Resume by itself after this time, such as 10m or 2h
    #[arg(long = "for", id = "duration", value_name = "D", value_parser = time::parse)]
    duration: Option<Duration>,
}

const PAUSED: BulkAction =
    BulkAction { verb: "pause", done: "paused", states: &[State::Pending, State::Running, State::AwaitingApproval] };

/// Requests the pause.
pub(crate) async fn pause(context: &Context, verb: Pause) -> Result<Exit, Failure> {
    let resume_time =
        verb.until.or_else(|| verb.duration.map(|wait| time::timestamp(clock::now().saturating_add(wait))));
    let pause = async |client: &mut Client, name: String| {
        let request = PauseExecutionRequest { name, resume_time, ..Default::default() };
        Ok(client.pause_execution(request).await?.into_inner())
    };
    context
        .ask(Requirement::Records, async |client| match verb.selection.resolve(context, client, &PAUSED).await? {
            ConfirmedSelection::None(exit) => Ok(exit),
            ConfirmedSelection::Named(names) if names.len() == 1 => {
                let paused = pause(client, names[0].clone()).await;
                let execution = paused.map_err(|status| refused(&status, &names[0]))?;
                context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
                Ok(Exit::OK)
            }
            ConfirmedSelection::Named(names) | ConfirmedSelection::Matching(names) => {
                each(context, client, &PAUSED, names, pause).await
            }
        })
        .await
}
