//! Rules of the operator's own: a name and a regular expression each.

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use thiserror::Error;

use crate::{FoundSecret, REDACTED, bytes::is_line_end, pem, rules};

/// The most rules.
pub const MAX_RULES: usize = 100;
/// The longest name of a rule, in bytes.
pub const MAX_RULE_NAME: usize = 64;
/// The longest pattern, in bytes.
pub const MAX_PATTERN: usize = 1000;
/// The largest compiled pattern, in bytes: it bounds what a repetition such as `{1000}` may cost.
const MAX_COMPILED: usize = 1 << 20;
/// The largest that all of them may be together, in bytes.
const MAX_TOGETHER: usize = 8 << 20;

/// A rule of the operator's own. It looks at one line at a time; its first group that takes part is the secret, or all that matches if the
/// pattern has no group.
#[derive(Clone, Debug)]
pub struct OwnRule {
    name: &'static str,
    regex: Regex,
}

impl OwnRule {
    /// A rule of this name and pattern, in the syntax of the crate regex. The name lives as long as the process, as rules do.
    ///
    /// # Errors
    /// Why one of both cannot be used, for a message that has named the field: [`RuleRefusal`].
    pub fn new(name: &str, pattern: &str) -> Result<Self, RuleRefusal> {
        let is_name = (1..=MAX_RULE_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !is_name {
            return Err(RuleRefusal::Name(format!(
                "must have 1 to {MAX_RULE_NAME} lower-case letters, digits and `-`, beginning with a letter or a digit"
            )));
        }
        if name == FoundSecret::LITERAL || name == pem::RULE || rules::all().any(|rule| rule.id == name) {
            return Err(RuleRefusal::Name(format!("`{name}` is the name of a built-in rule: choose another one")));
        }
        let refused = |why: String| Err(RuleRefusal::Pattern(why));
        if pattern.len() > MAX_PATTERN {
            return refused(format!("has {} bytes, but the limit is {MAX_PATTERN}", pattern.len()));
        }
        let regex = match RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build() {
            Ok(regex) => regex,
            Err(regex::Error::CompiledTooBig(_)) => {
                return refused("is too large when compiled: use smaller numbers of repetitions, and `(?-u)` at its beginning, which makes `\\w` and `\\d` ASCII".to_owned());
            }
            // The last line says what is wrong, those before it show where.
            Err(error) => {
                let error = error.to_string();
                let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
                return refused(format!("is not a regular expression: {why}"));
            }
        };
        if regex.is_match(b"") {
            return refused("also matches an empty text: have it match at least one character".to_owned());
        }
        Ok(Self { name: Box::leak(name.to_owned().into_boxed_str()), regex })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleRefusal {
    /// Its name.
    Name(String),
    /// Its pattern.
    Pattern(String),
}

/// The patterns are too large together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the patterns are too large together when compiled: use smaller numbers of repetitions, and `(?-u)` at their beginning, which makes `\\w` and `\\d` ASCII"
)]
pub struct RulesTooLarge;

/// All rules of the operator. One pass over a line says which of them to look for.
#[derive(Debug)]
pub(crate) struct OwnRules {
    rules: Vec<OwnRule>,
    any: RegexSet,
}

impl OwnRules {
    /// `None` when there are none.
    pub(crate) fn new(rules: Vec<OwnRule>) -> Result<Option<Self>, RulesTooLarge> {
        let patterns = rules.iter().map(|rule| rule.regex.as_str());
        let any = RegexSetBuilder::new(patterns).size_limit(MAX_TOGETHER).build().map_err(|_| RulesTooLarge)?;
        Ok((!rules.is_empty()).then_some(Self { rules, any }))
    }

    /// Adds what the rules find in the text.
    pub(crate) fn scan(&self, text: &[u8], found: &mut Vec<FoundSecret>) {
        let mut start = 0;
        while start < text.len() {
            let end = text[start..].iter().position(|byte| is_line_end(*byte)).map_or(text.len(), |at| start + at);
            self.scan_line(&text[start..end], start, found);
            start = end + 1;
        }
    }

