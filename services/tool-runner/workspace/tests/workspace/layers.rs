//! Layers: calls whose effects are committed together, each on top of what earlier ones changed.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use belay_workspace::{
    CommitError, Layer, LayerPlace, Limits, Manifest, Order, QuietSeam, Seam, View, ViewError, Workspace,
};
use proptest::prelude::*;

use crate::support::{Deadly, Ground, InitialTree, Step, before, cases, path, picture, script};

const SET: &str = "set";

fn place(entry: &str) -> LayerPlace {
    LayerPlace { set: SET.into(), entry: entry.into() }
}

fn references(layers: &[&Layer]) -> Vec<String> {
    layers.iter().map(|layer| layer.reference()).collect()
}

/// Stages what a view over other layers changed; `None` when that is nothing.
fn staged(workspace: &Workspace, view: View, entry: &str, over: &[String]) -> Option<Layer> {
    let own = view.own_changes(&view.effect(Limits::default()).unwrap());
    if own.is_empty() {
        return None;
    }
    Some(workspace.stage_layer(view, own, (place(entry), over.to_vec(), format!("of {entry}")), &|| false).unwrap())
}

/// A call of the set that ends well.
fn call(workspace: &Workspace, id: &str, over: &[String], change: impl FnOnce(&mut View)) -> Option<Layer> {
    let mut view = workspace.view_over(id, SET, over, &|| false).unwrap();
    change(&mut view);
    let layer = staged(workspace, view, id, over)?;
    workspace.check_layer(&layer).unwrap();
    workspace.keep_layer(&layer).unwrap();
    Some(layer)
}

fn commit_over(workspace: &Workspace, layers: &[String]) -> Manifest {
    let view = workspace.view_over("whole", SET, layers, &|| false).unwrap();
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    workspace.retire(&commit).unwrap();
    manifest
}

fn write(view: &mut View, at: &str, text: &str) {
    view.write(&path(at), text.as_bytes(), None).unwrap();
}

/// B-34: several calls, one after the other, each on top of the others' layers, come to the same as one call that does what all did: its effect has the
/// same bytes, and its commit the same files.
#[test]
fn calls_on_top_of_each_other_are_one_effect() {
    let scripts = (before(), script(1..5), script(1..5), script(1..5));
    let config = ProptestConfig::with_cases(cases("BELAY_LAYER_SCRIPTS", 150));
    proptest!(config, |((before, first, second, third) in scripts)| one_effect(&before, &[first, second, third])?);
}

fn one_effect(before: &InitialTree, scripts: &[Vec<Step>]) -> Result<(), TestCaseError> {
    let (apart, together) = (Ground::new(), Ground::new());
    before.build(&apart.root);
    before.build(&together.root);
    let (workspace, other) = (apart.open(), together.open());
    let mut layers = Vec::new();
    let mut one = other.view("one").unwrap();
    for (number, script) in scripts.iter().enumerate() {
        let id = format!("call-{number}");
        let mut view = workspace.view_over(&id, SET, &layers, &|| false).unwrap();
        for step in script {
            prop_assert_eq!(step.in_view(&mut view), step.in_view(&mut one), "{:?}", step);
        }
        let seen = view.effect(Limits::default()).unwrap();
        prop_assert_eq!(seen.canonical_bytes(), one.effect(Limits::default()).unwrap().canonical_bytes());
        let own = view.own_changes(&seen);
        if own.is_empty() {
            continue;
        }
        let note = (place(&id), layers.clone(), String::new());
        let layer = workspace.stage_layer(view, own, note, &|| false).unwrap();
        workspace.check_layer(&layer).unwrap();
        workspace.keep_layer(&layer).unwrap();
        layers.push(layer.reference());
    }
    prop_assert_eq!(apart.picture(), picture(&together.root), "nothing is committed yet");
    let manifest = commit_over(&workspace, &layers);
    let expected = one.effect(Limits::default()).unwrap();
    prop_assert_eq!(manifest.canonical_bytes(), expected.canonical_bytes());
    let commit = other.stage(one, &expected).unwrap();
    other.apply(&commit).unwrap();
    prop_assert_eq!(apart.picture(), together.picture());
    Ok(())
}

