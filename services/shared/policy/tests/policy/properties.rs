//! Properties of every policy.

use belay_policy::{
    ChangeFact, ChangeKind, Effect, Gravity, Intent, Policies, Policy, RevisedPolicies, ToolKind, Verdict,
};
use proptest::{prelude::*, sample::select};

use crate::support::*;

const PATHS: [&str; 6] = ["src/a", "src/b/c", "docs/a", ".git/hooks/x", "AGENTS.md", "target"];
const GLOBS: [&str; 6] = ["**", "src/**", "*/a", "**/x", ".git/**", "target/**"];
const FLAGS: [&str; 4] = ["executable", "link_leaves", "protected", "odd_name"];
const WORDS: [&str; 3] = ["auto", "prompt", "deny"];
const KINDS: [ToolKind; 5] = [Other, FileRead, FileWrite, FileDelete, Terminal];

/// A rule without its id.
fn rule() -> impl Strategy<Value = String> {
    let list = |name: &'static str, from: Vec<&'static str>| {
        prop::collection::vec(select(from), 0..3).prop_map(move |words| match words.as_slice() {
            [] => String::new(),
            words => format!(", {name}: ['{}']", words.join("', '")),
        })
    };
    let tools = || list("tools", vec!["run_terminal", "write_file", "delete_file"]);
    let intent = (
        select(vec!["auto", "preview", "prompt", "deny"]),
        tools(),
        list("programs", vec!["make", "git"]),
        list("arguments", vec!["push*", "all"]),
        list("paths", GLOBS.to_vec()),
    );
    let effect = (
        select(WORDS.to_vec()),
        tools(),
        list("paths", GLOBS.to_vec()),
        list("changes", vec!["create", "modify", "delete"]),
        list("flags", FLAGS.to_vec()),
    );
    prop_oneof![
        intent.prop_map(|(decide, a, b, c, d)| format!("on: intent, decide: {decide}{a}{b}{c}{d}")),
        effect.prop_map(|(decide, a, b, c, d)| format!("on: effect, decide: {decide}{a}{b}{c}{d}")),
    ]
}

fn settings() -> impl Strategy<Value = [usize; 3]> {
    prop::array::uniform3(0..3_usize)
}

fn build(settings: [usize; 3], protect: bool, rules: &[String]) -> Policy {
    policy(&written(settings, protect, rules, 0))
}

/// The text of a policy whose rules are numbered from `first` on.
fn written([write, delete, terminal]: [usize; 3], protect: bool, rules: &[String], first: usize) -> String {
    let mut text = format!(
        "file_write: {}\nfile_delete: {}\nterminal_commands: {}\nprotect: {protect}\nrules:\n",
        WORDS[write], WORDS[delete], WORDS[terminal]
    );
    if rules.is_empty() {
        text = text.replace("rules:", "rules: []");
    }
    for (index, rule) in rules.iter().enumerate() {
        text += &format!("  - {{id: r{}, {rule}}}\n", first + index);
    }
    text
}

/// A policy with a section for the namespace `team`.
fn with_section(top: &str, section: &str) -> Policies {
    policies(&format!(
        "{top}namespaces:\n  team:\n{}",
        section.lines().map(|line| format!("    {line}\n")).collect::<String>()
    ))
}

fn changes() -> impl Strategy<Value = Vec<(&'static str, ChangeKind, Vec<&'static str>)>> {
    let change = (
        select(PATHS.to_vec()),
        select(vec![Created, Modified, Deleted]),
        prop::collection::vec(select(vec!["executable", "link_leaves", "odd_name"]), 0..3),
    );
    prop::collection::vec(change, 1..4)
}

fn borrowed<'a>(changes: &'a [(&'static str, ChangeKind, Vec<&'static str>)]) -> Vec<FlaggedChange<'a>> {
    changes.iter().map(|(path, kind, flags)| (*path, *kind, flags.as_slice())).collect()
}

