//! The file system operations that the toolchain search needs.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// The largest file that is read, in bytes: the settings of a version manager.
const MAX_TEXT: u64 = 64 * 1024;
/// The maximum number of directory entries that are read.
const MAX_NAMES: usize = 20_000;

/// The file system operations that the toolchain search needs.
pub trait Files {
    /// The path without symbolic links; `None` when it does not exist.
    fn resolve(&self, path: &Path) -> Option<PathBuf>;
    /// Whether the path is a directory, following links.
    fn is_folder(&self, path: &Path) -> bool;
    /// Whether the path is a file, following links.
    fn is_file(&self, path: &Path) -> bool;
    /// Whether the path is an executable file, following links.
    fn is_program(&self, path: &Path) -> bool;
    /// The names in a directory, sorted; empty if it does not exist.
    fn names(&self, folder: &Path) -> Vec<String>;
    /// The content of a short text file; `None` if it cannot be read.
    fn text(&self, file: &Path) -> Option<String>;
}

/// The file system of this machine.
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
