//! The parts of libtest needed here, because `main` has to be ours.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

use belay_sandbox::{LayerState, Settings, Tier, probe};

/// The result of a test that did not panic.
pub(crate) enum Verdict {
    Passed,
    /// Skipped for this reason.
    Skipped(String),
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Passed
    }
}

/// A test and its name.
pub(crate) type Test = (&'static str, fn() -> Verdict);

/// `tests![a, b]`: the functions with their names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        &[$((concat!(module_path!(), "::", stringify!($name)), || $name().into())),*]
    };
}
pub(crate) use tests;

/// Runs the tests whose name contains one of the arguments, or all.
pub(crate) fn run(tests: &[Test], args: &[String]) -> ExitCode {
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let exact = args.iter().any(|arg| arg == "--exact");
    let chosen = |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| if exact { name == *filter } else { name.contains(*filter) })
    };
    let short = |name: &'static str| name.split_once("::").map_or(name, |(_, name)| name);
    let wanted: Vec<(&str, _)> =
        tests.iter().map(|(name, test)| (short(name), test)).filter(|(name, _)| chosen(name)).collect();

    if args.iter().any(|arg| arg == "--list") {
        // No test is marked as ignored.
        if !args.iter().any(|arg| arg == "--ignored") {
            wanted.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }

    println!("\nrunning {} tests", wanted.len());
    let missing = missing_layers();
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), 0);
    for (name, test) in &wanted {
        let verdict = match &missing {
            Some(reason) => Ok(Verdict::Skipped(reason.clone())),
            None => catch_unwind(AssertUnwindSafe(test)),
        };
        match verdict {
            Ok(Verdict::Passed) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Ok(Verdict::Skipped(reason)) => {
                skipped += 1;
                println!("test {name} ... ignored, {reason}");
            }
            Err(_) => {
                failed.push(*name);
                println!("test {name} ... FAILED");
            }
        }
    }
    let filtered = tests.len() - wanted.len();
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    if !failed.is_empty() {
        println!("\nfailures:\n    {}", failed.join("\n    "));
    }
    let failures = failed.len();
    println!(
        "\ntest result: {word}. {passed} passed; {failures} failed; {skipped} ignored; 0 measured; {filtered} filtered out\n"
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The missing layers of this machine, if tests cannot run.
fn missing_layers() -> Option<String> {
    let report = probe(&Settings::default()).expect("the probe runs everywhere");
    let missing: Vec<String> = report
        .layers
        .iter()
        .filter_map(|layer| match &layer.state {
            LayerState::Active => None,
            LayerState::Missing { why, .. } => Some(format!("{}: {why}", layer.layer)),
        })
        .collect();
    (report.tier != Tier::Full).then(|| format!("this machine lacks {}", missing.join(", ")))
}
