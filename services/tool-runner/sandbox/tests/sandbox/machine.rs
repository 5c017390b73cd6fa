//! The report on the machine.

use std::{collections::HashSet, fs};

use belay_sandbox::{Layer, LayerState, Settings, Tier, probe, self_test};

use crate::{
    harness::{Test, tests},
    support::{Fixture, is_root, launch, launcher},
};

pub(crate) const TESTS: &[Test] =
    tests![every_layer_is_reported, optional_layers_are_reported, probing_leaves_no_process];

fn every_layer_is_reported() {
    let report = probe(&Settings::default()).unwrap();
    let layers: Vec<Layer> = report.layers.iter().map(|layer| layer.layer).collect();
    let root_only = [Layer::ServiceUser, Layer::IdMappedWorkspace];
    let always = [
        Layer::UserNamespace,
        Layer::View,
        Layer::Proc,
        Layer::Workspace,
        Layer::ProcessLimit,
        Layer::Landlock,
        Layer::Seccomp,
    ];
    let expected = if is_root() { [&root_only[..], &always].concat() } else { always.to_vec() };
    assert_eq!(layers, expected);
    assert_eq!(report.tier, Tier::Full);
    for layer in &report.layers {
        match &layer.state {
            LayerState::Active => {}
            // The only optional layer.
            LayerState::Missing { why, fix } => {
                assert_eq!(layer.layer, Layer::ProcessLimit, "{why}");
                assert!(fix.contains("6.14"));
            }
        }
    }
}

fn optional_layers_are_reported() {
    let fixture = Fixture::new();
    let mut running = launch(fixture.script("true"));
    let report = probe(&Settings::default()).unwrap();
    let counted =
        report.layers.iter().any(|layer| layer.layer == Layer::ProcessLimit && layer.state == LayerState::Active);
    assert_eq!(running.enforced().process_limit, counted);
    assert!(running.enforced().landlock_abi >= 1);
    running.wait().unwrap();
}

/// Neither a running child nor one that has exited and was not waited for.
fn probing_leaves_no_process() {
    let before = children();
    probe(&Settings::default()).unwrap();
    self_test(&launcher()).unwrap();
    let left: Vec<_> = children().difference(&before).cloned().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The children of this process, also those that have exited.
fn children() -> HashSet<String> {
    let parent = format!("PPid:\t{}", std::process::id());
    let status_of = |pid: &str| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    processes.filter(|pid| status_of(pid).lines().any(|line| line == parent)).collect()
}
