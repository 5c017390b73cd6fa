//! A suite outside the sandbox: with the caller's own files and programs, and everything equal that the comparison requires.
//!
//! A user namespace with the one uid that commands have in the sandbox, so that nothing runs as root and ownership looks the same, and
//! without capabilities; a network namespace with loopback up, so that nothing else can be reached; a session of its own, so that there
//! is no controlling terminal. Everything else is the machine's.

use std::{fs, path::Path, process::Command};

use crate::{
    compare::Run,
    pins::Pin,
    results, shell,
    suite::{self, SUITE},
};

/// The uid and gid of commands in the sandbox.
const ID: &str = "1000";

/// The programs that take the suite's network away.
pub const PROGRAMS: [&str; 5] = ["unshare", "setpriv", "setsid", "timeout", "ip"];

/// Runs with capabilities in the new namespaces, brings loopback up, and drops them.
const ENTER: &str = "ip link set lo up && exec setpriv --ambient-caps=-all --inh-caps=-all --no-new-privs \"$@\"";

/// Runs the suite in a copy of the prepared folder below `dir`, which is removed.
///
/// # Errors
/// When it cannot be run to its end.
pub fn run(pin: &Pin, prepared: &Path, dir: &Path) -> Result<Run, String> {
    let workspace = suite::copy(prepared, &dir.join("outside"))?;
    // Short, because sockets in it have at most 107 bytes for their path.
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let home = scratch.path().join("home");
    fs::create_dir(&home).map_err(|error| error.to_string())?;
    let mut command = Command::new("setsid");
    command.arg("--wait").args(["timeout", "--kill-after=10"]).arg(pin.limit_seconds.to_string());
    command.args(["unshare", "--user", "--map-user", ID, "--map-group", ID, "--net", "--keep-caps", "--"]);
    command.args(["sh", "-c", ENTER, "sh", "sh", "-c", SUITE, "sh", &pin.run]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.current_dir(&workspace).env_clear().env("PATH", path).env("HOME", &home).env("TMPDIR", scratch.path());
    // The rest is as in the sandbox.
    let same = [("USER", "belay"), ("LOGNAME", "belay"), ("LANG", "C.UTF-8"), ("TZ", "UTC"), ("TERM", "dumb")];
    command.envs(same).envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
    // Programs installed by rustup find their toolchain by the home, which is another one here.
    command.envs(suite::toolchain_homes());
    let started = tokio::time::Instant::now();
    let ended = shell::run(&mut command);
    let seconds = started.elapsed().as_secs_f64();
    ended?;
    let results = results::read(&workspace.join("results"), pin.results)?;
    suite::remove(&workspace)?;
    Ok(Run { results, seconds })
}
