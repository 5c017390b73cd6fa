//! The commands to type next, typed: every one that is printed is given to a shell as it stands, and leads somewhere else than back.

use std::{collections::BTreeSet, env, path::Path, process::Command};

use serde_json::Value;

use crate::{
    text,
    whole::{Home, RunningCommand},
};

/// The context of every command: a folder whose name needs quoting in a shell, and another namespace than the default.
const CONTEXT: [&str; 4] = ["--state-dir", "my state", "--namespace", "team"];

/// The longest chain of commands that is followed.
const STEPS: usize = 5;

fn shell(home: &Home, line: &str) -> std::process::Output {
    let folder = Path::new(env!("CARGO_BIN_EXE_belay")).parent().unwrap();
    let path = env::var("PATH").unwrap_or_default();
    let like = home.belay(&[]);
    let mut shell = Command::new("sh");
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    // What leads to the place is in the line alone.
    shell.env_remove("BELAY_STATE_DIR").env("PATH", format!("{}:{path}", folder.display()));
    shell.args(["-c", line]).current_dir(home.path("")).stdin(std::process::Stdio::null());
    shell.output().unwrap()
}

/// The lines that begin with `next: `.
fn printed(output: &std::process::Output) -> Vec<String> {
    let all = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    all.lines().filter_map(|line| line.strip_prefix("next: ").map(str::to_owned)).collect()
}

/// The other commands, in the same block below them.
fn others(output: &std::process::Output) -> Vec<String> {
    let all = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    all.lines().filter_map(|line| line.strip_prefix("      belay ").map(|rest| format!("belay {rest}"))).collect()
}

/// A line as it can be tried here: a plan that would wait for a person is only checked, and a server is not started.
fn tried(line: &str) -> String {
    match line {
        run if run.starts_with("belay run ") && run.contains("--approve prompt") => format!("{run} --dry-run"),
        serve if serve.starts_with("belay serve") => format!("{serve} --help"),
        other => other.to_owned(),
    }
}

#[track_caller]
fn follow(home: &Home, typed: &str) {
    let (mut line, mut seen) = (typed.to_owned(), BTreeSet::new());
    for step in 0..STEPS {
        assert!(seen.insert(line.clone()), "in a circle: {seen:?} and again {line}");
        let output = shell(home, &tried(&line));
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(step == 0 || !err.contains("code: INVALID_USAGE"), "{typed}: {line}: {err}");
        assert_ne!(output.status.code(), Some(127), "{line}: {err}");
        let next = printed(&output);
        assert!(!err.contains("error: ") || next.len() == 1, "{line}: every error has its next command: {out}{err}");
        for other in &next {
            assert!(other.starts_with("belay "), "{line}: {other}");
        }
        for other in others(&output) {
            // A plan that failed fails again.
            let output = shell(home, &tried(&other));
            let err = text(&output.stderr);
            assert!(
                output.status.code() != Some(127) && !err.contains("code: INVALID_USAGE"),
                "{line}: {other}: {err}"
            );
        }
        match next.into_iter().next() {
            Some(next) => line = next,
            None => return,
        }
    }
    panic!("{typed} leads to no end: {seen:?}");
}

// S2-FR-063: every error says what to do, and doing it works.
#[test]
fn every_printed_command_works_as_it_stands() {
    let home = Home::new();
    home.write("bad.yaml", "id: p\nsteps: [{id: a, tool: nop}]\n");
    home.write("policy.yaml", "file_delte: deny\n");
    home.write("config.yaml", "comands: {}\n");
    let context = "--state-dir 'my state' --namespace team";
    let tidy = shell(&home, &format!("belay run plan.yaml --workspace work --id tidy --no-input {context}"));
    assert_eq!(tidy.status.code(), Some(33), "{}", text(&tidy.stderr));
    for line in [
        "run nowhere.yaml",
        "run .",
        "run work",
        "run pla.yaml",
        "run bad.yaml",
        "plan validate bad.yaml",
        "run plan.yaml --id 'No Good'",
        "run plan.yaml --workspace nowhere",
        "run plan.yaml --workspace /",
        "run plan.yaml --id tidy",
        "run plan.yaml --workspace work --id other --no-input",
        "run plan.yaml --policy policy.yaml",
        "policy check policy.yaml",
        "run plan.yaml --config config.yaml",
        "config show --config config.yaml",
        "executions get tidy",
        "executions get missing",
        "executions watch tidy --after 999",
        "executions cancel tidy",
        "executions",
        "executions lst",
        "rnu plan.yaml --dry-run",
        "status tidy",
        "approvals show missing",
        "approve @last",
        "tools describe raed_file",
        "executions list --server unix:/nowhere/executor.sock",
        "executions list --server http://127.0.0.1:1",
        "explain WORKSPACE_FUL",
        "explain 77",
    ] {
        follow(&home, &format!("belay {line} {context}"));
    }
}

/// A pending decision is shown with commands that decide it, without a terminal, too.
#[test]
fn a_decision_is_made_with_the_printed_command() {
    let home = Home::new();
    let flags = ["run", "plan.yaml", "--workspace", "work", "--id", "e1", "--approve", "prompt"];
    let run: RunningCommand =
        home.start(&[&flags[..], &CONTEXT].concat(), "waiting for approval; next: belay approvals show ");
    let shown = shell(&home, "belay approvals show @last --state-dir 'my state' --namespace team");
    let [approve] = printed(&shown).try_into().unwrap();
    assert!(approve.ends_with(" --yes --state-dir 'my state' --namespace team"), "{approve}");
    let approved = shell(&home, &approve);
    assert_eq!(approved.status.code(), Some(0), "{}", text(&approved.stderr));
    assert_eq!(run.end(), Some(0));
}

/// Errors, failed executions and their steps have one shape.
#[test]
fn failures_have_one_shape_in_json() {
    let home = Home::new();
    let json = |arguments: &[&str]| -> Value {
        let output = home.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
    };
    let error = json(&["run", "nowhere.yaml"]);
    let failed = json(&["run", "plan.yaml", "--workspace", "work", "--no-input", "--id", "e1"]);
    let stored = json(&["executions", "get", "e1"]);
    let step = stored["steps"].as_array().unwrap().iter().find(|step| step["state"] == "STATE_FAILED").unwrap();
    for failure in [&error, &failed["failure"], &stored["failure"], &step["failure"]] {
        assert!(failure["code"].is_string() && failure["message"].is_string(), "{failure}");
        assert!(failure["retryable"].is_boolean() && failure.get("reason").is_none(), "{failure}");
    }
    assert_eq!(failed["failure"]["nextCommand"], "belay executions get e1");
    let plan = json(&["plan", "validate", "plan.yaml"]);
    assert_eq!(plan["plan"]["steps"][0]["tool"]["arguments"]["path"], "new.txt");
    assert!(json(&["tools", "describe", "read_file"])["parametersSchema"].is_object());
    /// Every key of every object, those apart that people choose.
    fn keys(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    found.insert(name.clone());
                    let is_free = ["labels", "arguments", "result", "output", "subject", "programs", "programsNotSeen"];
                    let is_free = is_free.contains(&name.as_str()) || ["settings", "metadata"].contains(&name.as_str());
                    if !is_free && !name.ends_with("Schema") {
                        keys(field, found);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    for value in
        [&error, &failed, &stored, &plan, &json(&["doctor"]), &json(&["executions", "list"]), &json(&["explain"])]
    {
        keys(value, &mut found);
    }
    let other: Vec<_> =
        found.iter().filter(|name| name.contains('_') || ["shard", "etag"].contains(&name.as_str())).collect();
    assert!(other.is_empty(), "{other:?}");
}
