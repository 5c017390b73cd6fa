use std::{collections::HashMap, sync::Arc};

use belay_execution::{Actor, Created, Event, ExecutionEvent, ToolFacts, digest};
use belay_journal::{NewExecution, Refused};
use belay_plan::{Format, InvalidPlan, Plan, Planned, PlannedCall, StepProblem, Violation, limits, nearest};
use belay_proto::{
    runner_v1,
    v1::{self, start_execution_request::Source as StartSource, validate_plan_request::Source as ValidateSource},
};
use belay_reasons as reasons;
use belay_service_kit::{Principal, status};
use prost::Message as _;
use tonic::{Code, Request, Status};

use super::{get_execution::show, requests::check};
use crate::{
    ExecutionRegistry, conditions,
    driver::Driver,
    names::{ExecutionName, is_id, namespace, shard_of},
    paths::leaves_workspace,
    runner::{Catalogue, FoundTool},
    trace, wire,
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
    Ok(match checked(&source, &catalogue, &foreseen.refused) {
        Ok((plan, _)) => v1::ValidatePlanResponse {
            violations: Vec::new(),
            warnings: violations(registry, located(&source, foreseen.warnings)),
            plan: Some(registry.vault.plan(wire::plan_message(&plan))),
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
    /// By step: why the runner refuses the call.
    refused: HashMap<usize, Vec<StepProblem>>,
    /// Problems that may be gone when the call is made.
    warnings: Vec<StepProblem>,
}

/// Lets the runner check every call that can be read, whatever else is wrong with the plan.
async fn foreseen(registry: &ExecutionRegistry, source: &Source) -> ForeseenProblems {
    let (mut calls, mut planned) = (Vec::new(), Vec::new());
    let collect = |of_plan: Planned<'_>| {
        if let Planned::Call(call) = of_plan
            && let Some(arguments) = call.arguments
        {
            // The value of a template is not known yet.
            calls.push((call.step, arguments.reference_paths()));
            let arguments = v1::payload::Content::Json(arguments.source().to_string());
            let arguments = Some(v1::Payload { content: Some(arguments) });
            planned.push(runner_v1::PlannedCall { tool: call.tool.to_owned(), arguments });
        }
        Vec::new()
    };
    // Violations are collected later, together with the runner's.
    drop(plan_with(source, collect));
    let mut found = ForeseenProblems::default();
    for problem in registry.runner.check_calls(planned).await {
        let call = usize::try_from(problem.call).ok().and_then(|call| calls.get(call));
        let Some((step, _)) = call.filter(|(_, templates)| !templates.contains(&problem.pointer)) else { continue };
        let pointer = format!("/arguments{}", problem.pointer);
        let step_problem = StepProblem { step: *step, pointer, message: problem.message };
        if problem.refused {
            found.refused.entry(*step).or_default().push(step_problem);
        } else if found.warnings.len() < limits::MAX_VIOLATIONS {
            found.warnings.push(step_problem);
        }
    }
    found
}

/// Violations as a client gets them: a message may quote the plan.
fn violations(registry: &ExecutionRegistry, violations: Vec<Violation>) -> Vec<v1::PlanViolation> {
    shown(registry, InvalidPlan { violations }).violations.into_iter().map(violation).collect()
}

/// Locates problems in the author's document.
fn located(source: &Source, problems: Vec<StepProblem>) -> Vec<Violation> {
    match source {
        Source::Document(document) => StepProblem::locate(format_of(document), &document.text, problems),
        Source::Message(_) => problems.into_iter().map(Violation::from).collect(),
    }
}

fn format_of(document: &v1::PlanDocument) -> Format {
    match document.format() {
        v1::PlanFormat::Unspecified => Format::Auto,
        v1::PlanFormat::Yaml => Format::Yaml,
        v1::PlanFormat::Json => Format::Json,
    }
}

pub(super) async fn start_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::StartExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let principal = Principal::of(&request)?.to_string();
    let uid = registry.ids.next_id();
    let trace = trace::initial_trace(&registry.telemetry, request.metadata(), &uid);
    let request = request.into_inner();
    let request_hash = hash(&request);
    let mode = request.approval_mode();
    let v1::StartExecutionRequest {
        parent,
        execution_id,
        source,
        request_id,
        validate_only,
        labels,
        workspace,
        start_paused,
        ..
    } = request;

    if !validate_only {
        registry.check_capacity()?;
    }
    let namespace = namespace("parent", &parent)?;
    if !execution_id.is_empty() && !is_id(&execution_id) {
        let message = format!(
            "`{execution_id}` is not valid: use 1 to 64 lower-case letters, digits and `-`, beginning with a letter or a digit"
        );
        return Err(status::invalid("execution_id", message).into());
    }
    check("request_id", &request_id)?;
    check_labels(registry, &labels)?;
    let source = match source {
        Some(StartSource::Plan(plan)) => Source::Message(plan),
        Some(StartSource::Document(document)) => Source::Document(document),
        None => return Err(status::invalid("plan", "is needed, as `plan` or as `document`").into()),
    };
    let catalogue = registry.runner.catalogue(false).await?;
    let none = HashMap::new();
    let (plan, tools) = match checked(&source, &catalogue, &none) {
        Ok(checked) => checked,
        // A tool may have come since the catalogue was read.
        Err(_) => checked(&source, registry.runner.catalogue(true).await?.as_ref(), &none)
            .map_err(|invalid| refusal(shown(registry, invalid)))?,
    };

    let workspace = match workspace.as_str() {
        "" => workspace,
        _ => registry.runner.check_workspace(workspace).await?,
    };

    let now = registry.now();
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
    };
    let created = Created {
        uid,
        deadline: plan.timeout().map(|timeout| now.saturating_add(timeout)),
        plan,
        approval_mode: wire::approval_mode(mode),
        workspace,
        labels,
        tools,
        trace,
        shard,
    };
    let actor = Actor { principal, request_id: row.request_id.clone() };
    let body = ExecutionEvent::Created(Box::new(created)).into();
    let first = Event { sequence: 1, time: now, actor: Some(actor.clone()), body };
    if validate_only {
        return preview(registry, &ExecutionName { namespace, id }, first);
    }
    let paused = ExecutionEvent::Paused { reason: "started paused".into(), discard_calls: false };
    let then = if start_paused { vec![(Actor::new(actor.principal), paused)] } else { Vec::new() };
    // A task of its own: a caller that disconnects between the commit and the registration must not leave an execution without a driver.
    let create = Driver::create(Arc::clone(registry), row, first, then, catalogue.ledger_id.as_str().into());
    let created = tokio::spawn(create).await;
    match created.map_err(|_| {
        Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping; retry."))
    })?? {
        Ok(described) => Ok(*described),
        Err(refused) => started_before(registry, refused).await,
    }
}

