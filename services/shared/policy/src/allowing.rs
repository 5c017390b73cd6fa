//! The rules that would allow what a policy does not: what a person may add to the policy, so that the same call needs no approval next time.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
};

use crate::{
    ChangeKind, Effect, Intent, NetworkAccess, Policy, Verdict, check,
    judge::{Source, SourcedVerdict},
    protect::{self, PROTECTED},
    quote::quoted,
    rules::directory_name,
};

/// The longest rule, in bytes: what a failure's metadata takes.
const MAX_RULE: usize = 1_000;
/// The most rules. An effect that needs more is better allowed by a rule about its folders, which only a person can choose.
const MAX_RULES: usize = 8;
/// More paths than fit into so many rules.
const MAX_PATHS: usize = MAX_RULES * MAX_RULE / 4;
/// The longest part of an id that comes from a step, in characters: ids have at most 64.
const MAX_STEP: usize = 48;

impl Policy {
    /// Entries for the policy's `rules` that allow exactly these changes of this tool: their paths, kinds and flags, and no others. `step` becomes part
    /// of their ids. Each is one line of YAML of at most 1,000 bytes, without characters that mislead.
    ///
    /// Empty when the effect is allowed; when a rule of the policy decides against it, since the strictest rule wins, whatever is added; when the
    /// call itself is denied; and when the changes do not fit into eight such lines.
    pub fn rules_for_effect(&self, step: &str, effect: &Effect<'_>) -> Vec<String> {
        if effect.intent == Verdict::Deny {
            return Vec::new();
        }
        let mut groups: BTreeMap<(ChangeKind, Vec<&str>), Vec<String>> = BTreeMap::new();
        let mut paths = 0;
        for (change, (verdict, source)) in self.judged(effect) {
            if verdict == Verdict::Auto {
                continue;
            }
            let path = literal(change.path);
            if matches!(source, Source::Rule(_)) || check::bad_entry("paths", &path).is_some() {
                return Vec::new();
            }
            let protected = self.document.protect && protect::is_protected(change.path);
            let flags = protected.then_some(PROTECTED).into_iter();
            let flags = flags.chain(change.flags.iter().map(String::as_str).filter(|flag| protect::asks(flag)));
            let flags: Vec<&str> = flags.collect();
            if flags.iter().any(|flag| !protect::FLAGS.contains(flag)) {
                return Vec::new();
            }
            groups.entry((change.kind, flags)).or_default().push(path);
            paths += 1;
            if paths > MAX_PATHS {
                return Vec::new();
            }
        }
        let mut rules = Vec::new();
        for ((kind, flags), paths) in groups {
            let flags = if flags.is_empty() { String::new() } else { format!(", flags: [{}]", flags.join(", ")) };
            let end = format!("], changes: [{}]{flags}, decide: auto}}", word(kind));
            let mut rest = paths.iter().map(|path| quoted(path)).peekable();
            while rest.peek().is_some() {
                let mut rule = format!(
                    "{{id: {}, on: effect, tools: [{}], paths: [",
                    self.id(step, rules.len()),
                    quoted(effect.tool)
                );
                let mut entries = 0;
                while let Some(path) = rest.next_if(|path| rule.len() + 2 + path.len() + end.len() <= MAX_RULE) {
                    let comma = if entries == 0 { "" } else { ", " };
                    let _ = write!(rule, "{comma}{path}");
                    entries += 1;
                }
                if entries == 0 || rules.len() == MAX_RULES {
                    return Vec::new();
                }
                rules.push(rule + &end);
            }
        }
        rules
    }

    /// An entry for the policy's `rules` that lets this call run: this tool with these paths; or this program in this directory, with any arguments, and
    /// where the call has variables, with one of these. What a command changes is judged as any other effect, so that its arguments allow nothing. As
    /// [`Policy::rules_for_effect`]. Where the call asks for a network, one more entry allows this program this profile.
    pub fn rules_for_intent(&self, step: &str, intent: &Intent<'_>) -> Vec<String> {
        let of_call = self.judged_intent(intent).0;
        let asks = |(verdict, _): &SourcedVerdict<'_>| *verdict >= Verdict::Prompt;
        let is_ruled = |(_, source): &SourcedVerdict<'_>| matches!(source, Source::Rule(_));
        let of_network = self.judged_network(intent).filter(asks);
        let is_command = !intent.command.is_empty();
        if !self.allows_program_of(intent)
            || (is_command && intent.program.is_none())
            || of_network.as_ref().is_some_and(is_ruled)
            || asks(&of_call) && is_ruled(&of_call)
        {
            return Vec::new();
        }
        let network = of_network.and(intent.network).map(|network| self.rule_for_network(step, intent, network));
        let call = asks(&of_call).then(|| self.rule_for_call(step, usize::from(network.is_some()), intent));
        // Each of them alone would change nothing.
        let rules: Option<Vec<String>> = network.into_iter().chain(call).collect();
        rules.unwrap_or_default()
    }

