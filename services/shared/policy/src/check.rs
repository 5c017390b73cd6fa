//! What a policy has to keep to, however it was written, and the examples by which its rules are tried.

use std::collections::HashSet;

use belay_yaml::{misleads, shown};

use crate::{
    Verdict, Violation,
    document::{Document, Phase, Rule},
    examples,
    judge::built_in,
    patterns::plain,
    protect, revised,
    rules::{BadGlob, Rules, base_name},
};

/// Most bytes of a policy's text.
pub(crate) const MAX_TEXT: usize = 256 * 1024;
/// Most bytes of a policy as it is signed.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;
/// Most violations that are listed.
pub(crate) const MAX_VIOLATIONS: usize = 100;
/// Most rules.
const MAX_RULES: usize = 1_000;
/// Most entries of one list of a rule.
const MAX_ENTRIES: usize = 500;
/// Most globs of a policy.
const MAX_GLOBS: usize = 2_000;
/// Most examples of a policy.
const MAX_EXAMPLES: usize = 5_000;
/// Longest word or glob, in bytes.
const MAX_WORD: usize = 256;
/// Most stars of a glob. What a set of globs costs rises with them, path by path.
const MAX_STARS: usize = 10;
/// Longest reason, in characters.
const MAX_REASON: usize = 500;
/// Longest id, in characters.
const MAX_ID: usize = 64;
/// Longest time until a question expires: 365 days, in seconds.
const MAX_EXPIRY: u64 = 365 * 86_400;

/// What was found, without lines.
#[derive(Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.0.len() < MAX_VIOLATIONS {
            self.0.push(Violation { field: field.into(), line: 0, message: message.into() });
        }
    }

    /// Goes on only if nothing was found so far.
    fn none(&mut self) -> Result<(), Vec<Violation>> {
        if self.0.is_empty() { Ok(()) } else { Err(std::mem::take(&mut self.0)) }
    }
}

/// The compiled rules on intents and on effects, if the policy is a good one.
pub(crate) fn check(document: &Document) -> Result<(Rules, Rules), Vec<Violation>> {
    let mut findings = Findings::default();
    amounts(document, &mut findings);
    findings.none()?;
    let mut ids = HashSet::new();
    for (index, rule) in document.rules.iter().enumerate() {
        let at = format!("rules[{index}]");
        if !ids.insert(rule.id.as_str()) {
            findings.add(format!("{at}.id"), format!("`{}` is an earlier rule's: choose another", shown(&rule.id)));
        }
        shape(&at, rule, &mut findings);
    }
    findings.none()?;
    // Compiling costs: only now are number and length of the globs known to be within bounds.
    let compile = |phase| Rules::compile(&document.rules, phase);
    let (intents, effects) = match (compile(Phase::Intent), compile(Phase::Effect)) {
        (Ok(intents), Ok(effects)) => (intents, effects),
        (intents, effects) => {
            for BadGlob { field, why } in intents.err().into_iter().chain(effects.err()).flatten() {
                findings.add(field, why);
            }
            return Err(findings.0);
        }
    };
    for (index, rule) in document.rules.iter().enumerate() {
        for (field, why) in examples::failing(rule) {
            findings.add(format!("rules[{index}].{field}"), why);
        }
    }
    findings.none()?;
    Ok((intents, effects))
}

/// Whether there is not too much of anything.
fn amounts(document: &Document, findings: &mut Findings) {
    if document.approvals.expire_after.is_some_and(|seconds| !(1..=MAX_EXPIRY).contains(&seconds)) {
        findings.add("approvals.expire_after", "must be between 1s and 365d; leave it out for never");
    }
    let rules = &document.rules;
    let globs = rules
        .iter()
        .map(|rule| {
            [&rule.programs, &rule.arguments, &rule.cwd, &rule.env, &rule.paths]
                .iter()
                .map(|list| list.len())
                .sum::<usize>()
        })
        .sum();
    let examples = rules.iter().map(|rule| rule.matching.len() + rule.not_match.len()).sum();
    for (what, number, most) in [
        ("rules", rules.len(), MAX_RULES),
        ("globs in all rules", globs, MAX_GLOBS),
        ("examples in all rules", examples, MAX_EXAMPLES),
    ] {
        if number > most {
            findings.add("rules", format!("there are {number} {what}, and may be {most}: join or drop some"));
        }
    }
    let length = revised::length(document);
    if length > MAX_BYTES {
        findings
            .add("", format!("the policy has {length} bytes when it is signed, and may have {MAX_BYTES}: shorten it"));
    }
}

