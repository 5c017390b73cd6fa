//! `belay executions resolve`.

use belay_proto::v1::{Payload, ResolveStepRequest, StepResolution, payload::Content};

use crate::{
    args::{ExecutionArg, help},
    clock,
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup,
    refused::refused,
    render::execution,
};

/// Continue with a step whose call had an unknown outcome
///
/// A call whose outcome is unknown may have had effects outside the workspace, so it is never made again by itself. Find out what it did, and say so.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions resolve @last deploy --completed --result '{\"version\": 7}' --reason 'it is there'"))]
pub(crate) struct Resolve {
    #[command(flatten)]
    which: ExecutionArg,
    /// The step
    #[arg(value_name = "STEP")]
    step: String,
    #[command(flatten)]
    outcome: Outcome,
    /// The step's result, with --completed
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
    /// How you know, for those who read the execution later
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Do it once, however often the command runs with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    request_id: String,
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Outcome {
    /// The call did what it was to do: the step completes
    #[arg(long)]
    completed: bool,
    /// The call failed: the step fails, and is not tried again
    #[arg(long)]
    failed: bool,
    /// The call did nothing, or doing it twice does no harm: it is made again
    #[arg(long)]
    again: bool,
}

/// Resolves the step.
pub(crate) async fn resolve(context: &Context, verb: Resolve) -> Result<Exit, Failure> {
    let Resolve { which, step, outcome, result, reason, request_id } = verb;
    let resolution = match outcome {
        Outcome { completed: true, .. } => StepResolution::Completed,
        Outcome { failed: true, .. } => StepResolution::Failed,
        Outcome { .. } => StepResolution::Again,
    };
    let result = result.map(|json| Payload { content: Some(Content::Json(json)) });
    let execution = context
        .ask(Requirement::Records, async |client| {
            let name = lookup::resolve(client, &context.namespace, &which.id).await?;
            let request = ResolveStepRequest {
                name: format!("{name}/steps/{step}"),
                resolution: resolution.into(),
                result,
                reason,
                etag: String::new(),
                request_id,
            };
            let answer = client.resolve_step(request).await;
            Ok(answer.map_err(|status| refused(&status, &name))?.into_inner())
        })
        .await?;
    context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
    Ok(Exit::OK)
}
