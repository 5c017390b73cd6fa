//! Which folders may be workspaces here. Pure: paths are only compared.

use std::path::{Component, Path, PathBuf};

use thiserror::Error;

/// Which folders a caller may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Any but the forbidden ones: the caller is the user whose machine it is.
    Any,
    /// Those in these folders, given without symbolic links.
    Roots(Vec<PathBuf>),
}

/// The settings of workspaces.
#[derive(Clone, Debug)]
pub struct Workspaces {
    /// Where the runner's own workspaces are: a folder for each namespace, and in it one for each execution.
    pub own: PathBuf,
    /// What else may be named.
    pub allowed: Allowed,
    /// Folders that a named workspace may neither contain nor lie in, first of all the one with stores and keys.
    pub forbidden: Vec<PathBuf>,
}

/// A folder that is to be a call's workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) path: PathBuf,
    /// It is the runner's own: made on demand. Any other is a folder that people work in too.
    pub(crate) own: bool,
}

/// Why a folder is no workspace here.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotAllowed {
    /// It is not absolute.
    #[error("`{0}` is not absolute: give the folder's absolute path")]
    Relative(String),
    /// It lies where none may be.
    #[error("`{path}` is not in a folder that this runner may work in: {why}")]
    Elsewhere {
        /// The folder.
        path: String,
        /// What would have to be different.
        why: &'static str,
    },
    /// An id cannot be the name of a folder.
    #[error("`{0}` cannot be the name of a folder: name a workspace, or choose another id")]
    Name(String),
}

impl Workspaces {
    /// The folder for a call of `execution`, which is `namespaces/N/executions/E`, when its caller names `workspace`, or nothing.
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

    /// The same for a folder that a ledger knows.
    pub(crate) fn known(&self, path: PathBuf) -> Chosen {
        Chosen { own: path.starts_with(&self.own), path }
    }

    /// Whether a folder, without symbolic links, may be one that a caller named.
    pub(crate) fn allow(&self, path: &Path) -> Result<(), NotAllowed> {
        let Allowed::Roots(roots) = &self.allowed else {
            return Ok(());
        };
        if roots.iter().any(|root| path.starts_with(root)) {
            return Ok(());
        }
        let why = if roots.is_empty() {
            "it works in folders of its own only, unless it is started with --workspace-root"
        } else {
            "name one in a folder given with --workspace-root, or none"
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
    fn an_execution_without_a_workspace_gets_a_folder_of_its_own() {
        let chosen = settings(Allowed::Any).choose("", "namespaces/n/executions/e-1").unwrap();
        assert_eq!(chosen, Chosen { path: "/var/own/n/e-1".into(), own: true });
        for id in ["..", ".", "a\0b"] {
            let refused = settings(Allowed::Any).choose("", &format!("namespaces/n/executions/{id}"));
            assert_eq!(refused, Err(NotAllowed::Name(id.into())), "{id:?}");
        }
    }

    #[test]
    fn a_named_workspace_lies_under_a_root_by_whole_names() {
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
