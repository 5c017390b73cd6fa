//! The tool runner as a process of its own.

use std::{error::Error, process::ExitCode, sync::Arc};

use belay_service_kit::{Access, Ids, Shutdown, SystemClock, net, program, shutdown, telemetry};
use belay_sqlite::{Location, Threads};
use belay_tool_runner::{Calls, Enforcement, Ledger, Parts, Registry, SandboxSettings, Settings, hosted, tools};
use clap::Parser as _;

fn main() -> ExitCode {
    belay_tool_runner::take_over_if_asked();
    let settings = Settings::parse();
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => program::end(runtime.block_on(run(settings))),
        Err(error) => program::end(Err(error.into())),
    }
}

async fn run(settings: Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    telemetry::init("info", telemetry::LogFormat::Text);
    let access = Access::for_listener(&settings.listen, settings.token)?;
    program::private_folder(&settings.state_dir)?;

    let ledger = Ledger::open(&Location::file(settings.state_dir.join("ledger.db")), Threads::Real, || {
        Ids::from_system().next_id()
    })?;
    let enforcement = Enforcement::tried_out(SandboxSettings::default());
    if let Err(refusal) = enforcement.launcher() {
        tracing::warn!("{}", refusal.message);
    }
    let registry = Registry::new(tools::built_in(&enforcement))?;
    let calls = Calls::recover(Parts { registry, ledger, clock: Arc::new(SystemClock) }).await?;
    let listener = net::bind(&settings.listen).await?;
    tracing::info!(address = %listener.address(), "The tool runner listens");

    let (trigger, stop) = Shutdown::new();
    let serving = tokio::spawn(listener.serve(hosted(calls, stop.clone()), access, stop));
    let signal = shutdown::signal().await?;
    tracing::info!(signal, "The tool runner stops");
    trigger.pull();
    serving.await??;
    Ok(())
}
