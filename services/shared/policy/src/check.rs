//! What a policy has to keep to, however it was written, and the examples by which its rules are tried.

use std::{collections::HashSet, fmt};

use crate::{
    Verdict,
    document::{Document, Example, Phase, Rule},
    judge::built_in,
    patterns::{Separator, glob, plain},
    protect, revised,
    rules::{BadGlob, Rules, base_name},
};

/// Most bytes of a policy's text.
pub(crate) const MAX_TEXT: usize = 256 * 1024;
/// Most bytes of a policy as it is signed.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;
/// Most violations that are told.
pub(crate) const MAX_VIOLATIONS: usize = 100;
/// Most rules.
const MAX_RULES: usize = 1_000;
/// Most entries of one list of a rule.
const MAX_ENTRIES: usize = 500;
/// Most globs of a policy.
const MAX_GLOBS: usize = 5_000;
/// Longest word or glob, in bytes.
const MAX_WORD: usize = 256;
/// Longest reason, in characters.
const MAX_REASON: usize = 500;
/// Longest id, in characters.
const MAX_ID: usize = 64;
/// Longest time until a question expires: 365 days, in seconds.
const MAX_EXPIRY: u64 = 365 * 86_400;

/// One thing that is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, such as `rules[2].paths[0]`; empty for the policy as a whole.
    pub field: String,
    /// The line of the text, from 1; 0 when not known.
    pub line: u32,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Findings without their lines.
struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.0.len() < MAX_VIOLATIONS {
            self.0.push(Violation { field: field.into(), line: 0, message: message.into() });
        }
    }
}

/// The compiled rules on intents and on effects.
pub(crate) fn check(document: &Document) -> Result<(Rules, Rules), Vec<Violation>> {
    let mut findings = Findings(Vec::new());
    if let Some(seconds) = document.approvals.expire_after
        && !(1..=MAX_EXPIRY).contains(&seconds)
    {
        findings.add("approvals.expire_after", "has to be between 1s and 365d; leave it out for never");
    }
    if document.rules.len() > MAX_RULES {
        findings.add("rules", format!("are {}, and may be {MAX_RULES}", document.rules.len()));
        return Err(findings.0);
    }
    let globs =
        document.rules.iter().map(|rule| rule.programs.len() + rule.arguments.len() + rule.paths.len()).sum::<usize>();
    if globs > MAX_GLOBS {
        findings.add("rules", format!("have {globs} globs, and may have {MAX_GLOBS}: join some with `{{a,b}}`"));
        return Err(findings.0);
    }
    let mut ids = HashSet::new();
    for (index, rule) in document.rules.iter().enumerate() {
        let at = format!("rules[{index}]");
        if !ids.insert(rule.id.as_str()) {
            findings.add(format!("{at}.id"), format!("`{}` is the id of an earlier rule: choose another", rule.id));
        }
        shape(&at, rule, &mut findings);
    }
    if findings.0.is_empty() {
        // Globs are compiled only when their number and lengths are known to be within bounds.
        match (Rules::compile(&document.rules, Phase::Intent), Rules::compile(&document.rules, Phase::Effect)) {
            (Ok(intents), Ok(effects)) => {
                for (index, rule) in document.rules.iter().enumerate() {
                    examples(&format!("rules[{index}]"), rule, &mut findings);
                }
                let length = revised::length(document);
                if length > MAX_BYTES {
                    findings.add(
                        "",
                        format!(
                            "the policy has {length} bytes when it is signed, and may have {MAX_BYTES}: shorten it"
                        ),
                    );
                }
                if findings.0.is_empty() {
                    return Ok((intents, effects));
                }
            }
            (intents, effects) => {
                for BadGlob { field, why } in [intents.err(), effects.err()].into_iter().flatten().flatten() {
                    findings.add(field, why);
                }
            }
        }
    }
    Err(findings.0)
}

