//! The contents of an effect, and what it refuses.

use std::{
    cell::Cell,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
};

use belay_workspace::{
    Act, CommitError, Content, EffectError, FileKind, Flag, Limits, Manifest, TreeError, UPPER, View, Workspace,
};

use crate::support::{Ground, commit, path};

/// A line for each change: what happens, to what, and what came and went.
fn summary(manifest: &Manifest) -> Vec<String> {
    let line = |change: &belay_workspace::Change| {
        let act = match change.act {
            Act::Put { base: None, .. } => "new".to_owned(),
            Act::Put { .. } => "exchange".to_owned(),
            Act::Away { .. } => "away".to_owned(),
            Act::Meta { old, new, .. } => format!("{old:o}→{new:o}"),
        };
        let paths = |nodes: &[belay_workspace::Node]| {
            nodes.iter().map(|node| node.path.to_string()).collect::<Vec<_>>().join(" ")
        };
        format!("{act} {}: {} → {}", change.path, paths(&change.before), paths(&change.after))
    };
    manifest.changes.iter().map(line).collect()
}

fn flags(manifest: &Manifest) -> Vec<(String, Flag)> {
    manifest
        .changes
        .iter()
        .flat_map(|change| &change.flags)
        .map(|flagged| (flagged.path.to_string(), flagged.flag))
        .collect()
}

/// A view in which a command has been: whatever it made in the upper folder is there.
fn after_command(workspace: &Workspace, id: &str, command: impl FnOnce(&Path)) -> View {
    let view = workspace.view(id).unwrap();
    let upper = view.directory().join(UPPER);
    fs::create_dir_all(&upper).unwrap();
    command(&upper);
    view
}

fn effect(view: &View) -> Manifest {
    view.effect(Limits::default()).unwrap()
}

