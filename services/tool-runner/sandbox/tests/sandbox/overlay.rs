//! The changes of a command go to its upper directory, and nowhere else.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
};

use belay_sandbox::{Spec, WorkspaceMount};

use crate::{
    harness::{Test, Verdict, tests},
    support::{Fixture, contents, fail, is_root, refusal, succeed},
};

pub(crate) const TESTS: &[Test] = tests![
    changes_go_to_the_upper_directory_only,
    deletions_are_marked_in_the_upper_directory,
    a_view_supports_all_file_operations,
    upper_layers_take_precedence,
    layers_without_staging_are_read_only,
    hidden_directories_are_empty_and_read_only,
    a_hidden_link_is_rejected,
    a_staging_directory_is_used_once,
    staging_inside_the_workspace_works,
    another_owners_workspace_keeps_its_owner,
];

fn changes_go_to_the_upper_directory_only() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.workspace.join("folder")).unwrap();
    fs::write(fixture.workspace.join("folder/inner"), "inner\n").unwrap();
    let before = contents(&fixture.workspace);
    let script = "echo more >> file; echo new > new; echo changed > folder/inner; mkdir -p a/b; touch a/b/c; chmod 755 new; cat file new";
    let (seen, upper) = fixture.change(script);
    assert_eq!(seen, "as it was\nmore\nnew\n");
    assert_eq!(contents(&fixture.workspace), before);

    assert_eq!(fs::read_to_string(upper.join("file")).unwrap(), "as it was\nmore\n");
    assert_eq!(fs::read_to_string(upper.join("folder/inner")).unwrap(), "changed\n");
    assert_eq!(fs::metadata(upper.join("new")).unwrap().permissions().mode() & 0o777, 0o755);
    let (owner, made) = (fs::metadata(&fixture.workspace).unwrap(), fs::metadata(upper.join("a/b/c")).unwrap());
    assert_eq!((made.uid(), made.gid()), (owner.uid(), owner.gid()));
}

fn deletions_are_marked_in_the_upper_directory() {
    let fixture = Fixture::new();
    let (seen, upper) = fixture.change("rm file; ls");
    assert_eq!(seen, "");
    let whiteout = fs::symlink_metadata(upper.join("file")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    assert!(fixture.workspace.join("file").exists());
}

fn a_view_supports_all_file_operations() {
    let fixture = Fixture::new();
    let script = "mkdir d && echo x > d/f && mv d/f d/g && ln d/g d/h && ln -s g d/s && cat d/s && mkfifo d/p && rm -r d && \
        echo 1 > t && truncate -s 0 t && mv t t2 && mv file moved && cat moved";
    assert_eq!(fixture.change(script).0, "x\nas it was\n");
}

fn upper_layers_take_precedence() {
    let fixture = Fixture::new();
    let top = fixture.folder.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("file"), "from the top\n").unwrap();
    fs::write(top.join("other"), "other\n").unwrap();
    let (mut workspace, upper) = fixture.staged();
    workspace.lower.insert(0, top.clone());
    assert_eq!(succeed(Spec::new("sh", ["-c", "cat file other; echo x > other"], workspace)), "from the top\nother\n");
    assert_eq!(fs::read_to_string(top.join("other")).unwrap(), "other\n");
    assert_eq!(fs::read_to_string(upper.join("other")).unwrap(), "x\n");
}

fn layers_without_staging_are_read_only() {
    let fixture = Fixture::new();
    let top = fixture.folder.path().join("top");
    fs::create_dir(&top).unwrap();
    let workspace = WorkspaceMount { lower: vec![top, fixture.workspace.clone()], ..fixture.read_only() };
    assert_eq!(succeed(Spec::new("cat", ["file"], workspace.clone())), "as it was\n");
    assert!(fail(Spec::new("touch", ["file"], workspace)).contains("Read-only"));
}

fn hidden_directories_are_empty_and_read_only() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.workspace.join("a/.belay")).unwrap();
    fs::write(fixture.workspace.join("a/.belay/key"), "secret").unwrap();
    let hide = |mount: WorkspaceMount| WorkspaceMount { hidden: vec!["a/.belay".into(), "not-there".into()], ..mount };
    for mount in [fixture.read_only(), fixture.staged().0] {
        assert_eq!(succeed(Spec::new("ls", ["-A", "a/.belay"], hide(mount))), "");
    }
    fail(Spec::new("touch", ["a/.belay/x"], hide(fixture.staged().0)));
    fail(Spec::new("mv", ["a/.belay", "a/elsewhere"], hide(fixture.staged().0)));
    assert_eq!(fs::read_to_string(fixture.workspace.join("a/.belay/key")).unwrap(), "secret");
}

// The content of the workspace must not choose what is covered.
fn a_hidden_link_is_rejected() {
    let fixture = Fixture::new();
    std::os::unix::fs::symlink("/usr", fixture.workspace.join("link")).unwrap();
    let mount = WorkspaceMount { hidden: vec!["link".into()], ..fixture.read_only() };
    assert!(refusal(Spec::new("true", [""; 0], mount)).to_string().contains("hiding `link`"));
}

fn a_staging_directory_is_used_once() {
    let fixture = Fixture::new();
    let (mount, _) = fixture.staged();
    succeed(Spec::new("true", [""; 0], mount.clone()));
    let error = refusal(Spec::new("true", [""; 0], mount)).to_string();
    assert!(error.starts_with("workspace.staging:"), "{error}");
}

// A commit renames, so staging is on the file system of the workspace.
fn staging_inside_the_workspace_works() {
    let fixture = Fixture::new();
    let staging = fixture.workspace.join(".belay/views/1");
    fs::create_dir_all(&staging).unwrap();
    let mount =
        WorkspaceMount { hidden: vec![".belay".into()], ..WorkspaceMount::staged(&fixture.workspace, &staging) };
    assert_eq!(succeed(Spec::new("sh", ["-c", "echo x > new; ls -A; ls -A .belay"], mount)), ".belay\nfile\nnew\n");
    assert_eq!(fs::read_to_string(staging.join("upper/new")).unwrap(), "x\n");
    assert!(!fixture.workspace.join("new").exists());
}

fn another_owners_workspace_keeps_its_owner() -> Verdict {
    if !is_root() {
        return Verdict::Skipped("only root works on other users' workspaces".to_owned());
    }
    const OWNER: u32 = 4242;
    let fixture = Fixture::new();
    let own = |path: &Path| chown(path, Some(OWNER), Some(OWNER)).unwrap();
    own(&fixture.workspace);
    own(&fixture.workspace.join("file"));
    // Only the owner has access, so the id mapping has to work.
    fs::set_permissions(&fixture.workspace, fs::Permissions::from_mode(0o700)).unwrap();
    let (seen, upper) = fixture.change("stat -c %u:%g file; echo x >> file; echo y > new");
    assert_eq!(seen, "1000:1000\n");
    for changed in ["file", "new", "."] {
        let meta = fs::metadata(upper.join(changed)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (OWNER, OWNER), "{changed}");
    }
    Verdict::Passed
}
