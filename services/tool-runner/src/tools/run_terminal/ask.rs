//! The pipes over which a program asks: one question a line, and one reply a line.
//!
//! A question is a JSON object with an `id` of the program's choice, a `title`, and if it likes a `description`, the JSON Schema of the answer as `schema`, and
//! `timeout_seconds`. Without a schema it asks for an approval. A reply has the question's `id` and a `status`.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, PipeReader, PipeWriter},
    sync::Arc,
    time::Duration,
};

use belay_proto::{runner_v1::answer_tool_call_request::Reply, v1::Form};
use belay_sandbox::Timer;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use serde_json::{Value, json};
use tokio::{
    net::unix::pipe::{Receiver, Sender},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::questions::Questions;

/// The longest line of a question, in bytes.
const MAX_LINE: usize = 64 << 10;

/// The longest time that a person has for an answer: a year, as in plans.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);

/// How many bytes of replies may be unread before no further question is read.
const MAX_UNREAD: usize = 256 << 10;

/// How many bytes are read at a time.
const READ_BYTES: usize = 8 << 10;

/// The schema of an approval's answer.
pub(super) const APPROVAL: &str = r#"{"type":"object","required":["approve"],"additionalProperties":false,"properties":{"approve":{"type":"boolean","title":"Approve?"}}}"#;

/// The means by which a call asks.
#[derive(Clone)]
pub(crate) struct Asker {
    /// The call's questions.
    pub(crate) questions: Questions,
    /// A permit for each call that may have open questions.
    pub(crate) calls: Arc<Semaphore>,
    /// How many there are.
    pub(crate) most_calls: usize,
}

/// A question as a program writes it.
#[derive(Debug, PartialEq)]
struct Question {
    id: Value,
    form: Form,
    timeout: Option<Duration>,
    is_approval: bool,
}

/// A question that cannot be asked: what it was called, and why.
#[derive(Debug, PartialEq)]
struct RefusedQuestion {
    id: Value,
    reason: String,
}

/// Reads a line.
fn question(line: &[u8]) -> Result<Question, RefusedQuestion> {
    let refused = |id: &Value, reason: String| RefusedQuestion { id: id.clone(), reason };
    let value = belay_json::read_bytes(line).map_err(|error| {
        refused(&Value::Null, format!("a question is one JSON object on a line of its own: {error}"))
    })?;
    let Value::Object(mut fields) = value else {
        return Err(refused(&Value::Null, "a question is one JSON object on a line of its own".to_owned()));
    };
    let id = fields.remove("id").unwrap_or_default();
    if !matches!(id, Value::String(_) | Value::Number(_)) {
        return Err(refused(&id, "`id` must be a text or a number: the reply has it".to_owned()));
    }
    let mut text = |name: &str| match fields.remove(name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(refused(&id, format!("`{name}` must be a text"))),
    };
    let (title, description) = (text("title")?, text("description")?);
    if belay_text::is_blank(&title) {
        return Err(refused(&id, "`title` is missing: the question in one line".to_owned()));
    }
    let timeout = match fields.remove("timeout_seconds") {
        None => None,
        Some(seconds) => match seconds.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            Some(timeout) if !timeout.is_zero() && timeout <= MAX_TIMEOUT => Some(timeout),
            _ => {
                let most = MAX_TIMEOUT.as_secs();
                return Err(refused(&id, format!("`timeout_seconds` must be a number above 0, and at most {most}")));
            }
        },
    };
    let schema = fields.remove("schema");
    if let Some(unknown) = fields.keys().next() {
        let known = "a question has `id`, `title`, `description`, `schema` and `timeout_seconds`";
        return Err(refused(&id, format!("`{unknown}` is not a field of a question: {known}")));
    }
    let is_approval = schema.is_none();
    let schema = schema.map_or_else(|| APPROVAL.to_owned(), |schema| schema.to_string());
    // A title is one line.
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Question { id, form: Form { title, description, schema }, timeout, is_approval })
}

/// The line that tells a program what became of its question.
fn line_of(id: &Value, is_approval: bool, reply: Option<Reply>) -> Value {
    let status = |status: &str, reason: &str| match reason {
        "" => json!({"id": id, "status": status}),
        _ => json!({"id": id, "status": status, "reason": reason}),
    };
    match reply {
        Some(Reply::Answer(answer)) => {
            match answer.as_json().and_then(|json| belay_json::read(json).ok()) {
                // Whoever answers a call sends JSON: another answer is neither a consent nor a refusal.
                None => status("refused", "its answer is not JSON"),
                Some(answer) if !is_approval => json!({"id": id, "status": "answered", "answer": answer}),
                Some(answer) if answer["approve"] == true => status("approved", ""),
                Some(_) => status("denied", ""),
            }
        }
        Some(Reply::Declined(declined)) if is_approval => status("denied", &declined.reason),
        Some(Reply::Declined(declined)) => status("declined", &declined.reason),
        Some(Reply::TimedOut(_)) => status("timed_out", ""),
        // Nobody reads it any more.
        None => status("refused", "the call has ended"),
    }
}

