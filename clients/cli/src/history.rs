//! Reads the events of an execution, up to now or to its end, through broken connections. Drives nothing.

use std::{cell::RefCell, ops::ControlFlow};

use belay_proto::v1::{ExecutionEvent, ExecutionView, WatchExecutionRequest, WatchExecutionResponse};
use belay_reasons as reasons;
use futures::StreamExt as _;
use tonic::{Status, Streaming};

use crate::{
    connect::{Client, Session},
    failure::{Failure, Report},
    follow::{self, HEARTBEAT, Seen, Watchable, is_over},
    names, next,
    render::{
        picture::Picture,
        text::{Line, Style},
        time,
    },
    screen::Screen,
};

/// How far events are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
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
    until: Until,
    mut see: impl AsyncFnMut(&mut Client, &Picture, &ExecutionEvent) -> Result<ControlFlow<()>, Failure>,
) -> Result<Picture, Failure> {
    let is_driven = !session.is_embedded();
    let client = RefCell::new(session.client.clone());
    let mut messages = std::pin::pin!(follow::follow(Watched { session, name, client: &client }, Some(after)));
    let mut known: Option<Picture> = None;
    let (mut last, mut end) = (after, None);
    while let Some(seen) = messages.next().await {
        let seen = seen.map_err(|failure| with_next(failure, name))?;
        if let Some(line) = news(&seen) {
            screen.say(&line);
        }
        match seen {
            Seen::Snapshot(execution) => {
                end = (until == Until::Now || !(is_driven || is_over(execution.state())))
                    .then_some(execution.last_sequence);
                known = Some(match known.take() {
                    Some(picture) => picture.renewed(*execution),
                    None => Picture::new(*execution),
                });
            }
            Seen::Event(event) if event.ephemeral => {}
            Seen::Event(event) => {
                let Some(picture) = &mut known else { continue };
                picture.apply(&event);
                last = event.sequence;
                let mut client = client.borrow().clone();
                if see(&mut client, picture, &event).await?.is_break() {
                    break;
                }
            }
            Seen::Reset(event) => last = event,
            Seen::Lost { .. } | Seen::Back => {}
        }
        if end.is_some_and(|end| last >= end) {
            break;
        }
    }
    let picture = known.ok_or_else(|| Failure::internal("the watch of an execution began without the execution"))?;
    match until == Until::End && end.is_some_and(|end| last >= end) && !is_over(picture.execution().state()) {
        true => Err(not_driven(name).into()),
        false => Ok(picture),
    }
}

/// What to say of a connection that broke or is back; `None` for what is not about it.
pub(crate) fn news(seen: &Seen) -> Option<Line> {
    Some(match seen {
        Seen::Lost { why, wait } => {
            Line::default().and(Style::Warn, format!("connection lost ({why}); retrying in {}", time::short(*wait)))
        }
        Seen::Back => Line::default().and(Style::Good, "connected again"),
        Seen::Reset(last) => {
            let message = format!(
                "the server's journal was lost or restored: it ends at event {last}, and the events shown after that one no longer exist"
            );
            Line::default().and(Style::Warn, message)
        }
        Seen::Snapshot(_) | Seen::Event(_) => return None,
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

/// One execution of a session, for `follow`.
struct Watched<'a> {
    session: &'a mut Session,
    name: &'a str,
    /// For requests beside the watch.
    client: &'a RefCell<Client>,
}

impl Watchable for Watched<'_> {
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
