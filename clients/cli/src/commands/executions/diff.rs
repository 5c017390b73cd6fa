//! `belay executions diff`.

use belay_proto::v1::CompareExecutionsRequest;

use crate::{
    args::{Format, help},
    clock,
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup,
    render::{compare::lines, json},
};

/// Show what differs between two executions: the plan, the inputs, how each step ended and what it returned
///
/// The executions may have the same plan or different ones. Outputs are compared by their digests. The duration of a step differs when it doubled or
/// halved, by a second at least.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions diff nightly-41 nightly-42"))]
pub(crate) struct Diff {
    /// The earlier execution: its id, the beginning of its id, its full name, or @last
    #[arg(value_name = "A")]
    before: String,
    /// The later one
    #[arg(value_name = "B")]
    after: String,
}

/// Shows the differences.
pub(crate) async fn diff(context: &Context, verb: Diff) -> Result<Exit, Failure> {
    let read = context.ask(Requirement::Records, async |client| {
        let before = lookup::resolve(client, &context.namespace, &verb.before).await?;
        let after = lookup::resolve(client, &context.namespace, &verb.after).await?;
        Ok(client.compare_executions(CompareExecutionsRequest { before, after }).await?.into_inner())
    });
    let found = read.await?;
    match context.screen.format {
        Format::Text => context.screen.print(&lines(&found, clock::now()))?,
        Format::Json | Format::Jsonl => context.screen.print_json(&json::of(&found)?)?,
    }
    Ok(Exit::OK)
}
