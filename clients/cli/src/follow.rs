//! Follows an execution to its end through broken connections: no event is lost, none comes twice.

use std::{future::Future, time::Duration};

use async_stream::try_stream;
use belay_proto::v1::{
    Execution, ExecutionEvent, WatchExecutionResponse, execution::State, execution_event::Kind,
    watch_execution_response::Content,
};
use belay_reasons as reasons;
use futures::{Stream, StreamExt as _};
use tonic::{Code, Status};

use crate::failure::{Failure, Report};

/// How often the server is asked to say that it is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);
/// A stream that is silent for longer counts as broken: three heartbeats missed, and some room for a slow network.
const MAX_SILENCE: Duration = Duration::from_secs(20);
/// Waits before the tries to connect again: 0.1, 0.2, 0.4, … s, at most 5 s each; after that many without a new event the command ends.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(5);
const MAX_TRIES: u32 = 12;

/// A source of executions to watch.
pub(crate) trait Watchable {
    /// The messages of one watch.
    type Messages: Stream<Item = Result<WatchExecutionResponse, Status>> + Unpin;

    /// Begins a watch where an earlier one was at this cursor; with an empty one, with all events, or only with what is new.
    fn watch(
        &mut self,
        cursor: &str,
        include_earlier_events: bool,
    ) -> impl Future<Output = Result<Self::Messages, Status>>;

    /// Prepares for another watch after `tries` broken ones in a row.
    fn reconnect(&mut self, tries: u32) -> impl Future<Output = Result<(), Failure>>;
}

/// An item that a follower gets.
#[derive(Debug, PartialEq)]
pub(crate) enum WatchItem {
    /// The execution when the first watch began; comes once, before everything else.
    Snapshot(Box<Execution>),
    /// The next event.
    Event(Box<ExecutionEvent>),
    /// The server's journal is another one than was followed until now, and ends at this event. A snapshot follows.
    Reset(i64),
    /// The connection broke; it is tried again after the wait.
    Lost {
        /// The cause, in words.
        why: String,
        /// How long until the next try.
        wait: Duration,
    },
    /// The connection works again.
    Back,
}

/// Yields everything after an event, or with `None` what is new, to the end of the execution. Ends in an error only when the server refuses permanently or stays
/// unreachable.
pub(crate) fn follow<W: Watchable>(
    mut watched: W,
    after: Option<i64>,
) -> impl Stream<Item = Result<WatchItem, Failure>> {
    try_stream! {
        let mut cursor = Cursor::new(after);
        let mut lost = false;
        let mut tries = 0;
        loop {
            let why = match watched.watch(&cursor.text, cursor.begins_early()).await {
                Err(status) => status,
                Ok(mut messages) => loop {
                    match tokio::time::timeout(MAX_SILENCE, messages.next()).await {
                        Err(_) => break Status::unavailable("the server has sent nothing for 20 s"),
                        Ok(Some(Err(status))) => break status,
                        Ok(None) if cursor.is_at_the_end() => return,
                        Ok(None) => break Status::unavailable("the server ended the watch before the execution ended"),
                        Ok(Some(Ok(message))) => {
                            if std::mem::take(&mut lost) {
                                yield WatchItem::Back;
                            }
                            match cursor.take(message) {
                                MessageEffect::Known => {}
                                MessageEffect::Alive => tries = 0,
                                MessageEffect::New(seen) => {
                                    if matches!(seen, WatchItem::Event(_)) {
                                        tries = 0;
                                    }
                                    yield seen;
                                    if cursor.is_at_the_end() {
                                        return;
                                    }
                                }
                                MessageEffect::Anew(execution) => {
                                    yield WatchItem::Reset(execution.last_sequence);
                                    yield WatchItem::Snapshot(execution);
                                    if cursor.is_at_the_end() {
                                        return;
                                    }
                                }
                                MessageEffect::OutOfRange { after, last } => Err(out_of_range(after, last))?,
                                MessageEffect::Gap => break Status::unavailable("the server left out an event"),
                            }
                        }
                    }
                },
            };
            tries += 1;
            if !may_pass(why.code()) {
                Err(Report::of_status(&why))?;
            }
            if tries > MAX_TRIES {
                Err(away(&why))?;
            }
            let wait = wait_before(tries);
            lost = true;
            yield WatchItem::Lost { why: why.message().to_owned(), wait };
            tokio::time::sleep(wait).await;
            // What fails here is tried again, unless it was the last time.
            if let (Err(failure), true) = (watched.reconnect(tries).await, tries == MAX_TRIES) {
                Err(failure)?;
            }
        }
    }
}

