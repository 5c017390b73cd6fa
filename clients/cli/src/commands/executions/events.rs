//! `belay executions events`.

use std::ops::ControlFlow;

use belay_proto::v1::{ExecutionEvent, ToolCallFailed, execution_event::Kind};
use serde_json::{Value, json};

use crate::{
    args::{ExecutionArg, Format, help},
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::Failure,
    history::{self, ReadEnd},
    lookup,
    render::{
        event,
        output::{self, of_step},
        result::lines::{EventLines, EventShape},
        text::Line,
        tracked_execution::TrackedExecution,
    },
};

/// The most lines of each stream that are shown of a failed call's last output.
const OUTPUT_SHOWN: usize = 20;

/// Print the events of an execution in order, up to now
///
/// Unlike `watch`, it does not wait for the next one.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions events @last --after 120 -o jsonl"))]
pub(crate) struct Events {
    #[command(flatten)]
    which: ExecutionArg,
    /// Only events after this number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    after: i64,
    /// The lines that programs get, which `-o jsonl` is then
    #[arg(long = "as", value_name = "SHAPE", value_enum)]
    pub(crate) shape: Option<EventShape>,
}

/// Prints the events.
pub(crate) async fn events(context: &Context, verb: Events) -> Result<Exit, Failure> {
    let screen = context.screen;
    context
        .with_session(Requirement::Records, async |session| {
            let name = lookup::resolve(&mut session.client, &context.namespace, &verb.which.id).await?;
            let mut all: Vec<Value> = Vec::new();
            let mut programs = EventLines::new(verb.shape.unwrap_or_default());
            let see = async |_: &mut _, tracked: &TrackedExecution, event: &ExecutionEvent| {
                match screen.format {
                    Format::Text => screen.print(&lines(event, tracked))?,
                    Format::Jsonl => {
                        if let Some(line) = programs.take(event, tracked)? {
                            screen.print_json(&line)?;
                        }
                    }
                    Format::Json => all.extend(programs.take(event, tracked)?),
                }
                Ok(ControlFlow::Continue(()))
            };
            history::read(session, &screen, &name, verb.after, ReadEnd::Now, see).await?;
            if screen.format == Format::Json {
                screen.print_json(&json!({ "events": all }))?;
            }
            Ok(Exit::OK)
        })
        .await
}

/// The event as `watch` prints it, with what a failed call's program wrote last.
fn lines(event: &ExecutionEvent, tracked: &TrackedExecution) -> Vec<Line> {
    let last = match &event.kind {
        Some(Kind::ToolCallFailed(ToolCallFailed { failure: Some(failure), .. })) => {
            output::last(failure, OUTPUT_SHOWN)
        }
        _ => Vec::new(),
    };
    let last = last.iter().map(|text| of_step(&event.step_id, text));
    event::line(event, tracked).into_iter().chain(last).collect()
}
