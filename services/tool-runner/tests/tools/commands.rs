//! The input and output of commands.

use std::{fs, sync::Arc};

use belay_proto::v1::{ErrorClass, tool_call_output::Stream};
use belay_tool_runner::{Tool as _, tools::RunTerminal};
use serde_json::json;

use crate::{
    harness::{Test, tests},
    support::{Fixture, Recorder, block_on, enforcement, invocation, sh},
};

pub(crate) const TESTS: &[Test] = tests![
    a_command_returns_its_code_and_both_streams,
    output_is_forwarded_while_it_runs,
    changes_stay_in_the_view,
    an_unchecked_code_is_a_result_with_its_changes,
    shell_metacharacters_are_plain_bytes,
    a_missing_program_is_named,
    it_starts_in_the_working_directory,
    its_environment_is_fixed_plus_that_of_the_call,
    variables_that_loaders_obey_are_rejected,
    its_standard_input_is_empty,
    invalid_utf8_is_replaced,
    kept_output_is_bounded,
    closed_streams_do_not_end_the_call,
    outputs_are_in_the_result_of_a_command_that_succeeds,
    outputs_that_cannot_be_taken_fail_the_call,
];

// S2-FR-031, S2-FR-032, S2-FR-034 to S2-FR-036, S2-FR-044, S2-FR-046, S2-FR-047.
fn a_command_returns_its_code_and_both_streams() {
    let result = Fixture::new().call(sh("echo out; echo err >&2")).unwrap();
    let expected = json!({
        "exit_code": 0, "stdout": "out\n", "stderr": "err\n", "stdout_bytes": 4, "stderr_bytes": 4, "truncated": false,
    });
    assert_eq!(result, expected);
}

fn output_is_forwarded_while_it_runs() {
    let (fixture, recorder) = (Fixture::new(), Arc::new(Recorder::default()));
    let call = invocation(sh("echo one; echo two >&2; echo three"), &fixture.view(), Arc::clone(&recorder) as _);
    block_on(RunTerminal::new(enforcement()).call(call)).unwrap();
    assert_eq!(
        (recorder.of(Stream::Stdout), recorder.of(Stream::Stderr)),
        (b"one\nthree\n".to_vec(), b"two\n".to_vec())
    );
}

// S2-FR-045, B-06: the workspace itself is untouched.
fn changes_stay_in_the_view() {
    let fixture = Fixture::new();
    let view = fixture.view();
    fixture.call_in(&view, sh("echo changed > file; mkdir made; echo new > made/new")).unwrap();
    assert_eq!(
        (fixture.read_in(&view, "file"), fixture.read_in(&view, "made/new")),
        ("changed\n".into(), "new\n".into())
    );
    assert_eq!(fs::read_to_string(fixture.workspace.join("file")).unwrap(), "as it was\n");
    assert!(!fixture.workspace.join("made").exists());
    assert_eq!(fixture.script("cat file"), "as it was\n", "no other view shows it");
}

fn an_unchecked_code_is_a_result_with_its_changes() {
    let fixture = Fixture::new();
    let refused = fixture.fail(sh("echo why >&2; exit 3"));
    assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::Transient, "COMMAND_FAILED"));
    assert_eq!(refused.message, "`sh` exited with code 3.");
    let view = fixture.view();
    let script = json!({"command": ["sh", "-c", "echo x > new; exit 3"], "check": false});
    assert_eq!(fixture.call_in(&view, script).unwrap()["exit_code"], 3);
    assert_eq!(fixture.read_in(&view, "new"), "x\n");
}

