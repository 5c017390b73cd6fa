//! The questions of the calls of one execution, as the tool runner sees them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use belay_execution::OperationKey;
use tokio::task::AbortHandle;

/// A question: the call that asks, and its id.
pub(super) type Question = (OperationKey, Arc<str>);

/// The questions of the calls of one execution.
#[derive(Default)]
pub(super) struct OpenQuestions {
    /// Questions that are open at the runner; with a reason, those that cannot be asked.
    pub(super) open: BTreeMap<Question, Option<String>>,
    /// Tasks that tell the runner a reply, or have told it since the runner said last which questions of the call are open.
    telling: HashMap<Question, Telling>,
}

/// A task that tells the runner a reply. It ends with this.
struct Telling(AbortHandle);

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl OpenQuestions {
    /// Forgets the questions of calls that are not in flight any more.
    pub(super) fn retain(&mut self, is_in_flight: impl Fn(OperationKey) -> bool) {
        self.open.retain(|(call, _), _| is_in_flight(*call));
        self.telling.retain(|question, _| self.open.contains_key(question));
    }

    /// Forgets what was said of a call's questions: the runner says it anew. What it was told before and has open still, it is told again.
    pub(super) fn begin(&mut self, call: OperationKey) {
        self.open.retain(|(of, _), _| *of != call);
        self.telling.retain(|(of, _), telling| *of != call || !telling.0.is_finished());
    }

    /// Whether the runner was told a reply, or is being told it.
    pub(super) fn is_told(&self, question: &Question) -> bool {
        self.telling.contains_key(question)
    }

    /// Keeps the task that tells the runner a reply, for as long as the question is open there.
    pub(super) fn tells(&mut self, question: Question, task: AbortHandle) {
        self.telling.insert(question, Telling(task));
    }
}
