//! The outputs of a plan: their names, and what they refer to.

use serde_json::Value;

use super::{Checker, is_value_name};
use crate::{
    PlanDraft, StepDraft, Template,
    limits::{MAX_OUTPUT_CHARS, MAX_OUTPUTS},
    path::{FieldPath, shown},
    template::Reference,
};

impl Checker<'_> {
    /// The outputs of a plan whose steps are registered, as far as they can be read; `None` when it declares none.
    pub(super) fn outputs(&mut self, draft: &PlanDraft) -> Option<Template> {
        let path = FieldPath::root().key("outputs");
        if draft.outputs.is_empty() {
            return None;
        }
        if draft.outputs.len() > MAX_OUTPUTS {
            self.rule(&path, || format!("has {} outputs and the limit is {MAX_OUTPUTS}", draft.outputs.len()));
        }
        for (name, value) in &draft.outputs {
            let path = path.key(name.clone());
            if !is_value_name(name, MAX_OUTPUT_CHARS) {
                self.rule(&path, || {
                    format!(
                        "`{}` is not the name of an output: that is 1 to {MAX_OUTPUT_CHARS} letters, digits, `-` and `_`",
                        shown(name)
                    )
                });
            }
            if value.is_null() {
                self.rule(&path, || "is empty: give it a value, such as `${STEP.result}`, or remove it".to_owned());
            }
        }
        let written: serde_json::Map<String, Value> = draft.outputs.clone().into_iter().collect();
        let (template, _) = self.object(&path, &written.into(), &[], "must be an object with a value for each output");
        for (inner, reference) in template.references() {
            self.output_reference(&path.join(inner), reference, &draft.steps);
        }
        Some(template)
    }

    /// A reference in an output names a step of the plan or an input that it declares.
    fn output_reference(&mut self, field: &FieldPath, reference: &Reference, steps: &[StepDraft]) {
        if reference.is_item() {
            self.refuse(field, || {
                format!(
                    "`${{{reference}}}` has no value here, where no step runs: name the results of all entries, `${{STEP.result}}` or \
                     `${{STEP.results}}`"
                )
            });
        } else if let Some(input) = reference.input() {
            self.input(field, input);
        } else {
            self.results_of_entries(field, reference, steps);
            self.output_of_plan(field, reference, steps);
            self.unambiguous(field, reference);
            let explain = "`${…}` names a step of this plan; `$${` stands for the text `${`";
            self.named_step(field, reference.step(), steps, explain);
        }
    }
}
