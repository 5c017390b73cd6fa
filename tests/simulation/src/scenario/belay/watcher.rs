//! A watcher: follows an execution to its end, disconnects now and then, and continues at its last cursor.

use std::time::Duration;

use belay_proto::v1::{self, execution_event::Kind, watch_execution_response::Content};
use belay_service_kit::cursor::{Cursor, Source, WatchIdentity};
use rand::Rng;
use rand::rngs::StdRng;
use tonic::Streaming;

use super::client::{Connection, RPC_TIMEOUT, is_terminal, pause};
use super::records::Observations;
use crate::trace;

/// How often the server sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_millis(300);

/// Follows execution `name` until its last event: no gaps and no duplicates, both live and in replay. B-02.
pub(super) async fn watch(name: &str, observed: &Observations, mut random: StdRng) {
    let mut either = random.clone();
    let mut connection = Connection::to_either(observed, &mut either);
    let watched = WatchIdentity::execution(name);
    let mut seen = LastSeen::default();
    let mut restores = observed.restores();
    loop {
        if std::mem::replace(&mut restores, observed.restores()) != restores && observed.restores_are_silent() {
            seen = LastSeen::default();
        }
        let request = v1::WatchExecutionRequest {
            name: name.to_owned(),
            cursor: seen.cursor.clone(),
            heartbeat_interval: Some(belay_proto::duration(HEARTBEAT)),
            view: v1::ExecutionView::Full.into(),
            // With a cursor it counts after a reset, of both kinds.
            include_earlier_events: seen.cursor.is_empty() || seen.sequence % 2 == 0,
        };
        trace::detail(format_args!("watches {name} after {}", seen.sequence));
        let stream = connection.ask(|mut client| async move { client.watch_execution(request).await });
        if let Some(stream) = stream.await {
            trace::count(if seen.sequence > 0 { "watches resumed" } else { "watches from the beginning" });
            let max_messages = random.random_range(1..60);
            if follow(&mut connection, stream, name, &watched, observed, &mut seen, max_messages).await {
                return;
            }
        }
        if connection.is_gone(name) {
            return;
        }
        if random.random_bool(0.1) {
            // Another watcher, from the beginning.
            seen = LastSeen::default();
        }
        pause(&mut random, 300).await;
        connection = connection.or_either(&mut either);
    }
}

/// The last things that a watcher has seen.
#[derive(Debug, Default)]
struct LastSeen {
    /// The last event.
    sequence: i64,
    /// The source of that number: a journal and an execution in it.
    source: Option<Source>,
    /// The last cursor.
    cursor: String,
    /// Whether a reset has moved it past events that were not shown.
    is_reset: bool,
}

/// Reads up to `max_messages`; returns whether the last event was among them.
async fn follow(
    connection: &mut Connection,
    mut stream: Streaming<v1::WatchExecutionResponse>,
    name: &str,
    watched: &WatchIdentity,
    observed: &Observations,
    seen: &mut LastSeen,
    max_messages: u32,
) -> bool {
    let mut snapshots = 0;
    for _ in 0..max_messages {
        let message = match tokio::time::timeout(RPC_TIMEOUT, stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => {
                let last = seen.sequence;
                observed.violation(format_args!("the watch of {name} ended after event {last}, which is not the last"));
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
        let Ok(Some(Cursor { source, place: [place] })) = watched.read(&message.cursor) else {
            observed.violation(format_args!("the watch of {name} has no cursor of its own: {:?}", message.cursor));
            return true;
        };
        if let Some(Content::Reset(_)) = &message.content
            && observed.execution_may_be_gone()
            && seen.source.is_some_and(|before| before != source)
        {
            trace::count("watches reset");
            *seen = LastSeen { sequence: place, source: Some(source), cursor: message.cursor, is_reset: true };
            continue;
        }
        if seen.sequence > 0 && seen.source != Some(source) {
            let before = seen.source;
            observed
                .violation(format_args!("the watch of {name} went on in {source:?} after {before:?}, without a reset"));
            return true;
        }
        seen.source = Some(source);
        seen.cursor = message.cursor;
        let last = seen.sequence;
        match message.content {
            Some(Content::Snapshot(snapshot)) => {
                snapshots += 1;
                if snapshot.last_sequence < last {
                    observed.violation(format_args!("event {last} of {name} was shown and is gone"));
                }
                observed.saw(&snapshot);
                // Its last event is among those that the reset left out.
                if seen.is_reset && is_terminal(snapshot.state()) && snapshot.last_sequence == last {
                    return true;
                }
            }
            Some(Content::Event(event)) => {
                let (sequence, kind) = (event.sequence, event.kind.as_ref());
                if sequence != last + 1 {
                    observed.violation(format_args!("event {sequence} of {name} was shown after event {last}"));
                }
                seen.sequence = sequence;
                let is_last = matches!(kind, Some(Kind::ExecutionFinished(_)));
                trace::event(format_args!("{name}: {sequence} {} {}", event.step_id, kind_name(kind)));
                observed.shown(name, source, event);
                if is_last {
                    return true;
                }
            }
            Some(Content::Heartbeat(_)) => {}
            other => observed.violation(format_args!("the watch of {name} after event {last} said {other:?}")),
        }
        if place != seen.sequence {
            let last = seen.sequence;
            observed
                .violation(format_args!("the watch of {name} resumes after event {place} when it has shown {last}"));
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
