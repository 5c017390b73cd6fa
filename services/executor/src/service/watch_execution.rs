use std::{iter::Peekable, pin::Pin, sync::Arc, time::Duration, vec::IntoIter};

use belay_defects::{Defect, is_planted};
use belay_journal::{ExecutionKey, ExecutionRow};
use belay_proto::{
    v1::{self, watch_execution_response::Content},
    watch::WatchMessage,
};
use belay_reasons as reasons;
use belay_service_kit::{
    Principal, Taken, status,
    watch::{Wake, heartbeat_interval, wake},
};
use futures::{FutureExt as _, Stream};
use prost::bytes::Bytes;
use tonic::{Code, Status};

use super::get_execution::show;
use crate::{
    ExecutionRegistry,
    feeds::{Encoded, EventFeed, Head, OutputChunk},
    names::ExecutionName,
    observe::trace::span_of,
    store::journal_reads::{undecodable, unreadable},
    wire,
};

/// The messages of a watch.
pub(super) type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// How many bytes of events a watcher takes from memory or reads from the journal at a time, unless one transition alone has more: what one
/// that never reads holds in memory.
const MAX_PAGE_BYTES: usize = 64 * 1024;

/// From which pace on a watcher waits: the clock of waits has a resolution of a millisecond.
const MIN_PACE: Duration = Duration::from_millis(1);

pub(super) async fn watch_execution(
    registry: &Arc<ExecutionRegistry>,
    caller: &Principal,
    request: v1::WatchExecutionRequest,
) -> Result<Messages<WatchMessage>, Status> {
    let name = ExecutionName::parse("name", &request.name)?;
    let heartbeat = heartbeat_interval(request.heartbeat_interval.as_ref())?;
    let taken = registry.watchers.take_for(caller)?;
    let row = registry.follower.find(&name).await?;
    // Subscribed before the snapshot is taken, so that no event in between is missed.
    let feed = registry.feed(row.key);
    let changes = feed.subscribe();
    let last_chunk = changes.borrow().chunks;
    let snapshot = show(registry, &name, request.view()).await?;
    let last = snapshot.last_sequence;
    let mut reset = None;
    let is_unchecked = is_planted(Defect::StaleCursorTrusted) || is_planted(Defect::CursorAheadRejected);
    let is_foreign = !request.journal.is_empty() && *request.journal != *registry.journal && !is_unchecked;
    let cursor = match request.after_sequence {
        None => last,
        // Another journal may have different events under the same numbers.
        Some(after) if after > 0 && is_foreign => {
            tracing::warn!(execution = %name, after, last, "A watcher's cursor is from another journal; its watch is reset");
            reset = Some(v1::WatchExecutionReset { last_sequence: last });
            last
        }
        Some(after) if (0..=last).contains(&after) => after,
        // Only durable events are shown, so the store was replaced. With an error the watcher would ask for the same again.
        Some(after) if after > last && !is_planted(Defect::CursorAheadRejected) => {
            tracing::warn!(execution = %name, after, last, "A watcher's cursor is after the end of the journal; its watch is reset");
            reset = Some(v1::WatchExecutionReset { last_sequence: last });
            last
        }
        Some(after) => {
            let message =
                format!("after_sequence: {after} is out of range: the oldest event kept is 1 and the last is {last}");
            let error = status::error(Code::OutOfRange, reasons::SEQUENCE_OUT_OF_RANGE, message);
            return Err(error.with("oldest_sequence", 1).with("last_sequence", last).into());
        }
    };
    let watch = Watch {
        registry: Arc::clone(registry),
        row,
        feed,
        changes,
        traceparent: traceparent(registry, &snapshot),
        cursor: u64::try_from(cursor).unwrap_or(0),
        last_chunk,
        page: registry.thresholds.watch_page,
        heartbeat,
        _taken: taken,
    };
    Ok(Box::pin(watch.stream(snapshot, reset)))
}

struct Watch {
    registry: Arc<ExecutionRegistry>,
    row: ExecutionRow,
    feed: Arc<EventFeed>,
    changes: tokio::sync::watch::Receiver<Head>,
    /// The execution's span.
    traceparent: String,
    cursor: u64,
    /// The last output chunk that was sent.
    last_chunk: u64,
    /// How many transitions to read from the journal at a time.
    page: usize,
    heartbeat: Duration,
    /// Counts against the limit of waiting requests.
    _taken: Taken,
}

