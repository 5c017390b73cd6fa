//! A view and its commit come to the same as working on the folder itself.

use std::fs;

use belay_workspace::Limits;
use proptest::prelude::*;

use crate::support::{Ground, before, cases, picture, script};

proptest! {
    #![proptest_config(ProptestConfig { cases: cases("PROPTEST_CASES", 200), failure_persistence: None, ..ProptestConfig::default() })]

    /// S2-FR-039, 040: several calls after one another, each seen by the next. What the view shows before the commit is what is there
    /// after it; what is undone is as if it had never been.
    #[test]
    fn file_tools_do_what_they_would_on_a_plain_folder(
        before in before(),
        scripts in prop::collection::vec(script(1..8), 1..4),
    ) {
        let (ours, plain) = (Ground::new(), Ground::new());
        before.build(&ours.root);
        before.build(&plain.root);
        let original = ours.picture();
        prop_assert_eq!(&original, &plain.picture());
        let workspace = ours.open();
        let mut commits = Vec::new();
        for (n, script) in scripts.iter().enumerate() {
            let untouched = ours.picture();
            let mut view = workspace.view(&format!("call-{n}")).unwrap();
            for step in script {
                let (did, should) = (step.in_view(&mut view), step.in_folder(&plain.root));
                prop_assert_eq!(did, should, "{:?}", step);
            }
            prop_assert_eq!(ours.picture(), untouched);
            let seen: Vec<String> = seen(&view);
            let manifest = view.effect(Limits::default()).unwrap();
            prop_assert_eq!(manifest.is_empty(), picture(&plain.root) == ours.picture(), "an effect is shown iff there is one");
            let commit = workspace.stage(view, &manifest).unwrap();
            workspace.apply(&commit).unwrap();
            prop_assert_eq!(ours.picture(), plain.picture());
            let there: Vec<String> = ours.picture().keys().map(|path| path.display().to_string()).collect();
            prop_assert_eq!(seen, there);
            commits.push(commit);
        }
        for commit in commits.iter().rev() {
            workspace.rollback(commit).unwrap();
        }
        prop_assert_eq!(ours.picture(), original);
    }
}

/// All paths that a view shows.
fn seen(view: &belay_workspace::View) -> Vec<String> {
    let mut paths = Vec::new();
    let mut folders = vec![belay_workspace::RelPath::root()];
    while let Some(folder) = folders.pop() {
        for (path, kind) in view.list(&folder).unwrap() {
            if kind == belay_workspace::FileKind::Directory {
                folders.push(path.clone());
            }
            paths.push(path);
        }
    }
    let mut shown: Vec<_> =
        paths.iter().map(|path| std::path::PathBuf::from(AsRef::<std::path::Path>::as_ref(path))).collect();
    shown.sort();
    shown.iter().map(|path| path.display().to_string()).collect()
}

/// The oracle is not the thing itself: it knows of no view.
#[test]
fn the_plain_folder_is_plain() {
    let plain = Ground::with(&[("a", "1")]);
    assert!(crate::support::Step::Write("d/b".into(), "2".into(), None).in_folder(&plain.root));
    assert!(!plain.root.join(".belay").exists() && fs::read_to_string(plain.root.join("d/b")).unwrap() == "2");
}
