//! Checks what the documentation shows.

use belay_policy::{ChangeKind, NonInteractive, Policies, Verdict};

use crate::support::*;

const EXAMPLE: &str = include_str!("../../../../../docs/examples/policy.yaml");
const GUIDE: &str = include_str!("../../../../../docs/user-guide/policies.md");

// S2-X-18, S2-X-19
#[test]
fn the_example_does_what_its_comments_say() {
    let example = policy(EXAMPLE);
    assert_eq!(example.non_interactive(), NonInteractive::Fail);
    assert_eq!(example.approvals_expire_after(), Some(std::time::Duration::from_secs(86_400)));
    for (words, answer) in [
        ("kubectl apply", (Verdict::Deny, "no-deploy")),
        ("npm publish", (Verdict::Prompt, "ask-before-publishing")),
        ("npm install", (Verdict::Preview, "terminal_commands")),
    ] {
        assert_eq!(brief(&command(&example, words)), answer, "{words}");
    }
    for (path, kind, flags, answer) in [
        ("target/debug/app", ChangeKind::Created, &["executable"][..], (Verdict::Auto, "build-output")),
        ("web/node_modules/x", ChangeKind::Deleted, &[], (Verdict::Auto, "build-output")),
        ("src/main.rs", ChangeKind::Modified, &[], (Verdict::Prompt, "terminal_commands")),
        ("db/migrations/1.sql", ChangeKind::Modified, &[], (Verdict::Deny, "migrations")),
        (".github/workflows/ci.yml", ChangeKind::Modified, &[], (Verdict::Deny, "workflows")),
        (".envrc", ChangeKind::Created, &[], (Verdict::Prompt, "protected")),
    ] {
        assert_eq!(brief(&effect(&example, Terminal, Verdict::Preview, &[(path, kind, flags)])), answer, "{path}");
    }
    assert_eq!(effect(&example, FileWrite, Verdict::Auto, &[("src/main.rs", Modified, &[])]).verdict, Verdict::Auto);
}

/// The guide's blocks that begin with a fence of the given kind.
fn blocks(kind: &str) -> Vec<&'static str> {
    let fence = format!("```{kind}\n");
    GUIDE.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn every_policy_of_the_guide_is_valid_and_what_it_calls_wrong_is_refused() {
    let good = blocks("yaml");
    assert!(good.len() >= 5, "{}", good.len());
    good.into_iter().for_each(|text| drop(policy(text)));
    let refused = blocks("yaml refused");
    assert!(!refused.is_empty());
    for text in refused {
        let shown: Vec<String> = Policies::from_yaml(text).unwrap_err().iter().map(ToString::to_string).collect();
        for line in &shown {
            assert!(GUIDE.contains(line.as_str()), "the guide does not show this message: {line}");
        }
    }
}

// S2-X-21, S2-NFR-013: a list of allowed commands.
#[test]
fn only_the_commands_of_a_list_are_allowed() {
    let list = blocks("yaml").into_iter().find(|text| text.contains("allowed_commands: [")).unwrap();
    let policy = policy(list);
    for words in ["npm test", "dotnet build", "git status"] {
        assert_eq!(brief(&command(&policy, words)), (Verdict::Preview, "terminal_commands"), "{words}");
    }
    for words in ["curl x", "./npm test", "sh -c npm", "npmx"] {
        assert_eq!(brief(&command(&policy, words)), (Verdict::Deny, "allowed_commands"), "{words}");
    }
}

#[test]
fn the_preset_of_the_guide_is_the_preset() {
    assert_eq!(blocks("yaml").into_iter().map(policies).next(), Some(Policies::preset()));
}

/// The table of protected paths in the guide is made from the one in the code: `BELAY_UPDATE=1` writes it.
#[test]
fn the_guide_lists_every_protected_path() {
    const BEGIN: &str = "<!-- protected paths: made from services/shared/policy/src/protect/table.rs -->\n";
    const END: &str = "<!-- end -->\n";
    let mut table = String::from("| paths | why |\n|---|---|\n");
    for row in belay_policy::PROTECTED_PATHS {
        let paths: Vec<String> = row.paths.iter().map(|path| format!("`{path}`")).collect();
        table.push_str(&format!("| {} | {} |\n", paths.join(" "), row.reason));
    }
    let (before, rest) = GUIDE.split_once(BEGIN).expect("the table has a beginning");
    let (shown, after) = rest.split_once(END).expect("the table has an end");
    if std::env::var_os("BELAY_UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/user-guide/policies.md");
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(shown, table, "run this test with BELAY_UPDATE=1");
    }
}
