//! Runs the test suites of public projects outside the sandbox and inside it, through `run_terminal` of the real `belay`, and compares
//! which tests pass.
//!
//! The projects' code is not kept here: `projects/NAME` pins a version and the digest of each archive, and says how its suite is run.

pub mod compare;
pub mod figures;
pub mod inside;
pub mod outside;
pub mod pins;
pub mod prepare;
pub mod report;
pub mod results;
pub mod shell;
pub mod suite;

use std::path::{Path, PathBuf};

/// The folder of this package: pins and fetch scripts.
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of this repository.
///
/// # Panics
/// When this package has been moved out of `tests/real-projects`.
pub fn repository() -> &'static Path {
    package().ancestors().nth(2).expect("this package is tests/real-projects")
}

/// The default working folder: `real-projects` in the target folder of the running program.
///
/// # Panics
/// When the program does not run from a target folder.
pub fn default_dir() -> PathBuf {
    target_profile().parent().expect("a profile's folder is in the target folder").join("real-projects")
}

/// `target/PROFILE` of the running program, which is a binary there or a test in its `deps`.
fn target_profile() -> PathBuf {
    let this = std::env::current_exe().expect("a running program has a path");
    let folder = this.parent().expect("a program is in a folder");
    let profile = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    profile.to_path_buf()
}

/// Returns the path of `belay`: in the folder that `BELAY_TEST_BINARIES` names, else built in the profile of the running program.
///
/// # Errors
/// When it does not build.
pub fn build_belay() -> Result<PathBuf, String> {
    if let Some(built) = std::env::var_os("BELAY_TEST_BINARIES") {
        return Ok(Path::new(&built).join("belay"));
    }
    let profile = target_profile();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = std::process::Command::new(cargo);
    build.args(["build", "--quiet", "--locked", "--package", "belay-cli", "--bin", "belay"]).current_dir(repository());
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let status = build.status().map_err(|error| format!("cargo cannot be started: {error}"))?;
    if status.success() { Ok(profile.join("belay")) } else { Err("`belay` does not build".to_owned()) }
}
