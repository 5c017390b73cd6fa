use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_execution::{Actor, Created, Event, ExecutionEvent, PauseCause, Timestamp, Workspace, digest};
use belay_journal::{Folder, NewExecution, Refused, StartRequest};
use belay_plan::{
    CallPlace, Plan, PlanPart, StepProblem, label_problem,
    limits::{self, MAX_INPUT_BYTES},
};
use belay_proto::{
    runner_v1,
    v1::{self, start_execution_request::Source as StartSource, validate_plan_request::Source as ValidateSource},
};
use belay_reasons as reasons;
use belay_service_kit::{Principal, check_decides, status};
use prost::Message as _;
use tonic::{Code, Request, Status};

use super::{
    get_execution::show,
    planned_calls::planned_calls,
    requests::{check, json_within},
};
use crate::{
    ExecutionRegistry,
    driver::Driver,
    driver::life::FirstEvents,
    intake::submitted::{
        CallKey, Source, accepted, checked, inputs_of, key_of, limits_of, located, plan_with, violations,
        with_labels_of,
    },
    names::{ExecutionName, is_id, namespace, shard_of},
    observe::trace,
    owned::steps_in_memory::{Owner, StepShare, too_many_steps},
    store::{marks, secrets::shown},
    wire,
};

pub(super) async fn validate_plan(
    registry: &Arc<ExecutionRegistry>,
    request: v1::ValidatePlanRequest,
) -> Result<v1::ValidatePlanResponse, Status> {
    namespace("parent", &request.parent)?;
    let source = match request.source {
        Some(ValidateSource::Plan(plan)) => Source::Message(plan),
        Some(ValidateSource::Document(document)) => Source::Document(document),
        None => return Err(status::invalid("plan", "is needed, as `plan` or as `document`").into()),
    };
    let catalogue = registry.runner.catalogue(true).await?;
    let foreseen = foreseen(registry, &source).await;
    Ok(match checked(&source, &catalogue, &registry.models, &foreseen.refused) {
        Ok((plan, _)) => v1::ValidatePlanResponse {
            violations: Vec::new(),
            warnings: violations(registry, located(&source, foreseen.warnings)),
            plan: Some(registry.reading.sealer.plan(wire::plan_message(&plan))),
        },
        Err(invalid) => v1::ValidatePlanResponse {
            violations: violations(registry, invalid.violations),
            warnings: Vec::new(),
            plan: None,
        },
    })
}

/// Problems of a plan's calls that the tool runner finds before any of them is made.
#[derive(Default)]
struct ForeseenProblems {
    /// By call: why the runner refuses it.
    refused: HashMap<CallKey, Vec<StepProblem>>,
    /// Problems that may be gone when the call is made.
    warnings: Vec<StepProblem>,
}

/// Lets the runner check every call that can be read, whatever else is wrong with the plan.
async fn foreseen(registry: &ExecutionRegistry, source: &Source) -> ForeseenProblems {
    let (mut calls, mut planned) = (Vec::new(), Vec::new());
    let catalogue = registry.runner.catalogue(false).await.ok();
    let takes_network = |tool: &str| catalogue.as_ref().is_some_and(|catalogue| catalogue.takes_network(tool));
    let collect = |of_plan: PlanPart<'_>| {
        if let PlanPart::Call(call) = of_plan
            && let Some(arguments) = call.arguments
        {
            // The value of a template is not known yet.
            let has_network_of_plan = call.network.is_none() && call.network_of_plan.is_some();
            calls.push((key_of(&call), arguments.reference_paths(), has_network_of_plan));
            let arguments = v1::payload::Content::Json(arguments.source().to_string());
            let arguments = Some(v1::Payload { content: Some(arguments) });
            let network = call.network_asked(takes_network(call.tool)).unwrap_or_default().to_owned();
            let is_own = matches!(call.place, CallPlace::Own | CallPlace::Listed(_));
            planned.push(runner_v1::PlannedCall { tool: call.tool.to_owned(), arguments, network, is_own });
        }
        Vec::new()
    };
    // Violations are collected later, together with the runner's.
    drop(plan_with(source, collect));
    let mut found = ForeseenProblems::default();
    // A wrong network of a plan is told once, as it is written once.
    let mut of_plans = HashSet::new();
    for problem in registry.runner.check_calls(planned, String::new()).await.problems {
        let call = usize::try_from(problem.call).ok().and_then(|call| calls.get(call));
        let of_template = |templates: &[String]| !problem.of_network && templates.contains(&problem.pointer);
        let Some((call, _, has_network_of_plan)) = call.filter(|(_, templates, _)| !of_template(templates)) else {
            continue;
        };
        let mut message = problem.message;
        if problem.of_network && *has_network_of_plan {
            if !of_plans.insert(message.clone()) {
                continue;
            }
            message.push_str(" (the plan's `network`)");
        }
        let (step, within, place) = call;
        let pointer = match problem.of_network {
            true => "/network".to_owned(),
            false => place.pointer(&format!("/arguments{}", problem.pointer)),
        };
        let pointer = format!("{within}{pointer}");
        let step_problem = StepProblem { step: *step, pointer, message };
        if problem.refused {
            found.refused.entry(call.clone()).or_default().push(step_problem);
        } else if found.warnings.len() < limits::MAX_VIOLATIONS {
            found.warnings.push(step_problem);
        }
    }
    found
}

