//! Reads the events of an execution, up to now or to its end, through broken connections. Drives nothing.

use std::{cell::RefCell, ops::ControlFlow};

use belay_proto::v1::{ExecutionEvent, ExecutionView, WatchExecutionRequest, WatchExecutionResponse};
use belay_reasons as reasons;
use futures::StreamExt as _;
use tonic::{Status, Streaming};

use crate::{
    connect::{Client, Session},
    failure::{Failure, Report},
    follow::{self, HEARTBEAT, WatchItem, Watchable, is_over},
    names, next,
    render::{
        text::{Line, Style},
        time,
        tracked_execution::TrackedExecution,
    },
    screen::Screen,
};

/// How far events are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// To the last event there is when the reading begins.
    Now,
    /// To the end of the execution.
    End,
}

/// Reads the events after a number in order: `see` gets each with what is known of the execution and a client that is connected. Output that
/// is not stored is left out. `see` may end the reading. Returns the execution as it is after the last of them.
///
/// # Errors
/// Also when the execution has not ended, was to be read to its end, and no process drives it.
pub(crate) async fn read(
    session: &mut Session,
    screen: &Screen,
    name: &str,
    after: i64,
    until: ReadEnd,
    mut see: impl AsyncFnMut(&mut Client, &TrackedExecution, &ExecutionEvent) -> Result<ControlFlow<()>, Failure>,
) -> Result<TrackedExecution, Failure> {
    let is_driven = !session.is_embedded();
    let client = RefCell::new(session.client.clone());
    let mut messages =
        std::pin::pin!(follow::follow(FollowedExecution { session, name, client: &client }, Some(after)));
    let mut known: Option<TrackedExecution> = None;
    let (mut last, mut end) = (after, None);
    while let Some(seen) = messages.next().await {
        let seen = seen.map_err(|failure| with_next(failure, name))?;
        if let Some(line) = news(&seen) {
            screen.say(&line);
        }
        match seen {
            WatchItem::Snapshot(execution) => {
                end = (until == ReadEnd::Now || !(is_driven || is_over(execution.state())))
                    .then_some(execution.last_sequence);
                known = Some(match known.take() {
                    Some(tracked) => tracked.renewed(*execution),
                    None => TrackedExecution::new(*execution),
                });
            }
            WatchItem::Event(event) if event.ephemeral => {}
            WatchItem::Event(event) => {
                let Some(tracked) = &mut known else { continue };
                tracked.apply(&event);
                last = event.sequence;
                let mut client = client.borrow().clone();
                if see(&mut client, tracked, &event).await?.is_break() {
                    break;
                }
            }
            WatchItem::Reset(event) => last = event,
            WatchItem::Lost { .. } | WatchItem::Back => {}
        }
        if end.is_some_and(|end| last >= end) {
            break;
        }
    }
    let tracked = known.ok_or_else(|| Failure::internal("the watch of an execution began without the execution"))?;
    match until == ReadEnd::End && end.is_some_and(|end| last >= end) && !is_over(tracked.execution().state()) {
        true => Err(not_driven(name).into()),
        false => Ok(tracked),
    }
}

/// The line about a connection that broke or is back; `None` for other items.
pub(crate) fn news(seen: &WatchItem) -> Option<Line> {
    Some(match seen {
        WatchItem::Lost { why, wait } => {
            Line::default().and(Style::Warn, format!("connection lost ({why}); retrying in {}", time::short(*wait)))
        }
        WatchItem::Back => Line::default().and(Style::Good, "connected again"),
        WatchItem::Reset(last) => {
            let message = format!(
                "the server's journal was lost or restored: it ends at event {last}, and the events shown after that one no longer exist"
            );
            Line::default().and(Style::Warn, message)
        }
        WatchItem::Snapshot(_) | WatchItem::Event(_) => return None,
    })
}

/// An execution that would have to be driven to end.
pub(crate) fn not_driven(name: &str) -> Report {
    let message = format!("execution {} has not ended, and no process drives it", names::id(name));
    Report::new(reasons::EXECUTION_NOT_DRIVEN, message).next(next::about(&["executions", "resume"], name, &[]))
}

fn with_next(failure: Failure, name: &str) -> Failure {
    match failure {
        Failure::Report(mut report) => {
            report.next.get_or_insert_with(|| next::about(&["executions", "get"], name, &[]));
            Failure::Report(report)
        }
        other => other,
    }
}

/// An execution of a session, for `follow`.
struct FollowedExecution<'a> {
    session: &'a mut Session,
    name: &'a str,
    /// For requests beside the watch.
    client: &'a RefCell<Client>,
}

impl Watchable for FollowedExecution<'_> {
    type Messages = Streaming<WatchExecutionResponse>;

    async fn watch(&mut self, cursor: &str, include_earlier_events: bool) -> Result<Self::Messages, Status> {
        let request = WatchExecutionRequest {
            name: self.name.to_owned(),
            cursor: cursor.to_owned(),
            heartbeat_interval: Some(HEARTBEAT.into()),
            view: ExecutionView::Full.into(),
            include_earlier_events,
        };
        Ok(self.session.client.watch_execution(request).await?.into_inner())
    }

    async fn reconnect(&mut self, _tries: u32) -> Result<(), Failure> {
        self.session.reconnect(false).await?;
        self.client.replace(self.session.client.clone());
        Ok(())
    }
}
