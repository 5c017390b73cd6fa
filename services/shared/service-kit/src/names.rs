//! The names of executions and calls, as the executor derives them and other services receive them.

use tonic::Status;

use crate::status;

/// The maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 512;
/// The maximum length of the part of a step's id that its author writes, in bytes; that of plans.
const MAX_STEP_ID_BYTES: usize = 128;
/// How much of an invalid name a refusal repeats, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// A call's name in parts: `namespaces/NAMESPACE/executions/ID/steps/STEP/calls/ATTEMPT.NUMBER`.
///
/// Only the form that the executor makes is a name, so a name can be compared, shown and logged as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallName {
    /// The namespace's id.
    pub namespace: String,
    /// `namespaces/*/executions/*`.
    pub execution: String,
    /// The step's id.
    pub step: String,
}

impl CallName {
    /// Parses a call's name, the value of `field` in a request.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, which names the field.
    pub fn parse(field: &str, name: &str) -> Result<Self, Status> {
        let parse = || {
            let (execution, rest) = name.split_once("/steps/").filter(|_| name.len() <= MAX_NAME_BYTES)?;
            let (step, call) = rest.split_once("/calls/")?;
            let (attempt, number) = call.split_once('.')?;
            let is_call = is_step_id(step) && is_number(attempt, 1) && is_number(number, 1);
            let namespace = namespace_of_execution(execution).filter(|_| is_call)?;
            Some(Self { namespace: namespace.into(), execution: execution.into(), step: step.into() })
        };
        parse().ok_or_else(|| {
            let shown = shown(name);
            let message = format!(
                "{shown} is not the name of a call: use namespaces/NAMESPACE/executions/ID/steps/STEP/calls/ATTEMPT.NUMBER"
            );
            status::invalid(field, message).into()
        })
    }
}

/// Checks that the value of `field` is the name of an execution, `namespaces/NAMESPACE/executions/ID`.
///
/// # Errors
/// INVALID_ARGUMENT, which names the field.
pub fn check_execution(field: &str, name: &str) -> Result<(), Status> {
    if namespace_of_execution(name).is_some() {
        return Ok(());
    }
    let message = format!("{} is not the name of an execution: use namespaces/NAMESPACE/executions/ID", shown(name));
    Err(status::invalid(field, message).into())
}

/// Whether this is the id of a namespace, an execution or an approval: 1 to 64 lower-case letters, digits and `-`, beginning with a letter or a
/// digit.
pub fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
}

/// The namespace's id, if this is the name of an execution.
fn namespace_of_execution(name: &str) -> Option<&str> {
    let (namespace, id) = name.strip_prefix("namespaces/")?.split_once("/executions/")?;
    (is_id(namespace) && is_id(id)).then_some(namespace)
}

/// Whether this is the id of a step: the author's, followed by `~INDEX` for an entry of a list and `~compensate` for what undoes a step. The executor makes
/// these ids in its crate of plans, which shared code must not import; a test of the executor compares them with this.
fn is_step_id(text: &str) -> bool {
    let mut parts = text.split('~');
    let author = parts.next().unwrap_or_default();
    (1..=MAX_STEP_ID_BYTES).contains(&author.len())
        && author.starts_with(|first: char| first.is_ascii_alphanumeric())
        && author.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && parts.all(|added| added == "compensate" || is_number(added, 0))
}

/// Whether this is a number as the executor writes it: decimal, without a sign or leading zeros, of 32 bits, and at least `least`.
fn is_number(text: &str, least: u32) -> bool {
    text.parse::<u32>().is_ok_and(|number| number >= least && number.to_string() == text)
}

/// The name, quoted and escaped: it may be anything.
fn shown(name: &str) -> String {
    let shown: String = name.chars().take(MAX_SHOWN_CHARS).collect();
    let more = if shown.len() < name.len() { "…" } else { "" };
    format!("{shown:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_s_name_says_where_it_belongs() {
        let call = CallName::parse("call", "namespaces/default/executions/a-1/steps/Build.it_2/calls/2.1").unwrap();
        assert_eq!(call.execution, "namespaces/default/executions/a-1");
        assert_eq!((call.namespace.as_str(), call.step.as_str()), ("default", "Build.it_2"));
        let longest = "s".repeat(MAX_STEP_ID_BYTES);
        for step in ["s", "s~0", "s~12~compensate", "s~compensate", &longest] {
            let name = format!("namespaces/n/executions/e/steps/{step}/calls/4294967295.4294967295");
            assert_eq!(CallName::parse("call", &name).unwrap().step, step);
        }
    }

    #[test]
    fn only_the_form_that_the_executor_makes_is_a_name() {
        let name = |namespace: &str, execution: &str, step: &str, call: &str| {
            format!("namespaces/{namespace}/executions/{execution}/steps/{step}/calls/{call}")
        };
        let mut bad = vec![
            String::new(),
            "namespaces/n/executions/e/steps/s".into(),
            "namespaces/n/executions/e/steps/s/calls/".into(),
            name("n", "e", "s", "1.1") + "/x",
            name("n", "e", "s", "1.1") + "\n",
            format!("/{}", name("n", "e", "s", "1.1")),
            name("n", "e", &"s".repeat(MAX_STEP_ID_BYTES + 1), "1.1"),
            name("n", "e", &format!("s{}", "~1".repeat(300)), "1.1"),
        ];
        for part in ["", ".", "..", "a/b", "a\nb", "a\u{202e}b", "a b", "ä", "-a", "a\0", "%2e%2e"] {
            bad.extend([name(part, "e", "s", "1.1"), name("n", part, "s", "1.1"), name("n", "e", part, "1.1")]);
        }
        bad.extend([name("N", "e", "s", "1.1"), name("n", "E", "s", "1.1"), name("-", "e", "s", "1.1")]);
        for step in ["s~", "s~01", "s~x", "s~Compensate", "~1", "s~12345678901234567890"] {
            bad.push(name("n", "e", step, "1.1"));
        }
        for call in [
            "1",
            "1.",
            ".1",
            "0.1",
            "1.0",
            "01.1",
            "+1.1",
            "1.1.1",
            "1.-1",
            "turn-3.model",
            "1.1\n",
            "1.\u{202e}1",
            "12345678901234567890.1",
            "1.12345678901234567890",
            "4294967296.1",
            "١.1",
        ] {
            bad.push(name("n", "e", "s", call));
        }
        for bad in bad {
            let refused = CallName::parse("call", &bad).expect_err(&bad);
            let message = refused.message();
            assert!(message.starts_with("call: ") && message.contains("calls/ATTEMPT.NUMBER"), "{message}");
            assert!(!message.contains(['\n', '\u{202e}', '\0']), "{message:?}");
        }
    }

    #[test]
    fn an_execution_s_name_is_checked_in_the_same_way() {
        assert!(check_execution("name", "namespaces/n/executions/e-1").is_ok());
        for bad in [
            "",
            "namespaces/n/executions/",
            "namespaces/n/executions/..",
            "namespaces/n/executions/a/b",
            "namespaces/N/executions/e",
            "namespaces/n/executions/e\n",
        ] {
            assert!(check_execution("name", bad).unwrap_err().message().starts_with("name: "), "{bad:?}");
        }
    }
}
