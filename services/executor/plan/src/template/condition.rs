//! Conditions of steps: expressions in CEL in which `${STEP.result.path}` stands for a value, as in arguments.
//!
//! The references are taken apart here, since dependencies follow from them; each becomes a variable of the expression, which is evaluated elsewhere
//! (`belay-condition`).

use std::borrow::Cow;

use serde_json::Value;

use super::{
    StepValue, UnresolvedReference,
    reference::{self, Choice, Piece, Reference},
    resolve::{Absent, chosen},
};
use crate::limits::MAX_RESOLVED_BYTES;

/// Prefix of the variables that take the place of references. No author uses it.
const VARIABLE: &str = "__value";

/// The variables of a condition, each with its value, or with why it has none.
pub type ConditionValues = Vec<(String, Result<Value, String>)>;

/// A condition, as far as it can be read without the language of expressions.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    source: String,
    expression: String,
    choices: Vec<(String, Choice)>,
}

impl Condition {
    /// Takes the references out of a condition.
    ///
    /// # Errors
    /// Fails with the problem of the first reference that cannot be understood.
    pub(crate) fn read(source: &str) -> Result<Self, String> {
        if source.contains(VARIABLE) {
            return Err(format!("contains `{VARIABLE}`, which has a meaning of its own: choose another name"));
        }
        let mut condition = Self { source: source.to_owned(), expression: String::new(), choices: Vec::new() };
        let mut quote = None;
        for piece in reference::pieces(source)? {
            match piece {
                Piece::Literal(text) => {
                    quote = quote_after(quote, &text);
                    condition.expression.push_str(&text);
                }
                Piece::Choice(choice) if quote.is_some() => {
                    return Err(format!(
                        "`${{{choice}}}` stands in quotes, where it would be text: write it without them, or `$${{` for the text `${{`"
                    ));
                }
                Piece::Choice(choice) => {
                    let variable = format!("{VARIABLE}{}", condition.choices.len());
                    condition.expression.push_str(&variable);
                    condition.choices.push((variable, choice));
                }
            }
        }
        Ok(condition)
    }

    /// The condition as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The expression, with a variable in the place of each reference.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The variables of the expression.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.choices.iter().map(|(variable, _)| variable.as_str())
    }

    /// Steps that the references name, each with the value of it that is named.
    pub fn values(&self) -> impl Iterator<Item = (&str, StepValue)> {
        self.references().map(|reference| (reference.step(), reference.value()))
    }

    pub(crate) fn references(&self) -> impl Iterator<Item = &Reference> {
        self.choices.iter().flat_map(|(_, choice)| choice.references())
    }

    /// A text about the expression in the author's words: with the references in the place of the variables.
    pub fn in_words(&self, text: &str) -> String {
        // From the last on: the name of the first is the beginning of that of the eleventh.
        self.choices
            .iter()
            .rev()
            .fold(text.to_owned(), |text, (variable, choice)| text.replace(variable, &format!("${{{choice}}}")))
    }

    /// The values of the variables, and why one has none. `value` gives what a step has, `None` when it has none. A value that is missing matters only
    /// where the expression needs it.
    ///
    /// # Errors
    /// [`UnresolvedReference::TooLarge`] when all of them together have more than [`MAX_RESOLVED_BYTES`].
    pub fn resolve<'a>(
        &self,
        value: &dyn Fn(&str, StepValue) -> Option<Cow<'a, Value>>,
    ) -> Result<ConditionValues, UnresolvedReference> {
        // Each value is copied, for whoever evaluates the expression, and a reference of a dozen bytes can name a large one many times.
        let mut room = MAX_RESOLVED_BYTES;
        let resolved = self.choices.iter().map(|(variable, choice)| {
            let value = match chosen(choice, Absent::Final, value, &mut room) {
                Ok(value) => Ok(value.into_owned()),
                Err(missing @ UnresolvedReference::Missing { .. }) => Err(missing.to_string()),
                Err(refused @ (UnresolvedReference::TooLarge { .. } | UnresolvedReference::TooDeep)) => {
                    return Err(refused);
                }
            };
            Ok((variable.clone(), value))
        });
        resolved.collect()
    }
}

/// In which quotes a text ends that begins in `quote`.
fn quote_after(quote: Option<char>, text: &str) -> Option<char> {
    let (mut quote, mut escaped) = (quote, false);
    for c in text.chars() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            Some(_) | None => {}
        }
    }
    quote
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_become_variables() {
        let text = r#"${a.result.n} > 3 && "it's $${x}" != ${["b.c"].output}.text || ${a.state} == 'failed'"#;
        let condition = Condition::read(text).unwrap();
        assert_eq!(condition.source(), text);
        let expected = r#"__value0 > 3 && "it's ${x}" != __value1.text || __value2 == 'failed'"#;
        assert_eq!(condition.expression(), expected);
        assert_eq!(condition.variables().collect::<Vec<_>>(), ["__value0", "__value1", "__value2"]);
        let values: Vec<_> = condition.values().collect();
        assert_eq!(values, [("a", StepValue::Result), ("b.c", StepValue::Result), ("a", StepValue::State)]);
        assert_eq!(condition.in_words("`__value1` is null"), "`${[\"b.c\"].output}` is null");
        let value =
            |step: &str, what| Some(Cow::Owned(serde_json::json!({"n": 4, "step": step, "what": format!("{what:?}")})));
        let resolved = condition.resolve(&value).unwrap();
        let value = |place: usize| resolved[place].1.clone().unwrap();
        assert_eq!((value(0), &value(1)["step"]), (4.into(), &"b.c".into()));
        assert_eq!(value(2)["what"], "State");
    }

    #[test]
    fn what_a_condition_reads_is_bounded() {
        let large = serde_json::json!("x".repeat(MAX_RESOLVED_BYTES / 4));
        let condition = |count: usize| Condition::read(&vec!["${a.result} != null"; count].join(" && ")).unwrap();
        let value = |_: &str, _| Some(Cow::Borrowed(&large));
        assert_eq!(condition(3).resolve(&value).unwrap().len(), 3);
        let refused = condition(5).resolve(&value).unwrap_err();
        assert!(
            matches!(refused, UnresolvedReference::TooLarge { .. }) && refused.to_string().contains("a.result"),
            "{refused}"
        );
    }

    #[test]
    fn what_cannot_be_a_condition_is_named() {
        for (text, said) in [
            ("'${a.result}' == 'x'", "stands in quotes"),
            (r#""\"${a.result}" == 'x'"#, "stands in quotes"),
            ("${a.result", "is not closed"),
            ("${a}", "is not a reference"),
            ("${a.reslt} == 1", "must continue with `result`"),
            ("__value0 == 1", "has a meaning of its own"),
        ] {
            let error = Condition::read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
