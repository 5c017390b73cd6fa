//! What each step of an execution did when, from its events: stretches of time in which it ran or waited.

mod draw;

use std::{collections::HashMap, time::Duration};

use belay_proto::v1::{ExecutionEvent, execution_event::Kind as Event, step::State};
use serde_json::{Value, json};

pub(crate) use draw::lines;

use super::time;

/// What a step does during a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its call runs.
    Running,
    /// It waits for a person to approve its call or to answer its form.
    Approval,
    /// It waits for a time, a signal, the outcome of a call, or to make its call again.
    Waiting,
    /// It waits before its next attempt.
    Backoff,
}

impl Kind {
    /// Its word in JSON.
    fn word(self) -> &'static str {
        match self {
            Kind::Running => "running",
            Kind::Approval => "approval",
            Kind::Waiting => "waiting",
            Kind::Backoff => "backoff",
        }
    }
}

/// A stretch of time in which a step did one thing. Times are since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The attempt, from 1.
    pub(crate) attempt: i32,
    /// What the step did.
    pub(crate) kind: Kind,
    /// When it began.
    pub(crate) start: Duration,
    /// When it ended; `None` when it continues.
    pub(crate) end: Option<Duration>,
}

/// A step that has started or was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The step's id.
    pub(crate) step_id: String,
    /// How it ended; `Running` for one that has not.
    pub(crate) state: State,
    /// What it did, in order.
    pub(crate) segments: Vec<Segment>,
}

/// An execution in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeline {
    /// When the execution was accepted.
    pub(crate) start: Duration,
    /// When it ended; `None` when it has not.
    pub(crate) end: Option<Duration>,
    /// Its steps in the order in which they started or were skipped.
    pub(crate) rows: Vec<Row>,
    /// Where each step stands in `rows`.
    places: HashMap<String, usize>,
}

/// What an event changes for its step.
enum Change {
    /// It does this from now on.
    To(Kind),
    /// It has ended.
    Ends(State),
}

impl Timeline {
    /// Takes the next event into account.
    pub(crate) fn see(&mut self, event: &ExecutionEvent) {
        let (Some(kind), Some(now)) = (&event.kind, event.record_time.as_ref().and_then(time::since_epoch)) else {
            return;
        };
        match kind {
            Event::ExecutionCreated(_) => self.start = now,
            Event::ExecutionFinished(_) => self.end = Some(now),
            Event::ExecutionRetried(_) => self.end = None,
            _ => {}
        }
        let Some(change) = change(kind) else { return };
        let place = *self.places.entry(event.step_id.clone()).or_insert(self.rows.len());
        if place == self.rows.len() {
            let (step_id, state) = (event.step_id.clone(), State::Running);
            self.rows.push(Row { step_id, state, segments: Vec::new() });
        }
        self.rows[place].change(change, event.attempt, now);
    }

    /// The segments for programs, by step.
    pub(crate) fn segments(&self) -> Vec<Value> {
        let of_row = |row: &Row| {
            let of_segment = |segment: &Segment| {
                let mut value = json!({
                    "stepId": row.step_id,
                    "attempt": segment.attempt,
                    "kind": segment.kind.word(),
                    "startTime": time::timestamp(segment.start),
                });
                if let Some(end) = segment.end {
                    value["endTime"] = json!(time::timestamp(end));
                }
                value
            };
            row.segments.iter().map(of_segment).collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of_row).collect()
    }
}

impl Row {
    fn change(&mut self, change: Change, attempt: i32, now: Duration) {
        if let (Change::To(kind), Some(open)) = (&change, self.segments.last())
            && open.end.is_none()
            && (open.kind, open.attempt) == (*kind, attempt)
        {
            return;
        }
        if let Some(open) = self.segments.last_mut().filter(|open| open.end.is_none()) {
            open.end = Some(now);
        }
        // What took no time is not seen, unless the step did nothing else.
        let is_only = self.segments.len() == 1 && matches!(change, Change::Ends(_));
        self.segments.pop_if(|last| last.end == Some(last.start) && !is_only);
        match change {
            Change::To(kind) => {
                self.state = State::Running;
                self.segments.push(Segment { attempt, kind, start: now, end: None });
            }
            Change::Ends(state) => self.state = state,
        }
    }
}

/// What an event changes for its step; `None` when nothing.
fn change(kind: &Event) -> Option<Change> {
    Some(match kind {
        Event::StepStarted(_)
        | Event::ToolCallRequested(_)
        | Event::ToolCallDispatched(_)
        | Event::ApprovalDecided(_)
        | Event::StepResolved(_)
        | Event::ChildStarted(_)
        | Event::WaitEnded(_) => Change::To(Kind::Running),
        Event::ToolCallEffectProposed(_) | Event::ToolCallApprovalRequired(_) => Change::To(Kind::Approval),
        Event::WaitStarted(wait) => Change::To(if wait.form.is_some() { Kind::Approval } else { Kind::Waiting }),
        // It has to be made again, as after a pause.
        Event::ToolCallCancelled(_) | Event::StepOutcomeUnknown(_) => Change::To(Kind::Waiting),
        Event::StepRetryScheduled(_) | Event::StepFallbackSwitched(_) => Change::To(Kind::Backoff),
        Event::ChildCreated(_) => return None,
        Event::ChildPaused(child) => Change::To(if child.resumed { Kind::Running } else { Kind::Waiting }),
        Event::ChildEnded(_) => Change::To(Kind::Running),
        Event::StepCompleted(_) => Change::Ends(State::Completed),
        Event::StepFailed(_) => Change::Ends(State::Failed),
        Event::StepSkipped(_) => Change::Ends(State::Skipped),
        Event::StepCancelled(_) => Change::Ends(State::Cancelled),
        Event::ExecutionCreated(_)
        | Event::ExecutionStarted(_)
        | Event::ExecutionPaused(_)
        | Event::ExecutionResumed(_)
        | Event::ExecutionCancelRequested(_)
        | Event::ExecutionRecovered(_)
        | Event::ExecutionCompensationStarted(_)
        | Event::ExecutionDeadlineExceeded(_)
        | Event::ExecutionFinished(_)
        | Event::ExecutionAwaitingApproval(_)
        | Event::ExecutionRetried(_)
        | Event::ExecutionPlanUpdated(_)
        | Event::BudgetWarning(_)
        | Event::BudgetExceeded(_)
        | Event::BudgetOverrun(_)
        | Event::StepCachedResultUsed(_)
        | Event::StepItemsListed(_)
        | Event::StepItemsCollected(_)
        | Event::StepSkipRequested(_)
        | Event::StepOutputSet(_)
        | Event::StepRetryAdvanced(_)
        | Event::StepRetryCancelled(_)
        | Event::SignalReceived(_)
        | Event::ToolCallCompleted(_)
        | Event::ToolCallFailed(_)
        | Event::ToolCallOutcomeUnknown(_)
        | Event::ToolCallDenied(_)
        | Event::ToolCallOutput(_)
        | Event::ApprovalRequested(_) => return None,
    })
}

#[cfg(test)]
mod tests;
