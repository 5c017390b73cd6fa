//! The keys of `Failure.metadata` that Belay's own tools use.

/// The exit code of a program, in decimal.
pub const EXIT_CODE: &str = "exit_code";

/// What the class of an agent's failure was taken from: `event`, which the agent has reported, or `output`: its exit code and its last lines.
pub const CLASSIFIED_BY: &str = "classified_by";

/// The HTTP status with which the server of an agent's model answered, in decimal.
pub const HTTP_STATUS: &str = "http_status";

/// A hint about the cause of the failure and about what may help: part of a sentence for a person.
pub const HINT: &str = "hint";

/// An entry for the policy's `rules` that allows what was refused, and nothing else; further ones are `allowing_rule_2` and so on.
pub const ALLOWING_RULE: &str = "allowing_rule";

/// The metadata of a failure that these entries for the policy's `rules` would avoid.
pub fn allowing(rules: &[String]) -> impl Iterator<Item = (String, String)> {
    let key = |number: usize| if number == 1 { ALLOWING_RULE.to_owned() } else { format!("{ALLOWING_RULE}_{number}") };
    rules.iter().zip(1..).map(move |(rule, number)| (key(number), rule.clone()))
}

/// The entries for the policy's `rules` in a failure's metadata.
pub fn allowing_rules<'a>(fact: impl Fn(&str) -> Option<&'a str>) -> Vec<&'a str> {
    let numbered = (2..).map(|number| format!("{ALLOWING_RULE}_{number}"));
    let keys = std::iter::once(ALLOWING_RULE.to_owned()).chain(numbered);
    keys.map_while(|key| fact(&key)).collect()
}

/// The number of the signal that ended a program, in decimal.
pub const SIGNAL: &str = "signal";

/// The limit that was exceeded, in units of [`UNIT`].
pub const LIMIT: &str = "limit";

/// The number found instead, in units of [`UNIT`].
pub const FOUND: &str = "found";

/// `seconds`, `bytes` or `files`.
pub const UNIT: &str = "unit";

/// The field of the plan, or of the operator's settings, that raises the limit.
pub const SETTING: &str = "setting";
