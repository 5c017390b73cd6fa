//! Restate's server from the npm registry and the service in tests/bench/restate, installed when Belay is measured beside them.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The release of the server. The service's manifest has that of the SDK.
pub(crate) const VERSION: &str = "1.7.12";

/// The programs to run.
pub(crate) struct Programs {
    pub(crate) server: PathBuf,
    pub(crate) service: PathBuf,
}

/// Installs what is missing below `root`.
///
/// # Errors
/// The programs that cannot be had, and why.
pub(crate) fn install(root: &Path) -> Result<Programs, String> {
    let folder = root.join("restate");
    Ok(Programs { server: server(&folder)?, service: service(&folder)? })
}

fn server(folder: &Path) -> Result<PathBuf, String> {
    let platform = match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => "linux-x64",
        ("linux", "aarch64") => "linux-arm64",
        (system, machine) => return Err(format!("its server has no package for {system} on {machine}")),
    };
    let folder = folder.join(format!("server-{VERSION}"));
    let program = folder.join(format!("node_modules/@restatedev/restate-server-{platform}/bin/restate-server"));
    if !program.exists() {
        let package = format!("@restatedev/restate-server@{VERSION}");
        eprintln!("Installing {package} with npm in {}", folder.display());
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut npm = Command::new("npm");
        // Its script, which does not run, reports the installation to its maker.
        npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--fetch-retries=1"]).args([
            OsStr::new("--prefix"),
            folder.as_os_str(),
            OsStr::new(&package),
        ]);
        succeeds(npm, &format!("npm package {package}"))?;
    }
    if program.exists() { Ok(program) } else { Err(format!("npm has not installed {}", program.display())) }
}

fn service(folder: &Path) -> Result<PathBuf, String> {
    let target = folder.join("service");
    eprintln!("Building the service for Restate in {}", target.display());
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("restate/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    succeeds(cargo, "its service, on the crate restate-sdk")?;
    Ok(target.join("release/belay-bench-restate"))
}

/// Runs a command to its end; an error has the last line that it printed.
fn succeeds(mut command: Command, what: &str) -> Result<(), String> {
    let ended = command.stdin(Stdio::null()).output();
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = ended.map_err(|error| format!("{what}: {name} could not be started: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&ended.stderr);
    let errors = printed.lines().filter(|line| line.to_lowercase().contains("error"));
    let said: Vec<&str> = errors.map(str::trim).filter(|line| !line.contains("complete log")).take(3).collect();
    Err(format!("{what}: {name} failed: {}", said.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let said = succeeds(Command::new("no-such-program"), "npm package x").unwrap_err();
        assert!(said.starts_with("npm package x: no-such-program could not be started: "), "{said}");

        let mut failing = Command::new("sh");
        failing.args(["-c", "echo npm warn old >&2; echo 'npm error no network' >&2; exit 1"]);
        let said = succeeds(failing, "npm package x").unwrap_err();
        assert_eq!(said, "npm package x: sh failed: npm error no network");
    }
}
