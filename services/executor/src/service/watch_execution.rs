use std::{iter::Peekable, pin::Pin, sync::Arc, time::Duration, vec::IntoIter};

use belay_defects::{Defect, is_planted};
use belay_journal::{ExecutionKey, ExecutionRow, StoreError};
use belay_proto::{
    v1::{self, watch_execution_response::Content, watch_reset::Reason},
    watch::WatchMessage,
};
use belay_reasons as reasons;
use belay_service_kit::{
    Permit, Principal,
    cursor::{Cursor, Source, WatchIdentity},
    status,
    watch::{Wake, heartbeat_interval, wake},
};
use futures::{FutureExt as _, Stream};
use prost::bytes::Bytes;
use tonic::{Code, Status};

use super::get_execution::show;
use crate::{
    ExecutionReader,
    feeds::{EncodedEvents, EventFeed, Head, OutputChunk},
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
    reading: &Arc<ExecutionReader>,
    caller: &Principal,
    request: v1::WatchExecutionRequest,
) -> Result<Messages<WatchMessage>, Status> {
    let name = ExecutionName::parse("name", &request.name)?;
    let heartbeat = heartbeat_interval(request.heartbeat_interval.as_ref())?;
    let watched = WatchIdentity::execution(&request.name);
    let resumed = watched.read(&request.cursor)?;
    let taken = reading.watchers.take_for(caller)?;
    let row = reading.follower.find(&name).await?;
    // Subscribed before the snapshot is taken, so that no event in between is missed.
    let feed = reading.feed(row.key);
    let changes = feed.subscribe();
    let last_chunk = changes.borrow().chunks;
    let mut snapshot = show(reading, &name, request.view()).await?;
    let source = Source::new(&[&reading.journal, &snapshot.uid]);
    if let Some(cursor) = resumed
        && cursor.source == source
        && is_stored(reading, row.key, cursor.place[0], snapshot.last_sequence).await?
    {
        // Another process has read from the store what this one has not heard of yet: a commit whose answer is on its way.
        feed.raise(u64::try_from(cursor.place[0]).unwrap_or(0));
        snapshot = show(reading, &name, request.view()).await?;
    }
    let last = snapshot.last_sequence;
    let start = if request.include_earlier_events { 0 } else { last };
    let (after, reset) = begin(resumed, source, start, last);
    if let Some(reason) = reset {
        if is_planted(Defect::CursorAheadRejected) {
            return Err(status::invalid("cursor", "is after the last event").into());
        }
        tracing::warn!(execution = %name, ?resumed, last, ?reason, "A watch cannot resume from its cursor; it is reset");
    }
    let watch = Watch {
        reading: Arc::clone(reading),
        row,
        feed,
        changes,
        traceparent: traceparent(reading, &snapshot),
        watched,
        source,
        cursor: u64::try_from(after).unwrap_or(0),
        last_chunk,
        page: reading.thresholds.watch_page,
        heartbeat,
        _taken: taken,
    };
    Ok(Box::pin(watch.stream(snapshot, reset)))
}

/// Whether the store has an event that is after the last one that is known here.
async fn is_stored(reading: &ExecutionReader, key: ExecutionKey, sequence: i64, last: i64) -> Result<bool, Status> {
    let Some(before) = sequence.checked_sub(1).and_then(|before| u64::try_from(before).ok()) else { return Ok(false) };
    if sequence <= last {
        return Ok(false);
    }
    let read = reading.follower.read(move |reader| reader.read(key, before, 1)).await;
    Ok(!read.map_err(|error| unreadable(&error))?.is_empty())
}

/// After which event a watch begins, and why it begins with a reset. `start` is where one without a cursor begins, and `last` is the last event that there is.
fn begin(resumed: Option<Cursor<1>>, source: Source, start: i64, last: i64) -> (i64, Option<Reason>) {
    let Some(cursor) = resumed else { return (start, None) };
    let is_unchecked = is_planted(Defect::StaleCursorTrusted) || is_planted(Defect::CursorAheadRejected);
    // Another journal may have different events under the same numbers, and only durable events are shown: one that ends before the cursor is not the same.
    match cursor.check(if is_unchecked { cursor.source } else { source }, last) {
        Ok(()) => (cursor.place[0], None),
        Err(reason) => (start, Some(reason)),
    }
}

struct Watch {
    reading: Arc<ExecutionReader>,
    row: ExecutionRow,
    feed: Arc<EventFeed>,
    changes: tokio::sync::watch::Receiver<Head>,
    /// The execution's span.
    traceparent: String,
    watched: WatchIdentity,
    /// The source of the numbers of the events.
    source: Source,
    /// The number of the last event that was sent.
    cursor: u64,
    /// The last output chunk that was sent.
    last_chunk: u64,
    /// How many transitions to read from the journal at a time.
    page: usize,
    heartbeat: Duration,
    /// Counts against the limit of waiting requests.
    _taken: Permit,
}

