//! `belay why`.

use std::ops::ControlFlow;

use belay_proto::v1::{Execution, ExecutionEvent, execution::State, execution_event::Kind};

use serde_json::json;
use tonic::Code;

use crate::{
    args::{ExecutionArg, Format, help},
    clock,
    connect::{Client, Needs, Session},
    context::Context,
    exit::Exit,
    failure::Failure,
    history::{self, Until},
    lookup, read,
    render::{
        json,
        picture::Picture,
        why::{self, Cancelled},
    },
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

/// The most executions of steps that are explained with one.
const MAX_CHILDREN: usize = 8;

/// Says why.
pub(crate) async fn why(context: &Context, verb: Why) -> Result<Exit, Failure> {
    let screen = context.screen;
    context
        .with_session(Needs::Records, async |session| {
            let is_driven = !session.is_embedded();
            let name = lookup::resolve(&mut session.client, &context.namespace, &verb.which.id).await?;
            // Outputs explain nothing, so programs get no more than people.
            let execution = read::execution(&mut session.client, &name, Format::Text).await?;
            let cancelled = cancelled(context, session, &execution).await?;
            let children = children(&mut session.client, &execution).await?;
            match screen.format {
                Format::Text => {
                    let columns = screen.output_columns();
                    screen.print(&why::lines(
                        &execution,
                        &children,
                        cancelled.as_ref(),
                        is_driven,
                        columns,
                        clock::now(),
                    ))?;
                }
                Format::Json | Format::Jsonl => {
                    let next = why::next(&execution, &children, is_driven);
                    let mut value = json::of(&explanation(execution))?;
                    value["nextCommand"] = next.into();
                    if !children.is_empty() {
                        let of_child = |child| json::of(&explanation(child));
                        value["children"] = children.into_iter().map(of_child).collect::<Result<Vec<_>, _>>()?.into();
                    }
                    if let Some(Cancelled { by, reason }) = cancelled {
                        value["cancelled"] = json!({ "principal": by, "reason": reason });
                    }
                    screen.print_json(&value)?;
                }
            }
            Ok(Exit::OK)
        })
        .await
}

/// The executions of steps that explain it, each before those that explain it in turn.
async fn children(client: &mut Client, execution: &Execution) -> Result<Vec<Execution>, Failure> {
    let mut children = Vec::new();
    let names =
        |execution: &Execution| why::children(execution).into_iter().rev().map(str::to_owned).collect::<Vec<_>>();
    let mut unread = names(execution);
    while let Some(name) = unread.pop().filter(|_| children.len() < MAX_CHILDREN) {
        match read::execution(client, &name, Format::Text).await {
            Ok(child) => {
                unread.extend(names(&child));
                children.push(child);
            }
            // It was deleted.
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => return Err(status.into()),
        }
    }
    Ok(children)
}

/// The execution without its plan, with the steps that explain it.
fn explanation(mut execution: Execution) -> Execution {
    execution.plan = None;
    execution.steps.retain(why::explains);
    for step in &mut execution.steps {
        step.output = None;
    }
    execution
}

/// Who cancelled an execution, and why, which only its events say.
async fn cancelled(
    context: &Context,
    session: &mut Session,
    execution: &Execution,
) -> Result<Option<Cancelled>, Failure> {
    if !matches!(execution.state(), State::Cancelled | State::Cancelling) {
        return Ok(None);
    }
    let mut found = None;
    let see = async |_: &mut _, _: &Picture, event: &ExecutionEvent| {
        if let Some(Kind::ExecutionCancelRequested(request)) = &event.kind {
            let by = event.actor.as_ref().map(|actor| actor.principal.clone()).unwrap_or_default();
            found = Some(Cancelled { by, reason: request.reason.clone() });
        }
        Ok(ControlFlow::Continue(()))
    };
    history::read(session, &context.screen, &execution.name, 0, Until::Now, see).await?;
    Ok(found)
}
