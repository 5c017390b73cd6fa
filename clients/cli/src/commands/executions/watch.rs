//! `belay executions watch`.

use super::{list, watch_all};
use crate::{
    args::execution_help,
    attend::{Attendance, attend},
    connect::{Requirement, Session},
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup,
    render::result::lines::EventShape,
    signals::Signals,
    stopped::unless_stopped,
};

/// Watch an execution from its first event to its end; exits as the execution ended. Without ID, all executions, until Ctrl-C
#[derive(clap::Args, Debug)]
#[command(after_help = execution_help!("belay executions watch @last -o jsonl"))]
pub(crate) struct Watch {
    /// The execution: its id, the beginning of its id, its full name, or @last; all executions when it is left out
    #[arg(value_name = "ID", conflicts_with_all = ["states", "labels", "since", "filter"])]
    id: Option<String>,
    /// Only events after this number
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(i64).range(0..),
        requires = "id"
    )]
    after: i64,
    #[command(flatten)]
    matching: list::ExecutionFilter,
    /// The lines that programs get, which `-o jsonl` is then
    #[arg(long = "as", value_name = "SHAPE", value_enum, requires = "id")]
    pub(crate) shape: Option<EventShape>,
    /// Show the arguments and the result of each call, and every event
    #[arg(short, long, requires = "id", conflicts_with = "shape")]
    verbose: bool,
}

/// Watches without driving the execution.
pub(crate) async fn watch(context: &Context, verb: Watch, signals: &mut Signals) -> Result<Exit, Failure> {
    let Some(id) = &verb.id else {
        return unless_stopped(signals, watch_all::watch_all(context, &verb.matching)).await?;
    };
    let (session, name) = unless_stopped(signals, async {
        let mut session = Session::open(&context.target, Requirement::Records).await?;
        match lookup::resolve(&mut session.client, &context.namespace, id).await {
            Ok(name) => Ok((session, name)),
            Err(failure) => {
                session.close().await;
                Err(failure)
            }
        }
    })
    .await??;
    let shape = verb.shape.unwrap_or_default();
    let attendance =
        Attendance { name, after: verb.after, drive: false, asks: false, max_wait: None, shape, verbose: verb.verbose };
    attend(context, session, signals, attendance).await
}
