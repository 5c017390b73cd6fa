//! Approvals without a terminal: one process waits, another lists, shows and decides.

use std::{
    fs,
    path::{Path, PathBuf},
};

use belay_e2e::{
    Home,
    belay::{CommandEnd, RunningCommand, count},
    folder::{Content, content, left_in, wait_until_cleared},
};
use rustix::process::Signal;
use serde_json::Value;

/// The built-in policy requires approval for deletions.
const DELETE: &str = "
id: delete
steps:
  - {id: gone, tool: delete_file, arguments: {path: old.txt}}
  - {id: next, tool: write_file, depends_on: [gone], arguments: {path: new.txt, content: after}}
";

/// A home with a workspace `w` that holds a file, and the plan that deletes it.
struct Scene {
    home: Home,
    plan: String,
    before: Content,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        fs::create_dir(home.path("w")).unwrap();
        home.file("w/old.txt", b"not \xff\n UTF-8\r\n");
        let plan = home.file("delete.yaml", DELETE);
        let before = content(&home.path("w"));
        Self { home, plan, before }
    }

    fn arguments<'a>(&'a self, id: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["run", self.plan.as_str(), "--workspace", "w", "--id", id], more].concat()
    }

    fn run(&self, id: &str, more: &[&str]) -> CommandEnd {
        self.home.run(self.arguments(id, more))
    }

    /// A run that waits for a decision, and the approval's id.
    fn waiting(&self, id: &str) -> (RunningCommand, String) {
        let mut run = self.home.start(self.arguments(id, &["--approve", "prompt"]));
        let line = run.wait_for("waiting for approval; next: belay approvals show ");
        let approval = line.trim_end().rsplit(' ').next().unwrap().to_owned();
        (run, approval)
    }

    fn assert_untouched(&self) {
        assert_eq!(content(&self.home.path("w")), self.before, "the workspace is as it was, byte for byte");
    }

    fn assert_deleted(&self) {
        let files: Vec<_> = content(&self.home.path("w")).into_keys().collect();
        assert_eq!(files, [std::path::Path::new("new.txt")], "the file has gone, and the next step ran");
        wait_until_cleared(&self.home.path("w"));
    }
}

/// The states of all approvals.
fn states(home: &Home) -> Vec<String> {
    let (code, list) = home.json(&["approvals", "list"]);
    assert_eq!(code, 0);
    let approvals = list["approvals"].as_array().cloned().unwrap_or_default();
    approvals.iter().map(|approval| approval["state"].as_str().unwrap().to_owned()).collect()
}

/// S2-X-19, S2-X-17, S2-X-31, S2-FR-049, S2-FR-052, S2-FR-053, S4-26: denied, the file is there byte for byte; approved, it has gone and the next
/// step runs; skipped, the step is left out.
#[test]
fn a_deletion_waits_for_a_person() {
    let scene = Scene::new();
    let home = &scene.home;
    let (run, approval) = scene.waiting("denied");
    let (_, execution) = home.json(&["executions", "get", "denied"]);
    assert_eq!(execution["state"], "STATE_AWAITING_APPROVAL");
    let (_, listed) = home.json(&["approvals", "list"]);
    let listed = &listed["approvals"][0];
    assert_eq!((&listed["stepId"], &listed["tool"]), (&"gone".into(), &"delete_file".into()));
    assert_eq!(listed["effect"]["changes"], serde_json::json!([{"path": "old.txt", "kind": "KIND_DELETED"}]));
    let shown = home.run(["approvals", "show", approval.as_str()]);
    for words in ["pending", "delete_file old.txt", "why ", "rule file_delete", "deletes  old.txt", "belay deny "] {
        assert!(shown.out.contains(words), "{words:?} is not in:\n{}", shown.out);
    }
    scene.assert_untouched();
    let denied = home.run(["deny", approval.as_str(), "--reason", "it is still needed"]);
    assert_eq!(denied.code, 0, "{}", denied.talk);
    let ended = run.end();
    assert_eq!(ended.code, 33, "{}", ended.talk);
    assert!(ended.talk.contains("it is still needed"), "the reason goes back: {}", ended.talk);
    assert!(ended.talk.ends_with("code: APPROVAL_DENIED (belay explain APPROVAL_DENIED)\n"), "{}", ended.talk);
    scene.assert_untouched();
    wait_until_cleared(&home.path("w"));

    let (run, approval) = scene.waiting("skipped");
    assert_eq!(home.run(["approvals", "skip", approval.as_str()]).code, 0);
    let ended = run.end();
    assert_eq!(ended.code, 35, "the next step needed it: {}", ended.talk);
    let (_, execution) = home.json(&["executions", "get", "skipped"]);
    assert_eq!(execution["state"], "STATE_PARTIAL");
    assert_eq!(execution["steps"][0]["skipReason"], "SKIP_REASON_APPROVAL_SKIPPED");
    scene.assert_untouched();

    let (run, approval) = scene.waiting("approved");
    let approved = home.run(["approve", approval.as_str(), "--yes"]);
    assert_eq!(approved.code, 0, "{}", approved.talk);
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.talk);
    scene.assert_deleted();
    assert_eq!(states(home), ["STATE_CONSUMED", "STATE_SKIPPED", "STATE_DENIED"], "the newest first");
}

