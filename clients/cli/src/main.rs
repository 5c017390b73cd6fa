//! `belay`: the command line. Parses the arguments, finds the services, runs one command, and reports its outcome in the exit code.
//!
//! Depends on the contract (`belay-proto`); `belay-all-in-one` starts the services inside this process. With the name of a service as its first
//! argument the program is that service.

mod address;
mod allocator;
mod args;
mod ask;
mod attend;
mod cli;
mod clock;
mod commands;
mod complete;
mod connect;
mod context;
mod copy_of;
mod dispatch;
mod exit;
mod failure;
mod follow;
mod history;
mod lookup;
mod names;
mod next;
mod plan_file;
mod read;
mod refused;
mod render;
mod screen;
mod signals;
mod stopped;
mod trace;
mod usage;

use std::process::ExitCode;

use belay_all_in_one::{ConfigSource, LogFormat};
use belay_reasons as reasons;
use clap::CommandFactory as _;

use cli::{Cli, Command};
use connect::Target;
use context::Context;
use exit::Exit;
use failure::{Failure, Report};
use screen::Screen;
use signals::Signals;
use trace::Trace;

fn main() -> ExitCode {
    belay_all_in_one::take_over_if_asked();
    let serve = |serving| allocator::block_on(&allocator::runtime()?, serving);
    if let Some(exit) = belay_all_in_one::serve_if_asked(std::env::args_os().skip(1), serve) {
        return exit;
    }
    let arguments: Vec<String> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    if complete::print_if_asked(&arguments) {
        return Exit::OK.into();
    }
    next::remember(args::command_line(&arguments), Cli::command);
    let cli = match usage::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return usage::print(&error, &arguments).into(),
    };
    let screen = Screen::of_process(cli.format());
    let runtime = match allocator::runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            return report(&screen, Failure::internal(format!("no threads can be started: {error}"))).into();
        }
    };
    let exit = allocator::block_on(&runtime, perform(cli, screen)).unwrap_or_else(|failure| report(&screen, failure));
    // A read from a terminal may still block a thread; the process does not wait for it.
    runtime.shutdown_background();
    exit.into()
}

async fn perform(cli: Cli, screen: Screen) -> Result<Exit, Failure> {
    let Some(command) = cli.command else {
        return dispatch::overview(&screen);
    };
    let trace = Trace::begin(command.span())?;
    let target = Target { trace: trace.context().cloned(), ..cli.global.target(command.policy()) };
    let context = Context { screen, target, namespace: cli.global.namespace };
    let mut signals =
        Signals::listen().map_err(|error| Failure::internal(format!("Ctrl-C cannot be listened for: {error}")))?;
    log_to_stderr(matches!(command, Command::Serve(_)).then_some(&context.target.config))?;
    let outcome = dispatch::dispatch(&context, command, &mut signals).await;
    trace.end(outcome).await
}

/// Sends the services' log to standard error, beside what `serve` prints. Other commands log nothing unless BELAY_LOG is set, such as
/// `BELAY_LOG=debug`.
fn log_to_stderr(server: Option<&ConfigSource>) -> Result<(), Failure> {
    let log = server.map(ConfigSource::read).transpose()?.map(|loaded| loaded.settings.log);
    let (level, format) = log.map_or(("off", "text"), |log| (log.level.value.word(), log.format.value.word()));
    let format =
        LogFormat::from_env_or(format).map_err(|error| Report::new(reasons::INVALID_USAGE, error.to_string()))?;
    belay_all_in_one::log_to_stderr(level, format);
    Ok(())
}

/// Reports a failure, and returns the exit code.
fn report(screen: &Screen, failure: Failure) -> Exit {
    match failure {
        Failure::Quiet(exit) => exit,
        Failure::ClosedPipe => Exit::OK,
        Failure::Report(report) => {
            screen.report(&report);
            report.exit
        }
    }
}
