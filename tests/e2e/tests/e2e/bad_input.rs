//! Invalid input: each kind is refused before anything happens, with the name of the field or the file, and exit code 2.

use belay_e2e::{Home, belay::CommandEnd, folder::content};
use rustix::process::Signal;
use serde_json::Value;

/// The refusal of one plan: its screen, after checking that `run` and `plan validate` say the same, all but what to type next: that is never
/// what was just typed.
fn refusal(home: &Home, name: &str, plan: impl AsRef<[u8]>) -> String {
    home.file(name, plan);
    let CommandEnd { code, out, talk } = home.run(["run", name]);
    assert_eq!((code, out.as_str()), (2, ""), "{talk}");
    let validated = home.run(["plan", "validate", name]);
    assert_eq!(validated.code, 2, "{}", validated.talk);
    let refused = |screen: &str| screen.split_once("\nnext: ").map(|(refusal, _)| refusal.to_owned());
    assert_eq!(refused(&validated.talk), refused(&talk), "{}", validated.talk);
    assert!(validated.talk.contains("\nnext: belay explain PLAN_"), "{}", validated.talk);
    talk
}

/// Creates the state directory that an unused server leaves.
fn make_state_directory(home: &Home) {
    let server = home.serve();
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, 0);
}

fn nothing_was_started(home: &Home) {
    let (_, list) = home.json(&["executions", "list"]);
    assert_eq!(list, serde_json::json!({}), "a refusal leaves nothing behind");
}

