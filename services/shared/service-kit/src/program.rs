//! What every stand-alone program does at its edges: keep its files to itself, and say in words why it ended.

use std::{
    error::Error,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
    process::ExitCode,
};

/// Makes a folder that only its owner can look into, or makes the one that is there so.
///
/// # Errors
/// When it cannot be made or is somebody else's.
pub fn private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Says why a program ended, cause by cause, on stderr.
pub fn end(outcome: Result<(), Box<dyn Error + Send + Sync>>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("error: {}", told(error.as_ref()));
    ExitCode::FAILURE
}

/// An error and its causes in one line. A cause that its effect already told is not told twice.
fn told(error: &dyn Error) -> String {
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
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("the store cannot be opened")]
        struct Outer(#[source] io::Error);
        assert_eq!(told(&Outer(io::Error::other("no room"))), "the store cannot be opened: no room");
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
