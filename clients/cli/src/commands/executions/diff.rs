//! `belay executions diff`.

use crate::{
    args::{Format, help},
    clock,
    connect::Needs,
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup, read,
    render::compare::{self, Side},
};

/// Show what differs between two executions: the plan, the inputs, how each step ended and what it returned
///
/// Of the same plan or of different ones. Outputs are compared by their digests. The duration of a step differs when it doubled or halved, by a second at least.
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
    let read = context.ask(Needs::Records, async |client| {
        let mut sides = Vec::new();
        for id in [&verb.before, &verb.after] {
            let name = lookup::resolve(client, &context.namespace, id).await?;
            let (execution, outputs) = read::with_digests(client, &name).await?;
            sides.push(Side { execution, outputs });
        }
        Ok(sides)
    });
    let sides = read.await?;
    let [a, b] = sides.as_slice() else { return Err(Failure::internal("two executions were to be read")) };
    let found = compare::difference(a, b)?;
    match context.screen.format {
        Format::Text => context.screen.print(&found.lines(a, b, clock::now()))?,
        Format::Json | Format::Jsonl => context.screen.print_json(&found.json(a, b))?,
    }
    Ok(Exit::OK)
}