    fn scan_line(&self, line: &[u8], offset: usize, found: &mut Vec<FoundSecret>) {
        let matching = self.any.matches(line);
        if !matching.matched_any() {
            return;
        }
        let marks: Vec<(usize, usize)> = marks(line).collect();
        for rule in matching.iter().map(|index| &self.rules[index]) {
            for capture in rule.regex.captures_iter(line) {
                let group = capture.iter().skip(1).flatten().next().or_else(|| capture.get(0));
                let Some(secret) = group.filter(|group| !group.is_empty()) else { continue };
                let (mut start, mut end) = (secret.start(), secret.end());
                // What is redacted already stays as it is, or goes as a whole: else the mark would grow each time.
                if marks.iter().any(|(from, to)| *from <= start && end <= *to) {
                    continue;
                }
                for (from, to) in marks.iter().filter(|(from, to)| *from < secret.end() && secret.start() < *to) {
                    (start, end) = (start.min(*from), end.max(*to));
                }
                found.push(FoundSecret { rule: rule.name, start: offset + start, end: offset + end });
            }
        }
    }
}

/// Where `[REDACTED]` stands.
fn marks(line: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let mark = REDACTED.as_bytes();
    let at = line.windows(mark.len()).enumerate().filter(move |(_, window)| *window == mark);
    at.map(move |(at, _)| (at, at + mark.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Redactor, Stream};

    fn redactor(rules: &[(&str, &str)]) -> Redactor {
        let rules = rules.iter().map(|(name, pattern)| OwnRule::new(name, pattern).unwrap()).collect();
        Redactor::new().with_rules(rules).unwrap()
    }

    #[test]
    fn what_a_rule_matches_is_hidden_or_its_group_alone() {
        let redactor = redactor(&[("acme", r"acme_[a-z]{6}"), ("session", r"(?i)session (\w+)|ticket (\d+)")]);
        let shown = |text: &str| redactor.redact_text(text).text;
        assert_eq!(shown("is acme_abcdef, acme_ghijkl."), "is [REDACTED], [REDACTED].");
        assert_eq!(
            shown("Session wxyz, ticket 1234\nsession\nwxyz"),
            "Session [REDACTED], ticket [REDACTED]\nsession\nwxyz"
        );
        let found = redactor.redact_text("acme_abcdef").found;
        assert_eq!(found, [FoundSecret { rule: "acme", start: 0, end: 11 }]);
        let value = serde_json::json!({"a\"acme_abcdef": 1, "b": ["acme_abcdef"]});
        assert!(redactor.may_hide_json(&value.to_string()) && redactor.may_hide("acme_abcdef"));
        let shown = redactor.redact_json::<&str>(&value, &[]).shown.to_string();
        assert!(!shown.contains("acme_abcdef"), "{shown}");
        assert_eq!(Redactor::new().redact_text("acme_abcdef").text, "acme_abcdef");
    }

    #[test]
    fn what_is_redacted_is_not_redacted_again() {
        let redactor = redactor(&[("upper", "[A-Z]{4,8}"), ("pair", r"x \[\w")]);
        for (text, shown) in [("[REDACTED]", "[REDACTED]"), ("ABCDE", "[REDACTED]"), ("x [REDACTED]", "[REDACTED]")] {
            let once = redactor.redact_text(text).text;
            assert_eq!(once, shown);
            assert_eq!(redactor.redact_text(&once).text, once);
        }
    }

    #[test]
    fn a_rule_that_cannot_be_used_is_refused_with_the_reason() {
        let pattern = |pattern: &str| match OwnRule::new("mine", pattern).unwrap_err() {
            RuleRefusal::Pattern(why) => why,
            RuleRefusal::Name(why) => panic!("{why}"),
        };
        assert_eq!(pattern("a("), "is not a regular expression: unclosed group");
        assert!(pattern("(?=a)").contains("look-around"), "{}", pattern("(?=a)"));
        assert!(pattern("a*").contains("empty text"));
        assert!(pattern(r"(\w{1000}){1000}").contains("too large"));
        assert!(pattern(&"a".repeat(1001)).contains("has 1001 bytes"));
        let many = (0..MAX_RULES).map(|n| OwnRule::new(&format!("r{n}"), r"\w{9}").unwrap()).collect();
        assert_eq!(Redactor::new().with_rules(many).unwrap_err(), RulesTooLarge);
        for name in ["", "Mine", "my rule", "-x", "github-token", "literal", "private-key", &"x".repeat(65)] {
            assert!(matches!(OwnRule::new(name, "a"), Err(RuleRefusal::Name(_))), "{name}");
        }
    }

    proptest! {
        /// In pieces as in one, and with no letter more or less around it.
        #[test]
        fn a_stream_hides_what_the_whole_text_hides(
            parts in prop::collection::vec("([a-z \n]{0,12}|acme_[a-f]{6})", 0..12), cut in 1_usize..9
        ) {
            let redactor = redactor(&[("acme", "acme_[a-f]{6}")]);
            let text = parts.join(" ");
            let mut stream = Stream::new(redactor.clone());
            let mut shown = Vec::new();
            for piece in text.as_bytes().chunks(cut) {
                shown.extend(stream.push(piece));
            }
            shown.extend(stream.finish());
            let whole = redactor.redact_text(&text).text;
            prop_assert_eq!(String::from_utf8(shown).unwrap(), whole.clone());
            prop_assert_eq!(redactor.redact_text(&whole).text, whole);
        }
    }
}
