//! `belay approvals show`.

use super::{ApprovalArg, resolve};
use crate::{
    args::{Format, help},
    ask::{self, changes},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::{
        approval,
        diff::{self, Extent},
    },
};

use belay_proto::v1::Preview;

/// Show an approval: the call, why it needs approval, what would change, and what to type next
///
/// The gravest changes come first; --path shows one file's whole difference, --all every file's. JSON contains all of them.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay approvals show @last --path src/main.rs"))]
pub(crate) struct Show {
    #[command(flatten)]
    which: ApprovalArg,
    /// Show the whole difference in this file
    #[arg(long, value_name = "PATH", conflicts_with = "all")]
    path: Option<String>,
    /// Show every change with its whole difference
    #[arg(long)]
    all: bool,
    /// Show what is hidden as a secret, too; the approval notes who asked
    ///
    /// Only who may decide may ask for it. Without --path it shows the call and every change.
    #[arg(long)]
    reveal: bool,
}

/// Shows it.
pub(crate) async fn show(context: &Context, verb: Show) -> Result<Exit, Failure> {
    let whole = verb.all
        || (verb.reveal && verb.path.is_none())
        || (verb.path.is_none() && context.screen.format != Format::Text);
    let shown = context
        .ask_gate(async |gate, _| {
            let mut shown = resolve(gate, &context.namespace, &verb.which).await?;
            if verb.reveal && verb.path.is_none() {
                changes::reveal_call(gate, &mut shown).await?;
            }
            match &verb.path {
                Some(path) => {
                    let files = changes::at(gate, &shown.name, path, verb.reveal).await?;
                    let preview = shown.preview.take().unwrap_or_default();
                    shown.preview = Some(Preview { files, more_files: 0, ..preview });
                }
                None if whole => changes::complete(gate, &mut shown, verb.reveal).await?,
                None => {}
            }
            Ok(shown)
        })
        .await?;
    match context.screen.format {
        Format::Text => {
            if verb.path.is_some() {
                let files = shown.preview.unwrap_or_default().files;
                context.screen.print(&diff::files(&files, 0, Extent::Full))?;
                return Ok(Exit::OK);
            }
            let mut lines = approval::full(&shown, Extent::Full);
            if !verb.reveal {
                lines.extend(diff::hidden(&shown));
            }
            lines.extend(approval::next_commands(&shown, ask::is_attended()));
            context.screen.print(&lines)?;
        }
        Format::Json | Format::Jsonl => context.screen.print_json(&approval::json(&shown)?)?,
    }
    Ok(Exit::OK)
}