pub(super) async fn start_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::StartExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let (request_id, parent) = (request.get_ref().request_id.clone(), request.get_ref().parent.clone());
    let (request_hash, is_start) = (hash(request.get_ref()), !request.get_ref().validate_only);
    let started = start(registry, &caller, request, request_hash.clone()).await;
    match (started, namespace("parent", &parent)) {
        (Err(refused), Ok(namespace)) if is_start => {
            let principal = caller.to_string();
            let at = registry.now().as_micros();
            let request = StartRequest { namespace, principal, id: request_id, hash: request_hash, at };
            or_started_before(registry, request, refused).await
        }
        (started, _) => started,
    }
}

async fn start(
    registry: &Arc<ExecutionRegistry>,
    caller: &Principal,
    request: Request<v1::StartExecutionRequest>,
    request_hash: String,
) -> Result<v1::Execution, Status> {
    let principal = caller.to_string();
    let uid = registry.ids.next_id();
    let trace = trace::initial_trace(&registry.reading.telemetry, request.metadata(), &uid);
    let request = request.into_inner();
    let mode = request.approval_mode();
    if mode == v1::ApprovalMode::Auto && !is_planted(Defect::AutoForEveryone) {
        check_decides(caller, "An execution whose approvals are decided by the policy (approval_mode AUTO)")?;
    }
    let v1::StartExecutionRequest {
        parent,
        execution_id,
        source,
        request_id,
        validate_only,
        labels,
        workspace,
        start_paused,
        inputs,
        start_time,
        step_timeout,
        ..
    } = request;

    if !validate_only {
        registry.check_capacity()?;
    }
    let namespace = namespace("parent", &parent)?;
    check_id(&execution_id)?;
    check("request_id", &request_id)?;
    check_labels(registry, &labels)?;
    let source = match source {
        Some(StartSource::Plan(plan)) => Source::Message(plan),
        Some(StartSource::Document(document)) => Source::Document(document),
        None => return Err(status::invalid("plan", "is needed, as `plan` or as `document`").into()),
    };
    let catalogue = registry.runner.catalogue(false).await?;
    let (plan, tools) = accepted(registry, &source).await?;
    let plan = match step_timeout {
        None => plan,
        Some(timeout) => plan.with_step_timeout(step_timeout_of(timeout)?),
    };
    let validate_only = validate_only || plan.is_dry_run();
    let labels = with_labels_of(&plan, labels);
    check_labels(registry, &labels)?;
    let inputs = json_within("inputs", inputs, 2 * MAX_INPUT_BYTES, "{}")?;
    let inputs = inputs_of(registry, &plan, inputs)?;
    let limits = limits_of(registry, &plan, &inputs)?;

    let directory = match workspace.as_str() {
        "" => None,
        _ => Some(registry.runner.check_workspace(workspace).await?),
    };

    let planned_calls = match validate_only {
        true => planned_calls(registry, &namespace, &plan, &inputs).await,
        false => Vec::new(),
    };
    let now = registry.now();
    let start_at = start_time.as_ref().map(|time| Timestamp::from_micros(belay_proto::micros(time)));
    let start_at = start_at.filter(|at| *at > now);
    if start_at.is_some_and(|at| at.since(now) > limits::MAX_DURATION) {
        return Err(status::invalid("start_time", "must be at most 365 days from now").into());
    }
    let id = if execution_id.is_empty() { registry.ids.next_id() } else { execution_id };
    let shard = shard_of(&namespace, &id);
    let row = NewExecution {
        namespace: namespace.clone(),
        id: id.clone(),
        shard,
        created_at: now.as_micros(),
        plan_id: plan.id().to_owned(),
        labels: labels.clone(),
        principal: principal.clone(),
        request_id,
        request_hash,
        parent: None,
    };
    let created = Created {
        uid,
        deadline: plan.timeout().map(|timeout| start_at.unwrap_or(now).saturating_add(timeout)),
        start_at,
        inputs,
        plan,
        approval_mode: wire::approval_mode(mode),
        workspace: directory.map_or_else(|| Workspace::MadeFolder(id.clone()), Workspace::Directory),
        labels,
        tools,
        trace,
        shard,
        parent_step: String::new(),
        forked_from: String::new(),
        allotment: None,
        spent: belay_execution::Amounts::default(),
        limits,
    };
    let actor = Actor { principal, request_id: row.request_id.clone() };
    let first = |created: Created| {
        let body = ExecutionEvent::Created(Box::new(created)).into();
        Event { sequence: 1, time: now, actor: Some(actor.clone()), body }
    };
    if validate_only {
        return preview(registry, &ExecutionName { namespace, id }, first(created), planned_calls);
    }
    let paused = ExecutionEvent::Paused {
        reason: "started paused".into(),
        discard_calls: false,
        resume_at: None,
        cause: PauseCause::Request,
    };
    let then = if start_paused { vec![(Actor::new(actor.principal.clone()), paused.into())] } else { Vec::new() };
    let ledger_id: Arc<str> = catalogue.ledger_id.as_str().into();
    let Workspace::MadeFolder(folder) = &created.workspace else {
        let steps = room(registry, &row, &created.plan)?;
        let created = create(registry, row, None, (first(created), then).into(), ledger_id, steps).await?;
        return described(registry, created).await;
    };
    // A fork of a deleted execution with this id may work in the folder with this id.
    let other_folder = format!("{id}.{}", created.uid);
    let elsewhere = Created { workspace: Workspace::MadeFolder(other_folder.clone()), ..created.clone() };
    let folder = Some(Folder::New(folder.clone()));
    let steps = room(registry, &row, &created.plan)?;
    let (created, ledger) = (first(created), Arc::clone(&ledger_id));
    let created = create(registry, row.clone(), folder, (created, then.clone()).into(), ledger, steps).await?;
    let created = match created {
        Err(Refused::FolderInUse(_)) => {
            let (folder, steps) = (Some(Folder::New(other_folder)), room(registry, &row, &elsewhere.plan)?);
            create(registry, row, folder, (first(elsewhere), then).into(), ledger_id, steps).await?
        }
        created => created,
    };
    described(registry, created).await
}

