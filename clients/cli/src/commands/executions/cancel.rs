//! `belay executions cancel`.

use std::time::Duration;

use belay_proto::v1::{CancelExecutionRequest, Execution, ExecutionView, GetExecutionRequest, execution::State};
use belay_reasons as reasons;
use tonic::{Code, Response};

use super::select::{BulkAction, ConfirmedSelection, Selection, each};
use crate::{
    args::help,
    clock,
    connect::{Client, Requirement, Session},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    follow::is_over,
    names, next, read,
    refused::refused,
    render::{execution, time, words},
};

/// How long running calls have to stop. Longer than programs have by default to end when they are asked to (`commands.stop_grace`); then they are killed, and
/// their effect has to be discarded.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The interval at which the execution is read meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Stop executions: running calls are cancelled, other steps are skipped
///
/// Running programs are asked to end (SIGTERM), and killed after a while (`commands.stop_grace`, 10 s unless the operator has changed it). Then what steps have
/// done is undone, where the plan says how. With --kill programs are killed at once, and nothing is undone.
///
/// A single execution is waited for: 0 when it was cancelled, 2 when it had ended before, 34 when a call has not stopped after 30 s. Several are
/// asked to stop, and not waited for.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions cancel @last --reason 'wrong plan'"))]
pub(crate) struct Cancel {
    #[command(flatten)]
    selection: Selection,
    /// The reason, which is stored with the execution
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Kill running programs at once, and undo nothing; also when the execution is being cancelled already
    #[arg(long)]
    kill: bool,
}

const CANCELLED: BulkAction = BulkAction {
    verb: "cancel",
    done: "cancelled",
    states: &[State::Pending, State::Running, State::AwaitingApproval, State::Paused],
};

const KILLED: BulkAction = BulkAction {
    verb: "kill",
    done: "killed",
    states: &[State::Pending, State::Running, State::AwaitingApproval, State::Paused, State::Cancelling],
};

/// Requests the cancellation, and waits until the execution has ended, if it is one.
pub(crate) async fn cancel(context: &Context, verb: Cancel) -> Result<Exit, Failure> {
    let cancel = async |client: &mut Client, name: String| {
        let request =
            CancelExecutionRequest { name, reason: verb.reason.clone(), kill: verb.kill, ..Default::default() };
        Ok(client.cancel_execution(request).await?.into_inner())
    };
    let action = if verb.kill { &KILLED } else { &CANCELLED };
    let work = async |session: &mut Session| match verb.selection.resolve(context, &mut session.client, action).await? {
        ConfirmedSelection::None(exit) => Ok(exit),
        ConfirmedSelection::Named(names) if names.len() == 1 => {
            let asked = cancel(&mut session.client, names[0].clone()).await;
            ended(context, session, asked.map_err(|status| refused(&status, &names[0]))?).await
        }
        ConfirmedSelection::Named(names) | ConfirmedSelection::Matching(names) => {
            each(context, &mut session.client, action, names, cancel).await
        }
    };
    context.with_session(Requirement::Records, work).await
}

async fn ended(context: &Context, session: &mut Session, asked: Execution) -> Result<Exit, Failure> {
    let name = asked.name.clone();
    let execution = match tokio::time::timeout(MAX_WAIT, read_ended(context, session, asked)).await {
        Ok(execution) => execution?,
        Err(_) => return Err(still_running(&name)),
    };
    if execution.state() != State::Cancelled {
        return Err(not_cancelled(&execution));
    }
    context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
    Ok(Exit::OK)
}

/// The execution once it has ended. The server may end with it: `belay run` does.
async fn read_ended(context: &Context, session: &mut Session, asked: Execution) -> Result<Execution, Failure> {
    let mut over = is_over(asked.state());
    let name = asked.name;
    loop {
        let found = match over {
            true => read::execution(&mut session.client, &name, context.screen.format).await,
            false => {
                tokio::time::sleep(LOOK_AGAIN).await;
                let request = GetExecutionRequest { name: name.clone(), view: ExecutionView::Basic.into() };
                session.client.get_execution(request).await.map(Response::into_inner)
            }
        };
        match found {
            Ok(execution) if over => return Ok(execution),
            Ok(execution) => over = is_over(execution.state()),
            Err(status) if status.code() == Code::Unavailable => {
                tokio::time::sleep(LOOK_AGAIN).await;
                session.reconnect(true).await?;
            }
            Err(status) => return Err(status.into()),
        }
    }
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
