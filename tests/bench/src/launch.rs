//! The cost of the sandbox: `/bin/true` in the sandbox compared with `/bin/true` spawned directly, in turns.

use std::{fs, path::Path, process::Command, time::Duration};

use belay_bench::stats;
use belay_sandbox::{Launcher as _, NamespaceLauncher, Settings, Spec, WorkspaceMount};
use belay_service_kit::{Clock as _, SystemClock};
use serde::Serialize;

use crate::Result;

/// Medians of one round, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Launch {
    /// `posix_spawn`, to its end.
    pub(crate) bare_us: f64,
    /// All sandbox layers, the workspace read-only, until the exit status.
    pub(crate) read_only_us: f64,
    /// All sandbox layers, the workspace copy-on-write, until the exit status.
    pub(crate) staged_us: f64,
}

/// Launches each kind so many times, one after the other. Blocks: nothing else is to run meanwhile.
pub(crate) fn launch(root: &Path, times: usize) -> Result<Launch> {
    let launcher = NamespaceLauncher::new(Settings::default())?;
    let folder = tempfile::tempdir_in(root)?;
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace)?;
    let run = |mount| -> Result<()> {
        launcher.launch(Spec::new("/bin/true", [""; 0], mount))?.wait()?;
        Ok(())
    };
    let (mut bare, mut read_only, mut staged) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..times {
        bare.push(timed(|| Ok(Command::new("/bin/true").status().map(drop)?))?);
        read_only.push(timed(|| run(WorkspaceMount::read_only(&workspace)))?);
        let staging = folder.path().join(number.to_string());
        fs::create_dir(&staging)?;
        staged.push(timed(|| run(WorkspaceMount::staged(&workspace, &staging)))?);
    }
    let median = |times: Vec<Duration>| {
        stats::median(times.iter().map(|time| time.as_secs_f64() * 1e6)).ok_or("at least one launch has to be timed")
    };
    Ok(Launch { bare_us: median(bare)?, read_only_us: median(read_only)?, staged_us: median(staged)? })
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let began = SystemClock.now_micros();
    work()?;
    Ok(Duration::from_micros(u64::try_from(SystemClock.now_micros() - began).unwrap_or(0)))
}
