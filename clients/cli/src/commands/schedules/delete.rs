//! `belay schedules delete`.

use belay_proto::v1::DeleteScheduleRequest;
use serde_json::json;

use super::{ScheduleArg, ask, refused};
use crate::{
    args::{Format, help},
    ask::confirm,
    context::Context,
    exit::Exit,
    failure::Failure,
    names,
    render::text::{Line, Style},
};

/// Delete a schedule; its executions stay, and continue
///
/// Asks before; without a terminal, --yes is required.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay schedules delete nightly --yes"))]
pub(crate) struct Delete {
    #[command(flatten)]
    which: ScheduleArg,
    /// Delete it without asking
    #[arg(short, long)]
    yes: bool,
}

/// Deletes it, after a question.
pub(crate) async fn delete(context: &Context, verb: Delete) -> Result<Exit, Failure> {
    let name = verb.which.name(context);
    let id = names::id(&name);
    if !verb.yes && !confirm(context.screen, &format!("Delete schedule {id}? Its executions stay.")).await? {
        context.screen.say(&Line::new("nothing was deleted"));
        return Ok(Exit::REFUSED);
    }
    ask(context, async |client, _| {
        let request = DeleteScheduleRequest { name: name.clone() };
        client.delete_schedule(request).await.map_err(|status| refused(&status, &name))?;
        Ok(())
    })
    .await?;
    match context.screen.format {
        Format::Text => context.screen.print(&[Line::default().and(Style::Good, format!("schedule {id} deleted"))])?,
        Format::Json | Format::Jsonl => context.screen.print_json(&json!({ "deleted": name }))?,
    }
    Ok(Exit::OK)
}