/// Refuses an id that no execution can have; an empty one is chosen by the executor.
pub(super) fn check_id(execution_id: &str) -> Result<(), Status> {
    if execution_id.is_empty() || is_id(execution_id) {
        return Ok(());
    }
    let message = format!(
        "`{execution_id}` is not valid: use 1 to 64 lower-case letters, digits and `-`, beginning with a letter or a digit"
    );
    Err(status::invalid("execution_id", message).into())
}

/// Room for the steps of an execution in memory that is to start.
///
/// # Errors
/// RESOURCE_EXHAUSTED with a delay while others have it; INVALID_ARGUMENT when the plan has more steps than one execution may have.
pub(super) fn room(registry: &ExecutionRegistry, row: &NewExecution, plan: &Plan) -> Result<StepShare, Status> {
    let tree = ExecutionName { namespace: row.namespace.clone(), id: row.id.clone() }.to_string().into();
    let (mut share, steps) = (registry.steps.enter(Owner::of(&row.principal, tree, plan)), plan.steps().len());
    if steps > share.most() {
        return Err(status::invalid("plan", too_many_steps(steps, share.most())).into());
    }
    if share.ask(steps) { Ok(share) } else { Err(registry.steps.reached()) }
}

/// Stores an execution with its first events, and starts its driver.
pub(super) async fn create(
    registry: &Arc<ExecutionRegistry>,
    row: NewExecution,
    folder: Option<Folder>,
    begin: FirstEvents,
    ledger_id: Arc<str>,
    steps: StepShare,
) -> Result<Result<Box<v1::Execution>, Refused>, Status> {
    // A task of its own: a caller that disconnects between the commit and the registration must not leave an execution without a driver.
    let create = Driver::create(Arc::clone(registry), row, folder, begin, ledger_id, steps);
    tokio::spawn(create).await.map_err(|_| {
        Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping; retry."))
    })?
}

