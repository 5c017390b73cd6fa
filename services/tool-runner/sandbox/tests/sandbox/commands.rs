//! Ordinary commands.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use belay_sandbox::{LaunchError, OutputCaps, Spec, Status};

use crate::{
    harness::{Test, Verdict, tests},
    support::{Fixture, launch, refusal, run, succeed},
};

pub(crate) const TESTS: &[Test] = tests![
    output_and_exit_code_come_back,
    arguments_are_not_interpreted_by_a_shell,
    a_signal_differs_from_an_exit_code,
    it_starts_in_its_working_directory,
    a_missing_working_directory_is_named,
    a_missing_program_is_named,
    a_program_that_cannot_be_executed_differs_from_a_missing_one,
    the_environment_is_fixed,
    standard_input_is_empty,
    long_output_is_cut_in_the_middle_and_counted,
    its_own_output_can_be_opened_by_name,
    it_is_an_ordinary_user,
    resource_usage_is_reported,
    long_arguments_are_passed_in_full,
    many_run_at_once,
    python_runs,
    git_commits,
];

// S2-FR-044 executes, S2-FR-045 sandboxed, S2-FR-046 output captured, S2-FR-047 exit code captured.
fn output_and_exit_code_come_back() {
    let fixture = Fixture::new();
    let (outcome, output) = run(fixture.script("pwd; echo err >&2; exit 3"));
    assert_eq!(outcome.status, Status::Exited(3));
    assert_eq!((output.stdout.text().as_str(), output.stderr.text().as_str()), ("/workspace\n", "err\n"));
}

fn arguments_are_not_interpreted_by_a_shell() {
    let fixture = Fixture::new();
    assert_eq!(
        succeed(Spec::new("printf", ["%s|", "a b", "$(id)", "; rm -rf /", ""], fixture.read_only())),
        "a b|$(id)|; rm -rf /||"
    );
}

fn a_signal_differs_from_an_exit_code() {
    let fixture = Fixture::new();
    assert_eq!(run(fixture.script("kill -TERM $$")).0.status, Status::Signalled(15));
    assert_eq!(run(fixture.script("exit 143")).0.status, Status::Exited(143));
}

fn it_starts_in_its_working_directory() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.workspace.join("a/b")).unwrap();
    let spec = Spec { cwd: "./a/b".into(), ..fixture.script("pwd") };
    assert_eq!(succeed(spec), "/workspace/a/b\n");
}

fn a_missing_working_directory_is_named() {
    let fixture = Fixture::new();
    for cwd in ["nowhere", "file"] {
        let error = refusal(Spec { cwd: cwd.into(), ..fixture.script("pwd") });
        assert!(
            matches!(&error, LaunchError::WorkingDirectory { cwd: named, .. } if named == Path::new(cwd)),
            "{error}"
        );
    }
}

fn a_missing_program_is_named() {
    let fixture = Fixture::new();
    for program in ["no-such-program", "./no-such-program", "/opt/no-such-program"] {
        let error = refusal(Spec::new(program, [""; 0], fixture.read_only()));
        assert!(matches!(&error, LaunchError::ProgramNotFound { program: named, .. } if named == program), "{error}");
        assert!(error.to_string().contains(program));
    }
}

fn a_program_that_cannot_be_executed_differs_from_a_missing_one() {
    let fixture = Fixture::new();
    let script = fixture.workspace.join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let error = || refusal(Spec::new("./script", [""; 0], fixture.read_only()));
    let not_executable = |error: &LaunchError| matches!(error, LaunchError::ProgramNotExecutable { .. });
    assert!(not_executable(&error()), "without permission: {}", error());
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(not_executable(&error()), "without interpreter: {}", error());
    fs::write(&script, "neither a script nor a binary").unwrap();
    assert!(not_executable(&error()), "unknown format: {}", error());
}

fn the_environment_is_fixed() {
    let fixture = Fixture::new();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut spec = Spec::new("env", [""; 0], fixture.read_only());
    spec.env.push(("TRACEPARENT".to_owned(), trace.into()));
    let mut lines: Vec<String> = succeed(spec).lines().map(str::to_owned).collect();
    lines.sort();
    let expected = [
        "CARGO_NET_OFFLINE=true",
        "COMPOSER_DISABLE_NETWORK=1",
        "GIT_CONFIG_GLOBAL=/dev/null",
        "GIT_CONFIG_NOSYSTEM=1",
        "GIT_TERMINAL_PROMPT=0",
        "GOPROXY=off",
        "GOTOOLCHAIN=local",
        "HOME=/home/belay",
        "LANG=C.UTF-8",
        "LOGNAME=belay",
        "MAVEN_ARGS=--offline",
        "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PIP_DISABLE_PIP_VERSION_CHECK=1",
        "PIP_RETRIES=1",
        "TERM=dumb",
        "TMPDIR=/tmp",
        &format!("TRACEPARENT={trace}"),
        "TZ=UTC",
        "USER=belay",
        "UV_OFFLINE=1",
        "YARN_ENABLE_NETWORK=0",
        "npm_config_audit=false",
        "npm_config_fund=false",
        "npm_config_offline=true",
        "npm_config_update_notifier=false",
    ];
    assert_eq!(lines, expected);
}

