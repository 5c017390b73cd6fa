//! Waits of a step: for a time, a signal, or the answer to a form.

use crate::{
    FormDraft, FormSpec, StepDraft, Template, WaitDraft, WaitFor,
    check::{Checker, ID_CHARS, Trust},
    limits::{MAX_FORM_DESCRIPTION_CHARS, MAX_FORM_TITLE_CHARS, MAX_SIGNAL_CHARS},
    path::{FieldPath, look_alikes, shown},
};

impl Checker<'_> {
    /// Checks what the step waits for; returns `None` when that is not valid.
    pub(super) fn wait(&mut self, path: &FieldPath, step: &StepDraft, wait: &WaitDraft) -> Option<WaitFor> {
        let WaitDraft { duration, until, signal, form } = wait;
        let only_for_tools = [
            ("fallback", !step.fallback.is_empty()),
            ("compensate", step.compensate.is_some()),
            ("resources", !step.resources.is_empty()),
            ("preconditions", !step.preconditions.is_empty()),
            ("postconditions", !step.postconditions.is_empty()),
            ("output_schema", step.output_schema.is_some()),
            ("verbatim", !step.verbatim.is_empty()),
            ("exclusive", step.exclusive),
            ("network", step.network.is_some()),
            ("retry", step.retry.is_some()),
            ("attempt_timeout", step.attempt_timeout.is_some()),
            ("budget", step.budget.is_some()),
        ];
        for (field, _) in only_for_tools.into_iter().filter(|(_, is_set)| *is_set) {
            self.rule(&path.key(field), || "is for steps that call a tool, and this one waits: remove it".to_owned());
        }
        let field = path.key("wait");
        let given = [duration.is_some(), until.is_some(), !signal.is_empty(), form.is_some()];
        if given.into_iter().filter(|is_given| *is_given).count() != 1 {
            self.refuse(&field, || {
                "must say one thing: {for: 10m}, {until: 2026-12-01T09:00:00Z}, {signal: NAME} or {form: {schema: …}}"
                    .to_owned()
            });
            return None;
        }
        if step.timeout.is_some() && (duration.is_some() || until.is_some()) {
            self.rule(&path.key("timeout"), || {
                "is for waits that may end early, and this one ends by its own time: remove it".to_owned()
            });
        }
        self.duration(&field.key("for"), *duration);
        if let Some(form) = form {
            return self.form(&field.key("form"), form).map(WaitFor::Form);
        }
        if !signal.is_empty() {
            self.signal(&field.key("signal"), signal);
        }
        let signal = || WaitFor::Signal(signal.clone());
        Some(duration.map(WaitFor::Duration).or(until.map(WaitFor::Time)).unwrap_or_else(signal))
    }

    /// The form, when it is within the limits and its templates can be read.
    fn form(&mut self, path: &FieldPath, form: &FormDraft) -> Option<FormSpec> {
        let limited = [
            ("title", &form.title, MAX_FORM_TITLE_CHARS, "put the rest into `description`"),
            ("description", &form.description, MAX_FORM_DESCRIPTION_CHARS, "shorten it"),
        ];
        for (field, text, most, advice) in limited {
            let length = text.chars().count();
            if length > most {
                self.rule(&path.key(field), || format!("has {length} characters and the limit is {most}: {advice}"));
            }
        }
        if form.title.contains(['\n', '\r']) {
            self.rule(&path.key("title"), || {
                "must be one line: put what a person has to know into `description`".to_owned()
            });
        }
        let schema = path.key("schema");
        let such_as = "{type: object, properties: {version: {type: string}}}";
        let problem = if form.schema.is_null() {
            Some(format!("is required: a JSON Schema of the answer, an object such as {such_as}"))
        } else {
            self.schema_problem(&form.schema, such_as)
        };
        let is_within = problem.is_none() || self.trust == Trust::Stored;
        if let Some(problem) = problem {
            self.rule(&schema, || problem);
        }
        let (texts, errors) = Template::read(&FormSpec::texts_of(form), &[]);
        let is_read = errors.is_empty();
        for error in errors {
            self.refuse(&path.join(&error.field), || error.message);
        }
        (is_within && is_read).then(|| FormSpec { texts, schema: form.schema.clone() })
    }

    fn signal(&mut self, path: &FieldPath, signal: &str) {
        if !is_signal_name(signal) {
            self.rule(path, || {
                format!(
                    "`{}` is not a signal's name: it has 1 to {MAX_SIGNAL_CHARS} {ID_CHARS}{}",
                    shown(signal),
                    look_alikes(signal)
                )
            });
        }
    }
}

/// Whether a signal can have this name.
pub fn is_signal_name(name: &str) -> bool {
    name.len() <= MAX_SIGNAL_CHARS
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}
