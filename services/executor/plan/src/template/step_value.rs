//! Values that references name.

/// The value of a step that a reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepValue {
    /// `result` or `output`: its output.
    Result,
    /// `outputs`: the outputs of its plan, where that declares some, or those that its command has appended: a member of its result.
    Outputs,
    /// `results`: what became of each entry of its list, or of each of its calls: a list of objects with `state`, `value`, which is null unless the entry
    /// has completed, and `failure`, which is null unless it has failed.
    Results,
    /// `state`: how it ended: `completed`, `failed`, `skipped` or `cancelled`.
    State,
    /// `failure`: what went wrong, an object with `code`, `class` and `message`; null when it has not failed.
    Failure,
    /// The inputs that the execution was started with, by their names; of no step.
    Input,
    /// The entry of the list for which a step runs, an object with `value` and `index`; of no step.
    Item,
}
