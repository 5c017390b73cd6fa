//! `belay executions cancel`.

use std::time::Duration;

use belay_proto::v1::{CancelExecutionRequest, Execution, ExecutionView, GetExecutionRequest, execution::State};
use belay_reasons as reasons;

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
    failure::{Failure, Report},
    follow::is_over,
    names, next, read,
    render::{execution, time, words},
};

/// How long running calls have to stop: a command is killed at once, with all its processes, and its effect has to be discarded.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The interval at which the execution is read meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Stop executions: running calls are cancelled, other steps are skipped
///
/// One execution is waited for: 0 when it was cancelled, 2 when it had ended before, 34 when a call has not stopped after 30 s. Several are asked to stop, and
/// not waited for.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions cancel @last --reason 'wrong plan'"))]
pub(crate) struct Cancel {
    #[command(flatten)]
    selection: Selection,
    /// The reason, which is stored with the execution
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

const CANCELLED: BulkAction = BulkAction {
    verb: "cancel",
    done: "cancelled",
    states: &[State::Pending, State::Running, State::AwaitingApproval, State::Paused],
};

/// Requests the cancellation, and waits until the execution has ended, if it is one.
pub(crate) async fn cancel(context: &Context, verb: Cancel) -> Result<Exit, Failure> {
    let cancel = async |client: &mut Client, name: String| {
        let request = CancelExecutionRequest { name, reason: verb.reason.clone(), ..Default::default() };
        Ok(client.cancel_execution(request).await?.into_inner())
    };
    context
        .ask(Needs::Records, async |client| match verb.selection.resolve(context, client, &CANCELLED).await? {
            Selected::None(exit) => Ok(exit),
            Selected::Named(names) if names.len() == 1 => {
                let asked = cancel(client, names[0].clone()).await.map_err(|status| refused(&status, &names[0]))?;
                ended(context, client, asked).await
            }
            Selected::Named(names) | Selected::Matching(names) => {
                each(context, client, &CANCELLED, names, cancel).await
            }
        })
        .await
}

async fn ended(context: &Context, client: &mut Client, asked: Execution) -> Result<Exit, Failure> {
    let name = asked.name.clone();
    match tokio::time::timeout(MAX_WAIT, until_over(client, asked)).await {
        Ok(ended) => ended?,
        Err(_) => return Err(still_running(&name)),
    }
    let execution = read::execution(client, &name, context.screen.format).await?;
    if execution.state() != State::Cancelled {
        return Err(not_cancelled(&execution));
    }
    context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
    Ok(Exit::OK)
}

async fn until_over(client: &mut Client, mut execution: Execution) -> Result<(), Failure> {
    while !is_over(execution.state()) {
        tokio::time::sleep(LOOK_AGAIN).await;
        let request = GetExecutionRequest { name: execution.name.clone(), view: ExecutionView::Basic.into() };
        execution = client.get_execution(request).await?.into_inner();
    }
    Ok(())
}

fn still_running(name: &str) -> Failure {
    let message = format!(
        "execution {} is being cancelled, and has not ended within {}: a running call has not stopped",
        names::id(name),
        time::short(MAX_WAIT)
    );
    Report::new(reasons::WAIT_TIMEOUT, message).next(next::about(&["executions", "watch"], name, &[])).into()
}

/// The execution ended before it could be cancelled.
fn not_cancelled(ended: &Execution) -> Failure {
    let (id, state) = (names::id(&ended.name), words::execution_state(ended.state()));
    Report::new(reasons::EXECUTION_ENDED, format!("execution {id} is {state}: it ended before it could be cancelled"))
        .next(next::about(&["executions", "get"], &ended.name, &[]))
        .into()
}
