//! `belay executions timeline`.

use std::time::Duration;

use belay_proto::v1::{GetTimelineRequest, Timeline};
use tonic::Status;

use crate::{
    args::{ExecutionArg, Format, help},
    clock,
    connect::{Client, Requirement},
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup, names, next,
    render::{
        json,
        text::{Line, Style},
        time,
        timeline::lines,
        words,
    },
};

/// The most steps that are shown without `--all`.
const ROWS_SHOWN: usize = 40;
/// How wide it is where there is no window.
const COLUMNS: usize = 80;

/// Draw when each step of an execution ran and waited: attempts, retries, approvals, waits
///
/// When there are more than 40 steps, those in the middle are left out. With `-o json`, a row for each step, with what it did from when to when.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions timeline @last"))]
pub(crate) struct Show {
    #[command(flatten)]
    which: ExecutionArg,
    /// Show all steps
    #[arg(long)]
    all: bool,
}

/// Draws it.
pub(crate) async fn timeline(context: &Context, verb: Show) -> Result<Exit, Failure> {
    let screen = context.screen;
    let read = context.ask(Requirement::Records, async |client| {
        let name = lookup::resolve(client, &context.namespace, &verb.which.id).await?;
        Ok(whole(client, &name).await?)
    });
    let timeline = read.await?;
    match screen.format {
        Format::Json => screen.print_json(&json::of(&timeline)?)?,
        Format::Jsonl => {
            for row in &timeline.rows {
                screen.print_json(&json::of(row)?)?;
            }
        }
        Format::Text => {
            let rows = if verb.all { usize::MAX } else { ROWS_SHOWN };
            let columns = screen.output_columns().unwrap_or(COLUMNS);
            let now = clock::now();
            let mut shown = vec![heading(&timeline, now)];
            shown.extend(lines(&timeline, columns, rows, now));
            shown.extend(not_started(&timeline));
            shown.push(next::line(next::about(&["why"], &timeline.execution, &[])));
            screen.print(&shown)?;
        }
    }
    Ok(Exit::OK)
}

/// All pages as one. What the last says of the execution holds for all.
async fn whole(client: &mut Client, name: &str) -> Result<Timeline, Status> {
    let mut whole = Timeline::default();
    loop {
        let page_token = std::mem::take(&mut whole.next_page_token);
        let request = GetTimelineRequest { name: name.to_owned(), page_token, page_size: 0 };
        let page = client.get_timeline(request).await?.into_inner();
        let mut rows = whole.rows;
        rows.extend(page.rows);
        whole = Timeline { rows, ..page };
        if whole.next_page_token.is_empty() {
            return Ok(whole);
        }
    }
}

/// `tidy  completed after 31s`.
fn heading(timeline: &Timeline, now: Duration) -> Line {
    let until = timeline.end_time.as_ref().and_then(time::since_epoch);
    let took = time::between(timeline.create_time.as_ref(), Some(until.unwrap_or(now))).unwrap_or_default();
    let how = if until.is_some() { "after" } else { "for" };
    let from = timeline.create_time.as_ref().map(time::date_and_time).unwrap_or_default();
    let title = if timeline.plan_id.is_empty() { names::id(&timeline.execution) } else { &timeline.plan_id };
    let state = timeline.state();
    Line::default()
        .and(Style::Strong, title)
        .and(Style::Plain, "  ")
        .and(words::execution_style(state), words::execution_state(state))
        .and(Style::Plain, format!(" {how} {}", time::short(took)))
        .and(Style::Dim, format!("  from {from}"))
}

/// How many steps have no row because nothing has become of them yet.
fn not_started(timeline: &Timeline) -> Option<Line> {
    let missing = usize::try_from(timeline.pending_steps).ok().filter(|missing| *missing > 0)?;
    Some(Line::default().and(Style::Dim, format!("{} not started yet", words::steps(missing))))
}