/// The caller named an event that does not exist.
fn out_of_range(after: i64, last: i64) -> Report {
    let message = format!("--after: {after} is out of range: the oldest event kept is 1 and the last is {last}");
    let mut report = Report::new(reasons::SEQUENCE_OUT_OF_RANGE, message);
    report.details.extend([format!("last_sequence: {last}"), "oldest_sequence: 1".to_owned()]);
    report
}

/// The server has been unreachable for too long.
fn away(why: &Status) -> Report {
    let message = format!("the server no longer answers: {}", why.message());
    let mut report = Report::new(reasons::SERVER_UNREACHABLE, message);
    report.retryable = true;
    report
}

/// How long to wait before another watch after `tries` broken ones in a row, or why there is no use.
pub(crate) fn broken(why: &Status, tries: u32) -> Result<Duration, Failure> {
    match may_pass(why.code()) {
        false => Err(Report::of_status(why).into()),
        true if tries > MAX_TRIES => Err(away(why).into()),
        true => Ok(wait_before(tries)),
    }
}

/// Whether another watch may succeed.
fn may_pass(code: Code) -> bool {
    !matches!(
        code,
        Code::InvalidArgument
            | Code::NotFound
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::FailedPrecondition
            | Code::DataLoss
    )
}

/// How long to wait before a try, counted from 1.
fn wait_before(attempt: u32) -> Duration {
    FIRST_WAIT.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1))).min(MAX_WAIT)
}

/// The position in what has been received.
struct Cursor {
    /// The last event seen; `None` before anything is known.
    last: Option<i64>,
    /// The last event, once it is known that the execution has ended with it.
    end: Option<i64>,
    /// The last event that the server had when the watch began: an end before it was followed by a retry.
    had: i64,
    snapshot_seen: bool,
    /// Whether the server has said that what was seen is to be forgotten, and not yet what there is instead.
    is_reset: bool,
    /// Where the server continues; empty before anything is known.
    text: String,
}

/// The meaning of a message for a follower.
#[derive(Debug, PartialEq)]
enum MessageEffect {
    /// Seen before.
    Known,
    /// No news; the server is alive.
    Alive,
    /// Has to be shown.
    New(WatchItem),
    /// This is instead of everything that was seen before.
    Anew(Box<Execution>),
    /// The caller named an event that does not exist.
    OutOfRange { after: i64, last: i64 },
    /// An event before this one is missing.
    Gap,
}

impl Cursor {
    fn new(after: Option<i64>) -> Cursor {
        Cursor { last: after, end: None, had: 0, snapshot_seen: false, is_reset: false, text: String::new() }
    }

    fn is_at_the_end(&self) -> bool {
        self.end.is_some_and(|end| self.last >= Some(end))
    }

    /// Whether the next watch has to begin with events from before it.
    fn begins_early(&self) -> bool {
        self.text.is_empty() && self.last.is_some()
    }

    fn take(&mut self, message: WatchExecutionResponse) -> MessageEffect {
        let taken = self.take_content(message.content);
        if taken != MessageEffect::Gap {
            self.text = message.cursor;
        }
        taken
    }

    fn take_content(&mut self, content: Option<Content>) -> MessageEffect {
        match content {
            Some(Content::Snapshot(execution)) => {
                let last = execution.last_sequence;
                let is_anew = std::mem::take(&mut self.is_reset);
                if is_anew {
                    *self = Cursor::new(Some(last));
                }
                if let Some(after) = self.last.filter(|after| !self.snapshot_seen && *after > last) {
                    return MessageEffect::OutOfRange { after, last };
                }
                self.last = self.last.or(Some(last));
                self.had = execution.last_sequence;
                self.end = is_over(execution.state()).then_some(execution.last_sequence);
                match std::mem::replace(&mut self.snapshot_seen, true) {
                    true => MessageEffect::Known,
                    false if is_anew => MessageEffect::Anew(Box::new(execution)),
                    false => MessageEffect::New(WatchItem::Snapshot(Box::new(execution))),
                }
            }
            Some(Content::Event(event)) if event.ephemeral => MessageEffect::New(WatchItem::Event(Box::new(event))),
            Some(Content::Event(event)) => {
                let last = self.last.unwrap_or(event.sequence - 1);
                if event.sequence <= last {
                    return MessageEffect::Known;
                }
                if event.sequence > last + 1 {
                    return MessageEffect::Gap;
                }
                self.last = Some(event.sequence);
                if matches!(event.kind, Some(Kind::ExecutionFinished(_))) && event.sequence >= self.had {
                    self.end = Some(event.sequence);
                }
                MessageEffect::New(WatchItem::Event(Box::new(event)))
            }
            Some(Content::Reset(_)) => {
                self.is_reset = true;
                MessageEffect::Known
            }
            Some(Content::Heartbeat(_)) => MessageEffect::Alive,
            None => MessageEffect::Known,
        }
    }
}

