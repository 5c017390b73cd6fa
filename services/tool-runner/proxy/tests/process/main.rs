//! The proxy as a process of its own.

mod confined;
mod ends;
mod harness;
mod served;
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_proxy::take_over_if_asked();
    if std::env::args().nth(1).as_deref() == Some(ends::RUNNER) {
        return ends::run_as_runner();
    }
    harness::run(&[served::TESTS, confined::TESTS, ends::TESTS].concat())
}
