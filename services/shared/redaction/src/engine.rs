//! Finds the secrets in a text.
//!
//! A pass of Aho-Corasick finds the rules' keywords; a rule's regular expression then looks at a window around its keyword, within the
//! line. A second pass finds the exact values that were given.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock, OnceLock},
};

use aho_corasick::{AhoCorasick, MatchKind};
use regex::bytes::{Captures, Regex, RegexBuilder};

use crate::{
    FoundSecret,
    bytes::{is_line_end, is_token},
    literals::{LiteralRefusal, Literals},
    names,
    own::{OwnRule, OwnRules, RulesTooLarge},
    pem,
    rules::{self, KeywordPosition, Rule},
    values,
};

/// The initial size of the window after a keyword, in bytes. A secret that reaches the window's end widens it.
const WINDOW: usize = 320;
/// The maximum size of the window. A longer secret is followed while it looks like a token.
const MAX_WINDOW: usize = 8 * 1024;

/// The maximum distance of an assignment operator after its keyword.
const MAX_OPERATOR_DISTANCE: usize = 48;

/// Finds secrets and replaces them with [`REDACTED`](crate::REDACTED). Create it once; clones share the rules.
#[derive(Clone, Debug)]
pub struct Redactor {
    rules: Arc<Rules>,
    own: Option<Arc<OwnRules>>,
    literals: Option<Arc<Literals>>,
    /// Texts and numbers that are hidden in JSON where they are the whole of a value.
    whole: Option<Arc<BTreeSet<String>>>,
}

/// A rule with its regular expression, which is compiled when a text first has one of its keywords: all together take three megabytes.
#[derive(Debug)]
struct Shape {
    rule: Rule,
    regex: OnceLock<Regex>,
}

impl Shape {
    fn regex(&self) -> &Regex {
        self.regex.get_or_init(|| {
            let anchored = format!("^(?:{})", self.rule.regex);
            let regex = if self.rule.at == KeywordPosition::Start { &anchored } else { self.rule.regex };
            let regex = RegexBuilder::new(regex).unicode(false).build();
            regex.expect("the built-in rules are compiled in the tests")
        })
    }
}

#[derive(Debug)]
struct Rules {
    rules: Vec<Shape>,
    keywords: AhoCorasick,
    /// The rules of each keyword. The index after the last rule is the search for private keys.
    wanted: Vec<Vec<usize>>,
}

impl Rules {
    fn new() -> Self {
        let rules: Vec<Shape> = rules::all().map(|rule| Shape { rule, regex: OnceLock::new() }).collect();
        let mut keywords: Vec<&str> = vec![pem::KEYWORD];
        let mut wanted = vec![vec![rules.len()]];
        for (index, Shape { rule, .. }) in rules.iter().enumerate() {
            for keyword in rule.keywords {
                let known = keywords.iter().position(|known| known == keyword).unwrap_or_else(|| {
                    keywords.push(keyword);
                    wanted.push(Vec::new());
                    keywords.len() - 1
                });
                wanted[known].push(index);
            }
        }
        Self { rules, keywords: Self::search(&keywords), wanted }
    }

    fn search(keywords: &[&str]) -> AhoCorasick {
        AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(Some(aho_corasick::AhoCorasickKind::DFA))
            .build(keywords)
            .expect("a few hundred short keywords fit")
    }
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new()
    }
}

impl Redactor {
    /// The built-in rules, which all of a process share.
    pub fn new() -> Self {
        static RULES: LazyLock<Arc<Rules>> = LazyLock::new(|| Arc::new(Rules::new()));
        Self { rules: Arc::clone(&RULES), own: None, literals: None, whole: None }
    }

    /// Finds nothing: for who may see everything.
    pub fn off() -> Self {
        static NONE: LazyLock<Arc<Rules>> =
            LazyLock::new(|| Arc::new(Rules { rules: Vec::new(), keywords: Rules::search(&[]), wanted: Vec::new() }));
        Self { rules: Arc::clone(&NONE), own: None, literals: None, whole: None }
    }

    /// Adds the operator's rules, in place of earlier ones of the operator's.
    ///
    /// # Errors
    /// [`RulesTooLarge`] when their patterns are too large together.
    pub fn with_rules(&self, rules: Vec<OwnRule>) -> Result<Self, RulesTooLarge> {
        let own = OwnRules::new(rules)?.map(Arc::new);
        Ok(Self { own, ..self.clone() })
    }

