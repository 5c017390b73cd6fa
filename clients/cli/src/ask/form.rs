//! The prompt for a form, as a state machine over the typed lines: the fields of a flat object one by one, any other answer as JSON.
//!
//! Only what decides how a line is read is checked here; whether the answer matches the schema is for the gate to say.

use belay_proto::v1::Decision;
use serde_json::{Map, Value};

use crate::render::{
    form::{Field, Shape, shown},
    text::clean,
};

/// The longest reason the gate takes, in characters.
const MAX_REASON_CHARS: usize = 2_000;
/// Where the questions are.
#[derive(Clone, Debug, PartialEq)]
enum FormPosition {
    /// Waiting for a letter.
    Choosing,
    /// Waiting for the value of this field.
    Field(usize),
    /// Waiting for the answer as JSON.
    Json,
    /// Waiting for a yes to the answer as a whole.
    Confirming(Value),
    /// Waiting for the reason of a denial.
    Denying,
}

/// The step that follows a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// Ask again; say this before, if it is not empty.
    Again(String),
    /// Say what the letters do, then ask again.
    Help,
    /// Send this answer.
    Answered(Value),
    /// The person denies or skips it.
    Decided(Decision, String),
    /// The person leaves without an answer.
    Leave,
}

/// The prompt for a form.
#[derive(Clone, Debug)]
pub(crate) struct FormPrompt {
    shape: Shape,
    at: FormPosition,
    /// The values typed so far, also in an answer that was not accepted.
    values: Map<String, Value>,
}

impl FormPrompt {
    pub(crate) fn new(shape: Shape) -> FormPrompt {
        FormPrompt { shape, at: FormPosition::Choosing, values: Map::new() }
    }

    /// The gate did not accept the answer: the person may correct it.
    pub(crate) fn begin_again(&mut self) {
        self.at = FormPosition::Choosing;
    }

    /// The prompt.
    pub(crate) fn question(&self) -> String {
        match (&self.at, &self.shape) {
            (FormPosition::Choosing, _) => "[A]nswer  [D]eny  [S]kip  [?] help  [Q]uit >".to_owned(),
            (FormPosition::Field(place), Shape::Fields(fields)) => {
                let field = &fields[*place];
                let default = self.default_of(field).map(|value| format!(" [{}]", shown(value))).unwrap_or_default();
                format!("{}{default}:", clean(&field.name))
            }
            (FormPosition::Field(_) | FormPosition::Json, _) => "JSON:".to_owned(),
            (FormPosition::Confirming(_), _) => "Send this answer? [Y]es  [N]o, change it >".to_owned(),
            (FormPosition::Denying, _) => "Reason (sent to the planner; Enter to go back):".to_owned(),
        }
    }

    /// The meaning of Enter alone for a field.
    fn default_of<'a>(&'a self, field: &'a Field) -> Option<&'a Value> {
        self.values.get(&field.name).or(field.default.as_ref())
    }

    /// Handles a typed line; `None` at the end of the input.
    pub(crate) fn take(&mut self, line: Option<&str>) -> Reply {
        let Some(line) = line else { return Reply::Leave };
        let line = line.trim();
        let again = |hint: &str| Reply::Again(hint.to_owned());
        match &self.at {
            FormPosition::Choosing => match line.to_lowercase().as_str() {
                "a" | "answer" => {
                    self.at = if self.shape == Shape::Json { FormPosition::Json } else { FormPosition::Field(0) };
                    again("")
                }
                "d" | "deny" => {
                    self.at = FormPosition::Denying;
                    again("")
                }
                "s" | "skip" => Reply::Decided(Decision::Skip, String::new()),
                "?" | "h" | "help" => Reply::Help,
                "q" | "quit" => Reply::Leave,
                "" => again("no answer yet: type a letter and Enter"),
                _ => again("no answer yet: type a, d, s, q or ?"),
            },
            FormPosition::Field(place) => {
                let place = *place;
                self.field(place, line)
            }
            FormPosition::Json => match belay_all_in_one::json::read(line) {
                Ok(value) => self.confirm(value),
                Err(refused) => Reply::Again(format!("this is not accepted: {refused}")),
            },
            FormPosition::Confirming(answer) => match line.to_lowercase().as_str() {
                "y" | "yes" => Reply::Answered(answer.clone()),
                "n" | "no" => {
                    self.at = FormPosition::Choosing;
                    again("no answer yet")
                }
                _ => again("no answer yet: type y or n"),
            },
            FormPosition::Denying if line.is_empty() => {
                self.at = FormPosition::Choosing;
                again("no answer yet")
            }
            FormPosition::Denying if line.chars().count() > MAX_REASON_CHARS => {
                again("a reason has at most 2,000 characters")
            }
            FormPosition::Denying => Reply::Decided(Decision::Deny, line.to_owned()),
        }
    }

