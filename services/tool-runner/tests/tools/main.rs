//! The built-in tools against the real kernel: commands, and what is left of them.
//!
//! Run as root, everything is tried twice: as root, and as an ordinary user.

mod commands;
mod endings;
#[path = "../../sandbox/tests/sandbox/harness.rs"]
mod harness;
mod programs;
mod support;
mod thousand;
mod user;
mod walls;

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_sandbox::take_over_if_asked();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let tests = [commands::TESTS, endings::TESTS, programs::TESTS, thousand::TESTS, walls::TESTS, user::TESTS].concat();
    harness::run(&tests, &args)
}
