//! Waits of a step: for a time, a signal, or the answer to a form.

use std::time::Duration;

use serde_json::Value;

use crate::{FormDraft, Template, WaitDraft};

/// A step that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitStep {
    /// The event that it waits for.
    pub wait_for: WaitFor,
}

impl WaitStep {
    /// The form that a person has to answer, when it waits for that.
    pub(super) fn form(&self) -> Option<&FormSpec> {
        match &self.wait_for {
            WaitFor::Form(form) => Some(form),
            WaitFor::Duration(_) | WaitFor::Time(_) | WaitFor::Signal(_) => None,
        }
    }

    /// The wait as a draft.
    pub(super) fn to_draft(&self) -> WaitDraft {
        let unset = WaitDraft::default();
        match &self.wait_for {
            WaitFor::Duration(duration) => WaitDraft { duration: Some(*duration), ..unset },
            WaitFor::Time(micros) => WaitDraft { until: Some(*micros), ..unset },
            WaitFor::Signal(signal) => WaitDraft { signal: signal.clone(), ..unset },
            WaitFor::Form(form) => {
                let (title, description) = (form.title().to_owned(), form.description().to_owned());
                WaitDraft { form: Some(FormDraft { title, description, schema: form.schema.clone() }), ..unset }
            }
        }
    }
}

/// The event that a step waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitFor {
    /// For this long.
    Duration(Duration),
    /// Until this point in time: microseconds since the Unix epoch.
    Time(i64),
    /// For a signal of this name.
    Signal(String),
    /// For a person's answer to this form.
    Form(FormSpec),
}

/// A form that a person answers.
#[derive(Clone, Debug, PartialEq)]
pub struct FormSpec {
    /// An object with the strings `title`, which is empty when the step's title serves, and `description`.
    pub texts: Template,
    /// The JSON Schema of the answer.
    pub schema: Value,
}

impl FormSpec {
    /// The title as it was written; empty when the step's title serves.
    pub fn title(&self) -> &str {
        self.texts.source()[TITLE].as_str().unwrap_or_default()
    }

    /// The description as it was written.
    pub fn description(&self) -> &str {
        self.texts.source()[DESCRIPTION].as_str().unwrap_or_default()
    }

    /// The texts of a form, before they are checked.
    pub(crate) fn texts_of(form: &FormDraft) -> Value {
        serde_json::json!({TITLE: form.title, DESCRIPTION: form.description})
    }
}

/// The members of [`FormSpec::texts`].
const TITLE: &str = "title";
const DESCRIPTION: &str = "description";
