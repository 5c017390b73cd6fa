//! Plans that clients submit: read, checked against the tools that there are, and refused with every violation.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

use belay_execution::{Json, ToolFacts, Workspace};
use belay_journal::Folder;
use belay_plan::{
    COMPLETION_TOOL, CallPlace, Format, InvalidPlan, LimitClaim, ModelPlace, Plan, PlanPart, PlannedCall, PlannedStep,
    StepProblem, Violation, nearest,
};
use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::{Code, Status};

use crate::{
    ExecutionRegistry,
    intake::{conditions, inputs, limits, paths::leaves_workspace},
    models::Models,
    runners::runner::{Catalogue, FoundTool},
    wire,
};

/// A plan that is valid with the tools that there are now, and the facts about them.
///
/// # Errors
/// INVALID_ARGUMENT with every violation; UNAVAILABLE when it is not known which tools there are.
pub(crate) async fn accepted(registry: &ExecutionRegistry, source: &Source) -> Result<(Plan, Vec<ToolFacts>), Status> {
    let none = HashMap::new();
    let models = &registry.models;
    match checked(source, registry.runner.catalogue(false).await?.as_ref(), models, &none) {
        Ok(checked) => Ok(checked),
        // A tool may have come since the catalogue was read.
        Err(_) => checked(source, registry.runner.catalogue(true).await?.as_ref(), models, &none)
            .map_err(|invalid| refusal(shown(registry, invalid))),
    }
}

/// The labels of an execution of a plan: the plan's, and those that are given, which hold where both have one.
pub(crate) fn with_labels_of(plan: &Plan, given: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut labels = plan.labels().clone();
    labels.extend(given);
    labels
}

/// The values of a plan's inputs: those of a request, and defaults.
///
/// # Errors
/// INVALID_ARGUMENT with every value that is missing, unknown or does not fit.
pub(crate) fn inputs_of(registry: &ExecutionRegistry, plan: &Plan, given: Json) -> Result<Json, Status> {
    let serde_json::Value::Object(given) = given.value() else {
        return Err(status::invalid("inputs", "must be a JSON object, with a value for each input").into());
    };
    let values = inputs::values(plan, given);
    let values = values.map_err(|violations| refusal(shown(registry, InvalidPlan { violations })))?;
    Ok(Json::canonical(&values.into()))
}

/// The limits over executions of an execution of this plan with these inputs.
///
/// # Errors
/// INVALID_ARGUMENT with every limit whose key cannot be made.
pub(crate) fn limits_of(registry: &ExecutionRegistry, plan: &Plan, inputs: &Json) -> Result<Vec<LimitClaim>, Status> {
    let is_secret = |key: &str| registry.reading.sealer.shown(key.to_owned()) != key;
    let claims = limits::claims(plan, inputs, is_secret);
    claims.map_err(|violations| refusal(shown(registry, InvalidPlan { violations })))
}

/// A plan as a client sends it.
pub(crate) enum Source {
    Message(v1::Plan),
    Document(v1::PlanDocument),
}

