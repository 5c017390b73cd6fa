//! `belay executions result`.

use std::ops::ControlFlow;

use belay_proto::v1::{ExecutionEvent, Payload};
use serde_json::Value;

use crate::{
    args::{ExecutionArg, Format, execution_help},
    clock,
    connect::{Requirement, Session},
    context::Context,
    exit::Exit,
    failure::Failure,
    follow::is_over,
    history::{self, ReadEnd},
    lookup, names, next, read,
    render::{
        json,
        logs::{self, StepOutput},
        result::{self, Calls, RecordedExecution, Shape},
        text::{Line, PrintableText, Style},
        tracked_execution::TrackedExecution,
        words,
    },
};

/// Print the result of an execution: the outputs that its plan declares, or the output of its last step, or of its last steps where none depends on the others
///
/// With `--as`, the result as other planners expect it, as JSON. Exits as the execution ended; of one that has not ended, prints what there is so far.
#[derive(clap::Args, Debug)]
#[command(after_help = execution_help!("belay executions result @last --as skills\n  belay executions result @last --wait > result.txt"))]
pub(crate) struct Print {
    #[command(flatten)]
    which: ExecutionArg,
    /// The shape
    #[arg(long = "as", value_name = "SHAPE", value_enum)]
    pub(crate) shape: Option<Shape>,
    /// Wait for the end first
    #[arg(long)]
    wait: bool,
}

/// Prints the result.
pub(crate) async fn result(context: &Context, verb: Print) -> Result<Exit, Failure> {
    context
        .with_session(Requirement::Records, async |session| {
            let name = lookup::resolve(&mut session.client, &context.namespace, &verb.which.id).await?;
            let until = if verb.wait { ReadEnd::End } else { ReadEnd::Now };
            let (mut recorded, tracked) = recorded(context, session, &name, until).await?;
            if verb.shape == Some(Shape::Skills) {
                recorded.audit = read::audit_entries(&mut session.client, &name).await?;
            }
            match context.screen.format {
                Format::Text => text(context, &recorded, &tracked)?,
                Format::Json | Format::Jsonl => {
                    let shape = verb.shape.unwrap_or_default();
                    context.screen.print_json(&result::of(&recorded, shape)?)?;
                }
            }
            let execution = &recorded.execution;
            if !is_over(execution.state()) {
                return Ok(Exit::OK);
            }
            let exit = Exit::of_execution(execution);
            if exit != Exit::OK && context.screen.format == Format::Text && verb.shape.is_none() {
                let state = words::execution_state(execution.state());
                let why = execution.failure.as_ref().map(|failure| format!(": {}", words::failure(failure)));
                let line = format!("execution {} is {state}{}", names::id(&execution.name), why.unwrap_or_default());
                context.screen.say(&Line::default().and(Style::Warn, line));
                context.screen.say(&next::line(next::about(&["why"], &execution.name, &[])));
            }
            Ok(exit)
        })
        .await
}

/// Reads everything that a result is made of.
async fn recorded(
    context: &Context,
    session: &mut Session,
    name: &str,
    until: ReadEnd,
) -> Result<(RecordedExecution, TrackedExecution), Failure> {
    let mut calls = Calls::default();
    let see = async |_: &mut _, _: &TrackedExecution, event: &ExecutionEvent| {
        calls.take(event);
        Ok(ControlFlow::Continue(()))
    };
    let tracked = history::read(session, &context.screen, name, 0, until, see).await?;
    let client = &mut session.client;
    for arguments in calls.arguments() {
        read::with_value(client, name, arguments).await?;
    }
    let execution = read::execution(client, name, Format::Json).await?;
    Ok((RecordedExecution { execution, calls, audit: Vec::new(), now: clock::now() }, tracked))
}

/// The outputs as programs printed them; a heading above each where there are several.
fn text(context: &Context, recorded: &RecordedExecution, tracked: &TrackedExecution) -> Result<(), Failure> {
    let screen = context.screen;
    if let Some(outputs) = recorded.execution.outputs.as_ref().and_then(Payload::as_json) {
        let outputs: Value = serde_json::from_str(outputs).unwrap_or_default();
        screen.print_text(&PrintableText::of_program(&json::text(&outputs, true)))?;
        return Ok(());
    }
    if let Some(failure) = &recorded.execution.outputs_failure {
        screen.say(&Line::default().and(Style::Warn, format!("no outputs: {}", words::failure(failure))));
        return Ok(());
    }
    let last = result::last_completed(&recorded.execution);
    if last.is_empty() {
        let state = words::execution_state(recorded.execution.state());
        let id = names::id(&recorded.execution.name);
        screen.say(&Line::default().and(Style::Warn, format!("execution {id} is {state}, and no step has completed")));
    }
    for step in &last {
        let StepOutput { output, error, .. } = logs::printed(step);
        if last.len() > 1 {
            screen.print(&[logs::heading(step, tracked)])?;
        }
        screen.print_text(&output)?;
        screen.say_text(&error);
    }
    Ok(())
}
