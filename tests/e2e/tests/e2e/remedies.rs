//! Remedies that a refusal prints are tried: each lets exactly that through. And what may start at all.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use belay_e2e::{
    Home,
    belay::CommandEnd,
    client::{channel, name},
    folder::content,
};
use serde_json::{Value, json};

use crate::principals::question;

/// Runs a plan of these steps in the workspace `w` without a person, under a policy.
fn run(home: &Home, id: &str, steps: &Value, policy: &str) -> CommandEnd {
    let plan = home.file("plan.json", json!({"id": "p", "steps": steps}).to_string());
    let policy = home.file("policy.yaml", policy);
    let flags = ["--workspace", "w", "--approve", "fail", "--policy", policy.as_str(), "--id", id];
    home.run(["run", plan.as_str()].into_iter().chain(flags))
}

/// The rules that the failed step of an execution names as those that allow it.
fn rules(home: &Home, id: &str) -> Vec<String> {
    let (code, execution) = home.json(&["executions", "get", id]);
    assert_eq!(code, 0, "{execution}");
    let failed = execution["steps"].as_array().unwrap().iter().find(|step| step["failure"].is_object());
    let metadata = failed.expect("a step has failed")["failure"]["metadata"].as_object().cloned().unwrap_or_default();
    metadata
        .iter()
        .filter(|(key, _)| key.starts_with("allowing_rule"))
        .map(|(_, rule)| rule.as_str().unwrap().to_owned())
        .collect()
}

fn command(script: &str) -> Value {
    json!({"id": "change", "tool": "run_terminal", "arguments": {"command": ["bash", "-c", script]}})
}

/// A workspace for one case.
fn workspace(home: &Home, prepare: &dyn Fn(&Path)) {
    let folder = home.path("w");
    drop(fs::remove_dir_all(&folder));
    fs::create_dir(&folder).unwrap();
    prepare(&folder);
}

/// The policy, the step that it refuses, and what is in the workspace before.
type Case<'a> = (&'a str, Value, &'a dyn Fn(&Path));

/// B-29: the printed rule lets through exactly the change that was refused, in every kind of refusal, and no other.
#[test]
fn the_rule_that_a_refusal_names_lets_exactly_that_through() {
    let nothing = |_: &Path| ();
    let file = |folder: &Path| fs::write(folder.join("f"), "x").unwrap();
    let set_id = |folder: &Path| {
        fs::create_dir(folder.join("s")).unwrap();
        fs::set_permissions(folder.join("s"), fs::Permissions::from_mode(0o2775)).unwrap();
    };
    let write = |path: &str| json!({"id": "change", "tool": "write_file", "arguments": {"path": path, "content": "x"}});
    let delete = json!({"id": "change", "tool": "delete_file", "arguments": {"path": "f"}});
    let cases: [Case<'_>; 12] = [
        ("{}", command("echo x > plain"), &nothing),
        ("{}", command("rm f"), &file),
        ("{}", command("echo x > .envrc"), &nothing),
        ("{}", command("echo x > '.env*rc [a]'; echo y > '{b}?'"), &nothing),
        ("{}", command("ln -s /etc/passwd l"), &nothing),
        ("{}", command("echo x > A; echo x > a"), &nothing),
        ("{}", command("touch $'nu\\u200bll'; echo x > $'quote\"s \\'and\\' back\\\\slash'"), &nothing),
        ("{}", command("mkdir s/n"), &set_id),
        ("{}", command("rm f; mkdir d; echo x > d/new; echo y > .gitmodules"), &file),
        ("{}", delete, &file),
        ("file_write: prompt", write("a/b"), &nothing),
        ("file_write: deny", write("CLAUDE.md"), &nothing),
    ];
    let home = Home::new();
    for (number, (policy, step, prepare)) in cases.into_iter().enumerate() {
        let what = format!("{policy} {step}");
        let steps = json!([step]);
        let mut found = policy.trim_matches(['{', '}']).to_owned() + "\nrules:\n";
        // A call may be refused, and then what it changes.
        for round in 0.. {
            workspace(&home, prepare);
            let before = content(&home.path("w"));
            let id = format!("e{number}-{round}");
            let text = if round == 0 { policy } else { &found };
            let ended = run(&home, &id, &steps, text);
            if ended.code == 0 {
                assert!(round > 0, "{what}: nothing was refused");
                assert_ne!(content(&home.path("w")), before, "{what}");
                break;
            }
            assert_eq!(ended.code, 33, "{what}: {}", ended.talk);
            assert_eq!(content(&home.path("w")), before, "{what}");
            let more = rules(&home, &id);
            assert!(!more.is_empty() && round < 2, "{what}, round {round}: {}", ended.talk);
            let talk = ended.talk.split_whitespace().collect::<String>();
            for rule in &more {
                let shown = rule.split_whitespace().collect::<String>();
                assert!(talk.contains(&shown), "{what}: the screen shows {rule}\n{}", ended.talk);
                found += &format!("  - {rule}\n");
            }
        }
        // The same call with one more change is refused still.
        workspace(&home, prepare);
        let other = if step["tool"] == "run_terminal" {
            let script = step["arguments"]["command"][2].as_str().unwrap();
            command(&format!("{script}; echo x > elsewhere"))
        } else {
            json!({"id": "change", "tool": step["tool"], "arguments": {"path": "elsewhere", "content": "x"}})
        };
        if step["tool"] == "delete_file" {
            continue;
        }
        let before = content(&home.path("w"));
        let ended = run(&home, &format!("other{number}"), &json!([other]), &found);
        assert_eq!(ended.code, 33, "{what}: another change is let through\n{found}\n{}", ended.talk);
        assert_eq!(content(&home.path("w")), before, "{what}");
    }
}

