//! Measures disk usage: named files in a directory, and unnamed files that processes hold open.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstatvfs, openat, readlinkat, statat},
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use crate::budget::WriteBudget;

/// The size of a file system, and the space free to ordinary users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSystemSpace {
    pub(crate) size: WriteBudget,
    pub(crate) free: WriteBudget,
}

impl FileSystemSpace {
    pub(crate) fn of(folder: &OwnedFd) -> Result<Self, Errno> {
        let all = fstatvfs(folder)?;
        Ok(Self {
            size: WriteBudget { bytes: all.f_blocks * all.f_frsize, inodes: all.f_files },
            free: WriteBudget {
                bytes: all.f_bavail * all.f_frsize,
                // Without an inode count the number is unlimited.
                inodes: if all.f_files == 0 { u64::MAX } else { all.f_favail },
            },
        })
    }
}

/// No path (PATH_MAX is 4,096 bytes) reaches deeper directories, so they are not visited.
const MAX_DEPTH: usize = 2_100;

/// The number of entries between two stop checks: some milliseconds.
const ENTRIES_PER_STOP_CHECK: u64 = 1024;

/// Walks through the files of a command.
pub(crate) struct Walk<'a> {
    /// Returns true to stop for something more urgent.
    stop: &'a mut dyn FnMut() -> bool,
    /// The number of visited entries.
    pub(crate) entries: u64,
    pub(crate) stopped: bool,
    /// Whether the modes of a directory denied access.
    pub(crate) denied: bool,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(stop: &'a mut dyn FnMut() -> bool) -> Self {
        // Each level of a walk takes a descriptor. The limits of the command were set before.
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        Self { stop, entries: 0, stopped: false, denied: false }
    }

    fn keeps_going(&mut self) -> bool {
        self.entries += 1;
        if self.entries.is_multiple_of(ENTRIES_PER_STOP_CHECK) {
            self.stopped = self.stopped || (self.stop)();
        }
        !self.stopped
    }

    /// Sums up the content of a directory. Inaccessible content counts as nothing.
    pub(crate) fn measure(&mut self, folder: OwnedFd) -> WriteBudget {
        let mut held = WriteBudget { bytes: 0, inodes: 0 };
        let Ok(entries) = Dir::new(folder) else { return held };
        let mut above = vec![entries];
        while let Some(entries) = above.last_mut() {
            let entry = match entries.read() {
                Some(Ok(entry)) => entry,
                // A directory that cannot be read further is left.
                None | Some(Err(_)) => {
                    above.pop();
                    continue;
                }
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if !self.keeps_going() {
                break;
            }
            let Ok(at) = entries.fd() else { continue };
            // Removed meanwhile.
            let Ok(stat) = statat(at, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            held.inodes += 1;
            // Hard links share the blocks of a file. Counts blocks, not the length: a file may have holes.
            held.bytes += stat.st_blocks as u64 * 512 / u64::from(stat.st_nlink.max(1) as u32);
            if FileType::from_raw_mode(stat.st_mode).is_dir() {
                match open_directory(at, name).and_then(Dir::new) {
                    Ok(below) if above.len() < MAX_DEPTH => above.push(below),
                    Ok(_) => {}
                    Err(error) => self.denied |= error == Errno::ACCESS,
                }
            }
        }
        held
    }

    /// Sums up the unlinked files that these processes hold open, by their former path. Files that are only mapped into memory, or in
    /// flight in a socket, are not seen.
    pub(crate) fn measure_nameless(&mut self, processes: &[i32], mut add: impl FnMut(&Path, WriteBudget)) {
        let mut seen = BTreeSet::new();
        for pid in processes {
            // The process has ended.
            let Ok(at) = open_directory(CWD, format!("/proc/{pid}/fd")) else { continue };
            let Ok(open) = Dir::read_from(&at) else { continue };
            for entry in open.flatten() {
                if !self.keeps_going() {
                    return;
                }
                let name = entry.file_name();
                let Ok(stat) = statat(&at, name, AtFlags::empty()) else { continue };
                if stat.st_nlink > 0 || !FileType::from_raw_mode(stat.st_mode).is_file() {
                    continue;
                }
                if let Ok(path) = readlinkat(&at, name, Vec::new())
                    && seen.insert((stat.st_dev, stat.st_ino))
                {
                    let bytes = stat.st_blocks as u64 * 512;
                    add(Path::new(OsStr::from_bytes(path.as_bytes())), WriteBudget { bytes, inodes: 1 });
                }
            }
        }
    }
}

/// The descendants of a process, and the number of inspected processes. For the init of a namespace these are all other processes in it.
pub(crate) fn descendants(of: i32) -> (Vec<i32>, u64) {
    let Ok(processes) = fs::read_dir("/proc") else { return (Vec::new(), 0) };
    let mut looked_at = 0;
    let mut children = BTreeMap::<i32, Vec<i32>>::new();
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|pid| pid.parse().ok()) else { continue };
        let Some(parent) = fs::read(process.path().join("stat")).ok().and_then(|stat| parent(&stat)) else { continue };
        children.entry(parent).or_default().push(pid);
        looked_at += 1;
    }
    let mut all = Vec::new();
    let mut next = vec![of];
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        all.extend(&below);
        next.extend(below);
    }
    (all, looked_at)
}

/// Parses the parent from `/proc/PID/stat`: `pid (name) state parent …`. The process chooses its name, which may contain anything.
fn parent(stat: &[u8]) -> Option<i32> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

pub(crate) fn open_directory(at: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_whatever_the_process_name() {
        assert_eq!(parent(b"12 (sh) S 7 12 12 0 -1"), Some(7));
        assert_eq!(parent(b"12 (a) S 1 (b) R 9 12"), Some(9));
        assert_eq!(parent(b"12 (\xff)) S 8 1"), Some(8));
        assert_eq!((parent(b""), parent(b"12 (sh"), parent(b"12 (sh) S")), (None, None, None));
    }

    #[test]
    fn children_are_found() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let (found, _) = descendants(i32::try_from(std::process::id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&i32::try_from(child.id()).unwrap()), "{found:?}");
    }
}
