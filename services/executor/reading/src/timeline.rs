//! Timeline of the steps of an execution, from its events: stretches of time in which each step ran or waited.

use std::collections::HashMap;

use belay_execution::{Activity, Body, Event, ExecutionEvent, OperationId, StepEvent, StepId, StepState, Timestamp};

/// The activity of a step during a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its call runs.
    Running,
    /// It waits for a person to approve its call or to answer its form.
    Person,
    /// It waits for a time, a signal, the outcome of a call, or to make its call again.
    Waiting,
    /// It waits before its next attempt.
    Backoff,
}

/// A stretch of time in which a step did one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The attempt, from 1.
    pub attempt: u32,
    /// The number of the operation in the attempt, from 1; 0 for an activity that is not an operation.
    pub operation: u32,
    /// The activity of the step.
    pub kind: Kind,
    /// When it began.
    pub begin: Timestamp,
    /// When it ended; `None` when it continues.
    pub end: Option<Timestamp>,
}

/// A step that has started or was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The step.
    pub step: StepId,
    /// How it ended; `Running` for one that has not.
    pub state: StepState,
    /// Its activities, in order.
    pub segments: Vec<Segment>,
}

/// An execution in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    rows: Vec<Row>,
    /// Where each step stands in `rows`.
    places: HashMap<StepId, usize>,
}

/// The change of a step by an event.
#[derive(Clone, Copy)]
enum Change {
    /// It does this from now on.
    To(Kind),
    /// It has ended.
    Ends(StepState),
}

impl Timeline {
    /// Takes the next event.
    pub fn apply(&mut self, event: &Event) {
        let Some((step, attempt, operation, change)) = change(&event.body) else { return };
        let place = *self.places.entry(step.clone()).or_insert(self.rows.len());
        if place == self.rows.len() {
            self.rows.push(Row { step: step.clone(), state: StepState::Running, segments: Vec::new() });
        }
        self.rows[place].change(change, attempt, operation, event.time);
    }

    /// Its steps in the order in which they first started or were skipped; a row keeps its place.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

impl Row {
    fn change(&mut self, change: Change, attempt: u32, operation: u32, now: Timestamp) {
        if let (Change::To(kind), Some(open)) = (change, self.segments.last_mut())
            && open.end.is_none()
            && (open.kind, open.attempt) == (kind, attempt)
        {
            open.operation = open.operation.max(operation);
            return;
        }
        if let Some(open) = self.segments.last_mut().filter(|open| open.end.is_none()) {
            open.end = Some(now);
        }
        // What took no time is not seen, unless the step did nothing else.
        let is_only = self.segments.len() == 1 && matches!(change, Change::Ends(_));
        self.segments.pop_if(|last| last.end == Some(last.begin) && !is_only);
        match change {
            Change::To(kind) => {
                self.state = StepState::Running;
                self.segments.push(Segment { attempt, operation, kind, begin: now, end: None });
            }
            Change::Ends(state) => self.state = state,
        }
    }
}

/// The change that an event makes, with its step, attempt and operation number; `None` when the event makes none.
fn change(body: &Body) -> Option<(&StepId, u32, u32, Change)> {
    match body {
        Body::Execution(
            ExecutionEvent::Created(_)
            | ExecutionEvent::LimitsRequested
            | ExecutionEvent::LimitsAcquired
            | ExecutionEvent::Started
            | ExecutionEvent::Paused { .. }
            | ExecutionEvent::Resumed
            | ExecutionEvent::CancelRequested { .. }
            | ExecutionEvent::SignalReceived(_)
            | ExecutionEvent::Recovered { .. }
            | ExecutionEvent::Retried(_)
            | ExecutionEvent::BudgetReported(_)
            | ExecutionEvent::PlanUpdated(_)
            | ExecutionEvent::DeadlineExceeded
            | ExecutionEvent::AwaitingApproval
            | ExecutionEvent::CompensationStarted { .. }
            | ExecutionEvent::Finished(_),
        ) => None,
        Body::Step { step, attempt, event } => Some((step, *attempt, 0, of_step(event)?)),
        Body::Operation { id: OperationId { step, attempt, number }, event } => {
            Some((step, *attempt, *number, Change::To(segment(event.activity()?))))
        }
    }
}

fn of_step(event: &StepEvent) -> Option<Change> {
    Some(match event {
        StepEvent::Started | StepEvent::Resolved { .. } => Change::To(Kind::Running),
        StepEvent::OutcomeUnknown { .. } => Change::To(Kind::Waiting),
        StepEvent::RetryScheduled { .. } | StepEvent::FallbackSwitched { .. } => Change::To(Kind::Backoff),
        StepEvent::Completed { .. } => Change::Ends(StepState::Completed),
        StepEvent::Failed { .. } => Change::Ends(StepState::Failed),
        StepEvent::Skipped { .. } => Change::Ends(StepState::Skipped),
        StepEvent::Cancelled { .. } => Change::Ends(StepState::Cancelled),
        StepEvent::CachedResultUsed { .. }
        | StepEvent::ItemsListed { .. }
        | StepEvent::ItemsCollected { .. }
        | StepEvent::SkipRequested { .. }
        | StepEvent::OutputSet { .. }
        | StepEvent::ConversationCarriedOver { .. }
        | StepEvent::RetryAdvanced { .. }
        | StepEvent::RetryCancelled { .. } => return None,
    })
}

/// The kind of the segment that an activity is.
fn segment(activity: Activity) -> Kind {
    match activity {
        Activity::Runs => Kind::Running,
        Activity::AwaitsPerson => Kind::Person,
        Activity::Waits => Kind::Waiting,
    }
}

#[cfg(test)]
mod tests;