/// Whether an execution in this state has ended.
pub(crate) fn is_over(state: State) -> bool {
    matches!(state, State::Completed | State::Partial | State::Failed | State::Cancelled | State::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use belay_proto::v1::{ExecutionStarted, WatchHeartbeat, WatchReset};
    use futures::stream;

    use super::*;

    type Message = Result<WatchExecutionResponse, Status>;

    /// A server that gives a scripted answer to each watch, and keeps what it was asked.
    #[derive(Default)]
    struct Script {
        answers: VecDeque<Result<Vec<Message>, Status>>,
        /// The cursors; `all` and `new` for watches without one.
        asked: Vec<String>,
        reconnects: usize,
    }

    impl Watchable for &mut Script {
        type Messages = stream::Iter<std::vec::IntoIter<Message>>;

        async fn watch(&mut self, cursor: &str, include_earlier_events: bool) -> Result<Self::Messages, Status> {
            let begin = match (cursor, include_earlier_events) {
                ("", true) => "all",
                ("", false) => "new",
                (cursor, false) => cursor,
                (_, true) => panic!("after a reset only what is new is asked for"),
            };
            self.asked.push(begin.to_owned());
            let answer = self.answers.pop_front().unwrap_or_else(|| Err(Status::unavailable("gone")));
            answer.map(stream::iter)
        }

        async fn reconnect(&mut self, _tries: u32) -> Result<(), Failure> {
            self.reconnects += 1;
            Ok(())
        }
    }

    fn message(content: Content) -> Message {
        at("c", content)
    }

    fn at(cursor: &str, content: Content) -> Message {
        Ok(WatchExecutionResponse { cursor: cursor.to_owned(), content: Some(content), ..Default::default() })
    }

    fn snapshot(state: State, last_sequence: i64) -> Message {
        message(Content::Snapshot(Execution { state: state.into(), last_sequence, ..Default::default() }))
    }

    fn event(sequence: i64) -> Message {
        let kind = Some(Kind::ExecutionStarted(ExecutionStarted {}));
        at(&format!("c{sequence}"), Content::Event(ExecutionEvent { sequence, kind, ..Default::default() }))
    }

    fn finished(sequence: i64) -> Message {
        let kind = Some(Kind::ExecutionFinished(Box::default()));
        message(Content::Event(ExecutionEvent { sequence, kind, ..Default::default() }))
    }

    /// Everything a follower sees, as words.
    async fn story(script: &mut Script, after: Option<i64>) -> String {
        let mut seen = std::pin::pin!(follow(&mut *script, after));
        let mut words = Vec::new();
        while let Some(next) = seen.next().await {
            words.push(match next {
                Ok(WatchItem::Snapshot(_)) => "snapshot".to_owned(),
                Ok(WatchItem::Event(event)) => event.sequence.to_string(),
                Ok(WatchItem::Lost { why, wait }) => format!("lost({why}, {}ms)", wait.as_millis()),
                Ok(WatchItem::Back) => "back".to_owned(),
                Ok(WatchItem::Reset(last)) => format!("reset({last})"),
                Err(Failure::Report(report)) => format!("error({})", report.code),
                Err(other) => format!("{other:?}"),
            });
        }
        words.join(" ")
    }

    // B-02: the watch is resumed by its cursor and has no gap.
    #[tokio::test(start_paused = true)]
    async fn a_broken_stream_resumes_where_it_broke() {
        let mut script = Script {
            answers: [
                Ok(vec![snapshot(State::Running, 2), event(1), event(2), Err(Status::unavailable("reset"))]),
                Err(Status::unavailable("refused")),
                Ok(vec![snapshot(State::Running, 3), event(2), event(3), finished(4)]),
            ]
            .into(),
            ..Default::default()
        };
        assert_eq!(story(&mut script, Some(0)).await, "snapshot 1 2 lost(reset, 100ms) lost(refused, 200ms) back 3 4");
        assert_eq!(script.asked, ["all", "c2", "c2"]);
        assert_eq!(script.reconnects, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_journal_that_went_back_is_shown_anew() {
        let broken = || Err(Status::unavailable("reset"));
        let mut script = Script {
            answers: [
                Ok(vec![snapshot(State::Running, 2), event(1), event(2), event(3), broken()]),
                Ok(vec![at("r", Content::Reset(WatchReset::default())), broken()]),
                Ok(vec![snapshot(State::Running, 1), event(2), finished(3)]),
            ]
            .into(),
            ..Default::default()
        };
        assert_eq!(
            story(&mut script, Some(0)).await,
            "snapshot 1 2 3 lost(reset, 100ms) back lost(reset, 200ms) back reset(1) snapshot 2 3"
        );
        assert_eq!(script.asked, ["all", "c3", "r"], "a reset is not forgotten with its connection");
    }

    #[tokio::test(start_paused = true)]
    async fn events_up_to_a_number_are_left_out_and_one_that_is_not_there_is_an_error() {
        let answer = || {
            let messages = vec![snapshot(State::Running, 2), event(1), event(2), event(3), finished(4)];
            Script { answers: [Ok(messages)].into(), ..Default::default() }
        };
        assert_eq!(story(&mut answer(), Some(1)).await, "snapshot 2 3 4");
        assert_eq!(story(&mut answer(), Some(2)).await, "snapshot 3 4");
        assert_eq!(story(&mut answer(), Some(3)).await, "error(SEQUENCE_OUT_OF_RANGE)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_is_a_broken_stream_and_a_repeat_is_nothing() {
        let mut script = Script {
            answers: [
                Ok(vec![snapshot(State::Running, 1), event(1), event(1), event(3)]),
                Ok(vec![snapshot(State::Running, 3), event(2), event(3), finished(4), event(5)]),
            ]
            .into(),
            ..Default::default()
        };
        assert_eq!(
            story(&mut script, Some(0)).await,
            "snapshot 1 lost(the server left out an event, 100ms) back 2 3 4"
        );
        assert_eq!(script.asked, ["all", "c1"], "it resumes before the gap");
    }

    #[tokio::test(start_paused = true)]
    async fn ends_at_once_where_everything_is_known() {
        let mut script = Script { answers: [Ok(vec![snapshot(State::Failed, 9)])].into(), ..Default::default() };
        assert_eq!(story(&mut script, Some(9)).await, "snapshot");
        let mut script = Script { answers: [Ok(vec![snapshot(State::Completed, 9)])].into(), ..Default::default() };
        assert_eq!(story(&mut script, None).await, "snapshot");
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_before_a_retry_is_not_the_last() {
        let retried_and = |state, last| {
            let messages = vec![snapshot(state, last), event(1), finished(2), event(3), finished(4)];
            Script { answers: [Ok(messages)].into(), ..Default::default() }
        };
        assert_eq!(story(&mut retried_and(State::Running, 3), Some(0)).await, "snapshot 1 2 3 4");
        assert_eq!(story(&mut retried_and(State::Completed, 4), Some(0)).await, "snapshot 1 2 3 4");
        assert_eq!(story(&mut retried_and(State::Running, 1), Some(0)).await, "snapshot 1 2", "it ended while watched");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_cursor_only_what_is_new() {
        let mut script = Script {
            answers: [Ok(vec![snapshot(State::Running, 5), event(6), finished(7)])].into(),
            ..Default::default()
        };
        assert_eq!(story(&mut script, None).await, "snapshot 6 7");
        assert_eq!(script.asked, ["new"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_final_and_an_absence_is_not_for_ever() {
        let mut script = Script { answers: [Err(Status::not_found("no"))].into(), ..Default::default() };
        assert_eq!(story(&mut script, Some(0)).await, "error(NOT_FOUND)");
        let mut script = Script::default();
        let told = story(&mut script, Some(0)).await;
        assert_eq!(told.matches("lost(").count(), MAX_TRIES as usize);
        assert!(told.ends_with("lost(gone, 5000ms) error(SERVER_UNREACHABLE)"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_only_repeats_its_snapshot_is_given_up() {
        let only_snapshots = std::iter::repeat_with(|| Ok(vec![snapshot(State::Running, 3)])).take(100);
        let mut script = Script { answers: only_snapshots.collect(), ..Default::default() };
        assert!(story(&mut script, Some(3)).await.ends_with("error(SERVER_UNREACHABLE)"));
        assert!(script.asked.len() <= MAX_TRIES as usize + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_keep_the_follower_patient() {
        let alive = || Ok(vec![snapshot(State::Running, 3), message(Content::Heartbeat(WatchHeartbeat::default()))]);
        let mut script = Script { answers: std::iter::repeat_with(alive).take(100).collect(), ..Default::default() };
        story(&mut script, Some(3)).await;
        assert!(script.asked.len() > 100);
    }
}
