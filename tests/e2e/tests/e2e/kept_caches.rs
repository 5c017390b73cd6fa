//! Caches that outlive a command (`use: keep`), with the real sandbox: they get what a call has left that committed, and nothing else.

use std::fs;

use belay_e2e::Home;

const CACHE: &str = "$HOME/.cargo/registry";

/// A home whose commands keep their registry of cargo, and whose policy asks before a command changes the workspace.
fn home() -> Home {
    let home = Home::new();
    home.file("config.yaml", "commands: {caches: {cargo: keep}}");
    home.file("fail.yaml", "terminal_commands: prompt\n");
    home.file("auto.yaml", "terminal_commands: prompt\nnon_interactive_policy: auto\n");
    fs::create_dir(home.path("w")).unwrap();
    home
}

/// Runs one command in the workspace, and returns the exit code of Belay and what the command has printed.
fn run(home: &Home, script: &str, mode: &str) -> (i32, String) {
    let plan = serde_json::json!({"id": "p", "steps": [{"id": "c", "tool": "run_terminal", "arguments": {"command": ["sh", "-c", script]}}]});
    home.file("p.json", plan.to_string());
    let with = [
        "--workspace",
        "w",
        "--config",
        "config.yaml",
        "--policy",
        &format!("{mode}.yaml"),
        "--approve",
        mode,
        "-o",
        "json",
    ];
    let ended = home.run(["run", "p.json"].iter().chain(&with));
    let execution: serde_json::Value = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{ended:?}"));
    let name = execution["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let (_, step) = home.json(&["executions", "get", &name, "--step", "c"]);
    (ended.code, step["output"]["stdout"].as_str().unwrap_or_default().to_owned())
}

/// The entry that a later command finds in the cache.
fn cached(home: &Home) -> String {
    let (code, found) = run(home, &format!("cd {CACHE} && cat *"), "fail");
    assert!(code == 0 || found.is_empty(), "{code}: {found}");
    found
}

/// A kept cache is committed with the call that filled it, or not at all.
#[test]
fn a_kept_cache_has_what_committed_calls_have_left_and_nothing_of_others() {
    let home = home();
    let leave = |what: &str, then: &str| format!("echo {what} > {CACHE}/{what}; rm -f {CACHE}/gone; {then}");
    assert_eq!(
        run(&home, &leave("alone", &format!("echo x > {CACHE}/gone; rm {CACHE}/gone")), "fail").0,
        0,
        "it changes nothing else"
    );
    assert_eq!(cached(&home), "alone\n");
    assert_ne!(run(&home, &leave("failed", "exit 1"), "fail").0, 0);
    assert_eq!(cached(&home), "alone\n", "a failed command leaves nothing");
    let refused = run(&home, &leave("refused", "echo x > refused"), "fail");
    assert_eq!((refused.0, home.path("w/refused").exists()), (33, false));
    assert_eq!(cached(&home), "alone\n", "nor does one whose effect is refused");
    let approved = run(&home, &leave("approved", "echo x > approved"), "auto");
    assert_eq!((approved.0, home.path("w/approved").exists()), (0, true));
    assert_eq!(cached(&home), "alone\napproved\n", "what is approved is kept");
    assert_eq!(run(&home, &format!("rm {CACHE}/alone; ln -s /etc/hostname {CACHE}/link"), "fail").0, 0);
    assert_eq!(cached(&home), "approved\nsandbox\n", "what a command removes is gone, and a link is a link");
    let left = |part: &str| -> Vec<_> {
        let entries = fs::read_dir(home.path("w/.belay").join(part)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    for part in ["caches", "views", "commits"] {
        assert!(left(part).is_empty(), "{:?}", left(part));
    }
    // A process may end before it has deleted what its last command has left; the next that opens the workspace does.
    assert!(left("trash").len() <= 1, "{:?}", left("trash"));
}

/// Changes in caches by the calls of a step are dropped when they have one effect: they may come from files that are never committed.
#[test]
fn a_kept_cache_has_nothing_of_calls_that_have_one_effect() {
    let home = home();
    let call =
        |script: String| serde_json::json!({"tool": "run_terminal", "arguments": {"command": ["sh", "-c", script]}});
    let calls = [
        call(format!("echo one > {CACHE}/one")),
        call(format!("echo two > {CACHE}/two; echo x > /workspace/made")),
        call(format!("cat {CACHE}/* > /workspace/seen; true")),
    ];
    let step = serde_json::json!({"id": "c", "effects": "per_step", "calls": calls});
    home.file("p.json", serde_json::json!({"id": "p", "parallelism": 1, "steps": [step]}).to_string());
    let with = ["--workspace", "w", "--config", "config.yaml", "--policy", "auto.yaml", "--approve", "auto"];
    let ended = home.run(["run", "p.json"].iter().chain(&with));
    assert_eq!(ended.code, 0, "{ended:?}");
    let made = |name: &str| fs::read_to_string(home.path("w").join(name)).unwrap();
    assert_eq!((made("made"), made("seen")), ("x\n".into(), String::new()));
    assert_eq!(cached(&home), "");
}
