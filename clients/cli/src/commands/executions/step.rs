//! `belay executions skip`, `set-output` and `retry-step`: what becomes of one step.

use belay_proto::v1::{
    Execution, Payload, RetryChange, RetryStepRequest, SetStepOutputRequest, SkipStepRequest, payload::Content,
};
use tonic::Status;

use crate::{
    args::{ExecutionArg, help},
    clock,
    connect::{Client, Requirement},
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup,
    refused::refused,
    render::execution,
};

/// Skip a step that has not started, or waits for its next attempt; the steps that depend on it run
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions skip @last lint --reason 'not needed today'"))]
pub(crate) struct Skip {
    #[command(flatten)]
    step: OneStep,
}

/// Complete a step that has not started, or waits for its next attempt, with an output that you give
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions set-output @last fetch '{\"rows\": 12}'"))]
pub(crate) struct SetOutput {
    #[command(flatten)]
    step: OneStep,
    /// The output, which the steps that depend on it read
    #[arg(value_name = "JSON")]
    value: String,
}

/// Start the next attempt of a step now, or give it up
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions retry-step @last fetch --now"))]
pub(crate) struct RetryStep {
    #[command(flatten)]
    step: OneStep,
    #[command(flatten)]
    change: Change,
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Change {
    /// Do not wait any longer
    #[arg(long)]
    now: bool,
    /// Do not try again: the step fails as its last attempt did
    #[arg(long)]
    cancel: bool,
    /// Do not try this call again: the step continues with its next `fallback`
    #[arg(long)]
    fallback: bool,
}

/// A step, and what every request about one has.
#[derive(clap::Args, Debug)]
struct OneStep {
    #[command(flatten)]
    which: ExecutionArg,
    /// The step
    #[arg(value_name = "STEP")]
    step: String,
    /// The reason, which is stored with the execution
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Do it once, however often the command runs with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    request_id: String,
}

/// Skips the step.
pub(crate) async fn skip(context: &Context, verb: Skip) -> Result<Exit, Failure> {
    let OneStep { which, step, reason, request_id } = verb.step;
    ask(context, &which, &step, async |client, name| {
        let request = SkipStepRequest { name, reason, etag: String::new(), request_id };
        Ok(client.skip_step(request).await?.into_inner())
    })
    .await
}

/// Completes the step with the output.
pub(crate) async fn set_output(context: &Context, verb: SetOutput) -> Result<Exit, Failure> {
    let SetOutput { step: OneStep { which, step, reason, request_id }, value } = verb;
    ask(context, &which, &step, async |client, name| {
        let output = Some(Payload { content: Some(Content::Json(value)) });
        let request = SetStepOutputRequest { name, output, reason, etag: String::new(), request_id };
        Ok(client.set_step_output(request).await?.into_inner())
    })
    .await
}

/// Changes the step's next attempt.
pub(crate) async fn retry_step(context: &Context, verb: RetryStep) -> Result<Exit, Failure> {
    let RetryStep { step: OneStep { which, step, reason, request_id }, change } = verb;
    let change = match change {
        Change { now: true, .. } => RetryChange::Now,
        Change { fallback: true, .. } => RetryChange::Fallback,
        Change { .. } => RetryChange::Cancel,
    };
    ask(context, &which, &step, async |client, name| {
        let request = RetryStepRequest { name, change: change.into(), reason, etag: String::new(), request_id };
        Ok(client.retry_step(request).await?.into_inner())
    })
    .await
}

async fn ask(
    context: &Context,
    which: &ExecutionArg,
    step: &str,
    request: impl AsyncFnOnce(&mut Client, String) -> Result<Execution, Status>,
) -> Result<Exit, Failure> {
    let execution = context
        .ask(Requirement::Records, async |client| {
            let name = lookup::resolve(client, &context.namespace, &which.id).await?;
            let answer = request(client, format!("{name}/steps/{step}")).await;
            answer.map_err(|status| refused(&status, &name))
        })
        .await?;
    context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
    Ok(Exit::OK)
}
