//! Why an execution has not ended, or how it came to its end: from its state, and from what holds it up that is in no event.
//!
//! Everything here is a fact of the record: nothing is hidden, shortened or put into words yet, and nothing depends on who asks or where.

mod cause;
mod circumstances;
mod reader;
mod skips;

use belay_execution::{Authorization, Execution, ExecutionState, StepId, StepState, StepView};

use self::{
    cause::{awaited_child, rank},
    reader::Reader,
};

pub use self::{
    cause::{Action, Cause, CauseKind, Source, Subject, Verb, is_wait},
    circumstances::{Blocker, BlockerKind, CancelRequest, Circumstances, FullLimit, Service},
    skips::SkippedStep,
};

/// The most executions of steps that are named to explain an execution that waits for them.
const MAX_CHILDREN: usize = 4;
/// The number of causes of each execution that contribute to the next actions.
const CAUSES_ACTED_ON: usize = 4;

/// Why an execution is in its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// Its state.
    pub state: ExecutionState,
    /// Waits of the execution, or reasons for its end, the most important first: waits that a person has to end, waits that end automatically, its
    /// own calls, and earlier failures; of an execution that has ended, the first failure first.
    pub causes: Vec<Cause<'a>>,
    /// The steps whose calls have changed the workspace, in the order of the steps.
    pub changes: Vec<StepChange<'a>>,
    /// The steps that were skipped, in order.
    pub skipped: Vec<SkippedStep>,
    /// The executions of steps that explain it, by name: of the step that failed first, or of those that it waits for.
    pub children: Vec<String>,
    /// The action that resumes the execution as a whole; `None` where only its causes can be acted on, or nothing.
    pub resumed_by: Option<Action>,
}

impl Explanation<'_> {
    /// The actions that are available for it.
    pub fn outlook(&self) -> Outlook {
        let waits = self.causes.iter().filter(|cause| !self.state.is_terminal() && is_wait(cause.kind));
        let actions = waits.take(CAUSES_ACTED_ON).flat_map(|cause| cause.actions.iter().cloned());
        Outlook { resumed_by: self.resumed_by.clone(), actions: actions.collect() }
    }
}

/// Actions that are available for an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The action that resumes the execution as a whole.
    pub resumed_by: Option<Action>,
    /// The actions that end its most important waits, the best first.
    pub actions: Vec<Action>,
}

/// Changes that the calls of a step made in the workspace.
#[derive(Clone, Debug, PartialEq)]
pub struct StepChange<'a> {
    /// The step.
    pub step: StepId,
    /// The authorization of the changes, and how many paths they affect.
    pub authorization: &'a Authorization,
}

/// Explains an execution. `name` is `namespaces/*/executions/*`.
pub fn explain<'a>(name: &str, execution: &'a Execution, beside: Circumstances<'a>) -> Explanation<'a> {
    let reader = Reader { name, execution, beside };
    let state = execution.state();
    // What a model has heard of is no reason for anything: it may have gone on otherwise, and where it could not, its step has failed.
    let failed = execution.steps().filter(|step| step.state() == StepState::Failed && !step.is_of_agent());
    let mut failed: Vec<StepView<'_>> = failed.collect();
    failed.sort_by_key(|step| step.ended_at());
    let mut causes = Vec::new();
    if state.is_terminal() {
        causes.extend(failed.iter().map(|step| reader.failure(*step)));
        causes.extend(reader.stop());
        let stopped = execution.steps().filter(|step| step.state() == StepState::Cancelled);
        causes.extend(stopped.map(|step| Cause {
            step: Some(step.key),
            since: step.ended_at(),
            ..Cause::of(CauseKind::StepCancellation)
        }));
    } else {
        causes.extend(reader.waits());
        causes.extend(reader.stop());
        causes.extend(failed.iter().map(|step| reader.failure(*step)));
        causes.sort_by_key(|cause| rank(cause.kind));
    }
    let children = match state.is_terminal() {
        true => {
            failed.first().and_then(|step| step.child(execution)).map(|id| reader.sibling(&id)).into_iter().collect()
        }
        false => causes.iter().filter_map(awaited_child).take(MAX_CHILDREN).collect(),
    };
    let changes = execution.steps().filter_map(|step| {
        let authorization = step.authorization().filter(|given| given.changes.iter().any(|count| *count > 0))?;
        Some(StepChange { step: step.id().clone(), authorization })
    });
    Explanation {
        state,
        causes,
        changes: changes.collect(),
        skipped: skips::skipped(execution),
        children,
        resumed_by: reader.resumed_by(!failed.is_empty()),
    }
}

/// Actions that are available for an execution, the best first, and each once: the one that resumes it as a whole, then those that end the most
/// important waits, its own and those of the executions that explain it. An action that only explains such an execution is omitted, because that
/// execution's own waits are listed.
pub fn next_actions(own: &Outlook, children: &[Outlook]) -> Vec<Action> {
    let mut found: Vec<Action> = own.resumed_by.iter().cloned().collect();
    for action in [own].into_iter().chain(children).flat_map(|outlook| &outlook.actions) {
        let is_answered = action.verb == Verb::Explain && !children.is_empty();
        if !is_answered && !found.contains(action) {
            found.push(action.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests;
