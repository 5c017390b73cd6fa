//! What a command cannot reach, and what is said about its walls.

use std::{fs, io::ErrorKind, net::TcpListener, os::unix::fs::symlink, sync::Arc};

use belay_proto::v1::enforcement_report::Tier;
use belay_tool_runner::{Tool as _, tools::RunTerminal};
use serde_json::json;

use crate::{
    harness::{Test, Verdict, tests},
    support::{Heard, Room, block_on, enforcement, invocation, sh},
};

pub(crate) const TESTS: &[Test] = tests![
    the_walls_were_tried_and_hold,
    a_command_says_what_held_for_it,
    folders_of_other_instances_are_empty,
    a_link_leads_nowhere_outside,
    belays_own_folder_is_empty_and_closed,
    there_is_no_network
];

// B-10, S2-NFR-011, S2-FR-045.
fn the_walls_were_tried_and_hold() {
    let report = enforcement().to_proto();
    assert_eq!((report.tier(), report.min_tier(), report.staging), (Tier::A, Tier::A, true));
    assert_eq!(report.breaches, [""; 0]);
    let enforced = RunTerminal::new(enforcement()).enforced();
    for wall in ["user namespace", "root view", "landlock", "seccomp"] {
        assert!(enforced.iter().any(|name| name == wall), "{wall}: {enforced:?}");
    }
}

/// A receipt says what held for its command: all that was tried at the start and holds, and the namespace without a network.
fn a_command_says_what_held_for_it() {
    let room = Room::new();
    let held = |command: serde_json::Value| {
        let call = invocation(command, &room.view(), Arc::new(Heard::default()));
        let held = Arc::clone(&call.enforced);
        let _ = block_on(RunTerminal::new(enforcement()).call(call));
        held.get().cloned()
    };
    let around = held(json!({"command": ["true"]})).unwrap();
    let expected = RunTerminal::new(enforcement()).enforced();
    assert!(expected.iter().all(|layer| around.contains(layer)), "{around:?} and {expected:?}");
    assert!(around.contains(&"namespaces".to_owned()), "{around:?}");
    assert_eq!(held(json!({"command": ["no-such-program"]})), None, "nothing ran");
}

/// Belay's own folders of other workspaces and services are empty to a command, wherever in the workspace they lie.
fn folders_of_other_instances_are_empty() {
    let room = Room::new();
    for folder in ["inner/.belay/commits/c", "deep/er/state", "plain"] {
        fs::create_dir_all(room.workspace.join(folder)).unwrap();
    }
    for file in ["inner/.belay/commits/c/0", "deep/er/state/seal.key", "deep/er/state/journal.db", "plain/seal.key"] {
        fs::write(room.workspace.join(file), "canary").unwrap();
    }
    assert_eq!(room.script("find inner deep plain -type f"), "plain/seal.key\n");
    for file in ["inner/.belay/commits/c/0", "deep/er/state/seal.key"] {
        let refused = room.fail(json!({"command": ["cat", file]}));
        assert!(refused.reason == "COMMAND_FAILED", "{file}: {refused:?}");
    }
    assert_eq!(room.fail(sh("echo x > deep/er/state/x")).reason, "COMMAND_FAILED");
}

// S2-X-12, S2-ASM-002, S2-ASM-017, S2-FR-073.
fn a_link_leads_nowhere_outside() {
    let room = Room::new();
    fs::write(room.folder.path().join("secret"), "canary").unwrap();
    symlink(room.folder.path().join("secret"), room.workspace.join("out")).unwrap();
    symlink("../secret", room.workspace.join("up")).unwrap();
    for path in ["out", "up", "/etc/shadow", "/root", "/proc/1/root/etc/shadow"] {
        let refused = room.fail(json!({"command": ["cat", path]}));
        assert!(refused.reason == "COMMAND_FAILED" && !refused.message.contains("canary"), "{path}: {refused:?}");
    }
    room.fail(sh("echo stolen > out"));
    assert_eq!(fs::read_to_string(room.folder.path().join("secret")).unwrap(), "canary");
}

fn belays_own_folder_is_empty_and_closed() {
    let room = Room::new();
    assert_eq!(room.script("ls -A .belay"), "");
    assert_eq!(room.fail(sh("echo x > .belay/x")).reason, "COMMAND_FAILED");
    assert_eq!(room.fail(sh("rm -r .belay")).reason, "COMMAND_FAILED");
    assert!(room.workspace.join(".belay/lock").exists());
}

fn there_is_no_network() -> Verdict {
    let room = Room::new();
    if room.call(sh("command -v bash")).is_err() {
        return Verdict::Skipped("there is no bash, which can connect".to_owned());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = format!("echo hello > /dev/tcp/127.0.0.1/{}", listener.local_addr().unwrap().port());
    assert_eq!(room.fail(json!({"command": ["bash", "-c", connect]})).reason, "COMMAND_FAILED");
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody came");
    Verdict::Passed
}
