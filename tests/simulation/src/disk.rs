//! Files on the simulated disk, for SQLite and for the simulation's workspaces. The disk fails, fills up and loses power with its machine. Safe,
//! and without C.
//!
//! A sync follows SQLite's own unix VFS: the first sync of a journal or log that was opened to be created if need be also syncs
//! its folder, whichever process created it; a new database is not synced into its folder separately. So a store that survives here does not
//! rely on more than a real disk guarantees.
//!
//! turmoil identifies files by name, not by inode. This module corrects three consequences:
//! - A removed name that is created again before its folder is synced would show its old content, and the sync of the folder
//!   would then destroy the new. Such a removal is made durable before the name is created again.
//! - A folder synced after a new file would undo what the file's sync made durable, in that same case. Folders go first.
//! - A file that shrank and grew again would, until its sync, read its old content in the gap. The gap is written as zeros.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use turmoil::fs::shim::std::fs::{self, File, OpenOptions};

use crate::machine::{self, Access, Boot, Refusal, Volume};
use crate::trace;

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Refused(Refusal),
    NotFound,
    /// Another connection of this machine has the database.
    Busy,
    Io(io::Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(Refusal::Full) => io::ErrorKind::StorageFull.into(),
            Failure::Refused(Refusal::Dead | Refusal::Failed) => Self::from_raw_os_error(libc::EIO),
            Failure::NotFound => io::ErrorKind::NotFound.into(),
            Failure::Busy => io::ErrorKind::ResourceBusy.into(),
            Failure::Io(error) => error,
        }
    }
}

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// How to open a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mode {
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) writable: bool,
    /// A journal or a log: when `create` is set its first sync syncs the folder too.
    pub(crate) is_journal: bool,
    /// A database: one handle a machine.
    pub(crate) is_database: bool,
    pub(crate) delete_on_close: bool,
}

/// An open file of one run of one machine.
pub(crate) struct OpenFile {
    boot: Boot,
    path: PathBuf,
    // Taken when closing; leaked by a dead machine, which closes nothing.
    file: Option<File>,
    mode: Mode,
    folder_sync_due: bool,
}

impl OpenFile {
    pub(crate) fn open(path: &Path, mode: Mode) -> Result<Self> {
        let boot = machine::current().ok_or(Refusal::Dead)?;
        machine::access(boot, Access::Read)?;
        let creates = !fs::exists(path);
        if creates && !mode.create {
            return Err(Failure::NotFound);
        }
        if creates {
            machine::access(boot, Access::Grow(Volume::of(path)))?;
            trace::detail(format_args!("create {}", path.display()));
            if machine::take_unlinked(boot, path) {
                fs::sync_dir(folder(path))?;
            }
        }
        let file = OpenOptions::new()
            .read(true)
            .write(mode.writable)
            .create(mode.create)
            .create_new(mode.create && mode.exclusive)
            .open(path)?;
        if mode.is_database && !machine::claim_database(boot, path) {
            return Err(Failure::Busy);
        }
        let folder_sync_due = mode.create && mode.is_journal;
        Ok(Self { boot, path: path.to_owned(), file: Some(file), mode, folder_sync_due })
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("a file is taken only by its close")
    }

    /// Reads into `buffer` from `offset` in bytes; returns how many there were.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        machine::access(self.boot, Access::Read)?;
        let mut length = 0;
        while length < buffer.len() {
            match self.file().read_at(&mut buffer[length..], offset + length as u64)? {
                0 => break,
                read => length += read,
            }
        }
        Ok(length)
    }

    /// Everything in the file.
    pub(crate) fn read_all(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut piece = vec![0; READ_SIZE];
        loop {
            match self.read(&mut piece, bytes.len() as u64)? {
                0 => return Ok(bytes),
                length => bytes.extend_from_slice(&piece[..length]),
            }
        }
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Result {
        let length = self.file_length()?;
        let grows = offset + data.len() as u64 > length;
        machine::access(self.boot, if grows { Access::Grow(Volume::of(&self.path)) } else { Access::Write })?;
        trace::detail(format_args!("write {} {offset}+{} {:016x}", self.path.display(), data.len(), digest(data)));
        if offset > length {
            let gap = usize::try_from(offset - length).map_err(io::Error::other)?;
            self.file().write_all_at(&vec![0; gap], length)?;
        }
        Ok(self.file().write_all_at(data, offset)?)
    }

    pub(crate) fn truncate(&self, length: u64) -> Result {
        machine::access(self.boot, Access::Write)?;
        trace::detail(format_args!("truncate {} {length}", self.path.display()));
        Ok(self.file().set_len(length)?)
    }

    pub(crate) fn sync(&mut self) -> Result {
        if self.folder_sync_due {
            machine::access(self.boot, Access::Sync)?;
            sync_folder(&self.path)?;
            self.folder_sync_due = false;
        }
        machine::access(self.boot, Access::Sync)?;
        trace::detail(format_args!("sync {}", self.path.display()));
        Ok(self.file().sync_all()?)
    }

    /// The file's length in bytes.
    pub(crate) fn length(&self) -> Result<u64> {
        machine::access(self.boot, Access::Read)?;
        self.file_length()
    }

    fn file_length(&self) -> Result<u64> {
        // turmoil uses the disk of the executing machine, to which a dead machine's file does not belong.
        if machine::current() != Some(self.boot) {
            return Err(Refusal::Dead.into());
        }
        Ok(self.file().metadata()?.len())
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let file = self.file.take();
        if machine::current() != Some(self.boot) {
            // Its descriptor number may by now be another machine's.
            std::mem::forget(file);
            return;
        }
        drop(file);
        if self.mode.is_database {
            machine::release_database(self.boot, &self.path);
        }
        if self.mode.delete_on_close {
            // A temporary file that cannot be removed stays until the next power loss.
            let _ = remove(&self.path, false);
        }
    }
}

