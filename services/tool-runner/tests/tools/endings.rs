//! However a call ends, no process or mount of its command is left.

use std::{fs, time::Duration};

use belay_proto::v1::ErrorClass;
use belay_tool_runner::{Tool as _, ViewHandle, tools::RunTerminal};
use serde_json::{Value, json};

use crate::{
    harness::{Test, tests},
    support::{Fixture, Forwarder, block_on, enforcement, invocation, nap, sh, sleepers},
};

pub(crate) const TESTS: &[Test] = tests![
    a_dropped_call_kills_all_of_it,
    a_call_dropped_while_it_starts_leaves_nothing,
    a_time_limit_ends_all_of_it,
    a_call_that_ends_kills_its_descendants,
    a_crash_is_reported_as_a_crash,
    file_size_is_limited,
    nothing_is_mounted_afterwards,
    scratch_is_removed_with_the_view,
];

/// Starts a child in its own session, one that ignores hang-ups, an orphan of two forks, and one that ignores polite signals. Prints
/// `ready` when all are running.
fn family(nap: &str) -> String {
    format!(
        "setsid sleep {nap} & nohup sleep {nap} >/dev/null 2>&1 & (sleep {nap} &) & sh -c 'trap \"\" TERM HUP INT; sleep {nap}; :' & \
         while [ $(ls -d /proc/[0-9]* | while read p; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null | grep -c '^sleep {nap}') -lt 4 ]; do :; done; \
         echo ready"
    )
}

/// Calls the tool, drops the call once the command is ready, and waits for the view.
fn drop_when_ready(view: &ViewHandle, arguments: Value, before: impl FnOnce()) {
    block_on(async {
        let (output, mut forwarder) = Forwarder::new();
        let mut call = RunTerminal::new(enforcement()).call(invocation(arguments, view, output));
        tokio::select! {
            ended = &mut call => panic!("it ended early: {ended:?}"),
            output = forwarder.recv() => assert_eq!(output.as_deref(), Some(&b"ready\n"[..])),
        }
        before();
        drop(call);
        // The next user gets the view once no process uses it any more.
        view.work(|_| ()).await.unwrap();
    });
}

// B-07, S2-FR-048: the view is released once no process is left.
fn a_dropped_call_kills_all_of_it() {
    let (fixture, nap) = (Fixture::new(), nap());
    let script = sh(&format!("{}; echo more > file; exec sleep {nap}", family(&nap)));
    drop_when_ready(&fixture.view(), script, || assert!(sleepers(&nap).len() >= 4, "the family is there"));
    assert_eq!(sleepers(&nap), [0; 0]);
    assert_eq!(fs::read_to_string(fixture.workspace.join("file")).unwrap(), "as it was\n");
}

// B-07: at any time, also during the setup of the sandbox.
fn a_call_dropped_while_it_starts_leaves_nothing() {
    let (fixture, nap) = (Fixture::new(), nap());
    for n in 0..20 {
        let view = fixture.view();
        block_on(async {
            let (output, _told) = Forwarder::new();
            let arguments = json!({"command": ["sleep", nap]});
            let call = RunTerminal::new(enforcement()).call(invocation(arguments, &view, output));
            let timed_out = tokio::time::timeout(Duration::from_micros(300 * n), call).await;
            assert!(timed_out.is_err(), "{timed_out:?}");
            view.work(|_| ()).await.unwrap();
        });
        assert_eq!(sleepers(&nap), [0; 0], "dropped after {} µs", 300 * n);
    }
}

// S2-FR-048.
fn a_time_limit_ends_all_of_it() {
    let (fixture, nap) = (Fixture::new(), nap());
    let script = format!("{}; sleep {nap}", family(&nap));
    let refused = fixture.fail(json!({"command": ["sh", "-c", script], "timeout_ms": 2000}));
    assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::Timeout, "TIMEOUT"));
    assert!(refused.message.contains("2s"), "{refused:?}");
    assert_eq!(sleepers(&nap), [0; 0]);
    assert_eq!(fixture.fail(json!({"command": ["sleep", nap], "timeout_ms": 1})).reason, "TIMEOUT");
}

// B-07: descendants that hold its streams open do not delay its end.
fn a_call_that_ends_kills_its_descendants() {
    let (fixture, nap) = (Fixture::new(), nap());
    assert_eq!(fixture.script(&family(&nap)), "ready\n");
    assert_eq!(sleepers(&nap), [0; 0]);
}

// S1-05.
fn a_crash_is_reported_as_a_crash() {
    let fixture = Fixture::new();
    for (script, cause) in [("kill -SEGV $$", "signal 11"), ("kill -KILL $$", "signal 9"), ("exit 137", "code 137")] {
        let refused = fixture.fail(sh(script));
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::Crash, "COMMAND_KILLED"), "{script}");
        assert!(refused.message.contains(cause), "{refused:?}");
    }
}

fn file_size_is_limited() {
    let fixture = Fixture::new();
    let refused = fixture.fail(json!({"command": ["truncate", "-s", "9G", "large"]}));
    assert!(refused.reason == "COMMAND_KILLED" && refused.message.contains("maximum file size"), "{refused:?}");
    fixture.call(json!({"command": ["truncate", "-s", "1G", "large"]})).unwrap();
}

fn nothing_is_mounted_afterwards() {
    let fixture = Fixture::new();
    let nap = nap();
    fixture.script("echo x > new");
    drop_when_ready(&fixture.view(), sh(&format!("echo ready; exec sleep {nap}")), || {});
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(fixture.folder.path().to_str().unwrap()), "{mounts}");
    // A mounted overlay would keep its directories: they could be neither removed nor listed as empty.
    let views = fs::read_dir(fixture.workspace.join(".belay/views")).unwrap();
    assert_eq!(views.count(), 0, "the views were dropped");
}

// S1-31: also what the command has made inaccessible, and a tree that is deeper than a path can be long.
fn scratch_is_removed_with_the_view() {
    let fixture = Fixture::new();
    let shut = "mkdir -p /tmp/shut/deeper ~/.cache; echo x > /tmp/shut/deeper/a; mkfifo ~/f; ln -s /etc /tmp/etc; chmod 0 /tmp/shut/deeper /tmp/shut";
    let deep = "cd /tmp; exec perl -e 'for (1..1500) { mkdir(\"ddd\") && chdir(\"ddd\") or die } chmod 0, \".\"'";
    for script in [shut, deep] {
        fixture.script(script);
        assert_eq!(fixture.script("ls -A /tmp ~ /run"), "/home/belay:\n\n/run:\n\n/tmp:\n");
        let own = fixture.workspace.join(".belay");
        let count = |name: &str| fs::read_dir(own.join(name)).unwrap().count();
        assert_eq!(count("views"), 0, "a view that has ended is moved away at once");
        assert!(count("trash") > 0, "what is small is removed later");
        fixture.clear();
        assert_eq!(count("trash"), 0);
    }
}
