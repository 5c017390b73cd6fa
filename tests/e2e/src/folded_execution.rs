//! An execution as a client sees it, folded from events alone, as a user's own program would do.

use std::collections::{BTreeMap, BTreeSet};

use belay_proto::v1::{self, execution_event::Kind, step::State as Step, watch_execution_response::Content};

/// A call: its step, the attempt, and its number within the attempt.
type Call = (String, i32, i32);

/// The fold of the events so far.
#[derive(Clone, Debug, Default)]
pub struct FoldedExecution {
    events: Vec<v1::ExecutionEvent>,
    steps: BTreeMap<String, (Step, i32)>,
    state: Option<v1::execution::State>,
    open_calls: BTreeSet<Call>,
    requested: BTreeSet<Call>,
    output_chunks: usize,
    cursor: String,
}

impl FoldedExecution {
    /// Applies the event of a message of a watch, if it has one, and keeps its cursor.
    ///
    /// # Panics
    /// As [`FoldedExecution::take`]; and when the message has no cursor, or a heartbeat comes with another one than what came before.
    pub fn read(&mut self, message: v1::WatchExecutionResponse) {
        let v1::WatchExecutionResponse { cursor, content, .. } = message;
        assert!(!cursor.is_empty(), "every message has a cursor: {content:?}");
        match content.expect("a message has content") {
            Content::Event(event) => {
                assert_eq!(
                    event.ephemeral,
                    self.cursor == cursor,
                    "what is stored moves the cursor, and nothing else: {event:?}"
                );
                self.take(event);
            }
            Content::Heartbeat(_) => assert_eq!(self.cursor, cursor, "a heartbeat moves no cursor"),
            Content::Snapshot(_) | Content::Reset(_) => {}
        }
        self.cursor = cursor;
    }

    /// Where a watch resumes; empty at the beginning.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    /// Applies the next event.
    ///
    /// # Panics
    /// When it is not the next one, or violates the contract.
    pub fn take(&mut self, event: v1::ExecutionEvent) {
        if event.ephemeral {
            // Live output: it moves no cursor, and later watchers do not get it.
            assert!(event.sequence == 0 && event.safe_to_skip, "it has no place among the others: {event:?}");
            self.output_chunks += 1;
            return;
        }
        assert_eq!(event.sequence, self.last_sequence() + 1, "no gap and no repetition");
        let step = event.step_id.clone();
        let call = (event.step_id.clone(), event.attempt, event.operation);
        let mut set = |state: Step| {
            let attempt = event.attempt;
            self.steps
                .entry(step.clone())
                .and_modify(|known| *known = (state, known.1.max(attempt)))
                .or_insert((state, attempt));
        };
        match event.kind.as_ref().expect("an event has a kind") {
            Kind::ExecutionFinished(finished) => self.state = Some(finished.state()),
            Kind::StepStarted(_) => set(Step::Running),
            Kind::StepRetryScheduled(_) => set(Step::BackingOff),
            Kind::StepCompleted(_) => set(Step::Completed),
            Kind::StepFailed(_) => set(Step::Failed),
            Kind::StepSkipped(_) => set(Step::Skipped),
            Kind::StepCancelled(_) => set(Step::Cancelled),
            Kind::StepOutcomeUnknown(_) => set(Step::OutcomeUnknown),
            Kind::WaitStarted(_) => set(Step::Waiting),
            Kind::WaitEnded(_) => set(Step::Running),
            Kind::ToolCallRequested(_) => {
                assert!(self.requested.insert(call.clone()), "{call:?} is requested once");
                self.open_calls.insert(call);
            }
            Kind::ToolCallCompleted(_)
            | Kind::ToolCallFailed(_)
            | Kind::ToolCallCancelled(_)
            | Kind::ToolCallDenied(_)
            | Kind::ToolCallOutcomeUnknown(_) => {
                assert!(self.open_calls.remove(&call), "{call:?} ends once");
            }
            _ => {}
        }
        self.events.push(event);
    }

    /// The number of the last event.
    pub fn last_sequence(&self) -> i64 {
        self.events.last().map_or(0, |event| event.sequence)
    }

    /// Whether the execution has ended.
    pub fn ended(&self) -> bool {
        self.state.is_some()
    }

    /// The state in which it ended.
    pub fn state(&self) -> Option<v1::execution::State> {
        self.state
    }

    /// Every event.
    pub fn events(&self) -> &[v1::ExecutionEvent] {
        &self.events
    }

    /// The number of chunks of live output.
    pub fn output_chunks(&self) -> usize {
        self.output_chunks
    }

    /// The number of events of the kinds that `is` selects.
    pub fn count(&self, is: impl Fn(&Kind) -> bool) -> usize {
        self.events.iter().filter(|event| event.kind.as_ref().is_some_and(&is)).count()
    }

    /// Compares the fold with the server's snapshot.
    ///
    /// # Panics
    /// When the two differ.
    pub fn assert_equals(&self, execution: &v1::Execution) {
        assert_eq!(self.state, Some(execution.state()));
        assert_eq!(self.last_sequence(), execution.last_sequence);
        let server: BTreeMap<String, (Step, i32)> =
            execution.steps.iter().map(|step| (step.step_id.clone(), (step.state(), step.attempt))).collect();
        assert_eq!(self.steps, server);
        assert!(self.open_calls.is_empty(), "every call has ended: {:?}", self.open_calls);
        let totals = execution.totals.expect("an execution has totals");
        assert_eq!(totals.total, totals.completed + totals.failed + totals.skipped + totals.cancelled);
    }
}
