//! Parameters of templates: what goes in, and what comes out.

use serde_json::json;

use super::{converter::Converter, leaf::Captures, values::Values};
use crate::{
    fields::{Field, Fields, Refusal},
    plan::{Plan, identifier},
    text::Text,
};

/// The reason why artifacts are left out, and the way out.
pub(super) const ARTIFACTS: (&str, &str) = ("all steps work in one workspace", "write and read the file there");

impl<'n> Converter<'_, 'n> {
    /// The parameters that a template declares, with their defaults.
    pub(super) fn parameters(
        &mut self,
        fields: &mut Fields<'n>,
        values: &mut Values,
    ) -> Result<Vec<(String, Option<Text>)>, Refusal> {
        let Some(inputs) = fields.take("inputs") else { return Ok(Vec::new()) };
        let mut inputs = inputs.fields()?;
        let mut declared = Vec::new();
        for parameter in inputs.take("parameters").map(|all| all.items()).unwrap_or_default() {
            let mut parameter_fields = parameter.fields()?;
            let name = parameter_fields.need("name")?.needed_text()?;
            let default = parameter_fields.take("value").or_else(|| parameter_fields.take("default"));
            let default = default.and_then(|default| Some(values.text(&default.text()?, &default, self.report)));
            ["enum", "description"].iter().for_each(|key| drop(parameter_fields.take(key)));
            parameter_fields
                .leave_rest(self.report, &[("valueFrom", "the value comes from Kubernetes", "give it as an argument")]);
            declared.push((name, default));
        }
        inputs.leave_rest(self.report, &[("artifacts", ARTIFACTS.0, ARTIFACTS.1)]);
        Ok(declared)
    }

    /// Reports what of the outputs of a command is not read.
    pub(super) fn leaf_outputs(&mut self, fields: &mut Fields<'n>) -> Result<(), Refusal> {
        let Some(outputs) = fields.take("outputs") else { return Ok(()) };
        let mut outputs = outputs.fields()?;
        for parameter in outputs.take("parameters").map(|all| all.items()).unwrap_or_default() {
            let mut parameter = parameter.fields()?;
            parameter.take("name");
            if let Some(from) = parameter.take("valueFrom") {
                let mut from = from.fields()?;
                from.take("path");
                let supplied = from.take("supplied").map(|supplied| supplied.members());
                for (name, field) in supplied.unwrap_or_default() {
                    self.report.add(&field, name, "a value that a person supplies has no more to say", "");
                }
                from.leave_rest(
                    self.report,
                    &[("default", "a file that is not there fails the command", "let the command write it")],
                );
            }
            parameter.leave_rest(
                self.report,
                &[("globalName", "a value has the name of its step", "write `${STEP.outputs.NAME}`")],
            );
        }
        outputs.leave_rest(self.report, &[("artifacts", ARTIFACTS.0, ARTIFACTS.1)]);
        Ok(())
    }

    pub(super) fn plan_outputs(
        &mut self,
        outputs: &Field<'n>,
        plan: &mut Plan,
        values: &mut Values,
    ) -> Result<(), Refusal> {
        let mut outputs = outputs.fields()?;
        for parameter in outputs.take("parameters").map(|all| all.items()).unwrap_or_default() {
            let mut parameter_fields = parameter.fields()?;
            let name = parameter_fields.need("name")?.needed_text()?;
            if let Some(from) = parameter_fields.take("valueFrom") {
                let mut from = from.fields()?;
                if let Some(value) = from.take("parameter") {
                    let text = values.text(&value.text().unwrap_or_default(), &value, self.report);
                    plan.outputs.insert(identifier(&name, 64), json!(text.template()));
                }
                from.leave_rest(
                    self.report,
                    &[(
                        "expression",
                        "an output of a plan is a reference",
                        "write `${a.result ?? b.result}` for the first that is there",
                    )],
                );
            }
            parameter_fields.leave_rest(self.report, &[]);
        }
        outputs.leave_rest(self.report, &[("artifacts", ARTIFACTS.0, ARTIFACTS.1)]);
        Ok(())
    }
}

/// The names of the parameters that a template declares.
pub(super) fn declared(template: &Field<'_>) -> Result<Vec<String>, Refusal> {
    let inputs = template.fields()?.take("inputs").map(|inputs| inputs.fields()).transpose()?;
    let parameters = inputs.and_then(|mut inputs| inputs.take("parameters")).map(|all| all.items()).unwrap_or_default();
    Ok(parameters.iter().filter_map(|parameter| parameter.fields().ok()?.take("name")?.text()).collect())
}

/// Finds what the text of a template reads of a task's command.
pub(super) fn captures(task: &str, source: &str, template: &Field<'_>) -> Result<Captures, Refusal> {
    let reads =
        |what: &str| ["steps", "tasks"].iter().any(|kind| source.contains(&format!("{kind}.{task}.outputs.{what}")));
    let list = ["steps", "tasks"].iter().any(|kind| {
        source.replace(' ', "").contains(&format!("\"withParam\":\"{{{{{kind}.{task}.outputs.result}}}}\""))
    });
    let mut captures = Captures { result: reads("result"), list, files: Vec::new() };
    let outputs = template.fields()?.take("outputs").map(|outputs| outputs.fields()).transpose()?;
    for parameter in
        outputs.and_then(|mut outputs| outputs.take("parameters")).map(|all| all.items()).unwrap_or_default()
    {
        let mut fields = parameter.fields()?;
        let (name, from) = (fields.need("name")?.needed_text()?, fields.take("valueFrom"));
        let path = from.and_then(|from| from.fields().ok()?.take("path")?.text());
        if let Some(path) = path.filter(|path| !path.contains('\'') && reads(&format!("parameters.{name}"))) {
            captures.files.push((name, path));
        }
    }
    Ok(captures)
}
