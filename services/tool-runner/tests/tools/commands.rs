//! What goes in and what comes out.

use std::{fs, sync::Arc};

use belay_proto::v1::{ErrorClass, tool_call_output::Stream};
use belay_tool_runner::{Tool as _, tools::RunTerminal};
use serde_json::json;

use crate::{
    harness::{Test, tests},
    support::{Heard, Room, block_on, enforcement, invocation, sh},
};

pub(crate) const TESTS: &[Test] = tests![
    a_command_gives_its_code_and_both_streams,
    what_it_says_is_heard_as_it_is_said,
    what_it_changes_stays_in_its_view,
    an_unchecked_code_is_a_result_and_its_changes_stay,
    what_a_shell_would_obey_is_bytes,
    a_program_that_is_not_there_is_named,
    it_starts_where_it_is_told_to,
    its_environment_is_ours_and_the_calls,
    variables_that_loaders_obey_are_refused,
    it_has_nothing_to_read,
    bytes_that_are_no_text_are_replaced,
    much_output_fills_no_memory,
    closed_streams_are_no_end,
];

// S2-FR-044, S2-FR-046, S2-FR-047, S2-BP-007.
fn a_command_gives_its_code_and_both_streams() {
    let result = Room::new().call(sh("echo out; echo err >&2")).unwrap();
    let expected = json!({
        "exit_code": 0, "stdout": "out\n", "stderr": "err\n", "stdout_bytes": 4, "stderr_bytes": 4, "truncated": false,
    });
    assert_eq!(result, expected);
}

fn what_it_says_is_heard_as_it_is_said() {
    let (room, heard) = (Room::new(), Arc::new(Heard::default()));
    let call = invocation(sh("echo one; echo two >&2; echo three"), &room.view(), Arc::clone(&heard) as _);
    block_on(RunTerminal::new(enforcement()).call(call)).unwrap();
    assert_eq!((heard.of(Stream::Stdout), heard.of(Stream::Stderr)), (b"one\nthree\n".to_vec(), b"two\n".to_vec()));
}

// S2-FR-045, B-06: the workspace itself is untouched.
fn what_it_changes_stays_in_its_view() {
    let room = Room::new();
    let view = room.view();
    room.call_in(&view, sh("echo changed > file; mkdir made; echo new > made/new")).unwrap();
    assert_eq!((room.read_in(&view, "file"), room.read_in(&view, "made/new")), ("changed\n".into(), "new\n".into()));
    assert_eq!(fs::read_to_string(room.workspace.join("file")).unwrap(), "as it was\n");
    assert!(!room.workspace.join("made").exists());
    assert_eq!(room.script("cat file"), "as it was\n", "and no other view shows it");
}

fn an_unchecked_code_is_a_result_and_its_changes_stay() {
    let room = Room::new();
    let refused = room.fail(sh("echo why >&2; exit 3"));
    assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::Transient, "COMMAND_FAILED"));
    assert_eq!(refused.message, "`sh` ended with code 3.");
    let view = room.view();
    let script = json!({"command": ["sh", "-c", "echo x > new; exit 3"], "check": false});
    assert_eq!(room.call_in(&view, script).unwrap()["exit_code"], 3);
    assert_eq!(room.read_in(&view, "new"), "x\n");
}

// S2-X-09, S2-X-11: metacharacters reach the program as they are, and nothing else happens.
fn what_a_shell_would_obey_is_bytes() {
    let odd = ["; rm -rf /", "a & b", "| sh", "$HOME $(id)", "`id`", "> file", "*", "~", "a\nb", "\"'\\"];
    let command: Vec<&str> = ["printf", "%s\\n"].into_iter().chain(odd).collect();
    let room = Room::new();
    let view = room.view();
    let result = room.call_in(&view, json!({"command": command})).unwrap();
    assert_eq!(result["stdout"], format!("{}\n", odd.join("\n")));
    assert_eq!(room.read_in(&view, "file"), "as it was\n");
    let refused = room.fail(json!({"command": ["a\0b"]}));
    assert!(
        refused.reason == "INVALID_ARGUMENTS" && refused.message.starts_with("arguments/command/0: "),
        "{refused:?}"
    );
}