    /// Adds literal values to the rules: as they are, and in base64, hex, URL and JSON encoding. Earlier values stay.
    ///
    /// # Errors
    /// [`LiteralRefusal`] for a value that is too short to be distinguished from ordinary text, or too long to be buffered in a stream.
    pub fn with_literals<L: AsRef<[u8]>>(&self, literals: impl IntoIterator<Item = L>) -> Result<Self, LiteralRefusal> {
        let literals = Literals::new(self.literals.as_deref(), literals)?;
        Ok(Self { literals: literals.map(Arc::new), ..self.clone() })
    }

    /// Adds texts, and numbers as JSON writes them, that are too short or too ordinary to be looked for in texts: in JSON they are hidden where
    /// they are the whole of a value. Earlier ones stay.
    #[must_use]
    pub fn with_whole_values(&self, values: impl IntoIterator<Item = String>) -> Self {
        let mut whole = self.whole.as_deref().cloned().unwrap_or_default();
        whole.extend(values.into_iter().filter(|value| !value.is_empty()));
        Self { whole: (!whole.is_empty()).then(|| Arc::new(whole)), ..self.clone() }
    }

    /// Whether the text, or the number as JSON writes it, is one of those that are hidden where they are the whole of a value.
    pub(crate) fn is_whole(&self, value: &str) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.contains(value))
    }

    /// The longest encoding of a literal value, in bytes; and of one with several lines.
    pub(crate) fn longest_literals(&self) -> (usize, usize) {
        self.literals.as_ref().map_or((0, 0), |literals| literals.longest())
    }

    /// Whether the text may contain a secret: one pass without copying. It may return true for a text that [`Self::redact_text`] does not change, but
    /// never false for one that it changes.
    pub fn may_hide(&self, text: &str) -> bool {
        let text = text.as_bytes();
        // The text may be JSON that is not unescaped, where a rule of the operator's can match only later: so they are asked then.
        self.own.is_some()
            || self.rules.may_hide(text)
            || self.literals.as_ref().is_some_and(|literals| literals.find(text).next().is_some())
    }

    /// The same for [`Self::redact_json`], before the text is parsed.
    pub fn may_hide_json(&self, text: &str) -> bool {
        // An escape can encode any letter of a keyword. Serializers rarely escape letters, and hardly ever slashes.
        let escapes = text.as_bytes().windows(2).any(|pair| pair == br"\u" || pair == br"\/");
        self.own.is_some()
            || self.whole.is_some()
            || escapes
            || names::in_quotes(text.as_bytes())
            || self.may_hide(text)
    }

    /// The same for [`Self::redact_json`] of a string.
    pub fn may_hide_value(&self, value: &str) -> bool {
        self.is_whole(value) || self.may_hide(value)
    }

    /// Every secret in the text, in order, without overlaps. They begin and end at character boundaries if the text is UTF-8.
    pub(crate) fn scan(&self, text: &[u8]) -> Vec<FoundSecret> {
        let mut found = Vec::new();
        self.rules.scan(text, &mut found);
        if let Some(own) = &self.own {
            own.scan(text, &mut found);
        }
        if let Some(literals) = &self.literals {
            found.extend(literals.find(text).map(|(start, end)| FoundSecret {
                rule: FoundSecret::LITERAL,
                start,
                end,
            }));
        }
        for found in &mut found {
            found.start = floor(text, found.start);
            found.end = ceiling(text, found.end);
        }
        merge(found)
    }
}

impl Rules {
    /// Keywords alone say yes where a shape reaches to both sides of them, since the text may be JSON that is not unescaped. Behind a
    /// keyword that begins a token nothing stands that JSON escapes, so there the shape is looked at.
    fn may_hide(&self, text: &[u8]) -> bool {
        self.keywords.find_overlapping_iter(text).any(|hit| {
            self.wanted[hit.pattern().as_usize()].iter().any(|&index| match self.rules.get(index) {
                Some(shape) if shape.rule.at == KeywordPosition::Start => {
                    shape.regex().is_match(&text[hit.start()..line_end(text, hit.end(), MAX_WINDOW)])
                }
                _ => true,
            })
        })
    }