/// B-03: a decision without the digest, a second one, and one about an unknown approval are rejected, and change nothing.
#[test]
fn an_invalid_decision_is_refused() {
    let scene = Scene::new();
    let (run, approval) = scene.waiting("e1");
    let blind = scene.home.run(["approve", approval.as_str()]);
    assert_eq!(blind.code, 2);
    assert!(blind.talk.ends_with("code: NO_TERMINAL (belay explain NO_TERMINAL)\n"), "{}", blind.talk);
    assert_eq!(states(&scene.home), ["STATE_PENDING"]);
    let unknown = scene.home.run(["approve", "0000", "--yes"]);
    assert_eq!(unknown.code, 2, "{}", unknown.talk);
    assert!(unknown.talk.contains("code: APPROVAL_NOT_FOUND "), "{}", unknown.talk);
    assert_eq!(scene.home.run(["deny", approval.as_str(), "--reason", "no"]).code, 0);
    run.end();
    let late = scene.home.run(["approve", approval.as_str(), "--yes"]);
    assert_eq!(late.code, 2, "what was decided is decided: {}", late.talk);
    scene.assert_untouched();
}

/// S2-X-18: `--approve` and the policy decide in runs without a person.
#[test]
fn runs_without_a_person_follow_the_policy() {
    // How it is run, what the policy says without a person, the exit code, and whether the file goes.
    let table: [(&[&str], &str, i32, bool); 6] = [
        (&[], "auto", 33, false),
        (&["--approve", "fail"], "auto", 33, false),
        (&["--no-input"], "auto", 33, false),
        (&["--approve", "auto"], "auto", 0, true),
        (&["--approve", "auto"], "fail", 33, false),
        (&["--approve", "auto"], "skip", 35, false),
    ];
    for (flags, without_a_person, code, goes) in table {
        let scene = Scene::new();
        let policy = scene.home.file("policy.yaml", format!("non_interactive_policy: {without_a_person}\n"));
        let ended = scene.run("e1", &[flags, &["--policy", &policy]].concat());
        assert_eq!(ended.code, code, "{flags:?} under {without_a_person}: {}", ended.talk);
        if goes {
            scene.assert_deleted();
            let events = scene.home.events("e1");
            let event = events.iter().find(|event| event.get("approvalDecided").is_some()).unwrap();
            let (by, decision) = (&event["actor"]["principal"], &event["approvalDecided"]["decision"]);
            assert_eq!((by, decision), (&"policy".into(), &"DECISION_APPROVE".into()));
        } else {
            scene.assert_untouched();
        }
    }
}

/// S2-FR-050, S2-FR-051: a policy that denies runs nothing, and one that allows needs no approval.
#[test]
fn the_settings_of_a_policy_hold() {
    let table = [("file_delete: deny", 33, false), ("file_delete: auto", 0, true)];
    for (setting, code, goes) in table {
        let scene = Scene::new();
        let policy = scene.home.file("policy.yaml", setting);
        let ended = scene.run("e1", &["--policy", &policy]);
        assert_eq!(ended.code, code, "{setting}: {}", ended.talk);
        assert!(states(&scene.home).is_empty(), "{setting}: nobody is asked");
        if goes { scene.assert_deleted() } else { scene.assert_untouched() }
    }
}

