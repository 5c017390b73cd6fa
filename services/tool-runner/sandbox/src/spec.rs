//! A command: what to run, on which workspace, with which limits.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use crate::{
    error::LaunchError,
    limits::Limits,
    mounts::{self, Mount},
    network::CommandNetwork,
    reserved::{is_reserved, reserved_variable_problem},
};

/// The problem with a time limit that has passed already.
pub(crate) const TIMEOUT_EXPIRED: &str = "expired before the program was started";

/// The variable that tells a command over which descriptors it asks: `3,4`, where it reads answers, and where it writes questions.
/// Without [`Dialogue::Questions`] a command does not have it; what a call or the operator's settings say of it is ignored.
pub const ASK_VARIABLE: &str = "BELAY_ASK";

/// The descriptors of a command over which it asks: where it reads answers, and where it writes questions.
pub(crate) const ASK_DESCRIPTORS: [i32; 2] = [3, 4];

/// The variable that names the file to which a command appends its outputs. Without [`Spec::outputs`] a command does not have it; what a call or the operator's
/// settings say of it is ignored.
pub const OUTPUT_VARIABLE: &str = "BELAY_OUTPUT";

/// The path of that file in the view: in memory, and counted with what the command has there.
pub(crate) const OUTPUT_PATH: &str = "/dev/shm/belay-output";

/// A command.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program: a name to find in [`crate::Settings::path`], or a path in the view.
    pub program: String,
    /// Its arguments, without the program name. No shell interprets them.
    pub args: Vec<OsString>,
    /// Variables besides the fixed ones (`PATH`, `HOME`, `LANG`, `TZ`, …). The environment of the runner is not passed on. Names that
    /// loaders and interpreters obey are rejected; `TRACEPARENT` and the like go here.
    pub env: Vec<(String, OsString)>,
    /// The working directory, relative to the workspace; empty for its root.
    pub cwd: PathBuf,
    /// The workspace.
    pub workspace: WorkspaceMount,
    /// Additional mounts besides [`crate::Settings::mounts`] that most commands have in common, such as toolchains: what is read-only of them is mounted
    /// before the command is known.
    pub common_mounts: Vec<Mount>,
    /// Additional mounts of this command, such as a cache of its workspace.
    pub mounts: Vec<Mount>,
    /// The time limit from its start, after which all its processes are killed. `None`: no limit.
    pub timeout: Option<Duration>,
    /// Overrides [`crate::Settings::limits`].
    pub limits: Option<Limits>,
    /// The pipes over which it and the runner exchange messages while it runs; `None`: it gets none.
    pub dialogue: Option<Dialogue>,
    /// Whether it may have outputs: it gets an empty file, which [`OUTPUT_VARIABLE`] names, and which [`crate::RunningCommand::outputs`] reads.
    pub outputs: bool,
    /// Its network: sockets in its network namespace, which [`crate::RunningCommand::take_sockets`] hands out. `None`: nothing but its own programs
    /// listens there.
    pub network: Option<CommandNetwork>,
}

/// The descriptors of a command over which it and the runner exchange messages while it runs, a pipe for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialogue {
    /// Those that [`ASK_VARIABLE`] names: it may ask, and reads the answers.
    Questions,
    /// Its standard input and output: it is a server, and [`RunningCommand::stdout`](crate::RunningCommand::stdout) stays empty.
    StandardStreams,
}

impl Dialogue {
    /// Where it reads, and where it writes.
    pub(crate) fn descriptors(self) -> [i32; 2] {
        match self {
            Self::Questions => ASK_DESCRIPTORS,
            Self::StandardStreams => [0, 1],
        }
    }
}

impl Spec {
    /// A command in the root of the workspace, with the operator's mounts and limits.
    pub fn new(
        program: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
        workspace: WorkspaceMount,
    ) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: PathBuf::new(),
            workspace,
            common_mounts: Vec::new(),
            mounts: Vec::new(),
            timeout: None,
            limits: None,
            dialogue: None,
            outputs: false,
            network: None,
        }
    }
}

