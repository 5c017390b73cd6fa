//! The command line of the service as a process of its own.

use std::path::PathBuf;

use belay_service_kit::{net::Address, users::Group};
use clap::Parser;

/// Carries out plans with the tools of a runner.
#[derive(Debug, Parser)]
#[command(
    name = "belay executor",
    bin_name = "belay executor",
    version,
    after_help = "Example: belay executor --listen unix:/run/belay/executor.sock --state-dir /var/lib/belay --runner unix:/run/belay/runner.sock --gate unix:/run/belay/gate-services.sock"
)]
pub struct Settings {
    /// The operator's settings [default: $XDG_CONFIG_HOME/belay/config.yaml, then /etc/belay/config.yaml]
    #[arg(long, env = "BELAY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address to listen on: unix:/path or host:port.
    #[arg(long, env = "BELAY_LISTEN")]
    pub listen: Address,
    /// A group that may connect to the socket as well; its members still have to authenticate.
    #[arg(long, env = "BELAY_LISTEN_GROUP", value_name = "GROUP")]
    pub listen_group: Option<Group>,
    /// Allow TCP addresses beyond this machine, without encryption: every machine on the way can read tokens and plans.
    #[arg(long)]
    pub insecure_listen_beyond_loopback: bool,
    /// The directory of the journal.
    #[arg(long, env = "BELAY_STATE_DIR")]
    pub state_dir: PathBuf,
    /// Drive no execution, and only answer who looks at them: beside the executor that drives those of the state directory, or without one.
    #[arg(long)]
    pub read_only: bool,
    /// Accept a store that is behind the position that other services have seen, because it was restored or lost. Use it for one start; everything
    /// after the store's last commit is lost.
    #[arg(long, conflicts_with = "read_only")]
    pub accept_older_store: bool,
    /// The tool runner's address.
    #[arg(long, env = "BELAY_RUNNER", required_unless_present = "read_only")]
    pub runner: Option<Address>,
    /// The token to send to the tool runner.
    #[arg(long, env = "BELAY_RUNNER_TOKEN", hide_env_values = true)]
    pub runner_token: Option<String>,
    /// The approval gate's address for services.
    #[arg(long, env = "BELAY_GATE", required_unless_present = "read_only")]
    pub gate: Option<Address>,
    /// The token to send to the approval gate.
    #[arg(long, env = "BELAY_GATE_TOKEN", hide_env_values = true)]
    pub gate_token: Option<String>,
    /// The owner's token. The owner is also this process's user, and root.
    #[arg(long, env = "BELAY_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// The file of principals that `belay principals --file` writes; without it only the owner may call.
    #[arg(long, env = "BELAY_PRINCIPALS", value_name = "FILE")]
    pub principals: Option<PathBuf>,
}
