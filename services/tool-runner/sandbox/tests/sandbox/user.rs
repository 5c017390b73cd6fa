//! Runs all tests again without privileges.

use std::{
    fs, os::unix::fs::PermissionsExt as _, os::unix::fs::chown, os::unix::process::CommandExt as _, process::Command,
};

use crate::{
    harness::{Test, Verdict, tests},
    support::is_root,
};

pub(crate) const TESTS: &[Test] = tests![everything_works_as_an_ordinary_user];

fn everything_works_as_an_ordinary_user() -> Verdict {
    if !is_root() {
        return Verdict::Skipped("this is an ordinary user".to_owned());
    }
    const USER: u32 = 12345;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The build directory may not be readable by others.
    let binary = folder.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(USER), Some(USER)).unwrap();
    let status = Command::new(&binary).uid(USER).gid(USER).env("TMPDIR", &home).current_dir("/").status().unwrap();
    assert!(status.success(), "{status}");
    Verdict::Passed
}
