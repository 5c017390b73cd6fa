//! The output of the steps of an execution, from its events, in the order in which they ended.

use std::collections::HashMap;

use belay_proto::v1::{ExecutionEvent, Payload, Step, payload::Content, step::State};
use pbjson_types::Timestamp;
use serde_json::Value;

use super::{
    event_description::{EventChange, EventDescription, ExecutionChange, StepChange, StepEnd, StepValue, describe},
    json, model_turn,
    text::{Line, PrintableText, Style, shorten},
    time,
    tracked_execution::TrackedExecution,
    words,
};

/// The longest call in a heading, in characters.
const MAX_CALL_CHARS: usize = 60;

/// The filter of outputs.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputFilter {
    /// Only those of this step.
    pub(crate) step: Option<String>,
    /// Only those of attempts that failed, also where a later one completed the step.
    pub(crate) failed: bool,
}

/// Puts outputs together from events.
#[derive(Default)]
pub(crate) struct Logs {
    wanted: OutputFilter,
    /// When each step that has not ended started.
    started: HashMap<String, Timestamp>,
    /// The last result of each step that has not ended.
    results: HashMap<String, Payload>,
    /// The payload of each signal, by the number of its event.
    signals: HashMap<i64, Payload>,
}

impl Logs {
    /// The state before any event.
    pub(crate) fn new(wanted: OutputFilter) -> Logs {
        Logs { wanted, ..Logs::default() }
    }

    /// Takes the next event: the step or the attempt that it ends, with its output or its failure, if that is wanted.
    pub(crate) fn take(&mut self, event: &ExecutionEvent) -> Option<Step> {
        let EventDescription { change, value, .. } = describe(event);
        let change = match change {
            EventChange::Step(change) => change,
            EventChange::Execution(ExecutionChange::Signal(payload)) => {
                self.signals.insert(event.sequence, payload.cloned().unwrap_or_default());
                return None;
            }
            EventChange::Execution(ExecutionChange::Retried(retried)) => {
                for step in &retried.step_ids {
                    self.started.remove(step);
                    self.results.remove(step);
                }
                return None;
            }
            EventChange::Execution(
                ExecutionChange::Started
                | ExecutionChange::State(_)
                | ExecutionChange::Paused(_)
                | ExecutionChange::Finished(_)
                | ExecutionChange::PlanUpdated(_)
                | ExecutionChange::CompensationStarted(_)
                | ExecutionChange::ItemsListed(_),
            )
            | EventChange::None => return None,
        };
        if self.wanted.step.as_ref().is_some_and(|wanted| *wanted != event.step_id) {
            return None;
        }
        let result = match value {
            Some(StepValue::Own(value)) => Some(value),
            Some(StepValue::OfSignal(sequence)) => self.signals.get(&sequence),
            None => None,
        };
        self.results.extend(result.map(|result| (event.step_id.clone(), result.clone())));
        let (state, failure) = match change {
            StepChange::Started => {
                let begin = event.record_time.unwrap_or_default();
                self.started.entry(event.step_id.clone()).or_insert(begin);
                return None;
            }
            StepChange::AttemptFailed(_) if !self.wanted.failed => return None,
            StepChange::AttemptFailed(next) => (State::BackingOff, next.failure()),
            StepChange::Ended(StepEnd::Failed(failure)) => (State::Failed, failure),
            StepChange::Ended(StepEnd::Completed) => (State::Completed, None),
            StepChange::Ended(StepEnd::Skipped(_) | StepEnd::Cancelled)
            | StepChange::OutcomeUnknown(_)
            | StepChange::Resolved(_)
            | StepChange::Output(_)
            | StepChange::CachedResult(_)
            | StepChange::Call(_)
            | StepChange::Approval(_)
            | StepChange::WaitStarted(_)
            | StepChange::WaitEnded
            | StepChange::ChildStarted(_)
            | StepChange::ChildEnded
            | StepChange::None => return None,
        };
        let start_time = self.started.get(&event.step_id).copied();
        let mut output = None;
        if state != State::BackingOff {
            self.started.remove(&event.step_id);
            output = self.results.remove(&event.step_id);
        }
        (!self.wanted.failed || failure.is_some()).then(|| Step {
            step_id: event.step_id.clone(),
            state: state.into(),
            attempt: event.attempt,
            start_time,
            end_time: event.record_time,
            output: output.filter(|_| failure.is_none()),
            failure: failure.cloned(),
            ..Default::default()
        })
    }
}

