//! `belay executions timeline`.

use std::{ops::ControlFlow, time::Duration};

use belay_proto::v1::ExecutionEvent;
use serde_json::json;

use crate::{
    args::{ExecutionArg, Format, help},
    clock,
    connect::Needs,
    context::Context,
    exit::Exit,
    failure::Failure,
    history::{self, Until},
    lookup, next,
    render::{
        json,
        picture::Picture,
        text::{Line, Style},
        time,
        timeline::{self, Timeline},
        words,
    },
};

/// The most steps that are shown without `--all`.
const ROWS_SHOWN: usize = 40;
/// How wide it is where there is no window.
const COLUMNS: usize = 80;

/// Draw when each step of an execution ran and waited: attempts, retries, approvals, waits
///
/// Of more than 40 steps, those in the middle are left out. With `-o json`, the segments of each step: what it did, from when to when.
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
    context
        .with_session(Needs::Records, async |session| {
            let name = lookup::resolve(&mut session.client, &context.namespace, &verb.which.id).await?;
            let mut timeline = Timeline::default();
            let see = async |_: &mut _, _: &Picture, event: &ExecutionEvent| {
                timeline.see(event);
                Ok(ControlFlow::Continue(()))
            };
            let picture = history::read(session, &screen, &name, 0, Until::Now, see).await?;
            match screen.format {
                Format::Json => {
                    let whole = json!({ "execution": name, "segments": timeline.segments() });
                    screen.print_json(&json::of(&whole)?)?;
                }
                Format::Jsonl => {
                    for segment in timeline.segments() {
                        screen.print_json(&json::of(&segment)?)?;
                    }
                }
                Format::Text => {
                    let rows = if verb.all { usize::MAX } else { ROWS_SHOWN };
                    let columns = screen.output_columns().unwrap_or(COLUMNS);
                    let now = clock::now();
                    let mut lines = vec![heading(&picture, &timeline, now)];
                    lines.extend(timeline::lines(&timeline, columns, rows, now));
                    lines.extend(not_started(&picture, &timeline));
                    lines.push(next::line(next::about(&["why"], &name, &[])));
                    screen.print(&lines)?;
                }
            }
            Ok(Exit::OK)
        })
        .await
}

/// `tidy  completed in 31s`.
fn heading(picture: &Picture, timeline: &Timeline, now: Duration) -> Line {
    let execution = picture.execution();
    let took = time::short(timeline.end.unwrap_or(now).saturating_sub(timeline.start));
    let state = execution.state();
    let how = if timeline.end.is_some() { "after" } else { "for" };
    let from = time::date_and_time(&time::timestamp(timeline.start));
    Line::default()
        .and(Style::Strong, words::title(execution))
        .and(Style::Plain, "  ")
        .and(words::execution_style(state), words::execution_state(state))
        .and(Style::Plain, format!(" {how} {took}"))
        .and(Style::Dim, format!("  from {from}"))
}

/// How many steps have no row because nothing has become of them yet.
fn not_started(picture: &Picture, timeline: &Timeline) -> Option<Line> {
    let missing = picture.execution().steps.len().saturating_sub(timeline.rows.len());
    (missing > 0).then(|| Line::default().and(Style::Dim, format!("{} not started yet", words::steps(missing))))
}
