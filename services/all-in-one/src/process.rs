//! One service as a process of its own: `belay executor`, `belay tool-runner` or `belay approval-gate`.

use std::{
    error::Error,
    ffi::{OsStr, OsString},
    process::ExitCode,
};

use belay_service_kit::program;
use clap::Parser;

/// The names of the services, as the first word of a command line.
pub const SERVICES: [&str; 3] = ["executor", "tool-runner", "approval-gate"];

/// Serves and does not return before the end, if the first of these arguments (without the program's own name) names a service.
///
/// The service's flags follow its name; they are not those of a client. Nothing of the other services is set up, and no thread is started
/// before the flags are read.
pub fn serve_if_asked(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    let service = arguments.next()?;
    Some(match service.to_str()? {
        "executor" => until_its_end(belay_executor::serve(parsed(&service, arguments))),
        "tool-runner" => until_its_end(belay_tool_runner::serve(parsed(&service, arguments))),
        "approval-gate" => until_its_end(belay_approval_gate::serve(parsed(&service, arguments))),
        _ => return None,
    })
}

/// Reads the flags. Exits with 2 when they are wrong, and with 0 after help.
fn parsed<S: Parser>(service: &OsStr, arguments: impl Iterator<Item = OsString>) -> S {
    S::parse_from(std::iter::once(service.to_owned()).chain(arguments))
}

fn until_its_end(serving: impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>>) -> ExitCode {
    program::end(match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serving),
        Err(error) => Err(error.into()),
    })
}
