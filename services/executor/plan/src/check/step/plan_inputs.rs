//! The plan that a step carries out, and the inputs that it gives it.

use crate::{
    PlanDraft, StepDraft, Template,
    check::Checker,
    nearest,
    path::{FieldPath, shown},
};

impl Checker<'_> {
    /// The inputs of a step's plan, as far as they can be read.
    pub(super) fn plan_inputs(
        &mut self,
        path: &FieldPath,
        step: &StepDraft,
        plan: &PlanDraft,
        inputs: &serde_json::Value,
    ) -> Template {
        let only_for_tools = [
            ("fallback", !step.fallback.is_empty()),
            ("preconditions", !step.preconditions.is_empty()),
            ("postconditions", !step.postconditions.is_empty()),
            ("output_schema", step.output_schema.is_some()),
            ("verbatim", !step.verbatim.is_empty()),
            ("exclusive", step.exclusive),
            ("network", step.network.is_some()),
        ];
        for (field, _) in only_for_tools.into_iter().filter(|(_, is_set)| *is_set) {
            let way_out = match field {
                "verbatim" => "remove it, and write `$${` in its inputs where `${` means nothing",
                _ => "remove it, or put it on the steps of the plan",
            };
            self.rule(&path.key(field), || {
                format!("is for steps that call a tool, and this one carries out a plan: {way_out}")
            });
        }
        let field = path.key("inputs");
        if let Some(given) = inputs.as_object() {
            for name in given.keys().filter(|name| !plan.inputs.contains_key(*name)) {
                let near = nearest(name, plan.inputs.keys().map(String::as_str));
                self.rule(&field.key(name.clone()), || match near {
                    Some(near) => format!("the step's plan declares no such input; did you mean `{}`?", shown(near)),
                    None => "the step's plan declares no such input: remove it, or declare it under `plan.inputs`"
                        .to_owned(),
                });
            }
            let missing = plan
                .inputs
                .iter()
                .filter(|(name, input)| input.default.is_none() && !given.contains_key(name.as_str()));
            for (name, _) in missing {
                self.rule(&field, || {
                    let name = shown(name);
                    format!(
                        "lacks `{name}`, which the step's plan requires: add it, or give it a `default` in that plan"
                    )
                });
            }
        }
        self.object(&field, inputs, &[], "must be an object with the values of the plan's inputs by name").0
    }
}
