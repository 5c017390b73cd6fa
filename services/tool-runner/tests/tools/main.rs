//! The built-in tools on the real kernel: commands, and what is left of them.
//!
//! Run as root, every test runs twice: as root and as an ordinary user.

mod code;
mod commands;
mod endings;
#[path = "../../sandbox/tests/sandbox/harness.rs"]
mod harness;
mod isolation;
mod lost;
mod programs;
mod support;
mod user;

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_sandbox::take_over_if_asked();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let tests =
        [code::TESTS, commands::TESTS, endings::TESTS, programs::TESTS, isolation::TESTS, lost::TESTS, user::TESTS]
            .concat();
    harness::run(&tests, &args)
}
