//! A file system as far as looking for toolchains asks it.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Longest file that is read, in bytes: the settings of a version manager.
const MAX_TEXT: u64 = 64 * 1024;
/// Most entries of a folder that are looked at.
const MAX_NAMES: usize = 20_000;

/// A file system as far as looking for toolchains asks it.
pub trait Files {
    /// The path without symbolic links; `None` when it does not exist.
    fn resolve(&self, path: &Path) -> Option<PathBuf>;
    /// Whether there is a folder, links followed.
    fn is_folder(&self, path: &Path) -> bool;
    /// Whether there is a file, links followed.
    fn is_file(&self, path: &Path) -> bool;
    /// Whether there is a file that somebody may execute, links followed.
    fn is_program(&self, path: &Path) -> bool;
    /// The names in a folder, sorted; none when there is no such folder.
    fn names(&self, folder: &Path) -> Vec<String>;
    /// A short text; `None` when it cannot be read as one.
    fn text(&self, file: &Path) -> Option<String>;
}

/// This machine's.
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl Files for Host {
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        fs::canonicalize(path).ok()
    }

    fn is_folder(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn is_program(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    }

    fn names(&self, folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_NAMES);
        let mut names: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn text(&self, file: &Path) -> Option<String> {
        let file = fs::File::open(file).ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()))?;
        let mut text = String::new();
        file.take(MAX_TEXT).read_to_string(&mut text).ok()?;
        Some(text)
    }
}