#[test]
fn a_call_sees_the_layers_that_it_begins_with_and_no_others() {
    let ground = Ground::with(&[("a", "a"), ("d/b", "b")]);
    let workspace = ground.open();
    let first = call(&workspace, "first", &[], |view| {
        write(view, "new/file", "first");
        view.remove(&path("d")).unwrap();
    });
    let first = first.unwrap();
    let second = call(&workspace, "second", &references(&[&first]), |view| {
        assert_eq!(view.read(&path("new/file"), 0, None).unwrap(), b"first");
        assert!(matches!(view.read(&path("d/b"), 0, None), Err(ViewError::NotFound { .. })));
        write(view, "new/file", "second");
        write(view, "d/c", "again");
    });
    let second = second.unwrap();
    let view = workspace.view_over("third", SET, &references(&[&first]), &|| false).unwrap();
    assert_eq!(view.read(&path("new/file"), 0, None).unwrap(), b"first", "it does not begin with the second");
    drop(view);
    assert_eq!(ground.read("d/b"), "b", "nothing is committed");
    commit_over(&workspace, &references(&[&first, &second]));
    assert_eq!((ground.read("new/file"), ground.read("d/c")), ("second".into(), "again".into()));
    assert!(!ground.root.join("d/b").exists());
    assert_eq!(workspace.layer_notes(SET, &references(&[&first])).unwrap(), ["of first"]);
    workspace.remove_layers(SET).unwrap();
    workspace.remove_layers(SET).unwrap();
    let gone = workspace.view_over("fourth", SET, &references(&[&first]), &|| false).err().unwrap();
    assert!(matches!(gone, ViewError::LayerGone { .. }), "{gone}");
}

/// A path that a call reverts, of the layers that it begins with, is as it was.
#[test]
fn what_is_undone_is_no_change_of_the_set() {
    let ground = Ground::with(&[("a", "a"), ("b", "b")]);
    let workspace = ground.open();
    let first = call(&workspace, "first", &[], |view| {
        write(view, "a", "changed");
        write(view, "new", "new");
        view.remove(&path("b")).unwrap();
    });
    let first = first.unwrap();
    let second = call(&workspace, "second", &references(&[&first]), |view| {
        write(view, "a", "a");
        write(view, "b", "b");
        view.remove(&path("new")).unwrap();
    });
    let view = workspace.view_over("whole", SET, &references(&[&first, &second.unwrap()]), &|| false).unwrap();
    assert!(view.effect(Limits::default()).unwrap().is_empty());
}