/// A step's output: the streams of a command; the text or the JSON that another tool returned stands in the first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StepOutput {
    /// The standard output.
    pub(crate) output: PrintableText,
    /// The standard error.
    pub(crate) error: PrintableText,
    /// Whether the beginning of one of them is not kept.
    pub(crate) truncated: bool,
}

/// The answer of a model as people read it; `None` for all other steps.
pub(crate) fn answer(step: &Step, tracked: &TrackedExecution) -> Option<StepOutput> {
    let is_turn = tracked.step(&step.step_id).is_some_and(model_turn::is_turn);
    let answer = model_turn::whole(step.output.as_ref().filter(|_| is_turn))?;
    Some(StepOutput { output: PrintableText::of_program(&answer), ..StepOutput::default() })
}

/// The output of a step or an attempt that has ended. The value of a blob has to stand in its place.
pub(crate) fn printed(step: &Step) -> StepOutput {
    if let Some(last) = step.failure.as_ref().and_then(|failure| failure.last_output.as_ref()) {
        return StepOutput {
            output: PrintableText::of_program(&last.stdout),
            error: PrintableText::of_program(&last.stderr),
            truncated: last.stdout_truncated || last.stderr_truncated,
        };
    }
    let Some(Content::Json(text)) = step.output.as_ref().and_then(|output| output.content.as_ref()) else {
        return StepOutput::default();
    };
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return StepOutput { output: PrintableText::of_program(text), ..StepOutput::default() };
    };
    match (&value, value["stdout"].as_str(), value["stderr"].as_str()) {
        (_, Some(stdout), Some(stderr)) => StepOutput {
            output: PrintableText::of_program(stdout),
            error: PrintableText::of_program(stderr),
            truncated: false,
        },
        // What an agent has shown of its work.
        (_, Some(stdout), None) if value.get("exit_code").is_some() && value["text"].is_string() => {
            StepOutput { output: PrintableText::of_program(stdout), ..StepOutput::default() }
        }
        (Value::Null, ..) => StepOutput::default(),
        (Value::String(text), ..) => StepOutput { output: PrintableText::of_program(text), ..StepOutput::default() },
        _ => StepOutput { output: PrintableText::of_program(&json::text(&value, true)), ..StepOutput::default() },
    }
}

/// `==> build  completed in 4.2s  cargo build`, above the output of a step.
pub(crate) fn heading(ended: &Step, tracked: &TrackedExecution) -> Line {
    let state = ended.state();
    let most = tracked.step(&ended.step_id).map_or(0, |step| step.max_attempts);
    let attempt = match (ended.attempt, most) {
        (_, ..=1) => String::new(),
        (attempt, most) => format!("attempt {attempt} of {most} "),
    };
    let end = ended.end_time.as_ref().and_then(time::since_epoch);
    let took = time::between(ended.start_time.as_ref(), end).map(time::short);
    let took = took.map(|took| format!(" after {took}")).unwrap_or_default();
    let (style, what) = match state {
        State::BackingOff => (Style::Warn, format!("{attempt}failed{took}")),
        State::Failed => (Style::Bad, format!("{attempt}failed{took}")),
        _ => (words::step_style(state), format!("{}{took}", words::step_state(state))),
    };
    let call = shorten(tracked.call(&ended.step_id), MAX_CALL_CHARS);
    Line::default()
        .and(Style::Dim, "==> ")
        .and(Style::Strong, &ended.step_id)
        .and(Style::Plain, "  ")
        .and(style, what)
        .and(Style::Dim, format!("  {call}"))
        .verbatim()
}

