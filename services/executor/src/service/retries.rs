//! Run steps again, skip or complete them by hand, and change what is still to run.

use std::sync::Arc;

use belay_execution::{Control, NewPlan, RetryChange, RetryRequest};
use belay_proto::v1::{self, update_plan_request::Source as UpdateSource};
use belay_service_kit::{Principal, status};
use tonic::{Request, Status};

use super::requests::{ask, check, check_may_control, inline_json};
use crate::{
    ExecutionRegistry,
    intake::submitted::{Source, accepted},
    names::{ExecutionName, step_name},
};

pub(super) async fn retry_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::RetryExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::RetryExecutionRequest {
        name,
        from_step,
        skip_failed,
        start_paused,
        plan,
        document,
        reason,
        etag,
        request_id,
    } = request.into_inner();
    check("reason", &reason)?;
    check("from_step", &from_step)?;
    let source = match (plan, document) {
        (None, None) => None,
        (Some(plan), None) => Some(Source::Message(plan)),
        (None, Some(document)) => Some(Source::Document(document)),
        (Some(_), Some(_)) => return Err(status::invalid("document", "is instead of `plan`: give one of them").into()),
    };
    let plan = match source {
        None => None,
        Some(source) => Some(new_plan(registry, &caller, &name, source).await?),
    };
    let from = Some(from_step).filter(|step| !step.is_empty()).map(Into::into);
    let plan_digest = plan.as_ref().map(NewPlan::digest).unwrap_or_default();
    let request = RetryRequest { from, skip_failed, start_paused, plan_digest, reason };
    ask(registry, &caller, &name, Control::Retry { request, plan }, etag, request_id).await
}

pub(super) async fn update_plan(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::UpdatePlanRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::UpdatePlanRequest { name, source, revision, reason, etag, request_id } = request.into_inner();
    check("reason", &reason)?;
    let source = match source {
        Some(UpdateSource::Plan(plan)) => Source::Message(plan),
        Some(UpdateSource::Document(document)) => Source::Document(document),
        None => return Err(status::invalid("plan", "is needed, as `plan` or as `document`").into()),
    };
    let revision = match revision.map(u32::try_from) {
        None => None,
        Some(Ok(revision)) => Some(revision),
        Some(Err(_)) => return Err(status::invalid("revision", "must not be negative").into()),
    };
    let plan = new_plan(registry, &caller, &name, source).await?;
    ask(registry, &caller, &name, Control::UpdatePlan { plan, revision, reason }, etag, request_id).await
}

/// A valid plan for an execution that the caller may control: no other caller learns what is wrong with a plan for it.
async fn new_plan(
    registry: &ExecutionRegistry,
    caller: &Principal,
    name: &str,
    source: Source,
) -> Result<NewPlan, Status> {
    let row = registry.reading.follower.find(&ExecutionName::parse("name", name)?).await?;
    check_may_control(caller, &row.execution.principal)?;
    let (plan, tools) = accepted(registry, &source).await?;
    // A caller that asks for a dry run must not get a real one.
    if plan.is_dry_run() {
        let message = "asks for a dry run, and this execution runs: take `dry_run` (`config.dryRun`) out of the plan";
        return Err(status::invalid("plan", message).into());
    }
    Ok(NewPlan { plan: Box::new(plan), tools })
}

pub(super) async fn retry_step(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::RetryStepRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::RetryStepRequest { name, change, reason, etag, request_id } = request.into_inner();
    check("reason", &reason)?;
    let change = match v1::RetryChange::try_from(change).unwrap_or_default() {
        v1::RetryChange::Now => RetryChange::Now,
        v1::RetryChange::Cancel => RetryChange::Cancel,
        v1::RetryChange::Fallback => RetryChange::Fallback,
        v1::RetryChange::Unspecified => return Err(status::invalid("change", "must be NOW, CANCEL or FALLBACK").into()),
    };
    let (execution, step) = step_name("name", &name)?;
    let control = Control::ChangeRetry { step: step.as_str().into(), change, reason };
    ask(registry, &caller, &execution.to_string(), control, etag, request_id).await
}

pub(super) async fn skip_step(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::SkipStepRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::SkipStepRequest { name, reason, etag, request_id } = request.into_inner();
    check("reason", &reason)?;
    let (execution, step) = step_name("name", &name)?;
    let control = Control::SkipStep { step: step.as_str().into(), reason };
    ask(registry, &caller, &execution.to_string(), control, etag, request_id).await
}

pub(super) async fn set_step_output(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::SetStepOutputRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::SetStepOutputRequest { name, output, reason, etag, request_id } = request.into_inner();
    check("reason", &reason)?;
    let output = inline_json("output", output)?;
    let (execution, step) = step_name("name", &name)?;
    let control = Control::SetStepOutput { step: step.as_str().into(), output, reason };
    ask(registry, &caller, &execution.to_string(), control, etag, request_id).await
}