#[test]
fn two_layers_that_touch_one_path_are_a_conflict_unless_one_began_with_the_other() {
    let ground = Ground::with(&[("a", "a"), ("d/b", "b")]);
    let workspace = ground.open();
    let over: &[String] = &[];
    let conflict = |layer: &Layer| match workspace.check_layer(layer) {
        Err(CommitError::Conflict { paths }) => paths.iter().map(ToString::to_string).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let mut beside = workspace.view_over("beside", SET, over, &|| false).unwrap();
    write(&mut beside, "a", "beside");
    write(&mut beside, "other", "other");
    let mut inside = workspace.view_over("inside", SET, over, &|| false).unwrap();
    write(&mut inside, "d/b", "inside");
    let first = call(&workspace, "first", &[], |view| {
        write(view, "a", "first");
        view.remove(&path("d")).unwrap();
    });
    let first = references(&[&first.unwrap()]);
    let beside = staged(&workspace, beside, "beside", over).unwrap();
    assert_eq!(conflict(&beside), ["a"]);
    workspace.discard(&beside.commit).unwrap();
    let inside = staged(&workspace, inside, "inside", over).unwrap();
    assert_eq!(conflict(&inside), ["d/b"], "it is inside of what the other removed");
    workspace.discard(&inside.commit).unwrap();
    let again = call(&workspace, "again", &first, |view| write(view, "a", "again"));
    assert_eq!(again.unwrap().over, first);
    // The same entry again: its earlier layer is replaced, and is no conflict.
    let mut replaces = workspace.view_over("first-2", SET, over, &|| false).unwrap();
    write(&mut replaces, "x", "x");
    let replaces = staged(&workspace, replaces, "first", over).unwrap();
    workspace.check_layer(&replaces).unwrap();
    workspace.keep_layer(&replaces).unwrap();
    let gone = workspace.view_over("whole", SET, &first, &|| false).err().unwrap();
    assert!(matches!(gone, ViewError::LayerGone { .. }), "{gone}");
    assert!(!ground.root.join("other").exists());
}

/// A person who saves a file that a layer has changed does not lose that to the set.
#[test]
fn what_others_change_meanwhile_is_a_conflict_with_the_layer() {
    let ground = Ground::with(&[("a", "a"), ("b", "b")]);
    let workspace = ground.open();
    let first = call(&workspace, "first", &[], |view| {
        write(view, "a", "first");
        write(view, "new", "new");
    });
    let first = references(&[&first.unwrap()]);
    fs::write(ground.root.join("b"), "by a person").unwrap();
    drop(workspace.view_over("fine", SET, &first, &|| false).expect("no layer touches it"));
    for (id, at) in [("one", "a"), ("two", "new")] {
        fs::write(ground.root.join(at), "by a person").unwrap();
        match workspace.view_over(id, SET, &first, &|| false) {
            Err(ViewError::LayerConflict { paths }) => assert!(paths.contains(&path(at)), "{paths:?}"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{at} is overwritten"),
        }
    }
    // A change after the view began is found by its effect.
    fs::write(ground.root.join("a"), "a").unwrap();
    fs::remove_file(ground.root.join("new")).unwrap();
    let view = workspace.view_over("late", SET, &first, &|| false).expect("it is as it was");
    fs::write(ground.root.join("a"), "by a person").unwrap();
    assert!(view.effect(Limits::default()).is_err());
}

/// The process dies at each instant of a call that ends as a layer: with its row the layer is kept whole, without it nothing is left.
#[test]
fn a_layer_is_kept_whole_or_not_at_all() {
    fn run(ground: &Ground, seam: Arc<dyn Seam>, first: &[String], row: &mut Option<String>) -> Option<()> {
        let workspace = Workspace::open_with(&ground.root, &[], seam).ok()?;
        workspace.sweep(|_| false).ok()?;
        let mut view = workspace.view_over("second", SET, first, &|| false).ok()?;
        view.write(&path("d/new"), b"second", None).ok()?;
        view.remove(&path("d/b")).ok()?;
        let own = view.own_changes(&view.effect(Limits::default()).ok()?);
        let described = (place("second"), first.to_vec(), String::new());
        let layer = workspace.stage_layer(view, own, described, &|| false).ok()?;
        workspace.check_layer(&layer).ok()?;
        *row = Some(serde_json::to_string(&layer).unwrap());
        workspace.keep_layer(&layer).ok()
    }
    for order in [Order::Kept, Order::Unknown] {
        let mut instants = 0;
        loop {
            let ground = Ground::with(&[("d/b", "b")]);
            let first = call(&ground.open(), "first", &[], |view| write(view, "a", "first")).unwrap();
            let first = first.reference();
            let (mut row, seam) = (None, Deadly::at(instants, order));
            let done =
                run(&ground, Arc::clone(&seam) as Arc<dyn Seam>, std::slice::from_ref(&first), &mut row).is_some();
            let workspace = Workspace::open_with(&ground.root, &[], Arc::new(QuietSeam)).unwrap();
            workspace.sweep(|id| row.is_some() && id == "second").unwrap();
            workspace.sweep_layers(|set| set == SET).unwrap();
            let layer: Option<Layer> = row.map(|row| serde_json::from_str(&row).unwrap());
            match &layer {
                Some(layer) => match workspace.keep_layer(layer) {
                    Ok(()) | Err(CommitError::NotStaged { .. }) => {
                        let manifest = commit_over(&workspace, &[first, layer.reference()]);
                        assert_eq!(manifest.changes.len(), 3, "{instants}: {manifest:?}");
                        assert_eq!((ground.read("a"), ground.read("d/new")), ("first".into(), "second".into()));
                    }
                    Err(error) => panic!("{instants}: {error}"),
                },
                None => {
                    let gone = workspace.view_over("third", SET, &["second".into()], &|| false).err().unwrap();
                    assert!(matches!(gone, ViewError::LayerGone { .. }), "{instants}: {gone}");
                    call(&workspace, "fourth", &[first], |view| write(view, "d/new", "fourth")).unwrap();
                }
            }
            if done {
                assert!(instants > 30, "it dies too early to show anything");
                break;
            }
            instants += 1;
        }
    }
    // A set that no row names is removed.
    let ground = Ground::with(&[]);
    let first = call(&ground.open(), "first", &[], |view| write(view, "a", "first")).unwrap();
    let workspace = ground.open();
    workspace.sweep_layers(|_| false).unwrap();
    assert!(workspace.view_over("second", SET, &references(&[&first]), &|| false).is_err());
}

/// A layer that was changed in the workspace behind the runner's back is not committed: neither its files, nor what its caller has noted.
#[test]
fn a_layer_that_was_tampered_with_is_not_used() {
    for tamper in ["layer.json", "0"] {
        let ground = Ground::with(&[]);
        let workspace = ground.open();
        let first = call(&workspace, "first", &[], |view| write(view, "a", "first")).unwrap();
        let file = ground.root.join(".belay/layers").join(SET).join("first.first").join(tamper);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("of first", "of nobody").replace("first", "other")).unwrap();
        let refused = workspace.view_over("second", SET, &references(&[&first]), &|| false).err().unwrap();
        assert!(matches!(refused, ViewError::LayerGone { .. }), "{tamper}: {refused}");
    }
}

/// A directory that a call makes read-only, in which calls have changed something before and change something after: its mode comes last.
#[test]
fn directories_get_their_modes_when_all_that_is_in_them_is_there() {
    let ground = Ground::with(&[("d/a", "a")]);
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let workspace = ground.open();
    let first = call(&workspace, "first", &[], |view| {
        write(view, "d/x", "x");
        let folder = view.directory().join("upper/d");
        set(&folder, 0o555);
    });
    let first = first.unwrap().reference();
    let second = call(&workspace, "second", std::slice::from_ref(&first), |view| {
        let folder = view.directory().join("upper/d");
        set(&folder, 0o755);
        fs::write(folder.join("z"), "z").unwrap();
        set(&folder, 0o511);
    });
    commit_over(&workspace, &[first, second.unwrap().reference()]);
    let mode = |path: &str| fs::metadata(ground.root.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("d"), ground.read("d/x"), ground.read("d/z")), (0o511, "x".into(), "z".into()));
    set(&ground.root.join("d"), 0o755);
}