// S2-X-09, S2-X-11: metacharacters reach the program unchanged and have no other effect.
fn shell_metacharacters_are_plain_bytes() {
    let odd = ["; rm -rf /", "a & b", "| sh", "$HOME $(id)", "`id`", "> file", "*", "~", "a\nb", "\"'\\"];
    let command: Vec<&str> = ["printf", "%s\\n"].into_iter().chain(odd).collect();
    let fixture = Fixture::new();
    let view = fixture.view();
    let result = fixture.call_in(&view, json!({"command": command})).unwrap();
    assert_eq!(result["stdout"], format!("{}\n", odd.join("\n")));
    assert_eq!(fixture.read_in(&view, "file"), "as it was\n");
    let refused = fixture.fail(json!({"command": ["a\0b"]}));
    assert!(
        refused.reason == "INVALID_ARGUMENTS" && refused.message.starts_with("arguments/command/0: "),
        "{refused:?}"
    );
}

fn a_missing_program_is_named() {
    let fixture = Fixture::new();
    let refused = fixture.fail(json!({"command": ["no-such-program"]}));
    assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::AgentUnavailable, "PROGRAM_NOT_FOUND"));
    assert!(refused.message.contains("`no-such-program`") && refused.message.contains("/usr/bin:/bin"), "{refused:?}");
    let refused = fixture.fail(json!({"command": ["./file"]}));
    assert!(refused.reason == "PROGRAM_NOT_FOUND" && refused.message.contains("`./file`"), "{refused:?}");
    // What a shell cannot find is in its output, which is kept with the failure.
    let (forwarder, mut chunks) = crate::support::Forwarder::new();
    let call = RunTerminal::new(enforcement()).call(invocation(sh("no-such-program"), &fixture.view(), forwarder));
    let refused = block_on(call).unwrap_err();
    assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::AgentUnavailable, "PROGRAM_NOT_FOUND"));
    let output: Vec<u8> = std::iter::from_fn(|| chunks.try_recv().ok()).flatten().collect();
    assert!(String::from_utf8_lossy(&output).contains("no-such-program"), "{output:?}");
    let refused = fixture.fail(json!({"command": [""]}));
    assert_eq!(refused.reason, "INVALID_ARGUMENTS");
}

fn it_starts_in_the_working_directory() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.workspace.join("sub")).unwrap();
    let pwd = |cwd: &str| fixture.call(json!({"command": ["pwd"], "cwd": cwd}));
    assert_eq!(pwd(".").unwrap()["stdout"], "/workspace\n");
    assert_eq!(pwd("x/../sub").unwrap()["stdout"], "/workspace/sub\n");
    assert_eq!(pwd("none").unwrap_err().reason, "FILE_NOT_FOUND");
    assert_eq!(pwd("file").unwrap_err().reason, "WRONG_FILE_TYPE");
}

fn its_environment_is_fixed_plus_that_of_the_call() {
    let fixture = Fixture::new();
    let arguments = json!({"command": ["env"], "env": {"TEAM": "a b", "TRACESTATE": "mine=1"}});
    let output = fixture.call(arguments).unwrap()["stdout"].as_str().unwrap().to_owned();
    let output: Vec<&str> = output.lines().collect();
    for line in ["TEAM=a b", "TRACEPARENT=00-aa-bb-01", "TRACESTATE=mine=1", "HOME=/home/belay", "LANG=C.UTF-8"] {
        assert!(output.contains(&line), "{line}: {output:?}");
    }
    // Nothing of the runner's own environment is passed on.
    let own = std::env::vars().map(|(name, value)| format!("{name}={value}")).find(|own| own.starts_with("PWD="));
    assert!(own.is_none_or(|own| !output.contains(&own.as_str())), "{output:?}");
    let foreign =
        |line: &&&str| (line.starts_with("CARGO") || line.starts_with("RUST")) && **line != "CARGO_NET_OFFLINE=true";
    assert_eq!(output.iter().find(foreign), None, "{output:?}");
}