/// S2-FR-002, S4-05, S4-06, S4-07, S4-08, S4-18: every violation is reported by field, line and column.
#[test]
fn a_faulty_plan_is_refused_by_field_and_line() {
    let home = Home::new();
    let _server = home.serve();
    let table = [
        ("id: [", "plan.yaml:1:5: invalid YAML: unclosed bracket '['"),
        ("just words", "the plan must be an object with `id` and `steps`"),
        ("id: p\nsteps: {}", "plan.yaml:2:8: steps: must be a list of steps"),
        ("id: p\nsteps: []", "steps: the plan must be valid and have at least one step: add one"),
        ("id: 7\nsteps: [{id: a, tool: noop}]", "plan.yaml:1:5: id: must be text: put it in quotes, \"7\""),
        ("id: p\nstepps: []", "plan.yaml:2:1: stepps: there is no field `stepps` here; did you mean `steps`?"),
        (
            "{id: p, steps: [{id: a, tool: noop, depend_on: []}]}",
            "steps[0].depend_on: there is no field `depend_on` here; did you mean `depends_on`?",
        ),
        (
            "{id: p, steps: [{id: a, tool: noop}, {id: a, tool: noop}]}",
            "steps[1].id: `a` is already the id of steps[0]: ids must be unique",
        ),
        ("{id: p, steps: [{id: a, tool: noop, depends_on: [b]}]}", "steps[0].depends_on[0]: there is no step `b`"),
        (
            "{id: p, steps: [{id: a, tool: noop, arguments: {output: '${b.result}'}}]}",
            "steps[0].arguments.output: there is no step `b`",
        ),
        ("{id: p, steps: [{id: a, tool: noop, arguments: {output: '${a.result}'}}]}", "`a` is the step itself"),
        (
            "{id: p, steps: [{id: a, tool: noop, depends_on: [b]}, {id: b, tool: noop, depends_on: [a]}]}",
            "steps[0].depends_on[0]: cyclic dependencies: a → b → a",
        ),
        (
            "{id: p, steps: [{id: a, tool: noop, timeout: 5}]}",
            "steps[0].timeout: `5` has no unit: write 5s for seconds",
        ),
        (
            "{id: p, steps: [{id: a, tool: noop, retry: {max_attempts: 0}}]}",
            "steps[0].retry.max_attempts: must be 1 to 100, not 0",
        ),
        ("{id: p, parallelism: 0, steps: [{id: a, tool: noop}]}", "parallelism: must be at least 1"),
        ("{id: p, steps: [{id: a, tool: nop}]}", "steps[0].tool: Tool 'nop' not found; did you mean `noop`?"),
        ("{id: p, steps: [{id: a, tool: noop, arguments: {sleep_ms: soon}}]}", "steps[0].arguments.sleep_ms"),
        (
            "{id: p, steps: [{id: a, tool: read_file, arguments: {path: x, strat_line: 1}}]}",
            "steps[0].arguments.strat_line: read_file takes no `strat_line` here; did you mean `start_line`?",
        ),
        (
            "{id: p, steps: [{id: a, tool: run_terminal, arguments: {command: ls -l > x}}]}",
            "steps[0].arguments.command: `ls -l > x` has `>`, which only a shell understands",
        ),
    ];
    for (plan, words) in table {
        let screen = refusal(&home, "plan.yaml", plan);
        assert!(screen.contains(words), "{plan}:\n{screen}");
        assert!(
            screen.ends_with("next: belay plan validate plan.yaml\ncode: PLAN_REFUSED (belay explain PLAN_REFUSED)\n"),
            "{screen}"
        );
    }
    let screen = refusal(&home, "plan.json", r#"{"id": "p", "steps": [,]}"#);
    assert!(screen.contains("plan.json:1:23: invalid JSON"), "{screen}");
    nothing_was_started(&home);
}

/// S2-NFR-008, B-09: 10,000 steps are a plan, and one more is told how many there may be.
#[test]
fn ten_thousand_steps_are_a_plan_and_one_more_is_not() {
    let home = Home::new();
    let plan = |steps: usize| -> String {
        (0..steps)
            .fold("id: long\nsteps:\n".to_owned(), |plan, step| plan + &format!("  - {{id: s{step}, tool: noop}}\n"))
    };
    let good = home.run(["plan", "validate", &home.file("good.yaml", plan(10_000))]);
    assert_eq!(good.code, 0, "{}", good.talk);
    assert!(good.out.ends_with(" is valid: 10000 steps\n"), "{}", good.out);
    let screen = refusal(&home, "long.yaml", plan(10_001));
    assert!(screen.contains("steps: has 10001 steps and the limit is 10000: split it"), "{screen}");
    nothing_was_started(&home);
}

/// B-09: values beyond a limit are refused once, by name.
#[test]
fn what_is_too_big_is_refused_by_name() {
    let home = Home::new();
    let plan =
        |size: usize| format!("{{id: p, steps: [{{id: a, tool: noop, arguments: {{output: {}}}}}]}}", "x".repeat(size));
    let screen = refusal(&home, "big.yaml", plan(5_000_000));
    assert!(screen.starts_with("error: the plan big.yaml is longer than 4 MiB\n"), "{screen}");
    let screen = refusal(&home, "medium.yaml", plan(40_000));
    assert!(screen.contains("steps[0].arguments: has 40013 bytes as JSON and the limit is 32768"), "{screen}");
    nothing_was_started(&home);
}

#[test]
fn a_plan_that_cannot_be_read_is_named() {
    let home = Home::new();
    for (argument, why) in [("nowhere.yaml", "No such file or directory"), (".", "it is a folder")] {
        let ended = home.run(["run", argument]);
        assert_eq!(ended.code, 2);
        assert!(ended.talk.starts_with(&format!("error: the plan {argument} cannot be read: {why}")), "{}", ended.talk);
        assert!(
            ended.talk.contains("\nnext: belay ") && ended.talk.contains("\ncode: PLAN_UNREADABLE"),
            "{}",
            ended.talk
        );
    }
    let screen = refusal(&home, "latin1.yaml", b"id: p\n# \xe9\n");
    assert!(screen.contains("line 2 is not UTF-8"), "{screen}");
    assert!(!home.state().exists(), "nothing was begun for a plan that is not there");
}

/// S2-FR-042, S2-FR-073: what cannot be a workspace is refused before anything is started, and says what it lacks.
#[test]
fn a_workspace_is_a_folder_that_is_there_and_apart() {
    let home = Home::new();
    let plan = home.file("plan.yaml", "{id: p, steps: [{id: a, tool: noop}]}");
    std::fs::create_dir_all(home.path("w/deeper")).unwrap();
    std::os::unix::fs::symlink("w", home.path("link")).unwrap();
    let table = [
        ("nowhere", "the workspace nowhere: No such file or directory"),
        ("plan.yaml", "the workspace plan.yaml: it is a file, and a workspace is a folder"),
        ("/", "workspace `/` is the whole machine: name the directory of one project"),
        ("/proc", "the file system of workspace `/proc` does not support creating directories"),
        (".", "use separate directories"),
        ("state", "use separate directories"),
    ];
    make_state_directory(&home);
    for (folder, why) in table {
        let ended = home.run(["run", &plan, "--workspace", folder]);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{folder}: {}", ended.talk);
        assert!(ended.talk.starts_with("error: ") && ended.talk.contains(why), "{folder}: {}", ended.talk);
        assert!(ended.talk.ends_with("code: WORKSPACE_INVALID (belay explain WORKSPACE_INVALID)\n"), "{}", ended.talk);
    }
    // Another Belay's state directory is known by what is in it.
    let other = Home::new();
    make_state_directory(&other);
    for folder in [other.state(), other.state().join("workspaces")] {
        let ended = home.run(["run", &plan, "--workspace", folder.to_str().unwrap()]);
        assert_eq!(ended.code, 2, "{}", ended.talk);
        assert!(ended.talk.contains("use separate directories"), "{}", ended.talk);
    }
    nothing_was_started(&home);
    let (code, execution) = home.json(&["run", &plan, "--workspace", "link"]);
    let folder = home.path("w").canonicalize().unwrap();
    assert_eq!((code, execution["workspace"].as_str()), (0, folder.to_str()));
}

/// A workspace that may not be written is refused; root may write everywhere but where the file system itself does not let it.
#[test]
fn a_workspace_that_cannot_be_written_is_refused() {
    let home = Home::new();
    let plan = home.file("plan.yaml", "{id: p, steps: [{id: a, tool: noop}]}");
    let folder = home.path("w");
    std::fs::create_dir(&folder).unwrap();
    let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "ro", "none"]).arg(&folder).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return eprintln!(
            "a_workspace_that_cannot_be_written_is_refused: skipped, since no file system can be mounted here"
        );
    }
    let ended = home.run(["run", &plan, "--workspace", "w"]);
    drop(std::process::Command::new("umount").arg("--lazy").arg(&folder).status());
    assert_eq!(ended.code, 2, "{}", ended.talk);
    assert!(ended.talk.contains("is read-only: check its disk and remount it"), "{}", ended.talk);
    assert!(ended.talk.contains("code: WORKSPACE_INVALID "), "{}", ended.talk);
    nothing_was_started(&home);
}

