//! The toolchains on a caller's PATH, and which of their folders commands may see.
//!
//! Nothing is shown but what a list names: the folders of a toolchain that its programs load and execute. A home is never shown, not even
//! without the files that are known to hold credentials.

mod caller;
mod files;
mod managers;
mod prefix;

pub use caller::{Caller, VARIABLES};
pub use files::{Files, Host};

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{SYSTEM_PATH, Shown, is_system, paths};
use managers::Manager;
use prefix::Prefix;

/// Programs of which a caller expects that commands can use them: when one lies in a folder that is shown to nobody, its toolchain is
/// looked for, and `belay doctor` says what became of it.
pub const PROGRAMS: [&str; 52] = [
    "ant", "bash", "bun", "bundle", "bazel", "cargo", "cc", "clang", "cmake", "composer", "deno", "dotnet", "elixir",
    "g++", "gcc", "gem", "git", "go", "gradle", "hg", "java", "javac", "just", "make", "meson", "mvn", "ninja", "node",
    "npm", "npx", "nox", "perl", "php", "pip", "pip3", "pipx", "pnpm", "poetry", "pytest", "python", "python3", "ruby",
    "rustc", "rustup", "sbt", "sh", "svn", "swift", "tox", "uv", "yarn", "zig",
];

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolchains {
    /// Folders and files to show, read-only.
    pub shown: Vec<Found>,
    /// The PATH of commands: the caller's, as far as commands see it, then the system's.
    pub path: Vec<PathBuf>,
    /// Variables without which the toolchains do not work.
    pub env: Vec<(String, String)>,
    /// Folders of the caller's PATH that commands do not see, with the reason.
    pub left_out: Vec<(PathBuf, String)>,
}

/// Something to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What.
    pub shown: Shown,
    /// The toolchain it belongs to, such as `rustup`.
    pub of: &'static str,
}

impl Toolchains {
    /// Nobody's: the system's programs.
    pub fn of_system() -> Self {
        Self { path: SYSTEM_PATH.map(PathBuf::from).to_vec(), ..Self::default() }
    }

    fn show(&mut self, from: PathBuf, at: PathBuf, of: &'static str) {
        let is_new = !self.shown.iter().any(|known| known.shown.at == at);
        if is_new && !is_system(&at) {
            self.shown.push(Found { shown: Shown { from, at }, of });
        }
    }

    fn look_in(&mut self, folder: PathBuf) {
        if !self.path.contains(&folder) {
            self.path.push(folder);
        }
    }

    fn set(&mut self, name: &str, value: &Path) {
        if let Some(value) = value.to_str()
            && !self.env.iter().any(|(known, _)| known == name)
        {
            self.env.push((name.to_owned(), value.to_owned()));
        }
    }
}

/// Looks for the toolchains on the caller's PATH.
pub fn find(caller: &Caller, files: &dyn Files) -> Toolchains {
    let mut search = Search { caller, files, found: Toolchains::default() };
    let mut seen = BTreeSet::new();
    for folder in caller.path.iter().filter(|folder| seen.insert(*folder)) {
        if let Err(reason) = search.folder(folder) {
            search.found.left_out.push((folder.clone(), reason));
        }
    }
    search.lazy_node();
    search.homes();
    for folder in SYSTEM_PATH {
        search.found.look_in(folder.into());
    }
    search.found
}

struct Search<'a> {
    caller: &'a Caller,
    files: &'a dyn Files,
    found: Toolchains,
}

