//! The network of commands, which is decided apart from what they run.

use belay_policy::{Intent, NetworkAccess, Policies, ToolKind};

use crate::{properties::with_entries, support::*};

#[test]
fn a_network_requires_approval_until_the_setting_or_a_rule_allows_it() {
    let hosts = ["registry.npmjs.org", "pypi.org"];
    for (text, verdict, rule) in [
        ("{}", Prompt, "network"),
        ("network: deny", Deny, "network"),
        ("network: auto", Preview, "terminal_commands"),
        ("{network: auto, terminal_commands: deny}", Deny, "terminal_commands"),
        ("{network: auto, file_delete: auto, terminal_commands: auto}", Auto, "network"),
        // A rule about programs says nothing of the network, and one about the network nothing of programs.
        ("rules: [{id: npm, on: intent, programs: [npm], decide: auto}]", Prompt, "network"),
        ("rules: [{id: net, on: intent, networks: [registries], decide: auto}]", Preview, "terminal_commands"),
        ("rules: [{id: net, on: intent, networks: [other], decide: auto}]", Prompt, "network"),
        ("rules: [{id: net, on: intent, programs: [pip], networks: [registries], decide: auto}]", Prompt, "network"),
        ("{network: auto, rules: [{id: net, on: intent, networks: [registries], decide: deny}]}", Deny, "net"),
        // To allow, a rule names every host; to prompt or to deny, one is enough.
        ("rules: [{id: net, on: intent, hosts: ['*.npmjs.org'], decide: auto}]", Prompt, "network"),
        (
            "rules: [{id: net, on: intent, hosts: ['*.npmjs.org', pypi.org], decide: auto}]",
            Preview,
            "terminal_commands",
        ),
        ("{network: auto, rules: [{id: net, on: intent, hosts: [pypi.org], decide: deny}]}", Deny, "net"),
        (
            "{network: auto, rules: [{id: net, on: intent, hosts: [example.com], decide: deny}]}",
            Preview,
            "terminal_commands",
        ),
    ] {
        let (decision, _) = connected(&policy(text), "npm ci", "registries", &hosts);
        assert_eq!(brief(&decision), (verdict, rule), "{text}");
    }
}

/// B-33: who may act as whom is decided apart from where: a rule about a credential matches the profiles that have it.
#[test]
fn a_rule_about_a_credential_matches_the_profiles_that_have_it() {
    for (rules, credentials, verdict, rule) in [
        ("{id: c, on: intent, credentials: [forge], decide: prompt}", &["forge"][..], Prompt, "c"),
        ("{id: c, on: intent, credentials: [forge, other], decide: deny}", &["model", "forge"], Deny, "c"),
        ("{id: c, on: intent, credentials: [forge], decide: deny}", &["model"], Auto, "network"),
        ("{id: c, on: intent, credentials: [forge], decide: deny}", &[], Auto, "network"),
        ("{id: c, on: intent, credentials: [forge], networks: [other], decide: deny}", &["forge"], Auto, "network"),
        (
            "{id: c, on: intent, credentials: [forge], hosts: [x.example.com], decide: deny}",
            &["forge"],
            Auto,
            "network",
        ),
    ] {
        let text = format!("{{network: auto, file_delete: auto, terminal_commands: auto, rules: [{rules}]}}");
        let (decision, _) = with_credentials(&policy(&text), "git push", "ci", &["forge.example.com"], credentials);
        assert_eq!(brief(&decision), (verdict, rule), "{rules} {credentials:?}");
    }
    // A program that gets the value of a credential needs no network for that.
    for (rules, verdict, rule) in [
        ("{id: c, on: intent, credentials: [forge], decide: deny}", Deny, "c"),
        ("{id: c, on: intent, credentials: [other], decide: deny}", Auto, "terminal_commands"),
        ("{id: c, on: intent, credentials: [forge], networks: [ci], decide: deny}", Auto, "terminal_commands"),
        ("{id: c, on: intent, credentials: [forge], hosts: ['*'], decide: deny}", Auto, "terminal_commands"),
        ("{id: c, on: intent, credentials: [forge], networks: [ci], decide: auto}", Auto, "terminal_commands"),
    ] {
        let text = format!("{{network: deny, file_delete: auto, terminal_commands: auto, rules: [{rules}]}}");
        let decision = revealed(&policy(&text), "sign it", &["forge"]);
        assert_eq!(brief(&decision), (verdict, rule), "{rules}");
    }
    // To allow, a rule names every credential of the profile, and one that names credentials opens no profile without.
    for (credentials, allowed) in
        [(&["forge"][..], true), (&["forge", "model"], true), (&["forge", "root"], false), (&[], false)]
    {
        let text = "{terminal_commands: auto, rules: [{id: c, on: intent, networks: [ci], credentials: [forge, model], decide: auto}]}";
        let (decision, _) = with_credentials(&policy(text), "git push", "ci", &["forge.example.com"], credentials);
        assert_eq!(decision.verdict < Prompt, allowed, "{credentials:?}");
    }
}

