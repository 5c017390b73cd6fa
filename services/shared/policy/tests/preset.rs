//! The built-in policy.

use belay_policy::{ChangeFact, ChangeKind, Effect, Intent, NonInteractive, Policy, Revised, Tier, ToolKind, Verdict};

// S2-X-18, S2-X-19
#[test]
fn writing_is_free_and_deletions_and_commands_are_shown_first() {
    let policy = Policy::preset();
    for (tool, kind, verdict, rule) in [
        ("read_file", ToolKind::FileRead, Verdict::Auto, "file_read"),
        ("write_file", ToolKind::FileWrite, Verdict::Auto, "file_write"),
        ("delete_file", ToolKind::FileDelete, Verdict::Preview, "file_delete"),
        ("run_terminal", ToolKind::Terminal, Verdict::Preview, "terminal_commands"),
        ("noop", ToolKind::Other, Verdict::Auto, "noop"),
        ("deploy_production", ToolKind::Other, Verdict::Prompt, "no_match"),
    ] {
        let decision = policy.intent(&Intent { tool, kind, command: &[], paths: &[] });
        assert_eq!((decision.verdict, decision.rule.as_str()), (verdict, rule), "{tool}");
        assert!(!decision.reason.is_empty(), "{tool}");
    }
    let changes = [ChangeFact { path: "a.txt", kind: ChangeKind::Deleted, flags: &[] }];
    let effect = Effect {
        tool: "delete_file",
        kind: ToolKind::FileDelete,
        intent: Verdict::Preview,
        granted_paths: &[],
        changes: &changes,
    };
    assert_eq!(policy.effect(&effect).verdict, Verdict::Prompt);
    let granted = ["a.txt".to_owned()];
    assert_eq!(policy.effect(&Effect { granted_paths: &granted, ..effect }).verdict, Verdict::Auto);
}

#[test]
fn the_preset_asks_for_the_strongest_sandbox_and_no_time_limit() {
    let policy = Policy::preset();
    assert_eq!(policy.min_tier(), Tier::A);
    assert_eq!(policy.non_interactive(), NonInteractive::Auto);
    assert_eq!(policy.approvals_expire_after(), None);
    assert!(!policy.separate_duties());
    let signed = Revised { revision: 1, policy };
    assert_eq!(Revised::from_bytes(&signed.to_bytes()), Ok(signed));
}
