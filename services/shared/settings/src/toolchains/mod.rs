//! Finds the toolchains on the caller's PATH, and which of their directories commands may see.
//!
//! Commands see only the listed parts of a toolchain: those that its programs load and execute. They never see a home directory, not even
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

use crate::{SYSTEM_PATH, VisiblePath, is_system, paths};
use managers::Manager;
use prefix::Prefix;

/// Programs that a caller expects commands to find. If one is in a directory that is not visible to commands, its toolchain is searched
/// for, and `belay doctor` reports the result.
pub const PROGRAMS: [&str; 52] = [
    "ant", "bash", "bun", "bundle", "bazel", "cargo", "cc", "clang", "cmake", "composer", "deno", "dotnet", "elixir",
    "g++", "gcc", "gem", "git", "go", "gradle", "hg", "java", "javac", "just", "make", "meson", "mvn", "ninja", "node",
    "npm", "npx", "nox", "perl", "php", "pip", "pip3", "pipx", "pnpm", "poetry", "pytest", "python", "python3", "ruby",
    "rustc", "rustup", "sbt", "sh", "svn", "swift", "tox", "uv", "yarn", "zig",
];

/// The toolchains found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolchains {
    /// Files and directories to mount read-only.
    pub shown: Vec<ToolchainMount>,
    /// The PATH of commands: the visible part of the caller's, then the system's.
    pub path: Vec<PathBuf>,
    /// Variables that the toolchains need.
    pub env: Vec<(String, String)>,
    /// Directories of the caller's PATH that commands do not see, with the reason.
    pub left_out: Vec<(PathBuf, String)>,
}

/// A file or directory to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolchainMount {
    /// The mount.
    pub shown: VisiblePath,
    /// Its toolchain, such as `rustup`.
    pub of: &'static str,
}

impl Toolchains {
    /// Only the system directories.
    pub fn of_system() -> Self {
        Self { path: SYSTEM_PATH.map(PathBuf::from).to_vec(), ..Self::default() }
    }

    fn show(&mut self, from: PathBuf, at: PathBuf, of: &'static str) {
        let is_new = !self.shown.iter().any(|known| known.shown.at == at);
        if is_new && !is_system(&at) {
            self.shown.push(ToolchainMount { shown: VisiblePath { from, at }, of });
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

/// Finds the toolchains on the caller's PATH.
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
    /// Searches one directory of the PATH; otherwise returns why commands do not see it.
    fn folder(&mut self, folder: &Path) -> Result<(), String> {
        if !folder.is_absolute() {
            return Err("is relative, so it would depend on the working directory of a command".to_owned());
        }
        let Some(real) = self.files.resolve(folder).filter(|real| self.files.is_folder(real)) else {
            return Err("does not exist".to_owned());
        };
        if is_system(&real) {
            self.found.look_in(folder.to_owned());
            // System links that refer elsewhere, such as /usr/local/bin/node. Only known names are checked, because these directories are
            // large.
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
                // Not the real path: shims refer to their manager by the path of its installation.
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
                    Err(format!("contains shims of {name}, but none of the versions in its settings was found"))
                }
            }
        }
    }

    /// Mounts a directory at the path that the caller uses and at its real path: links refer to one, scripts to the other.
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

    /// Mounts the toolchains that the links in a directory refer to, and adds them to the search path. Returns whether there was one.
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

    /// Mounts the toolchain that one program of a directory links to, and returns its `bin`.
    fn leads_to_toolchain(&mut self, folder: &Path, name: &str) -> Option<PathBuf> {
        let real = self.files.resolve(&folder.join(name))?;
        let bin = real.parent().filter(|bin| !is_system(bin) && *bin != folder)?;
        let prefix = Prefix::of(bin, self.caller, self.files)?;
        self.prefix(&prefix);
        Some(bin.to_owned())
    }

    /// Supports an nvm that the shell loads lazily: uses the version of its alias `default`.
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

    /// Sets the variables that name a toolchain, if commands see it.
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
            return "is a virtual environment: call its programs by their path in the workspace (`.venv/bin/python`)"
                .to_owned();
        }
        if paths::too_much(real, self.caller.home.as_deref()).is_some() {
            return "is, or contains, a home directory".to_owned();
        }
        format!(
            "is not a known toolchain; to make it visible, add to the settings: `commands: {{read_only: [{0}], path: [{0}]}}`",
            folder.display()
        )
    }
}

#[cfg(test)]
mod tests;