fn variables_that_loaders_obey_are_rejected() {
    let fixture = Fixture::new();
    for name in [
        "LD_PRELOAD",
        "BASH_ENV",
        "GIT_SSH_COMMAND",
        "PYTHONPATH",
        "NODE_OPTIONS",
        "NPM_CONFIG_SCRIPT_SHELL",
        "MAKEFLAGS",
        "PATH",
        "A=B",
    ] {
        let refused = fixture.fail(json!({"command": ["true"], "env": {name: "x"}}));
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::InvalidArguments, "INVALID_ARGUMENTS"));
        assert!(refused.message.starts_with(&format!("arguments/env/{name}: ")), "{refused:?}");
    }
}

fn its_standard_input_is_empty() {
    assert_eq!(Fixture::new().script("cat; echo end"), "end\n");
}

fn invalid_utf8_is_replaced() {
    assert_eq!(Fixture::new().script("printf 'a\\377b'"), "a\u{fffd}b");
}

fn kept_output_is_bounded() {
    let fixture = Fixture::new();
    // Without a reader: this measures what the tool keeps.
    let (forwarder, _) = crate::support::Forwarder::new();
    let script = "echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last";
    let result =
        block_on(RunTerminal::new(enforcement()).call(invocation(sh(script), &fixture.view(), forwarder))).unwrap();
    let stdout = result["stdout"].as_str().unwrap();
    assert_eq!((&result["stdout_bytes"], &result["truncated"]), (&json!(200_000_012), &json!(true)));
    assert!(stdout.starts_with("first\nxxx") && stdout.ends_with("xxx\nlast\n") && stdout.len() < (1 << 20) + 100);
    assert!(stdout.contains("\n[198951436 bytes left out]\n"));
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 150_000, "the peak of this process was {kib} KiB");
}

fn closed_streams_do_not_end_the_call() {
    let fixture = Fixture::new();
    let view = fixture.view();
    let script = json!({"command": ["sh", "-c", "exec >&- 2>&-; echo late > new; exit 4"], "check": false});
    let result = fixture.call_in(&view, script).unwrap();
    assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(4), &json!("")));
    assert_eq!(fixture.read_in(&view, "new"), "late\n");
}

/// A command appends to a file outside its workspace, from any of its processes; what it has appended counts when it succeeds.
fn outputs_are_in_the_result_of_a_command_that_succeeds() {
    let fixture = Fixture::new();
    let append = "echo version=1.4 >> $BELAY_OUTPUT; sh -c 'echo \"{\\\"files\\\": [1, null]}\" >> $BELAY_OUTPUT'";
    assert_eq!(fixture.call(sh(append)).unwrap()["outputs"], json!({"version": "1.4", "files": [1, null]}));
    let view = fixture.view();
    let result =
        fixture.call_in(&view, sh("echo > $BELAY_OUTPUT; find . -type f -newer file -not -path './.belay*'")).unwrap();
    assert!(result.get("outputs").is_none(), "an empty line is no output: {result}");
    assert_eq!(result["stdout"], "", "nothing of it is in the workspace");
    let unchecked = json!({"command": ["sh", "-c", "echo a=1 >> $BELAY_OUTPUT; exit 3"], "check": false});
    assert!(fixture.call(unchecked).unwrap().get("outputs").is_none(), "it has failed");
}

fn outputs_that_cannot_be_taken_fail_the_call() {
    let fixture = Fixture::new();
    for (script, what) in [
        ("echo no >> $BELAY_OUTPUT", "line 1, which is neither `name=value`"),
        ("printf 'a=1\\nb=2\\na=3\\n' >> $BELAY_OUTPUT", "`a` again in line 3"),
        ("head -c 2000000 /dev/zero | tr '\\0' x >> $BELAY_OUTPUT", "more than 1048576 bytes"),
        ("truncate -s 400M $BELAY_OUTPUT", "more than 1048576 bytes"),
    ] {
        let refused = fixture.fail(sh(script));
        assert_eq!(
            (refused.class, refused.reason.as_str()),
            (ErrorClass::InvalidResult, "OUTPUTS_REFUSED"),
            "{script}"
        );
        assert!(refused.message.contains(what), "{script}: {}", refused.message);
    }
}
