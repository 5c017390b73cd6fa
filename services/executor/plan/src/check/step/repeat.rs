//! Until when a step runs again.

use crate::{
    Condition, RepeatDraft, StepDraft, StepKindDraft, StepValue,
    check::Checker,
    limits::MAX_ROUNDS,
    path::{FieldPath, shown},
};

impl Checker<'_> {
    /// The condition, when its references can be read.
    pub(super) fn repeat(&mut self, path: &FieldPath, step: &StepDraft, repeat: &RepeatDraft) -> Option<Condition> {
        let RepeatDraft { until, max, delay } = repeat;
        let field = path.key("repeat");
        if step.for_each.is_some() {
            self.rule(&path.key("for_each"), || {
                "is for a step that runs once for each entry, and this one repeats: let a step with a `plan` repeat, and one in that plan have the list"
                    .to_owned()
            });
        }
        if matches!(step.kind, StepKindDraft::Calls { .. }) {
            self.rule(&path.key("calls"), || {
                "are made once, and this step repeats: let a step with a `plan` repeat, and one in that plan make them"
                    .to_owned()
            });
        }
        if !(1..=MAX_ROUNDS).contains(max) {
            self.rule(&field.key("max"), || match max {
                0 => format!("is required, so that it ends: the most rounds, 1 to {MAX_ROUNDS}"),
                max => format!("is {max} and the limit is {MAX_ROUNDS}"),
            });
        }
        self.duration(&field.key("delay"), *delay);
        let field = field.key("until");
        if until.trim().is_empty() {
            self.refuse(&field, || {
                "is required: the expression that is true once the last round was enough".to_owned()
            });
            return None;
        }
        let condition = self.condition(&field, until)?;
        let own = |(id, value)| id == step.id && matches!(value, StepValue::Result | StepValue::Outputs);
        if !condition.values().any(own) {
            self.rule(&field, || {
                let id = shown(&step.id);
                format!("reads nothing that a round changes, so that it never ends otherwise than by `max`: name `${{{id}.result}}`")
            });
        }
        Some(condition)
    }
}
