//! An execution as a watcher knows it: the snapshot, moved on by the events after it; and what a person sees of that while it runs.

use std::{collections::HashMap, time::Duration};

use belay_proto::v1::{
    Execution, ExecutionEvent, StepStatus, WaitingReason, execution, execution_event::Kind, step_status::State,
    waiting_reason,
};

use super::{
    text::{Line, Style, shorten},
    time, words,
};
use crate::{follow::is_over, names, next};

/// The most steps that are shown at once: the rest is counted, so that the picture fits a small window.
const STEPS_SHOWN: usize = 8;
/// The longest error inside a line, in characters.
const LONGEST_ERROR: usize = 80;

/// What is known of an execution.
pub(crate) struct Picture {
    execution: Execution,
    /// Where each step stands in `execution.steps`.
    places: HashMap<String, usize>,
}

impl Picture {
    /// What a snapshot in FULL view says.
    pub(crate) fn new(execution: Execution) -> Picture {
        let places = execution.steps.iter().enumerate().map(|(place, step)| (step.step_id.clone(), place)).collect();
        Picture { execution, places }
    }

    /// The execution.
    pub(crate) fn execution(&self) -> &Execution {
        &self.execution
    }

    /// A step by its id.
    pub(crate) fn step(&self, id: &str) -> Option<&StepStatus> {
        self.execution.steps.get(*self.places.get(id)?)
    }

    /// What holds the execution up, as the server says it.
    pub(crate) fn wait_for(&mut self, waiting: Vec<WaitingReason>) {
        self.execution.waiting = waiting;
    }

    /// Moves on by an event. One that the snapshot already covers changes nothing.
    pub(crate) fn apply(&mut self, event: &ExecutionEvent) {
        if event.sequence <= self.execution.last_sequence {
            return;
        }
        self.execution.last_sequence = event.sequence;
        self.execution.waiting.clear();
        let Some(kind) = &event.kind else { return };
        match kind {
            Kind::ExecutionStarted(_) => {
                self.execution.set_state(execution::State::Running);
                self.execution.start_time = event.time;
            }
            Kind::ExecutionResumed(_) => self.execution.set_state(execution::State::Running),
            Kind::ExecutionAwaitingApproval(_) => self.execution.set_state(execution::State::AwaitingApproval),
            Kind::ExecutionPaused(_) => {
                self.execution.set_state(execution::State::Paused);
                let next_command = next::about(&["executions", "resume"], &self.execution.name, &[]);
                let kind = waiting_reason::Kind::Resume.into();
                self.execution.waiting =
                    vec![WaitingReason { kind, since: event.time, next_command, ..Default::default() }];
            }
            Kind::ExecutionCancelRequested(_) => self.execution.set_state(execution::State::Cancelling),
            Kind::ExecutionFinished(finished) => {
                self.execution.set_state(finished.state());
                self.execution.totals = finished.totals;
                self.execution.failure = finished.failure.clone();
                self.execution.end_time = event.time;
            }
            _ => {
                if self.execution.state() == execution::State::AwaitingApproval {
                    self.execution.set_state(execution::State::Running);
                }
                self.apply_to_step(event, kind);
            }
        }
    }

