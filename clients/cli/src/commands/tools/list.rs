//! `belay tools list`.

use belay_proto::v1::{ListCapabilitiesRequest, ListCapabilitiesResponse, ToolServer};

use crate::{
    args::{Format, help},
    connect::{Client, Requirement},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::{json, text::Line, tool},
};

/// List the tools that steps can use
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay tools list"))]
pub(crate) struct List {}

/// Lists them.
pub(crate) async fn list(context: &Context, List {}: List) -> Result<Exit, Failure> {
    let capabilities = context.ask(Requirement::Services, capabilities).await?;
    match context.screen.format {
        Format::Jsonl => {
            for tool in &capabilities.tools {
                context.screen.print_json(&json::of(tool)?)?;
            }
        }
        Format::Json => context.screen.print_json(&json::of(&capabilities)?)?,
        Format::Text if capabilities.tools.is_empty() => {
            context.screen.say(&Line::new("no tool runner offers any tool"))
        }
        Format::Text => {
            context.screen.print(&tool::list(&capabilities.tools))?;
            for ToolServer { name, problem, .. } in
                capabilities.tool_servers.iter().filter(|one| !one.problem.is_empty())
            {
                let line = format!("the tools of the MCP server `{name}` are not offered. {problem}");
                context.screen.say(&Line::new(line));
            }
        }
    }
    Ok(Exit::OK)
}

/// Lists the capabilities that plans may use.
pub(super) async fn capabilities(client: &mut Client) -> Result<ListCapabilitiesResponse, Failure> {
    let mut all = ListCapabilitiesResponse::default();
    loop {
        let request = ListCapabilitiesRequest { page_token: all.next_page_token, ..Default::default() };
        let page = client.list_capabilities(request).await?.into_inner();
        all.tools.extend(page.tools);
        all.step_kinds = page.step_kinds;
        all.tool_servers = page.tool_servers;
        all.next_page_token = page.next_page_token;
        if all.next_page_token.is_empty() {
            return Ok(all);
        }
    }
}