/// The reply about an execution that was created. A repeated request gets the execution that it has started.
pub(super) async fn described(
    registry: &Arc<ExecutionRegistry>,
    created: Result<Box<v1::Execution>, Refused>,
) -> Result<v1::Execution, Status> {
    match created {
        Ok(described) => Ok(*described),
        Err(refused) => started_before(registry, refused).await,
    }
}

/// The execution as it would start.
fn preview(
    registry: &ExecutionRegistry,
    name: &ExecutionName,
    first: Event,
    planned_calls: Vec<v1::PlannedCall>,
) -> Result<v1::Execution, Status> {
    let execution = belay_execution::Execution::create(first)
        .map_err(|illegal| Status::internal(format!("a new execution cannot begin: {illegal}")))?;
    let mut secrets = registry.reading.sealer.secrets();
    secrets.mark(marks::of_created(execution.created()));
    let planned_calls = planned_calls.into_iter().map(|call| shown(secrets.redactor(), call)).collect();
    Ok(v1::Execution { planned_calls, dry_run: true, ..secrets.summarize(name, &execution) })
}

/// Replies to a request that was refused: with the execution that it has started, if it is a repetition. Whatever refuses it now, such as a tool that
/// is gone, a deleted origin or a full executor, may not have been so when it came first, and a caller that lost the first reply would believe that
/// nothing runs.
pub(super) async fn or_started_before(
    registry: &Arc<ExecutionRegistry>,
    request: StartRequest,
    refused: Status,
) -> Result<v1::Execution, Status> {
    if request.id.is_empty() || is_planted(Defect::RepetitionRefused) {
        return Err(refused);
    }
    match registry.reading.follower.read(move |reader| reader.request_used(&request)).await {
        // Another request with the same id is told what is wrong with itself.
        Ok(None | Some(Refused::RequestIdUsed { same_request: false, .. })) | Err(_) => Err(refused),
        Ok(Some(used)) => started_before(registry, used).await,
    }
}

/// Replies to a repeated request with the execution that it started, and to any other request with the same name or request id with an
/// error that names the existing execution.
async fn started_before(registry: &Arc<ExecutionRegistry>, refused: Refused) -> Result<v1::Execution, Status> {
    let (existing, reason) = match &refused {
        Refused::IdTaken { existing, .. } => (*existing, Some(reasons::EXECUTION_EXISTS)),
        Refused::RequestIdUsed { existing, same_request: true } => (*existing, None),
        Refused::RequestIdUsed { existing, same_request: false } => (*existing, Some(reasons::REQUEST_ID_REUSED)),
        Refused::Damaged(row) => {
            let message = format!("Nothing was started: {row}.");
            return Err(status::error(Code::DataLoss, reasons::STORE_CORRUPT, message).into());
        }
        Refused::IdDeleted { id, reusable_at } => return Err(recently_deleted(registry, id, *reusable_at)),
        Refused::RequestDeleted { namespace, id } => {
            let name = ExecutionName { namespace: namespace.clone(), id: id.clone() };
            let message = format!(
                "Execution `{id}`, which this request has started, was deleted; nothing was started. Use a new request id to start another one."
            );
            let deleted = status::error(Code::NotFound, reasons::EXECUTION_DELETED, message);
            return Err(deleted.with("name", &name).into());
        }
        Refused::LimitFull { key } => return Err(limit_full(key)),
        Refused::FolderGone(_)
        | Refused::FolderInUse(_)
        | Refused::Fenced { .. }
        | Refused::Gap { .. }
        | Refused::HasSealKey(_)
        | Refused::Missing(_)
        | Refused::NotEnded(_)
        | Refused::Unrecorded { .. }
        | Refused::NotErased(_)
        | Refused::ScheduleChanged { .. }
        | Refused::OverBudget { .. } => {
            return Err(
                status::error(Code::Aborted, reasons::FENCED, format!("Nothing was started: {refused}.")).into()
            );
        }
    };
    let row = registry
        .reading
        .follower
        .row(existing)
        .await
        .map_err(|error| crate::store::journal_reads::unreadable(&error))?;
    let row = row.ok_or_else(|| Status::internal("the store names an execution that it does not have"))?;
    let name = ExecutionName { namespace: row.execution.namespace.clone(), id: row.execution.id.clone() };
    match reason {
        None => show(&registry.reading, &name, v1::ExecutionView::Basic).await,
        Some(reason) => {
            let message = match reason {
                reasons::EXECUTION_EXISTS => {
                    format!("Execution `{}` exists already; nothing was started. Choose another id.", name.id)
                }
                _ => format!(
                    "This request id started execution `{}` with another request; nothing was started. Use a new one.",
                    name.id
                ),
            };
            Err(status::error(Code::AlreadyExists, reason, message).with("existing", name).into())
        }
    }
}

