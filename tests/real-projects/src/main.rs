//! `tests/real-projects/run`: the suites of public projects outside and inside the sandbox.

use std::{path::PathBuf, process::ExitCode};

use belay_real_projects::{
    build_belay,
    compare::{Comparison, Round, compare},
    default_dir, figures, inside, outside,
    pins::{self, Pin},
    prepare::{NotPrepared, prepare},
    report, repository, shell,
};
use clap::Parser;

/// Runs the test suites of public projects outside the sandbox and inside it, and compares which tests pass.
#[derive(Parser)]
struct Arguments {
    /// The projects; without one, all of them.
    projects: Vec<String>,
    /// How often each suite runs on each side, in turns.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Lists the projects and runs nothing.
    #[arg(long)]
    list: bool,
    /// Only fetches them.
    #[arg(long, conflicts_with_all = ["list", "docs", "outside_only"])]
    fetch: bool,
    /// Runs the suites outside only.
    #[arg(long, conflicts_with_all = ["list", "docs"])]
    outside_only: bool,
    /// Writes docs/real-projects.md, from the latest figures of each project.
    #[arg(long, conflicts_with = "list")]
    docs: bool,
    /// The `belay` to try; without it, the one of this repository is built.
    #[arg(long)]
    belay: Option<PathBuf>,
    /// Keeps archives and copies here instead of target/real-projects.
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tests/real-projects/run: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything that was asked for ran and passes on both sides.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let pins = chosen(pins::all()?, &arguments.projects)?;
    if arguments.list {
        for pin in &pins {
            println!("{:<11} {:<20} {} {}", pin.language.name(), pin.name, pin.package, pin.version);
        }
        return Ok(true);
    }
    let dir = arguments.dir.clone().unwrap_or_else(default_dir);
    if let Some(missing) = outside::PROGRAMS.iter().find(|program| !shell::has(program)) {
        return Err(format!("`{missing}` is missing (Debian: apt-get install util-linux coreutils iproute2)"));
    }
    let belay = match &arguments.belay {
        Some(belay) => belay.clone(),
        None if arguments.fetch || arguments.outside_only => PathBuf::new(),
        None => build_belay()?,
    };
    let mut good = true;
    for pin in pins {
        let prepared = match prepare(&pin, &dir) {
            Ok(prepared) => prepared,
            Err(NotPrepared::Unavailable(why) | NotPrepared::Wrong(why)) => {
                println!("{:<11} {:<20} NOT RUN: {why}", pin.language.name(), pin.name);
                good = false;
                continue;
            }
        };
        if arguments.fetch {
            println!("{:<11} {:<20} {}", pin.language.name(), pin.name, prepared.display());
            continue;
        }
        let runs = dir.join("runs").join(&pin.name);
        if arguments.outside_only {
            match outside::run(&pin, &prepared, &runs) {
                Ok(run) => println!(
                    "{:<20} {} passed, {} failed, {} skipped in {:.1} s\n  failed: {:?}",
                    pin.name,
                    run.results.passed.len(),
                    run.results.failed.len(),
                    run.results.skipped,
                    run.seconds,
                    run.results.failed,
                ),
                Err(why) => {
                    println!("{:<20} outside: {why}", pin.name);
                    good = false;
                }
            }
            continue;
        }
        let rounds = (0..arguments.rounds).map(|_| {
            let outside = outside::run(&pin, &prepared, &runs).map_err(|why| format!("outside: {why}"))?;
            let inside = inside::run(&pin, &prepared, &runs, &belay).map_err(|why| format!("inside: {why}"))?;
            Ok(Round { outside, inside })
        });
        match rounds.collect::<Result<Vec<Round>, String>>() {
            Ok(rounds) => {
                let found = compare(&pin, &rounds);
                show(&pin, &found);
                good &= found.problems.is_empty();
                figures::keep(&dir, &pin, &found)?;
            }
            Err(why) => {
                println!("{:<11} {:<20} FAILED {why}", pin.language.name(), pin.name);
                good = false;
            }
        }
    }
    if arguments.docs {
        let (found, missing) = figures::read(&dir, pins::all()?)?;
        if found.is_empty() {
            return Err("no project ran to its end: there is nothing to write".to_owned());
        }
        let page = report::page(&machine(), &found, &missing);
        std::fs::write(repository().join("docs/real-projects.md"), page).map_err(|error| error.to_string())?;
    }
    Ok(good)
}

fn chosen(pins: Vec<Pin>, names: &[String]) -> Result<Vec<Pin>, String> {
    if let Some(unknown) = names.iter().find(|name| !pins.iter().any(|pin| pin.name == **name)) {
        return Err(format!("no project is called {unknown}; --list names them"));
    }
    Ok(pins.into_iter().filter(|pin| names.is_empty() || names.contains(&pin.name)).collect())
}

fn show(pin: &Pin, found: &Comparison) {
    println!("{}", report::line(pin, found));
    for problem in &found.problems {
        println!("    {problem}");
    }
    for test in &found.unsteady {
        println!("    not steady: {test}");
    }
}

/// The machine, as far as it matters.
fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').nth(2).unwrap_or("?").to_owned();
    let built = if cfg!(debug_assertions) { "an unoptimised" } else { "an optimised" };
    format!(
        "Linux {} with {cores} cores at a load average of {load}, with {built} `belay`",
        kernel.trim().split('-').next().unwrap_or_default()
    )
}
