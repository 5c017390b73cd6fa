//! `belay doctor`: probes what this machine supports.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use belay_policy::{Policies, Tier};
use belay_proto::runner_v1::{EnforcementReport, enforcement_report};
use belay_settings::{
    OperatorCredential, ValueWithOrigin,
    toolchains::{Caller, PROGRAMS},
};
use belay_tool_runner::{CommandSettings, Enforcement, HostDirectories, WorkspaceDirectories as _, check_network};

use crate::{
    config::{Config, ConfigError, ConfigSource},
    policy::{PolicyChoice, PolicyFacts, RefusedPolicy, facts},
    state_dir::StateDir,
};

/// Programs that plans often call: always reported; others only if the caller has them.
const ALWAYS: [&str; 3] = ["git", "python3", "sh"];

/// The subject of a diagnosis.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The state directory; created if missing, as by a start.
    pub state_dir: PathBuf,
    /// The workspace directory.
    pub workspace: PathBuf,
    /// The policy that a start would use.
    pub policy: PolicyChoice,
    /// The operator's settings that a start would use.
    pub config: ConfigSource,
    /// Returns the variables of this process, by which the values of credentials are found.
    pub environment: fn(&str) -> Option<OsString>,
}

/// The result.
#[derive(Debug)]
pub struct Diagnosis {
    /// The layers of the sandbox, each probed separately, and the attacks that succeeded.
    pub sandbox: EnforcementReport,
    /// Why no command can start, whatever the policy allows.
    pub refusal: Option<String>,
    /// The layers that confine the network proxy, which has passed its self-test; or the reason why commands that ask for a network are refused.
    pub network: Result<Vec<String>, String>,
    /// The workspace directory.
    pub workspace: Folder,
    /// The state directory.
    pub state_dir: Folder,
    /// The policy, or why it cannot be used.
    pub policy: Result<PolicyFacts, RefusedPolicy>,
    /// The source of the policy, as text.
    pub policy_source: String,
    /// The operator's settings, or why they cannot be used.
    pub config: Result<Config, ConfigError>,
    /// The credentials of the settings, and whether the value of each can be read.
    pub credentials: Vec<CheckedCredential>,
    /// Compilers, interpreters, package managers and similar programs: those of the caller, and those that plans often call.
    pub programs: Vec<Program>,
    min_tier: Tier,
}

/// A directory and its problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// Why it cannot be used, and what to do.
    pub problem: Option<String>,
}

/// A credential whose value was read, and forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedCredential {
    /// Its name.
    pub name: String,
    /// The source of its value, as text.
    pub source: String,
    /// Why its value cannot be read, and what to do.
    pub problem: Option<String>,
}

/// A program as commands in the sandbox find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its path for commands; `None` if they cannot find it.
    pub path: Option<PathBuf>,
    /// Its path for the caller.
    pub of_caller: Option<PathBuf>,
    /// Why commands do not see it, and the setting to add.
    pub problem: Option<String>,
}

impl Diagnosis {
    /// Whether a command that the policy allows can start.
    pub fn commands_can_run(&self) -> bool {
        self.refusal.is_none() && self.is_strong_enough() && self.policy.is_ok() && self.config.is_ok()
    }

    /// Whether the sandbox has the tier that the policy requires.
    pub fn is_strong_enough(&self) -> bool {
        let tier = match self.sandbox.tier() {
            enforcement_report::Tier::Unspecified | enforcement_report::Tier::None => return false,
            enforcement_report::Tier::C => Tier::C,
            enforcement_report::Tier::B => Tier::B,
            enforcement_report::Tier::A => Tier::A,
        };
        tier >= self.min_tier
    }

    /// Whether the self-test ran and no attack from inside the sandbox succeeded.
    pub fn is_attack_proof(&self) -> bool {
        self.refusal.is_none() && self.sandbox.breaches.is_empty()
    }

    /// The result of the test of the network's proxy, as text.
    pub fn network_test(&self) -> String {
        match &self.network {
            Ok(layers) => format!("attacked; nothing beyond its profile was reached ({})", layers.join(", ")),
            Err(why) => format!("commands that ask for a network are refused: {why}"),
        }
    }

    /// The result of the self-test, as text.
    pub fn self_test(&self) -> String {
        match (&self.refusal, self.sandbox.breaches.as_slice()) {
            (None, []) => "attacked from inside; no attack succeeded".to_owned(),
            (Some(why), []) => format!("not passed: {why}"),
            (_, attacks) => format!("possible from inside: {}", attacks.join("; ")),
        }
    }
}

/// Examines the machine. Blocks for tens of milliseconds, and for as long as programs take that print the values of credentials; leaves only the state
/// directory behind.
pub fn doctor(probe: &Probe) -> Diagnosis {
    let checked = probe.config.load().and_then(|config| {
        let commands = CommandSettings::of_runner(config.commands.clone(), &config.loaded, &probe.state_dir)?;
        Ok((config, commands))
    });
    let (config, commands) = match checked {
        Ok((config, commands)) => (Ok(config), commands),
        Err(error) => (Err(error), CommandSettings::default()),
    };
    let enforcement = Enforcement::probed(commands.sandbox());
    let policy = probe.policy.read().map(|policy| policy.unwrap_or_else(Policies::of_one_person));
    Diagnosis {
        sandbox: enforcement.to_proto(),
        network: check_network(&commands),
        refusal: enforcement.launcher().err().map(|refusal| refusal.message),
        workspace: workspace(&probe.workspace, &probe.state_dir),
        state_dir: state_dir(&probe.state_dir),
        min_tier: policy.as_ref().map_or(Tier::A, Policies::min_tier),
        policy: policy.map(|policy| facts(&policy)),
        policy_source: match &probe.policy {
            PolicyChoice::File(path) => path.display().to_string(),
            PolicyChoice::BuiltIn | PolicyChoice::Keep => "the built-in one".to_owned(),
        },
        programs: programs(&commands, &probe.config.caller()),
        credentials: config.as_ref().map_or_else(|_| Vec::new(), |config| credentials(config, &probe.environment)),
        config,
    }
}

