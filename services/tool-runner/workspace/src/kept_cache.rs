//! Keeps a cache whole: a merge into it that is interrupted leaves an empty cache, never half of what a command has left.
//!
//! A file beside the cache, its mark, holds a word from before the first change of a merge until after the last. Who merges locks the mark, and the
//! kernel takes the lock away when the process ends. So a mark with its word that can be locked is that of a merge which no process will finish: the cache is emptied
//! before it is used again. Both lie in the runner's state directory, where no command writes.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    },
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, fstat, ftruncate, openat},
    io::Errno,
};

use crate::{QuietSeam, disk::Disk, open::stat_entry, remove::remove_tree, stat::Stat};

/// The end of a mark's name.
const MARK: &str = ".merging";

/// The content of a mark while its cache is not whole.
const WORD: &[u8] = b"A merge into this cache is under way, or was interrupted.\n";

/// Makes a cache ready for a command: creates it, waits for a merge that is under way, and empties it where one was interrupted. Returns whether it was.
///
/// # Errors
///
/// An error of the file system.
pub fn prepare_cache(cache: &Path) -> io::Result<bool> {
    DirBuilder::new().recursive(true).mode(0o700).create(cache)?;
    let place = Place::of(cache)?;
    // Most caches have no mark.
    if stat_entry(&place.folder, &place.mark)?.is_none() {
        return Ok(false);
    }
    let disk = Disk::of(&place.folder, Arc::new(QuietSeam));
    let (_lock, was_emptied) = place.lock(&disk)?;
    disk.unlink(&place.folder, &place.mark)?;
    Ok(was_emptied)
}

/// A merge under way. Unless it is finished, the cache is emptied before its next use.
pub(crate) struct CacheMerge<'a> {
    disk: &'a Disk,
    place: Place,
    /// Locks the mark until it is closed.
    _lock: OwnedFd,
}

impl<'a> CacheMerge<'a> {
    /// Waits for other merges into this cache, and begins one.
    pub(crate) fn begin(disk: &'a Disk, cache: &Path) -> io::Result<Self> {
        let place = Place::of(cache)?;
        let (lock, _) = place.lock(disk)?;
        disk.write_all(&lock, WORD)?;
        disk.sync(&lock)?;
        disk.sync(&place.folder)?;
        Ok(Self { disk, place, _lock: lock })
    }

    /// Ends the merge: everything is merged.
    pub(crate) fn finish(self) -> io::Result<()> {
        Ok(self.disk.unlink(&self.place.folder, &self.place.mark)?)
    }
}

/// Where a cache and its mark are.
struct Place {
    folder: OwnedFd,
    name: OsString,
    mark: OsString,
}

impl Place {
    fn of(cache: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (cache.parent(), cache.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = (OFlags::DIRECTORY | OFlags::CLOEXEC).bits();
        let folder = fs::OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(parent)?;
        let (name, mut mark) = (name.to_owned(), name.to_owned());
        mark.push(MARK);
        Ok(Self { folder: folder.into(), name, mark })
    }

    /// Locks the mark, which is created where there is none. The cache is whole from then on: where it was not, it is emptied. Returns whether it was.
    fn lock(&self, disk: &Disk) -> Result<(OwnedFd, bool), Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let mark = openat(&self.folder, &self.mark, flags, Mode::RUSR | Mode::WUSR)?;
            flock(&mark, FlockOperation::LockExclusive)?;
            let locked = Stat::from(fstat(&mark)?);
            // Who had locked it before may have removed it.
            let found = stat_entry(&self.folder, &self.mark)?;
            if found.is_none_or(|found| (found.dev, found.ino) != (locked.dev, locked.ino)) {
                continue;
            }
            let is_broken = locked.size > 0;
            if is_broken {
                self.empty(disk)?;
                ftruncate(&mark, 0)?;
            }
            return Ok((mark, is_broken));
        }
    }

    fn empty(&self, disk: &Disk) -> Result<(), Errno> {
        remove_tree(disk, &self.folder, &self.name)?;
        disk.create_directory(&self.folder, &self.name, 0o700)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{atomic::AtomicU64, mpsc},
        thread,
        time::Duration,
    };

    use super::*;
    use crate::disk::deadly::Deadly;

    fn disk(place: &Path, changes: u64) -> Disk {
        Disk::of(fs::File::open(place).unwrap(), Arc::new(Deadly(AtomicU64::new(changes))))
    }

    #[test]
    fn a_merge_that_is_not_finished_leaves_an_empty_cache() {
        let place = tempfile::tempdir().unwrap();
        let cache = place.path().join("kept/cargo");
        assert!(!prepare_cache(&cache).unwrap());
        let disk = disk(place.path(), u64::MAX);
        let names = || fs::read_dir(&cache).unwrap().count();
        fs::create_dir(cache.join("d")).unwrap();
        fs::write(cache.join("d/old"), "old").unwrap();

        CacheMerge::begin(&disk, &cache).unwrap().finish().unwrap();
        assert!(!prepare_cache(&cache).unwrap(), "it was finished");
        assert_eq!(names(), 1);

        drop(CacheMerge::begin(&disk, &cache).unwrap());
        assert!(prepare_cache(&cache).unwrap());
        assert_eq!((names(), fs::read_dir(place.path().join("kept")).unwrap().count()), (0, 1), "the mark is gone too");

        fs::write(cache.join("half"), "half").unwrap();
        drop(CacheMerge::begin(&disk, &cache).unwrap());
        CacheMerge::begin(&disk, &cache).unwrap().finish().unwrap();
        assert_eq!(names(), 0, "a merge after an interrupted one begins with an empty cache");
    }

    /// Emptying is interrupted at each change, and done again.
    #[test]
    fn what_is_interrupted_while_it_is_emptied_is_emptied() {
        for changes in 0.. {
            let place = tempfile::tempdir().unwrap();
            let cache = place.path().join("cargo");
            fs::create_dir_all(cache.join("d/e")).unwrap();
            fs::write(cache.join("d/e/f"), "f").unwrap();
            drop(CacheMerge::begin(&disk(place.path(), u64::MAX), &cache).unwrap());
            let is_done = CacheMerge::begin(&disk(place.path(), changes), &cache).is_ok();
            prepare_cache(&cache).unwrap();
            assert_eq!(fs::read_dir(&cache).unwrap().count(), 0, "after {changes} changes");
            if is_done {
                assert!(changes > 3, "{changes}");
                return;
            }
        }
    }

    #[test]
    fn a_command_waits_for_a_merge_that_is_under_way() {
        let place = tempfile::tempdir().unwrap();
        let cache = place.path().join("cargo");
        prepare_cache(&cache).unwrap();
        let disk = disk(place.path(), u64::MAX);
        let merging = CacheMerge::begin(&disk, &cache).unwrap();
        let (ready, is_ready) = mpsc::channel();
        let waiting = cache.clone();
        let waits = thread::spawn(move || ready.send(prepare_cache(&waiting).unwrap()).unwrap());
        assert!(is_ready.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
        fs::write(cache.join("all"), "all").unwrap();
        merging.finish().unwrap();
        assert!(!is_ready.recv().unwrap(), "nothing was interrupted");
        waits.join().unwrap();
        assert!(cache.join("all").exists());
    }
}
