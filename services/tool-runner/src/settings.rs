//! What the stand-alone program is told.

use std::path::PathBuf;

use belay_service_kit::net::Address;
use clap::Parser;

/// Runs tools for an executor.
#[derive(Debug, Parser)]
#[command(
    name = "belay-tool-runner",
    version,
    after_help = "Example: belay-tool-runner --listen unix:/run/belay/runner.sock --state-dir /var/lib/belay-runner"
)]
pub struct Settings {
    /// Where to listen: unix:/path or host:port.
    #[arg(long, env = "BELAY_LISTEN")]
    pub listen: Address,
    /// The folder of the ledger of calls; it must be on this machine's own disk.
    #[arg(long, env = "BELAY_STATE_DIR")]
    pub state_dir: PathBuf,
    /// The token that callers have to show; needed when listening on TCP.
    #[arg(long, env = "BELAY_RUNNER_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}
