//! `belay executions retry`.

use std::path::PathBuf;

use belay_proto::v1::{Execution, RetryExecutionRequest, execution::State};

use super::{
    super::run::no_server,
    refused_with_plan,
    resume::watch_on,
    select::{BulkAction, ConfirmedSelection, Selection, each},
};
use crate::{
    args::execution_help,
    clock,
    connect::{Requirement, Session},
    context::Context,
    exit::Exit,
    failure::Failure,
    plan_file::PlanFile,
    render::execution,
    signals::Signals,
    stopped::unless_stopped,
};

/// Run the steps again that failed or were stopped, and all that depend on them; what completed is kept
///
/// A single execution is watched until it ends. With --state, --label, --since or --filter, all that match and have ended without completing are
/// retried, and not watched.
#[derive(clap::Args, Debug)]
#[command(after_help = execution_help!("belay executions retry @last --plan fixed.yaml"))]
pub(crate) struct Retry {
    #[command(flatten)]
    selection: Selection,
    /// Also run this step again, and all that depend on it, though they have completed
    #[arg(long, value_name = "STEP", default_value = "", hide_default_value = true)]
    from: String,
    /// Skip the steps that failed, and run those that depend on them
    #[arg(long)]
    skip_failed: bool,
    /// Continue with this plan; what has completed and is kept cannot change
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    plan: Option<PathBuf>,
    /// Pause it before anything runs, to change its steps first
    #[arg(long)]
    paused: bool,
    /// Do not watch it
    #[arg(long)]
    detach: bool,
    /// The reason, which is stored with the execution
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Do it once, however often the command runs with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    request_id: String,
}

const RETRIED: BulkAction = BulkAction {
    verb: "retry",
    done: "retried",
    states: &[State::Failed, State::Partial, State::Cancelled, State::TimedOut],
};

/// The rest of the command after the requests.
enum RetryEnd {
    /// Watch this execution.
    Watch(Box<Execution>),
    /// Exit with this code.
    Leave(Exit),
}

/// Retries what is selected, and watches it if that is one execution.
pub(crate) async fn retry(context: &Context, verb: Retry, signals: &mut Signals) -> Result<Exit, Failure> {
    let Retry { selection, from, skip_failed, plan, paused, detach, reason, request_id } = verb;
    let file = match &plan {
        Some(path) => Some(PlanFile::read(path).await?),
        None => None,
    };
    let document = file.as_ref().map(PlanFile::document);
    let request = |name: String| RetryExecutionRequest {
        name,
        from_step: from.clone(),
        skip_failed,
        start_paused: paused,
        plan: None,
        document: document.clone(),
        reason: reason.clone(),
        etag: String::new(),
        request_id: request_id.clone(),
    };
    let (session, then) = unless_stopped(signals, async {
        let mut session = Session::open(&context.target, Requirement::Records).await?;
        let undriven = session.is_embedded();
        let client = &mut session.client;
        let asked = async {
            let names = match selection.resolve(context, client, &RETRIED).await? {
                ConfirmedSelection::None(exit) => return Ok::<_, Failure>(RetryEnd::Leave(exit)),
                ConfirmedSelection::Named(names) if names.len() == 1 => {
                    if undriven && detach && !paused {
                        return Err(no_server("--detach"));
                    }
                    let name = &names[0];
                    let execution = match client.retry_execution(request(name.clone())).await {
                        Ok(answer) => answer.into_inner(),
                        Err(status) => {
                            return Err(
                                refused_with_plan(client, &context.namespace, &status, name, file.as_ref()).await
                            );
                        }
                    };
                    if !paused && !detach {
                        return Ok(RetryEnd::Watch(Box::new(execution)));
                    }
                    context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
                    return Ok(RetryEnd::Leave(Exit::OK));
                }
                ConfirmedSelection::Named(names) | ConfirmedSelection::Matching(names) => names,
            };
            if undriven && !paused {
                return Err(no_server("retrying several executions"));
            }
            let act = async |client: &mut crate::connect::Client, name| {
                Ok(client.retry_execution(request(name)).await?.into_inner())
            };
            Ok(RetryEnd::Leave(each(context, client, &RETRIED, names, act).await?))
        };
        match asked.await {
            Ok(then) => Ok((session, then)),
            Err(failure) => {
                session.close().await;
                Err(failure)
            }
        }
    })
    .await??;
    let execution = match then {
        RetryEnd::Leave(exit) => {
            session.close().await;
            return Ok(exit);
        }
        RetryEnd::Watch(execution) => execution,
    };
    watch_on(context, session, *execution, signals).await
}
