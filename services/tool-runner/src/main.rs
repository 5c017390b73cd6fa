//! The tool runner as a process of its own.

use std::{error::Error, process::ExitCode, sync::Arc};

use belay_service_kit::{Access, Ids, Shutdown, SystemClock, net, program, shutdown, telemetry};
use belay_sqlite::{Location, Threads};
use belay_tool_runner::{Calls, Ledger, Parts, Registry, Settings, hosted, tools};
use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    program::end(run(Settings::parse()).await)
}

async fn run(settings: Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    telemetry::init("info", telemetry::LogFormat::Text);
    let access = Access::for_listener(&settings.listen, settings.token)?;
    program::private_folder(&settings.state_dir)?;

    let ledger = Ledger::open(&Location::file(settings.state_dir.join("ledger.db")), Threads::Real, || {
        Ids::from_system().next_id()
    })?;
    let calls =
        Calls::recover(Parts { registry: Registry::new(tools::built_in())?, ledger, clock: Arc::new(SystemClock) })
            .await?;
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
