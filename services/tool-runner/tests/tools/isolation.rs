//! The places that a command cannot reach, and how its layers are reported.

use std::{fs, io::ErrorKind, net::TcpListener, os::unix::fs::symlink, sync::Arc};

use belay_proto::runner_v1::enforcement_report::Tier;
use belay_tool_runner::{Tool as _, tools::RunTerminal};
use serde_json::json;

use crate::{
    harness::{Test, Verdict, tests},
    support::{Fixture, Recorder, block_on, enforcement, invocation, sh},
};

pub(crate) const TESTS: &[Test] = tests![
    the_layers_were_probed_and_are_secure,
    a_receipt_names_the_active_layers,
    directories_of_other_instances_are_empty,
    links_lead_nowhere_outside,
    belays_own_directory_is_empty_and_closed,
    there_is_no_network
];

// B-10, S2-NFR-011, S2-FR-045.
fn the_layers_were_probed_and_are_secure() {
    let report = enforcement().to_proto();
    assert_eq!((report.tier(), report.min_tier(), report.staging), (Tier::A, Tier::A, true));
    assert_eq!(report.breaches, [""; 0]);
    let enforced = RunTerminal::new(enforcement()).enforced();
    for layer in ["user namespace", "root view", "landlock", "seccomp"] {
        assert!(enforced.iter().any(|name| name == layer), "{layer}: {enforced:?}");
    }
}

/// A receipt names the layers of its command: all that were probed as active, and the network namespace.
fn a_receipt_names_the_active_layers() {
    let fixture = Fixture::new();
    let enforced = |command: serde_json::Value| {
        let call = invocation(command, &fixture.view(), Arc::new(Recorder::default()));
        let layers = Arc::clone(&call.enforced);
        let _ = block_on(RunTerminal::new(enforcement()).call(call));
        layers.get().cloned()
    };
    let around = enforced(json!({"command": ["true"]})).unwrap();
    let expected = RunTerminal::new(enforcement()).enforced();
    assert!(expected.iter().all(|layer| around.contains(layer)), "{around:?} and {expected:?}");
    assert!(around.contains(&"namespaces".to_owned()), "{around:?}");
    assert_eq!(enforced(json!({"command": ["no-such-program"]})), None, "nothing ran");
}

/// Belay's own directories, of other workspaces and services too, are empty to a command wherever in the workspace they are.
fn directories_of_other_instances_are_empty() {
    let fixture = Fixture::new();
    for folder in ["inner/.belay/commits/c", "deep/er/state", "plain"] {
        fs::create_dir_all(fixture.workspace.join(folder)).unwrap();
    }
    for file in ["inner/.belay/commits/c/0", "deep/er/state/seal.key", "deep/er/state/journal.db", "plain/seal.key"] {
        fs::write(fixture.workspace.join(file), "canary").unwrap();
    }
    assert_eq!(fixture.script("find inner deep plain -type f"), "plain/seal.key\n");
    for file in ["inner/.belay/commits/c/0", "deep/er/state/seal.key"] {
        let refused = fixture.fail(json!({"command": ["cat", file]}));
        assert!(refused.reason == "COMMAND_FAILED", "{file}: {refused:?}");
    }
    assert_eq!(fixture.fail(sh("echo x > deep/er/state/x")).reason, "COMMAND_FAILED");
}

// S2-X-12, S2-FR-073.
fn links_lead_nowhere_outside() {
    let fixture = Fixture::new();
    fs::write(fixture.folder.path().join("secret"), "canary").unwrap();
    symlink(fixture.folder.path().join("secret"), fixture.workspace.join("out")).unwrap();
    symlink("../secret", fixture.workspace.join("up")).unwrap();
    for path in ["out", "up", "/etc/shadow", "/root", "/proc/1/root/etc/shadow"] {
        let refused = fixture.fail(json!({"command": ["cat", path]}));
        assert!(refused.reason == "COMMAND_FAILED" && !refused.message.contains("canary"), "{path}: {refused:?}");
    }
    fixture.fail(sh("echo stolen > out"));
    assert_eq!(fs::read_to_string(fixture.folder.path().join("secret")).unwrap(), "canary");
}

fn belays_own_directory_is_empty_and_closed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.script("ls -A .belay"), "");
    assert_eq!(fixture.fail(sh("echo x > .belay/x")).reason, "COMMAND_FAILED");
    assert_eq!(fixture.fail(sh("rm -r .belay")).reason, "COMMAND_FAILED");
    assert!(fixture.workspace.join(".belay/lock").exists());
}

fn there_is_no_network() -> Verdict {
    let fixture = Fixture::new();
    if fixture.call(sh("command -v bash")).is_err() {
        return Verdict::Skipped("bash, which can connect, is not installed".to_owned());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = format!("echo hello > /dev/tcp/127.0.0.1/{}", listener.local_addr().unwrap().port());
    assert_eq!(fixture.fail(json!({"command": ["bash", "-c", connect]})).reason, "COMMAND_FAILED");
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "no connection arrived");
    Verdict::Passed
}