/// S2-FR-052: Ctrl-C while an approval waits: the execution is paused, what it would change is kept, and it is asked for again.
#[test]
fn ctrl_c_while_an_approval_waits_keeps_the_question() {
    let scene = Scene::new();
    let home = &scene.home;
    let (run, approval) = scene.waiting("e1");
    run.signal(Signal::INT);
    let ended = run.end();
    assert_eq!(ended.code, 130);
    for words in [format!("belay approvals show {approval}"), "next: belay executions resume e1".to_owned()] {
        assert!(ended.talk.contains(&words), "{}", ended.talk);
    }
    let (_, paused) = home.json(&["executions", "get", "e1"]);
    assert_eq!(
        (&paused["state"], &paused["steps"][0]["state"]),
        (&"STATE_PAUSED".into(), &"STATE_AWAITING_APPROVAL".into())
    );
    assert_eq!(left_in(&home.path("w")).len(), 1, "what it would change is kept");
    scene.assert_untouched();

    let mut resumed = home.start(["executions", "resume", "e1"]);
    resumed.wait_for_talk(&approval);
    assert_eq!(home.run(["approve", approval.as_str(), "--yes"]).code, 0);
    let ended = resumed.end();
    assert_eq!(ended.code, 0, "{}", ended.talk);
    scene.assert_deleted();
    let events = home.events("e1");
    assert_eq!(count(&events, "toolCallRequested", "gone"), 1, "it ran once");
    assert_eq!(count(&events, "approvalDecided", "gone"), 1);
}

/// B-01, S2-FR-057: what waits at a server that is killed waits still when it is back; what was decided while nobody drove it is done.
#[test]
fn a_question_outlives_its_server() {
    let scene = Scene::new();
    let home = &scene.home;
    let server = home.serve();
    let (run, approval) = scene.waiting("e1");
    server.kill();
    let server = home.serve();
    assert_eq!(states(home), ["STATE_PENDING"]);
    assert_eq!(home.run(["approve", approval.as_str(), "--yes"]).code, 0);
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.talk);
    scene.assert_deleted();
    drop(server);

    let scene = Scene::new();
    let (run, approval) = scene.waiting("e2");
    run.kill();
    // Without a server, the command opens the stores itself.
    assert_eq!(scene.home.run(["approve", approval.as_str(), "--yes"]).code, 0, "kept by the gate of this command");
    scene.assert_untouched();
    let resumed = scene.home.run(["executions", "resume", "e2"]);
    assert_eq!(resumed.code, 0, "{}", resumed.talk);
    scene.assert_deleted();
}

/// Copies a folder away and back, as a backup of it that is restored: its files have other inodes and times of change.
fn restore(home: &Home, folder: &str) {
    let [at, backup, original] = ["", ".backup", ".original"].map(|end| home.path(&format!("{folder}{end}")));
    let copied = std::process::Command::new("cp").arg("-a").args([&at, &backup]).status().unwrap();
    assert!(copied.success());
    fs::rename(&at, original).unwrap();
    fs::rename(backup, at).unwrap();
}

