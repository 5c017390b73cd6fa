//! `belay tools describe`.

use belay_proto::v1::Tool;
use belay_reasons as reasons;

use super::list::capabilities;
use crate::{
    args::help,
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    next,
    render::tool,
};

/// How much a name must resemble another to be suggested; 1 is the same.
const ALIKE: f64 = 0.7;

/// Show a tool: what it does, what it takes, what it gives
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay tools describe read_file"))]
pub(crate) struct Describe {
    /// The tool's name, or another name it has
    #[arg(value_name = "TOOL")]
    name: String,
}

/// Shows it.
pub(crate) async fn describe(context: &Context, verb: Describe) -> Result<Exit, Failure> {
    let tools = context.ask(Requirement::Services, capabilities).await?.tools;
    let tool = find(&tools, &verb.name)?;
    context.screen.show(tool, || tool::describe(tool))?;
    Ok(Exit::OK)
}

fn find<'a>(tools: &'a [Tool], name: &str) -> Result<&'a Tool, Failure> {
    let is_called = |tool: &&Tool| tool.name == name || tool.aliases.iter().any(|alias| alias == name);
    tools.iter().find(is_called).ok_or_else(|| {
        let names = tools.iter().flat_map(|tool| std::iter::once(&tool.name).chain(&tool.aliases));
        let likely = names.map(|known| (strsim::jaro_winkler(known, name), known)).max_by(|a, b| a.0.total_cmp(&b.0));
        let report = Report::new(reasons::TOOL_NOT_FOUND, format!("there is no tool `{name}`"));
        let report = match likely.filter(|(likeness, _)| *likeness >= ALIKE) {
            Some((_, known)) => {
                report.detail(format!("did you mean `{known}`?")).next(next::command(&["tools", "describe", known]))
            }
            None => report.next(next::command(&["tools", "list"])),
        };
        report.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_by_any_of_its_names() {
        let tools = [
            Tool { name: "read_file".to_owned(), aliases: vec!["cat".to_owned()], ..Default::default() },
            Tool::default(),
        ];
        assert!(find(&tools, "cat").is_ok_and(|tool| tool.name == "read_file"));
        assert_eq!(
            find(&tools, "raed_file").unwrap_err().report().next.as_deref(),
            Some("belay tools describe read_file")
        );
        assert_eq!(find(&tools, "zzz").unwrap_err().report().next.as_deref(), Some("belay tools list"));
    }
}
