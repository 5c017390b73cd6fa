//! Checks a policy, in whatever form it was written, and runs the examples of its rules.

use std::collections::HashSet;

use belay_text::is_plain;
use belay_yaml::shown;

use crate::{
    NonInteractive, Verdict, Violation, built_in,
    document::{Document, Phase, Rule},
    examples,
    patterns::plain,
    protect,
    rules::{InvalidGlob, Rules, base_name},
};

/// The maximum size of a policy's text, in bytes.
pub(crate) const MAX_TEXT: usize = 256 * 1024;
/// The maximum number of violations listed.
pub(crate) const MAX_VIOLATIONS: usize = 100;
/// The maximum number of rules.
const MAX_RULES: usize = 1_000;
/// The maximum number of entries in one list of a rule.
const MAX_ENTRIES: usize = 500;
/// The maximum number of globs in a policy.
const MAX_GLOBS: usize = 2_000;
/// The maximum number of examples in a policy.
const MAX_EXAMPLES: usize = 5_000;
/// The maximum length of a word or glob, in bytes.
const MAX_WORD: usize = 256;
/// The maximum number of stars in a glob. The cost of matching a path grows with them.
const MAX_STARS: usize = 10;
/// The maximum length of a reason, in characters.
const MAX_REASON: usize = 500;
/// The maximum length of an id, in characters.
const MAX_ID: usize = 64;
/// The longest time until an approval expires: 365 days, in seconds.
const MAX_EXPIRY: u64 = 365 * 86_400;

/// The violations, without lines.
#[derive(Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.0.len() < MAX_VIOLATIONS {
            self.0.push(Violation { field: field.into(), line: 0, message: message.into() });
        }
    }

    /// Returns the violations so far as an error, if there are any.
    fn none(&mut self) -> Result<(), Vec<Violation>> {
        if self.0.is_empty() { Ok(()) } else { Err(std::mem::take(&mut self.0)) }
    }
}

/// The number of globs in all rules.
pub(crate) fn globs(document: &Document) -> usize {
    let lists =
        |rule: &Rule| [&rule.programs, &rule.arguments, &rule.cwd, &rule.env, &rule.hosts, &rule.paths].map(Vec::len);
    document.rules.iter().flat_map(lists).sum()
}

/// Returns the compiled rules for intents and for effects, if the policy is valid. The examples of the first `known` rules were checked before.
pub(crate) fn check(document: &Document, known: usize) -> Result<(Rules, Rules), Vec<Violation>> {
    let mut findings = Findings::default();
    amounts(document, &mut findings);
    programs(document.allowed_commands.as_deref().unwrap_or_default(), &mut findings);
    findings.none()?;
    let mut ids = HashSet::new();
    for (index, rule) in document.rules.iter().enumerate() {
        let at = format!("rules[{index}]");
        if !ids.insert(rule.id.as_str()) {
            findings.add(
                format!("{at}.id"),
                format!("`{}` is already the id of an earlier rule: choose another", shown(&rule.id)),
            );
        }
        shape(&at, rule, &mut findings);
    }
    findings.none()?;
    // Compiled only now, after the number and length of the globs have been checked.
    let compile = |phase| Rules::compile(&document.rules, phase);
    let (intents, effects) = match (compile(Phase::Intent), compile(Phase::Effect)) {
        (Ok(intents), Ok(effects)) => (intents, effects),
        (intents, effects) => {
            for InvalidGlob { field, why } in intents.err().into_iter().chain(effects.err()).flatten() {
                findings.add(field, why);
            }
            return Err(findings.0);
        }
    };
    for (index, rule) in document.rules.iter().enumerate().skip(known) {
        for (field, why) in examples::failing(rule) {
            findings.add(format!("rules[{index}].{field}"), why);
        }
    }
    findings.none()?;
    Ok((intents, effects))
}

/// Checks numbers and sizes.
fn amounts(document: &Document, findings: &mut Findings) {
    if document.approvals.expire_after.is_some_and(|seconds| !(1..=MAX_EXPIRY).contains(&seconds)) {
        findings.add("approvals.expire_after", "must be between 1s and 365d; leave it out for never");
    }
    if document.approvals.separate_duties && document.non_interactive_policy == NonInteractive::Auto {
        findings.add(
            "approvals.separate_duties",
            "does not go with `non_interactive_policy: auto`, by which who starts an execution approves what it does: write `fail` or `skip` there, or \
             `separate_duties: false`",
        );
    }
    let rules = &document.rules;
    let globs = globs(document);
    let examples = rules.iter().map(|rule| rule.matching.len() + rule.not_match.len()).sum();
    for (what, number, most) in [
        ("rules", rules.len(), MAX_RULES),
        ("globs in all rules", globs, MAX_GLOBS),
        ("examples in all rules", examples, MAX_EXAMPLES),
    ] {
        if number > most {
            findings.add("rules", format!("there are {number} {what} and the limit is {most}: combine or remove some"));
        }
    }
}

