//! The flags and variables of the service as a process of its own.

use std::path::PathBuf;

use belay_service_kit::{
    Service,
    net::Address,
    register::token_problem,
    users::{Group, User},
};
use clap::Parser;

/// Asks people to approve risky calls and their effects, and signs grants for what they approve.
#[derive(Debug, Parser)]
#[command(
    name = "belay approval-gate",
    bin_name = "belay approval-gate",
    version,
    after_help = "Example: belay approval-gate --listen unix:/run/belay/gate.sock --service-listen unix:/run/belay/gate-service.sock \
                  --runner unix:/run/belay/runner.sock --state-dir /var/lib/belay-gate\n\
                  SIGHUP reads the policy file again; one that is broken changes nothing."
)]
pub struct Settings {
    /// The operator's settings [default: $XDG_CONFIG_HOME/belay/config.yaml, then /etc/belay/config.yaml]
    #[arg(long, env = "BELAY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address for people: unix:/path or host:port.
    #[arg(long, env = "BELAY_LISTEN")]
    pub listen: Address,
    /// A group that may connect to the socket as well; its members still have to authenticate.
    #[arg(long, env = "BELAY_LISTEN_GROUP", value_name = "GROUP")]
    pub listen_group: Option<Group>,
    /// Allow TCP addresses beyond this machine, without encryption: every machine on the way can read tokens and plans.
    #[arg(long)]
    pub insecure_listen_beyond_loopback: bool,
    /// The owner's token. The owner is also this process's user, and root.
    #[arg(long, env = "BELAY_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// The file of principals that `belay principals --file` writes; without it only the owner may call.
    #[arg(long, env = "BELAY_PRINCIPALS", value_name = "FILE")]
    pub principals: Option<PathBuf>,
    /// The address for the executor and the runners: unix:/path or host:port. People cannot call it.
    #[arg(long, env = "BELAY_SERVICE_LISTEN")]
    pub service_listen: Address,
    /// A group that may connect to the services' socket as well.
    #[arg(long, env = "BELAY_SERVICE_LISTEN_GROUP", value_name = "GROUP")]
    pub service_listen_group: Option<Group>,
    /// The user that the executor runs as. Without this, --runner-user and tokens this process's own user may be either service.
    #[arg(long, env = "BELAY_EXECUTOR_USER", value_name = "USER")]
    pub executor_user: Option<User>,
    /// The user that the tool runners run as.
    #[arg(long, env = "BELAY_RUNNER_USER", value_name = "USER")]
    pub runner_user: Option<User>,
    /// The token with which the executor authenticates; required when services call over TCP.
    #[arg(long, env = "BELAY_TOKEN_FROM_EXECUTOR", hide_env_values = true, value_name = "TOKEN")]
    pub token_from_executor: Option<String>,
    /// The token with which the tool runners authenticate; required when services call over TCP.
    #[arg(long, env = "BELAY_TOKEN_FROM_RUNNER", hide_env_values = true, value_name = "TOKEN")]
    pub token_from_runner: Option<String>,
    /// The tool runner's address.
    #[arg(long, env = "BELAY_RUNNER")]
    pub runner: Address,
    /// The token to send to the tool runner.
    #[arg(long, env = "BELAY_RUNNER_TOKEN", hide_env_values = true)]
    pub runner_token: Option<String>,
    /// The directory of the approvals and the signing key.
    #[arg(long, env = "BELAY_STATE_DIR")]
    pub state_dir: PathBuf,
    /// Accept a store that is behind the position that other services have seen, because it was restored or lost. Use it for one start; everything
    /// after the store's last commit is lost.
    #[arg(long)]
    pub accept_older_store: bool,
    /// Write the verification key to this file, for runners that cannot read the state directory; all users may read it.
    #[arg(long, env = "BELAY_VERIFICATION_KEY_FILE", value_name = "FILE")]
    pub verification_key_file: Option<PathBuf>,
    /// The policy file (YAML); without it the built-in policy is active.
    #[arg(long, env = "BELAY_POLICY")]
    pub policy: Option<PathBuf>,
}

impl Settings {
    /// The services by the users they run as.
    pub fn users(&self) -> Vec<(Service, u32)> {
        let users = [(Service::Executor, self.executor_user), (Service::ToolRunner, self.runner_user)];
        users.into_iter().filter_map(|(service, user)| Some((service, user?.0))).collect()
    }

    /// The services by their tokens.
    pub fn tokens(&self) -> Vec<(Service, &str)> {
        let tokens = [(Service::Executor, &self.token_from_executor), (Service::ToolRunner, &self.token_from_runner)];
        tokens.into_iter().filter_map(|(service, token)| Some((service, token.as_deref()?))).collect()
    }

    /// The fault of the tokens, if there is one: none may be short, and two callers must not have the same.
    pub fn problem(&self) -> Option<String> {
        let owner = self.token.as_deref().map(|token| ("--token", token));
        let executor = self.token_from_executor.as_deref().map(|token| ("--token-from-executor", token));
        let runner = self.token_from_runner.as_deref().map(|token| ("--token-from-runner", token));
        let short =
            [owner, executor, runner].into_iter().flatten().find_map(|(flag, token)| token_problem(flag, token));
        if short.is_some() {
            return short;
        }
        let pairs = [(owner, executor), (owner, runner), (executor, runner)];
        let same = pairs.into_iter().find_map(|(one, other)| Some((one?, other?)).filter(|(a, b)| a.1 == b.1));
        same.map(|((one, _), (other, _))| format!("{one} and {other} are the same: use a different token for each"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbb";
    const C: &str = "cccccccccccccccc";

    fn settings(more: &[&str]) -> Settings {
        let needed =
            ["gate", "--listen", "unix:/g", "--service-listen", "unix:/s", "--runner", "unix:/r", "--state-dir", "/d"];
        Settings::parse_from(needed.iter().chain(more))
    }

    #[test]
    fn the_settings_are_consistent() {
        use clap::CommandFactory as _;
        Settings::command().debug_assert();
    }

    /// B-19: a service's token cannot decide.
    #[test]
    fn each_caller_has_a_token_of_its_own() {
        assert_eq!(settings(&["--token", A, "--token-from-executor", B, "--token-from-runner", C]).problem(), None);
        for (flags, named) in [
            (["--token", A, "--token-from-executor", A], "--token and --token-from-executor"),
            (["--token-from-runner", A, "--token-from-executor", A], "--token-from-executor and --token-from-runner"),
        ] {
            assert!(settings(&flags).problem().unwrap().starts_with(named), "{named}");
        }
        for flag in ["--token", "--token-from-executor", "--token-from-runner"] {
            let problem = settings(&[flag, "t0ps3cret"]).problem().unwrap();
            assert!(
                problem.starts_with(&format!("{flag} is shorter than 16")) && !problem.contains("t0p"),
                "{problem}"
            );
        }
        let by_user = settings(&["--executor-user", "901", "--runner-user", "902"]);
        assert_eq!(by_user.users(), [(Service::Executor, 901), (Service::ToolRunner, 902)]);
    }
}