/// A rule of the policy that asks is stricter than any that could be added: none is printed, and the message names it.
#[test]
fn no_rule_is_named_where_a_rule_decides() {
    let home = Home::new();
    workspace(&home, &|_| ());
    let policy = "rules: [{id: look, on: effect, paths: [plain], decide: prompt, reason: Look at it.}]";
    let ended = run(&home, "e", &json!([command("echo x > plain")]), policy);
    assert_eq!(ended.code, 33, "{}", ended.talk);
    assert!(ended.talk.contains("Rule look requires approval (Look at it.)"), "{}", ended.talk);
    assert_eq!(rules(&home, "e"), [""; 0], "{}", ended.talk);
}

/// A path that people are not shown in full is in no rule: what is printed would be another one.
#[test]
fn no_rule_shows_a_secret() {
    let home = Home::new();
    workspace(&home, &|_| ());
    let step = json!({"id": "change", "tool": "run_terminal", "arguments": {
        "command": ["sh", "-c", "echo x > \"$API_TOKEN\""], "env": {"API_TOKEN": "Zq9rT7wXk2LmN4pS"}}});
    let ended = run(&home, "e", &json!([step]), "{}");
    assert_eq!(ended.code, 33, "{}", ended.talk);
    assert_eq!(rules(&home, "e"), [""; 0], "{}", ended.talk);
    assert!(!ended.talk.contains("Zq9rT7wXk2LmN4pS"), "{}", ended.talk);
}

/// S2-FR-074, S2-FR-076, S2-NFR-013, S2-X-09: a program that the policy does not list is refused before it starts, by name, and the line that is printed lets it start.
#[test]
fn a_program_that_is_not_listed_does_not_start() {
    let home = Home::new();
    workspace(&home, &|_| ());
    let steps = json!([{"id": "show", "tool": "run_terminal", "arguments": {"command": ["touch", "made"]}}]);
    let policy = "{preset: allow-list, terminal_commands: auto, file_delete: auto}";
    let ended = run(&home, "e", &steps, policy);
    assert_eq!(ended.code, 33, "{}", ended.talk);
    assert!(ended.talk.contains("`touch` is not one of the policy's `allowed_commands`"), "{}", ended.talk);
    assert!(!home.path("w/made").exists(), "{}", ended.talk);
    let (_, execution) = home.json(&["executions", "get", "e"]);
    let message = execution["steps"][0]["failure"]["message"].as_str().unwrap();
    let line = message.split("to allow it, write `").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    let ended = run(&home, "f", &steps, &format!("{{terminal_commands: auto, file_delete: auto, {line}}}"));
    assert_eq!(ended.code, 0, "{line}: {}", ended.talk);
}

