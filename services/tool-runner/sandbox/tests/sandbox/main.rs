//! The sandbox against the real kernel: commands, hostile commands, what they leave behind, and how they end.
//!
//! Run as root, everything is tried twice: as root, and as an ordinary user.

mod bounds;
mod builds;
mod commands;
mod endings;
mod harness;
mod machine;
mod offline;
mod overlay;
mod support;
mod user;
mod walls;

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_sandbox::take_over_if_asked();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [role, folder] = &args[..]
        && role == endings::RUNNER
    {
        return endings::be_a_runner_that_waits(folder.as_ref());
    }
    let tests = [
        commands::TESTS,
        bounds::TESTS,
        builds::TESTS,
        offline::TESTS,
        walls::TESTS,
        overlay::TESTS,
        endings::TESTS,
        machine::TESTS,
        user::TESTS,
    ]
    .concat();
    harness::run(&tests, &args)
}
