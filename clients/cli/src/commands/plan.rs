//! `belay plan …`.

use std::path::PathBuf;

use belay_proto::v1::{ValidatePlanRequest, ValidatePlanResponse, validate_plan_request};
use belay_reasons as reasons;
use serde_json::json;

use crate::{
    args::{Format, help},
    connect::{Client, Requirement},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    names, next,
    plan_file::PlanFile,
    render::{
        graph::Graph,
        text::{Line, Style},
        words,
    },
};

/// Check a plan as `run` would, and run nothing
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay plan validate plan.yaml"))]
pub(crate) struct Validate {
    /// The plan: a YAML or JSON file, or - for standard input
    #[arg(value_name = "PLAN", value_hint = clap::ValueHint::FilePath)]
    plan: PathBuf,
}

/// Validates the plan with the services.
pub(crate) async fn validate(context: &Context, verb: Validate) -> Result<Exit, Failure> {
    let file = PlanFile::read(&verb.plan).await?;
    let response =
        context.ask(Requirement::Services, async |client| check(client, &context.namespace, &file).await).await?;
    context.screen.show(&response, || {
        let steps = response.plan.as_ref().map_or(0, |plan| plan.steps.len());
        let mut lines = warnings(&response, &file);
        lines.push(
            Line::new(format!("{} is ", file.source.name))
                .and(Style::Good, "valid")
                .and(Style::Plain, format!(": {}{}", words::steps(steps), how_many(&response))),
        );
        lines
    })?;
    Ok(Exit::OK)
}

/// Draw the steps of a plan and what they depend on, and run nothing
///
/// Steps of one level do not wait for each other. `--format mermaid` prints a flowchart for Markdown and https://mermaid.js.org.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay plan graph plan.yaml --format mermaid"))]
pub(crate) struct Draw {
    /// The plan: a YAML or JSON file, or - for standard input
    #[arg(value_name = "PLAN", value_hint = clap::ValueHint::FilePath)]
    plan: PathBuf,
    /// How the graph is written
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    format: GraphFormat,
}

/// How a graph is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum GraphFormat {
    /// A line for each step, by level
    #[default]
    Text,
    /// A Mermaid flowchart
    Mermaid,
}

/// Draws the plan as the services understand it.
pub(crate) async fn graph(context: &Context, verb: Draw) -> Result<Exit, Failure> {
    if verb.format == GraphFormat::Mermaid && context.screen.format != Format::Text {
        let message = "a flowchart is text: `--format mermaid` and `-o json` exclude each other";
        return Err(Report::new(reasons::INVALID_USAGE, message).next(next::help()).into());
    }
    let file = PlanFile::read(&verb.plan).await?;
    let response =
        context.ask(Requirement::Services, async |client| check(client, &context.namespace, &file).await).await?;
    let plan = response.plan.unwrap_or_default();
    let graph = Graph::of(&plan);
    match (context.screen.format, verb.format) {
        (Format::Text, GraphFormat::Text) => context.screen.print(&graph.lines())?,
        (Format::Text, GraphFormat::Mermaid) => context.screen.print(&graph.mermaid())?,
        (Format::Json, _) => context.screen.print_json(&json!({ "id": plan.id, "steps": graph.steps() }))?,
        (Format::Jsonl, _) => {
            for step in graph.steps() {
                context.screen.print_json(&step)?;
            }
        }
    }
    Ok(Exit::OK)
}

/// Warnings about calls that will go wrong when the plan is carried out, pointed at in its text.
pub(crate) fn warnings(response: &ValidatePlanResponse, file: &PlanFile) -> Vec<Line> {
    let warnings = file.locate(response.warnings.clone());
    let shown = warnings.iter().flat_map(|warning| warning.lines(Some(&file.source)).into_iter().enumerate());
    shown
        .map(|(n, line)| match n {
            0 => Line::default().and(Style::Warn, "warning: ").with(line),
            _ => line,
        })
        .collect()
}

fn how_many(response: &ValidatePlanResponse) -> String {
    match response.warnings.len() {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        many => format!(", {many} warnings"),
    }
}

/// The plan as the services understand it; a refusal names every violation, with its place in the file.
pub(crate) async fn check(
    client: &mut Client,
    namespace: &str,
    file: &PlanFile,
) -> Result<ValidatePlanResponse, Failure> {
    let source = Some(validate_plan_request::Source::Document(file.document()));
    let response =
        client.validate_plan(ValidatePlanRequest { parent: names::parent(namespace), source }).await?.into_inner();
    match response.violations.is_empty() {
        true => Ok(response),
        false => Err(Report::of_plan(&file.source, file.locate(response.violations)).into()),
    }
}