/// A rule that is suggested for a profile with credentials names them: another one that the operator binds later is asked about.
#[test]
fn a_suggested_rule_allows_these_credentials() {
    let text = "network: prompt\nrules:\n";
    let hosts = ["forge.example.com"];
    let (_, entries) = with_credentials(&policy("network: prompt"), "git push", "ci", &hosts, &["forge"]);
    assert!(entries[0].contains("credentials: [\"forge\"]"), "{entries:?}");
    let after = with_entries(text, &entries);
    let verdict = |credentials: &[&str]| with_credentials(&after, "git push", "ci", &hosts, credentials).0.verdict;
    assert!(verdict(&["forge"]) < Prompt);
    assert!(verdict(&["forge", "root"]) >= Prompt && verdict(&["root"]) >= Prompt);
}

/// A profile opens more hosts than its patterns have characters: a rule is compared with what they open.
#[test]
fn hosts_are_compared_with_what_a_profile_opens() {
    let verdict = |rule: &str, hosts: &[&str]| {
        let text = format!("network: auto\nrules: [{{id: net, on: intent, {rule}}}]");
        let text = if rule.contains("auto") { text.replace("network: auto", "network: prompt") } else { text };
        connected(&policy(&text), "npm ci", "ci", hosts).0.verdict
    };
    for (hosts, opens, denied) in [
        ("db.example.com", "*.example.com", true),
        ("db.example.com", "*", true),
        ("db.example.com", "*.example.org", false),
        ("db.example.com", "db.example.com", true),
        ("db.example.com", "example.com", false),
        ("db*", "*.example.com", true),
        ("*.example.com", "*.a.example.com", true),
    ] {
        let found = verdict(&format!("hosts: ['{hosts}'], decide: deny"), &[opens]) == Deny;
        assert_eq!(found, denied, "{hosts} {opens}");
    }
    for (hosts, opens, allowed) in [
        ("?.example.com", "*.example.com", false),
        ("[*].example.com", "*.example.com", false),
        ("*[!a].example.com", "*.example.com", false),
        ("*.example.com", "*.example.com", true),
        ("*.example.com", "*.a.example.com", true),
        ("*", "*", true),
        ("*.example.com", "*", false),
    ] {
        let found = verdict(&format!("hosts: ['{hosts}'], decide: auto"), &[opens]) < Prompt;
        assert_eq!(found, allowed, "{hosts} {opens}");
    }
}

/// A tool that only makes requests is decided about by what is said of the network, and by rules about the tool.
#[test]
fn a_request_is_decided_about_as_its_network_is() {
    for (text, verdict, rule) in [
        ("{}", Prompt, "network"),
        ("network: deny", Deny, "network"),
        ("network: auto", Auto, "network"),
        ("{network: auto, terminal_commands: deny, file_write: deny}", Auto, "network"),
        ("rules: [{id: net, on: intent, networks: [ci], decide: auto}]", Auto, "net"),
        ("rules: [{id: net, on: intent, hosts: [a.example.com], decide: auto}]", Auto, "net"),
        ("rules: [{id: net, on: intent, tools: [fetch_url], hosts: [a.example.com], decide: auto}]", Prompt, "network"),
        ("{network: auto, rules: [{id: no, on: intent, tools: [http_request], decide: deny}]}", Deny, "no"),
        ("{network: auto, rules: [{id: no, on: intent, hosts: ['*.example.com'], decide: deny}]}", Deny, "no"),
    ] {
        let policy = policy(text);
        let decision = policy.intent(&Intent {
            tool: "http_request",
            kind: ToolKind::Network,
            command: &[],
            program: None,
            working_directory: "",
            environment: &[],
            paths: &[],
            network: Some(NetworkAccess { profile: "ci", hosts: &texts(&["a.example.com"]) }),
            credentials: &[],
        });
        assert_eq!(brief(&decision), (verdict, rule), "{text}");
    }
}

#[test]
fn a_command_without_a_network_meets_no_rule_about_networks() {
    let denies = policy("{network: deny, rules: [{id: net, on: intent, networks: [registries], decide: deny}]}");
    assert_eq!(brief(&command(&denies, "npm ci")), (Preview, "terminal_commands"));
}