fn standard_input_is_empty() {
    let fixture = Fixture::new();
    assert_eq!(succeed(Spec::new("cat", [""; 0], fixture.read_only())), "");
}

// Pipes are drained: a command that writes much is neither blocked nor fills memory.
fn long_output_is_cut_in_the_middle_and_counted() {
    let fixture = Fixture::new();
    let mut running = launch(fixture.script("echo begin; head -c 3000000 /dev/zero; echo end"));
    let (outcome, output) = running.collect(OutputCaps { head: 100, tail: 50 }).unwrap();
    assert_eq!(outcome.status, Status::Exited(0));
    let text = output.stdout.text();
    assert!(text.starts_with("begin\n") && text.ends_with("end\n"));
    assert_eq!((text.len(), output.stdout.total), (150, 3_000_010));
}

fn its_own_output_can_be_opened_by_name() {
    let fixture = Fixture::new();
    let (outcome, output) = run(fixture.script("echo out > /dev/stdout; echo err > /dev/stderr; cat < /dev/stdin"));
    assert_eq!(outcome.status, Status::Exited(0), "{}", output.stderr.text());
    assert_eq!((output.stdout.text().as_str(), output.stderr.text().as_str()), ("out\n", "err\n"));
}

fn it_is_an_ordinary_user() {
    let fixture = Fixture::new();
    assert_eq!(
        succeed(fixture.script("id -u; id -g; id -un; hostname; cd; pwd; touch made")),
        "1000\n1000\nbelay\nsandbox\n/home/belay\n"
    );
}

fn resource_usage_is_reported() {
    let fixture = Fixture::new();
    // The time of all descendants counts, also of those that it did not wait for.
    let (outcome, _) = run(fixture.script("head -c 200000000 /dev/zero | cksum"));
    assert!(outcome.usage.user + outcome.usage.system > Duration::ZERO);
    assert!(outcome.usage.max_resident_bytes > 100_000, "{:?}", outcome.usage);
}

fn long_arguments_are_passed_in_full() {
    let fixture = Fixture::new();
    let long = "x".repeat(100_000);
    let args = ["-c", "printf %s \"$@\" | wc -c", "sh"].into_iter().chain([long.as_str(); 10]);
    assert_eq!(succeed(Spec::new("sh", args, fixture.read_only())).trim(), "1000000");
}

// S2-NFR-004: commands run concurrently, each with its own output and changes.
fn many_run_at_once() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let fixture = &fixture;
            scope.spawn(move || {
                for round in 0..4 {
                    let (seen, upper) = fixture.change(&format!("echo {n}-{round} | tee new"));
                    assert_eq!(seen, format!("{n}-{round}\n"));
                    assert_eq!(fs::read_to_string(upper.join("new")).unwrap(), seen);
                }
            });
        }
    });
}

fn python_runs() -> Verdict {
    if !Path::new("/usr/bin/python3").exists() {
        return Verdict::Skipped("/usr/bin/python3 is not installed".to_owned());
    }
    let fixture = Fixture::new();
    let code = "import json, subprocess, tempfile, threading\n\
        t = threading.Thread(target=lambda: None); t.start(); t.join()\n\
        open(tempfile.mkstemp()[1], 'w').write('x')\n\
        print(json.dumps({'echo': subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout}))";
    assert_eq!(succeed(Spec::new("python3", ["-c", code], fixture.read_only())), "{\"echo\": \"hi\\n\"}\n");
    Verdict::Passed
}

fn git_commits() -> Verdict {
    if !Path::new("/usr/bin/git").exists() {
        return Verdict::Skipped("/usr/bin/git is not installed".to_owned());
    }
    let fixture = Fixture::new();
    let script =
        "git init -q . && git add file && git -c user.name=n -c user.email=e commit -qm m && git log --format=%s";
    let (log, upper) = fixture.change(script);
    assert_eq!(log, "m\n");
    assert!(upper.join(".git/HEAD").exists());
    Verdict::Passed
}
