//! The directories that may be workspaces. Pure: it only compares paths.

use std::path::{Component, Path, PathBuf};

use belay_proto::runner_v1::MadeFolder;
use belay_workspace::is_own;
use thiserror::Error;

/// The directories that a caller may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedWorkspaces {
    /// Any but the forbidden ones: the caller is the user of this machine.
    Any,
    /// Directories below these, which are canonical paths.
    Roots(Vec<PathBuf>),
}

/// The settings of workspaces.
#[derive(Clone, Debug)]
pub struct Workspaces {
    /// The directory of the runner's own workspaces: one directory per namespace, and in it the folders that it has made.
    pub own: PathBuf,
    /// The other directories that may be named.
    pub allowed: AllowedWorkspaces,
    /// Directories that a named workspace must not contain or lie in, such as the one with stores and keys.
    pub forbidden: Vec<PathBuf>,
}

/// The workspace of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChosenWorkspace {
    pub(crate) path: PathBuf,
    /// Whether it is one of the runner's own, created on demand. Any other is a directory that people work in too.
    pub(crate) own: bool,
}

impl ChosenWorkspace {
    /// Its path below the directory of the runner's own workspaces; empty for any other.
    pub(crate) fn below(&self, workspaces: &Workspaces) -> &Path {
        self.path.strip_prefix(&workspaces.own).unwrap_or(Path::new(""))
    }
}

/// Why a directory may not be a workspace.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WorkspaceRefusal {
    /// Its path is relative.
    #[error("`{0}` is a relative path: give the absolute path of the directory")]
    Relative(String),
    /// It is not below an allowed directory.
    #[error("`{path}` is not allowed as a workspace: {why}")]
    Elsewhere {
        /// The directory.
        path: String,
        /// The change that helps.
        why: &'static str,
    },
    /// The id of a folder or its namespace cannot be the name of a directory.
    #[error("`{0}` cannot be the name of a folder: name a directory as the workspace, or choose another id")]
    Name(String),
}

impl Workspaces {
    /// A directory that a request names.
    pub(crate) fn named(&self, directory: &str) -> Result<ChosenWorkspace, WorkspaceRefusal> {
        match Path::new(directory).is_absolute() {
            true => Ok(ChosenWorkspace { path: directory.into(), own: false }),
            false => Err(WorkspaceRefusal::Relative(directory.to_owned())),
        }
    }

    /// A folder of the runner's own.
    pub(crate) fn made(&self, folder: &MadeFolder) -> Result<ChosenWorkspace, WorkspaceRefusal> {
        let mut path = self.own.clone();
        for id in [&folder.namespace, &folder.id] {
            let mut parts = Path::new(id).components();
            let plain =
                matches!((parts.next(), parts.next()), (Some(Component::Normal(name)), None) if name == id.as_str());
            if !plain || id.len() > 255 || id.contains('\0') {
                return Err(WorkspaceRefusal::Name(id.clone()));
            }
            path.push(id);
        }
        Ok(ChosenWorkspace { path, own: true })
    }

    /// The workspace of a path from the ledger.
    pub(crate) fn known(&self, path: PathBuf) -> ChosenWorkspace {
        ChosenWorkspace { own: path.starts_with(&self.own), path }
    }

    /// Checks that a caller may name this canonical path.
    pub(crate) fn allow(&self, path: &Path) -> Result<(), WorkspaceRefusal> {
        let elsewhere = |why| WorkspaceRefusal::Elsewhere { path: path.display().to_string(), why };
        if path.components().any(|part| matches!(part, Component::Normal(name) if is_own(name))) {
            return Err(elsewhere(
                "Belay keeps in `.belay` what waits for a decision about another workspace; name the directory around it",
            ));
        }
        let AllowedWorkspaces::Roots(roots) = &self.allowed else {
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
        Err(elsewhere(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(allowed: AllowedWorkspaces) -> Workspaces {
        Workspaces { own: "/var/own".into(), allowed, forbidden: Vec::new() }
    }

    #[test]
    fn a_made_folder_lies_in_its_namespace() {
        let made = |namespace: &str, id: &str| {
            settings(AllowedWorkspaces::Any).made(&MadeFolder { namespace: namespace.into(), id: id.into() })
        };
        assert_eq!(made("n", "e-1.x").unwrap(), ChosenWorkspace { path: "/var/own/n/e-1.x".into(), own: true });
        for bad in ["", "..", ".", "a/b", "/a", "a/", "a\0b", &"a".repeat(256)] {
            assert_eq!(made("n", bad), Err(WorkspaceRefusal::Name(bad.into())), "{bad:?}");
            assert_eq!(made(bad, "e"), Err(WorkspaceRefusal::Name(bad.into())), "{bad:?}");
        }
    }

    #[test]
    fn a_named_workspace_lies_below_a_root_by_whole_names() {
        let some = settings(AllowedWorkspaces::Roots(vec!["/srv/work".into()]));
        assert!(some.allow(Path::new("/srv/work/a")).is_ok());
        assert!(some.allow(Path::new("/srv/work")).is_ok());
        assert!(some.allow(Path::new("/srv/work-evil")).is_err());
        assert!(settings(AllowedWorkspaces::Roots(Vec::new())).allow(Path::new("/srv/work")).is_err());
        assert!(settings(AllowedWorkspaces::Any).allow(Path::new("/home/ada")).is_ok());
        for own in ["/srv/work/.belay", "/srv/work/.belay/commits", "/srv/work/.Belay/views/x"] {
            for allowed in [AllowedWorkspaces::Any, AllowedWorkspaces::Roots(vec!["/srv/work".into()])] {
                let refused = settings(allowed).allow(Path::new(own)).unwrap_err().to_string();
                assert!(refused.contains("name the directory around it"), "{refused}");
            }
        }
        assert!(settings(AllowedWorkspaces::Any).allow(Path::new("/srv/.belay-notes")).is_ok());
        let relative = settings(AllowedWorkspaces::Any).named("work");
        assert_eq!(relative, Err(WorkspaceRefusal::Relative("work".into())));
    }
}