/// The files that wait in a workspace to be put in place.
fn staged_files(workspace: &Path) -> Vec<PathBuf> {
    let mut folders = vec![workspace.join(".belay/commits")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// B-01, B-03: everything is restored from a backup while an effect waits for approval. Approved then, it is put in place, and the call does not run again. If
/// its files were modified in the backup, nothing of them is: the call runs again, and a person is asked again.
#[test]
fn an_effect_that_waited_survives_a_restore_unless_it_was_altered() {
    const CHANGE: &str = "
id: change
steps:
  - id: both
    tool: run_terminal
    verbatim: [command]
    arguments: {command: [sh, -c, 'echo changed > old.txt; mkdir -p new; echo made > new/file']}
";
    for alters in [None, Some("changed\n"), Some("made\n")] {
        let home = Home::new();
        fs::create_dir(home.path("w")).unwrap();
        home.file("w/old.txt", "old\n");
        let plan = home.file("change.yaml", CHANGE);
        let policy = home.file("policy.yaml", "{terminal_commands: auto, file_write: prompt}");
        let before = content(&home.path("w"));
        let server = home.serve_with(&["--policy", &policy]);
        let started = home.run(["run", &plan, "--workspace", "w", "--id", "e1", "--approve", "prompt", "--detach"]);
        assert_eq!(started.code, 0, "{}", started.talk);
        let pending = |known: &str| loop {
            let (_, list) = home.json(&["approvals", "list", "--state", "pending"]);
            let ids =
                list["approvals"].as_array().into_iter().flatten().filter_map(|approval| approval["name"].as_str());
            if let Some(name) = ids.map(str::to_owned).find(|name| name != known) {
                break name;
            }
        };
        let id = |name: &str| name.rsplit('/').next().unwrap().to_owned();
        let approval = pending("");
        server.signal(Signal::TERM);
        assert_eq!(server.end().code, 0);
        ["w", "state"].into_iter().for_each(|folder| restore(&home, folder));
        if let Some(alters) = alters {
            let staged = staged_files(&home.path("w"));
            let altered = staged.iter().find(|file| fs::read_to_string(file).unwrap() == alters);
            fs::write(altered.expect("it is staged"), "forged").unwrap();
        }
        let server = home.serve_with(&["--policy", &policy]);
        assert_eq!(home.run(["approve", &id(&approval), "--yes"]).code, 0);
        if alters.is_some() {
            let again = pending(&approval);
            assert_eq!(content(&home.path("w")), before, "nothing of it is in place");
            assert_eq!(home.run(["approve", &id(&again), "--yes"]).code, 0);
        }
        home.run(["executions", "watch", "e1"]);
        let (_, execution) = home.json(&["executions", "get", "e1"]);
        assert_eq!(execution["state"], "STATE_COMPLETED", "{execution:#}");
        let read = |file: &str| fs::read_to_string(home.path("w").join(file)).unwrap();
        assert_eq!(["old.txt", "new/file"].map(read), ["changed\n", "made\n"]);
        wait_until_cleared(&home.path("w"));
        let events = home.events("e1");
        let asked = 1 + usize::from(alters.is_some());
        assert_eq!(count(&events, "approvalRequested", "both"), asked, "{alters:?}");
        assert_eq!(count(&events, "toolCallRequested", "both"), asked, "{alters:?}");
        assert_eq!(count(&events, "toolCallFailed", "both") + count(&events, "stepFailed", "both"), 0, "{alters:?}");
        drop(server);
    }
}

/// Programs follow an approval line by line: each event once, live and later the same.
#[test]
fn programs_get_an_approval_line_by_line() {
    let scene = Scene::new();
    let home = &scene.home;
    let mut run = home.start(scene.arguments("e1", &["--approve", "prompt", "-o", "jsonl"]));
    let line: Value = serde_json::from_str(&run.wait_for("\"approvalRequested\"")).unwrap();
    let approval = line["approvalRequested"]["approval"].as_str().unwrap();
    let (code, decided) = home.json(&["approve", approval, "--yes"]);
    assert_eq!((code, &decided["state"]), (0, &"STATE_APPROVED".into()));
    let ended = run.end();
    assert_eq!((ended.code, ended.talk.as_str()), (0, ""));
    let told = belay_e2e::belay::events(&ended.out);
    assert_eq!(told, home.events("e1"), "live and later, the same events");
    let kinds = [
        "toolCallEffectProposed",
        "approvalRequested",
        "executionAwaitingApproval",
        "approvalDecided",
        "toolCallCompleted",
    ];
    let place =
        |kind: &str| told.iter().position(|event| event.get(kind).is_some()).unwrap_or_else(|| panic!("{kind}"));
    assert!(
        place(kinds[0]) < place(kinds[1]) && place(kinds[1]) < place(kinds[3]) && place(kinds[3]) < place(kinds[4])
    );
    assert!(place(kinds[2]) < place(kinds[3]), "it is said that it waits");
    let receipt = &told[place("toolCallCompleted")]["toolCallCompleted"]["receipt"];
    assert_eq!(receipt["effect"]["changes"][0]["path"], "old.txt");
    assert!(receipt["grantNonce"].as_str().is_some_and(|nonce| !nonce.is_empty()));
}
