//! A watcher: follows an execution to its end, leaves now and then, and goes on after the last event it has.

use std::time::Duration;

use belay_proto::v1::{self, execution_event::Kind, watch_execution_response::Content};
use rand::Rng;
use rand::rngs::StdRng;
use tonic::Streaming;

use super::client::{Connection, PATIENCE, pause};
use super::told::Told;
use crate::trace;

/// How often the server is to say that it is there.
const HEARTBEAT: Duration = Duration::from_millis(300);

/// Follows execution `name` until its last event: no gap, nothing twice, live and replay alike. B-02.
pub(super) async fn watch(name: &str, told: &Told, mut random: StdRng) {
    let mut connection = Connection::new(told);
    let mut cursor = 0;
    loop {
        let request = v1::WatchExecutionRequest {
            name: name.to_owned(),
            after_sequence: Some(cursor),
            heartbeat_interval: Some(belay_proto::duration(HEARTBEAT)),
        };
        trace::detail(format_args!("watches {name} after {cursor}"));
        let stream = connection.ask(|mut client| async move { client.watch_execution(request).await });
        if let Some(stream) = stream.await {
            trace::count(if cursor > 0 { "watches resumed" } else { "watches from the beginning" });
            let patience = random.random_range(1..60);
            if follow(&mut connection, stream, name, told, &mut cursor, patience).await {
                return;
            }
        }
        if random.random_bool(0.1) {
            // Somebody new, who sees it all from the beginning.
            cursor = 0;
        }
        pause(&mut random, 300).await;
    }
}

/// Takes up to `patience` messages; says whether the last event was among them.
async fn follow(
    connection: &mut Connection,
    mut stream: Streaming<v1::WatchExecutionResponse>,
    name: &str,
    told: &Told,
    cursor: &mut i64,
    patience: u32,
) -> bool {
    let mut snapshots = 0;
    for _ in 0..patience {
        let message = match tokio::time::timeout(PATIENCE, stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => {
                told.violation(format_args!("the watch of {name} ended after event {cursor}, which is not the last"));
                return true;
            }
            Ok(Err(status)) => {
                connection.refused(&status);
                return false;
            }
            Err(_) => {
                trace::event(format_args!("the watch of {name} is silent"));
                *connection = Connection::new(told);
                return false;
            }
        };
        match message.content {
            Some(Content::Snapshot(snapshot)) => {
                snapshots += 1;
                if snapshot.last_sequence < *cursor {
                    told.violation(format_args!("event {cursor} of {name} was shown and is gone"));
                }
                told.saw(&snapshot);
            }
            Some(Content::Event(event)) => {
                let (sequence, kind) = (event.sequence, event.kind.as_ref());
                if sequence != *cursor + 1 {
                    told.violation(format_args!("event {sequence} of {name} was shown after event {cursor}"));
                }
                *cursor = sequence;
                let is_last = matches!(kind, Some(Kind::ExecutionFinished(_)));
                trace::event(format_args!("{name}: {sequence} {} {}", event.step_id, kind_name(kind)));
                told.shown(name, event);
                if is_last {
                    return true;
                }
            }
            Some(Content::Heartbeat(heartbeat)) if heartbeat.last_sequence == *cursor => {}
            other => told.violation(format_args!("the watch of {name} after event {cursor} said {other:?}")),
        }
        if snapshots != 1 {
            told.violation(format_args!("a watch of {name} began with {snapshots} snapshots"));
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
