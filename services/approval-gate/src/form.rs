//! Forms: what a person is asked, and whether an answer fits.
//!
//! The subject of a form is canonical JSON, whose digest an answer has to echo. An answer authorizes nothing, so there is no grant. It may be a
//! secret: the store keeps it sealed, and only until the executor has acknowledged it.

use belay_grant::{SigningKey, digest_of};
use belay_json_schema::{Schema, Violation};
use belay_proto::v1;
use belay_redaction::{Bound, Redactor, SealKey, open, seal};
use serde::Deserialize;
use serde_json::Value;

use crate::preview::hide_texts;

/// The maximum size of a form's subject, in bytes. A plan's limits for its title, description and schema are far below it.
const MAX_SUBJECT_BYTES: usize = 256 * 1024;

/// The maximum size of an answer, in bytes as JSON: what an event holds inline.
pub(crate) const MAX_ANSWER_BYTES: usize = 32 * 1024;

/// The subject of a form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Form {
    pub(crate) title: String,
    description: String,
    schema: Value,
}

impl Form {
    /// Reads a subject.
    ///
    /// # Errors
    /// The problem with the subject.
    pub(crate) fn parse(subject: &[u8]) -> Result<Self, String> {
        if subject.len() > MAX_SUBJECT_BYTES {
            return Err(format!("has {} bytes and the limit is {MAX_SUBJECT_BYTES}", subject.len()));
        }
        let form: Self = serde_json::from_slice(subject).map_err(|error| format!("is not a form: {error}"))?;
        form.schema().map(|_| form)
    }

    fn schema(&self) -> Result<Schema, String> {
        Schema::of_form(&self.schema).map_err(|error| format!("its schema is {error}"))
    }

    /// The violations of an answer; empty when it can be accepted.
    ///
    /// # Errors
    /// The problem with the schema, which was checked when the form was created.
    pub(crate) fn violations(&self, answer: &Value) -> Result<Vec<Violation>, String> {
        Ok(self.schema()?.violations(answer))
    }

    /// The form as people see it: with its secrets hidden, and without control characters.
    pub(crate) fn shown(&self, redactor: &Redactor) -> v1::Form {
        let mut form = v1::Form {
            title: belay_text::visible_line(&self.title),
            description: self.description.lines().map(belay_text::visible_line).collect::<Vec<_>>().join("\n"),
            schema: self.schema.to_string(),
        };
        hide_texts(redactor, &mut form);
        form
    }
}

/// Seals answers for the store. The key is derived from the gate's secret key, which is not in the store.
#[derive(Clone)]
pub(crate) struct AnswerKey {
    seal: SealKey,
    /// Keys the digests of requests: a short answer could be guessed from a plain one.
    digest: [u8; 32],
}

impl AnswerKey {
    pub(crate) fn new(key: &SigningKey) -> Self {
        let derived = |purpose: &str| {
            let digest = digest_of(&[purpose.as_bytes(), &key.to_bytes()].concat());
            let mut bytes = [0; 32];
            for (byte, place) in bytes.iter_mut().zip((digest.len() - 64..).step_by(2)) {
                *byte = u8::from_str_radix(&digest[place..place + 2], 16).expect("a digest has hexadecimal digits");
            }
            bytes
        };
        let seal = SealKey::new(derived("belay gate: seal answers\n"));
        Self { seal, digest: derived("belay gate: digest answers\n") }
    }

    /// The answer as it is stored. `random` has to be random.
    pub(crate) fn seal(&self, approval: &str, answer: &str, random: [u8; 32]) -> Vec<u8> {
        let nonce = random.first_chunk().copied().expect("32 bytes are more than 24");
        seal(&self.seal, place(approval), answer.as_bytes(), nonce)
    }

    /// The answer in stored bytes; `None` when it cannot be opened: the gate has another key than when it was stored.
    pub(crate) fn open(&self, approval: &str, sealed: &[u8]) -> Option<String> {
        let opened = open(&self.seal, place(approval), sealed);
        let opened = opened.inspect_err(|error| tracing::error!(approval, %error, "A stored answer cannot be opened"));
        String::from_utf8(opened.ok()?).ok()
    }

    /// A digest by which the repetition of a request is told from another one, and which says nothing about the answer.
    pub(crate) fn digest(&self, request: &[u8]) -> String {
        digest_of(&[&self.digest, request].concat())
    }
}

fn place(approval: &str) -> Bound<'_> {
    Bound { execution: approval, sequence: 0 }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form(schema: Value) -> Form {
        let subject = json!({"title": "T", "description": "one\u{1b}[31m\ntwo", "schema": schema});
        Form::parse(subject.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_form_is_shown_without_secrets_and_control_characters() {
        let token = ["ghp_", "16C7e42F292c6912E7710c838347Ae178B4a"].concat();
        let asked = form(json!({"properties": {"password": {"type": "string", "default": token}}}));
        let shown = asked.shown(&Redactor::new());
        assert_eq!(shown.description.lines().count(), 2);
        assert!(!shown.description.contains('\u{1b}'), "{:?}", shown.description);
        let schema: Value = serde_json::from_str(&shown.schema).unwrap();
        let property = &schema["properties"]["password"];
        assert_eq!(property["type"], "string", "the name of a property hides nothing: {}", shown.schema);
        assert_ne!(property["default"], token);
    }

    #[test]
    fn a_subject_that_is_no_form_is_refused() {
        for bad in [
            "{",
            r#"{"title":"T"}"#,
            r#"{"title":"T","description":"","schema":{},"more":1}"#,
            r#"{"title":"T","description":"","schema":{"type":7}}"#,
            r##"{"title":"T","description":"","schema":{"$ref":"#"}}"##,
        ] {
            assert!(Form::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_form_has_at_most_so_many_bytes() {
        let empty = r#"{"title":"","description":"","schema":{}}"#.len();
        let of = |bytes: usize| {
            let title = "x".repeat(bytes - empty);
            Form::parse(format!(r#"{{"title":"{title}","description":"","schema":{{}}}}"#).as_bytes())
        };
        assert!(of(MAX_SUBJECT_BYTES).is_ok());
        assert_eq!(of(MAX_SUBJECT_BYTES + 1).unwrap_err(), "has 262145 bytes and the limit is 262144");
    }

    #[test]
    fn a_stored_answer_opens_for_its_form_and_key_alone() {
        let [one, other] = [1, 2].map(|byte| AnswerKey::new(&SigningKey::from_bytes(&[byte; 32])));
        let sealed = one.seal("a", r#"{"pin":"1234"}"#, [7; 32]);
        assert!(!sealed.windows(4).any(|bytes| bytes == b"1234"));
        assert_eq!(one.open("a", &sealed).as_deref(), Some(r#"{"pin":"1234"}"#));
        assert_eq!((one.open("b", &sealed), other.open("a", &sealed)), (None, None));
        assert_ne!(one.digest(b"x"), other.digest(b"x"));
    }
}
