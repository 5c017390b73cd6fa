//! `belay store prune`.

use std::time::Duration;

use belay_proto::v1::{Execution, ListExecutionsRequest};
use serde_json::json;

use super::{
    executions::{
        affected::{counted, shown},
        delete::delete_all,
    },
    listing::every,
};
use crate::{
    args::{Format, help},
    clock,
    connect::{Client, Requirement},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::{
        text::{Line, Style},
        time,
    },
};

/// Delete executions that ended long ago, or all but the last ones
///
/// Deletes in every namespace what either option names, with everything that Belay keeps about it; see `belay executions delete`. Asks
/// before; without a terminal, --yes is required. Uses the running server, or starts the services itself.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay store prune --older-than 30d --dry-run"))]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct Prune {
    /// Delete what ended longer ago than this, such as 30d or 12h
    #[arg(long, value_name = "D", value_parser = time::parse, group = "which")]
    older_than: Option<Duration>,
    /// Delete all but the N that ended last
    #[arg(long, value_name = "N", group = "which")]
    keep: Option<usize>,
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete without asking
    #[arg(long, short)]
    yes: bool,
}

/// Deletes what the options name.
pub(crate) async fn prune(context: &Context, verb: Prune) -> Result<Exit, Failure> {
    let pruned = context.ask(Requirement::Records, async |client| {
        let all = finished(client).await?;
        let now = clock::now();
        let ended = |execution: &Execution| execution.end_time.as_ref().and_then(time::since_epoch).unwrap_or(now);
        let first = first_not_kept(all.iter().map(ended), now, verb.older_than, verb.keep);
        // The oldest first, so that an interrupted command leaves what is newer.
        let old: Vec<Execution> = all.into_iter().skip(first).rev().collect();
        if verb.dry_run || old.is_empty() {
            return would_delete(context, &old);
        }
        delete_all(context, client, old, verb.yes).await
    });
    pruned.await
}

/// Every execution that has ended, the last end first.
async fn finished(client: &mut Client) -> Result<Vec<Execution>, Failure> {
    let every = every(async |page_size, page_token| {
        let request = ListExecutionsRequest {
            parent: "namespaces/-".to_owned(),
            page_size,
            page_token,
            order_by: "end_time desc".to_owned(),
            include_children: true,
            ..ListExecutionsRequest::default()
        };
        let page = client.list_executions(request).await?.into_inner();
        Ok((page.executions, page.next_page_token))
    });
    every.await
}

/// The index of the first execution that is deleted, as all after it are. `ended`: when they ended, the last end first.
fn first_not_kept(
    ended: impl ExactSizeIterator<Item = Duration>,
    now: Duration,
    older_than: Option<Duration>,
    keep: Option<usize>,
) -> usize {
    let count = ended.len();
    let by_age = older_than.map(|age| ended.take_while(|ended| now.saturating_sub(*ended) <= age).count());
    by_age.into_iter().chain(keep).min().unwrap_or(count).min(count)
}

fn would_delete(context: &Context, old: &[Execution]) -> Result<Exit, Failure> {
    match context.screen.format {
        Format::Text if old.is_empty() => {
            context.screen.print(&[Line::new("nothing to delete: the options keep every execution that has ended")])?;
        }
        Format::Text => {
            let mut lines = shown(old);
            let would = format!("{} would be deleted; nothing was", counted(old.len()));
            lines.push(Line::default().and(Style::Warn, would));
            context.screen.print(&lines)?;
        }
        Format::Json | Format::Jsonl => {
            let names: Vec<&str> = old.iter().map(|execution| execution.name.as_str()).collect();
            context.screen.print_json(&json!({ "wouldDelete": names }))?;
        }
    }
    Ok(Exit::OK)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser, Debug)]
    struct PruneCommand {
        #[command(flatten)]
        _prune: Prune,
    }

    #[test]
    fn either_option_deletes() {
        let seconds = Duration::from_secs;
        let first = |older_than: Option<u64>, keep| {
            first_not_kept([90, 80, 70, 60].map(seconds).into_iter(), seconds(100), older_than.map(seconds), keep)
        };
        assert_eq!((first(Some(5), None), first(Some(20), None), first(Some(25), None)), (0, 2, 2));
        assert_eq!((first(Some(40), None), first(Some(1000), None)), (4, 4));
        assert_eq!((first(None, Some(0)), first(None, Some(3)), first(None, Some(9))), (0, 3, 4));
        assert_eq!((first(Some(20), Some(3)), first(Some(20), Some(1))), (2, 1));
    }

    #[test]
    fn an_option_is_needed() {
        assert!(PruneCommand::try_parse_from(["prune"]).is_err());
        assert!(PruneCommand::try_parse_from(["prune", "--dry-run"]).is_err());
        assert!(PruneCommand::try_parse_from(["prune", "--keep", "5", "--older-than", "30d"]).is_ok());
    }
}