/// S2-X-09, S2-X-10: a plan narrows the list for its own commands, and those of the plans of its steps; a program outside it does not start, whenever its
/// name becomes known.
#[test]
fn a_plan_narrows_which_programs_may_start() {
    let home = Home::new();
    workspace(&home, &|_| ());
    let run = |id: &str, plan: Value| {
        let plan = home.file("plan.json", plan.to_string());
        home.run(["run", plan.as_str(), "--workspace", "w", "--id", id])
    };
    let known = json!({"id": "p", "allowed_commands": ["printf"], "steps": [
        {"id": "a", "tool": "run_terminal", "arguments": {"command": ["printf", "x"]}},
        {"id": "b", "tool": "run_terminal", "arguments": {"command": ["touch", "y"]}},
        {"id": "code", "tool": "code_exec", "arguments": {"code": "result = 1"}},
        {"id": "c", "plan": {"id": "inner", "allowed_commands": ["touch", "printf"], "steps": [
            {"id": "d", "tool": "run_terminal", "arguments": {"command": ["touch", "z"]}}]}}]});
    let ended = run("known", known);
    assert_eq!(ended.code, 2, "{}", ended.talk);
    for field in ["steps[1].arguments.command[0]", "steps[3].plan.steps[0].arguments.command[0]"] {
        assert!(ended.talk.contains(field), "{field}: {}", ended.talk);
    }
    assert!(ended.talk.contains("steps[2].arguments.language: `python3` is not one of the programs"), "{}", ended.talk);
    assert!(
        ended.talk.contains("`touch` is not one of the programs that the plan's `allowed_commands` has `printf`"),
        "{}",
        ended.talk
    );
    // The program is an earlier step's output.
    let later = json!({"id": "p", "allowed_commands": ["printf"], "steps": [
        {"id": "choose", "tool": "noop", "arguments": {"output": "touch"}},
        {"id": "start", "tool": "run_terminal", "arguments": {"command": ["${choose.result}", "made"]}}]});
    let language = json!({"id": "p", "allowed_commands": ["python3"], "steps": [
        {"id": "choose", "tool": "noop", "arguments": {"output": "sh"}},
        {"id": "start", "tool": "code_exec", "arguments": {"language": "${choose.result}", "code": "touch made"}}]});
    let ended = run("language", language);
    assert!(ended.code == 33 && ended.talk.contains("`sh` is not one of the programs"), "{}", ended.talk);
    let ended = run("later", later);
    assert_eq!(ended.code, 33, "{}", ended.talk);
    let (_, execution) = home.json(&["executions", "get", "later"]);
    assert_eq!(execution["steps"][1]["failure"]["code"], "PROGRAM_NOT_ALLOWED", "{execution}");
    assert!(!home.path("w/made").exists());
    let (_, calls) = home.json(&["executions", "calls", "later"]);
    assert!(!calls.to_string().contains("run_terminal"), "no call was made: {calls}");
    // What the list has may start; a plan cannot allow what the policy does not.
    let fine = json!({"id": "p", "allowed_commands": ["printf"], "steps": [
        {"id": "a", "tool": "run_terminal", "arguments": {"command": ["printf", "x"]}}]});
    let ended = run("fine", fine.clone());
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let policy = home.file("policy.yaml", "preset: allow-list");
    let plan = home.file("plan.json", fine.to_string());
    let ended = home.run(["run", plan.as_str(), "--workspace", "w", "--policy", policy.as_str()]);
    assert_eq!(ended.code, 33, "{}", ended.talk);
}

