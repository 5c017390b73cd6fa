//! `belay executions edit-plan`.

use std::path::PathBuf;

use belay_proto::v1::{UpdatePlanRequest, update_plan_request::Source};

use super::refused_with_plan;
use crate::{
    args::{ExecutionArg, help},
    clock,
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup,
    plan_file::PlanFile,
    render::execution,
};

/// Change the plan of an execution that has not ended: steps that have not started can be changed, removed and added
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions edit-plan @last fixed.yaml"))]
pub(crate) struct EditPlan {
    #[command(flatten)]
    which: ExecutionArg,
    /// The new plan; - reads standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    plan: PathBuf,
    /// Only if the plan has this revision, which `belay executions get -o json` shows
    #[arg(long, value_name = "N")]
    revision: Option<i32>,
    /// The reason, which is stored with the execution
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Do it once, however often the command runs with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    request_id: String,
}

/// Changes the plan.
pub(crate) async fn edit_plan(context: &Context, verb: EditPlan) -> Result<Exit, Failure> {
    let EditPlan { which, plan, revision, reason, request_id } = verb;
    let file = PlanFile::read(&plan).await?;
    let document = file.document();
    let execution = context
        .ask(Requirement::Records, async |client| {
            let name = lookup::resolve(client, &context.namespace, &which.id).await?;
            let request = UpdatePlanRequest {
                name: name.clone(),
                source: Some(Source::Document(document)),
                revision,
                reason,
                etag: String::new(),
                request_id,
            };
            match client.update_plan(request).await {
                Ok(answer) => Ok(answer.into_inner()),
                Err(status) => Err(refused_with_plan(client, &context.namespace, &status, &name, Some(&file)).await),
            }
        })
        .await?;
    context.screen.show(&execution, || execution::summary(&execution, clock::now()))?;
    Ok(Exit::OK)
}