impl Search<'_> {
    /// One folder of the PATH; else why commands do not see it.
    fn folder(&mut self, folder: &Path) -> Result<(), String> {
        if !folder.is_absolute() {
            return Err("is relative, and so means another folder wherever a command starts".to_owned());
        }
        let Some(real) = self.files.resolve(folder).filter(|real| self.files.is_folder(real)) else {
            return Err("does not exist".to_owned());
        };
        if is_system(&real) {
            self.found.look_in(folder.to_owned());
            // Links of the system's that lead elsewhere, such as /usr/local/bin/node. Its folders are long: not every name is looked at.
            for name in PROGRAMS {
                self.leads_to_toolchain(folder, name);
            }
            return Ok(());
        }
        if let Some(manager) = Manager::of(folder, &real, self.caller, self.files) {
            return self.manager(manager, folder);
        }
        if let Some(prefix) = Prefix::of(&real, self.caller, self.files) {
            self.prefix(&prefix);
            self.found.look_in(real);
            return Ok(());
        }
        if self.links(folder) {
            return Ok(());
        }
        Err(self.unknown(folder, &real))
    }

    fn manager(&mut self, manager: Manager, folder: &Path) -> Result<(), String> {
        match manager {
            Manager::Shown { name, shown, env } => {
                for part in &shown {
                    self.show_both(part, name);
                }
                for (variable, value) in env {
                    self.found.set(variable, &value);
                }
                // Not the real folder: shims name their manager by the path with which it was installed.
                self.found.look_in(folder.to_owned());
                Ok(())
            }
            Manager::Versions { name, folders } => {
                let mut any = false;
                for bin in folders {
                    let Some(real) = self.files.resolve(&bin) else { continue };
                    if let Some(prefix) = Prefix::of(&real, self.caller, self.files) {
                        self.prefix(&prefix);
                        self.found.look_in(real);
                        any = true;
                    }
                }
                if any {
                    Ok(())
                } else {
                    Err(format!("holds shims of {name}, and none of the versions that its settings name was found"))
                }
            }
        }
    }

    /// Shows a folder where the caller knows it, and where it really is: links lead to the one and scripts name the other.
    fn show_both(&mut self, part: &Path, of: &'static str) {
        let Some(real) = self.files.resolve(part) else { return };
        if paths::too_much(&real, self.caller.home.as_deref()).is_some() {
            return;
        }
        self.found.show(real.clone(), part.to_owned(), of);
        self.found.show(real.clone(), real, of);
    }

    fn prefix(&mut self, prefix: &Prefix) {
        for part in &prefix.parts {
            if let Some(real) = self.files.resolve(part) {
                self.found.show(real, part.clone(), prefix.kind);
            }
        }
    }

    /// Shows the toolchains that a folder's programs are links into, and looks for programs in them. Whether there was one.
    fn links(&mut self, folder: &Path) -> bool {
        let names = self.files.names(folder).into_iter().filter(|name| {
            // `python3.12` as well as `python3`.
            let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            PROGRAMS.contains(&name.as_str()) || PROGRAMS.contains(&plain)
        });
        let mut any = false;
        for name in names {
            if let Some(bin) = self.leads_to_toolchain(folder, &name) {
                self.found.look_in(bin);
                any = true;
            }
        }
        any
    }

    /// Shows the toolchain that one program of a folder is a link into: its `bin`.
    fn leads_to_toolchain(&mut self, folder: &Path, name: &str) -> Option<PathBuf> {
        let real = self.files.resolve(&folder.join(name))?;
        let bin = real.parent().filter(|bin| !is_system(bin) && *bin != folder)?;
        let prefix = Prefix::of(bin, self.caller, self.files)?;
        self.prefix(&prefix);
        Some(bin.to_owned())
    }

    /// nvm that a shell loads when it is first used: the version that its alias `default` names.
    fn lazy_node(&mut self) {
        let Some(bin) = managers::nvm_default(self.caller, self.files) else { return };
        let has_node = |folder: &PathBuf| self.files.is_program(&folder.join("node"));
        if self.caller.path.iter().any(has_node) {
            return;
        }
        if let Some(prefix) = Prefix::of(&bin, self.caller, self.files) {
            self.prefix(&prefix);
            self.found.look_in(bin);
        }
    }

    /// Variables that name a toolchain, where commands see it.
    fn homes(&mut self) {
        for name in caller::HOMES {
            let Some(real) = self.caller.folder(name).and_then(|home| self.files.resolve(&home)) else { continue };
            let bin = real.join("bin");
            if is_system(&real) || self.found.shown.iter().any(|found| found.shown.at == bin) {
                self.found.set(name, &real);
            }
        }
    }

    fn unknown(&self, folder: &Path, real: &Path) -> String {
        if let Some(parent) = real.parent()
            && self.files.is_file(&parent.join("pyvenv.cfg"))
        {
            return "is a virtual environment: its programs run where it lies in the workspace, by their path (`.venv/bin/python`)".to_owned();
        }
        if paths::too_much(real, self.caller.home.as_deref()).is_some() {
            return "is a home directory, or holds one".to_owned();
        }
        format!(
            "is not a known toolchain; to show it, write to the settings: `commands: {{read_only: [{0}], path: [{0}]}}`",
            folder.display()
        )
    }
}

#[cfg(test)]
mod tests;
