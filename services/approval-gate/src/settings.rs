//! What the stand-alone program is told.

use std::path::PathBuf;

use belay_service_kit::net::Address;
use clap::Parser;

/// Asks people before risky calls run or take effect, and signs for what they approve.
#[derive(Debug, Parser)]
#[command(
    name = "belay-approval-gate",
    version,
    after_help = "Example: belay-approval-gate --listen unix:/run/belay/gate.sock --service-listen unix:/run/belay/gate-service.sock \
                  --runner unix:/run/belay/runner.sock --state-dir /var/lib/belay-gate\n\
                  SIGHUP reads the policy file again; one that is broken changes nothing."
)]
pub struct Settings {
    /// The operator's settings [default: $XDG_CONFIG_HOME/belay/config.yaml, then /etc/belay/config.yaml]
    #[arg(long, env = "BELAY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where people come in: unix:/path or host:port.
    #[arg(long, env = "BELAY_LISTEN")]
    pub listen: Address,
    /// The token that people have to show; needed when listening on TCP.
    #[arg(long, env = "BELAY_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Where the executor and the runners come in: unix:/path or host:port. Whoever passes this door is a service and never decides.
    #[arg(long, env = "BELAY_SERVICE_LISTEN")]
    pub service_listen: Address,
    /// The token that services have to show; needed when listening on TCP. Not the one of people.
    #[arg(long, env = "BELAY_SERVICE_TOKEN", hide_env_values = true)]
    pub service_token: Option<String>,
    /// Where the tool runner listens.
    #[arg(long, env = "BELAY_RUNNER")]
    pub runner: Address,
    /// The token that the tool runner asks for.
    #[arg(long, env = "BELAY_RUNNER_TOKEN", hide_env_values = true)]
    pub runner_token: Option<String>,
    /// The folder of the approvals and of the signing key.
    #[arg(long, env = "BELAY_STATE_DIR")]
    pub state_dir: PathBuf,
    /// Go on with a store that is behind what the other services remember of it, because it was restored or lost: give it once, and what came
    /// after the store's last commit is forgotten.
    #[arg(long)]
    pub accept_older_store: bool,
    /// The policy file (YAML); without it the built-in policy holds.
    #[arg(long, env = "BELAY_POLICY")]
    pub policy: Option<PathBuf>,
}
