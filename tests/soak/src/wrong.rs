//! Differences between what happened and what is shown.

use belay_proto::v1;

/// The result of a comparison.
pub(crate) type CheckResult<T = ()> = Result<T, Box<Wrong>>;

/// The number of events that a report shows.
const SHOWN_EVENTS: usize = 24;

/// A difference: an execution, a step of it where there is one, and the events that say otherwise.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) execution: String,
    pub(crate) step: String,
    pub(crate) what: String,
    pub(crate) events: Vec<String>,
}

impl Wrong {
    /// A difference without events.
    pub(crate) fn new(execution: &str, step: &str, what: String) -> Self {
        Self { execution: id(execution).to_owned(), step: step.to_owned(), what, events: Vec::new() }
    }

    /// The same with the last events of the step, or of the execution when it is about none.
    pub(crate) fn with(mut self, events: &[v1::ExecutionEvent]) -> Self {
        let is_about = |event: &&v1::ExecutionEvent| self.step.is_empty() || event.step_id == self.step;
        let about: Vec<_> = events.iter().filter(is_about).collect();
        let shown = about.iter().skip(about.len().saturating_sub(SHOWN_EVENTS));
        self.events = shown.map(|event| shown_event(event)).collect();
        self
    }
}

/// An event in one line of at most 300 characters.
fn shown_event(event: &v1::ExecutionEvent) -> String {
    let kind = event.kind.as_ref().map_or_else(String::new, |kind| format!("{kind:?}"));
    let line = format!("{} {} {}.{} {kind}", event.sequence, event.step_id, event.attempt, event.operation);
    line.chars().take(300).collect()
}

/// The last part of a name.
pub(crate) fn id(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}
