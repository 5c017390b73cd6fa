//! Disk space that a store reserves for itself, in case others fill the disk.
//!
//! An empty, preallocated file next to the database. When the disk is nearly full, the store removes it before a commit, so that running
//! executions can still be recorded; it creates the file again when there is enough space.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, fallocate, statvfs},
    io::Errno,
    process::geteuid,
};

/// The largest reserve, in bytes: more than the largest commit takes, with the database's log.
const MAX_BYTES: u64 = 16 << 20;

/// The reserve takes at most 1/64 of the disk.
const DISK_FRACTION: u64 = 64;

/// The smallest reserve, in bytes: a smaller one would not hold a commit.
const MIN_BYTES: u64 = 256 << 10;

/// The reserve of one store.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    path: PathBuf,
    /// The size of the reserve on this disk, in bytes; 0 when the disk is too small.
    wanted: u64,
    held: bool,
}

/// The change of the reserve that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Leave,
    Remove,
    Create,
}

/// `free`: the free bytes, not counting the reserve.
fn next(wanted: u64, held: bool, free: u64) -> Step {
    match held {
        true if free < wanted => Step::Remove,
        // Well above the other threshold, so that it is not created and removed in turns.
        false if wanted > 0 && free >= 4 * wanted => Step::Create,
        _ => Step::Leave,
    }
}

impl DiskReserve {
    /// The reserve of the database at `path`, created if there is space for it. A full disk is not an error here.
    pub(crate) fn beside(path: &Path) -> Self {
        let mut name = path.to_owned().into_os_string();
        name.push(".ballast");
        let mut reserve = Self { path: name.into(), wanted: 0, held: false };
        if let Ok((size, _)) = room(&reserve.path) {
            reserve.wanted = match (size / DISK_FRACTION).min(MAX_BYTES) {
                few if few < MIN_BYTES => 0,
                wanted => wanted,
            };
        }
        reserve.held = fs::metadata(&reserve.path).is_ok_and(|found| found.len() > 0);
        reserve.adjust();
        reserve
    }

    /// Removes the reserve when the disk is nearly full, and creates it again when there is space. Costs one `statvfs`.
    pub(crate) fn adjust(&mut self) {
        let Ok((_, free)) = room(&self.path) else { return };
        match next(self.wanted, self.held, free) {
            Step::Leave => {}
            Step::Remove => {
                tracing::warn!(ballast = %self.path.display(), free, "The disk is nearly full: the store has released its reserved space");
                self.held = fs::remove_file(&self.path).is_err_and(|error| error.kind() != ErrorKind::NotFound);
            }
            Step::Create => {
                self.held = match occupy(&self.path, self.wanted) {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::warn!(ballast = %self.path.display(), %error, "The store cannot reserve space on its disk");
                        // A partial reserve is useless. If it cannot be removed either, the next start finds it.
                        let _ = fs::remove_file(&self.path);
                        // Do not retry at every commit.
                        self.wanted = 0;
                        false
                    }
                };
            }
        }
    }
}

/// The size of the disk that a file is on, and the bytes free there for this process.
fn room(path: &Path) -> io::Result<(u64, u64)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let all = statvfs(folder)?;
    let free = if geteuid().is_root() { all.f_bfree } else { all.f_bavail };
    Ok((all.f_blocks * all.f_frsize, free * all.f_frsize))
}

/// Creates a file that occupies this many bytes on disk.
pub(crate) fn occupy(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        done => return Ok(done?),
    }
    let zeros = vec![0; 64 << 10];
    for _ in 0..bytes / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

    use super::*;

    #[test]
    fn it_is_removed_once_and_created_again_when_there_is_space() {
        assert_eq!(next(16, true, 16), Step::Leave);
        assert_eq!(next(16, true, 15), Step::Remove);
        // The space that it released is not enough to create it again.
        assert_eq!(next(16, false, 15 + 16), Step::Leave);
        assert_eq!(next(16, false, 64), Step::Create);
        assert_eq!((next(0, false, 1 << 40), next(0, true, 0)), (Step::Leave, Step::Leave));
    }

    struct SmallDisk(tempfile::TempDir);

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            // An error means that nothing was mounted.
            let _ = unmount(self.0.path(), UnmountFlags::DETACH);
        }
    }

    #[test]
    fn a_full_disk_has_room_for_what_is_going_on() {
        let disk = SmallDisk(tempfile::tempdir().unwrap());
        // Not by a program: until a forked child executes it, it holds the locks of the stores that other tests have open.
        if mount(c"none", disk.0.path(), c"tmpfs", MountFlags::empty(), c"size=64m").is_err() {
            return eprintln!(
                "a_full_disk_has_room_for_what_is_going_on: skipped, since no file system can be mounted here"
            );
        }
        let database = disk.0.path().join("store.db");
        let file = disk.0.path().join("store.db.ballast");
        let mut reserve = DiskReserve::beside(&database);
        assert_eq!(fs::metadata(&file).unwrap().len(), 1 << 20);
        // Another program takes all free space.
        let others = disk.0.path().join("others");
        let (_, free) = room(&others).unwrap();
        occupy(&others, free).unwrap();
        assert!(occupy(&database, 4096).is_err(), "the disk is full");
        reserve.adjust();
        assert!(!file.exists());
        occupy(&database, 1 << 20).unwrap();
        // It is not created in the little space that it released, nor at the next start.
        fs::remove_file(&database).unwrap();
        reserve.adjust();
        assert!(!file.exists() && !DiskReserve::beside(&database).held);
        fs::remove_file(&others).unwrap();
        reserve.adjust();
        assert!(file.exists() && DiskReserve::beside(&database).held);
        // On a disk of a few megabytes it would take more than it is worth.
        mount_remount(disk.0.path(), MountFlags::empty(), c"size=4m").unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(DiskReserve::beside(&database).wanted, 0);
    }
}
