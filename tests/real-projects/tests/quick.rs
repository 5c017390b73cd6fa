//! The quick projects, outside the sandbox and inside: part of the ordinary suite (B-16).
//!
//! A project whose registry cannot be reached, or whose toolchain is missing, is skipped with the reason; with `CI=true` it fails.

use std::{
    env,
    panic::catch_unwind,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    thread,
};

use belay_real_projects::{
    build_belay,
    compare::{Round, compare},
    default_dir, inside, outside,
    pins::{self, Pin},
    prepare::{NotPrepared, prepare},
    report, shell,
};

enum Verdict {
    Passed(String),
    Failed(String),
    Skipped(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let pins = pins::all().expect("the pins are good");
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen = |pin: &Pin| filters.is_empty() || filters.iter().any(|filter| pin.name.contains(filter.as_str()));
    let quick: Vec<Pin> = pins.into_iter().filter(|pin| pin.quick && chosen(pin)).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        // None of them is ignored beforehand.
        if !arguments.iter().any(|argument| argument == "--ignored") {
            quick.iter().for_each(|pin| println!("{}: test", pin.name));
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", quick.len());
    let all = run(&quick);
    let count = |wanted: fn(&Verdict) -> bool| all.iter().filter(|verdict| wanted(verdict)).count();
    let passed = count(|verdict| matches!(verdict, Verdict::Passed(_)));
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; 0 filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs them at the same time: some wait more than they compute.
fn run(pins: &[Pin]) -> Vec<Verdict> {
    if pins.is_empty() {
        return Vec::new();
    }
    let strict = env::var_os("CI").is_some_and(|value| value == "true");
    let belay = build_belay();
    let dir = default_dir();
    let printing = Mutex::new(());
    thread::scope(|scope| {
        let start = |pin| {
            let (belay, dir, printing) = (&belay, &dir, &printing);
            scope.spawn(move || {
                let verdict = catch_unwind(|| verdict(pin, dir, belay));
                let verdict = verdict.unwrap_or_else(|_panic| Verdict::Failed("panicked".to_owned()));
                let verdict = match verdict {
                    Verdict::Skipped(why) if strict => {
                        Verdict::Failed(format!("cannot be skipped with CI=true: {why}"))
                    }
                    verdict => verdict,
                };
                let _whole_lines = printing.lock();
                match &verdict {
                    Verdict::Passed(line) => println!("{line}\ntest {} ... ok", pin.name),
                    Verdict::Failed(why) => println!("{why}\ntest {} ... FAILED", pin.name),
                    Verdict::Skipped(why) => println!("test {} ... ignored, {}", pin.name, why.replace('\n', "; ")),
                }
                verdict
            })
        };
        let threads: Vec<_> = pins.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("panics are caught")).collect()
    })
}

fn verdict(pin: &Pin, dir: &Path, belay: &Result<PathBuf, String>) -> Verdict {
    if let Some(missing) = outside::PROGRAMS.iter().find(|program| !shell::has(program)) {
        return Verdict::Skipped(format!("`{missing}` is not on PATH"));
    }
    let prepared = match prepare(pin, dir) {
        Ok(prepared) => prepared,
        Err(NotPrepared::Unavailable(why)) => return Verdict::Skipped(why),
        Err(NotPrepared::Wrong(why)) => return Verdict::Failed(why),
    };
    let runs = dir.join("quick").join(&pin.name);
    let round = || -> Result<Round, String> {
        let belay = belay.as_ref().map_err(Clone::clone)?;
        let outside = outside::run(pin, &prepared, &runs).map_err(|why| format!("outside: {why}"))?;
        let inside = inside::run(pin, &prepared, &runs, belay).map_err(|why| format!("inside: {why}"))?;
        Ok(Round { outside, inside })
    };
    match round() {
        Err(why) => Verdict::Failed(why),
        Ok(round) => {
            let found = compare(pin, &[round]);
            let line = report::line(pin, &found);
            if found.problems.is_empty() {
                Verdict::Passed(line)
            } else {
                Verdict::Failed(format!("{line}\n    {}", found.problems.join("\n    ")))
            }
        }
    }
}