/// S2-FR-042, S2-FR-043, S2-FR-075, S2-X-06, S2-X-08, S2-X-12, S2-X-26: steps that reach out of the workspace or ask for what is not there
/// fail with their own code, and nothing changes.
#[test]
fn steps_that_reach_for_what_they_must_not_have_fail() {
    let home = Home::new();
    std::fs::create_dir(home.path("w")).unwrap();
    home.file("w/kept.txt", "kept");
    home.file("outside.txt", "outside");
    std::os::unix::fs::symlink("/etc", home.path("w/out")).unwrap();
    let before = content(&home.path("w"));
    let table = [
        ("tool: read_file, arguments: {path: ../outside.txt}", 32, "OUTSIDE_WORKSPACE"),
        ("tool: read_file, arguments: {path: a/../../outside.txt}", 32, "OUTSIDE_WORKSPACE"),
        ("tool: read_file, arguments: {path: out/passwd}", 32, "OUTSIDE_WORKSPACE"),
        ("tool: read_file, arguments: {path: /etc/passwd}", 32, "OUTSIDE_WORKSPACE"),
        (r"tool: read_file, arguments: {path: '..\..\x'}", 32, "OUTSIDE_WORKSPACE"),
        (r"tool: read_file, arguments: {path: 'C:\Windows\System32'}", 32, "OUTSIDE_WORKSPACE"),
        ("tool: write_file, arguments: {path: ../new.txt, content: x}", 32, "OUTSIDE_WORKSPACE"),
        ("tool: delete_file, arguments: {path: ../outside.txt}", 32, "OUTSIDE_WORKSPACE"),
        ("tool: run_terminal, arguments: {command: [ls], cwd: ..}", 32, "OUTSIDE_WORKSPACE"),
        (r#"tool: read_file, arguments: {path: "a\0b"}"#, 30, "INVALID_ARGUMENTS"),
        (r#"tool: run_terminal, arguments: {command: ["a\0b"]}"#, 30, "INVALID_ARGUMENTS"),
        ("tool: read_file, arguments: {path: nowhere.txt}", 30, "FILE_NOT_FOUND"),
        ("tool: run_terminal, arguments: {command: [no-such-program]}", 30, "PROGRAM_NOT_FOUND"),
        ("tool: run_terminal, arguments: {command: [cat, ../outside.txt]}", 30, "COMMAND_FAILED"),
        ("tool: run_terminal, arguments: {command: [cp, kept.txt, out/stolen]}", 30, "COMMAND_FAILED"),
    ];
    let _server = home.serve();
    for (step, code, reason) in table {
        let path = ["path: ", "cwd: "].iter().find_map(|name| Some((*name, step.split_once(name)?.1)));
        let path = path.map(|(name, rest)| (name, rest.split([',', '}']).next().unwrap()));
        let mut plan = format!("{{id: p, steps: [{{id: a, {step}}}]}}");
        // What leaves the workspace by its spelling is refused with the plan; the tool runner sees it when another step named it.
        if let Some((name, path)) = path.filter(|(_, path)| code == 32 && *path != "out/passwd") {
            let ended = home.run(["run", &home.file("plan.yaml", &plan), "--workspace", "w"]);
            assert_eq!(ended.code, 2, "{step}: {}", ended.talk);
            let field = format!("steps[0].arguments.{}", name.trim_end_matches(": "));
            assert!(
                ended.talk.contains(&field) && ended.talk.contains("is outside workspace"),
                "{step}: {}",
                ended.talk
            );
            let step = step.replace(path, "'${path.result}'");
            plan = format!(
                "{{id: p, steps: [{{id: path, tool: noop, arguments: {{output: {path}}}}}, {{id: a, {step}}}]}}"
            );
        }
        let plan = home.file("plan.yaml", plan);
        let ended = home.run(["run", &plan, "--workspace", "w"]);
        assert_eq!(ended.code, code, "{step}: {}", ended.talk);
        assert!(ended.talk.ends_with(&format!("code: {reason} (belay explain {reason})\n")), "{step}: {}", ended.talk);
        if code == 32 {
            assert!(ended.talk.contains("outside workspace"), "{step}: {}", ended.talk);
        }
    }
    assert_eq!(content(&home.path("w")), before);
    assert_eq!(std::fs::read_to_string(home.path("outside.txt")).unwrap(), "outside");
    assert!(!home.path("new.txt").exists());
}

#[test]
fn names_and_flags_are_checked() {
    let home = Home::new();
    let _server = home.serve();
    let plan = home.file("plan.yaml", "{id: p, steps: [{id: a, tool: noop}]}");
    let table: [(&[&str], &str, &str); 9] = [
        (&["run", &plan, "--id", "No Such Id"], "`--id No Such Id` is not valid: use 1 to 64", "INVALID_ARGUMENT"),
        (&["run", &plan, "--label", "nonsense"], "write it as key=value", "INVALID_USAGE"),
        (&["run", &plan, "--wait-timeout", "soon"], "write it like 90s, 15m, 1h30m or 2d", "INVALID_USAGE"),
        (&["run"], "PLAN", "INVALID_USAGE"),
        (&["excutions", "list"], "did you mean `belay executions`?", "INVALID_USAGE"),
        (&["executions", "get", "no/id"], "`no/id` is not valid: use the execution's id", "INVALID_USAGE"),
        (&["executions", "get", "nobody"], "`nobody`", "EXECUTION_NOT_FOUND"),
        (&["executions", "get", "@last"], "there is no execution in namespace default yet", "EXECUTION_NOT_FOUND"),
        (&["tools", "describe", "nop"], "did you mean `noop`?", "TOOL_NOT_FOUND"),
    ];
    for (arguments, words, code) in table {
        let ended = home.run(arguments);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{arguments:?}: {}", ended.talk);
        assert!(ended.talk.contains(words), "{arguments:?}: {}", ended.talk);
        assert!(
            ended.talk.ends_with(&format!("code: {code} (belay explain {code})\n")),
            "{arguments:?}: {}",
            ended.talk
        );
        let mut as_json = arguments.to_vec();
        as_json.extend(["-o", "json"]);
        let refusal: Value = serde_json::from_str(&home.run(&as_json).out).unwrap();
        assert_eq!(refusal["code"], code);
    }
}
