//! `belay approvals show`.

use super::{super::Context, Which, resolve};
use crate::{
    args::{Format, help},
    exit::Exit,
    failure::Failure,
    render::{approval, diff::Extent},
};

/// Show an approval: what is asked, why, what would change, and what to type next
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay approvals show @last"))]
pub(crate) struct Show {
    #[command(flatten)]
    which: Which,
}

/// Shows it.
pub(crate) async fn show(context: &Context, verb: Show) -> Result<Exit, Failure> {
    let shown = context.ask_gate(async |gate, _| resolve(gate, &context.namespace, &verb.which).await).await?;
    match context.screen.format {
        Format::Text => {
            let mut lines = approval::full(&shown, Extent::Full);
            lines.extend(approval::next_commands(&shown));
            context.screen.print(&lines)?;
        }
        Format::Json | Format::Jsonl => context.screen.print_json(&approval::json(&shown)?)?,
    }
    Ok(Exit::OK)
}