/// Whether one rule is well formed, its globs and examples apart.
fn shape(at: &str, rule: &Rule, findings: &mut Findings) {
    let plain_id = |id: &str| id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if rule.id.is_empty() || rule.id.len() > MAX_ID || !plain_id(&rule.id) {
        findings.add(format!("{at}.id"), format!("must be 1 to {MAX_ID} letters, digits, `-`, `_`, `.`"));
    } else if built_in::IDS.contains(&rule.id.as_str()) || protect::FLAGS.contains(&rule.id.as_str()) {
        findings.add(format!("{at}.id"), format!("`{}` is a built-in rule's: choose another", rule.id));
    }
    if rule.reason.chars().count() > MAX_REASON || rule.reason.chars().any(misleads) {
        findings.add(
            format!("{at}.reason"),
            format!("must be one line of at most {MAX_REASON} characters, all of them visible"),
        );
    }
    let (intent_only, effect_only) = (
        &[
            ("programs", rule.programs.is_empty()),
            ("arguments", rule.arguments.is_empty()),
            ("cwd", rule.cwd.is_empty()),
            ("env", rule.env.is_empty()),
        ][..],
        &[("changes", rule.changes.is_empty()), ("flags", rule.flags.is_empty())][..],
    );
    let (others, phase, here) = match rule.on {
        Phase::Intent => (effect_only, "effect", "before the call they are not known"),
        Phase::Effect => (intent_only, "intent", "an effect is judged by its paths, changes and flags"),
    };
    for (list, _) in others.iter().filter(|(_, empty)| !empty) {
        findings.add(format!("{at}.{list}"), format!("belongs to rules `on: {phase}`: {here}"));
    }
    if rule.on == Phase::Effect && rule.exclusive {
        findings.add(format!("{at}.exclusive"), "belongs to rules `on: intent`: by its effect a call has run already");
    }
    if rule.on == Phase::Effect && rule.decide == Verdict::Preview {
        findings.add(format!("{at}.decide"), "an effect has been previewed already: write auto, prompt or deny");
    }
    let lists = [
        ("tools", &rule.tools),
        ("programs", &rule.programs),
        ("arguments", &rule.arguments),
        ("cwd", &rule.cwd),
        ("env", &rule.env),
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
        return Some(format!("must be 1 to {MAX_WORD} bytes"));
    }
    if matches!(list, "programs" | "arguments" | "cwd" | "env" | "paths") && entry.matches('*').count() > MAX_STARS {
        return Some(format!("has more than {MAX_STARS} stars: make two of it, or one with fewer"));
    }
    match list {
        "programs" if entry.contains('/') => {
            Some(format!("programs are compared without their folder: write `{}`", shown(base_name(entry))))
        }
        "cwd" if entry == "." => None,
        "paths" | "cwd" if entry.starts_with('/') || plain(entry) != entry => Some(format!(
            "paths are relative to the workspace and have no `.`, `..` or empty names: write `{}`",
            shown(&plain(entry))
        )),
        "paths" | "cwd" if entry.split('/').any(|name| name.contains("**") && name != "**") => {
            Some("`**` stands for folders and must be alone between slashes, as in `src/**/x`".to_owned())
        }
        "flags" if !protect::FLAGS.contains(&entry) => {
            Some(format!("`{}` is not a flag; use one of {}", shown(entry), protect::FLAGS.join(", ")))
        }
        _ => None,
    }
}
