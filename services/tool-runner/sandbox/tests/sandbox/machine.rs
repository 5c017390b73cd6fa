//! The report on the machine.

use belay_sandbox::{Layer, LayerState, Settings, Tier, probe};

use crate::{
    harness::{Test, tests},
    support::{Fixture, is_root, launch},
};

pub(crate) const TESTS: &[Test] = tests![every_layer_is_reported, optional_layers_are_reported];

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
