//! A folder of this machine that is read: nothing outside of it, and nothing behind a symbolic link.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
};

use rustix::{
    fs::{Dir, Mode, OFlags, fstat, open},
    io::Errno,
};

use crate::{
    open::{DIRECTORY, NotAFile, open_beneath, open_file, stat_entry},
    path::{RelPath, is_own},
    stat::{FileKind, FileTime, Stat},
};

/// A folder that is read.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
    device: u64,
}

/// What is at a path of a [`Folder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its kind. A symbolic link is not followed.
    pub kind: FileKind,
    /// Its size in bytes.
    pub size: u64,
    /// Its inode.
    pub inode: u64,
    /// When its content was changed last.
    pub modified: FileTime,
    /// When its content or anything else about it was changed last, which no program can set.
    pub changed: FileTime,
    /// Whether it is on another file system than the folder.
    pub is_elsewhere: bool,
}

impl Folder {
    /// Opens a folder by its absolute path, whose last name is no symbolic link.
    ///
    /// # Errors
    /// When it is not there, is no folder, or cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = open(path, DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let device = Stat::from(fstat(&root)?).dev;
        Ok(Self { root, device })
    }

    /// The entries of a folder in it, sorted by path, and whether there are more than `most`, which it has in any order. What is called `.belay` is left out: no
    /// path names it.
    ///
    /// # Errors
    /// When it is gone, is no folder, or cannot be read.
    pub fn list(&self, path: &RelPath, most: usize) -> io::Result<(Vec<(RelPath, FolderEntry)>, bool)> {
        let folder = open_beneath(&self.root, path, DIRECTORY)?;
        let (mut names, mut is_cut) = (Vec::new(), false);
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || is_own(name) {
                continue;
            }
            if names.len() == most {
                is_cut = true;
                break;
            }
            names.push(name.to_owned());
        }
        names.sort_unstable();
        let mut entries = Vec::new();
        for name in names {
            // It may be gone meanwhile.
            if let Some(stat) = stat_entry(&folder, &name)? {
                entries.push((path.join(&name), self.entry(&stat)));
            }
        }
        Ok((entries, is_cut))
    }

    /// Reads a regular file: at most `length` bytes of it. Returns it with what it was when it was opened; no pipe or device blocks.
    ///
    /// # Errors
    /// When it is gone, is something else, or cannot be read.
    pub fn read(&self, path: &RelPath, length: u64) -> io::Result<(Vec<u8>, FolderEntry)> {
        let (Some(parent), Some(name)) = (path.parent(), path.name()) else {
            return Err(Errno::ISDIR.into());
        };
        let folder = open_beneath(&self.root, &parent, DIRECTORY)?;
        let (file, stat) = open_file(&folder, name).map_err(|problem| match problem {
            NotAFile::Other(_) => io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"),
            NotAFile::Unopened(error) => error.into(),
        })?;
        let mut bytes = Vec::new();
        File::from(file).take(length).read_to_end(&mut bytes)?;
        Ok((bytes, self.entry(&stat)))
    }

    fn entry(&self, stat: &Stat) -> FolderEntry {
        FolderEntry {
            kind: stat.kind,
            size: stat.size,
            inode: stat.ino,
            modified: stat.modified,
            changed: stat.changed,
            is_elsewhere: stat.dev != self.device,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn it_reads_what_is_in_it_and_nothing_else() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(inside.path().join("a/.belay")).unwrap();
        fs::write(inside.path().join("a/text"), "0123456789").unwrap();
        fs::write(outside.path().join("secret"), "canary").unwrap();
        symlink(outside.path(), inside.path().join("out")).unwrap();
        symlink("text", inside.path().join("a/link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            inside.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let folder = Folder::open(inside.path()).unwrap();
        let list = |at: &str| {
            let entries = folder.list(&path(at), 9).unwrap().0;
            entries.iter().map(|(path, entry)| (path.written(), entry.kind)).collect::<Vec<_>>()
        };
        let named = |name: &str, kind| (name.to_owned(), kind);
        assert_eq!(
            list("."),
            [named("a", FileKind::Directory), named("out", FileKind::Symlink), named("pipe", FileKind::Fifo)]
        );
        assert_eq!(list("a"), [named("a/link", FileKind::Symlink), named("a/text", FileKind::File)]);
        let (bytes, entry) = folder.read(&path("a/text"), 4).unwrap();
        assert_eq!((bytes.as_slice(), entry.size, entry.is_elsewhere), (b"0123".as_slice(), 10, false));
        for not_read in ["out/secret", "a/link", "pipe", "a", ".", "none"] {
            assert!(folder.read(&path(not_read), 9).is_err(), "{not_read}");
        }
        assert!(folder.list(&path("out"), 9).is_err() && folder.list(&path("a/text"), 9).is_err());
        assert!(matches!(folder.list(&path("."), 2), Ok((entries, true)) if entries.len() == 2));
        assert!(Folder::open(&inside.path().join("out")).is_err(), "a link");
        assert!(Folder::open(&inside.path().join("a/text")).is_err(), "a file");
    }
}
