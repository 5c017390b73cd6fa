//! Starts an execution from the state of another.

use std::{collections::BTreeMap, sync::Arc};

use belay_defects::{Defect, is_planted};
use belay_execution::{
    Actor, Amounts, ApprovalMode, Body, CarriedOver, Created, Event, Execution, ExecutionEvent, Json, PauseCause,
    Refused, StepEvent, StepId, Workspace, digest,
};
use belay_journal::{NewExecution, Refused as NotStored, StartRequest};
use belay_plan::Plan;
use belay_proto::{payload::MAX_INLINE_BYTES, v1};
use belay_reasons as reasons;
use belay_service_kit::{Principal, check_decides, status};
use prost::Message as _;
use tonic::{Code, Request, Status};

use super::{
    fork_turn::{self as turn, OfTurn},
    requests::{check, check_may_control},
    start_execution::{check_id, create, described, or_started_before, room},
};
use crate::{
    ExecutionRegistry,
    driver::life::FirstEvents,
    intake::submitted::{Source, accepted, limits_of, shared_folder},
    names::{ExecutionName, shard_of},
    observe::trace,
    wire,
};

/// The bytes of all outputs that a fork takes over: they are stored with its first events.
const MAX_KEPT_BYTES: u64 = 16 << 20;

pub(super) async fn fork_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::ForkExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let (request_id, request_hash) = (request.get_ref().request_id.clone(), hash(request.get_ref()));
    let origin = ExecutionName::parse("name", &request.get_ref().name)?;
    match fork(registry, &caller, &origin, request, request_hash.clone()).await {
        Err(refused) => {
            let (namespace, principal, at) = (origin.namespace, caller.to_string(), registry.now().as_micros());
            let request = StartRequest { namespace, principal, id: request_id, hash: request_hash, at };
            or_started_before(registry, request, refused).await
        }
        forked => forked,
    }
}

async fn fork(
    registry: &Arc<ExecutionRegistry>,
    caller: &Principal,
    origin: &ExecutionName,
    request: Request<v1::ForkExecutionRequest>,
    request_hash: String,
) -> Result<v1::Execution, Status> {
    let uid = registry.ids.next_id();
    let trace = trace::initial_trace(&registry.reading.telemetry, request.metadata(), &uid);
    let request = request.into_inner();
    let v1::ForkExecutionRequest { execution_id, from_step, workspace, start_paused, reason, request_id, .. } = request;
    let v1::ForkExecutionRequest { after_turn, model, on_current_files, .. } = request;
    registry.check_capacity()?;
    check_id(&execution_id)?;
    for (field, text) in [("from_step", &from_step), ("reason", &reason), ("request_id", &request_id)] {
        check(field, text)?;
    }
    let turn = turn::of_request(&from_step, after_turn, &model, on_current_files)?;
    let row = registry.reading.follower.find(origin).await?;
    check_may_control(caller, &row.execution.principal)?;
    let from = Some(from_step).filter(|step| !step.is_empty()).map(StepId::from);
    let why = match reason.as_str() {
        "" => format!("taken over from `{origin}`"),
        reason => format!("taken over from `{origin}`: {reason}"),
    };
    let of_origin = registry.reads.replay(row.key).await?;
    let mut begun = begun(origin, &of_origin.execution, from.as_ref(), &why)?;
    if begun.approval_mode == ApprovalMode::Auto {
        check_decides(caller, "A fork of an execution whose approvals are decided by the policy (approval_mode AUTO)")?;
    }
    let catalogue = registry.runner.catalogue(false).await?;
    // The tools may be others by now.
    let mut plan = wire::plan_message(&begun.plan);
    if let Some(step) = from.as_ref().filter(|_| !model.is_empty()) {
        turn::ask(&mut plan, step, model)?;
    }
    let (plan, tools) = accepted(registry, &Source::Message(plan)).await?;
    let workspace = match workspace.as_str() {
        "" => begun.workspace.clone(),
        _ => Workspace::Directory(registry.runner.check_workspace(workspace).await?),
    };
    if let Some((step, turn)) = from.as_ref().zip(turn) {
        let is_same_folder = workspace == begun.workspace;
        let of_turn = OfTurn { step, turn, origin, key: row.key, is_same_folder, on_current_files };
        let carried = of_turn.carried(registry, &of_origin, &plan, &why).await?;
        begun.taken_over.push(carried);
    }
    // All of them: a conversation, a layer or an output may have one in any spelling, and no schema of the fork says that it is one.
    let secrets = of_origin.secrets.known().map(str::to_owned).collect();
    let folder = shared_folder(&workspace);

    let now = registry.now();
    let principal = caller.to_string();
    let namespace = origin.namespace.clone();
    let id = if execution_id.is_empty() { registry.ids.next_id() } else { execution_id };
    let shard = shard_of(&namespace, &id);
    let row = NewExecution {
        namespace,
        id,
        shard,
        created_at: now.as_micros(),
        plan_id: plan.id().to_owned(),
        labels: begun.labels.clone(),
        principal: principal.clone(),
        request_id: request_id.clone(),
        request_hash,
        parent: None,
    };
    let steps = room(registry, &row, &plan)?;
    let limits = limits_of(registry, &plan, &begun.inputs)?;
    let created = Created {
        uid,
        deadline: plan.timeout().map(|timeout| now.saturating_add(timeout)),
        start_at: None,
        inputs: begun.inputs,
        plan,
        approval_mode: begun.approval_mode,
        workspace,
        labels: begun.labels,
        tools,
        trace,
        shard,
        parent_step: String::new(),
        forked_from: origin.to_string(),
        allotment: None,
        spent: begun.spent,
        limits,
    };
    let by = Actor::new(principal.clone());
    let first = Event {
        sequence: 1,
        time: now,
        actor: Some(Actor { principal, request_id }),
        body: ExecutionEvent::Created(Box::new(created)).into(),
    };
    let paused = start_paused.then(|| {
        ExecutionEvent::Paused { reason, discard_calls: false, resume_at: None, cause: PauseCause::Request }.into()
    });
    let then = begun.taken_over.into_iter().chain(paused).map(|body| (by.clone(), body)).collect();
    let begin = FirstEvents { created: first, then, secrets };
    let created = create(registry, row, folder, begin, catalogue.ledger_id.as_str().into(), steps).await?;
    if let Err(NotStored::FolderGone(_)) = created {
        let message =
            format!("Execution `{}` was deleted meanwhile, and its folder with it; nothing was started.", origin.id);
        let gone = status::error(Code::NotFound, reasons::EXECUTION_NOT_FOUND, message);
        return Err(gone.with("name", origin).into());
    }
    described(registry, created).await
}

