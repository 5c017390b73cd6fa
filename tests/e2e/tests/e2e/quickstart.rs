//! The first plan that people try, on a copy of a real git repository.

use std::{fs, path::Path, process::Command};

use belay_e2e::{
    Home,
    belay::{count, repository},
    folder::content,
};

fn git(folder: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "user.name=Test", "-c", "user.email=test@example.com"]).args(arguments);
    command.output().is_ok_and(|output| output.status.success())
}

/// A small repository with what the plan looks at.
fn make_repository(folder: &Path) -> bool {
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("README.md"), "# Something\n\n## What is there\n\nNot much.\n").unwrap();
    fs::write(folder.join("CHANGELOG.md"), "# Changelog\n\n## Unreleased\n\n- Begun.\n").unwrap();
    // `git diff` without a refreshed index shows a binary file as changed, since the times of a copy are others.
    fs::write(folder.join("picture.bin"), b"\0\x01\x02").unwrap();
    git(folder, &["init", "--quiet"])
        && git(folder, &["add", "."])
        && git(folder, &["commit", "--quiet", "-m", "A beginning"])
}

/// S2-X-31, S2-FR-059: the quickstart does what it says, on a copy, and does it again. Without a terminal what asks is approved, since a
/// copy is nobody's work, and the end says so.
#[test]
fn the_quickstart_works_and_works_again() {
    let home = Home::new();
    let original = home.path("original");
    if !make_repository(&original) {
        return eprintln!("the_quickstart_works_and_works_again: skipped, since there is no git here");
    }
    let before = content(&original);
    let plan = repository().join("docs/examples/quickstart.yaml");
    let arguments = ["run", plan.to_str().unwrap(), "--copy-of", "original", "--id"];
    for id in ["first", "second"] {
        let ended = home.run(arguments.iter().chain(&[id]));
        assert_eq!(ended.code, 0, "{id}: {}{}", ended.out, ended.talk);
        assert!(
            ended.talk.contains("\nno terminal, and the workspace is a copy: what needs approval is approved"),
            "{}",
            ended.talk
        );
        let approved = "approved automatically, asked by rule terminal_commands: 1 modified (stamp)\n";
        assert!(ended.out.contains(approved), "{}", ended.out);
        let (_, execution) = home.json(&["executions", "get", id]);
        let copy = Path::new(execution["workspace"].as_str().unwrap());
        assert_ne!(copy, original);
        let read = |name: &str| fs::read_to_string(copy.join(name)).unwrap();
        assert_eq!(read("README.md"), "# Belay 0.1.0-quickstart\n\n## What is there\n\nNot much.\n");
        assert_eq!(
            read("CHANGELOG.md"),
            "# Changelog\n\n## 0.1.0-quickstart\n\n- Belay was tried out on this copy.\n\n## Unreleased\n\n- Begun.\n"
        );
        let output = |step: &str| {
            let steps = execution["steps"].as_array().unwrap();
            steps.iter().find(|told| told["stepId"] == step).unwrap()["output"].clone()
        };
        assert!(output("history")["stdout"].as_str().unwrap().ends_with(" A beginning\n"));
        assert_eq!(output("promises")["matches"][0]["text"], "## What is there");
        assert_eq!(output("difference")["stdout"], " M CHANGELOG.md\n M README.md\n");
        let events = home.events(id);
        assert_eq!(count(&events, "stepRetryScheduled", "network"), 2, "it fails twice");
        assert_eq!(count(&events, "approvalDecided", "stamp"), 1, "what the command changed is decided about");
        assert_eq!(count(&events, "approvalDecided", ""), 1, "and nothing else");
        assert_eq!(content(&original), before, "the original is as it was");
    }
}
