//! The cost of the sandbox: the median time of `/bin/true` in it relative to that of `/bin/true` spawned directly, measured alternately.
//!
//! `cargo run --release -p belay-sandbox --example launch_ratio [-- rounds]`

// This example measures time itself.
#![allow(clippy::disallowed_methods)]

use std::{
    error::Error,
    fs,
    process::Command,
    time::{Duration, Instant},
};

use belay_sandbox::{Launcher as _, NamespaceLauncher, Settings, Spec, WorkspaceMount, take_over_if_asked};

fn main() -> Result<(), Box<dyn Error>> {
    take_over_if_asked();
    let rounds: usize = std::env::args().nth(1).map_or(Ok(300), |rounds| rounds.parse())?;
    let launcher = NamespaceLauncher::new(Settings::default())?;
    let folder = tempfile::tempdir()?;
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace)?;

    let (mut bare, mut read_only, mut staged, mut whole) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        bare.push(time(|| Ok(Command::new("/bin/true").status().map(drop)?))?);
        let mount = WorkspaceMount::read_only(&workspace);
        read_only.push(time(|| Ok(launcher.launch(Spec::new("/bin/true", [""; 0], mount))?.wait().map(drop)?))?);
        for (times, to_the_end) in [(&mut staged, false), (&mut whole, true)] {
            let staging = folder.path().join(format!("{round}-{to_the_end}"));
            fs::create_dir(&staging)?;
            let mount = WorkspaceMount::staged(&workspace, &staging);
            times.push(time(|| {
                let mut running = launcher.launch(Spec::new("/bin/true", [""; 0], mount))?;
                if to_the_end {
                    running.tear_down().map(drop)?
                } else {
                    running.wait().map(drop)?
                }
                Ok(())
            })?);
        }
    }
    let floor = median(&mut bare);
    println!("posix_spawn                {floor:>10.2?}");
    for (name, times) in [
        ("read-only workspace", &mut read_only),
        ("staged workspace", &mut staged),
        ("until all is torn down", &mut whole),
    ] {
        let median = median(times);
        println!("{name:<26} {median:>10.2?}  {:.2}x", median.as_secs_f64() / floor.as_secs_f64());
    }
    Ok(())
}

fn time(run: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}