/// Whether one rule is well formed, its globs and examples apart.
fn shape(at: &str, rule: &Rule, findings: &mut Findings) {
    let plain_id = |id: &str| id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if rule.id.is_empty() || rule.id.len() > MAX_ID || !plain_id(&rule.id) {
        findings.add(format!("{at}.id"), format!("has to be 1 to {MAX_ID} letters, digits, `-`, `_`, `.`"));
    } else if built_in::IDS.contains(&rule.id.as_str()) || protect::FLAGS.contains(&rule.id.as_str()) {
        findings.add(format!("{at}.id"), format!("`{}` is a built-in rule's: choose another", rule.id));
    }
    if rule.reason.chars().count() > MAX_REASON || rule.reason.chars().any(char::is_control) {
        findings.add(format!("{at}.reason"), format!("has to be one line of at most {MAX_REASON} characters"));
    }
    let (intent_only, effect_only) = (
        [("programs", rule.programs.is_empty()), ("arguments", rule.arguments.is_empty())],
        [("changes", rule.changes.is_empty()), ("flags", rule.flags.is_empty())],
    );
    let (others, phase, here) = match rule.on {
        Phase::Intent => (effect_only, "effect", "before the call nobody knows them"),
        Phase::Effect => (intent_only, "intent", "an effect is judged by its paths, changes and flags"),
    };
    for (list, _) in others.iter().filter(|(_, empty)| !empty) {
        findings.add(format!("{at}.{list}"), format!("belongs to rules `on: {phase}`: {here}"));
    }
    if rule.on == Phase::Effect && rule.decide == Verdict::Preview {
        findings.add(format!("{at}.decide"), "an effect has been previewed already: write auto, prompt or deny");
    }
    let lists = [
        ("tools", &rule.tools),
        ("programs", &rule.programs),
        ("arguments", &rule.arguments),
        ("paths", &rule.paths),
        ("flags", &rule.flags),
    ];
    for (list, entries) in lists {
        if entries.len() > MAX_ENTRIES {
            findings.add(format!("{at}.{list}"), format!("has {} entries, and may have {MAX_ENTRIES}", entries.len()));
        }
        for (index, entry) in entries.iter().enumerate() {
            if let Some(why) = bad_entry(list, entry) {
                findings.add(format!("{at}.{list}[{index}]"), why);
            }
        }
    }
}

/// What is wrong with an entry of a list, beyond its being no glob. A condition that can never be met would be a rule that is silently off.
fn bad_entry(list: &str, entry: &str) -> Option<String> {
    if entry.is_empty() || entry.len() > MAX_WORD {
        return Some(format!("has to be 1 to {MAX_WORD} bytes"));
    }
    match list {
        "programs" if entry.contains('/') => {
            Some(format!("programs are compared without their folder: write `{}`", base_name(entry)))
        }
        "paths" if entry.starts_with('/') || plain(entry) != entry => Some(format!(
            "paths are relative to the workspace and have no `.`, `..` or empty names: write `{}`",
            plain(entry)
        )),
        "paths" if entry.split('/').any(|name| name.contains("**") && name != "**") => {
            Some("`**` stands for folders and has to be alone between slashes, as in `src/**/x`".to_owned())
        }
        "flags" if !protect::FLAGS.contains(&entry) => {
            Some(format!("`{entry}` is no flag; there are {}", protect::FLAGS.join(", ")))
        }
        _ => None,
    }
}

/// Tries a rule on its own examples.
fn examples(at: &str, rule: &Rule, findings: &mut Findings) {
    for (list, wanted) in [(&rule.matching, true), (&rule.not_match, false)] {
        let name = if wanted { "match" } else { "not_match" };
        for (index, example) in list.iter().enumerate() {
            let field = format!("{at}.{name}[{index}]");
            if *example == Example::default() {
                findings.add(field, "says nothing: give it a tool, command, path, change or flags");
            } else if matches(rule, example) != wanted {
                let does = if wanted { "does not match it" } else { "matches it" };
                findings.add(field, format!("the rule `{}` {does}", rule.id));
            }
        }
    }
}

/// Whether a rule matches an example. Conditions on what the example does not say count as met.
fn matches(rule: &Rule, example: &Example) -> bool {
    let any = |globs: &[String], separator, text: &str| {
        let globs = globs.iter().flat_map(|pattern| crate::rules::spellings(pattern, separator));
        globs
            .into_iter()
            .any(|pattern| glob(pattern, separator).is_ok_and(|glob| glob.compile_matcher().is_match(text)))
    };
    let met = |list: &[String], test: &dyn Fn() -> bool| list.is_empty() || test();
    let tool = example.tool.as_ref().is_none_or(|tool| crate::rules::names(&rule.tools, tool));
    let command = example.command.as_ref().is_none_or(|command| {
        let program = command.first().map(|program| base_name(program));
        met(&rule.programs, &|| program.is_some_and(|program| any(&rule.programs, Separator::Nothing, program)))
            && met(&rule.arguments, &|| {
                command.iter().skip(1).any(|argument| any(&rule.arguments, Separator::Nothing, argument))
            })
    });
    let path =
        example.path.as_ref().is_none_or(|path| met(&rule.paths, &|| any(&rule.paths, Separator::Slash, &plain(path))));
    let change = example.change.is_none_or(|change| rule.changes.is_empty() || rule.changes.contains(&change));
    let flags = example
        .flags
        .as_ref()
        .is_none_or(|flags| met(&rule.flags, &|| rule.flags.iter().any(|flag| flags.contains(flag))));
    tool && command && path && change && flags
}
