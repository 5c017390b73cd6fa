//! The operator's settings: what commands see of a caller's toolchains and caches, and the errors of an invalid file.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use belay_e2e::{Home, belay::RunningCommand, binary};
use serde_json::Value;

/// No change by a command requires approval.
const POLICY: &str = "terminal_commands: auto\nnon_interactive_policy: auto\n";

/// A folder of a person's, with a plan that runs these shell scripts one after the other.
fn home(scripts: &[&str]) -> Home {
    let home = Home::new();
    for folder in ["w", "w2", "me"] {
        fs::create_dir(home.path(folder)).unwrap();
    }
    home.file("policy.yaml", POLICY);
    let step = |(n, script): (usize, &&str)| {
        let command = serde_json::to_string(&["sh", "-c", script]).unwrap();
        format!("  - {{id: s{n}, tool: run_terminal, arguments: {{command: {command}, check: false}}}}\n")
    };
    home.file("plan.yaml", format!("id: p\nsteps:\n{}", scripts.iter().enumerate().map(step).collect::<String>()));
    home
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs the plan as somebody whose home directory is `me`, and gives the execution.
fn run(home: &Home, workspace: &str, path: &str, more: &[&str]) -> Value {
    let arguments = ["run", "plan.yaml", "--workspace", workspace, "--policy", "policy.yaml", "-o", "json"];
    let mut command = home.belay(arguments.iter().chain(more));
    command.env("HOME", home.path("me")).env("PATH", path);
    for variable in ["CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR", "GOPATH", "GOMODCACHE", "JAVA_HOME"] {
        command.env_remove(variable);
    }
    let ended = RunningCommand::start(command).end();
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// The standard output of a step.
fn printed(execution: &Value, step: usize) -> String {
    let step = &execution["steps"][step];
    let said = step["output"]["stdout"].as_str();
    said.unwrap_or_else(|| panic!("it did not run: {step:#}")).trim().to_owned()
}

// A command sees a toolchain's programs, and nothing else of the home they lie in.
#[test]
fn credentials_beside_a_toolchain_cannot_be_read() {
    let home = home(&[
        "greet",
        "cat $(dirname $(command -v greet))/../credentials.toml; ls -a $(dirname $(command -v greet))/..",
    ]);
    program(&home.path("me/.cargo/bin/greet"), "#!/bin/sh\necho hello\n");
    fs::write(home.path("me/.cargo/credentials.toml"), "token = \"s3cret\"").unwrap();
    fs::set_permissions(home.path("me/.cargo/credentials.toml"), fs::Permissions::from_mode(0o666)).unwrap();
    let path = format!("{}:/usr/bin:/bin", home.path("me/.cargo/bin").display());
    let execution = run(&home, "w", &path, &[]);
    assert_eq!(printed(&execution, 0), "hello");
    assert_eq!(printed(&execution, 1), ".\n..\nbin", "{execution:#}");
}

#[test]
fn what_a_command_writes_to_a_cache_that_is_read_does_not_reach_the_person() {
    let home = home(&[
        "cat ~/.cargo/registry/x; echo changed > ~/.cargo/registry/x; echo > ~/.cargo/registry/y; cat ~/.cargo/registry/x",
    ]);
    let registry = home.path("me/.cargo/registry");
    fs::create_dir_all(&registry).unwrap();
    fs::write(registry.join("x"), "mine\n").unwrap();
    for (path, mode) in [(registry.clone(), 0o755), (registry.join("x"), 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let execution = run(&home, "w", "/usr/bin:/bin", &[]);
    assert_eq!(printed(&execution, 0), "mine\nchanged");
    assert_eq!(fs::read_to_string(registry.join("x")).unwrap(), "mine\n");
    assert!(!registry.join("y").exists());
    assert!(!execution.to_string().contains("writable cache"), "{execution:#}");
}

#[test]
fn a_cache_that_is_kept_is_there_again_in_its_own_workspace_and_in_no_other() {
    let home = home(&["cat ~/.cargo/registry/x || echo nothing; echo kept > ~/.cargo/registry/x"]);
    fs::create_dir_all(home.path("me/.cargo/registry")).unwrap();
    home.file("config.yaml", "commands: {caches: {cargo: keep}}\n");
    let first = |workspace: &str| {
        let execution = run(&home, workspace, "/usr/bin:/bin", &["--config", "config.yaml"]);
        (printed(&execution, 0), execution)
    };
    let (before, execution) = first("w");
    assert_eq!(before, "nothing");
    let id = execution["name"].as_str().unwrap().rsplit('/').next().unwrap();
    let events = serde_json::to_string(&home.events(id)).unwrap();
    assert!(events.contains("writable cache cargo"), "the receipt says so: {events}");
    assert_eq!(first("w").0, "kept");
    assert_eq!(first("w2").0, "nothing");
    assert_eq!(fs::read_dir(home.path("me/.cargo/registry")).unwrap().count(), 0, "the person's own is not touched");
}

#[test]
fn a_plan_sets_what_programs_obey_only_where_the_operator_says_so() {
    let home = home(&[]);
    home.file("plan.yaml", "id: p\nsteps:\n  - {id: s0, tool: run_terminal, arguments: {command: [printenv, PYTHONPATH], env: {PYTHONPATH: lib}}}\n");
    let refused = home.run(["run", "plan.yaml", "--workspace", "w"]);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{}", refused.talk);
    let why = "steps[0].arguments.env.PYTHONPATH: is reserved, because it decides what programs load or execute";
    assert!(
        refused.talk.contains(why) && refused.talk.contains("`commands: {plans_may_set: [PYTHONPATH]}`"),
        "{}",
        refused.talk
    );
    // A check of the plan refuses it, beside everything else that is wrong.
    home.file("wrong.yaml", "id: p\nsteps:\n  - {id: s0, tool: run_terminal, depends_on: [s1], arguments: {command: [x], env: {PATH: lib}}}\n  - {id: s1, tool: read_fil, depends_on: [s0], arguments: {path: ../x}}\n  - {id: s2, tool: read_file, arguments: {path: ../x}}\n");
    let checked = home.run(["plan", "validate", "wrong.yaml"]);
    assert_eq!(checked.code, 2, "{checked:?}");
    for problem in [
        "wrong.yaml:3:47: steps[0].depends_on[0]: cyclic dependencies",
        "steps[0].arguments.env.PATH: ",
        "wrong.yaml:4:20: steps[1].tool: Tool 'read_fil' not found; did you mean `read_file`?",
        "steps[2].arguments.path: `../x` is outside workspace",
    ] {
        assert!(checked.talk.contains(problem), "{problem}: {checked:?}");
    }
    home.file("config.yaml", "commands:\n  plans_may_set: [PYTHONPATH]\n");
    assert_eq!(printed(&run(&home, "w", "/usr/bin:/bin", &["--config", "config.yaml"]), 0), "lib");
}

#[test]
fn a_program_that_will_not_be_there_is_told_before_anything_starts() {
    let home = home(&[]);
    home.file(
        "plan.yaml",
        "id: p\nsteps:\n  - id: a\n    tool: run_terminal\n    arguments: {command: [sh, -c, 'true']}\n  - id: b\n    tool: run_terminal\n    \
         arguments:\n      command: [no-such-program]\n  - {id: c, tool: run_terminal, arguments: {command: [./made-by-b]}}\n",
    );
    let (code, checked) = home.json(&["plan", "validate", "plan.yaml"]);
    let warnings = checked["warnings"].as_array().unwrap();
    assert_eq!((code, warnings.len()), (0, 1), "{checked:#}");
    assert_eq!((&warnings[0]["field"], &warnings[0]["line"]), (&"steps[1].arguments.command[0]".into(), &9.into()));
    assert!(warnings[0]["message"].as_str().unwrap().contains("`no-such-program` not found: commands search"));
    let shown = home.run(["run", "plan.yaml", "--dry-run", "--workspace", "w"]);
    assert!(shown.code == 0 && shown.out.contains("warning: plan.yaml:9:17: "), "{shown:?}");
}

#[test]
fn a_file_with_a_mistake_starts_nothing() {
    let home = home(&["true"]);
    home.file("config.yaml", "commands:\n  plan_may_set: [A]\n");
    for arguments in [&["run", "plan.yaml"][..], &["serve"], &["config", "show"]] {
        let ended = home.run(arguments.iter().chain(&["--config", "config.yaml"]));
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.talk.contains("config.yaml:2:3: commands.plan_may_set: there is no key"), "{ended:?}");
        assert!(ended.talk.contains("did you mean `plans_may_set`?"), "{ended:?}");
    }
    // The separate services read the same file in the same way.
    let socket = format!("unix:{}", home.path("s").display());
    for (service, more) in [
        ("executor", vec!["--runner", &socket, "--gate", &socket]),
        ("tool-runner", vec!["--gate", &socket, "--gate-key", "none"]),
        ("approval-gate", vec!["--runner", &socket, "--service-listen", &socket]),
    ] {
        let mut command = Command::new(binary());
        command.args([service, "--listen", &socket, "--state-dir"]).arg(home.path(service)).args(more);
        let ended = command.env("BELAY_CONFIG", home.path("config.yaml")).output().unwrap();
        let talk = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{service}: {talk}");
        assert!(talk.contains("line 2: commands.plan_may_set: there is no key"), "{service}: {talk}");
        assert!(!home.path(service).exists(), "nothing was made");
    }
}

/// S2-X-22: `config show`.
#[test]
fn every_setting_says_where_it_comes_from() {
    let home = home(&[]);
    fs::create_dir_all(home.path("config/belay")).unwrap();
    fs::write(home.path("config/belay/config.yaml"), "log: {level: warn}\ncommands:\n  limits: {processes: 99}\n")
        .unwrap();
    let show = |more: &[&str], variable: Option<&str>| {
        let mut command = home.belay(["config", "show", "-o", "json"].iter().chain(more));
        command.env("PATH", "/usr/bin:/bin").envs(variable.map(|value| ("BELAY_LOG", value)));
        let ended = RunningCommand::start(command).end();
        serde_json::from_str::<Value>(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    };
    let row = |shown: &Value, key: &str| {
        let row = shown["settings"].as_array().unwrap().iter().find(|row| row["key"] == key).unwrap();
        (row["value"].as_str().unwrap().to_owned(), row["origin"].as_str().unwrap().to_owned(), row["line"].as_u64())
    };
    let shown = show(&[], None);
    assert!(shown["file"].as_str().unwrap().ends_with("config/belay/config.yaml"));
    assert_eq!(row(&shown, "commands.limits.processes"), ("99".into(), "file".into(), Some(3)));
    assert_eq!(row(&shown, "log.level"), ("warn".into(), "file".into(), Some(1)));
    assert_eq!(row(&shown, "commands.scratch.tmp"), ("8GiB".into(), "default".into(), None));
    assert_eq!(row(&shown, "state_dir").1, "variable");
    assert_eq!(row(&show(&[], Some("debug")), "log.level"), ("debug".into(), "variable".into(), None));
    assert_eq!(row(&show(&["--namespace", "n"], None), "namespace"), ("n".into(), "flag".into(), None));
    let other = home.file("other.yaml", "");
    assert_eq!(
        row(&show(&["--config", &other], None), "commands.limits.processes"),
        ("4096".into(), "default".into(), None)
    );
}

#[test]
fn the_example_is_the_defaults() {
    let home = home(&[]);
    let example = belay_e2e::belay::repository().join("docs/examples/config.yaml");
    let show = |more: &[&str]| {
        let ended = home.run(["config", "show", "-o", "json"].iter().chain(more));
        assert_eq!(ended.code, 0, "{ended:?}");
        let shown: Value = serde_json::from_str(&ended.out).unwrap();
        let rows = shown["settings"].as_array().unwrap().iter();
        rows.map(|row| format!("{} = {}", row["key"], row["value"])).collect::<Vec<_>>()
    };
    assert_eq!(show(&["--config", example.to_str().unwrap()]), show(&[]));
}

// The toolchains of this machine, where they are.
#[test]
fn cargo_of_rustup_builds_inside_as_it_does_outside() {
    let Some(rustup) = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .find(|folder| folder.join("rustup").is_file())
    else {
        println!("skipped: there is no rustup on the PATH");
        return;
    };
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("policy.yaml", POLICY);
    let script = "cargo --version && rustc --version && cd /tmp && cargo init -q --name x x && cd x && cargo build -q --offline && ./target/debug/x";
    let command = serde_json::to_string(&["sh", "-c", script]).unwrap();
    home.file(
        "plan.yaml",
        format!("id: p\nsteps:\n  - {{id: s0, tool: run_terminal, arguments: {{command: {command}}}}}\n"),
    );
    let (_, execution) = home.json(&["run", "plan.yaml", "--workspace", "w", "--policy", "policy.yaml"]);
    let outside = Command::new(rustup.join("cargo")).arg("--version").current_dir(home.path("w")).output().unwrap();
    let said = printed(&execution, 0);
    assert!(said.starts_with(std::str::from_utf8(&outside.stdout).unwrap().trim()), "{said}");
    assert!(said.ends_with("Hello, world!"), "{said}");
}
