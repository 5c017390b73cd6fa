//! Monitors what a running command writes to disk, and reports when it must be terminated: when it exceeds a budget, or when a file system
//! falls below its reserve.
//!
//! A check costs one `statvfs` per file system. The command's own usage is measured only when the file system has filled by as much as the
//! command may still write, and periodically. The next check is due when the nearest bound could be reached at [`MAX_BYTES_PER_MS`], so a
//! command can exceed a bound by what the disk takes in [`MIN_PAUSE`], plus what it takes until its processes are dead.
//!
//! When a file system falls below its reserve, whatever the cause, the commands of this runner are terminated one by one, largest first:
//! see [`must_end`]. That alone bounds files that no measurement sees.

use std::{
    ffi::CStr,
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    fs::{CWD, fstat},
    io::Errno,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::{
    HOME, WORKSPACE,
    budget::{DiskLimit, Reserve, WriteBound, WriteBudget},
    command_table::{Entry, OwnRow, State},
    layer::Layer,
    mounts::MountKind,
    protocol::{Command, Context as _, Failure},
    scratch_directory,
    sources::CallSources,
    usage::{FileSystemSpace, Walk, descendants, open_directory},
};

/// The minimum time between two checks.
pub(crate) const MIN_PAUSE: Duration = Duration::from_millis(2);

/// The maximum: a command that ends before it costs one check, at its start.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// An upper bound of what several processors write into the page cache: 8 GiB per second.
const MAX_BYTES_PER_MS: u64 = 8 << 20;

/// An upper bound of file creation: a million per second.
const MAX_INODES_PER_MS: u64 = 1_000;

/// A measurement takes about 2 µs per entry. With this pause per entry, a command that keeps filling the disk costs a fifth of a processor.
const PAUSE_PER_ENTRY: Duration = Duration::from_micros(10);

/// The cost of inspecting one process of the machine, in entries.
const ENTRIES_PER_PROCESS: u64 = 8;

/// The longest time without a measurement: another program may free the space that the command takes.
const MAX_UNMEASURED: Duration = Duration::from_secs(1);

/// Added to [`MAX_UNMEASURED`] per entry: a hundredth of a processor.
const MAX_UNMEASURED_PER_ENTRY: Duration = Duration::from_micros(200);

/// How long the apparently largest command waits for the measurements of the others after a reserve is touched: longer than their longest
/// pause on a busy machine.
const MEASUREMENT_GRACE: Duration = Duration::from_secs(2);

/// The same when half of the reserve is used up.
const MEASUREMENT_GRACE_URGENT: Duration = Duration::from_millis(150);

/// A command that holds less than this fraction of a reserve is not worth terminating.
const TRIVIAL_FRACTION: u64 = 1024;

/// The disk monitor of one command.
pub(crate) struct DiskWatch {
    places: Vec<Place>,
    disks: Vec<Disk>,
    row: Option<OwnRow>,
    /// The disk that the row describes.
    row_disk: usize,
    /// Whether this process has joined the command's user namespace, to read directories that the command made inaccessible.
    entered: bool,
    /// Time slept since the last measurement.
    since_measured: Duration,
    /// The number of entries of the last measurement.
    entries: u64,
    /// Time slept since a check found a reserve touched. `None`: no reserve is.
    low_for: Option<Duration>,
}

/// A place that the command writes to.
struct Place {
    bound: Option<(WriteBound, WriteBudget)>,
    folder: OwnedFd,
    /// The measured directory in `folder`.
    below: &'static CStr,
    /// Its path in the view of the command.
    inside: PathBuf,
    disk: usize,
    held: WriteBudget,
    /// The amount that it held at the first measurement, if it outlives the command: that is not attributed to the command.
    before: PriorBudget,
}

enum PriorBudget {
    Nothing,
    Unknown,
    Held(WriteBudget),
}

/// A file system that the command writes to.
struct Disk {
    folder: OwnedFd,
    id: u64,
    reserve: WriteBudget,
    now: WriteBudget,
    /// Free space at the start, and at the last measurement.
    at_start: WriteBudget,
    at_measurement: WriteBudget,
}

const NOTHING: WriteBudget = WriteBudget { bytes: 0, inodes: 0 };

impl DiskWatch {
    /// Opens the places that a command writes to. `None`: all are in memory.
    ///
    /// # Errors
    /// [`Failure::DiskFull`] when a file system is below its reserve already.
    pub(crate) fn open(
        command: Command<'_>,
        sources: Option<&CallSources>,
        row: Option<OwnRow>,
    ) -> Result<Option<Self>, Failure> {
        let mut watch = Self {
            places: Vec::new(),
            disks: Vec::new(),
            row,
            row_disk: 0,
            entered: false,
            since_measured: Duration::ZERO,
            entries: 0,
            low_for: None,
        };
        // Through the mounts if there are any: only there the files belong to the service user.
        if let Some(path) = &command.call.staging {
            let folder = open(path, sources.and_then(|sources| sources.staging.as_ref()))?;
            let bound = (WriteBound::View, command.armed.view);
            watch.add(path, folder, c"upper", Path::new(WORKSPACE), Some(bound), command.armed.reserve)?;
        }
        if let Some(path) = &command.call.scratch_directory {
            for (bound, budget, below, inside) in [
                (WriteBound::Tmp, command.armed.scratch.tmp, c"tmp", "/tmp"),
                (WriteBound::Home, command.armed.scratch.home, c"home", HOME),
            ] {
                let folder = open(path, sources.and_then(|sources| sources.scratch.as_ref()))?;
                watch.add(path, folder, below, Path::new(inside), Some((bound, budget)), command.armed.reserve)?;
            }
        }
        let staged = command.call.mounts.iter().find(|mount| mount.kind == MountKind::Staged);
        if let Some((path, mount)) = command.call.staging.as_ref().zip(staged) {
            let folder = open(path, sources.and_then(|sources| sources.staging.as_ref()))?;
            watch.add(path, folder, c"caches", &mount.target, None, command.armed.reserve)?;
        }
        if let (Some(row), Some(disk)) = (&watch.row, watch.disks.first()) {
            let entry = Entry { state: State::Running, disk: disk.id, held: NOTHING };
            row.write(entry).at(Layer::Launcher, || "writing to the command table".to_owned())?;
        }
        Ok((!watch.disks.is_empty()).then_some(watch))
    }

    fn add(
        &mut self,
        path: &Path,
        folder: OwnedFd,
        below: &'static CStr,
        inside: &Path,
        bound: Option<(WriteBound, WriteBudget)>,
        reserve: Reserve,
    ) -> Result<(), Failure> {
        let doing = || format!("inspecting {}", path.display());
        let id = fstat(&folder).at(Layer::View, doing)?.st_dev;
        let disk = match self.disks.iter().position(|disk| disk.id == id) {
            Some(known) => known,
            None => {
                let FileSystemSpace { size, free } = FileSystemSpace::of(&folder).at(Layer::View, doing)?;
                let reserve = reserve.of(size);
                if let Some(limit) = DiskLimit::of_reserve(reserve, free) {
                    return Err(Failure::DiskFull(path.to_owned(), limit));
                }
                let folder = folder.try_clone().at(Layer::View, doing)?;
                self.disks.push(Disk { folder, id, reserve, now: free, at_start: free, at_measurement: free });
                self.disks.len() - 1
            }
        };
        let before = if bound.is_some() { PriorBudget::Nothing } else { PriorBudget::Unknown };
        let inside = inside.to_owned();
        self.places.push(Place { bound, folder, below, inside, disk, held: NOTHING, before });
        Ok(())
    }

    /// The time until the next check.
    pub(crate) fn pause(&self) -> Duration {
        let free = self.disks.iter().map(|disk| less(disk.now, disk.reserve));
        let left = self.places.iter().filter_map(|place| Some(less(place.bound?.1, self.may_hold(place))));
        let nearest = free.chain(left).fold(u64::MAX, |nearest, left| {
            nearest.min(left.bytes / MAX_BYTES_PER_MS).min(left.inodes / MAX_INODES_PER_MS)
        });
        Duration::from_millis(nearest).clamp(MIN_PAUSE, MAX_PAUSE)
    }

    /// Checks the file systems, and measures the places if that is not enough. Returns the bound for which the command must be terminated,
    /// if any. `slept`: the time since the last check. `init`: the first process of the command.
    pub(crate) fn check(&mut self, slept: Duration, init: i32) -> io::Result<Option<DiskLimit>> {
        self.since_measured += slept;
        for disk in &mut self.disks {
            disk.now = FileSystemSpace::of(&disk.folder)?.free;
        }
        let low = self.disks.iter().position(|disk| DiskLimit::of_reserve(disk.reserve, disk.now).is_some());
        let entries = u32::try_from(self.entries).unwrap_or(u32::MAX);
        let may_be_over = self.places.iter().any(|place| self.over(place, self.may_hold(place)).is_some());
        let wanted = low.is_some()
            || may_be_over
            || self.places.iter().any(|place| matches!(place.before, PriorBudget::Unknown))
            || self.since_measured >= MAX_UNMEASURED + MAX_UNMEASURED_PER_ENTRY * entries;
        if wanted && self.since_measured >= PAUSE_PER_ENTRY * entries {
            self.measure(init, low.is_some());
            let over = self.places.iter().find_map(|place| self.over(place, place.held));
            if over.is_some() {
                self.publish(low.unwrap_or_default(), State::Ending)?;
                return Ok(over);
            }
            if let Some(low) = low {
                self.publish(low, State::Measured)?;
            }
        }
        let Some(low) = low else {
            if self.low_for.take().is_some() {
                // The measurement will be out of date the next time.
                self.publish(self.row_disk, State::Running)?;
            }
            return Ok(None);
        };
        if self.row_disk != low {
            self.publish(low, State::Running)?;
        }
        let low_for = self.low_for.map_or(Duration::ZERO, |before| before + slept);
        self.low_for = Some(low_for);
        let held = self.held_on(low);
        let (own, entries) = match &self.row {
            Some(row) => (row.number(), row.read()?),
            None => (0, vec![(0, Entry { state: State::Measured, disk: self.disks[low].id, held })]),
        };
        // Read after the table: a command leaves the table only once the space that it freed is available. Measuring also took time.
        let disk = &mut self.disks[low];
        disk.now = FileSystemSpace::of(&disk.folder)?.free;
        let there: Vec<_> = entries.into_iter().filter(|(_, entry)| entry.disk == disk.id).collect();
        let Some(limit) = DiskLimit::of_reserve(disk.reserve, disk.now) else { return Ok(None) };
        if must_end(own, &there, limit, low_for) {
            self.publish(low, State::Ending)?;
            return Ok(Some(limit));
        }
        Ok(None)
    }

    /// Removes the scratch files of the command, and its view if `view_too`. No process of the command may be left.
    pub(crate) fn empty(&self, view_too: bool) -> io::Result<()> {
        for place in &self.places {
            let wanted = match place.bound {
                Some((WriteBound::Tmp | WriteBound::Home, _)) => true,
                Some((WriteBound::View, _)) => view_too,
                _ => false,
            };
            match open_directory(&place.folder, place.below) {
                Ok(folder) if wanted => scratch_directory::empty(&folder)?,
                // Init died before it created the directory, or it is not to be emptied.
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until removed files have freed their space, up to a limit: the kernel tears down the mounts of an ended command
    /// asynchronously. Until then the table shows this command as ending, so that no other is terminated in its place.
    pub(crate) fn wait_for_space(&self) -> io::Result<()> {
        const MAX_WAIT: Duration = Duration::from_secs(5);
        let mut waited = Duration::ZERO;
        let is_low = |disk: &Disk| {
            FileSystemSpace::of(&disk.folder).map(|room| DiskLimit::of_reserve(disk.reserve, room.free).is_some())
        };
        while waited < MAX_WAIT && self.disks.iter().map(is_low).collect::<Result<Vec<_>, _>>()?.contains(&true) {
            thread::sleep(MIN_PAUSE);
            waited += MIN_PAUSE;
        }
        Ok(())
    }

    /// The most that a place can hold, unless someone else frees space at the same time.
    fn may_hold(&self, place: &Place) -> WriteBudget {
        let disk = &self.disks[place.disk];
        let grown = less(disk.at_measurement, disk.now);
        WriteBudget { bytes: place.held.bytes + grown.bytes, inodes: place.held.inodes.saturating_add(grown.inodes) }
    }

    fn over(&self, place: &Place, held: WriteBudget) -> Option<DiskLimit> {
        let (bound, budget) = place.bound?;
        DiskLimit::of_place(bound, budget, held)
    }

    /// The amount that the command holds on a file system, as measured.
    fn held_on(&self, disk: usize) -> WriteBudget {
        self.places.iter().filter(|place| place.disk == disk).fold(NOTHING, |all, place| {
            let before = if let PriorBudget::Held(before) = place.before { before } else { NOTHING };
            let held = less(place.held, before);
            WriteBudget { bytes: all.bytes + held.bytes, inodes: all.inodes + held.inodes }
        })
    }

    /// Measures all places. Stops early when a file system loses half of its reserve.
    fn measure(&mut self, init: i32, low: bool) {
        // Found only if needed: this inspects every process of the machine.
        let mut processes = None;
        let disks = &self.disks;
        let mut urgent = || {
            let half = |disk: &Disk| WriteBudget { bytes: disk.reserve.bytes / 2, inodes: disk.reserve.inodes / 2 };
            let is_urgent = |disk: &Disk| {
                FileSystemSpace::of(&disk.folder)
                    .is_ok_and(|room| DiskLimit::of_reserve(half(disk), room.free).is_some())
            };
            disks.iter().any(is_urgent)
        };
        let mut walk = Walk::new(&mut urgent);
        let mut held = loop {
            walk.denied = false;
            let mut held = Vec::new();
            for place in &self.places {
                held.push(match open_directory(&place.folder, place.below) {
                    Ok(folder) => walk.measure(folder),
                    // Not created yet, or removed.
                    Err(error) => {
                        walk.denied |= error == Errno::ACCESS;
                        NOTHING
                    }
                });
            }
            if !walk.denied || self.entered {
                break held;
            }
            // If the kernel refuses, inaccessible directories stay unmeasured.
            let (processes, _) = processes.get_or_insert_with(|| descendants(init));
            self.entered = processes.iter().any(|pid| enter_user_namespace(*pid).is_ok());
            if !self.entered {
                break held;
            }
        };
        let unexplained = |place: &Place, held: WriteBudget| {
            let (disk, Some((_, budget))) = (&disks[place.disk], place.bound) else { return false };
            let (grown, left) = (less(disk.at_start, disk.now), less(budget, held));
            grown.bytes.saturating_sub(held.bytes) >= left.bytes / 4
                || grown.inodes.saturating_sub(held.inodes) >= left.inodes / 4
        };
        if low || self.places.iter().zip(&held).any(|(place, held)| unexplained(place, *held)) {
            let places = &self.places;
            let (processes, _) = processes.get_or_insert_with(|| descendants(init));
            walk.measure_nameless(processes, |path, file| {
                let of = |place: &Place| path.starts_with(&place.inside).then(|| place.inside.components().count());
                // The deepest match: a mount may lie below HOME.
                let place = (0..places.len()).filter(|n| of(&places[*n]).is_some()).max_by_key(|n| of(&places[*n]));
                if let Some(place) = place {
                    held[place].bytes += file.bytes;
                    held[place].inodes += file.inodes;
                }
            });
        }
        self.entries = walk.entries + ENTRIES_PER_PROCESS * processes.map_or(0, |(_, looked_at)| looked_at);
        self.since_measured = Duration::ZERO;
        let stopped = walk.stopped;
        for (place, held) in self.places.iter_mut().zip(held) {
            if stopped {
                // A partial measurement is a lower bound, and what was measured before is likely still there.
                place.held.bytes = place.held.bytes.max(held.bytes);
                place.held.inodes = place.held.inodes.max(held.inodes);
                continue;
            }
            place.held = held;
            if let PriorBudget::Unknown = place.before {
                place.before = PriorBudget::Held(held);
            }
        }
        for disk in self.disks.iter_mut().filter(|_| !stopped) {
            disk.at_measurement = disk.now;
        }
    }

    fn publish(&mut self, disk: usize, state: State) -> io::Result<()> {
        self.row_disk = disk;
        let (Some(row), held) = (&self.row, self.held_on(disk)) else { return Ok(()) };
        row.write(Entry { state, disk: self.disks[disk].id, held })
    }
}

/// Whether a command must be terminated because a file system is below its reserve.
///
/// Commands are terminated one by one: each that is ending halves the reserve that the others must leave, so that its space can be freed
/// first. The largest goes first once all have been measured; one that holds almost nothing goes when half of the reserve is used up; all
/// go when three quarters are.
///
/// `own`: the row of this command. `there`: the commands on that file system. `low_for`: how long the file system has been below its
/// reserve.
fn must_end(
    own: usize,
    there: &[(usize, Entry)],
    DiskLimit { unit, limit, found, .. }: DiskLimit,
    low_for: Duration,
) -> bool {
    let ending = there.iter().filter(|(_, entry)| entry.state == State::Ending).count();
    let floor = limit >> ending.min(63);
    if found >= floor {
        return false;
    }
    if found < floor / 4 {
        return true;
    }
    let urgent = found < floor / 2;
    let running = || there.iter().filter(|(_, entry)| entry.state != State::Ending);
    let all_measured = running().all(|(row, entry)| *row == own || entry.state == State::Measured);
    if !all_measured && low_for < if urgent { MEASUREMENT_GRACE_URGENT } else { MEASUREMENT_GRACE } {
        return false;
    }
    // Of equals the latest row.
    let largest = running().max_by_key(|(row, entry)| (entry.held(unit), *row));
    largest.is_none_or(|(row, entry)| *row == own && (urgent || entry.held(unit) >= limit / TRIVIAL_FRACTION))
}

fn less(from: WriteBudget, what: WriteBudget) -> WriteBudget {
    WriteBudget { bytes: from.bytes.saturating_sub(what.bytes), inodes: from.inodes.saturating_sub(what.inodes) }
}

fn open(path: &Path, mount: Option<&OwnedFd>) -> Result<OwnedFd, Failure> {
    let folder = match mount {
        Some(mount) => open_directory(mount, c"."),
        None => open_directory(CWD, path),
    };
    folder.at(Layer::View, || format!("opening {}", path.display()))
}

/// Joins the user namespace of a process of the command. This process created it and has all capabilities in it, such as to read
/// inaccessible directories and the descriptors of its processes. Init has made itself non-dumpable; the others have not.
fn enter_user_namespace(pid: i32) -> io::Result<()> {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user"))?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Unit;

    const MIB: u64 = 1 << 20;

    fn entry(state: State, bytes: u64) -> Entry {
        Entry { state, disk: 1, held: WriteBudget { bytes, inodes: 5 } }
    }

    /// The commands that must be terminated, with a reserve of 100 MiB.
    fn ending(entries: &[Entry], free: u64, low_for: Duration) -> Vec<usize> {
        let there: Vec<_> = entries.iter().copied().enumerate().collect();
        let limit = DiskLimit { bound: WriteBound::Reserve, unit: Unit::Bytes, limit: 100 * MIB, found: free };
        let running = (0..entries.len()).filter(|row| entries[*row].state != State::Ending);
        running.filter(|row| must_end(*row, &there, limit, low_for)).collect()
    }

    #[test]
    fn only_the_largest_command_is_terminated() {
        use State::{Ending, Measured};
        let commands = [entry(Measured, 3 * MIB), entry(Measured, 900 * MIB), entry(Measured, 400 * MIB)];
        assert_eq!(ending(&commands, 90 * MIB, Duration::ZERO), [1]);
        assert_eq!(ending(&commands, 100 * MIB, Duration::ZERO), [0_usize; 0], "the reserve is whole");
        // Its space has to be freed first.
        let commands = [commands[0], entry(Ending, 900 * MIB), commands[2]];
        assert_eq!(ending(&commands, 60 * MIB, Duration::ZERO), [0_usize; 0]);
        assert_eq!(ending(&commands, 40 * MIB, Duration::ZERO), [2], "unless the disk keeps filling");
        let equals = [entry(Measured, 9 * MIB), entry(Measured, 9 * MIB)];
        assert_eq!(ending(&equals, 90 * MIB, Duration::ZERO), [1], "one of two equals");
    }

    #[test]
    fn no_command_is_terminated_before_all_are_measured() {
        use State::{Measured, Running};
        // The second may hold far more by now.
        let commands = [entry(Measured, 10 * MIB), entry(Running, 0)];
        assert_eq!(ending(&commands, 90 * MIB, Duration::from_millis(20)), [1_usize; 0]);
        assert_eq!(ending(&commands, 90 * MIB, MEASUREMENT_GRACE), [0]);
        assert_eq!(ending(&commands, 45 * MIB, MEASUREMENT_GRACE_URGENT), [0], "half of the reserve is gone");
        assert_eq!(ending(&commands, 24 * MIB, Duration::ZERO), [0, 1], "there is no time left to measure");
    }

    #[test]
    fn a_command_that_holds_almost_nothing_is_terminated_last() {
        use State::Measured;
        let commands = [entry(Measured, 4096), entry(Measured, 0)];
        assert_eq!(ending(&commands, 60 * MIB, MEASUREMENT_GRACE), [0_usize; 0], "terminating them frees nothing");
        assert_eq!(ending(&commands, 49 * MIB, MEASUREMENT_GRACE), [0]);
        assert_eq!(ending(&commands, 24 * MIB, MEASUREMENT_GRACE), [0, 1], "one of them may hide what it holds");
    }
}