/// Reads and checks a plan, with what `check` finds in its calls and forms.
pub(crate) fn plan_with(
    source: &Source,
    check: impl FnMut(PlanPart<'_>) -> Vec<StepProblem>,
) -> Result<Plan, InvalidPlan> {
    match source {
        Source::Message(plan) => wire::checked_plan_from(plan.clone(), check),
        Source::Document(document) => Plan::parse_with(format_of(document), &document.text, check),
    }
}

/// Checks a plan against these tools, and returns it with the facts about them. The error has all violations; `refused` has those of the runner,
/// by call.
pub(crate) fn checked(
    source: &Source,
    catalogue: &Catalogue,
    models: &Models,
    refused: &HashMap<CallKey, Vec<StepProblem>>,
) -> Result<(Plan, Vec<ToolFacts>), InvalidPlan> {
    let mut tools = Vec::<ToolFacts>::new();
    let mut offered = HashMap::<(usize, String, String), String>::new();
    let plan = plan_with(source, |planned| {
        let call = match planned {
            PlanPart::Call(call) => call,
            PlanPart::Condition { step, place, condition } => {
                return conditions::problem(step, place, condition).into_iter().collect();
            }
            PlanPart::Output { step, schema } => {
                return conditions::problem_of_output(step, schema).into_iter().collect();
            }
            PlanPart::Model { step, model, has_cost_limit, place, .. } => {
                let problem = problem_of_model(step, (model, place), has_cost_limit, models);
                return problem.into_iter().collect();
            }
            PlanPart::Form { step, schema } => return problems_of_form(step, schema).into_iter().collect(),
        };
        let mut problems = problems_of_call(&call, catalogue, &mut tools);
        problems.extend(problem_of_offer(&call, catalogue, &mut offered));
        problems.extend(refused.get(&key_of(&call)).into_iter().flatten().cloned());
        problems
    })?;
    let violations = inputs::problems(&plan);
    if violations.is_empty() { Ok((plan, tools)) } else { Err(InvalidPlan { violations }) }
}

/// Identifies a call within a plan: the step, where in that step's plan the step of the call stands, and the call's place in that step.
pub(crate) type CallKey = (usize, String, CallPlace);

pub(crate) fn key_of(call: &PlannedCall<'_>) -> CallKey {
    (call.step.step, call.step.within.to_owned(), call.place)
}

/// The problem of a form's schema, if it is none.
fn problems_of_form(step: PlannedStep<'_>, schema: &serde_json::Value) -> Option<StepProblem> {
    let invalid = belay_json_schema::Schema::of_form(schema).err()?;
    Some(step.problem(&format!("/wait/form/schema{}", invalid.pointer), invalid.to_string()))
}

/// The problem of a model that cannot be asked, if it is one.
fn problem_of_model(
    step: PlannedStep<'_>,
    (name, place): (&str, ModelPlace),
    has_cost_limit: bool,
    models: &Models,
) -> Option<StepProblem> {
    let message = match models.get(name) {
        Some(model) if model.is_refused() => {
            format!(
                "the model `{name}` is not on this machine, and the settings say `local_only` or `air_gapped`: name one that is"
            )
        }
        Some(model) if has_cost_limit && model.model().price.is_none() => format!(
            "the model `{name}` has no price in the settings, and a budget limits what it may cost: add `models.{name}.price`, with 0 for what costs nothing, or limit `tokens` instead"
        ),
        Some(_) => return None,
        None => {
            let names = || models.iter().map(|known| known.model().name.as_str());
            let way_out = match (nearest(name, names()), names().next()) {
                (Some(near), _) => format!("; did you mean `{near}`?"),
                (None, Some(_)) => format!("; there are: {}", names().collect::<Vec<_>>().join(", ")),
                (None, None) => ": add it under `models` in the settings".to_owned(),
            };
            format!("there is no model `{name}`{way_out}")
        }
    };
    let field = match place {
        ModelPlace::Own => "/agent/model".to_owned(),
        ModelPlace::Fallback(place) => format!("/agent/fallback/{place}"),
        ModelPlace::Judge(check) => format!("{}/model", check.pointer()),
    };
    Some(step.problem(&field, message))
}

/// The problem of a tool that the model of its step could not tell from another, if it is one. `offered` has the tools so far, by their steps and the names that models know.
fn problem_of_offer(
    call: &PlannedCall<'_>,
    catalogue: &Catalogue,
    offered: &mut HashMap<(usize, String, String), String>,
) -> Option<StepProblem> {
    let CallPlace::Offered(_) = call.place else { return None };
    let name = belay_agent::offered_name(&catalogue.find(call.tool)?.tool.name);
    let tool = call.tool;
    if [COMPLETION_TOOL, belay_agent::READ_RESULT].contains(&name.as_str()) {
        let message =
            format!("the model would know `{tool}` as `{name}`, which it has anyway, for its own step: remove it here");
        return Some(call.problem("/tool", message));
    }
    let key = (call.step.step, call.step.within.to_owned(), name);
    match offered.entry(key) {
        Entry::Vacant(free) => {
            free.insert(tool.to_owned());
            None
        }
        Entry::Occupied(taken) => {
            let (name, other) = (&taken.key().2, taken.get());
            let message = format!(
                "the model would know `{tool}` as `{name}`, and it knows `{other}` by that name: remove it here"
            );
            Some(call.problem("/tool", message))
        }
    }
}

/// The problems of a step's call with its tool; adds the facts about the tool to `tools`.
fn problems_of_call(call: &PlannedCall<'_>, catalogue: &Catalogue, tools: &mut Vec<ToolFacts>) -> Vec<StepProblem> {
    let Some(found) = catalogue.find(call.tool) else {
        let way_out = match nearest(call.tool, catalogue.names()) {
            _ if let Some(server) = catalogue.problem_of_server(call.tool) => {
                format!(": the tools of the MCP server `{}` are not offered. {}", server.name, server.problem)
            }
            Some(name) => format!("; did you mean `{name}`?"),
            None => ": `belay tools list` shows the tools, and the settings can declare a program as one (`tools: {NAME: {command: […]}}`)".to_owned(),
        };
        let message = format!("Tool '{}' not found{way_out}", call.tool);
        return vec![call.problem("/tool", message)];
    };
    let FoundTool { tool, schema, path_arguments, secret_arguments, secret_result } = found;
    let place = tools.iter().position(|facts| facts.used_as == call.tool);
    let place = place.unwrap_or_else(|| {
        tools.push(ToolFacts {
            used_as: call.tool.to_owned(),
            tool: tool.name.clone(),
            recovery: wire::recovery_from(tool.recovery()),
            default_timeout: tool.default_timeout.as_ref().and_then(belay_proto::to_duration).unwrap_or_default(),
            secret_arguments: secret_arguments.to_vec(),
            secret_result: secret_result.to_vec(),
            takes_network: tool.takes_network,
            ..ToolFacts::default()
        });
        tools.len() - 1
    });
    if let CallPlace::Offered(_) = call.place {
        (tools[place].description, tools[place].parameters) =
            (tool.description.clone(), tool.parameters_schema.clone());
    }
    let Some(arguments) = call.arguments else { return Vec::new() };
    let templates = arguments.reference_paths();
    // A template of the argument, or around it, may bring in another program.
    let is_known = |pointer: &str| {
        let is_around = |template: &String| format!("{pointer}/").starts_with(&format!("{template}/"));
        !templates.iter().any(is_around)
    };
    let refused = belay_plan::chosen_program(&tool.name, arguments.source())
        .filter(|(pointer, _)| is_known(pointer))
        .and_then(|(pointer, _)| {
            let message = belay_plan::not_allowed(&tool.name, call.allowed_commands, arguments.source())?;
            Some(call.problem(&format!("/arguments{pointer}"), message))
        });
    let violations = schema.into_iter().flat_map(|schema| schema.violations_except(arguments.source(), &templates));
    let mut problems: Vec<_> =
        violations.flat_map(|violation| problems_of(call, violation, tool)).chain(refused).collect();
    for name in path_arguments {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let path = arguments.source()[name.as_str()].as_str().filter(|_| !templates.contains(&pointer));
        problems.extend(path.and_then(|path| {
            let message = format!("`{path}` {}", leaves_workspace(path)?);
            Some(call.problem(&format!("/arguments{pointer}"), message))
        }));
    }
    problems
}

/// The problems of one schema violation: each unknown argument by its name, with the most similar known one.
fn problems_of(call: &PlannedCall<'_>, violation: belay_json_schema::Violation, tool: &v1::Tool) -> Vec<StepProblem> {
    let at = format!("/arguments{}", violation.pointer);
    if violation.unknown.is_empty() {
        return vec![call.problem(&at, violation.message)];
    }
    let schema: serde_json::Value = serde_json::from_str(&tool.parameters_schema).unwrap_or_default();
    // Members of nested objects are described elsewhere in the schema.
    let known = schema["properties"].as_object().filter(|_| violation.pointer.is_empty());
    let problem = |name: String| {
        let names = known.into_iter().flat_map(|known| known.keys().map(String::as_str));
        let did_you_mean = nearest(&name, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        let pointer = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        call.problem(&pointer, format!("{} takes no `{name}` here{did_you_mean}", tool.name))
    };
    violation.unknown.into_iter().map(problem).collect()
}

/// Hides secrets in a refusal, which quotes the plan.
fn shown(registry: &ExecutionRegistry, mut invalid: InvalidPlan) -> InvalidPlan {
    for violation in &mut invalid.violations {
        violation.message = registry.reading.sealer.shown(std::mem::take(&mut violation.message));
        violation.field = registry.reading.sealer.shown(std::mem::take(&mut violation.field));
    }
    invalid
}

fn refusal(invalid: InvalidPlan) -> Status {
    let count = invalid.violations.len();
    let first = &invalid.violations[0];
    let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
    // What cannot be read at all has no field.
    let field = if first.field.is_empty() { String::new() } else { format!("{}: ", first.field) };
    let message = format!("The plan is not valid: {field}{}{more}", first.message);
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

/// Violations as a client gets them: a message may quote the plan.
pub(crate) fn violations(registry: &ExecutionRegistry, violations: Vec<Violation>) -> Vec<v1::PlanViolation> {
    shown(registry, InvalidPlan { violations }).violations.into_iter().map(violation).collect()
}

/// Locates problems in the author's document.
pub(crate) fn located(source: &Source, problems: Vec<StepProblem>) -> Vec<Violation> {
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
/// The folder of a workspace that another execution has as well.
pub(crate) fn shared_folder(workspace: &Workspace) -> Option<Folder> {
    match workspace {
        Workspace::Directory(_) => None,
        Workspace::MadeFolder(id) => Some(Folder::Shared(id.clone())),
    }
}