    /// The approvals that wait for a decision, by name, in the plan's order.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &str> {
        let is_asked = |step: &&StepStatus| step.state() == State::AwaitingApproval && !step.approval.is_empty();
        self.execution.steps.iter().filter(is_asked).map(|step| step.approval.as_str())
    }

    fn apply_to_step(&mut self, event: &ExecutionEvent, kind: &Kind) {
        let Some(step) = self.places.get(&event.step_id).and_then(|place| self.execution.steps.get_mut(*place)) else {
            return;
        };
        let state = match kind {
            Kind::StepStarted(_) => {
                step.attempt = event.attempt;
                step.start_time = step.start_time.or(event.time);
                State::Running
            }
            Kind::StepRetryScheduled(retry) => {
                step.failure = retry.failure.clone();
                let kind = waiting_reason::Kind::Timer.into();
                step.waiting =
                    Some(WaitingReason { kind, since: event.time, until: retry.not_before, ..Default::default() });
                State::BackingOff
            }
            Kind::StepCompleted(_) => State::Completed,
            Kind::StepFailed(failed) => {
                step.failure = failed.failure.clone();
                State::Failed
            }
            Kind::StepSkipped(skipped) => {
                step.skip_reason = skipped.reason;
                step.skipped_because = skipped.because.clone();
                State::Skipped
            }
            Kind::StepCancelled(_) => State::Cancelled,
            Kind::StepOutcomeUnknown(unknown) => {
                step.failure = unknown.failure.clone();
                State::OutcomeUnknown
            }
            Kind::ToolCallEffectProposed(_) | Kind::ToolCallApprovalRequired(_) => State::AwaitingApproval,
            Kind::ApprovalRequested(requested) => {
                step.approval = requested.approval.clone();
                step.set_state(State::AwaitingApproval);
                return;
            }
            Kind::ApprovalDecided(_) | Kind::ToolCallRequested(_) => State::Running,
            _ => return,
        };
        step.set_state(state);
        step.approval.clear();
        if state != State::BackingOff {
            step.waiting = None;
        }
        if has_ended(state) {
            step.end_time = event.time;
        }
    }

    /// The lines that are redrawn while it runs: what is going on, what holds it up, and how far it is.
    pub(crate) fn lines(&self, now: Duration) -> Vec<Line> {
        let active: Vec<&StepStatus> = self
            .execution
            .steps
            .iter()
            .filter(|step| {
                matches!(
                    step.state(),
                    State::Running | State::AwaitingApproval | State::BackingOff | State::OutcomeUnknown
                )
            })
            .collect();
        let mut lines: Vec<Line> = active.iter().take(STEPS_SHOWN).map(|step| step_line(step, now)).collect();
        if let Some(more @ 1..) = active.len().checked_sub(STEPS_SHOWN) {
            lines.push(Line::default().and(Style::Dim, format!("  … and {more} more")));
        }
        lines.extend(self.waits(now).into_iter().map(|wait| Line::default().and(Style::Warn, format!("  {wait}"))));

        let ended = self.execution.steps.iter().filter(|step| has_ended(step.state())).count();
        let since = time::between(self.execution.create_time.as_ref(), Some(now)).unwrap_or_default();
        lines.push(
            Line::default().and(Style::Strong, format!("{ended}/{}", words::steps(self.execution.steps.len()))).and(
                Style::Dim,
                format!("  {}  {}", time::short(Duration::from_secs(since.as_secs())), names::id(&self.execution.name)),
            ),
        );
        lines
    }

    /// What the execution waits for, other than its own calls and timers; each with the command that goes on.
    pub(crate) fn waits(&self, now: Duration) -> Vec<String> {
        if is_over(self.execution.state()) {
            return Vec::new();
        }
        let mut waits: Vec<String> = Vec::new();
        for reason in &self.execution.waiting {
            if matches!(reason.kind(), waiting_reason::Kind::Call | waiting_reason::Kind::Timer) {
                continue;
            }
            let next =
                if reason.next_command.is_empty() { String::new() } else { format!("; next: {}", reason.next_command) };
            waits.push(words::waiting(reason, now) + &next);
        }
        waits.truncate(STEPS_SHOWN);
        waits
    }
}

/// Whether a step in this state has ended.
pub(crate) fn has_ended(state: State) -> bool {
    matches!(state, State::Completed | State::Failed | State::Skipped | State::Cancelled)
}

