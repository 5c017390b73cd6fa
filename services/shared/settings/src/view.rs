//! Which program a command would start: the view as seen from the host.

use std::path::{Path, PathBuf};

use crate::{Shown, is_system, toolchains::Files};

/// What commands see of the host beside their workspace, and where they look for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What is shown beside the system's folders.
    pub shown: Vec<Shown>,
    /// The folders in which a program without a slash is looked for.
    pub path: Vec<PathBuf>,
}

/// What a command finds under a program's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The program, at this path of the view.
    Found(PathBuf),
    /// A link of this path in the view leads to a place that commands do not see.
    LeadsOut {
        /// The link, in the view.
        link: PathBuf,
        /// Where it leads, on the host.
        target: PathBuf,
    },
    /// There is none.
    Missing,
}

impl View {
    /// The program that a command of this name would start, which is no path in the workspace.
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

    /// The path of the host that is shown at this path of the view: of what is shown one below the other, the deepest.
    fn on_host(&self, path: &Path) -> Option<PathBuf> {
        let shown = self.shown.iter().filter(|shown| path.starts_with(&shown.at));
        let deepest = shown.max_by_key(|shown| shown.at.components().count());
        match deepest.map(|shown| (shown, path.strip_prefix(&shown.at))) {
            // Joining nothing would leave a slash, with which a file is no file.
            Some((shown, Ok(rest))) if rest.as_os_str().is_empty() => Some(shown.from.clone()),
            Some((shown, Ok(rest))) => Some(shown.from.join(rest)),
            _ => is_system(path).then(|| path.to_owned()),
        }
    }
}