#[test]
fn the_rules_that_are_suggested_allow_this_program_this_profile() {
    for text in [
        "network: prompt\nrules:\n",
        "terminal_commands: deny\nrules:\n",
        "network: deny\nterminal_commands: deny\nrules:\n",
    ] {
        let (_, entries) =
            connected(&policy(text.trim_end_matches("rules:\n")), "npm ci", "registries", &["registry.npmjs.org"]);
        assert!(entries[0].contains("networks: [\"registries\"]"), "{entries:?}");
        let after = with_entries(text, &entries);
        let verdict = |words, profile| connected(&after, words, profile, &["registry.npmjs.org"]).0.verdict;
        assert!(verdict("npm ci", "registries") < Prompt, "{text}: {entries:?}");
        assert!(verdict("npm ci", "other") >= Prompt && verdict("pip install", "registries") >= Prompt);
    }
    // No rule helps where one decides against it, nor for a program of the workspace.
    let against = policy("rules: [{id: net, on: intent, networks: [registries], decide: deny}]");
    assert!(connected(&against, "npm ci", "registries", &["pypi.org"]).1.is_empty());
    assert!(connected(&policy("{}"), "./build", "registries", &["pypi.org"]).1.is_empty());
}

#[test]
fn rules_about_networks_have_examples_and_are_checked() {
    let tried = "rules: [{id: net, on: intent, networks: [registries], hosts: ['*.npmjs.org'], decide: auto, \
                 match: [{network: registries, hosts: [registry.npmjs.org]}], not_match: [{network: other}, {hosts: [pypi.org]}]}]";
    drop(policy(tried));
    drop(policy(
        "rules: [{id: c, on: intent, networks: [ci], credentials: [a, b], decide: auto, match: [{credentials: [a]}], not_match: [{credentials: [c]}, {credentials: []}]}]",
    ));
    for (text, expected) in [
        (
            "rules: [{id: n, on: intent, networks: [a], decide: preview}]",
            "rules[0].decide: what a command does on a network",
        ),
        (
            "rules: [{id: n, on: effect, networks: [a], decide: deny}]",
            "rules[0].networks: belongs to rules `on: intent`",
        ),
        ("rules: [{id: n, on: effect, hosts: [a], decide: deny}]", "rules[0].hosts: belongs to rules `on: intent`"),
        ("rules: [{id: n, on: intent, networks: [], decide: deny}]", "rules[0].networks"),
        ("rules: [{id: n, on: intent, hosts: ['a[b'], decide: deny}]", "rules[0].hosts[0]: is not a valid glob"),
        (
            "rules: [{id: n, on: intent, networks: ['a*'], decide: deny}]",
            "rules[0].networks[0]: must be the name of a network",
        ),
        (
            "rules: [{id: n, on: intent, hosts: [Example.com], decide: deny}]",
            "rules[0].hosts[0]: must be the name of a host in lower case",
        ),
        (
            "rules: [{id: n, on: intent, hosts: ['https://example.com'], decide: deny}]",
            "rules[0].hosts[0]: must be the name of a host in lower",
        ),
        (
            "rules: [{id: n, on: intent, hosts: ['example.com:443'], decide: deny}]",
            "rules[0].hosts[0]: must be the name of a host without a port",
        ),
        (
            "rules: [{id: n, on: effect, credentials: [a], decide: deny}]",
            "rules[0].credentials: belongs to rules `on: intent`",
        ),
        (
            "rules: [{id: n, on: intent, credentials: ['*'], decide: deny}]",
            "rules[0].credentials[0]: must be the name of a credential",
        ),
        ("rules: [{id: n, on: intent, credentials: [], decide: deny}]", "rules[0].credentials"),
        (
            "rules: [{id: n, on: intent, credentials: [a], decide: preview}]",
            "rules[0].decide: what a command does on a network",
        ),
        (
            "rules: [{id: n, on: intent, hosts: [h], credentials: [a], decide: auto, match: [{credentials: [a, b]}]}]",
            "rules[0].match[0]: the rule `n` does not match this example",
        ),
        (
            "rules: [{id: n, on: intent, credentials: [a], decide: auto}]",
            "rules[0].credentials: open no network by themselves",
        ),
        ("network: maybe", "network: "),
        ("rules: [{id: network, on: intent, decide: deny}]", "rules[0].id: `network` is the id of a built-in rule"),
        (
            "rules: [{id: n, on: intent, networks: [a], decide: deny, match: [{network: b}]}]",
            "rules[0].match[0]: the rule `n` does not match this example",
        ),
    ] {
        let found: Vec<String> = Policies::from_yaml(text).unwrap_err().iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|line| line.contains(expected)), "{text}: {found:?}");
    }
}
