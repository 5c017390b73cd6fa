//! Judges intents and effects.
//!
//! The strictest of the rules that match wins, and of equally strict ones the first. When none matches, the simple settings apply. A call that
//! names or changes several paths is judged path by path, and the strictest verdict applies.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use belay_yaml::shown;

use crate::{
    ChangeFact, ChangeKind, Decision, Effect, Gravity, Intent, Policy, ToolKind, Verdict, built_in,
    document::{Document, Setting},
    patterns::{Hits, plain},
    policy::Section,
    protect,
    quote::plain_or_quoted,
    rules::{fits_change, fits_credentials, fits_environment, fits_network, names},
};

/// The one tool that touches nothing at all.
const NOOP: &str = "noop";

/// The tool that commits what the calls of a step have changed, each of which was judged by itself.
pub const COMMIT_CHANGES: &str = "commit_changes";

/// The tool that drops the changes of a step that conflict with what others have done since. It is never asked about either.
pub const REBASE_CHANGES: &str = "rebase_changes";

/// Where a verdict comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// The rule at this index of the document.
    Rule(usize),
    /// A built-in rule, with its reason.
    BuiltIn(&'static str, &'static str),
    /// A flag.
    Flag(&'a str),
}

pub(crate) type SourcedVerdict<'a> = (Verdict, Source<'a>);

/// The strictest, and of equally strict ones the first.
fn strictest<'a>(answers: impl IntoIterator<Item = SourcedVerdict<'a>>) -> Option<SourcedVerdict<'a>> {
    answers.into_iter().reduce(|best, next| if next.0 > best.0 { next } else { best })
}

impl Policy {
    /// Judges a call that has not run.
    pub fn intent(&self, intent: &Intent<'_>) -> Decision {
        if !self.allows_program_of(intent) {
            let reason = self.placed(self.not_allowed(intent), Source::BuiltIn(built_in::PROGRAMS, ""));
            return Decision { verdict: Verdict::Deny, rule: built_in::PROGRAMS.to_owned(), reason, exclusive: false };
        }
        let (of_call, exclusive) = self.judged_intent(intent);
        // The two decide apart, and the stricter verdict holds: no rule about programs opens a network.
        let answer = strictest(self.judged_network(intent).into_iter().chain([of_call])).unwrap_or(of_call);
        Decision { exclusive, ..self.decision(answer, None) }
    }

