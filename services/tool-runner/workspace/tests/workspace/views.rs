//! The files that a call sees and changes in its view.

use std::{fs, os::unix::fs::symlink};

use belay_workspace::{FileKind, OWN, View, ViewError};

use crate::support::{Ground, path};

fn text(view: &View, at: &str) -> String {
    String::from_utf8(view.read(&path(at), 0, None).unwrap_or_else(|error| panic!("{at}: {error}"))).unwrap()
}

fn listed(view: &View, at: &str) -> Vec<String> {
    view.list(&path(at)).unwrap().into_iter().map(|(path, _)| path.to_string()).collect()
}

/// S2-FR-039, S2-NFR-010: the whole of a file, or a part of it.
#[test]
fn a_file_is_read_from_either_layer() {
    let ground = Ground::with(&[("d/low", "below"), ("d/both", "old")]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.write(&path("d/both"), b"new", None).unwrap();
    view.write(&path("d/up"), b"above", None).unwrap();
    assert_eq!(
        (text(&view, "d/low"), text(&view, "d/both"), text(&view, "d/up")),
        ("below".into(), "new".into(), "above".into())
    );
    assert_eq!(view.read(&path("d/low"), 1, Some(3)).unwrap(), b"elo");
    assert_eq!(view.read(&path("d/low"), 99, Some(3)).unwrap(), b"");
    assert_eq!(listed(&view, "d"), ["d/both", "d/low", "d/up"]);
    assert!(matches!(view.read(&path("d"), 0, None), Err(ViewError::NotAFile { kind: FileKind::Directory, .. })));
    assert!(matches!(view.read(&path("."), 0, None), Err(ViewError::NotAFile { .. })));
    assert!(matches!(view.read(&path("none"), 0, None), Err(ViewError::NotFound { .. })));
    assert!(matches!(view.read(&path("d/low/x"), 0, None), Err(ViewError::NotADirectory { .. })));
}

/// A large tree is removed before the next call starts, which may need its space.
#[test]
fn what_a_view_leaves_is_removed_at_once_if_it_is_large() {
    let ground = Ground::new();
    let workspace = ground.open();
    let in_trash = || fs::read_dir(ground.root.join(".belay/trash")).unwrap().count();
    let end = |write: &dyn Fn(&mut View)| {
        let mut view = workspace.view("v").unwrap();
        write(&mut view);
        drop(view);
        assert_eq!(fs::read_dir(ground.root.join(".belay/views")).unwrap().count(), 0);
    };
    end(&|view| view.write(&path("large"), &vec![0; 2 << 20], None).unwrap());
    end(&|view| (0..200).for_each(|n| view.write(&path(&format!("d/{n}")), b"", None).unwrap()));
    assert_eq!((in_trash(), workspace.has_to_clear()), (0, false));
    end(&|view| view.write(&path("small"), b"x", None).unwrap());
    end(&|_| {});
    assert_eq!((in_trash(), workspace.has_to_clear()), (2, true));
    workspace.clear().unwrap();
    assert_eq!((in_trash(), workspace.has_to_clear()), (0, false));
    end(&|_| {});
    drop(workspace);
    assert_eq!(in_trash(), 0, "the end of the workspace removes it");
}

/// S2-FR-040, B-06: writing overwrites, makes folders, keeps modes, and the workspace is the same byte for byte without a commit.
#[test]
fn what_is_written_stays_in_the_view() {
    use std::os::unix::fs::PermissionsExt as _;
    let ground = Ground::with(&[("run.sh", "old"), ("d/e/f", "1"), ("g", "2")]);
    fs::set_permissions(ground.root.join("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    let before = ground.picture();
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.write(&path("run.sh"), b"new", None).unwrap();
    view.write(&path("x/y/z"), b"deep", Some(0o600)).unwrap();
    view.remove(&path("d")).unwrap();
    view.write(&path("d/only"), b"3", None).unwrap();
    view.remove(&path("g")).unwrap();
    let mode = |at| view.metadata(&path(at)).unwrap().mode;
    assert_eq!((mode("run.sh"), mode("x/y/z"), mode("x"), mode("d/only")), (0o750, 0o600, 0o755, 0o644));
    assert_eq!(listed(&view, "."), ["d", "run.sh", "x"]);
    assert_eq!(listed(&view, "d"), ["d/only"], "what was removed does not shine through");
    assert!(matches!(view.metadata(&path("g")), Err(ViewError::NotFound { .. })));
    assert!(matches!(view.remove(&path("g")), Err(ViewError::NotFound { .. })));
    assert_eq!(ground.picture(), before);
    let place = view.directory();
    assert!(place.join("upper/x/y/z").exists());
    drop(view);
    assert!(!place.exists());
    assert_eq!(ground.picture(), before);
}

#[test]
fn a_name_can_change_its_kind_again_and_again() {
    let ground = Ground::with(&[("a/b", "1"), ("f", "2")]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.remove(&path("a")).unwrap();
    view.write(&path("a"), b"a file now", None).unwrap();
    view.remove(&path("f")).unwrap();
    view.write(&path("f/g"), b"a folder now", None).unwrap();
    assert_eq!((text(&view, "a"), text(&view, "f/g")), ("a file now".into(), "a folder now".into()));
    view.remove(&path("a")).unwrap();
    view.write(&path("a/c"), b"and back", None).unwrap();
    assert_eq!((listed(&view, "a"), text(&view, "a/c")), (vec!["a/c".into()], "and back".into()));
    assert!(matches!(view.write(&path("a"), b"", None), Err(ViewError::NotAFile { kind: FileKind::Directory, .. })));
    assert!(matches!(view.write(&path("a/c/d"), b"", None), Err(ViewError::NotADirectory { .. })));
    assert!(matches!(view.write(&path("."), b"", None), Err(ViewError::Root)));
    assert!(matches!(view.remove(&path(".")), Err(ViewError::Root)));
}

/// S2-X-12, S2-X-06, S2-NFR-012: links that lead out are not followed, by nothing and in neither layer.
#[test]
fn links_that_lead_out_are_not_followed() {
    let outside = Ground::with(&[("secret", "key")]);
    let ground = Ground::with(&[
        ("d/in", "1"),
        ("up", "-> .."),
        ("d/twice", "-> ../../x"),
        ("own", "-> .belay"),
        ("gone", "-> none"),
    ]);
    symlink(&outside.root, ground.root.join("out")).unwrap();
    symlink(outside.root.join("secret"), ground.root.join("file")).unwrap();
    symlink("out", ground.root.join("hop")).unwrap();
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    for leading in ["out/secret", "file", "up/x", "d/twice", "own/lock", "own", "hop/secret", "out/new"] {
        let refused = view.read(&path(leading), 0, None).unwrap_err();
        assert!(matches!(refused, ViewError::Outside { .. }), "{leading}: {refused}");
        assert!(refused.to_string().contains("outside workspace"), "{refused}");
    }
    assert!(matches!(view.list(&path("out")), Err(ViewError::Outside { .. })));
    assert!(matches!(view.metadata(&path("out/secret")), Err(ViewError::Outside { .. })));
    for leading in ["out/secret", "file", "own/x", "up/x"] {
        let refused = view.write(&path(leading), b"overwritten", None).unwrap_err();
        assert!(matches!(refused, ViewError::Outside { .. } | ViewError::Link { .. }), "{leading}: {refused}");
    }
    assert!(view.remove(&path("out/secret")).is_err());
    view.remove(&path("out")).unwrap();
    assert_eq!(outside.read("secret"), "key", "the link went, not what it led to");
    assert!(matches!(view.read(&path("gone"), 0, None), Err(ViewError::NotFound { .. })));
}

#[test]
fn links_that_stay_are_followed_to_read_and_named_when_written() {
    let ground = Ground::with(&[
        ("src/lib.rs", "code"),
        ("link", "-> src"),
        ("src/up", "-> ../link/lib.rs"),
        ("loop", "-> loop"),
        ("d/deep", "-> ../src/./up"),
    ]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    assert_eq!(
        (text(&view, "link/lib.rs"), text(&view, "src/up"), text(&view, "d/deep")),
        ("code".into(), "code".into(), "code".into())
    );
    assert_eq!(listed(&view, "link"), ["link/lib.rs", "link/up"]);
    let refused = view.write(&path("link/lib.rs"), b"x", None).unwrap_err().to_string();
    assert!(
        refused.contains("`link` is a symbolic link to `src`") && refused.contains("use its target instead"),
        "{refused}"
    );
    assert!(matches!(view.write(&path("src/up"), b"x", None), Err(ViewError::Link { .. })));
    assert!(matches!(view.read(&path("loop"), 0, None), Err(ViewError::Link { .. })));
    let link = view.metadata(&path("link")).unwrap();
    assert_eq!((link.kind, link.target.as_deref()), (FileKind::Symlink, Some("src")));
    // A change in the upper layer is seen through a link in the lower one.
    view.write(&path("src/lib.rs"), b"changed", None).unwrap();
    assert_eq!(text(&view, "d/deep"), "changed");
}

#[test]
fn our_folder_is_in_no_view() {
    let ground = Ground::with(&[("a", "1")]);
    let workspace = ground.open();
    let view = workspace.view("v").unwrap();
    assert!(ground.root.join(OWN).exists());
    assert_eq!(listed(&view, "."), ["a"]);
    assert_eq!(view.metadata(&path(".")).unwrap().kind, FileKind::Directory);
}

/// S2-NFR-012: a folder inside that is a workspace of its own has its own views and commits; they are not this one's to see.
#[test]
fn the_own_folder_of_a_workspace_inside_is_in_no_view() {
    let ground = Ground::with(&[("sub/a", "1"), ("sub/.belay/views/v/upper/a", "2"), ("link", "-> sub/.belay/views")]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    assert_eq!(listed(&view, "sub"), ["sub/a"]);
    assert!(matches!(view.list(&path("link")), Err(ViewError::Outside { .. })));
    assert!(matches!(view.read(&path("link/v/upper/a"), 0, None), Err(ViewError::Outside { .. })));
    assert!(matches!(view.write(&path("link/x"), b"", None), Err(ViewError::Outside { .. })));
}

/// S2-NFR-012: the stores and keys of any Belay are out of reach, wherever they are.
#[test]
fn a_state_directory_inside_is_out_of_reach() {
    let ground = Ground::with(&[
        ("a/state/seal.key", "key"),
        ("a/state/ledger.db", "rows"),
        ("a/state/workspaces/n/e/file", "x"),
        ("link", "-> a/state"),
        ("only/seal.key", "a file of this name alone is none"),
        ("docs/gate.key/x", ""),
        ("docs/gate.db", ""),
    ]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    for inside in ["a/state/seal.key", "a/state/new", "a/state/workspaces/n/e/file", "link/ledger.db"] {
        let refused = view.read(&path(inside), 0, None).unwrap_err();
        assert!(matches!(refused, ViewError::Stores { .. }), "{inside}: {refused}");
        assert!(refused.to_string().contains("`a/state` is outside workspace"), "{refused}");
        assert!(view.metadata(&path(inside)).is_err() && view.write(&path(inside), b"", None).is_err(), "{inside}");
        assert!(view.remove(&path(inside)).is_err(), "{inside}");
    }
    for folder in ["a/state", "link", "a/state/workspaces"] {
        assert!(matches!(view.list(&path(folder)), Err(ViewError::Stores { .. })), "{folder}");
    }
    assert_eq!(listed(&view, "a"), ["a/state"]);
    assert_eq!((listed(&view, "only").len(), listed(&view, "docs").len()), (1, 2));
    view.write(&path("a/other"), b"", None).unwrap();
}

#[test]
fn pipes_and_sockets_are_refused_at_once() {
    let ground = Ground::new();
    rustix::fs::mkfifoat(rustix::fs::CWD, ground.root.join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(ground.root.join("socket")).unwrap();
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    assert!(matches!(view.read(&path("pipe"), 0, None), Err(ViewError::NotAFile { kind: FileKind::Fifo, .. })));
    assert!(matches!(view.read(&path("socket"), 0, None), Err(ViewError::NotAFile { kind: FileKind::Socket, .. })));
    assert!(matches!(view.write(&path("pipe"), b"x", None), Err(ViewError::NotAFile { .. })));
    view.remove(&path("pipe")).unwrap();
    assert_eq!(listed(&view, "."), ["socket"]);
}

#[test]
fn an_id_is_used_once() {
    let ground = Ground::with(&[("a", "1")]);
    let workspace = ground.open();
    for bad in ["", "a/b", "..", "a b", &"x".repeat(65)] {
        assert!(matches!(workspace.view(bad), Err(ViewError::Id { .. })), "{bad}");
    }
    let view = workspace.view("call-1").unwrap();
    assert!(workspace.view("call-1").err().unwrap().to_string().contains("use a new id for each call"));
    drop(view);
    crate::support::commit(&workspace, "call-1", |view| view.write(&path("a"), b"2", None).unwrap());
    assert!(workspace.view("call-1").err().unwrap().to_string().contains("is already used by a commit"));
}
