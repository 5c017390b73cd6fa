//! However a call ends, nothing of its command is left.

use std::{fs, time::Duration};

use belay_proto::v1::ErrorClass;
use belay_tool_runner::{Tool as _, ViewHandle, tools::RunTerminal};
use serde_json::{Value, json};

use crate::{
    harness::{Test, tests},
    support::{Room, Told, block_on, enforcement, invocation, nap, sh, sleepers},
};

pub(crate) const TESTS: &[Test] = tests![
    a_dropped_call_kills_all_of_it,
    a_call_dropped_while_it_starts_leaves_nothing,
    a_time_limit_ends_all_of_it,
    a_call_that_ends_takes_its_descendants_along,
    what_crashes_is_a_crash,
    a_file_has_a_limit,
    nothing_is_mounted_afterwards,
];

/// A child in its own session, one that ignores hang-ups, an orphan of two forks, one deaf to polite signals. Says so when all are there.
fn family(nap: &str) -> String {
    format!(
        "setsid sleep {nap} & nohup sleep {nap} >/dev/null 2>&1 & (sleep {nap} &) & sh -c 'trap \"\" TERM HUP INT; sleep {nap}; :' & \
         while [ $(ls -d /proc/[0-9]* | while read p; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null | grep -c '^sleep {nap}') -lt 4 ]; do :; done; \
         echo ready"
    )
}

/// Calls the tool, drops the call when the command has said that it is ready, and waits for the view.
fn drop_when_ready(view: &ViewHandle, arguments: Value, before: impl FnOnce()) {
    block_on(async {
        let (output, mut told) = Told::new();
        let mut call = RunTerminal::new(enforcement()).call(invocation(arguments, view, output));
        tokio::select! {
            ended = &mut call => panic!("it ended by itself: {ended:?}"),
            said = told.recv() => assert_eq!(said.as_deref(), Some(&b"ready\n"[..])),
        }
        before();
        drop(call);
        // Whoever gets the view next gets it when nobody is in it any more.
        view.work(|_| ()).await.unwrap();
    });
}

// B-07, S2-FR-048: the view comes back when no process is left.
fn a_dropped_call_kills_all_of_it() {
    let (room, nap) = (Room::new(), nap());
    let script = sh(&format!("{}; echo more > file; exec sleep {nap}", family(&nap)));
    drop_when_ready(&room.view(), script, || assert!(sleepers(&nap).len() >= 4, "the family is there"));
    assert_eq!(sleepers(&nap), [0; 0]);
    assert_eq!(fs::read_to_string(room.workspace.join("file")).unwrap(), "as it was\n");
}

// B-07: whenever it is dropped, on its way into the sandbox as well.
fn a_call_dropped_while_it_starts_leaves_nothing() {
    let (room, nap) = (Room::new(), nap());
    for n in 0..20 {
        let view = room.view();
        block_on(async {
            let (output, _told) = Told::new();
            let arguments = json!({"command": ["sleep", nap]});
            let call = RunTerminal::new(enforcement()).call(invocation(arguments, &view, output));
            let given_up = tokio::time::timeout(Duration::from_micros(300 * n), call).await;
            assert!(given_up.is_err(), "{given_up:?}");
            view.work(|_| ()).await.unwrap();
        });
        assert_eq!(sleepers(&nap), [0; 0], "dropped after {} µs", 300 * n);
    }
}

// S2-FR-048, S2-ASM-018.
fn a_time_limit_ends_all_of_it() {
    let (room, nap) = (Room::new(), nap());
    let script = format!("{}; sleep {nap}", family(&nap));
    let refused = room.fail(json!({"command": ["sh", "-c", script], "timeout_ms": 2000}));
    assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::Timeout, "TIMEOUT"));
    assert!(refused.message.contains("2s"), "{refused:?}");
    assert_eq!(sleepers(&nap), [0; 0]);
    assert_eq!(room.fail(json!({"command": ["sleep", nap], "timeout_ms": 1})).reason, "TIMEOUT");
}

// B-07: descendants hold its streams open, and do not hold it up.
fn a_call_that_ends_takes_its_descendants_along() {
    let (room, nap) = (Room::new(), nap());
    assert_eq!(room.script(&family(&nap)), "ready\n");
    assert_eq!(sleepers(&nap), [0; 0]);
}

// S1-05.
fn what_crashes_is_a_crash() {
    let room = Room::new();
    for (script, says) in [("kill -SEGV $$", "signal 11"), ("kill -KILL $$", "signal 9"), ("exit 137", "code 137")] {
        let refused = room.fail(sh(script));
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::Crash, "COMMAND_KILLED"), "{script}");
        assert!(refused.message.contains(says), "{refused:?}");
    }
}

fn a_file_has_a_limit() {
    let room = Room::new();
    let refused = room.fail(json!({"command": ["truncate", "-s", "9G", "large"]}));
    assert!(refused.reason == "COMMAND_KILLED" && refused.message.contains("a larger file"), "{refused:?}");
    room.call(json!({"command": ["truncate", "-s", "1G", "large"]})).unwrap();
}

fn nothing_is_mounted_afterwards() {
    let room = Room::new();
    let nap = nap();
    room.script("echo x > new");
    drop_when_ready(&room.view(), sh(&format!("echo ready; exec sleep {nap}")), || {});
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(room.folder.path().to_str().unwrap()), "{mounts}");
    // An overlay that still stood would hold its folders: they could be neither removed nor listed empty.
    let views = fs::read_dir(room.workspace.join(".belay/views")).unwrap();
    assert_eq!(views.count(), 0, "the views were dropped");
}