/// The execution as it would start.
fn preview(registry: &ExecutionRegistry, name: &ExecutionName, first: Event) -> Result<v1::Execution, Status> {
    let execution = belay_execution::Execution::create(first)
        .map_err(|illegal| Status::internal(format!("a new execution cannot begin: {illegal}")))?;
    Ok(registry.vault.secrets().summarize(name, &execution))
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
        Refused::Fenced { .. }
        | Refused::Gap { .. }
        | Refused::HasSealKey(_)
        | Refused::Missing(_)
        | Refused::NotEnded(_)
        | Refused::NotErased(_) => {
            return Err(
                status::error(Code::Aborted, reasons::FENCED, format!("Nothing was started: {refused}.")).into()
            );
        }
    };
    let row = registry
        .client_reads
        .read(move |reader| reader.get(existing))
        .await
        .map_err(|error| crate::journal_reads::unreadable(&error))?;
    let row = row.ok_or_else(|| Status::internal("the store names an execution that it does not have"))?;
    let name = ExecutionName { namespace: row.execution.namespace.clone(), id: row.execution.id.clone() };
    match reason {
        None => show(registry, &name, v1::ExecutionView::Basic).await,
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

enum Source {
    Message(v1::Plan),
    Document(v1::PlanDocument),
}

/// Reads and checks a plan, with what `check` finds in its calls and forms.
fn plan_with(source: &Source, check: impl FnMut(Planned<'_>) -> Vec<StepProblem>) -> Result<Plan, InvalidPlan> {
    match source {
        Source::Message(plan) => wire::checked_plan_from(plan.clone(), check),
        Source::Document(document) => Plan::parse_with(format_of(document), &document.text, check),
    }
}

/// Checks a plan against these tools, and returns it with the facts about them. The error has all violations; `refused` has those of the runner,
/// by step.
fn checked(
    source: &Source,
    catalogue: &Catalogue,
    refused: &HashMap<usize, Vec<StepProblem>>,
) -> Result<(Plan, Vec<ToolFacts>), InvalidPlan> {
    let mut tools = Vec::<ToolFacts>::new();
    let plan = plan_with(source, |planned| {
        let call = match planned {
            Planned::Call(call) => call,
            Planned::Condition { step, condition } => {
                return conditions::problem(step, condition).into_iter().collect();
            }
            Planned::Form { step, schema } => return problems_of_form(step, schema).into_iter().collect(),
        };
        let mut problems = problems_of_call(&call, catalogue, &mut tools);
        problems.extend(refused.get(&call.step).into_iter().flatten().cloned());
        problems
    })?;
    Ok((plan, tools))
}

/// The problem of a form's schema, if it is none.
fn problems_of_form(step: usize, schema: &serde_json::Value) -> Option<StepProblem> {
    let invalid = belay_json_schema::Schema::of_form(schema).err()?;
    let pointer = format!("/wait/form/schema{}", invalid.pointer);
    Some(StepProblem { step, pointer, message: invalid.to_string() })
}

/// The problems of a step's call with its tool; adds the facts about the tool to `tools`.
fn problems_of_call(call: &PlannedCall<'_>, catalogue: &Catalogue, tools: &mut Vec<ToolFacts>) -> Vec<StepProblem> {
    let step = call.step;
    let Some(found) = catalogue.find(call.tool) else {
        let did_you_mean = nearest(call.tool, catalogue.names()).map(|name| format!("; did you mean `{name}`?"));
        let message = format!("Tool '{}' not found{}", call.tool, did_you_mean.unwrap_or_default());
        return vec![StepProblem { step, pointer: "/tool".into(), message }];
    };
    let FoundTool { tool, schema, path_arguments } = found;
    if !tools.iter().any(|facts| facts.used_as == call.tool) {
        tools.push(ToolFacts {
            used_as: call.tool.to_owned(),
            tool: tool.name.clone(),
            recovery: wire::recovery_from(tool.recovery()),
            default_timeout: tool.default_timeout.as_ref().and_then(belay_proto::to_duration).unwrap_or_default(),
        });
    }
    let Some(arguments) = call.arguments else { return Vec::new() };
    let templates = arguments.reference_paths();
    let violations = schema.into_iter().flat_map(|schema| schema.violations_except(arguments.source(), &templates));
    let mut problems: Vec<_> = violations.flat_map(|violation| problems_of(step, violation, tool)).collect();
    for name in path_arguments {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let path = arguments.source()[name.as_str()].as_str().filter(|_| !templates.contains(&pointer));
        problems.extend(path.and_then(|path| {
            let message = format!("`{path}` {}", leaves_workspace(path)?);
            Some(StepProblem { step, pointer: format!("/arguments{pointer}"), message })
        }));
    }
    problems
}

/// The problems of one schema violation: each unknown argument by its name, with the most similar known one.
fn problems_of(step: usize, violation: belay_json_schema::Violation, tool: &v1::Tool) -> Vec<StepProblem> {
    let at = format!("/arguments{}", violation.pointer);
    if violation.unknown.is_empty() {
        return vec![StepProblem { step, pointer: at, message: violation.message }];
    }
    let schema: serde_json::Value = serde_json::from_str(&tool.parameters_schema).unwrap_or_default();
    // Members of nested objects are described elsewhere in the schema.
    let known = schema["properties"].as_object().filter(|_| violation.pointer.is_empty());
    let problem = |name: String| {
        let names = known.into_iter().flat_map(|known| known.keys().map(String::as_str));
        let did_you_mean = nearest(&name, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        let pointer = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        StepProblem { step, pointer, message: format!("{} takes no `{name}` here{did_you_mean}", tool.name) }
    };
    violation.unknown.into_iter().map(problem).collect()
}

/// Hides secrets in a refusal, which quotes the plan.
fn shown(registry: &ExecutionRegistry, mut invalid: InvalidPlan) -> InvalidPlan {
    for violation in &mut invalid.violations {
        violation.message = registry.vault.shown(std::mem::take(&mut violation.message));
        violation.field = registry.vault.shown(std::mem::take(&mut violation.field));
    }
    invalid
}

fn refusal(invalid: InvalidPlan) -> Status {
    let count = invalid.violations.len();
    let first = &invalid.violations[0];
    let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
    let message = format!("The plan is not valid: {}: {}{more}", first.field, first.message);
    let mut error = status::error(Code::InvalidArgument, reasons::PLAN_REFUSED, message);
    for Violation { field, message, line, column } in invalid.violations {
        let place = if line > 0 { format!(" (line {line}, column {column})") } else { String::new() };
        error = error.field(field, format!("{message}{place}"));
    }
    error.into()
}

fn violation(Violation { field, message, line, column }: Violation) -> v1::PlanViolation {
    let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    v1::PlanViolation { field, message, line: number(line), column: number(column) }
}

fn check_labels(
    registry: &ExecutionRegistry,
    labels: &std::collections::BTreeMap<String, String>,
) -> Result<(), Status> {
    if labels.len() > 64 {
        return Err(status::invalid("labels", format!("has {} entries and the limit is 64", labels.len())).into());
    }
    for (key, value) in labels {
        let field = || registry.vault.shown(format!("labels[{key:?}]"));
        if key.is_empty() || key.len() > 63 || value.len() > 255 {
            return Err(status::invalid(&field(), "a key must have 1 to 63 bytes and a value at most 255").into());
        }
        if key.chars().chain(value.chars()).any(char::is_control) {
            return Err(status::invalid(&field(), "must not contain control characters").into());
        }
    }
    Ok(())
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
        ];
        for other in &others {
            assert_ne!(hash(other), hash(&request), "{other:?}");
        }
        let again = v1::StartExecutionRequest { request_id: "s".into(), ..request.clone() };
        assert_eq!(hash(&again), hash(&request));
    }
}