    /// The verdict of rules and settings on the network that a call asks for, and on the credentials that it would use; `None` when it asks for no network and no
    /// rule is about its credentials.
    pub(crate) fn judged_network(&self, intent: &Intent<'_>) -> Option<SourcedVerdict<'static>> {
        let network = intent.network;
        if network.is_none() && intent.credentials.is_empty() {
            return None;
        }
        let (rules, document) = (&self.intents, &*self.document);
        let named = network.map_or(&[][..], |network| network.hosts);
        let hosts: HashMap<&str, Hits> = named.iter().map(|host| (host.as_str(), rules.host(host))).collect();
        let fits = self.fits_but_paths(intent);
        let mut hits = rules.new_hits();
        intent.paths.iter().for_each(|path| rules.path(&plain(path), &mut hits));
        let matching = rules.places().filter(|(index, place)| {
            let rule = &document.rules[*place];
            rule.is_about_network()
                && fits(*index, *place)
                && (rule.paths.is_empty() || hits.met(*index))
                && fits_credentials(rule, intent.credentials)
                && match network {
                    Some(network) => fits_network(rule, network, |host| hosts[host].met(*index)),
                    None => rule.networks.is_empty() && rule.hosts.is_empty(),
                }
        });
        let ruled = strictest(matching.map(|(_, place)| (document.rules[place].decide, Source::Rule(place))));
        let by_setting = network.map(|_| match document.network {
            Setting::Auto => (Verdict::Auto, Source::BuiltIn(built_in::NETWORK, NETWORKS[0])),
            Setting::Prompt => (Verdict::Prompt, Source::BuiltIn(built_in::NETWORK, NETWORKS[1])),
            Setting::Deny => (Verdict::Deny, Source::BuiltIn(built_in::NETWORK, NETWORKS[2])),
        });
        ruled.or(by_setting)
    }

    /// Whether the conditions of a rule match that depend neither on paths nor on a network: by the rule's index among those on intents, and its place.
    fn fits_but_paths(&self, intent: &Intent<'_>) -> impl Fn(usize, usize) -> bool {
        let rules = &self.intents;
        let (programs, arguments) = (rules.programs(intent.program), rules.arguments(intent.command));
        let directories = rules.directories(intent.working_directory);
        let variables: HashMap<&str, Hits> =
            intent.environment.iter().map(|name| (name.as_str(), rules.variable(name))).collect();
        let document = &*self.document;
        move |index: usize, place: usize| {
            let rule = &document.rules[place];
            names(&rule.tools, intent.tool)
                && (rule.programs.is_empty() || programs.met(index))
                && (rule.arguments.is_empty() || arguments.met(index))
                && (rule.cwd.is_empty() || directories.met(index))
                && fits_environment(rule, intent.environment, |name| variables[name].met(index))
        }
    }

    /// The verdict of rules and settings on a call that has not run, and whether it must have the workspace to itself.
    pub(crate) fn judged_intent(&self, intent: &Intent<'_>) -> (SourcedVerdict<'static>, bool) {
        let (rules, document) = (&self.intents, &*self.document);
        let fits = self.fits_but_paths(intent);
        let own = |place: usize| !document.rules[place].is_about_network();
        let fitting: Vec<(usize, usize)> =
            rules.places().filter(|(index, place)| own(*place) && fits(*index, *place)).collect();
        let mut hits = rules.new_hits();
        let mut exclusive = false;
        let mut judge = |path: Option<&str>| {
            if let Some(path) = path {
                rules.path(&plain(path), &mut hits);
            }
            let matching = fitting.iter().filter(|(index, place)| {
                document.rules[*place].paths.is_empty() || (path.is_some() && hits.met(*index))
            });
            let matching = matching.inspect(|(_, place)| exclusive |= document.rules[*place].exclusive);
            strictest(matching.map(|(_, place)| (document.rules[*place].decide, Source::Rule(*place))))
                .unwrap_or_else(|| unmatched_intent(document, intent))
        };
        let answer = match intent.paths {
            [] => judge(None),
            paths => strictest(paths.iter().map(|path| judge(Some(path)))).expect("there is a path"),
        };
        (answer, exclusive)
    }

    /// Whether `allowed_commands` lets the call run. No rule changes that.
    pub(crate) fn allows_program_of(&self, intent: &Intent<'_>) -> bool {
        let Some(allowed) = self.document.allowed_commands.as_ref().filter(|_| intent.kind == ToolKind::Terminal)
        else {
            return true;
        };
        intent.program.is_some_and(|program| allowed.iter().any(|name| name == program))
    }

    /// Why a command may not start, and the line by which it may.
    fn not_allowed(&self, intent: &Intent<'_>) -> String {
        let Some(program) = intent.program else {
            let program = intent.command.first().map(|program| shown(program)).unwrap_or_default();
            return format!(
                "the policy's `allowed_commands` names programs on the PATH outside of the workspace, and `{program}` is not one of them"
            );
        };
        format!(
            "`{}` is not one of the policy's `allowed_commands`; to allow it, write `{}`",
            shown(program),
            self.setting_for_program(program)
        )
    }

    /// The line of the policy by which commands may start this program too.
    fn setting_for_program(&self, program: &str) -> String {
        let names = self.document.allowed_commands.iter().flatten().map(String::as_str);
        let names: Vec<String> = names.chain([program]).map(plain_or_quoted).collect();
        format!("allowed_commands: [{}]", names.join(", "))
    }

    /// The verdict on each change, in their order.
    pub(crate) fn judged<'a, 'e>(
        &'e self,
        effect: &'e Effect<'a>,
    ) -> impl Iterator<Item = (&'a ChangeFact<'a>, SourcedVerdict<'a>)> + 'e {
        let rules = &self.effects;
        let document = &*self.document;
        let fitting: Vec<(usize, usize)> =
            rules.places().filter(|(_, place)| names(&document.rules[*place].tools, effect.tool)).collect();
        let granted: HashSet<_> = effect.granted_paths.iter().map(|path| plain(path)).collect();
        let mut hits = rules.new_hits();
        effect.changes.iter().map(move |change| {
            if !fitting.is_empty() {
                rules.path(change.path, &mut hits);
            }
            let protected = protect::is_protected(change.path);
            let matching = fitting.iter().filter(|(index, place)| {
                let rule = &document.rules[*place];
                (rule.paths.is_empty() || hits.met(*index)) && fits_change(rule, change, protected)
            });
            let matching: Vec<usize> = matching.map(|(_, place)| *place).collect();
            (change, self.change(effect, change, &matching, protected, granted.contains(change.path)))
        })
    }

    /// Judges what a call changed in its view.
    pub fn effect(&self, effect: &Effect<'_>) -> Decision {
        if effect.intent == Verdict::Deny {
            let reason = "the call itself is denied, so its changes are discarded";
            return self.decision((Verdict::Deny, Source::BuiltIn(built_in::INTENT, reason)), None);
        }
        // The strictest verdict, and of equally strict ones that of the gravest change: its path is what a person sees first.
        let mut worst: Option<(SourcedVerdict<'_>, Gravity, &str)> = None;
        for (change, answer) in self.judged(effect) {
            let gravity = Gravity::of(change.path, change.kind, change.flags);
            if worst.is_none_or(|(worst, known, _)| (answer.0, Reverse(gravity)) > (worst.0, Reverse(known))) {
                worst = Some((answer, gravity, change.path));
            }
        }
        match worst {
            Some((answer, _, path)) => self.decision(answer, Some(path)),
            None => self.decision((Verdict::Auto, Source::BuiltIn(built_in::NO_CHANGE, "it changed nothing")), None),
        }
    }

    /// Judges one change; `matching` are the indexes of the rules that match it.
    fn change<'a>(
        &self,
        effect: &Effect<'_>,
        change: &ChangeFact<'a>,
        matching: &[usize],
        protected: bool,
        granted: bool,
    ) -> SourcedVerdict<'a> {
        let document = &*self.document;
        let ruled = strictest(matching.iter().map(|place| (document.rules[*place].decide, Source::Rule(*place))));
        if granted && ruled.is_none_or(|(verdict, _)| verdict < Verdict::Deny) {
            return (Verdict::Auto, Source::BuiltIn(built_in::GRANTED, "a person approved the call with this path"));
        }
        // A rule overrides a flag only when it names the flag, so that a rule for a whole folder does not allow protected paths in it.
        let named =
            |flag: &str| matching.iter().any(|place| document.rules[*place].flags.iter().any(|name| name == flag));
        let raised = (protected && document.protect).then_some(protect::PROTECTED);
        let flags =
            raised.into_iter().chain(change.flags.iter().map(String::as_str).filter(|flag| protect::asks(flag)));
        let flag = flags.into_iter().find(|flag| !named(flag)).map(|flag| (Verdict::Prompt, Source::Flag(flag)));
        let unmatched = ruled.is_none().then(|| unmatched_change(document, effect, change.kind));
        strictest([ruled, flag, unmatched].into_iter().flatten()).expect("when no rule matches, a setting applies")
    }

    /// A verdict with its reason; `path` is the path whose change was judged.
    fn decision(&self, (verdict, source): SourcedVerdict<'_>, path: Option<&str>) -> Decision {
        // `Auto` covers all paths, any other verdict this path.
        let about =
            path.filter(|_| verdict > Verdict::Auto).map(|path| format!("`{}`: ", shown(path))).unwrap_or_default();
        let (rule, reason) = match source {
            Source::Rule(place) => {
                let rule = &self.document.rules[place];
                let reason = if rule.reason.is_empty() {
                    format!("{about}rule `{}` of the policy", rule.id)
                } else {
                    rule.reason.clone()
                };
                (rule.id.clone(), reason)
            }
            Source::BuiltIn(rule, reason) => (rule.to_owned(), format!("{about}{reason}")),
            Source::Flag(flag) => (shown(flag), format!("{about}{}", protect::meaning(flag))),
        };
        Decision { verdict, rule, reason: self.placed(reason, source), exclusive: false }
    }

    /// The reason with the namespace whose section may have decided: who reads it finds the rule or the setting in the file.
    fn placed(&self, reason: String, source: Source<'_>) -> String {
        match &self.section {
            Some(section) if is_of_section(section, source) => {
                format!("{reason} (in namespace `{}`)", section.namespace)
            }
            Some(_) | None => reason,
        }
    }
}

/// Whether this may be from a section: its own rules are, and settings, which it can replace.
fn is_of_section(section: &Section, source: Source<'_>) -> bool {
    match source {
        Source::Rule(place) => place >= section.inherited,
        Source::BuiltIn(rule, _) => built_in::SETTINGS.contains(&rule),
        Source::Flag(_) => false,
    }
}

/// Applies the settings to a call that no rule matches.
fn unmatched_intent(document: &Document, intent: &Intent<'_>) -> SourcedVerdict<'static> {
    let of = |setting: Setting, id, reasons: [&'static str; 3]| match setting {
        Setting::Auto => (Verdict::Auto, Source::BuiltIn(id, reasons[0])),
        Setting::Prompt => (Verdict::Preview, Source::BuiltIn(id, reasons[1])),
        Setting::Deny => (Verdict::Deny, Source::BuiltIn(id, reasons[2])),
    };
    match intent.kind {
        ToolKind::FileRead => (Verdict::Auto, Source::BuiltIn(built_in::FILE_READ, "reading changes nothing")),
        ToolKind::FileWrite => of(document.file_write, built_in::FILE_WRITE, WRITES),
        ToolKind::FileDelete => of(document.file_delete, built_in::FILE_DELETE, DELETES),
        // A command may write and delete: unless both are allowed, it runs in a view and its effect is judged.
        ToolKind::Terminal if document.terminal_commands == Setting::Auto && !all_auto(document) => (
            Verdict::Preview,
            Source::BuiltIn(built_in::TERMINAL, "commands run, and the policy judges what they change"),
        ),
        ToolKind::Terminal => of(document.terminal_commands, built_in::TERMINAL, COMMANDS),
        ToolKind::Network => {
            (Verdict::Auto, Source::BuiltIn(built_in::NETWORK, "the network that it asks for is judged"))
        }
        ToolKind::Other if intent.tool == COMMIT_CHANGES => (
            Verdict::Auto,
            Source::BuiltIn(built_in::COMMIT_CHANGES, "it changes nothing beyond what the calls of its step did"),
        ),
        ToolKind::Other if intent.tool == REBASE_CHANGES => (
            Verdict::Auto,
            Source::BuiltIn(built_in::REBASE_CHANGES, "it drops changes that are not committed, and makes none"),
        ),
        ToolKind::Other if intent.tool == NOOP => (Verdict::Auto, Source::BuiltIn(built_in::NOOP, "it does nothing")),
        ToolKind::Other => (Verdict::Prompt, Source::BuiltIn(built_in::NO_MATCH, NO_MATCH)),
    }
}

// The reasons of a setting when it is auto, prompt and deny.
const WRITES: [&str; 3] =
    ["the policy allows writing", "the policy requires approval for writing", "the policy denies writing"];
const DELETES: [&str; 3] =
    ["the policy allows deletions", "the policy requires approval for deletions", "the policy denies deletions"];
const COMMANDS: [&str; 3] = [
    "the policy allows commands",
    "the policy requires approval for changes by commands",
    "the policy denies commands",
];
const NETWORKS: [&str; 3] = [
    "the policy allows calls a network",
    "the policy requires approval for calls with a network",
    "the policy denies calls a network",
];
const NO_MATCH: &str = "no rule or setting covers this tool";
const INTENT: &str = "the policy allowed the call to do this";

fn all_auto(document: &Document) -> bool {
    [document.file_write, document.file_delete, document.terminal_commands] == [Setting::Auto; 3]
}

/// Applies the settings to a change that no rule matches.
///
/// The setting for the tool requires approval at most: if it denies the tool, the call ran only because a rule allowed it. The setting for the
/// kind of change may deny it, whichever tool made it. When the intent was auto, the tool's own kind of change is auto as well.
fn unmatched_change(document: &Document, effect: &Effect<'_>, change: ChangeKind) -> SourcedVerdict<'static> {
    let (of_change, id, reasons) = match change {
        ChangeKind::Created | ChangeKind::Modified => (document.file_write, built_in::FILE_WRITE, WRITES),
        ChangeKind::Deleted => (document.file_delete, built_in::FILE_DELETE, DELETES),
    };
    let auto = effect.intent == Verdict::Auto;
    let own = match effect.kind {
        ToolKind::FileWrite => change != ChangeKind::Deleted,
        ToolKind::FileDelete => change == ChangeKind::Deleted,
        _ => false,
    };
    let by_change = match of_change {
        _ if own && auto => (Verdict::Auto, Source::BuiltIn(built_in::INTENT, INTENT)),
        Setting::Auto => (Verdict::Auto, Source::BuiltIn(id, reasons[0])),
        Setting::Deny => (Verdict::Deny, Source::BuiltIn(id, reasons[2])),
        // A command's intent is auto only by a rule, or when every setting is auto. A rule knows the program but not what it will do, so it
        // allows what the command writes, but no deletion.
        Setting::Prompt
            if auto && change != ChangeKind::Deleted && matches!(effect.kind, ToolKind::Terminal | ToolKind::Other) =>
        {
            (Verdict::Auto, Source::BuiltIn(built_in::INTENT, INTENT))
        }
        Setting::Prompt => (Verdict::Prompt, Source::BuiltIn(id, reasons[1])),
    };
    let by_tool = match effect.kind {
        ToolKind::Terminal if !auto && document.terminal_commands != Setting::Auto => {
            Some((Verdict::Prompt, Source::BuiltIn(built_in::TERMINAL, COMMANDS[1])))
        }
        ToolKind::Other if !auto => Some((Verdict::Prompt, Source::BuiltIn(built_in::NO_MATCH, NO_MATCH))),
        ToolKind::FileRead => {
            Some((Verdict::Prompt, Source::BuiltIn(built_in::FILE_READ, "a read-only tool changed something")))
        }
        _ => None,
    };
    strictest(by_tool.into_iter().chain([by_change])).expect("the setting for the change applies")
}