/// The policy of this text, which ends with its rules, with these entries after them.
pub(crate) fn with_entries(text: &str, entries: &[String]) -> Policy {
    let text = text.replace("rules: []", "rules:");
    policy(&entries.iter().fold(text, |text, entry| text + "  - " + entry + "\n"))
}

/// A path as programs may make one, with characters of globs, of YAML and with such as nobody sees.
fn any_path() -> impl Strategy<Value = String> {
    let odd = "[a\\*?\\[\\]{}!\\\\'\" :,#&%@`|>~\u{200b}\u{202e}\u{e9}\u{1f600}\t\n-]{1,6}";
    prop_oneof![select(PATHS.to_vec()).prop_map(str::to_owned), odd.prop_map(|name| format!("d/{name}x"))]
}

proptest! {
    // S2-FR-049
    #[test]
    fn one_more_rule_never_makes_what_a_rule_decided_milder(
        settings in settings(), rules in prop::collection::vec(rule(), 0..4), more in rule(), at in any::<prop::sample::Index>(),
        kind in select(KINDS.to_vec()), said in select(vec![Auto, Preview, Prompt]), changes in changes(),
        words in select(vec!["make all", "git push", "ls"]), path in select(PATHS.to_vec()),
    ) {
        let before = build(settings, true, &rules);
        let mut longer = rules.clone();
        longer.insert(at.index(rules.len() + 1), more);
        let after = build(settings, true, &longer);
        let changes = borrowed(&changes);
        let (old, new) = (intent(&before, kind, words, &[path]), intent(&after, kind, words, &[path]));
        prop_assert!(!old.rule.starts_with('r') || new.verdict >= old.verdict, "{old:?} → {new:?}");
        let (old, new) = (effect(&before, kind, said, &changes), effect(&after, kind, said, &changes));
        prop_assert!(!old.rule.starts_with('r') || new.verdict >= old.verdict, "{old:?} → {new:?}");
    }

    // S2-X-18
    #[test]
    fn a_stricter_setting_never_makes_anything_milder(
        settings in settings(), which in 0..3_usize, rules in prop::collection::vec(rule(), 0..4),
        kind in select(KINDS.to_vec()), changes in changes(), words in select(vec!["make all", "git push", "ls"]),
    ) {
        prop_assume!(settings[which] < 2);
        let mut stricter = settings;
        stricter[which] += 1;
        let changes = borrowed(&changes);
        let mild = outcome(&build(settings, true, &rules), kind, words, &changes);
        let strict = outcome(&build(stricter, true, &rules), kind, words, &changes);
        prop_assert!(strict >= mild, "{mild:?} → {strict:?}");
        let unprotected = outcome(&build(settings, false, &rules), kind, words, &changes);
        prop_assert!(unprotected <= mild, "protection never makes anything milder");
    }

    #[test]
    fn an_effect_is_as_strict_as_its_strictest_change(
        settings in settings(), rules in prop::collection::vec(rule(), 0..4), kind in select(KINDS.to_vec()),
        said in select(vec![Auto, Preview, Prompt]), changes in changes(), granted_path in select(PATHS.to_vec()),
    ) {
        let policy = build(settings, true, &rules);
        let changes = borrowed(&changes);
        let each = |change: &FlaggedChange<'_>| granted(&policy, kind, said, &[granted_path], &[*change]);
        let whole = granted(&policy, kind, said, &[granted_path], &changes);
        let strictest = changes.iter().map(|change| each(change).verdict).max();
        prop_assert_eq!(Some(whole.verdict), strictest);
        prop_assert!(whole.verdict != Preview, "an effect has been previewed");
        let gravity = |(path, kind, flags): &FlaggedChange<'_>| Gravity::of(path, *kind, &texts(flags));
        let gravest = changes.iter().filter(|change| each(change).verdict == whole.verdict).min_by_key(|change| gravity(change));
        prop_assert_eq!(Some(whole), gravest.map(each));
    }

    #[test]
    fn a_grant_never_makes_anything_stricter_and_opens_no_other_path(
        settings in settings(), rules in prop::collection::vec(rule(), 0..4), kind in select(KINDS.to_vec()),
        change in changes(), path in select(PATHS.to_vec()),
    ) {
        let policy = build(settings, true, &rules);
        let change = &borrowed(&change)[..1];
        let (without, with) = (effect(&policy, kind, Prompt, change), granted(&policy, kind, Prompt, &[path], change));
        prop_assert!(with.verdict <= without.verdict);
        if change[0].0 != path {
            prop_assert_eq!(with, without);
        } else if with.verdict != Auto {
            prop_assert!(with.verdict == Deny && with.rule.starts_with('r'), "only a rule's deny stands");
        }
    }

    // A section is the policy that has its settings and the rules of both; other namespaces have nothing of it.
    #[test]
    fn a_section_is_a_policy_of_its_own(
        settings in settings(), own in settings(), rules in prop::collection::vec(rule(), 0..4),
        added in prop::collection::vec(rule(), 0..4), kind in select(KINDS.to_vec()), changes in changes(),
        words in select(vec!["make all", "git push", "ls"]),
    ) {
        let both = with_section(&written(settings, true, &rules, 0), &written(own, false, &added, rules.len()));
        let changes = borrowed(&changes);
        let alone = build(own, false, &[rules.clone(), added].concat());
        prop_assert_eq!(outcome(both.of("team"), kind, words, &changes), outcome(&alone, kind, words, &changes));
        prop_assert_eq!(effect(both.of("team"), kind, Preview, &changes).verdict, effect(&alone, kind, Preview, &changes).verdict);
        prop_assert_eq!(effect(both.of("team"), kind, Preview, &changes).rule, effect(&alone, kind, Preview, &changes).rule);
        prop_assert_eq!(both.of("other"), &build(settings, true, &rules));
    }

    #[test]
    fn what_is_signed_is_what_is_read(settings in settings(), rules in prop::collection::vec(rule(), 0..6), revision in 1..i64::MAX) {
        let section = written([2, 1, 0], false, &rules, rules.len());
        let revised = RevisedPolicies { revision, policies: with_section(&written(settings, true, &rules, 0), &section) };
        let bytes = revised.to_bytes();
        prop_assert_eq!(RevisedPolicies::from_bytes(&bytes), Ok(revised));
    }

    #[test]
    fn no_bytes_panic_and_none_has_two_spellings(at in any::<prop::sample::Index>(), byte in any::<u8>(), rules in prop::collection::vec(rule(), 0..2)) {
        let mut bytes = RevisedPolicies { revision: 1, policies: with_section(&written([0, 1, 1], true, &rules, 0), "file_write: deny\n") }.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = RevisedPolicies::from_bytes(&bytes) {
            prop_assert_eq!(read.to_bytes(), bytes);
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,80}|[a-z:\\[\\]{},&*!|>'\"# \\n-]{0,80}") {
        if let Err(violations) = Policies::from_yaml(&text) {
            prop_assert!(!violations.is_empty());
        }
    }

    #[test]
    fn no_path_panics(path in "\\PC{0,60}|[./a-c]{0,20}", glob in "[a-c*?/{}\\[\\]!,-]{1,12}") {
        let rule = format!("rules: [{{id: r, on: effect, paths: ['{glob}'], decide: deny}}, {{id: i, on: intent, paths: ['{glob}'], decide: deny}}]");
        let policy = Policies::from_yaml(&rule).map_or_else(|_| preset(), |policies| policies.of("n").clone());
        let said = effect(&policy, Terminal, Preview, &[(&path, Created, &[])]).verdict;
        prop_assert!(said >= Verdict::Prompt);
        intent(&policy, FileWrite, "", &[&path]);
    }

    // What is printed as the way through is one, and no wider.
    #[test]
    fn the_rules_for_an_effect_allow_it_and_nothing_else(
        settings in settings(), protect in any::<bool>(), rules in prop::collection::vec(rule(), 0..3),
        kind in select(KINDS.to_vec()), said in select(vec![Auto, Preview, Prompt]), step in "[a-z~.é ]{1,70}",
        changes in prop::collection::vec((any_path(), select(vec![Created, Modified, Deleted]),
            prop::collection::vec(select(vec!["executable", "link_leaves", "odd_name"]), 0..3)), 1..4),
        other in any_path(), other_kind in select(vec![Created, Modified, Deleted]), other_flag in prop::option::of(Just("set_id_stripped")),
    ) {
        let text = written(settings, protect, &rules, 0);
        let before = policy(&text);
        let flags: Vec<Vec<String>> = changes.iter().map(|(_, _, flags)| texts(flags)).collect();
        let facts: Vec<ChangeFact<'_>> =
            changes.iter().zip(&flags).map(|((path, kind, _), flags)| ChangeFact { path, kind: *kind, flags }).collect();
        let effect = Effect { tool: tool(kind), kind, intent: said, granted_paths: &[], changes: &facts };
        let decision = before.effect(&effect);
        let entries = before.rules_for_effect(&step, &effect);
        if entries.is_empty() {
            // A rule that asks or denies is stricter than any that could be added.
            let by_rule = facts.iter().any(|fact| before.effect(&Effect { changes: &[*fact], ..effect }).rule.starts_with('r'));
            prop_assert!(decision.verdict == Auto || by_rule, "{decision:?}");
        } else {
            prop_assert!(decision.verdict > Auto);
            let after = with_entries(&text, &entries);
            prop_assert_eq!(after.effect(&effect).verdict, Auto, "{:?}", entries);
            let flags: Vec<String> = other_flag.into_iter().map(str::to_owned).collect();
            let another = ChangeFact { path: &other, kind: other_kind, flags: &flags };
            if !facts.iter().any(|fact| fact.path == other && fact.kind == other_kind) || other_flag.is_some() {
                let another = Effect { changes: &[another], ..effect };
                let (old, new) = (before.effect(&another).verdict, after.effect(&another).verdict);
                prop_assert!(old == Auto || new > Auto, "{entries:?}");
            }
        }
    }

    #[test]
    fn the_rule_for_a_call_lets_it_run_and_no_other(
        settings in settings(), kind in select(KINDS.to_vec()), words in select(vec!["make all", "git push", "*"]),
        path in any_path(), other in any_path(), directory in prop_oneof![Just(String::new()), any_path()],
        variables in prop::collection::vec(select(vec!["CI", "A*B"]), 0..3),
    ) {
        let text = written(settings, true, &[], 0);
        let variables = texts(&variables);
        let before = policy(&text);
        let paths = if kind == Terminal { texts(&[]) } else { vec![path.clone()] };
        let command = if kind == Terminal { texts(&words.split(' ').collect::<Vec<_>>()) } else { texts(&[]) };
        let asked = Intent {
            tool: tool(kind), kind, command: &command, program: command.first().map(String::as_str), working_directory: &directory,
            environment: &variables, paths: &paths,
            network: None,
            credentials: &[],
        };
        let decision = before.intent(&asked);
        let entries = before.rules_for_intent("s", &asked);
        prop_assert_eq!(entries.is_empty(), decision.verdict < Prompt, "{:?}", decision);
        if !entries.is_empty() {
            let after = with_entries(&text, &entries);
            prop_assert!(after.intent(&asked).verdict < Prompt, "{entries:?}");
            let others = [other.clone()];
            let more = if kind == Terminal {
                vec![Intent { program: Some("elsewhere"), ..asked }, Intent { working_directory: &other, ..asked }]
            } else {
                vec![Intent { paths: &others, ..asked }]
            };
            let key = |of: &Intent<'_>| (of.paths.to_vec(), of.program.map(str::to_owned), of.working_directory.to_owned());
            for another in more {
                if key(&another) != key(&asked) {
                    prop_assert_eq!(before.intent(&another).verdict, after.intent(&another).verdict, "{:?}", entries);
                }
            }
        }
    }
}