/// A question that is open: its id, whether it asks for an approval, and what became of it.
type ClosedQuestion = (Value, bool, Option<Reply>);

/// Lines of a pipe, each of them bounded.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    /// The line so far is too long: it is skipped.
    skips: bool,
    /// Whole lines; `None` for one that was too long.
    whole: VecDeque<Option<Vec<u8>>>,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            let kept = text.unwrap_or(piece);
            self.skips |= self.line.len() + kept.len() > MAX_LINE;
            if self.skips {
                self.line.clear();
            } else {
                self.line.extend_from_slice(kept);
            }
            if text.is_some() {
                let line = std::mem::take(&mut self.line);
                let is_skipped = std::mem::take(&mut self.skips);
                if is_skipped || !line.trim_ascii().is_empty() {
                    self.whole.push_back((!is_skipped).then_some(line));
                }
            }
        }
    }
}

/// Takes the questions of a program and writes it the replies, until it can neither ask nor read any more. The time limits stand still while a question is open,
/// and continue afterwards in any case.
pub(super) async fn serve(
    asking: Asker,
    questions: PipeReader,
    answers: PipeWriter,
    timer: io::Result<Timer>,
) -> io::Result<()> {
    let asked = asking.questions.clone();
    let mut timer = timer?;
    let served = exchange(asking, questions, answers, &mut timer).await;
    // What is open still has nobody who would read its reply.
    asked.close();
    served.and(timer.go_on())
}

