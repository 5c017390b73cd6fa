//! The preset, and the form of a decision.

use belay_policy::{Intent, NonInteractive, Policies, Tier};

use crate::support::*;

// S2-FR-049, S2-X-18, S2-X-19: without any configuration, deletions and changes by commands require approval.
#[test]
fn the_preset() {
    let preset = preset();
    for (kind, verdict, rule) in [
        (FileRead, Auto, "file_read"),
        (FileWrite, Auto, "file_write"),
        (FileDelete, Preview, "file_delete"),
        (Terminal, Preview, "terminal_commands"),
        (Other, Prompt, "no_match"),
    ] {
        assert_eq!(brief(&intent(&preset, kind, "make", &["a"])), (verdict, rule), "{kind:?}");
    }
    let noop = preset.intent(&Intent {
        tool: "noop",
        kind: Other,
        command: &[],
        program: None,
        working_directory: "",
        environment: &[],
        paths: &[],
        network: None,
        credentials: &[],
    });
    assert_eq!(brief(&noop), (Auto, "noop"));
    assert_eq!(preset.min_tier(), Tier::A);
    assert_eq!(preset.non_interactive(), NonInteractive::Fail);
    assert_eq!(Policies::of_one_person(), policies("non_interactive_policy: auto"), "nothing else is milder there");
    assert_eq!(preset.approvals_expire_after(), None);
    assert!(!preset.separate_duties());
    assert_eq!(preset, policy("file_write: auto"), "what a policy leaves out is as in the preset");
    assert_eq!(preset, policy("{}"));
    assert_ne!(preset, policy("protect: false"));
}

#[test]
fn verdicts_and_tiers_have_an_order() {
    assert!(Auto < Preview && Preview < Prompt && Prompt < Deny);
    assert!(Tier::C < Tier::B && Tier::B < Tier::A);
}

/// A decision names its rule and its reason, in text that is safe to show.
#[test]
fn an_answer_names_the_path_and_the_reason() {
    let preset = preset();
    let decision = effect(&preset, FileDelete, Preview, &[("a", Deleted, &[]), ("b", Deleted, &[])]);
    assert_eq!(decision.reason, "`a`: the policy requires approval for deletions");
    let free = effect(&preset, FileWrite, Auto, &[("a", Created, &[]), ("b", Created, &[])]);
    assert_eq!(free.reason, "the policy allowed the call to do this", "`Auto` covers all paths");
    let odd = format!("x\n\u{202e}{}", "y".repeat(300));
    let decision = effect(&preset, Terminal, Preview, &[(&odd, Created, &["new\nflag"])]);
    assert_eq!(decision.rule, "new<U+000A>flag");
    assert!(
        decision.reason.starts_with("`x<U+000A><U+202E>yyy") && decision.reason.chars().count() < 300,
        "{decision:?}"
    );

    let silent = ruled(&["{id: mine, on: effect, paths: [a], decide: deny}"]);
    let decision = effect(&silent, FileWrite, Auto, &[("a", Created, &[])]);
    assert_eq!((brief(&decision), decision.reason.as_str()), ((Deny, "mine"), "`a`: rule `mine` of the policy"));
    let spoken = ruled(&["{id: mine, on: effect, paths: [a], decide: deny, reason: Ask Ann.}"]);
    assert_eq!(effect(&spoken, FileWrite, Auto, &[("a", Created, &[])]).reason, "Ask Ann.");
}

#[test]
fn an_empty_effect_needs_no_approval() {
    let strict = policy("{file_write: deny, file_delete: deny, terminal_commands: deny}");
    assert_eq!(brief(&effect(&strict, Terminal, Preview, &[])), (Auto, "no_change"));
    assert_eq!(brief(&effect(&strict, Terminal, Deny, &[])), (Deny, "intent"));
}

#[test]
fn what_a_denied_call_did_is_never_kept() {
    let open = ruled(&["{id: all, on: effect, decide: auto}"]);
    assert_eq!(brief(&granted(&open, FileWrite, Deny, &["a"], &[("a", Created, &[])])), (Deny, "intent"));
}
