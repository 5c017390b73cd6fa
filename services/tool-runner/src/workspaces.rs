//! Which directories may be workspaces. Pure: it only compares paths.

use std::path::{Component, Path, PathBuf};

use thiserror::Error;

/// Which directories a caller may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Any but the forbidden ones: the caller is the user of this machine.
    Any,
    /// Those below these directories, which are canonical paths.
    Roots(Vec<PathBuf>),
}

/// The settings of workspaces.
#[derive(Clone, Debug)]
pub struct Workspaces {
    /// The directory of the runner's own workspaces: one directory per namespace, and in it one per execution.
    pub own: PathBuf,
    /// Which other directories may be named.
    pub allowed: Allowed,
    /// Directories that a named workspace must not contain or lie in, such as the one with stores and keys.
    pub forbidden: Vec<PathBuf>,
}

/// The workspace of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) path: PathBuf,
    /// Whether it is one of the runner's own, created on demand. Any other is a directory that people work in too.
    pub(crate) own: bool,
}

impl Chosen {
    /// Its path below the directory of the runner's own workspaces; empty for any other.
    pub(crate) fn below(&self, workspaces: &Workspaces) -> &Path {
        self.path.strip_prefix(&workspaces.own).unwrap_or(Path::new(""))
    }
}

/// Why a directory may not be a workspace.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotAllowed {
    /// Its path is relative.
    #[error("`{0}` is a relative path: give the absolute path of the directory")]
    Relative(String),
    /// It is not below an allowed directory.
    #[error("`{path}` is not allowed as a workspace: {why}")]
    Elsewhere {
        /// The directory.
        path: String,
        /// What to change.
        why: &'static str,
    },
    /// An id cannot be the name of a directory.
    #[error("`{0}` cannot be a directory name: name a workspace, or choose another id")]
    Name(String),
}

impl Workspaces {
    /// The workspace for a call of `execution`, which is `namespaces/N/executions/E`. Without `workspace` it is one of the runner's own.
    pub(crate) fn choose(&self, workspace: &str, execution: &str) -> Result<Chosen, NotAllowed> {
        if !workspace.is_empty() {
            if !Path::new(workspace).is_absolute() {
                return Err(NotAllowed::Relative(workspace.to_owned()));
            }
            return Ok(Chosen { path: workspace.into(), own: false });
        }
        let mut path = self.own.clone();
        for id in execution.split('/').skip(1).step_by(2) {
            let mut parts = Path::new(id).components();
            let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(name)), None) if name == id);
            if !plain || id.len() > 255 || id.contains('\0') {
                return Err(NotAllowed::Name(id.to_owned()));
            }
            path.push(id);
        }
        Ok(Chosen { path, own: true })
    }

    /// The workspace of a path from the ledger.
    pub(crate) fn known(&self, path: PathBuf) -> Chosen {
        Chosen { own: path.starts_with(&self.own), path }
    }

    /// Checks that a caller may name this canonical path.
    pub(crate) fn allow(&self, path: &Path) -> Result<(), NotAllowed> {
        let Allowed::Roots(roots) = &self.allowed else {
            return Ok(());
        };
        if roots.iter().any(|root| path.starts_with(root)) {
            return Ok(());
        }
        let why = if roots.is_empty() {
            "this runner uses only its own workspaces unless it is started with --workspace-root"
        } else {
            "name a directory below a --workspace-root, or none"
        };
        Err(NotAllowed::Elsewhere { path: path.display().to_string(), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(allowed: Allowed) -> Workspaces {
        Workspaces { own: "/var/own".into(), allowed, forbidden: Vec::new() }
    }

    #[test]
    fn an_execution_without_a_workspace_gets_its_own() {
        let chosen = settings(Allowed::Any).choose("", "namespaces/n/executions/e-1").unwrap();
        assert_eq!(chosen, Chosen { path: "/var/own/n/e-1".into(), own: true });
        for id in ["..", ".", "a\0b"] {
            let refused = settings(Allowed::Any).choose("", &format!("namespaces/n/executions/{id}"));
            assert_eq!(refused, Err(NotAllowed::Name(id.into())), "{id:?}");
        }
    }

    #[test]
    fn a_named_workspace_lies_below_a_root_by_whole_names() {
        let some = settings(Allowed::Roots(vec!["/srv/work".into()]));
        assert!(some.allow(Path::new("/srv/work/a")).is_ok());
        assert!(some.allow(Path::new("/srv/work")).is_ok());
        assert!(some.allow(Path::new("/srv/work-evil")).is_err());
        assert!(settings(Allowed::Roots(Vec::new())).allow(Path::new("/srv/work")).is_err());
        assert!(settings(Allowed::Any).allow(Path::new("/home/ada")).is_ok());
        let relative = settings(Allowed::Any).choose("work", "namespaces/n/executions/e");
        assert_eq!(relative, Err(NotAllowed::Relative("work".into())));
    }
}
