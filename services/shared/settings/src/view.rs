//! Finds the program that a command would start, from the host.

use std::path::{Path, PathBuf};

use crate::{VisiblePath, is_system, toolchains::Files};

/// The host files that commands see, and their search path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The mounts besides the system directories.
    pub shown: Vec<VisiblePath>,
    /// The search path for a program name without a slash.
    pub path: Vec<PathBuf>,
}

/// The result of looking up a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Found, at this path in the sandbox.
    Found(PathBuf),
    /// A symbolic link in the sandbox refers to a path that commands do not see.
    LeadsOut {
        /// The path of the link in the sandbox.
        link: PathBuf,
        /// Its target on the host.
        target: PathBuf,
    },
    /// Not found.
    Missing,
}

impl View {
    /// Looks up the program that a command of this name starts; `name` is not a path in the workspace.
    pub fn find(&self, program: &str, files: &dyn Files) -> Lookup {
        if program.contains('/') {
            return self.look_at(Path::new(program), files);
        }
        let mut first_link = Lookup::Missing;
        for folder in &self.path {
            match self.look_at(&folder.join(program), files) {
                found @ Lookup::Found(_) => return found,
                link @ Lookup::LeadsOut { .. } if first_link == Lookup::Missing => first_link = link,
                _ => {}
            }
        }
        first_link
    }

    fn look_at(&self, path: &Path, files: &dyn Files) -> Lookup {
        let Some(host) = self.on_host(path) else { return Lookup::Missing };
        let Some(real) = files.resolve(&host).filter(|real| files.is_program(real)) else { return Lookup::Missing };
        if is_system(&real) || self.shown.iter().any(|shown| real.starts_with(&shown.from)) {
            Lookup::Found(path.to_owned())
        } else {
            Lookup::LeadsOut { link: path.to_owned(), target: real }
        }
    }

    /// The host path that is mounted at this sandbox path; of nested mounts, the deepest.
    fn on_host(&self, path: &Path) -> Option<PathBuf> {
        let shown = self.shown.iter().filter(|shown| path.starts_with(&shown.at));
        let deepest = shown.max_by_key(|shown| shown.at.components().count());
        match deepest.map(|shown| (shown, path.strip_prefix(&shown.at))) {
            // Joining an empty path would append a slash, which makes a file path invalid.
            Some((shown, Ok(rest))) if rest.as_os_str().is_empty() => Some(shown.from.clone()),
            Some((shown, Ok(rest))) => Some(shown.from.join(rest)),
            _ => is_system(path).then(|| path.to_owned()),
        }
    }
}
