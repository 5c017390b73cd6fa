//! Runs one service as a process of its own: `belay executor`, `belay tool-runner` or `belay approval-gate`.

use std::{
    error::Error,
    ffi::{OsStr, OsString},
    pin::Pin,
    process::ExitCode,
};

use belay_service_kit::program;
use clap::Parser;

/// The names of the services, as the first word of a command line.
pub const SERVICES: [&str; 3] = ["executor", "tool-runner", "approval-gate"];

/// A service, from its start to its end.
pub type ServiceFuture = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error + Send + Sync>>>>>;

/// Serves and does not return before the end, if the first of these arguments (without the program's own name) names a service. `run` carries the
/// service out on a runtime of the program.
///
/// The service's flags follow its name; they are not those of a client. Nothing of the other services is set up, and no thread is started
/// before the flags are read.
pub fn serve_if_asked(
    arguments: impl IntoIterator<Item = OsString>,
    run: impl FnOnce(ServiceFuture) -> Result<(), Box<dyn Error + Send + Sync>>,
) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    let service = arguments.next()?;
    let serving: ServiceFuture = match service.to_str()? {
        "executor" => Box::pin(belay_executor::serve(parsed(&service, arguments))),
        "tool-runner" => Box::pin(belay_tool_runner::serve(parsed(&service, arguments))),
        "approval-gate" => Box::pin(belay_approval_gate::serve(parsed(&service, arguments))),
        _ => return None,
    };
    Some(program::end(run(serving)))
}

/// Reads the flags. Exits with 2 when they are wrong, and with 0 after help.
fn parsed<S: Parser>(service: &OsStr, arguments: impl Iterator<Item = OsString>) -> S {
    S::parse_from(std::iter::once(service.to_owned()).chain(arguments))
}