/// S2-X-17: an approval says how much harm it may do, judged by what it does, and why the plan does it, beside the rule's reason.
#[test]
fn an_approval_has_a_risk_and_the_reason_of_who_asks() {
    let home = Home::new();
    workspace(&home, &|folder| fs::write(folder.join("OldAuthService.cs"), "x").unwrap());
    let _serve = home.serve();
    let described = "These files are deprecated and replaced by new auth implementation";
    let steps = json!([
        {"id": "delete", "title": "Delete deprecated authentication files", "description": described,
         "tool": "delete_file", "arguments": {"path": "OldAuthService.cs"}},
        {"id": "create", "title": "Make a note", "tool": "run_terminal", "arguments": {"command": ["sh", "-c", "echo x > note"]}},
        {"id": "obey", "tool": "write_file", "arguments": {"path": ".envrc", "content": "x"}},
    ]);
    let plan = home.file("plan.json", json!({"id": "p", "parallelism": 3, "steps": steps}).to_string());
    let mut watch =
        home.start(["run", plan.as_str(), "--workspace", "w", "--id", "e", "--as", "executor", "--approve", "prompt"]);
    let mut lines = Vec::new();
    while lines.len() < 3 {
        let line: Value = serde_json::from_str(&watch.wait_for("approval_request")).unwrap();
        lines.push(line);
    }
    lines.sort_by_key(|line| line["step"].as_i64());
    let brief: Vec<Value> = lines
        .iter()
        .map(|line| json!([line["type"], line["operation"], line["files"], line["reason"], line["risk"]]))
        .collect();
    assert_eq!(
        brief,
        [
            json!(["approval_request", "delete_file", ["OldAuthService.cs"], described, "medium"]),
            json!(["approval_request", "run_terminal", ["note"], "Make a note", "low"]),
            json!(["approval_request", "write_file", [".envrc"], "obey", "high"]),
        ]
    );
    let (_, listed) = home.json(&["approvals", "list"]);
    let of = |step: &str| {
        let all = listed["approvals"].as_array().unwrap_or_else(|| listed.as_array().unwrap());
        all.iter().find(|approval| approval["stepId"] == step).unwrap().clone()
    };
    assert_eq!((&of("delete")["risk"], &of("delete")["requestReason"]), (&json!("RISK_MEDIUM"), &json!(described)));
    let obey = of("obey")["name"].as_str().unwrap().to_owned();
    let shown = home.run(["approvals", "show", obey.rsplit('/').next().unwrap()]);
    let words = shown.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("risk high"), "{}", shown.out);
    for approval in ["delete", "create", "obey"] {
        let name = of(approval)["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        assert_eq!(home.run(["approvals", "skip", name.as_str()]).code, 0);
    }
    watch.end();
}

/// S2-X-17: a title of any length is the reason of who asks, cut: the person is asked all the same. B-30: a change is found by its name as it is, and by the
/// form in which it is shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_title_does_not_keep_anybody_from_being_asked() {
    let home = Home::new();
    workspace(&home, &|_| ());
    let _serve = home.serve();
    let mut step = command("echo x > $'nu\\u200bll'");
    step["title"] = "t".repeat(20_000).into();
    let plan = home.file("plan.json", json!({"id": "p", "steps": [step]}).to_string());
    let started = home.run(["run", plan.as_str(), "--workspace", "w", "--id", "e", "--detach", "--approve", "prompt"]);
    assert_eq!(started.code, 0, "{}", started.talk);
    let asked = question(&channel(&home.state().join("executor.sock")), "", &name("e")).await;
    assert_eq!(asked.request_reason, format!("{}…", "t".repeat(4095)));
    let id = asked.name.rsplit('/').next().unwrap();
    for path in ["nu\u{200b}ll", "nu<U+200B>ll"] {
        let shown = home.run(["approvals", "show", id, "--path", path]);
        assert!(shown.code == 0 && shown.out.contains("nu<U+200B>ll"), "{path:?}: {} {}", shown.out, shown.talk);
    }
    assert_ne!(home.run(["approvals", "show", id, "--path", "null"]).code, 0);
}