#[test]
fn the_manifest_names_every_kind_of_change() {
    let ground = Ground::with(&[
        ("a", "1"),
        ("same", "="),
        ("d/x", "2"),
        ("d/y", "3"),
        ("tree/p/q", "4"),
        ("f", "5"),
        ("kept/k", "6"),
    ]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    let mut write = |at: &str, text: &str| view.write(&path(at), text.as_bytes(), None).unwrap();
    write("a", "changed");
    write("same", "=");
    write("kept/k", "6");
    write("new/deep/file", "n");
    write("d/z", "beside");
    view.remove(&path("d/x")).unwrap();
    view.remove(&path("tree")).unwrap();
    view.write(&path("tree/other"), b"o", None).unwrap();
    view.remove(&path("f")).unwrap();
    let manifest = effect(&view);
    assert_eq!(
        summary(&manifest),
        [
            "exchange a: a → a",
            "away d/x: d/x → ",
            "new d/z:  → d/z",
            "away f: f → ",
            "new new:  → new new/deep new/deep/file",
            "exchange tree: tree tree/p tree/p/q → tree tree/other",
        ]
    );
    let stored = serde_json::to_string(&manifest).unwrap();
    assert_eq!(serde_json::from_str::<Manifest>(&stored).unwrap(), manifest);
}

#[test]
fn a_view_without_changes_has_an_empty_effect() {
    let ground = Ground::with(&[("a", "1"), ("d/b", "2")]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    assert!(effect(&view).is_empty(), "nothing was touched at all");
    view.write(&path("a"), b"other", None).unwrap();
    view.write(&path("a"), b"1", None).unwrap();
    view.write(&path("n"), b"here", None).unwrap();
    view.remove(&path("n")).unwrap();
    view.remove(&path("d/b")).unwrap();
    view.write(&path("d/b"), b"2", None).unwrap();
    view.remove(&path("d")).unwrap();
    view.write(&path("d/b"), b"2", None).unwrap();
    assert!(effect(&view).is_empty(), "changed and changed back");
}

/// The digest that an approval is bound to: the same for the same change, whenever it is made and whatever else is committed; another one as soon as
/// anything that was shown differs.
#[test]
fn the_digest_is_of_what_changes_and_nothing_else() {
    let ground = Ground::with(&[("a", "1"), ("other", "x")]);
    let workspace = ground.open();
    let proposed = |id: &str, text: &[u8], mode: Option<u32>| {
        let mut view = workspace.view(id).unwrap();
        view.write(&path("a"), text, mode).unwrap();
        effect(&view).digest()
    };
    let digest = proposed("one", b"2", None);
    commit(&workspace, "unrelated", |view| view.write(&path("other"), b"y", None).unwrap());
    assert_eq!(proposed("two", b"2", None), digest, "an unrelated commit leaves an approval good");
    assert_ne!(proposed("three", b"3", None), digest);
    assert_ne!(proposed("four", b"2", Some(0o755)), digest);
    commit(&workspace, "related", |view| view.write(&path("a"), b"1b", None).unwrap());
    assert_ne!(proposed("five", b"2", None), digest, "the base is part of it");
    // It is the format that is stored and signed: a change of it has to be meant.
    let empty = Manifest::default();
    assert_eq!(empty.canonical_bytes(), b"belay manifest 1\n");
}

#[test]
fn modes_and_set_id_bits() {
    let ground = Ground::with(&[("run", "x"), ("d/f", "1")]);
    let workspace = ground.open();
    let view = after_command(&workspace, "v", |upper| {
        let write = |at: &str, mode| {
            fs::create_dir_all(upper.join(at).parent().unwrap()).unwrap();
            fs::write(upper.join(at), "x").unwrap();
            fs::set_permissions(upper.join(at), fs::Permissions::from_mode(mode)).unwrap();
        };
        write("run", 0o755);
        write("n/setuid", 0o4755);
        write("n/plain", 0o640);
        fs::create_dir(upper.join("d")).unwrap();
        fs::set_permissions(upper.join("d"), fs::Permissions::from_mode(0o2700)).unwrap();
    });
    let manifest = effect(&view);
    assert_eq!(summary(&manifest), ["755→700 d:  → ", "new n:  → n n/plain n/setuid", "exchange run: run → run"]);
    let expected = [
        ("d", Flag::SetIdStripped),
        ("n/setuid", Flag::Executable),
        ("n/setuid", Flag::SetIdStripped),
        ("run", Flag::Executable),
    ];
    assert_eq!(flags(&manifest), expected.map(|(at, flag)| (at.to_owned(), flag)));
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    let picture = ground.picture();
    let mode = |at: &str| picture[Path::new(at)].split(' ').next().unwrap().to_owned();
    assert_eq!(["d", "d/f", "n/setuid", "n/plain", "run"].map(mode), ["700", "644", "755", "640", "755"]);
}

/// To move a folder takes the right to write to it, which root always has and others see added.
#[test]
fn a_new_folder_that_is_closed_is_opened_for_its_owner() {
    let ground = Ground::new();
    let workspace = ground.open();
    let view = after_command(&workspace, "v", |upper| {
        fs::create_dir_all(upper.join("n/m")).unwrap();
        for closed in ["n/m", "n"] {
            fs::set_permissions(upper.join(closed), fs::Permissions::from_mode(0o555)).unwrap();
        }
    });
    let manifest = effect(&view);
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    let top = if rustix::process::geteuid().is_root() { "555 folder" } else { "755 folder" };
    let picture = ground.picture();
    assert_eq!((&*picture[Path::new("n")], &*picture[Path::new("n/m")]), (top, "555 folder"));
    let flagged = flags(&manifest) == [("n".to_owned(), Flag::MadeWritable)];
    assert_eq!(flagged, top == "755 folder");
}

#[test]
fn what_deserves_a_second_look_is_flagged() {
    let ground = Ground::with(&[("Makefile", "x"), ("gone", "y"), ("d/z", "")]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.remove(&path("gone")).unwrap();
    for (at, mode) in [("makefile", 0o644), ("GONE", 0o644), ("n/A", 0o644), ("n/a", 0o755), ("bi\u{202e}di", 0o644)] {
        view.write(&path(at), b"1", Some(mode)).unwrap();
    }
    let upper = view.directory().join(UPPER);
    symlink("../x", upper.join("out")).unwrap();
    symlink("../../x", upper.join("n/out")).unwrap();
    symlink("../Makefile", upper.join("n/in")).unwrap();
    fs::write(upper.join(std::ffi::OsStr::from_bytes(b"bytes\xff")), "").unwrap();
    let mut found = flags(&effect(&view));
    found.sort();
    let mut expected = [
        ("bi<U+202E>di", Flag::OddName),
        ("hex:6279746573ff", Flag::OddName),
        ("makefile", Flag::CaseCollision),
        ("n/A", Flag::CaseCollision),
        ("n/a", Flag::CaseCollision),
        ("n/a", Flag::Executable),
        ("n/out", Flag::LinkLeaves),
        ("out", Flag::LinkLeaves),
    ]
    .map(|(at, flag)| (at.to_owned(), flag));
    expected.sort();
    assert_eq!(found, expected, "`GONE` collides with what goes at the same time: with nothing");
}

/// Both marks of a removed name, and the one of a folder that hides what is below.
#[test]
fn the_marks_of_an_overlay_are_read() {
    let ground = Ground::with(&[("a", "1"), ("b", "2"), ("d/x", "3"), ("e/y", "4")]);
    let workspace = ground.open();
    let view = after_command(&workspace, "v", |upper| {
        mark_gone(&upper.join("a"));
        mark_gone(&upper.join(".belay"));
        mark_gone(&upper.join("never-was"));
        fs::write(upper.join("b"), "").unwrap();
        set(&upper.join("b"), "user.overlay.whiteout", b"y");
        fs::create_dir(upper.join("d")).unwrap();
        set(&upper.join("d"), "user.overlay.opaque", b"y");
        mark_gone(&upper.join("d/x"));
        fs::write(upper.join("d/new"), "n").unwrap();
        fs::create_dir(upper.join("e")).unwrap();
        set(&upper.join("e"), "user.overlay.opaque", b"x");
    });
    let manifest = effect(&view);
    assert_eq!(summary(&manifest), ["away a: a → ", "away b: b → ", "exchange d: d d/x → d d/new"]);
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    assert_eq!(ground.picture().into_keys().collect::<Vec<PathBuf>>(), ["d", "d/new", "e", "e/y"].map(PathBuf::from));
    let left = rustix::fs::llistxattr(ground.root.join("d"), &mut [0_u8; 256][..]);
    assert_eq!(left, Ok(0), "no mark of the overlay reaches the workspace");
}

fn mark_gone(place: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, place, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
}

fn set(place: &Path, attribute: &str, value: &[u8]) {
    rustix::fs::setxattr(place, attribute, value, rustix::fs::XattrFlags::empty()).unwrap();
}

#[test]
fn pipes_and_sockets_are_left_out_and_named() {
    let ground = Ground::with(&[("a", "1"), ("d/x", "2")]);
    let workspace = ground.open();
    let before = ground.picture();
    let pipe = |place: PathBuf| rustix::fs::mkfifoat(rustix::fs::CWD, place, rustix::fs::Mode::RWXU).unwrap();
    let socket = |place: PathBuf| drop(std::os::unix::net::UnixListener::bind(place).unwrap());
    let view = after_command(&workspace, "both", |upper| {
        fs::create_dir_all(upper.join("n/deep")).unwrap();
        fs::write(upper.join("n/file"), "3").unwrap();
        pipe(upper.join("n/deep/pipe"));
        socket(upper.join("n/s"));
        // In the place of a file.
        pipe(upper.join("a"));
        socket(upper.join("top"));
    });
    let manifest = view.effect(Limits::default()).unwrap();
    let left_out: Vec<_> = manifest.left_out.iter().map(|left| (left.path.to_string(), left.kind)).collect();
    let expected =
        [("a", FileKind::Fifo), ("n/deep/pipe", FileKind::Fifo), ("n/s", FileKind::Socket), ("top", FileKind::Socket)];
    assert_eq!(left_out, expected.map(|(path, kind)| (path.to_owned(), kind)));
    assert_eq!(manifest.changes.len(), 1, "{manifest:?}");
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    let after = ground.picture();
    assert_eq!(after.get(Path::new("a")), before.get(Path::new("a")), "what was there stays");
    let new: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    assert_eq!(new, ["n", "n/deep", "n/file"].map(Path::new));

    // These alone are no change.
    let view = after_command(&workspace, "alone", |upper| pipe(upper.join("alone")));
    let manifest = view.effect(Limits::default()).unwrap();
    assert!(manifest.is_empty() && manifest.left_out.len() == 1);
}

#[test]
fn looking_at_an_effect_stops_when_it_is_told_to() {
    let ground = Ground::with(&[]);
    let workspace = ground.open();
    let view = after_command(&workspace, "sparse", |upper| {
        let file = fs::File::create(upper.join("sparse")).unwrap();
        file.set_len(1 << 20).unwrap();
    });
    // One more piece each time: it is asked within a file, again and again.
    let asked = Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) > 9;
    let stopped = view.effect_until(Limits::default(), &stop).unwrap_err();
    assert!(matches!(stopped, EffectError::Tree(TreeError::Stopped)), "{stopped}");
    assert_eq!(asked.get(), 11);
    let manifest = view.effect(Limits::default()).unwrap();
    let stopped = workspace.stage_until(view, &manifest, &|| true).unwrap_err();
    assert!(matches!(stopped, CommitError::Stopped), "{stopped}");
}

#[test]
fn what_cannot_be_committed_is_refused_by_name() {
    let ground = Ground::with(&[("a", "1"), ("d/x", "2")]);
    let workspace = ground.open();
    let refused = |id: &str, command: &dyn Fn(&Path)| {
        let view = after_command(&workspace, id, command);
        view.effect(Limits::default()).unwrap_err()
    };
    let own = refused("own", &|upper| fs::create_dir(upper.join(".belay")).unwrap());
    assert!(matches!(own, EffectError::Reserved { .. }), "{own}");
    // Nor is that of a workspace inside, whether it is made, changed, covered or removed with the folder that it is in.
    fs::create_dir_all(ground.root.join("inner/.belay/commits")).unwrap();
    let doings: [&dyn Fn(&Path); 4] = [
        &|upper| fs::create_dir_all(upper.join("new/deep/.Belay")).unwrap(),
        &|upper| fs::create_dir_all(upper.join("inner/.belay/views/v")).unwrap(),
        &|upper| {
            fs::create_dir(upper.join("inner")).unwrap();
            mark_gone(&upper.join("inner/.belay"));
        },
        &|upper| mark_gone(&upper.join("inner")),
    ];
    for (n, doing) in doings.into_iter().enumerate() {
        let own = refused(&format!("own-{n}"), doing);
        assert!(matches!(own, EffectError::Reserved { .. }), "{n}: {own}");
        assert!(own.to_string().contains("elay`, which belongs to Belay"), "{own}");
    }
    // And a state directory stays as it is.
    fs::create_dir_all(ground.root.join("state/deep")).unwrap();
    fs::write(ground.root.join("state/gate.key"), "").unwrap();
    fs::write(ground.root.join("state/gate.db"), "").unwrap();
    let doings: [&dyn Fn(&Path); 2] =
        [&|upper| mark_gone(&upper.join("state")), &|upper| fs::create_dir_all(upper.join("state/deep/new")).unwrap()];
    for (n, doing) in doings.into_iter().enumerate() {
        let own = refused(&format!("state-{n}"), doing);
        assert!(matches!(&own, EffectError::Reserved { path } if path == "state"), "{n}: {own}");
    }
    for (n, mark) in ["user.overlay.redirect", "user.overlay.metacopy"].into_iter().enumerate() {
        let elsewhere = refused(&format!("elsewhere-{n}"), &|upper| {
            fs::create_dir(upper.join("d")).unwrap();
            set(&upper.join("d"), mark, b"/x");
        });
        assert!(matches!(elsewhere, EffectError::Tree(TreeError::Elsewhere { .. })), "{elsewhere}");
    }
}

#[test]
fn too_much_is_refused_by_the_name_of_the_limit() {
    let ground = Ground::with(&[("big/1", "x"), ("big/2", "y")]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.write(&path("a/b/c/d"), b"0123456789", None).unwrap();
    let with = |limits: Limits| view.effect(limits).map(|_| ()).map_err(|error| error.to_string());
    let all = Limits::default();
    assert_eq!(with(Limits { entries: 4, bytes: 10, depth: 3 }), Ok(()), "a limit may be reached");
    let entries = with(Limits { entries: 3, ..all }).unwrap_err();
    assert!(entries.contains("the limit `entries` of 3 is exceeded at `a/b/c/d`"), "{entries}");
    let bytes = with(Limits { bytes: 9, ..all }).unwrap_err();
    assert!(bytes.contains("the limit `bytes` of 9 is exceeded at `a/b/c/d`"), "{bytes}");
    let depth = with(Limits { depth: 2, ..all }).unwrap_err();
    assert!(depth.contains("the limit `depth` of 2 is exceeded at `a/b/c/d`"), "{depth}");
    // What goes counts as well.
    view.remove(&path("a")).unwrap();
    view.remove(&path("big")).unwrap();
    assert!(view.effect(Limits { entries: 2, ..all }).unwrap_err().to_string().contains("`entries` of 2"));
}

/// Contents are named by digest, so that a client can fetch them.
#[test]
fn contents_are_told_by_digest() {
    let ground = Ground::new();
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.write(&path("f"), b"abc", None).unwrap();
    let manifest = effect(&view);
    let Content::File { size, digest } = &manifest.changes[0].after[0].content else {
        panic!("a file");
    };
    assert_eq!(*size, 3);
    assert_eq!(digest.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