/// Checks the programs that commands may start, which are names and no globs.
fn programs(names: &[String], findings: &mut Findings) {
    const FIELD: &str = "allowed_commands";
    if names.len() > MAX_ENTRIES {
        findings.add(FIELD, format!("has {} entries and the limit is {MAX_ENTRIES}", names.len()));
    }
    for (index, name) in names.iter().enumerate() {
        let why = if let Some(why) = bad_entry("programs", name) {
            why
        } else if name.contains(['*', '?', '[', ']', '{', '}', '\\', ' ']) || !name.chars().all(is_plain) {
            format!(
                "`{}` is not the name of a program: write each name as it is, without wildcards and arguments",
                shown(name)
            )
        } else {
            continue;
        };
        findings.add(format!("{FIELD}[{index}]"), why);
    }
}

/// Checks one rule, except its globs and examples.
fn shape(at: &str, rule: &Rule, findings: &mut Findings) {
    let plain_id = |id: &str| id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if rule.id.is_empty() || rule.id.len() > MAX_ID || !plain_id(&rule.id) {
        findings.add(format!("{at}.id"), format!("must be 1 to {MAX_ID} letters, digits, `-`, `_`, `.`"));
    } else if built_in::IDS.contains(&rule.id.as_str()) || protect::FLAGS.contains(&rule.id.as_str()) {
        findings.add(format!("{at}.id"), format!("`{}` is the id of a built-in rule: choose another", rule.id));
    }
    if rule.reason.chars().count() > MAX_REASON || !rule.reason.chars().all(is_plain) {
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
            ("networks", rule.networks.is_empty()),
            ("hosts", rule.hosts.is_empty()),
            ("credentials", rule.credentials.is_empty()),
        ][..],
        &[("changes", rule.changes.is_empty()), ("flags", rule.flags.is_empty())][..],
    );
    let (others, phase, here) = match rule.on {
        Phase::Intent => (effect_only, "effect", "they are not known before the call has run"),
        Phase::Effect => (intent_only, "intent", "an effect is judged by its paths, changes and flags"),
    };
    for (list, _) in others.iter().filter(|(_, empty)| !empty) {
        findings.add(format!("{at}.{list}"), format!("belongs to rules `on: {phase}`: {here}"));
    }
    if rule.on == Phase::Effect && rule.exclusive {
        findings.add(
            format!("{at}.exclusive"),
            "belongs to rules `on: intent`: an effect is judged after its call has run",
        );
    }
    if rule.is_about_network() && rule.decide == Verdict::Preview {
        findings.add(
            format!("{at}.decide"),
            "what a command does on a network cannot be previewed: write auto, prompt or deny",
        );
    }
    if rule.decide == Verdict::Auto && !rule.credentials.is_empty() && rule.networks.is_empty() && rule.hosts.is_empty()
    {
        findings.add(
            format!("{at}.credentials"),
            "open no network by themselves: to allow, name its profile, too (`networks`), or its hosts (`hosts`)",
        );
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
        ("networks", &rule.networks),
        ("hosts", &rule.hosts),
        ("credentials", &rule.credentials),
        ("paths", &rule.paths),
        ("flags", &rule.flags),
    ];
    for (list, entries) in lists {
        if entries.len() > MAX_ENTRIES {
            findings
                .add(format!("{at}.{list}"), format!("has {} entries and the limit is {MAX_ENTRIES}", entries.len()));
        }
        for (index, entry) in entries.iter().enumerate() {
            if let Some(why) = bad_entry(list, entry) {
                findings.add(format!("{at}.{list}[{index}]"), why);
            }
        }
    }
}

/// Whether this may be the name of a network profile or of a credential, as settings and plans take it: at most 64 characters.
fn is_name(entry: &str) -> bool {
    entry.len() <= 64
        && entry.starts_with(|c: char| c.is_ascii_alphanumeric())
        && entry.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// The problem with an entry of a list, apart from glob syntax. Without this check, a condition that can never match would silently disable its
/// rule.
pub(crate) fn bad_entry(list: &str, entry: &str) -> Option<String> {
    if entry.is_empty() || entry.len() > MAX_WORD {
        return Some(format!("must be 1 to {MAX_WORD} bytes"));
    }
    if matches!(list, "programs" | "arguments" | "cwd" | "env" | "hosts" | "paths")
        && entry.matches('*').count() > MAX_STARS
    {
        return Some(format!("has more than {MAX_STARS} stars: split it, or use fewer"));
    }
    match list {
        "programs" if entry.contains('/') => {
            Some(format!("programs are compared by name, without a folder: write `{}`", shown(base_name(entry))))
        }
        "networks" if !is_name(entry) => Some(
            "must be the name of a network profile: 1 to 64 letters, digits, `-`, `_` and `.`, without wildcards"
                .to_owned(),
        ),
        "credentials" if !is_name(entry) => Some(
            "must be the name of a credential of the settings: 1 to 64 letters, digits, `-`, `_` and `.`, without wildcards"
                .to_owned(),
        ),
        "hosts" if entry.contains(|c: char| c.is_ascii_uppercase() || c == '/' || c.is_whitespace()) => Some(
            "must be the name of a host in lower case, without a scheme or a path, such as `*.example.com`".to_owned(),
        ),
        "hosts" if entry.contains(':') && entry.contains(|c: char| c.is_ascii_alphabetic()) => {
            Some("must be the name of a host without a port: ports belong to the profile".to_owned())
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
