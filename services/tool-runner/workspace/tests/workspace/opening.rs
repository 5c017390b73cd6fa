//! The directories that may be workspaces.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    process::Command,
};

use belay_workspace::{OpenError, Workspace, contained_state_directory, enclosing_state_directory};

use crate::support::{Ground, commit, path};

fn refusal(root: &Path, forbidden: &[&Path]) -> String {
    Workspace::open(root, forbidden).err().expect("it is refused").to_string()
}

/// S2-FR-073: each refusal names the folder and says what to do.
#[test]
fn an_invalid_workspace_is_refused() {
    let ground = Ground::with(&[("file", "x"), ("inner/", "")]);
    let shown = ground.root.display().to_string();
    let missing = refusal(&ground.root.join("missing"), &[]);
    assert!(
        missing.contains("workspace `") && missing.contains("missing`: ") && missing.contains("create it"),
        "{missing}"
    );
    let file = refusal(&ground.root.join("file"), &[]);
    assert!(file.contains("file` is not a directory: name the directory"), "{file}");
    assert!(refusal("/".as_ref(), &[]).contains("`/` is the whole machine"));
    for forbidden in [ground.root.join("inner"), ground.root.parent().unwrap().to_owned(), ground.root.clone()] {
        let both = refusal(&ground.root, &[&forbidden]);
        assert!(both.contains(&shown) && both.contains("use separate directories"), "{both}");
    }
    assert!(!ground.root.join(".belay").exists(), "a refusal leaves nothing behind");
    // A neighbour whose name begins the same is another folder.
    Workspace::open(&ground.root, &[&ground.root.with_file_name("workspace-state")]).unwrap();
}

#[test]
fn a_link_to_a_forbidden_folder_is_seen_through() {
    let ground = Ground::with(&[("state/keys", "secret"), ("elsewhere", "-> state")]);
    let refused = refusal(&ground.root.join("elsewhere"), &[&ground.root.join("state")]);
    assert!(refused.contains("use separate directories"), "{refused}");
}

/// S2-NFR-012: a state directory is known by a key beside a store, and so is all that lies in it.
#[test]
fn the_state_directory_around_a_folder_is_found() {
    let ground = Ground::with(&[("state/gate.key", ""), ("state/workspaces/n/e/", ""), ("apart/seal.key", "")]);
    let around = |folder: &str| enclosing_state_directory(&ground.root.join(folder));
    assert_eq!(around("state"), None, "a key alone does not make a state directory");
    fs::write(ground.root.join("state/gate.db"), "").unwrap();
    let state = Some(ground.root.join("state"));
    assert_eq!((around("state"), around("state/workspaces/n/e")), (state.clone(), state));
    assert_eq!((around("."), around("apart"), around("missing")), (None, None, None));
    let within = |folder: &str| contained_state_directory(&ground.root.join(folder));
    assert_eq!(within("."), Some(ground.root.join(".").join("state")));
    assert_eq!((within("apart"), within("state/workspaces"), within("missing")), (None, None, None));
}

/// A cloned repository can bring its own `.belay`.
#[test]
fn an_entry_named_like_our_directory_is_not_followed() {
    let ground = Ground::with(&[("victim/file", "x")]);
    symlink("victim", ground.root.join(".belay")).unwrap();
    let refused = refusal(&ground.root, &[]);
    assert!(refused.contains(".belay` is reserved for Belay's own files, but it is a symbolic link"), "{refused}");
    fs::remove_file(ground.root.join(".belay")).unwrap();
    fs::write(ground.root.join(".belay"), "").unwrap();
    assert!(refusal(&ground.root, &[]).contains("but it is a regular file: move it away"));
    assert_eq!(fs::read_dir(ground.root.join("victim")).unwrap().count(), 1);
}

#[test]
fn our_folder_is_closed_ignored_by_git_and_used_by_one() {
    let ground = Ground::new();
    let workspace = ground.open();
    let own = fs::metadata(ground.root.join(".belay")).unwrap();
    assert_eq!(own.mode() & 0o7777, 0o700);
    assert_eq!(ground.read(".belay/.gitignore"), "*\n");
    assert!(matches!(Workspace::open(&ground.root, &[]), Err(OpenError::InUse { .. })));
    assert!(refusal(&ground.root, &[]).contains("in use by another Belay"));
    drop(workspace);
    ground.open();
}

/// The remains of a process that died are swept, and what the ledger knows is kept.
#[test]
fn sweeping_keeps_what_it_is_told_to() {
    let ground = Ground::with(&[("a", "1")]);
    let workspace = ground.open();
    let (_, kept) = commit(&workspace, "kept", |view| view.write(&path("a"), b"2", None).unwrap());
    let (_, lost) = commit(&workspace, "lost", |view| view.write(&path("a"), b"3", None).unwrap());
    std::mem::forget(workspace.view("died").unwrap());
    workspace.clear().unwrap();
    workspace.sweep(|id| id == "kept").unwrap();
    let left = |folder: &str| fs::read_dir(ground.root.join(".belay").join(folder)).unwrap().count();
    assert_eq!((left("views"), left("commits"), left("trash")), (0, 1, 0));
    assert!(workspace.rollback(&lost).unwrap_err().to_string().contains("has no staged files"));
    assert!(workspace.check(&kept).is_err(), "it is applied: its paths hold something else now");
}

/// As a user without rights. (Root may write anywhere.)
#[test]
fn a_folder_that_may_not_be_written_is_refused() {
    if !rustix::process::geteuid().is_root() {
        let ground = Ground::new();
        fs::set_permissions(&ground.root, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
        let refused = refusal(&ground.root, &[]);
        assert!(refused.contains("is not writable by the user that runs Belay"), "{refused}");
        return;
    }
    // A read-only mount stops root too.
    let ground = Ground::new();
    let mounted = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$1\" --exact --nocapture opening::read_only_mount";
    let mut run = Command::new("unshare");
    run.args(["-m", "sh", "-c", mounted]).arg(&ground.root).arg(std::env::current_exe().unwrap());
    let run = run.env("BELAY_READ_ONLY", &ground.root).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    if said.contains("permission denied") || said.contains("Operation not permitted") {
        eprintln!("skipped: a_folder_that_may_not_be_written_is_refused: mounting is not possible here: {said}");
        return;
    }
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
}

/// The half of the test above that runs where the folder is mounted read-only.
#[test]
fn read_only_mount() {
    if let Some(root) = std::env::var_os("BELAY_READ_ONLY") {
        let refused = refusal(root.as_ref(), &[]);
        assert!(refused.contains("is read-only: check its disk and remount it"), "{refused}");
    }
}

/// Root may do anything, which hides what an ordinary user may not: read-only folders, unreadable files, the way back out of both.
#[test]
fn it_all_works_for_an_ordinary_user() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        return; // Then the other tests show it.
    }
    let tests = ["commits::", "crashes::every_kind", "effects::", "equivalence::", "views::"];
    let run =
        Command::new(std::env::current_exe().unwrap()).args(tests).uid(65534).gid(65534).current_dir("/").output();
    match run {
        Ok(run) => {
            let said = String::from_utf8_lossy(&run.stdout);
            assert!(
                run.status.success() && !said.contains(" 0 passed"),
                "{said}{}",
                String::from_utf8_lossy(&run.stderr)
            );
        }
        Err(error) => eprintln!("skipped: it_all_works_for_an_ordinary_user: they cannot run this program: {error}"),
    }
}