/// The workspace as the command sees it at [`crate::WORKSPACE`].
#[derive(Clone, Debug)]
pub struct WorkspaceMount {
    /// The layers, topmost first, the workspace last: its owner will own the changes. Absolute paths. They must not change while the
    /// command runs. Mounts inside them are not visible if the runner is root.
    pub lower: Vec<PathBuf>,
    /// A new directory for this launch on a file system that supports overlay upper layers. The launcher creates [`crate::WORK`] in it and
    /// [`crate::UPPER`], which receives the changes with the owner of the workspace; unless that is there already, with changes that the command begins with.
    /// The caller removes the directory once the command has ended, with what else is in it: scratch places.
    /// `None`: the workspace is read-only.
    pub staging: Option<PathBuf>,
    /// Directories in the workspace that the command sees empty and read-only, such as the one with the staging directories. Relative to
    /// the workspace; missing ones are skipped.
    pub hidden: Vec<PathBuf>,
}

impl WorkspaceMount {
    /// A read-only directory.
    pub fn read_only(folder: impl Into<PathBuf>) -> Self {
        Self { lower: vec![folder.into()], staging: None, hidden: Vec::new() }
    }

    /// A directory whose changes go to `staging`.
    pub fn staged(folder: impl Into<PathBuf>, staging: impl Into<PathBuf>) -> Self {
        Self { staging: Some(staging.into()), ..Self::read_only(folder) }
    }
}

impl Spec {
    pub(crate) fn check(&self, may_set: &[String]) -> Result<(), LaunchError> {
        if self.program.is_empty() {
            return Err(LaunchError::spec("program", "is required"));
        }
        without_nul("program", self.program.as_ref())?;
        for (n, arg) in self.args.iter().enumerate() {
            without_nul(&format!("args[{n}]"), arg)?;
        }
        for (name, value) in &self.env {
            check_variable("env", name, value)?;
            if is_reserved(name) && !may_set.iter().any(|allowed| allowed == name) {
                return Err(LaunchError::spec(format!("env.{name}"), reserved_variable_problem(name)));
            }
        }
        if let Some(network) = &self.network {
            network.check()?;
            for (name, value) in &network.env {
                check_variable("network.env", name, value)?;
            }
        }
        if !stays_inside(&self.cwd) {
            return Err(LaunchError::spec("cwd", format!("`{}` is outside workspace", self.cwd.display())));
        }
        without_nul("cwd", self.cwd.as_os_str())?;
        mounts::check(&self.mounts, "mounts")?;
        // A launcher that is scheduled late would notice it after the program has begun.
        if self.timeout == Some(Duration::ZERO) {
            return Err(LaunchError::spec("timeout", TIMEOUT_EXPIRED));
        }
        if let Some(limits) = &self.limits {
            limits.check("limits")?;
        }
        self.workspace.check()
    }
}

impl WorkspaceMount {
    fn check(&self) -> Result<(), LaunchError> {
        if self.lower.is_empty() {
            return Err(LaunchError::spec("workspace.lower", "needs at least one directory"));
        }
        // An overlay supports a few hundred layers, but its options have to fit on one page.
        if self.lower.len() > 64 {
            return Err(LaunchError::spec("workspace.lower", "has more than 64 layers: merge some"));
        }
        for (n, folder) in self.lower.iter().enumerate() {
            absolute(&format!("workspace.lower[{n}]"), folder)?;
        }
        if let Some(staging) = &self.staging {
            absolute("workspace.staging", staging)?;
        }
        for (n, folder) in self.hidden.iter().enumerate() {
            let field = format!("workspace.hidden[{n}]");
            if folder.as_os_str().is_empty() || !stays_inside(folder) {
                return Err(LaunchError::spec(field, format!("`{}` is outside workspace", folder.display())));
            }
            without_nul(&field, folder.as_os_str())?;
        }
        Ok(())
    }
}

fn check_variable(variables: &str, name: &str, value: &OsStr) -> Result<(), LaunchError> {
    let field = format!("{variables}.{}", name.escape_debug());
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(LaunchError::spec(field, "is not a valid variable name"));
    }
    without_nul(&field, value)
}