    fn scan(&self, text: &[u8], found: &mut Vec<FoundSecret>) {
        // By rule: how far it has found already.
        let mut done = vec![0; self.rules.len() + 1];
        for hit in self.keywords.find_overlapping_iter(text) {
            for &index in &self.wanted[hit.pattern().as_usize()] {
                if hit.start() < done[index] {
                    continue;
                }
                let Some(shape) = self.rules.get(index) else {
                    for (start, end) in pem::bodies(text, hit.start()) {
                        done[index] = end;
                        found.push(FoundSecret { rule: pem::RULE, start, end });
                    }
                    continue;
                };
                let rule = &shape.rule;
                let soon = &text[hit.end()..text.len().min(hit.end() + MAX_OPERATOR_DISTANCE)];
                if !rule.then.is_empty() && !soon.iter().any(|byte| rule.then.contains(byte)) {
                    continue;
                }
                let first = found.len();
                match rule.at {
                    KeywordPosition::Start if !begins_word(text, hit.start()) => {}
                    KeywordPosition::Start => {
                        look(&text[hit.start()..], shape, 0, hit.len(), found);
                        for found in &mut found[first..] {
                            found.start += hit.start();
                            found.end += hit.start();
                        }
                    }
                    KeywordPosition::Within(reach) => {
                        let line = line_start(text, hit.start(), reach);
                        look(text, shape, line.max(done[index]), hit.end(), found);
                    }
                }
                done[index] = found[first..].iter().map(|found| found.end).max().unwrap_or(done[index]);
            }
        }
    }
}

/// Looks for the rule's shape from `from` on, on this line, with a keyword that ends at `keyword`.
fn look(text: &[u8], shape: &Shape, from: usize, keyword: usize, found: &mut Vec<FoundSecret>) {
    let (rule, regex) = (&shape.rule, shape.regex());
    let mut from = from;
    while let Some((capture, end)) = first(text, regex, from, keyword) {
        let whole = capture.get(0).expect("a match has a whole");
        if whole.start() >= keyword {
            return;
        }
        let secret = secret_of(&capture);
        let value = &text[secret.start()..secret.end()];
        let exempt = capture.name("name").is_some_and(|name| {
            let name = String::from_utf8_lossy(name.as_bytes());
            names::is_exempt(&name) || values::is_harmless_under(&name, value)
        });
        if !exempt && (rule.accept)(value) && (rule.entropy == 0.0 || values::entropy(value) >= rule.entropy) {
            let mut stop = secret.end();
            // It is longer than the widest window.
            if stop == end {
                stop += text[stop..].iter().take_while(|byte| is_token(**byte)).count();
            }
            found.push(FoundSecret { rule: rule.id, start: secret.start(), end: stop });
        }
        from = secret.end().max(whole.start() + 1);
        if from >= keyword {
            return;
        }
    }
}

/// The first match from `from` on, and where the window ended that it was found in.
fn first<'t>(text: &'t [u8], regex: &Regex, from: usize, keyword: usize) -> Option<(Captures<'t>, usize)> {
    let mut width = WINDOW;
    loop {
        let end = line_end(text, keyword, width);
        let capture = regex.captures_at(&text[..end], from)?;
        let at_the_end = capture.get(0).is_some_and(|whole| whole.end() == end);
        let whole_line = end == text.len() || is_line_end(text[end]);
        if !at_the_end || whole_line || width >= MAX_WINDOW {
            return Some((capture, end));
        }
        width *= 4;
    }
}

/// The first unnamed group that takes part, else the whole.
fn secret_of<'t>(capture: &Captures<'t>) -> regex::bytes::Match<'t> {
    let name = capture.name("name").map(|name| name.range());
    let mut groups = capture.iter().skip(1).flatten().filter(|group| Some(group.range()) != name);
    groups.next().or_else(|| capture.get(0)).expect("a match has a whole")
}

/// Whether a word can begin here: behind no word, or behind the escape of a line's end (`\n`) or of a byte (`%3D`).
fn begins_word(text: &[u8], at: usize) -> bool {
    match text[..at] {
        [] => true,
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
        [.., last] => !last.is_ascii_alphanumeric() && last != b'_',
    }
}

/// `reach` bytes before `at`, or where its line begins.
fn line_start(text: &[u8], at: usize, reach: usize) -> usize {
    let from = at.saturating_sub(reach);
    text[from..at].iter().rposition(|byte| is_line_end(*byte)).map_or(from, |position| from + position + 1)
}

