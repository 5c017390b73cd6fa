//! Sections for namespaces.

use belay_policy::{NonInteractive, Policies, Tier};

use crate::support::*;

const FILE: &str = "
namespaces:
  infra:
    terminal_commands: deny
    approvals: {separate_duties: true}
    sandbox: {min_tier: A}
    rules:
      - {id: no-state, on: effect, paths: ['*.tfstate'], decide: deny}
  sandbox-1: {file_delete: auto, non_interactive_policy: auto, protect: false}
file_write: prompt
sandbox: {min_tier: B}
approvals: {expire_after: 1h}
rules:
  - {id: no-push, on: intent, programs: [git], arguments: [push], decide: deny}
";

// S2-FR-049: a namespace with a section has its settings and both lists of rules, and others have the top's alone.
#[test]
fn a_section_changes_its_namespace_only() {
    let policies = policies(FILE);
    let [infra, sandbox, other] = ["infra", "sandbox-1", "default"].map(|namespace| policies.of(namespace));
    assert_eq!(command(infra, "ls").verdict, Deny);
    assert_eq!(command(sandbox, "ls").verdict, Preview);
    for policy in [infra, sandbox, other] {
        assert_eq!(brief(&command(policy, "git push")), (Deny, "no-push"), "a rule at the top holds everywhere");
        assert_eq!(
            intent(policy, FileWrite, "", &["a"]).verdict,
            Preview,
            "what a section does not set is as at the top"
        );
        assert_eq!(policy.approvals_expire_after(), Some(std::time::Duration::from_secs(3600)));
    }
    let state = [("x.tfstate", Created, &[][..])];
    let denied = effect(infra, FileWrite, Preview, &state);
    assert_eq!(brief(&denied), (Deny, "no-state"));
    assert_eq!(denied.reason, "`x.tfstate`: rule `no-state` of the policy (in namespace `infra`)");
    assert_eq!(command(infra, "git push").reason, "rule `no-push` of the policy");
    assert_eq!(command(infra, "ls").reason, "the policy denies commands (in namespace `infra`)");
    assert_eq!(intent(other, FileWrite, "", &["a"]).reason, "the policy requires approval for writing");
    assert_eq!(effect(other, FileWrite, Preview, &state).verdict, Prompt);
    assert_eq!(intent(sandbox, FileDelete, "", &["a"]).verdict, Auto);
    assert_eq!([infra, sandbox, other].map(|policy| policy.separate_duties()), [true, false, false]);
    assert_eq!([infra, sandbox, other].map(|policy| policy.protects()), [true, false, true]);
    let modes = [NonInteractive::Fail, NonInteractive::Auto, NonInteractive::Fail];
    assert_eq!([infra, sandbox, other].map(|policy| policy.non_interactive()), modes);
    assert_eq!([infra, other].map(|policy| policy.min_tier()), [Tier::A, Tier::B]);
    assert_eq!(policies.min_tier(), Tier::A, "a machine has to be good enough for all");
}

#[test]
fn what_is_wrong_in_a_section_is_named_as_its_author_wrote_it() {
    let refused = |text: &str| -> Vec<String> {
        Policies::from_yaml(text).unwrap_err().iter().map(ToString::to_string).collect()
    };
    for (text, starts) in [
        ("file_write: auto\nnamespaces:\n  a:\n    file_wriite: deny\n", "namespaces.a.file_wriite"),
        ("namespaces: {a: {namespaces: {b: {}}}}", "namespaces.a.namespaces"),
        ("namespaces: {Team: {}}", "namespaces.Team"),
        ("namespaces: {-a: {}}", "namespaces.-a"),
        ("namespaces: [a]", "namespaces"),
        ("namespaces: {a: }", "namespaces.a"),
        ("namespaces: {a: {approvals: {expire_after: 400d}}}", "namespaces.a.approvals.expire_after"),
        (
            "rules: [{id: r, on: intent, decide: deny}]\nnamespaces: {a: {rules: [{id: s, on: intent, decide: auto}, {id: r, on: intent, decide: auto}]}}",
            "namespaces.a.rules[1].id",
        ),
        (
            "rules: [{id: r, on: intent, decide: deny}]\nnamespaces: {a: {rules: [{id: s, on: intent, paths: ['a[']  , decide: auto}]}}",
            "namespaces.a.rules[0].paths[0]",
        ),
    ] {
        let found = refused(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(starts), "{text}: {found:?}");
        assert!(found[0].contains("line "), "{text}: {found:?}");
    }
    let deepest =
        "namespaces: {a: {rules: [{id: r, on: intent, programs: [p], decide: deny, match: [{command: [p, x]}]}]}}";
    assert!(Policies::from_yaml(deepest).is_ok());
    let paths: Vec<String> = (0..400).map(|number| format!("p{number}")).collect();
    let top = format!("rules: [{{id: r, on: effect, decide: deny, paths: [{}]}}]\n", paths.join(", "));
    let sections = |amount| (0..amount).map(|number| format!("  n{number}: {{}}\n")).collect::<String>();
    assert!(Policies::from_yaml(&format!("{top}namespaces:\n{}", sections(50))).is_ok());
    let found = refused(&format!("{top}namespaces:\n{}", sections(51)));
    assert!(
        found[0].contains("namespaces: the globs at the top (400) count once more for each section, which makes 20400"),
        "{found:?}"
    );
    let many: String = (0..101).map(|number| format!("  n{number}: {{}}\n")).collect();
    assert!(refused(&format!("namespaces:\n{many}"))[0].contains("101 namespaces and the limit is 100"));
}
