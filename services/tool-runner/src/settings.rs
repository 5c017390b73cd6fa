//! What the stand-alone program is told.

use std::{fs, io, path::PathBuf};

use belay_grant::Keys;
use belay_service_kit::{
    Service,
    net::Address,
    users::{Group, User},
};
use clap::Parser;
use data_encoding::HEXLOWER_PERMISSIVE;
use thiserror::Error;

/// Runs tools for an executor.
#[derive(Debug, Parser)]
#[command(
    name = "belay-tool-runner",
    version,
    after_help = "Example: belay-tool-runner --listen unix:/run/belay/runner.sock --state-dir /var/lib/belay-runner \
                  --gate unix:/run/belay/gate.sock --gate-key /etc/belay/gate.pub"
)]
pub struct Settings {
    /// The operator's settings [default: $XDG_CONFIG_HOME/belay/config.yaml, then /etc/belay/config.yaml]
    #[arg(long, env = "BELAY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to listen: unix:/path or host:port.
    #[arg(long, env = "BELAY_LISTEN")]
    pub listen: Address,
    /// The group that may connect to the socket as well; who they are is found out all the same.
    #[arg(long, env = "BELAY_LISTEN_GROUP", value_name = "GROUP")]
    pub listen_group: Option<Group>,
    /// Listen on TCP beyond this machine although nothing is encrypted: everybody on the way can read tokens and plans.
    #[arg(long)]
    pub insecure_listen_beyond_loopback: bool,
    /// The folder of the ledger of calls, and of the key to what is sealed in it; it must be on this machine's own disk.
    #[arg(long, env = "BELAY_STATE_DIR")]
    pub state_dir: PathBuf,
    /// Go on with a store that is behind what the other services remember of it, because it was restored or lost: give it once, and what came
    /// after the store's last commit is forgotten.
    #[arg(long)]
    pub accept_older_store: bool,
    /// The user that the executor runs as. Without this, --gate-user and tokens this process's own user may be either service.
    #[arg(long, env = "BELAY_EXECUTOR_USER", value_name = "USER")]
    pub executor_user: Option<User>,
    /// The user that the approval gate runs as.
    #[arg(long, env = "BELAY_GATE_USER", value_name = "USER")]
    pub gate_user: Option<User>,
    /// The token that the executor shows here; needed when listening on TCP.
    #[arg(long, env = "BELAY_TOKEN_FROM_EXECUTOR", hide_env_values = true, value_name = "TOKEN")]
    pub token_from_executor: Option<String>,
    /// The token that the approval gate shows here; needed when listening on TCP.
    #[arg(long, env = "BELAY_TOKEN_FROM_GATE", hide_env_values = true, value_name = "TOKEN")]
    pub token_from_gate: Option<String>,
    /// Where the approval gate publishes the policy: unix:/path or host:port.
    #[arg(long, env = "BELAY_GATE")]
    pub gate: Address,
    /// The token to show to the approval gate.
    #[arg(long, env = "BELAY_GATE_TOKEN", hide_env_values = true)]
    pub gate_token: Option<String>,
    /// The approval gate's public key: the file gate.pub that the gate has made, or its 64 hexadecimal digits.
    #[arg(long, env = "BELAY_GATE_KEY", value_name = "FILE|HEX")]
    pub gate_key: String,
    /// Where the runner's own workspaces are, one for each execution that names none; STATE_DIR/workspaces unless said.
    #[arg(long, env = "BELAY_WORKSPACES", value_name = "DIR")]
    pub workspaces: Option<PathBuf>,
    /// A folder in which callers may name workspaces; may be given several times. Without it they may name none.
    #[arg(long = "workspace-root", env = "BELAY_WORKSPACE_ROOTS", value_delimiter = ':', value_name = "DIR")]
    pub workspace_roots: Vec<PathBuf>,
}

impl Settings {
    /// The services by the users they run as.
    pub fn users(&self) -> Vec<(Service, u32)> {
        let users = [(Service::Executor, self.executor_user), (Service::ApprovalGate, self.gate_user)];
        users.into_iter().filter_map(|(service, user)| Some((service, user?.0))).collect()
    }

    /// The services by the tokens they show.
    pub fn tokens(&self) -> Vec<(Service, &str)> {
        let tokens = [(Service::Executor, &self.token_from_executor), (Service::ApprovalGate, &self.token_from_gate)];
        tokens.into_iter().filter_map(|(service, token)| Some((service, token.as_deref()?))).collect()
    }
}

/// Why there is no key in what was given.
#[derive(Debug, Error)]
pub enum NoKey {
    /// The file cannot be read.
    #[error("--gate-key: `{given}` is neither 64 hexadecimal digits nor a file that can be read")]
    Unreadable {
        /// As it was given.
        given: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is no key.
    #[error("--gate-key: {0}; give the gate's own gate.pub, which holds 64 hexadecimal digits")]
    Malformed(String),
}

/// The gate's public key from 64 hexadecimal digits, or from the file that holds them.
///
/// # Errors
/// [`NoKey`].
pub fn gate_key(given: &str) -> Result<Keys, NoKey> {
    if let Some(bytes) = digits(given) {
        return key(&bytes);
    }
    let text = fs::read_to_string(given).map_err(|source| NoKey::Unreadable { given: given.to_owned(), source })?;
    let bytes = digits(text.trim()).ok_or_else(|| NoKey::Malformed(format!("`{given}` does not hold a key")))?;
    key(&bytes)
}

fn key(bytes: &[u8]) -> Result<Keys, NoKey> {
    Keys::from_bytes(bytes).map_err(|error| NoKey::Malformed(error.to_string()))
}

fn digits(text: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok().filter(|key| key.len() == 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_hold_together() {
        use clap::CommandFactory as _;
        Settings::command().debug_assert();
    }

    #[test]
    fn a_key_is_given_by_its_digits_or_by_its_file() {
        let digits = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gate.pub");
        fs::write(&file, format!("{digits}\n")).unwrap();
        let ids = |given: &str| gate_key(given).unwrap().iter().map(|(id, _)| id.to_owned()).collect::<Vec<_>>();
        assert_eq!(ids(digits), ids(file.to_str().unwrap()));
        fs::write(&file, "no key").unwrap();
        assert!(matches!(gate_key(file.to_str().unwrap()), Err(NoKey::Malformed(_))));
        assert!(matches!(gate_key("nowhere"), Err(NoKey::Unreadable { .. })));
    }
}