/// Attributes and owners that people have given a file are there after a call of a step has changed it, as after any call.
#[test]
fn extended_attributes_are_kept() {
    let ground = Ground::with(&[("f", "0")]);
    let set = |path: &Path| rustix::fs::setxattr(path, "user.note", b"v", rustix::fs::XattrFlags::empty()).unwrap();
    set(&ground.root.join("f"));
    let workspace = ground.open();
    let layer = call(&workspace, "first", &[], |view| {
        write(view, "f", "01");
        // As the kernel does when it copies a file up.
        set(&view.directory().join("upper/f"));
    });
    commit_over(&workspace, &references(&[&layer.unwrap()]));
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(ground.root.join("f"), "user.note", &mut value[..]).unwrap();
    assert_eq!((&value[..length], ground.read("f").as_str()), (&b"v"[..], "01"));
}

/// In a directory that an earlier call has made, a call has done only what is different.
#[test]
fn a_call_has_done_what_differs_from_what_it_began_with() {
    let ground = Ground::with(&[("old", "old")]);
    let workspace = ground.open();
    let first = call(&workspace, "first", &[], |view| {
        write(view, "new/first", "1");
        write(view, "new/gone", "2");
        write(view, "old", "changed");
    });
    let mut view = workspace.view_over("second", SET, &references(&[&first.unwrap()]), &|| false).unwrap();
    write(&mut view, "new/second", "3");
    view.remove(&path("new/gone")).unwrap();
    write(&mut view, "old", "again");
    let own = view.own_changes(&view.effect(Limits::default()).unwrap());
    let nodes = |manifest: &Manifest| -> Vec<String> {
        let differing = manifest.changes.iter().flat_map(|change| {
            let is_new = |node: &&belay_workspace::Node| !change.before.contains(node);
            let gone = change.before.iter().filter(|node| !change.after.iter().any(|after| after.path == node.path));
            change.after.iter().filter(is_new).chain(gone).map(|node| node.path.to_string()).collect::<Vec<_>>()
        });
        differing.collect()
    };
    assert_eq!(nodes(&own.seen), ["new/second", "old"]);
    assert_eq!(nodes(&own.manifest), ["new", "new/first", "new/second", "old"], "to the workspace all of it is new");
}

#[test]
fn a_view_that_is_stopped_has_not_begun() {
    let ground = Ground::new();
    let workspace = ground.open();
    let first = call(&workspace, "first", &[], |view| write(view, "a", "a")).unwrap();
    let layers = references(&[&first]);
    let asked = std::cell::Cell::new(0);
    for stops_at in 0.. {
        asked.set(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() > stops_at
        };
        match workspace.view_over(&format!("view-{stops_at}"), SET, &layers, &stop) {
            Err(ViewError::Stopped) => assert!(!ground.root.join(format!(".belay/views/view-{stops_at}")).exists()),
            Err(other) => panic!("{other}"),
            Ok(_) => {
                assert!(stops_at > 3, "it asks between all that takes long: {stops_at}");
                return;
            }
        }
    }
}