impl Watch {
    fn stream(
        mut self,
        snapshot: v1::Execution,
        reset: Option<v1::WatchExecutionReset>,
    ) -> impl futures::Stream<Item = Result<WatchMessage, Status>> {
        let journal = self.registry.journal.to_string();
        let encoded_journal = Bytes::from(journal.clone());
        let response = move |content| v1::WatchExecutionResponse {
            journal: journal.clone(),
            content: Some(content),
            ..v1::WatchExecutionResponse::default()
        };
        let message = move |event| WatchMessage::Event { journal: encoded_journal.clone(), event };
        async_stream::try_stream! {
            let ended = is_terminal(snapshot.state());
            let last = sequence_of(&snapshot);
            if let Some(reset) = reset {
                yield response(Content::Reset(reset)).into();
            }
            let first = v1::WatchExecutionResponse {
                execution: snapshot.name.clone(),
                uid: snapshot.uid.clone(),
                traceparent: self.traceparent.clone(),
                ..response(Content::Snapshot(snapshot))
            };
            yield first.into();
            loop {
                self.changes.mark_unchanged();
                let transitions = self.next().await?;
                // Read after the transitions: output that belongs before one of their events is published before that event.
                let mut output = self.new_output().into_iter().peekable();
                for chunk in self.before_next(&mut output) {
                    yield message(chunk);
                }
                if transitions.is_empty() {
                    if ended && self.cursor >= last {
                        return;
                    }
                    let (changed, shutdown) = (self.changes.changed().map(drop), &self.registry.shutdown);
                    match wake(changed, shutdown, self.heartbeat).await {
                        Wake::Changed => {}
                        Wake::Stopping => {
                            Err(Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping; retry.")))?;
                        }
                        Wake::Quiet => {
                            let server_time = Some(belay_proto::timestamp(self.registry.clock.now_micros()));
                            let last_sequence = i64::try_from(self.cursor).unwrap_or(i64::MAX);
                            yield response(Content::Heartbeat(v1::WatchExecutionHeartbeat { last_sequence, server_time })).into();
                        }
                    }
                    continue;
                }
                for transition in transitions {
                    for event in transition.after(self.cursor) {
                        let (sequence, event) = event.map_err(|error| undecodable(&error, &self.registry.vault))?;
                        self.cursor = sequence;
                        // An end before the snapshot was followed by a retry.
                        let finished = transition.is_end() && sequence == transition.last() && sequence >= last;
                        yield message(event);
                        for chunk in self.before_next(&mut output) {
                            yield message(chunk);
                        }
                        if finished {
                            return;
                        }
                    }
                }
                let pace = self.feed.pace();
                if pace >= MIN_PACE {
                    tokio::time::sleep(pace).await;
                }
            }
        }
    }

    /// Output that was not sent yet.
    fn new_output(&self) -> Vec<OutputChunk> {
        if self.changes.borrow().chunks <= self.last_chunk {
            return Vec::new();
        }
        self.feed.output_after(self.last_chunk)
    }

    /// Takes the output that belongs before the next event.
    fn before_next(&mut self, output: &mut Peekable<IntoIter<OutputChunk>>) -> Vec<Bytes> {
        let mut events = Vec::new();
        while let Some(chunk) = output.next_if(|chunk| chunk.after <= self.cursor) {
            self.last_chunk = chunk.number;
            events.push(chunk.event);
        }
        events
    }

    /// The next transitions with events after the cursor, from memory or from the store; none when there are none yet.
    async fn next(&mut self) -> Result<Vec<Encoded>, Status> {
        let cursor = self.cursor;
        let in_memory = self.feed.after(cursor, MAX_PAGE_BYTES);
        if !in_memory.is_empty() {
            return Ok(in_memory);
        }
        let known = self.changes.borrow().last;
        if known != 0 && known <= cursor {
            return Ok(Vec::new());
        }
        let (key, page): (ExecutionKey, usize) = (self.row.key, self.page);
        let read = self.registry.follower.read(move |reader| reader.read(key, cursor, page)).await;
        let read = read.map_err(|error| unreadable(&error))?;
        let (mut transitions, mut bytes) = (Vec::new(), 0);
        let read_len = read.len();
        for transition in read {
            wire::check_version(&transition).map_err(|error| undecodable(&error, &self.registry.vault))?;
            bytes += transition.shown.len();
            if bytes > MAX_PAGE_BYTES && !transitions.is_empty() {
                break;
            }
            transitions.push(Encoded::from(transition));
        }
        // A client that is shown an event and then asks for the execution gets it with that event.
        if let Some(last) = transitions.last() {
            self.feed.raise(last.last());
        }
        // Where events are large, the rest of a page would be read again and again.
        let is_whole = transitions.len() == read_len;
        let page = if is_whole { self.page.saturating_mul(2) } else { transitions.len() };
        self.page = page.clamp(1, self.registry.thresholds.watch_page.max(1));
        Ok(transitions)
    }
}

/// The execution's span.
fn traceparent(registry: &ExecutionRegistry, snapshot: &v1::Execution) -> String {
    let trace = snapshot.trace.clone().unwrap_or_default();
    let (_, span) = span_of(&registry.telemetry, &snapshot.uid, &trace.traceparent, &trace.tracestate);
    span.traceparent()
}

fn sequence_of(snapshot: &v1::Execution) -> u64 {
    u64::try_from(snapshot.last_sequence).unwrap_or(0)
}

pub(super) fn is_terminal(state: v1::execution::State) -> bool {
    use v1::execution::State;
    matches!(state, State::Completed | State::Partial | State::Failed | State::Cancelled | State::TimedOut)
}