fn step_line(step: &StepStatus, now: Duration) -> Line {
    let error =
        || step.failure.as_ref().map(|failure| shorten(&words::failure(failure), LONGEST_ERROR)).unwrap_or_default();
    let since = time::between(step.start_time.as_ref(), Some(now)).unwrap_or_default();
    let id = Line::new("  ").column(Style::Strong, &step.step_id, 16).and(Style::Plain, " ");
    match step.state() {
        State::BackingOff => {
            let until = step.waiting.as_ref().and_then(|waiting| time::since_epoch(waiting.until.as_ref()?));
            let wait = until.unwrap_or(now).saturating_sub(now);
            let retries = words::retries(Some(step), step.attempt);
            id.and(Style::Warn, format!("retrying ({retries}) in {}s: {}", wait.as_secs(), error()))
        }
        State::AwaitingApproval => id.and(Style::Warn, format!("{}  waits for a decision", step.tool)),
        State::OutcomeUnknown => id.and(Style::Warn, format!("outcome unknown, a person has to look: {}", error())),
        _ => {
            let attempt = if step.attempt > 1 {
                format!("  attempt {}/{}", step.attempt, step.max_attempts)
            } else {
                String::new()
            };
            let elapsed = time::short(Duration::from_secs(since.as_secs()));
            id.and(Style::Plain, format!("{}  {elapsed}{attempt}", step.tool))
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{
        ErrorClass, ExecutionFinished, ExecutionPaused, Failure, StepCompleted, StepFailed, StepRetryScheduled,
        StepStarted,
    };
    use pbjson_types::Timestamp;

    use super::*;

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp { seconds, nanos: 0 })
    }

    fn picture() -> Picture {
        let step = |id: &str| StepStatus {
            step_id: id.to_owned(),
            tool: "read_file".to_owned(),
            state: State::Pending.into(),
            max_attempts: 3,
            ..Default::default()
        };
        Picture::new(Execution {
            name: "namespaces/default/executions/e1".to_owned(),
            steps: vec![step("a"), step("b")],
            create_time: at(100),
            last_sequence: 1,
            ..Default::default()
        })
    }

    fn event(sequence: i64, step: &str, kind: Kind) -> ExecutionEvent {
        ExecutionEvent {
            sequence,
            step_id: step.to_owned(),
            attempt: 1,
            time: at(100 + sequence),
            kind: Some(kind),
            ..Default::default()
        }
    }

    fn shown(picture: &Picture, now: u64) -> Vec<String> {
        picture.lines(Duration::from_secs(now)).iter().map(|line| line.render(false)).collect()
    }

    // S2-FR-072: overall progress is visible.
    #[test]
    fn shows_what_runs_what_is_retried_and_how_far_it_is() {
        let mut picture = picture();
        picture.apply(&event(2, "a", Kind::StepStarted(StepStarted::default())));
        picture.apply(&event(3, "b", Kind::StepStarted(StepStarted::default())));
        assert_eq!(
            shown(&picture, 112),
            ["  a                read_file  10s", "  b                read_file  9s", "0/2 steps  12s  e1"]
        );
        let failure = Some(Failure {
            message: "reset".to_owned(),
            error_class: ErrorClass::Transient.into(),
            ..Default::default()
        });
        let retry = StepRetryScheduled { failure, retry_count: 1, not_before: at(116), ..Default::default() };
        picture.apply(&event(4, "b", Kind::StepRetryScheduled(retry)));
        picture.apply(&event(5, "a", Kind::StepCompleted(StepCompleted::default())));
        assert_eq!(
            shown(&picture, 112),
            ["  b                retrying (1/2) in 4s: reset (TRANSIENT)", "1/2 steps  12s  e1"]
        );
    }

    // S2-FR-052: what waits for a person is seen to wait, and for what.
    #[test]
    fn an_approval_is_asked_from_its_request_to_its_decision() {
        use belay_proto::v1::{ApprovalDecided, ApprovalRequested, ExecutionAwaitingApproval, ToolCallEffectProposed};
        let mut picture = picture();
        picture.apply(&event(2, "a", Kind::StepStarted(StepStarted::default())));
        picture.apply(&event(3, "a", Kind::ToolCallEffectProposed(ToolCallEffectProposed::default())));
        assert_eq!(picture.asked().count(), 0, "the gate has not said which it is");
        let approval = "namespaces/default/approvals/x7".to_owned();
        picture.apply(&event(
            4,
            "a",
            Kind::ApprovalRequested(ApprovalRequested { approval: approval.clone(), ..Default::default() }),
        ));
        picture.apply(&event(5, "", Kind::ExecutionAwaitingApproval(ExecutionAwaitingApproval {})));
        assert_eq!(picture.asked().collect::<Vec<_>>(), [approval]);
        assert_eq!(picture.execution().state(), execution::State::AwaitingApproval);
        assert_eq!(shown(&picture, 112), ["  a                read_file  waits for a decision", "0/2 steps  12s  e1"]);
        picture.apply(&event(6, "a", Kind::ApprovalDecided(ApprovalDecided::default())));
        assert_eq!(picture.asked().count(), 0);
        assert_eq!(picture.execution().state(), execution::State::Running);
    }

    #[test]
    fn an_event_the_snapshot_covers_changes_nothing() {
        let mut picture = picture();
        picture.apply(&event(1, "a", Kind::StepFailed(StepFailed::default())));
        assert_eq!(picture.step("a").map(StepStatus::state), Some(State::Pending));
    }

    #[test]
    fn what_holds_it_up_is_said_with_the_way_out() {
        let mut picture = picture();
        picture.apply(&event(2, "", Kind::ExecutionPaused(ExecutionPaused::default())));
        assert_eq!(
            picture.waits(Duration::from_secs(105)),
            ["is paused until somebody resumes it (since 3s); next: belay executions resume e1"]
        );
        picture.apply(&event(
            3,
            "",
            Kind::ExecutionFinished(ExecutionFinished {
                state: execution::State::Cancelled.into(),
                ..Default::default()
            }),
        ));
        assert!(picture.waits(Duration::from_secs(105)).is_empty());
    }

    #[test]
    fn a_hundred_running_steps_fit_a_window() {
        let steps = (0..100).map(|i| StepStatus {
            step_id: format!("s{i}"),
            state: State::Running.into(),
            ..Default::default()
        });
        let picture = Picture::new(Execution { steps: steps.collect(), ..Default::default() });
        let lines = shown(&picture, 0);
        assert_eq!(lines.len(), STEPS_SHOWN + 2);
        assert_eq!(lines[STEPS_SHOWN], "  … and 92 more");
    }
}
