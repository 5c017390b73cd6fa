//! What this machine gives: tried out, not guessed.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use belay_policy::{Policy, Tier};
use belay_proto::v1::{EnforcementReport, enforcement_report};
use belay_settings::toolchains::{Caller, PROGRAMS};
use belay_tool_runner::{CommandSettings, Enforcement, HostDirectories, WorkspaceDirectories as _};

use crate::{
    config::{Config, ConfigError, ConfigSource},
    policy::{PolicyChoice, PolicyFacts, PolicyRefused, facts},
    state_dir::StateDir,
};

/// Programs that plans often call: said of in any case, others where the caller has them.
const ALWAYS: [&str; 3] = ["git", "python3", "sh"];

/// What is to be examined.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The state directory; made if it is not there, as a start would.
    pub state_dir: PathBuf,
    /// The folder that is to be a workspace.
    pub workspace: PathBuf,
    /// The policy that a start would take.
    pub policy: PolicyChoice,
    /// The operator's settings that a start would take.
    pub config: ConfigSource,
}

/// What was found.
#[derive(Debug)]
pub struct Diagnosis {
    /// The layers of the sandbox, each tried for itself, and the attacks that succeeded.
    pub sandbox: EnforcementReport,
    /// Why no command can be started, whatever the policy says.
    pub refusal: Option<String>,
    /// The folder that is to be a workspace.
    pub workspace: Folder,
    /// The state directory.
    pub state_dir: Folder,
    /// The policy, or why there is none.
    pub policy: Result<PolicyFacts, PolicyRefused>,
    /// Where the policy comes from, in words.
    pub policy_source: String,
    /// The operator's settings, or why there are none.
    pub config: Result<Config, ConfigError>,
    /// Compilers, interpreters, package managers and the like: those that the caller has, and those that plans often call.
    pub programs: Vec<Program>,
    min_tier: Tier,
}

/// A folder, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// Why it cannot be used, and what to do.
    pub problem: Option<String>,
}

/// A program, as commands in the sandbox look for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Where commands find it; `None` when no command can call it.
    pub path: Option<PathBuf>,
    /// Where the caller finds it.
    pub of_caller: Option<PathBuf>,
    /// Why commands do not see it, and what to write to the settings.
    pub problem: Option<String>,
}

impl Diagnosis {
    /// Whether a command that the policy allows would be started.
    pub fn commands_can_run(&self) -> bool {
        self.refusal.is_none() && self.is_strong_enough() && self.policy.is_ok() && self.config.is_ok()
    }

    /// Whether the sandbox is of the tier that the policy asks for.
    pub fn is_strong_enough(&self) -> bool {
        let tier = match self.sandbox.tier() {
            enforcement_report::Tier::Unspecified => return false,
            enforcement_report::Tier::C => Tier::C,
            enforcement_report::Tier::B => Tier::B,
            enforcement_report::Tier::A => Tier::A,
        };
        tier >= self.min_tier
    }

    /// Whether the sandbox was attacked from inside, and no attack succeeded.
    pub fn is_attack_proof(&self) -> bool {
        self.refusal.is_none() && self.sandbox.breaches.is_empty()
    }

    /// What came of attacking the sandbox from inside.
    pub fn self_test(&self) -> String {
        match (&self.refusal, self.sandbox.breaches.as_slice()) {
            (None, []) => "attacked from inside; no attack succeeded".to_owned(),
            (Some(why), []) => format!("not passed: {why}"),
            (_, attacks) => format!("possible from inside: {}", attacks.join("; ")),
        }
    }
}