/// The error of a start that a limit over executions refuses.
pub(crate) fn limit_full(key: &str) -> Status {
    let message = format!("The limit `{key}` is full, and the plan says `when_full: refuse`; nothing was started.");
    status::error(Code::ResourceExhausted, reasons::LIMIT_FULL, message).with("limit", key).into()
}

/// The error of an id whose execution was deleted, with when it can be used again.
fn recently_deleted(registry: &ExecutionRegistry, id: &str, reusable_at: Option<i64>) -> Status {
    let seconds =
        reusable_at.map(|at| at.saturating_sub(registry.now().as_micros()).max(0).saturating_add(999_999) / 1_000_000);
    let when = match seconds {
        None => "once the tool runner and the approval gate have forgotten it".to_owned(),
        Some(seconds @ ..=90) => format!("in {seconds} s"),
        Some(seconds) => format!("in {} min", (seconds + 59) / 60),
    };
    let message = format!(
        "Execution `{id}` was deleted, and its id can be used again {when}; nothing was started. Choose another id, or none."
    );
    status::error(Code::FailedPrecondition, reasons::EXECUTION_ID_DELETED, message).into()
}

fn check_labels(
    registry: &ExecutionRegistry,
    labels: &std::collections::BTreeMap<String, String>,
) -> Result<(), Status> {
    if labels.len() > limits::MAX_LABELS {
        let message = format!("has {} entries and the limit is {}", labels.len(), limits::MAX_LABELS);
        return Err(status::invalid("labels", message).into());
    }
    for (key, value) in labels {
        if let Some(problem) = label_problem(key, value) {
            return Err(status::invalid(&registry.reading.sealer.shown(format!("labels[{key:?}]")), problem).into());
        }
    }
    Ok(())
}

/// The time limit of steps that a start gives.
fn step_timeout_of(timeout: pbjson_types::Duration) -> Result<Duration, Status> {
    let read = belay_proto::to_duration(&timeout);
    let read = read.filter(|timeout| !timeout.is_zero() && *timeout <= limits::MAX_DURATION);
    read.ok_or_else(|| status::invalid("step_timeout", "must be longer than 0 and at most 365 days").into())
}

/// The hash that identifies a request: everything but the request id.
fn hash(request: &v1::StartExecutionRequest) -> String {
    let request = v1::StartExecutionRequest { request_id: String::new(), ..request.clone() };
    digest(&request.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same request id with another request is ALREADY_EXISTS, whatever is different.
    #[test]
    fn every_field_of_a_request_is_in_its_hash() {
        let document = |text: &str| v1::PlanDocument { text: text.into(), ..Default::default() };
        let source = |text| Some(v1::start_execution_request::Source::Document(document(text)));
        let request = v1::StartExecutionRequest { source: source("a"), request_id: "r".into(), ..Default::default() };
        let others = [
            v1::StartExecutionRequest { parent: "namespaces/n".into(), ..request.clone() },
            v1::StartExecutionRequest { execution_id: "e".into(), ..request.clone() },
            v1::StartExecutionRequest { source: source("b"), ..request.clone() },
            v1::StartExecutionRequest { validate_only: true, ..request.clone() },
            v1::StartExecutionRequest { labels: [("k".into(), "v".into())].into(), ..request.clone() },
            v1::StartExecutionRequest { approval_mode: v1::ApprovalMode::Skip.into(), ..request.clone() },
            v1::StartExecutionRequest { workspace: "/w".into(), ..request.clone() },
            v1::StartExecutionRequest { start_paused: true, ..request.clone() },
            v1::StartExecutionRequest { inputs: Some(v1::Payload::of_json("{}")), ..request.clone() },
            v1::StartExecutionRequest { start_time: Some(belay_proto::timestamp(1)), ..request.clone() },
            v1::StartExecutionRequest {
                step_timeout: Some(belay_proto::duration(Duration::from_secs(1))),
                ..request.clone()
            },
        ];
        for other in &others {
            assert_ne!(hash(other), hash(&request), "{other:?}");
        }
        let again = v1::StartExecutionRequest { request_id: "s".into(), ..request.clone() };
        assert_eq!(hash(&again), hash(&request));
    }
}
