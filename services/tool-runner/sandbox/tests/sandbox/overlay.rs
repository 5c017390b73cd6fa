//! What a command changes lands in its upper folder, and nowhere else.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
};

use belay_sandbox::{Spec, WorkspaceMount};

use crate::{
    harness::{Test, Verdict, tests},
    support::{Room, contents, fail, is_root, refusal, succeed},
};

pub(crate) const TESTS: &[Test] = tests![
    changes_land_in_the_upper_folder_only,
    what_is_deleted_is_marked_in_the_upper_folder,
    a_view_is_a_whole_workspace,
    layers_are_seen_topmost_first,
    layers_without_staging_are_read_only,
    hidden_folders_are_empty_and_closed,
    a_hidden_link_is_refused,
    a_staging_folder_serves_once,
    staging_inside_of_the_workspace_works,
    another_owners_workspace_keeps_its_owner,
];

fn changes_land_in_the_upper_folder_only() {
    let room = Room::new();
    fs::create_dir(room.workspace.join("folder")).unwrap();
    fs::write(room.workspace.join("folder/inner"), "inner\n").unwrap();
    let before = contents(&room.workspace);
    let script = "echo more >> file; echo new > new; echo changed > folder/inner; mkdir -p a/b; touch a/b/c; chmod 755 new; cat file new";
    let (seen, upper) = room.change(script);
    assert_eq!(seen, "as it was\nmore\nnew\n");
    assert_eq!(contents(&room.workspace), before);

    assert_eq!(fs::read_to_string(upper.join("file")).unwrap(), "as it was\nmore\n");
    assert_eq!(fs::read_to_string(upper.join("folder/inner")).unwrap(), "changed\n");
    assert_eq!(fs::metadata(upper.join("new")).unwrap().permissions().mode() & 0o777, 0o755);
    let (owner, made) = (fs::metadata(&room.workspace).unwrap(), fs::metadata(upper.join("a/b/c")).unwrap());
    assert_eq!((made.uid(), made.gid()), (owner.uid(), owner.gid()));
}

fn what_is_deleted_is_marked_in_the_upper_folder() {
    let room = Room::new();
    let (seen, upper) = room.change("rm file; ls");
    assert_eq!(seen, "");
    let whiteout = fs::symlink_metadata(upper.join("file")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    assert!(room.workspace.join("file").exists());
}

fn a_view_is_a_whole_workspace() {
    let room = Room::new();
    let script = "mkdir d && echo x > d/f && mv d/f d/g && ln d/g d/h && ln -s g d/s && cat d/s && mkfifo d/p && rm -r d && \
        echo 1 > t && truncate -s 0 t && mv t t2 && mv file moved && cat moved";
    assert_eq!(room.change(script).0, "x\nas it was\n");
}

fn layers_are_seen_topmost_first() {
    let room = Room::new();
    let top = room.folder.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("file"), "from the top\n").unwrap();
    fs::write(top.join("other"), "other\n").unwrap();
    let (mut workspace, upper) = room.staged();
    workspace.lower.insert(0, top.clone());
    assert_eq!(succeed(Spec::new("sh", ["-c", "cat file other; echo x > other"], workspace)), "from the top\nother\n");
    assert_eq!(fs::read_to_string(top.join("other")).unwrap(), "other\n");
    assert_eq!(fs::read_to_string(upper.join("other")).unwrap(), "x\n");
}

fn layers_without_staging_are_read_only() {
    let room = Room::new();
    let top = room.folder.path().join("top");
    fs::create_dir(&top).unwrap();
    let workspace = WorkspaceMount { lower: vec![top, room.workspace.clone()], ..room.read_only() };
    assert_eq!(succeed(Spec::new("cat", ["file"], workspace.clone())), "as it was\n");
    assert!(fail(Spec::new("touch", ["file"], workspace)).contains("Read-only"));
}

fn hidden_folders_are_empty_and_closed() {
    let room = Room::new();
    fs::create_dir_all(room.workspace.join("a/.belay")).unwrap();
    fs::write(room.workspace.join("a/.belay/key"), "secret").unwrap();
    let hide = |mount: WorkspaceMount| WorkspaceMount { hidden: vec!["a/.belay".into(), "not-there".into()], ..mount };
    for mount in [room.read_only(), room.staged().0] {
        assert_eq!(succeed(Spec::new("ls", ["-A", "a/.belay"], hide(mount))), "");
    }
    fail(Spec::new("touch", ["a/.belay/x"], hide(room.staged().0)));
    fail(Spec::new("mv", ["a/.belay", "a/elsewhere"], hide(room.staged().0)));
    assert_eq!(fs::read_to_string(room.workspace.join("a/.belay/key")).unwrap(), "secret");
}

// What the workspace contains must not choose what is covered.
fn a_hidden_link_is_refused() {
    let room = Room::new();
    std::os::unix::fs::symlink("/usr", room.workspace.join("link")).unwrap();
    let mount = WorkspaceMount { hidden: vec!["link".into()], ..room.read_only() };
    assert!(refusal(Spec::new("true", [""; 0], mount)).to_string().contains("hiding `link`"));
}

fn a_staging_folder_serves_once() {
    let room = Room::new();
    let (mount, _) = room.staged();
    succeed(Spec::new("true", [""; 0], mount.clone()));
    let error = refusal(Spec::new("true", [""; 0], mount)).to_string();
    assert!(error.starts_with("workspace.staging:"), "{error}");
}

// Where a commit is a rename: on the workspace's own file system, next to what it changes.
fn staging_inside_of_the_workspace_works() {
    let room = Room::new();
    let staging = room.workspace.join(".belay/views/1");
    fs::create_dir_all(&staging).unwrap();
    let mount = WorkspaceMount { hidden: vec![".belay".into()], ..WorkspaceMount::staged(&room.workspace, &staging) };
    assert_eq!(succeed(Spec::new("sh", ["-c", "echo x > new; ls -A; ls -A .belay"], mount)), ".belay\nfile\nnew\n");
    assert_eq!(fs::read_to_string(staging.join("upper/new")).unwrap(), "x\n");
    assert!(!room.workspace.join("new").exists());
}

fn another_owners_workspace_keeps_its_owner() -> Verdict {
    if !is_root() {
        return Verdict::Skipped("only root works on other users' workspaces".to_owned());
    }
    const OWNER: u32 = 4242;
    let room = Room::new();
    let own = |path: &Path| chown(path, Some(OWNER), Some(OWNER)).unwrap();
    own(&room.workspace);
    own(&room.workspace.join("file"));
    // Only its owner gets in: the map has to work, not the modes.
    fs::set_permissions(&room.workspace, fs::Permissions::from_mode(0o700)).unwrap();
    let (seen, upper) = room.change("stat -c %u:%g file; echo x >> file; echo y > new");
    assert_eq!(seen, "1000:1000\n");
    for changed in ["file", "new", "."] {
        let meta = fs::metadata(upper.join(changed)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (OWNER, OWNER), "{changed}");
    }
    Verdict::Passed
}
