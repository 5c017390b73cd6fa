//! Shorthands for decisions.

use belay_policy::{
    ChangeFact, ChangeKind, Decision, Effect, Intent, NetworkAccess, Policies, Policy, ToolKind, Verdict,
};

pub(crate) use belay_policy::ChangeKind::{Created, Deleted, Modified};
pub(crate) use belay_policy::ToolKind::{FileDelete, FileRead, FileWrite, Other, Terminal};
pub(crate) use belay_policy::Verdict::{Auto, Deny, Preview, Prompt};

/// A policy file that must be valid.
pub(crate) fn policies(yaml: &str) -> Policies {
    Policies::from_yaml(yaml).unwrap_or_else(|violations| panic!("{yaml}\n{violations:?}"))
}

/// The built-in policy.
pub(crate) fn preset() -> Policy {
    Policies::preset().of("default").clone()
}

/// A policy that must be valid, of a namespace without a section.
pub(crate) fn policy(yaml: &str) -> Policy {
    policies(yaml).of("default").clone()
}

/// A policy of these rules, one a line in flow style.
pub(crate) fn ruled(rules: &[&str]) -> Policy {
    policy(&rules.iter().fold("rules:\n".to_owned(), |text, rule| text + "  - " + rule + "\n"))
}

pub(crate) fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

/// The usual tool of a kind.
pub(crate) fn tool(kind: ToolKind) -> &'static str {
    match kind {
        Other => "deploy_production",
        FileRead => "read_file",
        FileWrite => "write_file",
        FileDelete => "delete_file",
        Terminal => "run_terminal",
        ToolKind::Network => "http_request",
    }
}

pub(crate) fn intent(policy: &Policy, kind: ToolKind, command: &str, paths: &[&str]) -> Decision {
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let program = command.first().map(String::as_str).filter(|program| !program.contains('/'));
    let intent = Intent {
        tool: tool(kind),
        kind,
        command: &command,
        program,
        working_directory: "",
        environment: &[],
        paths: &texts(paths),
        network: None,
        credentials: &[],
    };
    policy.intent(&intent)
}

pub(crate) fn command(policy: &Policy, words: &str) -> Decision {
    intent(policy, Terminal, words, &[])
}

/// A change with flags.
pub(crate) type FlaggedChange<'a> = (&'a str, ChangeKind, &'a [&'a str]);

pub(crate) fn effect(policy: &Policy, kind: ToolKind, said: Verdict, changes: &[FlaggedChange<'_>]) -> Decision {
    granted(policy, kind, said, &[], changes)
}

pub(crate) fn granted(
    policy: &Policy,
    kind: ToolKind,
    said: Verdict,
    paths: &[&str],
    changes: &[FlaggedChange<'_>],
) -> Decision {
    let flags: Vec<Vec<String>> = changes.iter().map(|(_, _, flags)| texts(flags)).collect();
    let changes: Vec<ChangeFact<'_>> =
        changes.iter().zip(&flags).map(|(&(path, kind, _), flags)| ChangeFact { path, kind, flags }).collect();
    policy.effect(&Effect { tool: tool(kind), kind, intent: said, granted_paths: &texts(paths), changes: &changes })
}

/// The final verdict on a call: the intent's, or its effect's when it runs without approval.
pub(crate) fn outcome(policy: &Policy, kind: ToolKind, words: &str, changes: &[FlaggedChange<'_>]) -> Verdict {
    let said = intent(policy, kind, words, &[]).verdict;
    if said >= Prompt { said } else { effect(policy, kind, said, changes).verdict }
}

pub(crate) fn brief(decision: &Decision) -> (Verdict, &str) {
    (decision.verdict, &decision.rule)
}

/// A command in a directory, with environment variables of these names.
pub(crate) fn command_in(policy: &Policy, words: &str, directory: &str, environment: &[&str]) -> Decision {
    let command: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let program = command.first().map(String::as_str).filter(|program| !program.contains('/'));
    let environment = texts(environment);
    let intent = Intent {
        tool: tool(Terminal),
        kind: Terminal,
        command: &command,
        program,
        working_directory: directory,
        environment: &environment,
        paths: &[],
        network: None,
        credentials: &[],
    };
    policy.intent(&intent)
}

/// A command that asks for a network profile with these hosts.
pub(crate) fn connected(policy: &Policy, words: &str, profile: &str, hosts: &[&str]) -> (Decision, Vec<String>) {
    with_credentials(policy, words, profile, hosts, &[])
}

/// A command without a network whose program gets the values of these credentials.
pub(crate) fn revealed(policy: &Policy, words: &str, credentials: &[&str]) -> Decision {
    let command: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    policy.intent(&Intent {
        tool: tool(Terminal),
        kind: Terminal,
        command: &command,
        program: command.first().map(String::as_str),
        working_directory: "",
        environment: &[],
        paths: &[],
        network: None,
        credentials: &texts(credentials),
    })
}

/// The same with a profile whose rules have these credentials.
pub(crate) fn with_credentials(
    policy: &Policy,
    words: &str,
    profile: &str,
    hosts: &[&str],
    credentials: &[&str],
) -> (Decision, Vec<String>) {
    let command: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let (hosts, credentials) = (texts(hosts), texts(credentials));
    let intent = Intent {
        tool: tool(Terminal),
        kind: Terminal,
        command: &command,
        program: command.first().map(String::as_str).filter(|program| !program.contains('/')),
        working_directory: "",
        environment: &[],
        paths: &[],
        network: Some(NetworkAccess { profile, hosts: &hosts }),
        credentials: &credentials,
    };
    (policy.intent(&intent), policy.rules_for_intent("s", &intent))
}
