//! Room that a store holds back for itself, on a disk that others fill.
//!
//! A file beside the database that takes room and holds nothing. When the disk is nearly full the store gives it up before a commit, so that
//! what is going on can still be recorded; when there is room again it makes it anew.

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

/// The most that is held back: more than the largest commit takes, with the log of a database.
const MAX: u64 = 16 << 20;

/// The part of a disk that is held back at most.
const PART: u64 = 64;

/// Less than this would not hold a commit, and is not held back at all.
const MIN: u64 = 256 << 10;

/// The ballast of one store.
#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    /// Bytes that are to be held back on this disk; 0 on one that is too small.
    wanted: u64,
    held: bool,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Leave,
    GiveUp,
    Make,
}

/// `free`: what is free beside the ballast.
fn next(wanted: u64, held: bool, free: u64) -> Step {
    match held {
        true if free < wanted => Step::GiveUp,
        // Well above that, so that it is not made and given up in turns.
        false if wanted > 0 && free >= 4 * wanted => Step::Make,
        _ => Step::Leave,
    }
}

impl Ballast {
    /// The ballast of the database at `path`, made where there is room for it. A disk without room is no failure of the store.
    pub(crate) fn beside(path: &Path) -> Self {
        let mut name = path.to_owned().into_os_string();
        name.push(".ballast");
        let mut ballast = Self { path: name.into(), wanted: 0, held: false };
        if let Ok((size, _)) = room(&ballast.path) {
            ballast.wanted = match (size / PART).min(MAX) {
                few if few < MIN => 0,
                wanted => wanted,
            };
        }
        ballast.held = fs::metadata(&ballast.path).is_ok_and(|found| found.len() > 0);
        ballast.look();
        ballast
    }

    /// Gives it up when the disk is nearly full, and makes it again when there is room. Costs one `statvfs`.
    pub(crate) fn look(&mut self) {
        let Ok((_, free)) = room(&self.path) else { return };
        match next(self.wanted, self.held, free) {
            Step::Leave => {}
            Step::GiveUp => {
                tracing::warn!(ballast = %self.path.display(), free, "The disk is nearly full: the store gives up what it held back");
                self.held = fs::remove_file(&self.path).is_err_and(|error| error.kind() != ErrorKind::NotFound);
            }
            Step::Make => {
                self.held = match make(&self.path, self.wanted) {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::warn!(ballast = %self.path.display(), %error, "The store cannot hold back room on its disk");
                        // A part of it is of no use. What cannot be removed is counted when the store is opened again.
                        let _ = fs::remove_file(&self.path);
                        // Not tried again and again.
                        self.wanted = 0;
                        false
                    }
                };
            }
        }
    }
}

/// The size of the disk that a file is on, and what this process finds free there.
fn room(path: &Path) -> io::Result<(u64, u64)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let all = statvfs(folder)?;
    let free = if geteuid().is_root() { all.f_bfree } else { all.f_bavail };
    Ok((all.f_blocks * all.f_frsize, free * all.f_frsize))
}

/// Makes a file that takes this many bytes of its disk.
fn make(path: &Path, bytes: u64) -> io::Result<()> {
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
    use std::process::Command;

    use super::*;

    #[test]
    fn it_is_given_up_once_and_made_again_when_there_is_plenty() {
        assert_eq!(next(16, true, 16), Step::Leave);
        assert_eq!(next(16, true, 15), Step::GiveUp);
        // What it gave back is no reason to take it again.
        assert_eq!(next(16, false, 15 + 16), Step::Leave);
        assert_eq!(next(16, false, 64), Step::Make);
        assert_eq!((next(0, false, 1 << 40), next(0, true, 0)), (Step::Leave, Step::Leave));
    }

    struct SmallDisk(tempfile::TempDir);

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            drop(Command::new("umount").arg("--lazy").arg(self.0.path()).status());
        }
    }

    #[test]
    fn a_full_disk_has_room_for_what_is_going_on() {
        let disk = SmallDisk(tempfile::tempdir().unwrap());
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "none"]).arg(disk.0.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            return eprintln!(
                "a_full_disk_has_room_for_what_is_going_on: skipped, since no file system can be mounted here"
            );
        }
        let database = disk.0.path().join("store.db");
        let file = disk.0.path().join("store.db.ballast");
        let mut ballast = Ballast::beside(&database);
        assert_eq!(fs::metadata(&file).unwrap().len(), 1 << 20);
        // Another program takes all there is.
        let others = disk.0.path().join("others");
        let (_, free) = room(&others).unwrap();
        make(&others, free).unwrap();
        assert!(make(&database, 4096).is_err(), "the disk is full");
        ballast.look();
        assert!(!file.exists());
        make(&database, 1 << 20).unwrap();
        // It is not made in the little room that it left, nor at the next start.
        fs::remove_file(&database).unwrap();
        ballast.look();
        assert!(!file.exists() && !Ballast::beside(&database).held);
        fs::remove_file(&others).unwrap();
        ballast.look();
        assert!(file.exists() && Ballast::beside(&database).held);
        // On a disk of a few megabytes it would take more than it is worth.
        assert!(Command::new("mount").args(["-o", "remount,size=4m"]).arg(disk.0.path()).status().unwrap().success());
        fs::remove_file(&file).unwrap();
        assert_eq!(Ballast::beside(&database).wanted, 0);
    }
}
