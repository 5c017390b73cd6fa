//! The command line of the service as a process of its own.

use std::{fs, io, path::PathBuf};

use belay_grant::Keys;
use belay_service_kit::{
    Service,
    net::Address,
    register::token_problem,
    users::{Group, User},
};
use clap::Parser;
use data_encoding::HEXLOWER_PERMISSIVE;
use thiserror::Error;

/// Runs tools for an executor.
#[derive(Debug, Parser)]
#[command(
    name = "belay tool-runner",
    bin_name = "belay tool-runner",
    version,
    after_help = "Example: belay tool-runner --listen unix:/run/belay/runner.sock --state-dir /var/lib/belay-runner \
                  --gate unix:/run/belay/gate.sock --gate-key /etc/belay/gate.pub"
)]
pub struct Settings {
    /// The operator's settings file [default: $XDG_CONFIG_HOME/belay/config.yaml, then /etc/belay/config.yaml]
    #[arg(long, env = "BELAY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to listen: unix:/path or host:port.
    #[arg(long, env = "BELAY_LISTEN")]
    pub listen: Address,
    /// A group that may also connect to the socket; the service still authenticates each peer by its user.
    #[arg(long, env = "BELAY_LISTEN_GROUP", value_name = "GROUP")]
    pub listen_group: Option<Group>,
    /// Allow listening on TCP beyond loopback. The connection is not encrypted: anybody on the network path can read tokens and plans.
    #[arg(long)]
    pub insecure_listen_beyond_loopback: bool,
    /// The directory of the call ledger and its sealing key. It must be on a local disk.
    #[arg(long, env = "BELAY_STATE_DIR")]
    pub state_dir: PathBuf,
    /// Accept a store that is older than the other services remember, because it was restored or lost. Give it once: everything after the
    /// last commit of the store is forgotten.
    #[arg(long)]
    pub accept_older_store: bool,
    /// The user that the executor runs as. Without this, --gate-user and tokens, the user of this process may act as either service.
    #[arg(long, env = "BELAY_EXECUTOR_USER", value_name = "USER")]
    pub executor_user: Option<User>,
    /// The user that the approval gate runs as.
    #[arg(long, env = "BELAY_GATE_USER", value_name = "USER")]
    pub gate_user: Option<User>,
    /// The token that the executor sends; required when listening on TCP.
    #[arg(long, env = "BELAY_TOKEN_FROM_EXECUTOR", hide_env_values = true, value_name = "TOKEN")]
    pub token_from_executor: Option<String>,
    /// The token that the approval gate sends; required when listening on TCP.
    #[arg(long, env = "BELAY_TOKEN_FROM_GATE", hide_env_values = true, value_name = "TOKEN")]
    pub token_from_gate: Option<String>,
    /// The address of the approval gate, which publishes the policy: unix:/path or host:port.
    #[arg(long, env = "BELAY_GATE")]
    pub gate: Address,
    /// The token to send to the approval gate.
    #[arg(long, env = "BELAY_GATE_TOKEN", hide_env_values = true)]
    pub gate_token: Option<String>,
    /// The approval gate's public key: its file gate.pub, or the 64 hexadecimal digits.
    #[arg(long, env = "BELAY_GATE_KEY", value_name = "FILE|HEX")]
    pub gate_key: String,
    /// The directory of the runner's own workspaces, one per execution that names none [default: STATE_DIR/workspaces]
    #[arg(long, env = "BELAY_WORKSPACES", value_name = "DIR")]
    pub workspaces: Option<PathBuf>,
    /// A directory below which callers may name workspaces; may be given several times. Without it they may name none.
    #[arg(long = "workspace-root", env = "BELAY_WORKSPACE_ROOTS", value_delimiter = ':', value_name = "DIR")]
    pub workspace_roots: Vec<PathBuf>,
}

impl Settings {
    /// The services by the users they run as.
    pub fn users(&self) -> Vec<(Service, u32)> {
        let users = [(Service::Executor, self.executor_user), (Service::ApprovalGate, self.gate_user)];
        users.into_iter().filter_map(|(service, user)| Some((service, user?.0))).collect()
    }

    /// The fault of the tokens that services send, if there is one: none may be short.
    pub fn problem(&self) -> Option<String> {
        let executor = self.token_from_executor.as_deref().map(|token| ("--token-from-executor", token));
        let gate = self.token_from_gate.as_deref().map(|token| ("--token-from-gate", token));
        [executor, gate].into_iter().flatten().find_map(|(flag, token)| token_problem(flag, token))
    }

    /// The services by the tokens they send.
    pub fn tokens(&self) -> Vec<(Service, &str)> {
        let tokens = [(Service::Executor, &self.token_from_executor), (Service::ApprovalGate, &self.token_from_gate)];
        tokens.into_iter().filter_map(|(service, token)| Some((service, token.as_deref()?))).collect()
    }
}

/// Why `--gate-key` holds no key.
#[derive(Debug, Error)]
pub enum NoKey {
    /// The file cannot be read.
    #[error("--gate-key: `{given}` is neither 64 hexadecimal digits nor a readable file")]
    Unreadable {
        /// As it was given.
        given: String,
        /// The system's error.
        source: io::Error,
    },
    /// It is not a valid key.
    #[error("--gate-key: {0}; use the gate.pub of the gate, which holds 64 hexadecimal digits")]
    Malformed(String),
}

/// Parses the gate's public key from 64 hexadecimal digits, or from a file that holds them.
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
    fn the_command_line_is_consistent() {
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
