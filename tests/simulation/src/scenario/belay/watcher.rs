//! A watcher: follows an execution to its end, disconnects now and then, and continues after its last event.

use std::time::Duration;

use belay_proto::v1::{self, execution_event::Kind, watch_execution_response::Content};
use rand::Rng;
use rand::rngs::StdRng;
use tonic::Streaming;

use super::client::{Connection, RPC_TIMEOUT, is_terminal, pause};
use super::observed::Observations;
use crate::trace;

/// How often the server sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_millis(300);

/// Follows execution `name` until its last event: no gaps and no duplicates, both live and in replay. B-02.
pub(super) async fn watch(name: &str, observed: &Observations, mut random: StdRng) {
    let mut connection = Connection::new(observed);
    let mut cursor = Cursor::default();
    let mut restores = observed.restores();
    loop {
        if std::mem::replace(&mut restores, observed.restores()) != restores && observed.restores_are_silent() {
            cursor = Cursor::default();
        }
        let request = v1::WatchExecutionRequest {
            name: name.to_owned(),
            after_sequence: Some(cursor.sequence),
            heartbeat_interval: Some(belay_proto::duration(HEARTBEAT)),
            journal: cursor.journal.clone(),
            view: v1::ExecutionView::Full.into(),
        };
        trace::detail(format_args!("watches {name} after {}", cursor.sequence));
        let stream = connection.ask(|mut client| async move { client.watch_execution(request).await });
        if let Some(stream) = stream.await {
            trace::count(if cursor.sequence > 0 { "watches resumed" } else { "watches from the beginning" });
            let max_messages = random.random_range(1..60);
            if follow(&mut connection, stream, name, observed, &mut cursor, max_messages).await {
                return;
            }
        }
        if connection.is_gone(name) {
            return;
        }
        if random.random_bool(0.1) {
            // Another watcher, from the beginning.
            cursor = Cursor::default();
        }
        pause(&mut random, 300).await;
    }
}

/// The last event that a watcher has seen, and its journal.
#[derive(Debug, Default)]
struct Cursor {
    sequence: i64,
    journal: String,
    /// Whether a reset has moved it past events that were not shown.
    is_reset: bool,
}

/// Reads up to `max_messages`; returns whether the last event was among them.
async fn follow(
    connection: &mut Connection,
    mut stream: Streaming<v1::WatchExecutionResponse>,
    name: &str,
    observed: &Observations,
    cursor: &mut Cursor,
    max_messages: u32,
) -> bool {
    let mut snapshots = 0;
    for _ in 0..max_messages {
        let message = match tokio::time::timeout(RPC_TIMEOUT, stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => {
                let cursor = cursor.sequence;
                observed
                    .violation(format_args!("the watch of {name} ended after event {cursor}, which is not the last"));
                return true;
            }
            Ok(Err(status)) => {
                connection.refused(&status);
                return false;
            }
            Err(_) => {
                trace::event(format_args!("the watch of {name} is silent"));
                *connection = Connection::new(observed);
                return false;
            }
        };
        let journal = message.journal;
        if let Some(Content::Reset(reset)) = &message.content
            && observed.execution_may_be_gone()
            && !cursor.journal.is_empty()
            && cursor.journal != journal
        {
            trace::count("watches reset");
            *cursor = Cursor { sequence: reset.last_sequence, journal, is_reset: true };
            continue;
        }
        if cursor.sequence > 0 && cursor.journal != journal {
            let before = &cursor.journal;
            observed
                .violation(format_args!("the watch of {name} went on in {journal} after {before}, without a reset"));
            return true;
        }
        cursor.journal.clone_from(&journal);
        let seen = cursor.sequence;
        match message.content {
            Some(Content::Snapshot(snapshot)) => {
                snapshots += 1;
                if snapshot.last_sequence < seen {
                    observed.violation(format_args!("event {seen} of {name} was shown and is gone"));
                }
                observed.saw(&snapshot);
                // Its last event is among those that the reset left out.
                if cursor.is_reset && is_terminal(snapshot.state()) && snapshot.last_sequence == seen {
                    return true;
                }
            }
            Some(Content::Event(event)) => {
                let (sequence, kind) = (event.sequence, event.kind.as_ref());
                if sequence != seen + 1 {
                    observed.violation(format_args!("event {sequence} of {name} was shown after event {seen}"));
                }
                cursor.sequence = sequence;
                let is_last = matches!(kind, Some(Kind::ExecutionFinished(_)));
                trace::event(format_args!("{name}: {sequence} {} {}", event.step_id, kind_name(kind)));
                observed.shown(name, &journal, event);
                if is_last {
                    return true;
                }
            }
            Some(Content::Heartbeat(heartbeat)) if heartbeat.last_sequence == seen => {}
            other => observed.violation(format_args!("the watch of {name} after event {seen} said {other:?}")),
        }
        if snapshots != 1 {
            observed.violation(format_args!("a watch of {name} began with {snapshots} snapshots"));
            return true;
        }
    }
    false
}

fn kind_name(kind: Option<&Kind>) -> String {
    let text = format!("{kind:?}");
    let name = text.trim_start_matches("Some(").split('(').next().unwrap_or_default();
    name.to_owned()
}