    /// The rule that allows this program this network profile. `None` when it would be too long.
    fn rule_for_network(&self, step: &str, intent: &Intent<'_>, network: NetworkAccess<'_>) -> Option<String> {
        let program = intent.program.map(|program| format!(", programs: [{}]", quoted(&literal(program))));
        let variables: Vec<String> = intent.environment.iter().map(|name| quoted(&literal(name))).collect();
        let credentials: Vec<String> = intent.credentials.iter().map(|name| quoted(name)).collect();
        let rule = format!(
            "{{id: {}, on: intent, tools: [{}]{}{}, networks: [{}]{}, decide: auto}}",
            self.id(step, 0),
            quoted(intent.tool),
            program.unwrap_or_default(),
            if variables.is_empty() { String::new() } else { format!(", env: [{}]", variables.join(", ")) },
            quoted(network.profile),
            // Where it has some, another that the operator binds to the profile is asked about again.
            if credentials.is_empty() { String::new() } else { format!(", credentials: [{}]", credentials.join(", ")) },
        );
        (rule.len() <= MAX_RULE).then_some(rule)
    }

    /// The rule that lets this call run, apart from its network. `None` when none could.
    fn rule_for_call(&self, step: &str, index: usize, intent: &Intent<'_>) -> Option<String> {
        let is_command = !intent.command.is_empty();
        let list = |name: &str, entries: Vec<String>| {
            let entries: Vec<String> = entries.iter().map(|entry| quoted(entry)).collect();
            if entries.is_empty() { String::new() } else { format!(", {name}: [{}]", entries.join(", ")) }
        };
        let paths: Vec<String> = intent.paths.iter().map(|path| literal(&crate::patterns::plain(path))).collect();
        if paths.iter().any(|path| check::bad_entry("paths", path).is_some()) {
            return None;
        }
        let directory = directory_name(intent.working_directory);
        let directory = if is_command {
            vec![if directory == "." { ".".to_owned() } else { literal(&directory) }]
        } else {
            Vec::new()
        };
        if directory.iter().any(|directory| check::bad_entry("cwd", directory).is_some()) {
            return None;
        }
        let variables =
            if is_command { intent.environment.iter().map(|name| literal(name)).collect() } else { Vec::new() };
        // What a command does is judged when it has run.
        let decide = if is_command { "preview" } else { "auto" };
        let rule = format!(
            "{{id: {}, on: intent, tools: [{}]{}{}{}{}, decide: {decide}}}",
            self.id(step, index),
            quoted(intent.tool),
            list("programs", intent.program.map(literal).into_iter().collect()),
            list("cwd", directory),
            list("env", variables),
            list("paths", paths),
        );
        (rule.len() <= MAX_RULE).then_some(rule)
    }

    /// An id that no rule has, the `index`th of those for a step.
    fn id(&self, step: &str, index: usize) -> String {
        let taken: HashSet<&str> = self.document.rules.iter().map(|rule| rule.id.as_str()).collect();
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let base: String = "allow-".chars().chain(step.chars().take(MAX_STEP).map(plain)).collect();
        let numbered = |number: usize| if number == 0 { base.clone() } else { format!("{base}-{}", number + 1) };
        let mut free = (0..).map(numbered).filter(|id| !taken.contains(id.as_str()));
        free.nth(index).expect("there are more numbers than rules")
    }
}

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Created => "create",
        ChangeKind::Modified => "modify",
        ChangeKind::Deleted => "delete",
    }
}

/// The glob that matches this text alone.
fn literal(text: &str) -> String {
    let escaped = |c: char| matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\').then_some('\\');
    text.chars().flat_map(|c| escaped(c).into_iter().chain([c])).collect()
}