/// The line of a step's log that has no output: ``build has not ended: running``.
pub(crate) fn nothing(wanted: &OutputFilter, tracked: &TrackedExecution) -> String {
    let Some(step) = wanted.step.as_deref().and_then(|id| tracked.step(id)) else {
        return match wanted.failed {
            true => "no step has failed",
            false => "no step has ended with an output",
        }
        .to_owned();
    };
    let id = &step.step_id;
    match step.state() {
        State::Completed | State::Failed if wanted.failed => format!("no attempt of {id} has failed"),
        State::Completed | State::Failed => format!("{id} printed nothing"),
        State::Cancelled => format!("{id} was cancelled"),
        State::Skipped => format!("{id} was skipped: {}", words::skipped_step(step)),
        state => format!("{id} has not ended: {}", words::step_state(state)),
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{
        Failure, LastOutput, SignalReceived, StepCompleted, StepFailed, StepRetryScheduled, StepStarted,
        ToolCallCompleted, WaitEnded, execution_event::Kind,
    };

    use super::*;

    fn event(sequence: i64, step: &str, kind: Kind) -> ExecutionEvent {
        let time = Some(Timestamp { seconds: sequence, nanos: 0 });
        ExecutionEvent {
            sequence,
            record_time: time,
            step_id: step.to_owned(),
            attempt: 1,
            kind: Some(kind),
            ..Default::default()
        }
    }

    fn completes(result: &str) -> Kind {
        Kind::ToolCallCompleted(ToolCallCompleted { result: Some(Payload::of_json(result)), receipt: None })
    }

    fn failure(stdout: &str) -> Option<Failure> {
        let last_output = Some(LastOutput { stdout: stdout.to_owned(), stdout_truncated: true, ..Default::default() });
        Some(Failure { reason: "COMMAND_FAILED".to_owned(), last_output, ..Default::default() })
    }

    /// Two steps side by side, of which the second fails once; then one that waits for a signal, and one that fails.
    fn events() -> Vec<ExecutionEvent> {
        let retry = StepRetryScheduled { failure: failure("first try\n"), ..Default::default() };
        let carried = Some(Payload::of_json(r#"{"v":7}"#));
        vec![
            event(1, "a", Kind::StepStarted(StepStarted {})),
            event(2, "b", Kind::StepStarted(StepStarted {})),
            event(3, "a", completes(r#"{"exit_code":0,"stdout":"out\n","stderr":"err\n"}"#)),
            event(4, "b", Kind::StepRetryScheduled(retry)),
            event(5, "b", Kind::StepStarted(StepStarted {})),
            event(6, "b", completes("\"text\"")),
            event(7, "b", Kind::StepCompleted(StepCompleted::default())),
            event(8, "a", Kind::StepCompleted(StepCompleted::default())),
            event(9, "", Kind::SignalReceived(SignalReceived { signal: "go".to_owned(), payload: carried })),
            event(10, "w", Kind::WaitEnded(WaitEnded { signal_sequence: 9, ..Default::default() })),
            event(11, "w", Kind::StepCompleted(StepCompleted::default())),
            event(12, "f", Kind::StepFailed(StepFailed { failure: failure("boom\n"), ..Default::default() })),
        ]
    }

    fn rendered(wanted: OutputFilter) -> Vec<String> {
        let mut logs = Logs::new(wanted);
        let ended = events().into_iter().filter_map(|event| logs.take(&event)).collect::<Vec<_>>();
        ended
            .iter()
            .map(|step| {
                let StepOutput { output, error, truncated } = printed(step);
                format!("{} {:?} {:?} {truncated}", step.step_id, output.as_str(), error.as_str())
            })
            .collect()
    }

    #[test]
    fn outputs_come_in_the_order_in_which_steps_end() {
        assert_eq!(
            rendered(OutputFilter::default()),
            [
                r#"b "text" "" false"#,
                r#"a "out\n" "err\n" false"#,
                r#"w "{\n  \"v\": 7\n}" "" false"#,
                r#"f "boom\n" "" true"#,
            ]
        );
        assert_eq!(
            rendered(OutputFilter { step: Some("a".to_owned()), failed: false }),
            [r#"a "out\n" "err\n" false"#]
        );
    }

    #[test]
    fn failed_attempts_are_among_the_failed_also_of_a_step_that_completed() {
        let failed = |step: Option<&str>| rendered(OutputFilter { step: step.map(str::to_owned), failed: true });
        assert_eq!(failed(None), [r#"b "first try\n" "" true"#, r#"f "boom\n" "" true"#]);
        assert_eq!(failed(Some("b")), [r#"b "first try\n" "" true"#]);
        assert!(failed(Some("a")).is_empty());
    }

    #[test]
    fn a_value_that_could_steer_the_terminal_is_escaped_as_json() {
        let step = Step { output: Some(Payload::of_json(r#"{"x":"\u001b[2J\u202e"}"#)), ..Default::default() };
        assert_eq!(printed(&step).output.as_str(), "{\n  \"x\": \"\\u001b[2J\\u202e\"\n}");
        assert_eq!(
            printed(&Step { output: Some(Payload::of_json("null")), ..Default::default() }),
            StepOutput::default()
        );
    }
}