/// Reads the value of each credential, as a call with a network does when it begins.
fn credentials(config: &Config, environment: &dyn Fn(&str) -> Option<OsString>) -> Vec<CheckedCredential> {
    let check = |known: &ValueWithOrigin<OperatorCredential>| {
        let OperatorCredential { credential, source } = &known.value;
        let problem = belay_credentials::read(source, environment).err();
        CheckedCredential {
            name: credential.name.clone(),
            source: source.to_string(),
            problem: problem.map(|problem| problem.to_string()),
        }
    };
    config.loaded.settings.credentials.iter().map(check).collect()
}

fn state_dir(path: &Path) -> Folder {
    match StateDir::prepare(path) {
        Ok(_) => Folder { path: path.to_owned(), problem: None },
        Err(error) => Folder { path: path.to_owned(), problem: Some(error.to_string()) },
    }
}

/// Opens and removes a subdirectory of the workspace: tests the file system without leaving anything in a project.
fn workspace(path: &Path, state_dir: &Path) -> Folder {
    Folder { path: path.to_owned(), problem: probe_workspace(path, state_dir).err() }
}

fn probe_workspace(path: &Path, state_dir: &Path) -> Result<(), String> {
    let path = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let state_dir = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    if path == Path::new("/") {
        return Err("it is the whole machine: name the directory of one project".to_owned());
    }
    if path.starts_with(&state_dir) || state_dir.starts_with(&path) {
        return Err(format!(
            "it contains, or is inside, the state directory {}: use separate directories",
            state_dir.display()
        ));
    }
    let inside = tempfile::Builder::new()
        .prefix(".belay-doctor-")
        .tempdir_in(&path)
        .map_err(|error| format!("it is not writable: {error}"))?;
    HostDirectories.open(inside.path(), &[]).map(drop).map_err(|error| error.to_string())
}

/// The programs of the caller, as commands see them, and those that plans often call.
fn programs(commands: &CommandSettings, caller: &Caller) -> Vec<Program> {
    let look = |name: &'static str| Program {
        name,
        path: commands.find(name),
        of_caller: find(name, &caller.path),
        problem: commands.missing(name),
    };
    let is_reported = |program: &Program| program.of_caller.is_some() || ALWAYS.contains(&program.name);
    PROGRAMS.into_iter().map(look).filter(is_reported).collect()
}

fn find(name: &str, path: &[PathBuf]) -> Option<PathBuf> {
    path.iter().map(|folder| folder.join(name)).find(|file| {
        fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_a_workspace_leaves_it_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (state, work) = (folder.path().join("state"), folder.path().join("work"));
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(&work).unwrap();
        assert_eq!(probe_workspace(&work, &state), Ok(()));
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "nothing is left behind");
        for wrong in [folder.path(), &state, &state.join("..").join("state"), Path::new("/"), Path::new("/nowhere")] {
            assert!(probe_workspace(wrong, &state).is_err(), "{}", wrong.display());
        }
    }

    // B-10: below the required tier no command runs, and the missing layer is named.
    #[test]
    fn commands_run_only_in_a_sandbox_that_was_probed() {
        let folder = tempfile::tempdir().unwrap();
        let probe = Probe {
            state_dir: folder.path().join("state"),
            workspace: folder.path().to_owned(),
            policy: PolicyChoice::BuiltIn,
            config: ConfigSource::default(),
            environment: |_| None,
        };
        // This test binary is not a launcher, so it cannot probe the sandbox.
        let diagnosis = doctor(&probe);
        assert!(!diagnosis.commands_can_run() && !diagnosis.is_attack_proof());
        assert!(diagnosis.self_test().starts_with("not passed: "), "{}", diagnosis.self_test());
        assert!(diagnosis.network.is_err_and(|why| why.contains("take_over_if_asked")));
        assert_eq!(diagnosis.state_dir.problem, None);
        assert!(
            diagnosis.workspace.problem.as_deref().is_some_and(|problem| problem.contains("use separate directories"))
        );
    }

    #[test]
    fn the_value_of_each_credential_is_read_and_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (file, config) = (folder.path().join("token"), folder.path().join("config.yaml"));
        fs::write(&file, "0123456789").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let text = format!(
            "credentials:\n  a: {{environment: A_TOKEN, hosts: ['https://a.example.com']}}\n  b: {{file: {}, hosts: ['https://b.example.com']}}\n",
            file.display()
        );
        fs::write(&config, text).unwrap();
        let config = ConfigSource::new(Some(config), &|_| None).load().unwrap();
        let checked = credentials(&config, &|name| (name == "A_TOKEN").then(|| "0123456789".into()));
        let [a, b] = &checked[..] else { panic!("{checked:?}") };
        assert_eq!((a.name.as_str(), a.source.as_str(), &a.problem), ("a", "the variable A_TOKEN", &None));
        assert!(b.problem.as_deref().is_some_and(|problem| problem.contains("(mode 0644)")), "{b:?}");
        assert!(!format!("{checked:?}").contains("0123456789"));
    }

    #[test]
    fn programs_are_found_on_the_search_path_of_commands() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("git");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let path = [folder.path().to_owned()];
        assert_eq!(find("git", &path), None, "it is not executable");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("git", &path), Some(file));
    }
}