/// Examines the machine. Blocks for some tens of milliseconds, and leaves nothing behind but the state directory.
pub fn doctor(probe: &Probe) -> Diagnosis {
    let config = probe.config.load();
    let commands = config.as_ref().map_or_else(
        |_| CommandSettings::default(),
        |config| CommandSettings::new(config.commands.clone(), Some(probe.state_dir.join("caches"))),
    );
    let enforcement = Enforcement::probed(commands.sandbox());
    let policy = probe.policy.read().map(|policy| policy.unwrap_or_else(Policy::of_one_person));
    Diagnosis {
        sandbox: enforcement.to_proto(),
        refusal: enforcement.launcher().err().map(|refusal| refusal.message),
        workspace: workspace(&probe.workspace, &probe.state_dir),
        state_dir: state_dir(&probe.state_dir),
        min_tier: policy.as_ref().map_or(Tier::A, Policy::min_tier),
        policy: policy.map(|policy| facts(&policy)),
        policy_source: match &probe.policy {
            PolicyChoice::File(path) => path.display().to_string(),
            PolicyChoice::BuiltIn | PolicyChoice::Keep => "the built-in one".to_owned(),
        },
        programs: programs(&commands, &probe.config.caller()),
        config,
    }
}

fn state_dir(path: &Path) -> Folder {
    match StateDir::prepare(path) {
        Ok(_) => Folder { path: path.to_owned(), problem: None },
        Err(error) => Folder { path: path.to_owned(), problem: Some(error.to_string()) },
    }
}

/// Opens a folder inside of the one that is meant as a workspace, and removes it again: the file system is tried without leaving anything
/// in somebody's project.
fn workspace(path: &Path, state_dir: &Path) -> Folder {
    Folder { path: path.to_owned(), problem: tried(path, state_dir).err() }
}

fn tried(path: &Path, state_dir: &Path) -> Result<(), String> {
    let path = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let state_dir = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    if path == Path::new("/") {
        return Err("it is the whole machine: name the folder of one project".to_owned());
    }
    if path.starts_with(&state_dir) || state_dir.starts_with(&path) {
        return Err(format!("it and the state directory {} lie one inside the other", state_dir.display()));
    }
    let inside = tempfile::Builder::new()
        .prefix(".belay-doctor-")
        .tempdir_in(&path)
        .map_err(|error| format!("nothing can be written there: {error}"))?;
    HostDirectories.open(inside.path(), &[]).map(drop).map_err(|error| error.to_string())
}

/// The programs that the caller has, as commands see them, and those that plans often call.
fn programs(commands: &CommandSettings, caller: &Caller) -> Vec<Program> {
    let look = |name: &'static str| Program {
        name,
        path: commands.find(name),
        of_caller: find(name, &caller.path),
        problem: commands.missing(name),
    };
    let worth_saying = |program: &Program| program.of_caller.is_some() || ALWAYS.contains(&program.name);
    PROGRAMS.into_iter().map(look).filter(worth_saying).collect()
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
    fn a_workspace_is_tried_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (state, work) = (folder.path().join("state"), folder.path().join("work"));
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(&work).unwrap();
        assert_eq!(tried(&work, &state), Ok(()));
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "nothing is left behind");
        for wrong in [folder.path(), &state, &state.join("..").join("state"), Path::new("/"), Path::new("/nowhere")] {
            assert!(tried(wrong, &state).is_err(), "{}", wrong.display());
        }
    }

    // B-10: below the required level nothing runs, and what is missing is named.
    #[test]
    fn commands_run_only_behind_walls_that_were_tried() {
        let folder = tempfile::tempdir().unwrap();
        let probe = Probe {
            state_dir: folder.path().join("state"),
            workspace: folder.path().to_owned(),
            policy: PolicyChoice::BuiltIn,
            config: ConfigSource::default(),
        };
        // This test binary cannot be a launcher, so the walls cannot be tried in it.
        let diagnosis = doctor(&probe);
        assert!(!diagnosis.commands_can_run() && !diagnosis.is_attack_proof());
        assert!(diagnosis.self_test().starts_with("not passed: "), "{}", diagnosis.self_test());
        assert_eq!(diagnosis.state_dir.problem, None);
        assert!(diagnosis.workspace.problem.as_deref().is_some_and(|problem| problem.contains("one inside the other")));
    }

    #[test]
    fn programs_are_looked_for_where_commands_look() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("git");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let path = [folder.path().to_owned()];
        assert_eq!(find("git", &path), None, "it may not be executed");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("git", &path), Some(file));
    }
}
