//! Views without the changes of layers at whose paths others have changed the workspace since.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use belay_workspace::{DroppedChange, DroppedContent, LayerOwner, LayerPlace, Limits, View, Workspace};
use proptest::prelude::*;

use crate::support::{Ground, InitialTree, Step, before, cases, path, picture, script};

const SET: &str = "set";

/// A call of the set that ends well; its reference, if it has changed anything.
fn ended(workspace: &Workspace, view: View, entry: &str, over: &[String]) -> Option<String> {
    let own = view.own_changes(&view.effect(Limits::default()).unwrap());
    if own.is_empty() {
        return None;
    }
    let place = LayerPlace { set: SET.into(), entry: entry.into() };
    let layer = workspace.stage_layer(view, own, (place, over.to_vec(), String::new()), &|| false).unwrap();
    workspace.check_layer(&layer).unwrap();
    workspace.keep_layer(&layer).unwrap();
    Some(layer.reference())
}

fn commit_over(workspace: &Workspace, layers: &[String]) {
    let view = workspace.view_over("whole", SET, layers, &|| false).unwrap();
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    workspace.retire(&commit).unwrap();
}

fn touches(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Others change the workspace in any way after the calls of a step: what they did stays, what the calls did elsewhere is committed, and nothing is in the way of that.
#[test]
fn what_others_did_stays_and_the_rest_is_committed() {
    let scripts = (before(), script(1..5), script(1..5), script(1..4), script(0..3));
    let config = ProptestConfig::with_cases(cases("BELAY_DROPPED_SCRIPTS", 150));
    proptest!(config, |((before, first, second, others, after) in scripts)| {
        without_conflicts(&before, &[first, second], &others, &after)?;
    });
}

fn without_conflicts(
    before: &InitialTree,
    scripts: &[Vec<Step>],
    others: &[Step],
    after: &[Step],
) -> Result<(), TestCaseError> {
    let (apart, alone) = (Ground::new(), Ground::new());
    before.build(&apart.root);
    before.build(&alone.root);
    let at_first = picture(&apart.root);
    let (workspace, undisturbed) = (apart.open(), alone.open());
    let (mut layers, mut kept) = (Vec::new(), Vec::new());
    for (workspace, layers) in [(&workspace, &mut layers), (&undisturbed, &mut kept)] {
        for (number, script) in scripts.iter().enumerate() {
            let id = format!("call-{number}");
            let mut view = workspace.view_over(&id, SET, layers, &|| false).unwrap();
            for step in script {
                step.in_view(&mut view);
            }
            layers.extend(ended(workspace, view, &id, layers));
        }
    }
    commit_over(&undisturbed, &kept);
    let wanted = alone.picture();
    let differing = |one: &crate::support::FolderContents, other: &crate::support::FolderContents| {
        let paths: BTreeSet<PathBuf> = one.keys().chain(other.keys()).cloned().collect();
        paths.into_iter().filter(|path| one.get(path) != other.get(path)).collect::<Vec<_>>()
    };

    for step in others {
        step.in_folder(&apart.root);
    }
    let by_others = apart.picture();
    let changed_by_others = differing(&at_first, &by_others);
    let view = workspace.view_without_conflicts("again", SET, &layers, LayerOwner::Calls, &|| false).unwrap();
    let was_dropped = !view.dropped_changes().is_empty();
    let reverted = view.own_changes(&view.effect(Limits::default()).unwrap()).undone;
    let reverted: Vec<PathBuf> = reverted.iter().map(|reverted| PathBuf::from(reverted.path.to_string())).collect();
    for at in &reverted {
        prop_assert!(changed_by_others.iter().any(|other| touches(other, at)), "{at:?} of {changed_by_others:?}");
    }
    for dropped in view.dropped_changes() {
        let at = PathBuf::from(dropped.path.to_string());
        prop_assert!(reverted.iter().any(|reverted| at.starts_with(reverted)), "{at:?} of {reverted:?}");
        if let DroppedContent::File { bytes, size } = &dropped.was {
            prop_assert_eq!(bytes.len() as u64, *size);
            let is_its =
                wanted.get(&at).is_some_and(|wanted| wanted.contains(&format!("{:?}", String::from_utf8_lossy(bytes))));
            prop_assert!(is_its, "{at:?}: {bytes:?} of {:?}", wanted.get(&at));
        }
    }
    let reverting = ended(&workspace, view, "again", &layers);
    prop_assert_eq!(reverting.is_some(), was_dropped);
    layers.extend(reverting);
    prop_assert_eq!(apart.picture(), by_others.clone(), "nothing is committed yet");
    // A later call sees what others did, and may change that.
    let mut view = workspace.view_over("later", SET, &layers, &|| false).unwrap();
    for step in after {
        step.in_view(&mut view);
    }
    let later = ended(&workspace, view, "later", &layers);
    if later.is_none() {
        commit_over(&workspace, &layers);
        let found = apart.picture();
        for at in &changed_by_others {
            prop_assert_eq!(found.get(at), by_others.get(at), "what others did at {:?}", at);
        }
        for at in differing(&at_first, &wanted) {
            if !reverted.iter().any(|reverted| at.starts_with(reverted)) {
                prop_assert_eq!(found.get(&at), wanted.get(&at), "what the calls did at {:?}", at);
            }
        }
    } else {
        layers.extend(later);
        commit_over(&workspace, &layers);
    }
    Ok(())
}

/// The versions of the step are there to be read: of a file, of a new directory, of a removal; and what others change once more is dropped again.
#[test]
fn what_was_dropped_is_shown() {
    let ground = Ground::with(&[("a", "a"), ("b", "b"), ("c", "c"), ("d/x", "x")]);
    let workspace = ground.open();
    let mut view = workspace.view_over("first", SET, &[], &|| false).unwrap();
    for (at, text) in [("a", "mine"), ("new/one", "1"), ("new/deep/two", "2"), ("kept", "kept")] {
        view.write(&path(at), text.as_bytes(), None).unwrap();
    }
    view.remove(&path("b")).unwrap();
    view.remove(&path("d")).unwrap();
    let mut layers = vec![ended(&workspace, view, "first", &[]).unwrap()];
    let others = [("a", "theirs"), ("b", "theirs"), ("new", "a file"), ("d/x", "theirs")];
    for (at, text) in others {
        fs::write(ground.root.join(at), text).unwrap();
    }
    let mut view = workspace.view_without_conflicts("second", SET, &layers, LayerOwner::Calls, &|| false).unwrap();
    let file = |text: &str| DroppedContent::File { bytes: text.into(), size: text.len() as u64 };
    let expected = [
        ("a", file("mine")),
        ("b", DroppedContent::Nothing),
        ("d", DroppedContent::Nothing),
        ("new/deep/two", file("2")),
        ("new/one", file("1")),
    ];
    let expected = expected.map(|(at, was)| DroppedChange { path: path(at), was });
    assert_eq!(view.dropped_changes(), expected);
    for (at, text) in others {
        assert_eq!(view.read(&path(at), 0, None).unwrap(), text.as_bytes());
    }
    assert_eq!(view.read(&path("kept"), 0, None).unwrap(), b"kept");
    view.write(&path("a"), b"both", None).unwrap();
    layers.push(ended(&workspace, view, "second", &layers).unwrap());
    fs::write(ground.root.join("a"), "once more").unwrap();
    assert!(workspace.view_over("third", SET, &layers, &|| false).is_err());
    let view = workspace.view_without_conflicts("fourth", SET, &layers, LayerOwner::Calls, &|| false).unwrap();
    assert_eq!(view.dropped_changes(), [DroppedChange { path: path("a"), was: file("both") }]);
    layers.push(ended(&workspace, view, "fourth", &layers).unwrap());
    commit_over(&workspace, &layers);
    assert_eq!(ground.read("a"), "once more");
    assert_eq!((ground.read("kept"), ground.read("new")), ("kept".into(), "a file".into()));
}