/// Removes the name `path`, durably when `sync` is set.
pub(crate) fn remove(path: &Path, sync: bool) -> Result {
    let boot = machine::current().ok_or(Refusal::Dead)?;
    machine::access(boot, Access::Write)?;
    if !fs::exists(path) {
        return Err(Failure::NotFound);
    }
    trace::detail(format_args!("remove {}", path.display()));
    fs::remove_file(path)?;
    if sync {
        machine::access(boot, Access::Sync)?;
        sync_folder(path)
    } else {
        machine::note_unlinked(boot, path);
        Ok(())
    }
}

/// The size of one read, in bytes.
const READ_SIZE: usize = 16 << 10;

/// All that is in a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    OpenFile::open(path, Mode::default())?.read_all()
}

/// Replaces a file with this content, durably.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result {
    let mode = Mode { create: true, writable: true, is_journal: true, ..Mode::default() };
    let mut file = OpenFile::open(path, mode)?;
    file.truncate(0)?;
    file.write(content, 0)?;
    file.sync()
}

/// Gives a file another name in its folder, in place of one that has it. Durable with the folder's sync.
pub(crate) fn rename(from: &Path, to: &Path) -> Result {
    let boot = machine::current().ok_or(Refusal::Dead)?;
    machine::access(boot, Access::Write)?;
    trace::detail(format_args!("rename {} {}", from.display(), to.display()));
    fs::rename(from, to)?;
    // turmoil keeps content by name: a file that is made under the old name would lose it with the rename.
    machine::note_unlinked(boot, from);
    Ok(())
}

/// Removes an empty folder.
pub(crate) fn remove_folder(path: &Path) -> Result {
    let boot = machine::current().ok_or(Refusal::Dead)?;
    machine::access(boot, Access::Write)?;
    trace::detail(format_args!("remove folder {}", path.display()));
    Ok(fs::remove_dir(path)?)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_names(path: &Path) -> Result {
    let boot = machine::current().ok_or(Refusal::Dead)?;
    machine::access(boot, Access::Sync)?;
    trace::detail(format_args!("sync folder {}", path.display()));
    Ok(fs::sync_dir(path)?)
}

/// Whether `path` exists.
pub(crate) fn exists(path: &Path) -> Result<bool> {
    let boot = machine::current().ok_or(Refusal::Dead)?;
    machine::access(boot, Access::Read)?;
    Ok(fs::exists(path))
}

/// Makes a folder and those above it, durably.
pub(crate) fn make_folder(path: &Path) -> Result {
    let boot = machine::current().ok_or(Refusal::Dead)?;
    if exists(path)? {
        return Ok(());
    }
    machine::access(boot, Access::Grow(Volume::of(path)))?;
    trace::detail(format_args!("make folder {}", path.display()));
    fs::create_dir_all(path)?;
    machine::access(boot, Access::Sync)?;
    path.ancestors().skip(1).try_for_each(fs::sync_dir)?;
    Ok(())
}

/// The names in a folder, sorted.
pub(crate) fn names(path: &Path) -> Result<Vec<String>> {
    let boot = machine::current().ok_or(Refusal::Dead)?;
    machine::access(boot, Access::Read)?;
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let mut names = fs::read_dir(path)?.map(name).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// The content of every file below a folder, by path.
pub(crate) fn tree(path: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for name in names(path)? {
        let path = path.join(name);
        if fs::metadata(&path)?.is_dir() {
            files.extend(tree(&path)?);
        } else {
            let content = read(&path)?;
            files.insert(path, content);
        }
    }
    Ok(files)
}

fn sync_folder(path: &Path) -> Result {
    trace::detail(format_args!("sync folder of {}", path.display()));
    Ok(fs::sync_dir(folder(path))?)
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// FNV-1a, so that a trace distinguishes contents.
fn digest(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
