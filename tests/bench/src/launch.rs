//! The cost of the sandbox: `/bin/true` in the sandbox compared with `/bin/true` spawned directly and with `/bin/true` in bubblewrap, in turns.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use belay_bench::stats;
use belay_sandbox::{Launcher as _, NamespaceLauncher, Settings, Spec, WorkspaceMount};
use belay_service_kit::{Clock as _, SystemClock};
use serde::Serialize;

use crate::Result;

/// The namespaces and mounts that every sandboxed command of Belay has as well.
const BUBBLEWRAP: [&str; 10] =
    ["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--new-session"];

/// Medians of one round, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Launch {
    /// `posix_spawn`, to its end.
    pub(crate) bare_us: f64,
    /// bubblewrap with all namespaces and a read-only root, to its end: without seccomp, Landlock, limits or a workspace. `None` when the machine
    /// has none, or may not run it.
    pub(crate) bubblewrap_us: Option<f64>,
    /// All sandbox layers, set up for the command, the workspace read-only, until the exit status.
    pub(crate) read_only_us: f64,
    /// The same, the workspace copy-on-write.
    pub(crate) staged_us: f64,
    /// The same in a sandbox that was set up before the command came, and waits.
    pub(crate) armed_us: f64,
}

/// Launches each kind so many times, one after the other. Blocks: nothing else is to run meanwhile.
///
/// The launcher is the product's program, as in a tool runner: a smaller one would start faster.
pub(crate) fn launch(binaries: &Path, root: &Path, times: usize) -> Result<Launch> {
    let settings = Settings { executable: binaries.join("belay"), ..Settings::default() };
    let launcher = NamespaceLauncher::new(Settings { armed_sandboxes: 0, ..settings.clone() })?;
    let ahead = NamespaceLauncher::new(settings.clone())?;
    let folder = tempfile::tempdir_in(root)?;
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace)?;
    let run = |mount| -> Result<()> {
        launcher.launch(Spec::new("/bin/true", [""; 0], mount))?.wait()?;
        Ok(())
    };
    let bubblewrapped = || -> Result<()> {
        let status = Command::new("bwrap").args(BUBBLEWRAP).arg("/bin/true").stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("bwrap ended with {status}").into()) }
    };
    let has_bubblewrap = bubblewrapped().is_ok();
    let (mut bare, mut peer, mut read_only, mut staged) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut armed = Vec::new();
    let command = |mount| Spec::new("/bin/true", [""; 0], mount);
    // Sandboxes wait once there has been a command.
    ahead.launch(command(WorkspaceMount::read_only(&workspace)))?.tear_down()?;
    for number in 0..times {
        if has_bubblewrap {
            peer.push(timed(bubblewrapped)?);
        }
        bare.push(timed(|| Ok(Command::new("/bin/true").status().map(drop)?))?);
        read_only.push(timed(|| run(WorkspaceMount::read_only(&workspace)))?);
        let staging = folder.path().join(number.to_string());
        fs::create_dir(&staging)?;
        staged.push(timed(|| run(WorkspaceMount::staged(&workspace, &staging)))?);
        while ahead.armed() < settings.armed_sandboxes {
            std::thread::yield_now();
        }
        let staging = folder.path().join(format!("{number}-armed"));
        fs::create_dir(&staging)?;
        let spec = command(WorkspaceMount::staged(&workspace, &staging));
        let mut running = None;
        armed.push(timed(|| {
            running.insert(ahead.launch(spec)?).wait()?;
            Ok(())
        })?);
        let running = running.filter(belay_sandbox::RunningCommand::was_armed);
        running.ok_or("the command did not get the sandbox that waited")?.tear_down()?;
    }
    let median = |times: Vec<Duration>| stats::median(times.iter().map(|time| time.as_secs_f64() * 1e6));
    let figure = |times| median(times).ok_or("at least one launch has to be timed");
    Ok(Launch {
        bare_us: figure(bare)?,
        bubblewrap_us: median(peer),
        read_only_us: figure(read_only)?,
        staged_us: figure(staged)?,
        armed_us: figure(armed)?,
    })
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let began = SystemClock.now_micros();
    work()?;
    Ok(Duration::from_micros(u64::try_from(SystemClock.now_micros() - began).unwrap_or(0)))
}
