//! Waits of a step: for a time, a signal, or the answer to a form.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Template, duration, template::json_size, timestamp};

/// The event that an unchecked step waits for. Exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitDraft {
    /// For this long.
    #[serde(default, rename = "for", with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// Until this point in time: microseconds since the Unix epoch; serialised as RFC 3339.
    #[serde(default, with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    /// For a signal of this name; none when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signal: String,
    /// For a person's answer to this form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<FormDraft>,
}

impl WaitDraft {
    /// The bytes of everything in it that an author can make long.
    pub(super) fn size(&self) -> usize {
        let form = self.form.as_ref();
        let form = form.map_or(0, |form| form.title.len() + form.description.len() + json_size(&form.schema));
        self.signal.len() + form
    }
}

/// An unchecked form that a person answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormDraft {
    /// The question, in one line; may hold templates. The step's title when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Information that a person needs to answer; may hold templates.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON Schema of the answer: an object without templates.
    pub schema: Value,
}

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
