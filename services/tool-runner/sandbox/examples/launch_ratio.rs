//! The cost of the sandbox: the median time of `/bin/true` in it relative to that of `/bin/true` spawned directly, measured alternately; in a sandbox that
//! was set up before, and in one that was not; and of one with a network. Beside it that of bubblewrap, where it is installed.
//!
//! `cargo run --release -p belay-sandbox --example launch_ratio [-- rounds [launcher]]`: the launcher is this program, or another one, such as `belay`.

// This example measures time itself.
#![allow(clippy::disallowed_methods)]

use std::{
    error::Error,
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use belay_sandbox::{
    CommandNetwork, Launcher as _, NamespaceLauncher, Settings, Spec, WorkspaceMount, take_over_if_asked,
};

fn main() -> Result<(), Box<dyn Error>> {
    take_over_if_asked();
    let rounds: usize = std::env::args().nth(1).map_or(Ok(300), |rounds| rounds.parse())?;
    let executable = std::env::args_os().nth(2).map_or_else(|| Settings::default().executable, Into::into);
    let settings = Settings { executable, ..Settings::default() };
    let anew = NamespaceLauncher::new(Settings { armed_sandboxes: 0, ..settings.clone() })?;
    let ahead = NamespaceLauncher::new(settings.clone())?;
    let folder = tempfile::tempdir()?;
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace)?;

    let mut stagings = 0;
    let mut spec = |is_staged: bool| -> Result<Spec, Box<dyn Error>> {
        stagings += 1;
        let staging = folder.path().join(stagings.to_string());
        fs::create_dir(&staging)?;
        let mount = match is_staged {
            true => WorkspaceMount::staged(&workspace, &staging),
            false => WorkspaceMount::read_only(&workspace),
        };
        Ok(Spec::new("/bin/true", [""; 0], mount))
    };
    ahead.launch(spec(true)?)?.tear_down()?;
    let rows = [
        "posix_spawn",
        "bubblewrap",
        "anew, read-only",
        "anew, staged",
        "anew, staged, torn down",
        "armed, read-only",
        "armed, staged",
        "armed, staged, 12 sockets",
    ];
    let mut times: Vec<Vec<Duration>> = rows.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        times[0].push(time(|| Ok(Command::new("/bin/true").status().map(drop)?))?);
        if let Ok(time) = time(bubblewrap) {
            times[1].push(time);
        }
        for (row, is_staged) in [(2, false), (3, true)] {
            let spec = spec(is_staged)?;
            times[row].push(time(|| Ok(anew.launch(spec)?.wait().map(drop)?))?);
        }
        let of_whole = spec(true)?;
        times[4].push(time(|| Ok(anew.launch(of_whole)?.tear_down().map(drop)?))?);
        for (row, is_staged, network) in [(5, false, None), (6, true, None), (7, true, Some(network()))] {
            let spec = Spec { network, ..spec(is_staged)? };
            while ahead.armed() < settings.armed_sandboxes {
                std::thread::yield_now();
            }
            let mut running = None;
            times[row].push(time(|| Ok(running.insert(ahead.launch(spec)?).wait().map(drop)?))?);
            let running = running.ok_or("it was launched")?;
            assert!(running.was_armed(), "a sandbox was waiting");
            running.tear_down()?;
        }
    }
    let floor = median(&mut times[0]).ok_or("at least one round has to be timed")?;
    for (row, times) in rows.iter().zip(&mut times) {
        match median(times) {
            Some(median) => println!("{row:<26} {median:>10.2?}  {:.2}x", median.as_secs_f64() / floor.as_secs_f64()),
            None => println!("{row:<26} not measured"),
        }
    }
    Ok(())
}

/// Ten listeners, and a name server with two sockets.
fn network() -> CommandNetwork {
    let listen = (443..453).map(|port| ([0, 0, 0, 0], port).into()).collect();
    CommandNetwork { listen, name_server: Some(([127, 77, 0, 1], 53).into()), env: Vec::new() }
}

/// All namespaces, and a read-only root: without seccomp, Landlock, limits or a workspace.
fn bubblewrap() -> Result<(), Box<dyn Error>> {
    let options = [
        "--unshare-all",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--new-session",
    ];
    let status = Command::new("bwrap").args(options).arg("/bin/true").stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err("bubblewrap may not run here".into()) }
}

fn time(run: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed())
}

fn median(times: &mut [Duration]) -> Option<Duration> {
    times.sort();
    times.get(times.len() / 2).copied()
}