fn a_program_that_is_not_there_is_named() {
    let room = Room::new();
    let refused = room.fail(json!({"command": ["no-such-program"]}));
    assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::AgentUnavailable, "PROGRAM_NOT_FOUND"));
    assert!(refused.message.contains("`no-such-program`") && refused.message.contains("/usr/bin:/bin"), "{refused:?}");
    let refused = room.fail(json!({"command": ["./file"]}));
    assert!(refused.reason == "PROGRAM_NOT_FOUND" && refused.message.contains("`./file`"), "{refused:?}");
    // What a shell cannot find stands in its output, which is kept with the failure.
    let (told, mut pieces) = crate::support::Told::new();
    let call = RunTerminal::new(enforcement()).call(invocation(sh("no-such-program"), &room.view(), told));
    let refused = block_on(call).unwrap_err();
    assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::AgentUnavailable, "PROGRAM_NOT_FOUND"));
    let said: Vec<u8> = std::iter::from_fn(|| pieces.try_recv().ok()).flatten().collect();
    assert!(String::from_utf8_lossy(&said).contains("no-such-program"), "{said:?}");
    let refused = room.fail(json!({"command": [""]}));
    assert_eq!(refused.reason, "INVALID_ARGUMENTS");
}

fn it_starts_where_it_is_told_to() {
    let room = Room::new();
    fs::create_dir(room.workspace.join("sub")).unwrap();
    let pwd = |cwd: &str| room.call(json!({"command": ["pwd"], "cwd": cwd}));
    assert_eq!(pwd(".").unwrap()["stdout"], "/workspace\n");
    assert_eq!(pwd("x/../sub").unwrap()["stdout"], "/workspace/sub\n");
    assert_eq!(pwd("none").unwrap_err().reason, "FILE_NOT_FOUND");
    assert_eq!(pwd("file").unwrap_err().reason, "WRONG_FILE_TYPE");
}

fn its_environment_is_ours_and_the_calls() {
    let room = Room::new();
    let arguments = json!({"command": ["env"], "env": {"TEAM": "a b", "TRACESTATE": "mine=1"}});
    let said = room.call(arguments).unwrap()["stdout"].as_str().unwrap().to_owned();
    let said: Vec<&str> = said.lines().collect();
    for line in ["TEAM=a b", "TRACEPARENT=00-aa-bb-01", "TRACESTATE=mine=1", "HOME=/home/belay", "LANG=C.UTF-8"] {
        assert!(said.contains(&line), "{line}: {said:?}");
    }
    // Of the runner's own environment nothing is passed on.
    let own = std::env::vars().map(|(name, value)| format!("{name}={value}")).find(|own| own.starts_with("PWD="));
    assert!(own.is_none_or(|own| !said.contains(&own.as_str())), "{said:?}");
    let foreign =
        |line: &&&str| (line.starts_with("CARGO") || line.starts_with("RUST")) && **line != "CARGO_NET_OFFLINE=true";
    assert_eq!(said.iter().find(foreign), None, "{said:?}");
}

fn variables_that_loaders_obey_are_refused() {
    let room = Room::new();
    for name in ["LD_PRELOAD", "BASH_ENV", "GIT_SSH_COMMAND", "PYTHONPATH", "NODE_OPTIONS", "PATH", "A=B"] {
        let refused = room.fail(json!({"command": ["true"], "env": {name: "x"}}));
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::InvalidArguments, "INVALID_ARGUMENTS"));
        assert!(refused.message.starts_with(&format!("arguments/env/{name}: ")), "{refused:?}");
    }
}

fn it_has_nothing_to_read() {
    assert_eq!(Room::new().script("cat; echo end"), "end\n");
}

fn bytes_that_are_no_text_are_replaced() {
    assert_eq!(Room::new().script("printf 'a\\377b'"), "a\u{fffd}b");
}

fn much_output_fills_no_memory() {
    let room = Room::new();
    // Heard by nobody: what is measured is what the tool keeps.
    let (told, _) = crate::support::Told::new();
    let script = "echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last";
    let result = block_on(RunTerminal::new(enforcement()).call(invocation(sh(script), &room.view(), told))).unwrap();
    let stdout = result["stdout"].as_str().unwrap();
    assert_eq!((&result["stdout_bytes"], &result["truncated"]), (&json!(200_000_012), &json!(true)));
    assert!(stdout.starts_with("first\nxxx") && stdout.ends_with("xxx\nlast\n") && stdout.len() < (1 << 20) + 100);
    assert!(stdout.contains("\n[198951436 bytes left out]\n"));
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 150_000, "the peak of this process was {kib} KiB");
}

fn closed_streams_are_no_end() {
    let room = Room::new();
    let view = room.view();
    let script = json!({"command": ["sh", "-c", "exec >&- 2>&-; echo late > new; exit 4"], "check": false});
    let result = room.call_in(&view, script).unwrap();
    assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(4), &json!("")));
    assert_eq!(room.read_in(&view, "new"), "late\n");
}