fn without_nul(field: &str, text: &OsStr) -> Result<(), LaunchError> {
    if text.as_bytes().contains(&0) {
        return Err(LaunchError::spec(field, "contains a NUL byte"));
    }
    Ok(())
}

fn absolute(field: &str, path: &Path) -> Result<(), LaunchError> {
    if !path.is_absolute() {
        return Err(LaunchError::spec(field, format!("`{}` must be an absolute path", path.display())));
    }
    without_nul(field, path.as_os_str())
}

fn stays_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserved::RESERVED_VARIABLES;

    fn problem(change: impl FnOnce(&mut Spec)) -> String {
        let mut spec = Spec::new("true", [""; 0], WorkspaceMount::read_only("/workspace"));
        change(&mut spec);
        spec.check(&[]).unwrap_err().to_string()
    }

    #[test]
    fn a_plain_command_is_valid() {
        let mut spec = Spec::new("echo", ["a b", "$(id)"], WorkspaceMount::staged("/workspace", "/staging"));
        spec.env.push(("TRACEPARENT".into(), "00-1-2-01".into()));
        spec.cwd = "./src".into();
        assert!(spec.check(&[]).is_ok());
    }

    // S2-X-06: the message says "outside workspace".
    #[test]
    fn a_working_directory_outside_is_rejected() {
        for outside in ["/etc", "../other", "src/../../etc"] {
            assert!(problem(|spec| spec.cwd = outside.into()).contains("outside workspace"), "{outside}");
        }
    }

    #[test]
    fn each_error_names_its_field() {
        assert!(problem(|spec| spec.program.clear()).starts_with("program:"));
        assert!(problem(|spec| spec.args = vec!["a".into(), "b\0c".into()]).starts_with("args[1]:"));
        assert!(problem(|spec| spec.workspace.lower.clear()).starts_with("workspace.lower:"));
        assert!(problem(|spec| spec.workspace.lower = vec!["relative".into()]).starts_with("workspace.lower[0]:"));
        assert!(problem(|spec| spec.workspace.hidden = vec!["../x".into()]).starts_with("workspace.hidden[0]:"));
    }

    #[test]
    fn variables_that_loaders_obey_are_rejected() {
        for name in ["LD_PRELOAD", "BASH_ENV", "GIT_SSH_COMMAND", "PYTHONSTARTUP", "NODE_OPTIONS", "PATH", "A=B", ""] {
            assert!(problem(|spec| spec.env = vec![(name.into(), "x".into())]).starts_with("env."), "{name}");
        }
    }

    /// The refusal says what to write in the operator's settings, and the command runs then.
    #[test]
    fn every_reserved_variable_is_refused_until_the_setting_that_the_refusal_names() {
        for name in RESERVED_VARIABLES.iter().flat_map(|row| row.names).map(|name| name.replace('*', "X_1")) {
            let mut spec = Spec::new("true", [""; 0], WorkspaceMount::read_only("/workspace"));
            spec.env = vec![(name.clone(), "x".into())];
            let why = spec.check(&[]).unwrap_err().to_string();
            let (_, setting) = why.split_once("`commands: {plans_may_set: [").unwrap();
            let (allowed, _) = setting.split_once("]}`").unwrap();
            assert!(why.starts_with(&format!("env.{name}: ")) && spec.check(&[allowed.to_owned()]).is_ok(), "{why}");
        }
        let why = problem(|spec| spec.env = vec![("BASH_FUNC_ls%%".into(), "() { :; }".into())]);
        assert!(why.contains("is reserved") && why.contains("no setting"), "{why}");
    }

    #[test]
    fn only_reserved_variables_that_the_operator_allows_are_accepted() {
        let may_set = ["PYTHONPATH".to_owned()];
        let mut spec = Spec::new("true", [""; 0], WorkspaceMount::read_only("/workspace"));
        spec.env = vec![("PYTHONPATH".into(), "lib".into())];
        assert!(spec.check(&may_set).is_ok());
        spec.env.push(("PYTHONHOME".into(), "lib".into()));
        let why = spec.check(&may_set).unwrap_err().to_string();
        assert!(why.contains("env.PYTHONHOME") && why.contains("plans_may_set: [PYTHONHOME]"), "{why}");
    }
}