impl Watch {
    fn stream(
        mut self,
        snapshot: v1::Execution,
        reset: Option<Reason>,
    ) -> impl futures::Stream<Item = Result<WatchMessage, Status>> {
        async_stream::try_stream! {
            let ended = is_terminal(snapshot.state());
            let last = sequence_of(&snapshot);
            if let Some(reason) = reset {
                yield self.message(Content::Reset(v1::WatchReset { reason: reason.into() })).into();
            }
            let first = v1::WatchExecutionResponse {
                execution: snapshot.name.clone(),
                uid: snapshot.uid.clone(),
                traceparent: self.traceparent.clone(),
                ..self.message(Content::Snapshot(snapshot))
            };
            yield first.into();
            loop {
                self.changes.mark_unchanged();
                let transitions = self.next().await?;
                // Read after the transitions: output that belongs before one of their events is published before that event.
                let mut output = self.new_output().into_iter().peekable();
                for chunk in self.before_next(&mut output) {
                    yield self.event(chunk);
                }
                if transitions.is_empty() {
                    if ended && self.cursor >= last {
                        return;
                    }
                    let (changed, shutdown) = (self.changes.changed().map(drop), &self.reading.shutdown);
                    match wake(changed, shutdown, self.heartbeat).await {
                        Wake::Changed => {}
                        Wake::Stopping => {
                            Err(Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping; retry.")))?;
                        }
                        Wake::Quiet => {
                            let key = self.row.key;
                            if self.reading.follower.has_lost(key).await.map_err(|error| unreadable(&error))? {
                                Err(unreadable(&StoreError::Missing(key)))?;
                            }
                            let server_time = Some(belay_proto::timestamp(self.reading.clock.now_micros()));
                            yield self.message(Content::Heartbeat(v1::WatchHeartbeat { server_time })).into();
                        }
                    }
                    continue;
                }
                for transition in transitions {
                    for event in transition.after(self.cursor) {
                        let (sequence, event) = event.map_err(|error| undecodable(&error, &self.reading.sealer))?;
                        self.cursor = sequence;
                        // An end before the snapshot was followed by a retry.
                        let finished = transition.is_end() && sequence == transition.last() && sequence >= last;
                        yield self.event(event);
                        for chunk in self.before_next(&mut output) {
                            yield self.event(chunk);
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

    /// Where to resume now.
    fn encoded_cursor(&self) -> String {
        let place = [i64::try_from(self.cursor).unwrap_or(i64::MAX)];
        self.watched.write(&Cursor { source: self.source, place })
    }

    fn message(&self, content: Content) -> v1::WatchExecutionResponse {
        let (cursor, content) = (self.encoded_cursor(), Some(content));
        v1::WatchExecutionResponse { cursor, content, ..v1::WatchExecutionResponse::default() }
    }

    fn event(&self, event: Bytes) -> WatchMessage {
        WatchMessage::Event { cursor: self.encoded_cursor().into(), event }
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
    async fn next(&mut self) -> Result<Vec<EncodedEvents>, Status> {
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
        let read = self.reading.follower.read(move |reader| reader.read(key, cursor, page)).await;
        let read = read.map_err(|error| unreadable(&error))?;
        let (mut transitions, mut bytes) = (Vec::new(), 0);
        let read_len = read.len();
        for transition in read {
            wire::check_version(&transition).map_err(|error| undecodable(&error, &self.reading.sealer))?;
            bytes += transition.shown.len();
            if bytes > MAX_PAGE_BYTES && !transitions.is_empty() {
                break;
            }
            transitions.push(EncodedEvents::from(transition));
        }
        // A client that is shown an event and then asks for the execution gets it with that event.
        if let Some(last) = transitions.last() {
            self.feed.raise(last.last());
        }
        // Where events are large, the rest of a page would be read again and again.
        let is_whole = transitions.len() == read_len;
        let page = if is_whole { self.page.saturating_mul(2) } else { transitions.len() };
        self.page = page.clamp(1, self.reading.thresholds.watch_page.max(1));
        Ok(transitions)
    }
}

/// The execution's span.
fn traceparent(reading: &ExecutionReader, snapshot: &v1::Execution) -> String {
    let trace = snapshot.trace.clone().unwrap_or_default();
    let (_, span) = span_of(&reading.telemetry, &snapshot.uid, &trace.traceparent, &trace.tracestate);
    span.traceparent()
}

fn sequence_of(snapshot: &v1::Execution) -> u64 {
    u64::try_from(snapshot.last_sequence).unwrap_or(0)
}

pub(super) fn is_terminal(state: v1::execution::State) -> bool {
    use v1::execution::State;
    matches!(state, State::Completed | State::Partial | State::Failed | State::Cancelled | State::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_begins_after_its_cursor_or_anew() {
        let (here, elsewhere) = (Source::new(&["journal", "uid"]), Source::new(&["another", "uid"]));
        let at = |place| Some(Cursor { source: here, place: [place] });
        for (resumed, source, start, expected) in [
            (None, here, 0, (0, None)),
            (None, here, 9, (9, None)),
            (at(0), here, 9, (0, None)),
            (at(4), here, 0, (4, None)),
            (at(9), here, 0, (9, None)),
            (at(10), here, 0, (0, Some(Reason::Lost))),
            (at(10), here, 9, (9, Some(Reason::Lost))),
            (at(4), elsewhere, 0, (0, Some(Reason::Lost))),
            (at(4), elsewhere, 9, (9, Some(Reason::Lost))),
        ] {
            assert_eq!(begin(resumed, source, start, 9), expected, "{resumed:?} in {source:?} or after {start}");
        }
    }
}
