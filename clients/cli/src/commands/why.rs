//! `belay why`.

use belay_proto::v1::ExplainExecutionRequest;

use crate::{
    args::{ExecutionArg, Format, help},
    clock,
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup,
    render::{json, why},
};

/// Say why an execution failed, or what it waits for, and what to type next
///
/// The failed step, its error and the end of its output, earlier attempts, what had been changed in the workspace, and which steps were skipped. Of
/// one that has not ended: what it waits for, since when and for whom.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay why @last"))]
pub(crate) struct Why {
    #[command(flatten)]
    which: ExecutionArg,
}

/// Says why.
pub(crate) async fn why(context: &Context, verb: Why) -> Result<Exit, Failure> {
    let screen = context.screen;
    let read = context.ask(Requirement::Records, async |client| {
        let name = lookup::resolve(client, &context.namespace, &verb.which.id).await?;
        Ok(client.explain_execution(ExplainExecutionRequest { name }).await?.into_inner())
    });
    let explained = read.await?;
    match screen.format {
        Format::Text => screen.print(&why::lines(&explained, screen.output_columns(), clock::now()))?,
        Format::Json | Format::Jsonl => {
            let next = why::next(&explained);
            let mut value = json::of(&explained)?;
            value["nextCommand"] = next.into();
            screen.print_json(&value)?;
        }
    }
    Ok(Exit::OK)
}
