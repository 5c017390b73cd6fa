//! One command: what to run, on which workspace, within which limits.

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
};

/// One command.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program: a name to look for in [`crate::Settings::path`], or a path in the command's view.
    pub program: String,
    /// Its arguments, without the program's name. No shell looks at them.
    pub args: Vec<OsString>,
    /// Variables beside the fixed ones (`PATH`, `HOME`, `LANG`, `TZ`, …); nothing of the runner's own environment is passed on.
    /// Names that loaders and interpreters obey are refused; `TRACEPARENT` and its like go here.
    pub env: Vec<(String, OsString)>,
    /// Where to start, relative to the workspace. Empty: at its root.
    pub cwd: PathBuf,
    /// The workspace.
    pub workspace: WorkspaceMount,
    /// What it sees beside [`crate::Settings::mounts`], such as a cache of its workspace.
    pub mounts: Vec<Mount>,
    /// Time on the wall from its start; all processes are killed when it is up. `None`: no limit.
    pub wall: Option<Duration>,
    /// What it may use instead of [`crate::Settings::limits`].
    pub limits: Option<Limits>,
}

impl Spec {
    /// A command at the workspace's root with the operator's mounts and limits.
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
            mounts: Vec::new(),
            wall: None,
            limits: None,
        }
    }
}

/// The workspace as the command sees it at [`crate::WORKSPACE`].
#[derive(Clone, Debug)]
pub struct WorkspaceMount {
    /// The folders it is made of, the topmost first, the workspace's own last: its owner is whom the command's changes will belong to.
    /// Absolute paths. They must not change while the command runs. Mounts inside of them are not shown when the runner is root.
    pub lower: Vec<PathBuf>,
    /// A folder for this one launch on a file system that overlays can write to. The launcher makes [`crate::UPPER`] in it, where the
    /// changes are found afterwards with the workspace's owner, and [`crate::WORK`]. `None`: the workspace is read-only.
    pub staging: Option<PathBuf>,
    /// Folders inside the workspace that the command sees empty and cannot write to, such as the one that holds the staging folders.
    /// Relative to the workspace; those that do not exist are skipped.
    pub hidden: Vec<PathBuf>,
}

impl WorkspaceMount {
    /// One folder, which the command can only read.
    pub fn read_only(folder: impl Into<PathBuf>) -> Self {
        Self { lower: vec![folder.into()], staging: None, hidden: Vec::new() }
    }

    /// One folder, with what the command changes kept apart in `staging`.
    pub fn staged(folder: impl Into<PathBuf>, staging: impl Into<PathBuf>) -> Self {
        Self { staging: Some(staging.into()), ..Self::read_only(folder) }
    }
}

/// Names that change what a program loads or executes before its first line, or that the sandbox itself sets.
const RESERVED: [&str; 18] = [
    "BASH_ENV",
    "ENV",
    "GCONV_PATH",
    "HOME",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "LOCPATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PS4",
    "RUBYLIB",
    "RUBYOPT",
    "TMPDIR",
    "ZDOTDIR",
];
const RESERVED_PREFIXES: [&str; 6] = ["BASH_FUNC_", "DYLD_", "GIT_", "GLIBC_", "LD_", "PYTHON"];

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
            check_variable(name, value, may_set)?;
        }
        if !stays_inside(&self.cwd) {
            return Err(LaunchError::spec("cwd", format!("`{}` is outside workspace", self.cwd.display())));
        }
        without_nul("cwd", self.cwd.as_os_str())?;
        mounts::check(&self.mounts, "mounts")?;
        if let Some(limits) = &self.limits {
            limits.check("limits")?;
        }
        self.workspace.check()
    }
}

impl WorkspaceMount {
    fn check(&self) -> Result<(), LaunchError> {
        if self.lower.is_empty() {
            return Err(LaunchError::spec("workspace.lower", "needs at least one folder"));
        }
        // Beyond a few hundred layers an overlay refuses; the name of each costs a little of one page of options before that.
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

/// Whether programs or loaders obey a variable before a program's first line, or the sandbox sets it: a call sets it only where
/// [`crate::Settings::calls_may_set`] says so.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Why a call must not set a reserved variable, and what an operator can do.
#[must_use]
pub fn not_the_calls(name: &str) -> String {
    let name = name.escape_debug();
    format!(
        "decides what programs load or execute: a plan may set it only where the operator's settings say so: \
         `commands: {{plans_may_set: [{name}]}}`"
    )
}

fn check_variable(name: &str, value: &OsStr, may_set: &[String]) -> Result<(), LaunchError> {
    let field = format!("env.{}", name.escape_debug());
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(LaunchError::spec(field, "is not the name of a variable"));
    }
    if is_reserved(name) && !may_set.iter().any(|allowed| allowed == name) {
        return Err(LaunchError::spec(field, not_the_calls(name)));
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

    fn problem(change: impl FnOnce(&mut Spec)) -> String {
        let mut spec = Spec::new("true", [""; 0], WorkspaceMount::read_only("/workspace"));
        change(&mut spec);
        spec.check(&[]).unwrap_err().to_string()
    }

    #[test]
    fn a_plain_command_passes() {
        let mut spec = Spec::new("echo", ["a b", "$(id)"], WorkspaceMount::staged("/workspace", "/staging"));
        spec.env.push(("TRACEPARENT".into(), "00-1-2-01".into()));
        spec.cwd = "./src".into();
        assert!(spec.check(&[]).is_ok());
    }

    // S2-X-06: the message says "outside workspace".
    #[test]
    fn a_working_directory_outside_is_refused() {
        for outside in ["/etc", "../other", "src/../../etc"] {
            assert!(problem(|spec| spec.cwd = outside.into()).contains("outside workspace"), "{outside}");
        }
    }

    #[test]
    fn each_refusal_names_its_field() {
        assert!(problem(|spec| spec.program.clear()).starts_with("program:"));
        assert!(problem(|spec| spec.args = vec!["a".into(), "b\0c".into()]).starts_with("args[1]:"));
        assert!(problem(|spec| spec.workspace.lower.clear()).starts_with("workspace.lower:"));
        assert!(problem(|spec| spec.workspace.lower = vec!["relative".into()]).starts_with("workspace.lower[0]:"));
        assert!(problem(|spec| spec.workspace.hidden = vec!["../x".into()]).starts_with("workspace.hidden[0]:"));
    }

    #[test]
    fn variables_that_loaders_obey_are_refused() {
        for name in ["LD_PRELOAD", "BASH_ENV", "GIT_SSH_COMMAND", "PYTHONSTARTUP", "NODE_OPTIONS", "PATH", "A=B", ""] {
            assert!(problem(|spec| spec.env = vec![(name.into(), "x".into())]).starts_with("env."), "{name}");
        }
    }

    #[test]
    fn a_variable_that_the_operator_leaves_to_plans_passes_and_no_other() {
        let may_set = ["PYTHONPATH".to_owned()];
        let mut spec = Spec::new("true", [""; 0], WorkspaceMount::read_only("/workspace"));
        spec.env = vec![("PYTHONPATH".into(), "lib".into())];
        assert!(spec.check(&may_set).is_ok());
        spec.env.push(("PYTHONHOME".into(), "lib".into()));
        let why = spec.check(&may_set).unwrap_err().to_string();
        assert!(why.contains("env.PYTHONHOME") && why.contains("plans_may_set: [PYTHONHOME]"), "{why}");
    }
}
