//! The parts of libtest needed here, because `main` has to be ours.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

/// A test and its name.
pub(crate) type Test = (&'static str, fn());

/// `tests![a, b]`: the functions with their names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), $name as fn())),*]
    };
}
pub(crate) use tests;

/// Runs the tests whose name contains one of the arguments, or all.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let exact = args.iter().any(|arg| arg == "--exact");
    let is_wanted = |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| if exact { name == *filter } else { name.contains(*filter) })
    };
    let wanted: Vec<&Test> = tests.iter().filter(|(name, _)| is_wanted(name)).collect();
    if args.iter().any(|arg| arg == "--list") {
        // No test is marked as ignored.
        if !args.iter().any(|arg| arg == "--ignored") {
            wanted.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", wanted.len());
    let mut failed = Vec::new();
    for (name, test) in &wanted {
        let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed.extend((!passed).then_some(*name));
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out\n",
        wanted.len() - failed.len(),
        failed.len(),
        tests.len() - wanted.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
