//! Limits over executions: how many executions of one key may run at once, or start in a window of time.
//!
//! The terms are those of GitHub's `concurrency` groups and of Argo's mutexes and semaphores.

use std::{borrow::Cow, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{StepValue, Template, duration, limits::MAX_LIMIT_KEY_CHARS};

/// An unchecked limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitDraft {
    /// The key, which may hold references to inputs. All executions of a namespace with the same key share the limit.
    pub key: String,
    /// How many executions hold the limit at once; `None` for a limit with a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// How many executions start in a window of time; `None` for a limit of those at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<StartRate>,
    /// The fate of an execution that finds the limit full.
    #[serde(default)]
    pub when_full: WhenFull,
}

/// A number of starts in a window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRate {
    /// The most starts in any window of this length.
    pub starts: u32,
    /// The length of the window.
    #[serde(with = "duration::plain")]
    pub window: Duration,
}

/// The fate of an execution that finds a limit full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It waits for its turn, in the order of the requests.
    #[default]
    Wait,
    /// The older ones are cancelled, as many as are in its way, and it waits until they have ended.
    CancelOlder,
    /// It is not started.
    Refuse,
}

impl WhenFull {
    /// The names, as authors write them.
    pub const WORDS: [(&'static str, Self); 3] =
        [("wait", Self::Wait), ("cancel_older", Self::CancelOlder), ("refuse", Self::Refuse)];

    /// Its name, as authors write it.
    pub fn word(self) -> &'static str {
        Self::WORDS.into_iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }
}

/// The bound of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitBound {
    /// So many executions hold it at once.
    AtOnce(u32),
    /// So many executions start in a window of time.
    Rate(StartRate),
}

/// A limit of a checked plan.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionLimit {
    pub(crate) key: Template,
    pub(crate) bound: LimitBound,
    pub(crate) when_full: WhenFull,
}

impl ExecutionLimit {
    /// The key as it was written.
    pub fn key(&self) -> &str {
        self.key.source().as_str().unwrap_or_default()
    }

    /// The key, unless it depends on inputs.
    pub fn constant_key(&self) -> Option<&str> {
        self.key.is_constant().then(|| self.key())
    }

    /// The bound.
    pub fn bound(&self) -> LimitBound {
        self.bound
    }

    /// The fate of an execution that finds it full.
    pub fn when_full(&self) -> WhenFull {
        self.when_full
    }

    /// The limit of an execution with these inputs, an object.
    ///
    /// # Errors
    /// Why the key cannot be made, in words: an input that is not there, or a key that is empty, too long or has characters that no screen shows.
    pub fn claim(&self, inputs: &Value) -> Result<LimitClaim, String> {
        let given = |_: &str, value: StepValue| (value == StepValue::Input).then_some(Cow::Borrowed(inputs));
        let key = self.key.resolve(&given).map_err(|unresolved| unresolved.to_string())?;
        let key = match key {
            Value::String(key) => key,
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                return Err("the input is neither a text nor a number: name a part of it".to_owned());
            }
        };
        match key_problem(&key) {
            Some(problem) => Err(problem),
            None => Ok(LimitClaim { key, bound: self.bound, when_full: self.when_full }),
        }
    }

    /// The limit as a draft.
    pub(crate) fn to_draft(&self) -> LimitDraft {
        let (at_once, rate) = match self.bound {
            LimitBound::AtOnce(at_once) => (Some(at_once), None),
            LimitBound::Rate(rate) => (None, Some(rate)),
        };
        LimitDraft { key: self.key().to_owned(), at_once, rate, when_full: self.when_full }
    }
}

/// A limit of one execution: its key is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitClaim {
    /// The key.
    pub key: String,
    /// The bound.
    pub bound: LimitBound,
    /// The fate of the execution while the limit is full.
    pub when_full: WhenFull,
}

/// Why a text cannot be the key of a limit.
pub(crate) fn key_problem(key: &str) -> Option<String> {
    let chars = key.chars().count();
    if chars == 0 || chars > MAX_LIMIT_KEY_CHARS {
        return Some(format!("the key has {chars} characters: it must have 1 to {MAX_LIMIT_KEY_CHARS}"));
    }
    let is_plain = key.chars().all(belay_text::is_plain) && key.trim() == key;
    (!is_plain).then(|| "the key has a line break, a control character or a space at its ends: remove it".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(key: &str, inputs: &Value) -> Result<String, String> {
        let key = Template::parse(&json!(key)).unwrap();
        let limit = ExecutionLimit { key, bound: LimitBound::AtOnce(1), when_full: WhenFull::Wait };
        limit.claim(inputs).map(|claim| claim.key)
    }

    #[test]
    fn a_key_is_made_of_inputs() {
        let inputs = json!({"env": "prod", "n": 7, "list": [1], "long": "x".repeat(200), "lines": "a\nb"});
        assert_eq!(claim("deploy", &inputs).as_deref(), Ok("deploy"));
        assert_eq!(claim("deploy-${inputs.env}-${inputs.n}", &inputs).as_deref(), Ok("deploy-prod-7"));
        assert_eq!(claim("${inputs.n}", &inputs).as_deref(), Ok("7"));
        for (key, why) in [
            ("${inputs.list}", "neither a text nor a number"),
            ("${inputs.long}", "200 characters"),
            ("${inputs.lines}", "line break"),
            ("${inputs.none}", "Cannot resolve path: inputs.none"),
        ] {
            let problem = claim(key, &inputs).unwrap_err();
            assert!(problem.contains(why), "{key}: {problem}");
        }
    }
}
