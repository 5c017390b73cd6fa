//! `belay executions delete`, and how executions are deleted.

use belay_proto::v1::{DeleteExecutionRequest, Execution, ExecutionView, GetExecutionRequest};
use belay_reasons as reasons;
use serde_json::json;

use super::{
    affected::{counted, shown},
    select::{BulkAction, Choice, ENDED, Selection},
};
use crate::{
    args::{Format, help},
    ask,
    connect::{Client, Requirement},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    follow::is_over,
    names, next,
    refused::refused,
    render::{
        text::{Line, Style},
        words,
    },
};

/// Delete executions that have ended, with everything that Belay keeps about them
///
/// Their events, secrets, approvals and calls are deleted for good, and the directories that Belay made for them. A folder that was named
/// with --workspace stays as it is. So do the executions that carried out the plans of their steps: --children --filter 'parent = ID' deletes
/// those. Asks before; without a terminal, --yes is required.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions delete nightly-1 nightly-2"))]
pub(crate) struct Delete {
    #[command(flatten)]
    selection: Selection,
}

/// Deleting, in words.
const DELETED: BulkAction = BulkAction { verb: "delete", done: "deleted", states: ENDED };

/// Deletes the executions that are named, after a question.
pub(crate) async fn delete(context: &Context, verb: Delete) -> Result<Exit, Failure> {
    context.ask(Requirement::Records, async |client| delete_named(context, client, verb).await).await
}

async fn delete_named(context: &Context, client: &mut Client, verb: Delete) -> Result<Exit, Failure> {
    let named = match verb.selection.choose(context, client, &DELETED).await? {
        Choice::Named(names) => names,
        Choice::Matching(found) if found.is_empty() => return Ok(Exit::OK),
        Choice::Matching(found) => return delete_all(context, client, found, verb.selection.yes).await,
    };
    let mut executions: Vec<Execution> = Vec::new();
    for name in named {
        let request = GetExecutionRequest { name: name.clone(), view: ExecutionView::Basic.into() };
        let execution = client.get_execution(request).await.map_err(|status| refused(&status, &name))?.into_inner();
        // Before anything is deleted.
        if !is_over(execution.state()) {
            return Err(not_ended(&execution));
        }
        executions.push(execution);
    }
    delete_all(context, client, executions, verb.selection.yes).await
}

fn not_ended(execution: &Execution) -> Failure {
    let (id, state) = (names::id(&execution.name), words::execution_state(execution.state()));
    let message = format!("execution {id} is {state}, and only one that has ended can be deleted; nothing was deleted");
    Report::new(reasons::EXECUTION_NOT_ENDED, message)
        .next(next::about(&["executions", "cancel"], &execution.name, &[]))
        .into()
}

/// Asks, unless `yes`, and deletes these executions, which have ended. Ends with 2 when the person does not confirm.
pub(crate) async fn delete_all(
    context: &Context,
    client: &mut Client,
    executions: Vec<Execution>,
    yes: bool,
) -> Result<Exit, Failure> {
    let count = counted(executions.len());
    if !yes {
        if ask::is_attended() {
            shown(&executions).iter().for_each(|line| context.screen.say(line));
        }
        let question =
            format!("Delete {count} for good, with their events, approvals and the directories made for them?");
        if !ask::confirm(context.screen, &question).await? {
            context.screen.say(&Line::new("nothing was deleted"));
            return Ok(Exit::REFUSED);
        }
    }
    let (mut deleted, mut complete) = (Vec::new(), true);
    for execution in executions {
        let request = DeleteExecutionRequest { name: execution.name.clone(), ..DeleteExecutionRequest::default() };
        match client.delete_execution(request).await {
            Ok(response) => complete &= response.into_inner().complete,
            Err(status) => {
                let Failure::Report(report) = refused(&status, &execution.name) else {
                    return Err(status.into());
                };
                let before = format!("{} deleted before this one", counted(deleted.len()));
                return Err(if deleted.is_empty() { *report } else { report.detail(before) }.into());
            }
        }
        deleted.push(execution.name);
    }
    match context.screen.format {
        Format::Text => {
            let mut lines = vec![Line::default().and(Style::Good, format!("{} deleted", counted(deleted.len())))];
            if !complete {
                let later = "The tool runner or the approval gate has not forgotten all of them yet; the executor asks them until they have.";
                lines.push(Line::default().and(Style::Warn, later));
            }
            context.screen.print(&lines)?;
        }
        Format::Json | Format::Jsonl => {
            context.screen.print_json(&json!({ "deleted": deleted, "complete": complete }))?;
        }
    }
    Ok(Exit::OK)
}