async fn exchange(asking: Asker, questions: PipeReader, answers: PipeWriter, timer: &mut Timer) -> io::Result<()> {
    let Asker { questions: asked, calls, most_calls } = asking;
    let (reader, writer) = (Receiver::from_owned_fd(questions.into())?, Sender::from_owned_fd(answers.into())?);
    let mut lines = Lines::default();
    let mut open: FuturesUnordered<BoxFuture<'static, ClosedQuestion>> = FuturesUnordered::new();
    let mut unread: VecDeque<u8> = VecDeque::new();
    // While a question is open.
    let mut permit: Option<OwnedSemaphorePermit> = None;
    loop {
        while unread.len() < MAX_UNREAD
            && let Some(line) = lines.whole.pop_front()
        {
            let read = match line {
                Some(line) => question(&line),
                None => {
                    Err(RefusedQuestion { id: Value::Null, reason: format!("a question has at most {MAX_LINE} bytes") })
                }
            };
            let asked = read.and_then(|Question { id, form, timeout, is_approval }| {
                if permit.is_none() {
                    permit = Arc::clone(&calls).try_acquire_owned().ok();
                }
                if permit.is_none() {
                    let reason = format!("{most_calls} calls wait for answers already, as many as the operator allows (`commands.asking_calls`)");
                    return Err(RefusedQuestion { id, reason });
                }
                match asked.ask(form, timeout) {
                    Ok(reply) => Ok((id, is_approval, reply)),
                    Err(why) => Err(RefusedQuestion { id, reason: why.to_string() }),
                }
            });
            match asked {
                Ok((id, is_approval, reply)) => {
                    if open.is_empty() {
                        timer.stop()?;
                    }
                    open.push(Box::pin(async move { (id, is_approval, reply.await.ok()) }));
                }
                Err(RefusedQuestion { id, reason }) => {
                    write(&mut unread, &json!({"id": id, "status": "refused", "reason": reason}));
                }
            }
        }
        if open.is_empty() {
            permit = None;
        }
        tokio::select! {
            Some((id, is_approval, reply)) = open.next() => {
                write(&mut unread, &line_of(&id, is_approval, reply));
                if open.is_empty() {
                    timer.go_on()?;
                }
            }
            writable = writer.writable(), if !unread.is_empty() => {
                writable?;
                match writer.try_write(unread.as_slices().0) {
                    Ok(written) => drop(unread.drain(..written)),
                    // The program does not read any more; it may go on.
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                    Err(error) if is_for_later(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            readable = reader.readable(), if unread.len() < MAX_UNREAD => {
                readable?;
                let mut piece = [0; READ_BYTES];
                match reader.try_read(&mut piece) {
                    Ok(0) if open.is_empty() && unread.is_empty() => return Ok(()),
                    // It has closed its end, and may wait for a reply all the same.
                    Ok(0) => return drain(open, unread, &writer, timer).await,
                    Ok(read) => lines.add(&piece[..read]),
                    Err(error) if is_for_later(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Writes the replies to what is open still.
async fn drain(
    mut open: FuturesUnordered<BoxFuture<'static, ClosedQuestion>>,
    mut unread: VecDeque<u8>,
    writer: &Sender,
    timer: &mut Timer,
) -> io::Result<()> {
    loop {
        while !unread.is_empty() {
            writer.writable().await?;
            match writer.try_write(unread.as_slices().0) {
                Ok(written) => drop(unread.drain(..written)),
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                Err(error) if is_for_later(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let Some((id, is_approval, reply)) = open.next().await else { return Ok(()) };
        write(&mut unread, &line_of(&id, is_approval, reply));
        if open.is_empty() {
            timer.go_on()?;
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn write(unread: &mut VecDeque<u8>, line: &Value) {
    unread.extend(line.to_string().as_bytes());
    unread.push_back(b'\n');
}

#[cfg(test)]
mod tests {
    use belay_proto::{runner_v1::AnswerDeclined, v1::Payload};

    use super::*;

    #[test]
    fn a_question_is_one_json_object() {
        let read =
            question(br#"{"id": 7, "title": "Which\n  one?", "schema": {"type": "string"}, "timeout_seconds": 1.5}"#);
        let form =
            Form { title: "Which one?".into(), description: String::new(), schema: r#"{"type":"string"}"#.into() };
        let expected = Question { id: json!(7), form, timeout: Some(Duration::from_millis(1_500)), is_approval: false };
        assert_eq!(read, Ok(expected));
        let approval = question(br#"{"id": "a", "title": "May I?", "description": "why"}"#).unwrap();
        assert!(approval.is_approval && approval.form.schema == APPROVAL && approval.form.description == "why");
    }

    #[test]
    fn a_line_that_is_no_question_is_refused_with_its_field() {
        for (line, id, problem) in [
            (&b"\xff"[..], Value::Null, "one JSON object"),
            (b"[1]", Value::Null, "one JSON object"),
            (br#"{"title": "t"}"#, Value::Null, "`id`"),
            (br#"{"id": [], "title": "t"}"#, json!([]), "`id`"),
            (br#"{"id": 1}"#, json!(1), "`title`"),
            (br#"{"id": 1, "title": " \n"}"#, json!(1), "`title`"),
            (br#"{"id": 1, "title": 2}"#, json!(1), "`title`"),
            (br#"{"id": 1, "title": "t", "timeout_seconds": 0}"#, json!(1), "`timeout_seconds`"),
            (br#"{"id": 1, "title": "t", "timeout_seconds": 1e15}"#, json!(1), "`timeout_seconds`"),
            (br#"{"id": 1, "title": "t", "timeout_seconds": "1s"}"#, json!(1), "`timeout_seconds`"),
            (br#"{"id": 1, "title": "t", "form": {}}"#, json!(1), "`form`"),
        ] {
            let refused = question(line).unwrap_err();
            assert!(refused.id == id && refused.reason.contains(problem), "{refused:?}");
        }
    }

    #[test]
    fn a_reply_has_the_id_and_what_became_of_the_question() {
        let id = json!("q");
        let of = |is_approval, reply| line_of(&id, is_approval, Some(reply)).to_string();
        let answer = |json: &str| Reply::Answer(Payload::of_json(json));
        let declined = || Reply::Declined(AnswerDeclined { reason: "no".into() });
        assert_eq!(of(false, answer("[1]")), r#"{"answer":[1],"id":"q","status":"answered"}"#);
        assert_eq!(of(true, answer(r#"{"approve":true}"#)), r#"{"id":"q","status":"approved"}"#);
        assert_eq!(of(true, answer(r#"{"approve":false}"#)), r#"{"id":"q","status":"denied"}"#);
        let unreadable = r#"{"id":"q","reason":"its answer is not JSON","status":"refused"}"#;
        for is_approval in [true, false] {
            assert_eq!(of(is_approval, Reply::Answer(Payload::default())), unreadable);
        }
        assert_eq!(of(true, declined()), r#"{"id":"q","reason":"no","status":"denied"}"#);
        assert_eq!(of(false, declined()), r#"{"id":"q","reason":"no","status":"declined"}"#);
        assert_eq!(of(false, Reply::TimedOut(Default::default())), r#"{"id":"q","status":"timed_out"}"#);
    }

    #[test]
    fn lines_are_bounded_and_found_in_any_pieces() {
        let mut lines = Lines::default();
        lines.add(b"one\n\n  \ntw");
        lines.add(b"o\nthree");
        assert_eq!(lines.whole.drain(..).collect::<Vec<_>>(), [Some(b"one".to_vec()), Some(b"two".to_vec())]);
        lines.add(&vec![b'x'; MAX_LINE]);
        assert!(lines.line.is_empty());
        lines.add(b"y\nfour\n");
        assert_eq!(lines.whole.drain(..).collect::<Vec<_>>(), [None, Some(b"four".to_vec())]);
        lines.add(&vec![b'x'; MAX_LINE]);
        lines.add(b"\n");
        assert_eq!(lines.whole.pop_front().flatten().map(|line| line.len()), Some(MAX_LINE));
    }
}