/// `width` bytes after `at`, or where its line ends.
fn line_end(text: &[u8], at: usize, width: usize) -> usize {
    let to = at.saturating_add(width).min(text.len());
    text[at..to].iter().position(|byte| is_line_end(*byte)).map_or(to, |position| at + position)
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// The beginning of the character that `at` is in. A character has at most three bytes more.
fn floor(text: &[u8], at: usize) -> usize {
    (at.saturating_sub(3)..=at).rev().find(|at| text.get(*at).is_none_or(|byte| !is_continuation(*byte))).unwrap_or(at)
}

/// The end of the character that `at` is in.
fn ceiling(text: &[u8], at: usize) -> usize {
    (at..=at + 3).find(|at| text.get(*at).is_none_or(|byte| !is_continuation(*byte))).unwrap_or(at)
}

/// In order, overlaps joined. The one that begins first gives its name.
fn merge(mut found: Vec<FoundSecret>) -> Vec<FoundSecret> {
    found.retain(|found| found.start < found.end);
    found.sort_by_key(|found| found.start);
    let mut merged: Vec<FoundSecret> = Vec::with_capacity(found.len());
    for next in found {
        match merged.last_mut() {
            Some(last) if next.start < last.end => last.end = last.end.max(next.end),
            _ => merged.push(next),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles_and_only_when_its_keyword_occurs() {
        let rules = Rules::new();
        let compiled = || rules.rules.iter().filter(|shape| shape.regex.get().is_some()).count();
        assert!(!rules.may_hide(b"nothing to see") && compiled() == 0);
        let mut found = Vec::new();
        rules.scan(b"ghp_0123456789abcdefABCDEF0123456789abcd", &mut found);
        assert!(found.len() == 1 && (1..rules.rules.len() / 2).contains(&compiled()), "{found:?}, {}", compiled());
        assert!(rules.rules.iter().all(|shape| shape.regex().captures_len() > 0));
    }

    #[test]
    fn overlaps_are_joined_and_neighbours_are_not() {
        let found = |start, end| FoundSecret { rule: "x", start, end };
        let merged = merge(vec![found(5, 9), found(0, 3), found(3, 4), found(7, 12), found(20, 20)]);
        assert_eq!(merged, [found(0, 3), found(3, 4), found(5, 12)]);
    }

    #[test]
    fn a_place_is_moved_to_the_border_of_its_character() {
        let text = "a€b".as_bytes();
        assert_eq!([0, 1, 2, 3, 4, 5].map(|at| floor(text, at)), [0, 1, 1, 1, 4, 5]);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|at| ceiling(text, at)), [0, 1, 4, 4, 4, 5]);
    }

    /// A rule whose shape can stand without any of its keywords would be passed over.
    #[test]
    fn what_may_hide_nothing_is_left_as_it_is() {
        let redactor = Redactor::new();
        for line in include_str!("../tests/fixtures/secrets.txt").lines() {
            let line = line.replace(['¦', '«', '»'], "");
            if !redactor.redact_text(&line).found.is_empty() {
                assert!(redactor.may_hide(&line), "{line}");
                assert!(redactor.may_hide_json(&serde_json::Value::from(line.as_str()).to_string()), "{line}");
            }
        }
        let named = [
            r#"{"pass_Word": "x1"}"#,
            r#"{"db.pass": 5}"#,
            r#"{"cookies2": ["a"]}"#,
            r#"[{"name": "SMTP_PASS", "value": "x1"}]"#,
            r#"["--otp", "123456"]"#,
            r#"{"a": "\u0067hp_FAKE0fake1Belay2Not3Real4FAKE0fake1B"}"#,
            r#"{"a": "postgres:\/\/me:secret1@db/x"}"#,
        ];
        for text in named {
            let value = serde_json::from_str(text).unwrap();
            assert!(!redactor.redact_json::<&str>(&value, &[]).hidden.is_empty(), "{text}");
            assert!(redactor.may_hide_json(text), "{text}");
        }
        for text in [r#"{"path": "src/main.rs", "lines": [1, 2]}"#, r#"{"content": "say \"hello\"\n"}"#, "null"] {
            assert!(!redactor.may_hide_json(text), "{text}");
        }
        let hiding = redactor.with_literals(["only me"]).unwrap();
        assert!(hiding.may_hide("it is only me") && !hiding.may_hide("it is me only"));
    }

    #[test]
    fn a_secret_longer_than_any_window_goes_whole() {
        let redactor = Redactor::new();
        let text = format!("token={} end", "aB3".repeat(10_000));
        let found = redactor.scan(text.as_bytes());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(&text[found[0].end..], " end");
    }
}