    fn field(&mut self, place: usize, line: &str) -> Reply {
        let Shape::Fields(fields) = &self.shape else { return Reply::Leave };
        let (field, last) = (&fields[place], place + 1 == fields.len());
        let value = match (line.is_empty(), self.default_of(field)) {
            (true, Some(default)) => Some(default.clone()),
            (true, None) if field.is_required => {
                return Reply::Again(format!("{} is required", clean(&field.name)));
            }
            (true, None) => None,
            (false, _) => match field.read(line) {
                Ok(value) => Some(value),
                Err(why) => return Reply::Again(why),
            },
        };
        let name = field.name.clone();
        match value {
            Some(value) => drop(self.values.insert(name, value)),
            None => drop(self.values.remove(&name)),
        }
        if last {
            return self.confirm(Value::Object(self.values.clone()));
        }
        self.at = FormPosition::Field(place + 1);
        Reply::Again(String::new())
    }

    fn confirm(&mut self, answer: Value) -> Reply {
        let said = format!("  {}", clean(&answer.to_string()));
        self.at = FormPosition::Confirming(answer);
        Reply::Again(said)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompt(schema: &Value) -> FormPrompt {
        FormPrompt::new(Shape::of(&schema.to_string()))
    }

    fn release() -> Value {
        json!({
            "type": "object",
            "required": ["version"],
            "properties": {
                "channel": {"enum": ["stable", "beta", 3], "default": "beta"},
                "count": {"type": "integer"},
                "notify": {"type": "boolean"},
                "share": {"type": "number"},
                "version": {"type": "string", "title": "Which version?"},
            },
        })
    }

    /// The reply to the last of these lines: each before it has to leave the question open.
    fn after(prompt: &mut FormPrompt, lines: &[&str]) -> Reply {
        let (last, before) = lines.split_last().expect("a line");
        for line in before {
            let reply = prompt.take(Some(line));
            assert!(matches!(reply, Reply::Again(_) | Reply::Help), "{line:?}: {reply:?}");
        }
        prompt.take(Some(last))
    }

    #[test]
    fn the_fields_of_a_flat_object_are_asked_one_by_one() {
        let mut form = prompt(&release());
        let answer = after(&mut form, &["a", "", "7", "yes", "0.5", "1.2", "y"]);
        let expected = json!({"channel": "beta", "count": 7, "notify": true, "share": 0.5, "version": "1.2"});
        assert_eq!(answer, Reply::Answered(expected));
        let mut form = prompt(&release());
        let answer = after(&mut form, &["a", "3", "", "", "", "1.2", "y"]);
        assert_eq!(
            answer,
            Reply::Answered(json!({"channel": 3, "version": "1.2"})),
            "what is optional can be left out"
        );
    }

    #[test]
    fn what_is_no_value_is_asked_again_with_the_reason() {
        let mut form = prompt(&release());
        for (line, hint) in [
            ("a", ""),
            ("nightly", "`nightly` is none of stable, beta, 3"),
            ("stable", ""),
            ("1.5", "`1.5` is not a whole number"),
            ("two\u{1b}[2J", "`two<U+001B>[2J` is not a whole number"),
            ("2", ""),
            ("maybe", "type yes or no"),
            ("n", ""),
            ("x", "`x` is not a number"),
            ("2e3", ""),
            ("", "version is required"),
        ] {
            assert_eq!(form.take(Some(line)), Reply::Again(hint.to_owned()), "{line:?}");
        }
        assert_eq!(form.question(), "version:");
    }

    // Enter alone answers nothing, and an answer is sent after a yes to it as a whole.
    #[test]
    fn an_answer_is_confirmed_and_can_be_changed() {
        let mut form = prompt(&json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
        assert!(matches!(after(&mut form, &[""]), Reply::Again(hint) if hint.starts_with("no answer yet")));
        assert_eq!(after(&mut form, &["a", "1"]), Reply::Again("  {\"n\":1}".to_owned()));
        assert!(matches!(after(&mut form, &["", "x", "n"]), Reply::Again(_)));
        after(&mut form, &["a"]);
        assert_eq!(form.question(), "n [1]:", "what was typed before is kept");
        assert_eq!(after(&mut form, &["", "yes"]), Reply::Answered(json!({"n": 1})));
        form.begin_again();
        assert_eq!(after(&mut form, &["a", "2", "y"]), Reply::Answered(json!({"n": 2})));
    }

    #[test]
    fn any_other_answer_is_asked_as_json() {
        let mut form = prompt(&json!({"type": "array"}));
        assert!(matches!(after(&mut form, &["a", "[1"]), Reply::Again(hint) if hint.contains("is not JSON")));
        assert_eq!(after(&mut form, &["[1]", "y"]), Reply::Answered(json!([1])));
    }

    #[test]
    fn a_form_can_be_denied_skipped_and_left() {
        let fresh = || prompt(&release());
        let denied = after(&mut fresh(), &["d", "", "d", "not now"]);
        assert_eq!(denied, Reply::Decided(Decision::Deny, "not now".to_owned()));
        assert_eq!(after(&mut fresh(), &["s"]), Reply::Decided(Decision::Skip, String::new()));
        assert_eq!(after(&mut fresh(), &["?", "q"]), Reply::Leave);
        assert_eq!(fresh().take(None), Reply::Leave);
    }
}
