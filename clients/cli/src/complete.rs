//! Completes a command that is being typed in a shell: ids of executions, steps and approvals, names of tools and namespaces.
//!
//! The scripts of `belay completions` call `belay __complete`. It asks a running server, never starts one, ends within the limit that it is given, and prints
//! nothing where anything fails.

mod line;

use std::time::Duration;

use belay_all_in_one::PolicyChoice;
use belay_proto::v1::{
    ExecutionView, GetExecutionRequest, ListApprovalsRequest, ListCapabilitiesRequest, ListExecutionsRequest,
    approval::State,
};
use clap::{CommandFactory as _, Parser as _};

use crate::{cli::Cli, connect::Session, failure::Failure, lookup, names, render::time};
use line::{CompletionRequest, ResourceKind};

/// The first argument of the command, which no person types.
const NAME: &str = "__complete";
/// The most candidates.
const MAX_CANDIDATES: usize = 100;

/// Prints the candidates, one a line, if the arguments of the process ask for them. They are the longest time that it may take, such as `300ms`, and
/// `--line` with what stands before the cursor, or `--` with the words of it.
pub(crate) fn print_if_asked(arguments: &[String]) -> bool {
    let [_, name, limit, rest @ ..] = arguments else { return false };
    if name != NAME {
        return false;
    }
    let words = match rest {
        [flag, line] if flag == "--line" => line::words(line),
        [flag, words @ ..] if flag == "--" => words.to_vec(),
        _ => return true,
    };
    let found = time::parse(limit).ok().zip(line::completion_request(&Cli::command(), &words));
    for candidate in found.map(|(limit, asked)| candidates(limit, asked)).unwrap_or_default() {
        // What could steer a terminal, or is more than one word, is no candidate.
        if !candidate.contains(|c: char| !belay_text::is_plain(c) || c.is_whitespace()) {
            println!("{candidate}");
        }
    }
    true
}

/// The candidates; none where there is no running server, or no answer in time.
fn candidates(limit: Duration, asked: CompletionRequest) -> Vec<String> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let found = runtime.block_on(async { tokio::time::timeout(limit, find(asked)).await });
    // A connection that does not answer is left behind.
    runtime.shutdown_background();
    let mut found = found.ok().and_then(Result::ok).unwrap_or_default();
    found.truncate(MAX_CANDIDATES);
    found
}

async fn find(asked: CompletionRequest) -> Result<Vec<String>, Failure> {
    let CompletionRequest { kind, prefix, context } = asked;
    // With the environment, as the command itself would read it.
    let cli = Cli::try_parse_from(std::iter::once("belay".to_owned()).chain(context).chain(["doctor".to_owned()]));
    let Ok(cli) = cli else { return Ok(Vec::new()) };
    let target = cli.global.target(PolicyChoice::Keep);
    let namespace = cli.global.namespace;
    let Some(session) = Session::running(&target).await? else { return Ok(Vec::new()) };
    let mut client = session.client.clone();
    let parent = names::parent(&namespace);
    let page_size = i32::try_from(MAX_CANDIDATES).unwrap_or(i32::MAX);
    let mut found = match kind {
        ResourceKind::Execution => {
            let is_id = prefix.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
            if !is_id {
                return Ok(Vec::new());
            }
            let filter = if prefix.is_empty() { String::new() } else { format!("id = \"{prefix}*\"") };
            let request =
                ListExecutionsRequest { parent, page_size, filter, include_children: true, ..Default::default() };
            let page = client.list_executions(request).await?.into_inner();
            page.executions.iter().map(|execution| names::id(&execution.name).to_owned()).collect()
        }
        ResourceKind::Step { execution } => {
            let name = lookup::resolve(&mut client, &namespace, &execution).await?;
            let request = GetExecutionRequest { name, view: ExecutionView::Full.into() };
            let execution = client.get_execution(request).await?.into_inner();
            execution.steps.into_iter().map(|step| step.step_id).collect()
        }
        ResourceKind::Approval => {
            let states = vec![State::Pending.into()];
            let id_prefix = prefix.clone();
            let request = ListApprovalsRequest { parent, page_size, states, id_prefix, ..Default::default() };
            let page = session.to_gate().client().await?.list_approvals(request).await?.into_inner();
            page.approvals.iter().map(|approval| names::id(&approval.name).to_owned()).collect()
        }
        ResourceKind::Tool => {
            let request = ListCapabilitiesRequest { page_size: 1_000, ..Default::default() };
            let page = client.list_capabilities(request).await?.into_inner();
            page.tools.into_iter().map(|tool| tool.name).collect()
        }
        ResourceKind::Namespace => lookup::namespaces(&mut client).await,
    };
    found.retain(|candidate: &String| candidate.starts_with(&prefix));
    Ok(found)
}
