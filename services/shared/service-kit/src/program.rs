//! The needs of every stand-alone program: a private state directory, and an error message at its end.

use std::{
    error::Error,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use thiserror::Error;

use crate::state_files;

/// Creates a folder with mode 0700, or sets that mode on the existing one.
///
/// # Errors
/// When it cannot be made or belongs to another user.
pub fn private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Why a folder cannot hold state.
#[derive(Debug, Error)]
pub enum FolderError {
    /// The operating system refused.
    #[error("the folder {} cannot be made or used", .path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It belongs to another user.
    #[error("the folder {} belongs to another user: use one of your own", .0.display())]
    Foreign(PathBuf),
    /// Others may access it, and it holds more than Belay's state or every user can put files into it, so its mode stays as it is.
    #[error("{}: use a folder for Belay only{}", shared(.path, *.mode), if mode & 0o002 == 0 { "" } else { ", or take the right to write away with `chmod o-w`" })]
    Shared {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

/// Why a folder that others can access is not restricted. `mode`: its permission bits.
pub fn shared(path: &Path, mode: u32) -> String {
    let path = path.display();
    // Such as /tmp, of which others rely on that they can use it.
    if mode & 0o002 != 0 {
        return format!("every user can create files in {path} (mode {mode:04o})");
    }
    format!("other users can access {path} (mode {mode:04o}), and it contains other files")
}

/// Returns the path, without symbolic links, of a folder for a service's state that only its owner can access.
///
/// Creates the folder if it is missing. An existing one that others can access gets mode 0700 if it is a state directory already, or if it is
/// empty and not world-writable. Anything else, such as `/tmp`, stays as it is.
///
/// # Errors
/// [`FolderError`], and nothing is changed.
pub fn state_folder(path: &Path) -> Result<PathBuf, FolderError> {
    let failed = |source| FolderError::Io { path: path.to_owned(), source };
    if !path.try_exists().map_err(failed)? {
        private_folder(path).map_err(failed)?;
    }
    let path = path.canonicalize().map_err(failed)?;
    let metadata = fs::metadata(&path).map_err(failed)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(FolderError::Foreign(path));
    }
    let mode = metadata.mode() & 0o7777;
    let is_empty = || fs::read_dir(&path).map(|mut entries| entries.next().is_none());
    let is_ours = state_files::TELLING.iter().any(|name| path.join(name).is_file());
    if mode & 0o077 != 0 && !is_ours && (mode & 0o002 != 0 || !is_empty().map_err(failed)?) {
        return Err(FolderError::Shared { path, mode });
    }
    private_folder(&path).map_err(failed)?;
    Ok(path)
}

/// Prints why a program ended, with all causes, to stderr.
pub fn end(outcome: Result<(), Box<dyn Error + Send + Sync>>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("error: {}", with_causes(error.as_ref()));
    ExitCode::FAILURE
}

/// An error and its causes in one line. A cause that the error before it already names is not repeated.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_named_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("the store cannot be opened")]
        struct Outer(#[source] io::Error);
        assert_eq!(with_causes(&Outer(io::Error::other("no room"))), "the store cannot be opened: no room");
    }

    #[test]
    fn a_state_folder_is_made_or_closed_and_never_taken_from_another_user() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let there = |name: &str, mode: u32, holds: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            if !holds.is_empty() {
                fs::write(path.join(holds), "").unwrap();
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        assert_eq!(mode(&state_folder(&folder.path().join("new/deep")).unwrap()), 0o700);
        for taken in [there("empty", 0o775, ""), there("ours", 0o777, "ledger.db"), there("closed", 0o700, "any")] {
            assert_eq!(state_folder(&taken).unwrap(), taken.canonicalize().unwrap());
            assert_eq!(mode(&taken), 0o700, "{}", taken.display());
        }
        let cases = [
            (there("used", 0o755, "letter"), 0o755, "it contains other files: use"),
            (there("tmp", 0o1777, ""), 0o1777, "every user can create files in"),
            (
                there("open", 0o777, ""),
                0o777,
                "(mode 0777): use a folder for Belay only, or take the right to write away",
            ),
        ];
        for (shared, open, says) in cases {
            let refused = state_folder(&shared).unwrap_err();
            assert!(matches!(refused, FolderError::Shared { mode, .. } if mode == open), "{refused:?}");
            assert!(refused.to_string().contains("use a folder for Belay only"), "{refused}");
            assert!(refused.to_string().contains(says), "{refused}");
            assert_eq!(mode(&shared), open, "it stays as it is");
        }
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(state_folder(&folder.path().join("file")).is_err());
    }

    #[test]
    fn a_folder_is_made_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        private_folder(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        private_folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