/// With what a fork begins.
struct Begun {
    plan: Plan,
    inputs: Json,
    labels: BTreeMap<String, String>,
    workspace: Workspace,
    approval_mode: ApprovalMode,
    taken_over: Vec<Body>,
    /// The amounts that are used of the budget with which it begins.
    spent: Amounts,
}

fn begun(origin: &ExecutionName, execution: &Execution, from: Option<&StepId>, why: &str) -> Result<Begun, Status> {
    let kept = execution.carried_over_by_fork(from).map_err(|refused| match refused {
        Refused::NoStep(step) => {
            let message = format!("Execution `{}` has no step `{step}`.", origin.id);
            Status::from(status::error(Code::NotFound, reasons::STEP_NOT_FOUND, message))
        }
        _ => {
            let message = format!(
                "Every step of execution `{}` has completed, and nothing would run: name the step from which to run (from_step).",
                origin.id
            );
            Status::from(status::error(Code::FailedPrecondition, reasons::NOTHING_TO_RETRY, message))
        }
    })?;
    let (mut taken_over, mut bytes) = (Vec::with_capacity(kept.len()), 0);
    for (step, kept) in kept.into_iter().skip(usize::from(is_planted(Defect::ForkForgetsOutput))) {
        let event = match kept {
            CarriedOver::Skipped => StepEvent::SkipRequested { reason: why.to_owned() },
            CarriedOver::Output(output) => {
                bytes += output.size();
                let inline = output.inline().filter(|_| bytes <= MAX_KEPT_BYTES).ok_or_else(|| {
                    let message = format!(
                        "the output of step `{step}` cannot be taken over: each may have {MAX_INLINE_BYTES} bytes, and all together {MAX_KEPT_BYTES}. \
                         Fork from this step, or from one before it"
                    );
                    Status::from(status::invalid("from_step", message))
                })?;
                let source = execution.step_key(step.as_str()).and_then(|key| execution.step(key).cached_from());
                let cached = source.map(|source| match source.execution.as_str() {
                    "" => "; there it was an earlier result".to_owned(),
                    execution => format!("; there it was an earlier result, of `{execution}`"),
                });
                StepEvent::OutputSet { output: inline.clone(), reason: format!("{why}{}", cached.unwrap_or_default()) }
            }
        };
        taken_over.push(Body::Step { step: step.clone(), attempt: 0, event });
    }
    let created = execution.created();
    Ok(Begun {
        plan: execution.plan().clone(),
        inputs: created.inputs.clone(),
        labels: created.labels.clone(),
        workspace: created.workspace.clone(),
        approval_mode: created.approval_mode,
        taken_over,
        spent: execution.spent(),
    })
}

/// The hash that identifies a request: everything but the request id.
fn hash(request: &v1::ForkExecutionRequest) -> String {
    let request = v1::ForkExecutionRequest { request_id: String::new(), ..request.clone() };
    digest(&request.encode_to_vec())
}
