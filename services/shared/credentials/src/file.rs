//! Reads a value from a file.

use std::path::Path;

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, open},
    io::Errno,
};

use crate::{
    buffer::{Buffer, ReadOnce},
    problem::FileProblem,
};

/// Reads a file that no other user can read or change. Symbolic links at its end are not followed.
///
/// # Errors
/// [`FileProblem`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileProblem> {
    // Without waiting for whoever writes into a pipe of this name.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => FileProblem::Missing,
        Errno::LOOP => FileProblem::Link,
        // A socket.
        Errno::NXIO => FileProblem::NotAFile,
        other => FileProblem::Unreadable(other.into()),
    })?;
    let found = fstat(&file).map_err(|error| FileProblem::Unreadable(error.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(FileProblem::NotAFile);
    }
    if let Some(problem) = exposed(found.st_uid, found.st_mode, rustix::process::geteuid().as_raw()) {
        return Err(problem);
    }
    let mut buffer = Buffer::of_value();
    while buffer.read_once(&file).map_err(FileProblem::Unreadable)? == ReadOnce::Bytes {}
    Ok(buffer.into_bytes())
}

/// How other users can read or change a file with this owner and mode.
fn exposed(owner: u32, mode: u32, own: u32) -> Option<FileProblem> {
    if owner != 0 && owner != own {
        return Some(FileProblem::Foreign { owner });
    }
    (mode & 0o027 != 0).then_some(FileProblem::Exposed { mode: mode & 0o7777 })
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{
            fs::{PermissionsExt as _, symlink},
            net::UnixListener,
        },
    };

    use rustix::fs::{CWD, mknodat};

    use super::*;
    use crate::{ReadProblem, buffer::MAX_READ};

    fn file_with_mode(folder: &Path, mode: u32) -> std::path::PathBuf {
        let path = folder.join(format!("{mode:o}"));
        fs::write(&path, "0123456789\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn message(path: &Path) -> String {
        ReadProblem::File { path: path.to_owned(), problem: read(path).unwrap_err() }.to_string()
    }

    #[test]
    fn a_file_that_others_can_read_or_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o400, 0o600, 0o440, 0o640] {
            assert_eq!(read(&file_with_mode(folder.path(), mode)).unwrap(), b"0123456789\n", "{mode:o}");
        }
        for mode in [0o644, 0o604, 0o660, 0o620, 0o602, 0o666] {
            let path = file_with_mode(folder.path(), mode);
            let message = message(&path);
            let start =
                format!("the file {} can be read or changed by other users (mode {mode:04o}): ", path.display());
            assert!(message.starts_with(&start) && message.contains("run `chmod g-w,o=` on it"), "{message}");
            assert!(!message.contains("0123456789"), "{message}");
        }
        assert!(matches!(exposed(1001, 0o100_600, 1000), Some(FileProblem::Foreign { owner: 1001 })));
        assert!(exposed(0, 0o100_440, 1000).is_none() && exposed(1000, 0o100_600, 1000).is_none());
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink(file_with_mode(folder.path(), 0o600), at("link")).unwrap();
        assert!(message(&at("link")).contains("is a symbolic link, which is not followed: name the file"));
        // Whoever waits for a writer waits for ever.
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        for other in [folder.path().to_owned(), at("pipe"), at("socket"), "/dev/null".into()] {
            let message = message(&other);
            assert!(message.contains("is not a regular file"), "{message}");
        }
        let missing = message(&at("none"));
        assert!(missing.contains("does not exist: write the value into it"), "{missing}");
        let below = message(&at("600").join("x"));
        assert!(below.contains("cannot be read: Not a directory"), "{below}");
        // A link on the way is followed.
        symlink(folder.path(), at("folder")).unwrap();
        assert!(read(&at("folder/600")).is_ok());
    }

    #[test]
    fn no_more_is_read_than_a_value_can_have() {
        let folder = tempfile::tempdir().unwrap();
        let path = file_with_mode(folder.path(), 0o600);
        fs::write(&path, vec![b'a'; 1 << 20]).unwrap();
        assert_eq!(read(&path).unwrap().len(), MAX_READ + 1);
        fs::write(&path, "").unwrap();
        assert_eq!(read(&path).unwrap(), b"");
    }
}
