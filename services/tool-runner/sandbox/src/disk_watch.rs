//! Watches from outside what a running command writes to disk, and says when it has to end: it is over a budget, or a file system has less
//! free than its reserve.
//!
//! A look costs one `statvfs` for each file system. What the command holds is measured only when the file system has filled by as much as the
//! command may still write, and now and then. The time to the next look is what the nearest bound is away at [`MAX_BYTES_PER_MS`], so a
//! command is over a bound by what the disk takes in [`SHORTEST_PAUSE`], and by what it takes until its processes are dead.
//!
//! When a file system runs out of its reserve, whoever caused it, the commands of this runner are ended one after the other, the one that
//! holds most first: see [`has_to_end`]. Files that no measurement sees are bounded by that alone.

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
    order::{At as _, Command, Failure},
    scratch_folder,
    sources::Sources,
    usage::{Room, Walk, descendants, open_folder},
};

/// The least time between two looks.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_millis(2);

/// The most: a command that has ended by then has cost one look, at its start.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// More than several processors write into the page cache together: 8 GiB a second.
const MAX_BYTES_PER_MS: u64 = 8 << 20;

/// More than several processors create files: a million a second.
const MAX_INODES_PER_MS: u64 = 1_000;

/// Measuring takes some 2 microseconds an entry. With this pause for each, a command that keeps filling the disk costs a fifth of one processor.
const PAUSE_PER_ENTRY: Duration = Duration::from_micros(10);

/// What a look at a process of the machine costs, in entries.
const ENTRIES_PER_PROCESS: u64 = 8;

/// Measured in any case after this time: another program may free what the command takes.
const UNMEASURED: Duration = Duration::from_secs(1);

/// Added to [`UNMEASURED`] for each entry: a hundredth of one processor.
const UNMEASURED_PER_ENTRY: Duration = Duration::from_micros(200);

/// How long a command that seems to hold most waits for the others' measurements when the reserve is touched: longer than their longest
/// pause, on a machine whose processors are taken.
const SETTLE: Duration = Duration::from_secs(2);

/// The same when half of the reserve is gone.
const SETTLE_URGENT: Duration = Duration::from_millis(150);

/// A command that holds less than this part of a reserve gives back nothing worth ending it for.
const TRIVIAL_PART: u64 = 1024;

/// The watch over one command.
pub(crate) struct DiskWatch {
    places: Vec<Place>,
    disks: Vec<Disk>,
    row: Option<OwnRow>,
    /// The disk that the row is about.
    said: usize,
    /// Whether this process has entered the command's user namespace, to look into what the command has shut.
    entered: bool,
    /// Time slept since the last measurement.
    since_measured: Duration,
    /// Entries that the last measurement saw.
    entries: u64,
    /// Time slept since a look that found a reserve touched. `None`: all are whole.
    low_for: Option<Duration>,
}

/// A place that the command writes to.
struct Place {
    bound: Option<(WriteBound, WriteBudget)>,
    folder: OwnedFd,
    /// The folder in `folder` that is measured.
    below: &'static CStr,
    /// Where the command sees it.
    inside: PathBuf,
    disk: usize,
    held: WriteBudget,
    /// What it held when it was first measured, where it outlives the command: that is nobody's doing.
    before: Before,
}

enum Before {
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
    /// What was free at the start, and at the last measurement.
    at_start: WriteBudget,
    at_measurement: WriteBudget,
}

const NOTHING: WriteBudget = WriteBudget { bytes: 0, inodes: 0 };

impl DiskWatch {
    /// Opens what a command will write to. `None`: all of it is memory.
    ///
    /// # Errors
    /// [`Failure::NoRoom`] when a file system has less free than its reserve already.
    pub(crate) fn open(
        command: &Command,
        sources: Option<&Sources>,
        row: Option<OwnRow>,
    ) -> Result<Option<Self>, Failure> {
        let mut watch = Self {
            places: Vec::new(),
            disks: Vec::new(),
            row,
            said: 0,
            entered: false,
            since_measured: Duration::ZERO,
            entries: 0,
            low_for: None,
        };
        // Through the mounts where there are some: to the service user, its own files are on them alone.
        if let Some(path) = &command.staging {
            let folder = open(path, sources.and_then(|sources| sources.staging.as_ref()))?;
            let bound = (WriteBound::View, command.view);
            watch.add(path, folder, c"upper", Path::new(WORKSPACE), Some(bound), command.reserve)?;
        }
        if let Some(path) = &command.scratch_folder {
            for (bound, budget, below, inside) in [
                (WriteBound::Tmp, command.scratch.tmp, c"tmp", "/tmp"),
                (WriteBound::Home, command.scratch.home, c"home", HOME),
            ] {
                let folder = open(path, sources.and_then(|sources| sources.scratch.as_ref()))?;
                watch.add(path, folder, below, Path::new(inside), Some((bound, budget)), command.reserve)?;
            }
        }
        for (n, mount) in command.mounts.iter().enumerate().filter(|(_, mount)| mount.kind == MountKind::Writable) {
            let taken = sources.and_then(|sources| Some(&sources.mounts.get(n)?.piece.mount));
            let folder = open(&mount.source, taken)?;
            watch.add(&mount.source, folder, c".", &mount.target, None, command.reserve)?;
        }
        if let (Some(row), Some(disk)) = (&watch.row, watch.disks.first()) {
            let entry = Entry { state: State::Running, disk: disk.id, held: NOTHING };
            row.write(entry).at(Layer::Launcher, || "writing to the table of commands".to_owned())?;
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
        let doing = || format!("looking at {}", path.display());
        let id = fstat(&folder).at(Layer::View, doing)?.st_dev;
        let disk = match self.disks.iter().position(|disk| disk.id == id) {
            Some(known) => known,
            None => {
                let Room { size, free } = Room::of(&folder).at(Layer::View, doing)?;
                let reserve = reserve.of(size);
                if let Some(limit) = DiskLimit::of_reserve(reserve, free) {
                    return Err(Failure::NoRoom(path.to_owned(), limit));
                }
                let folder = folder.try_clone().at(Layer::View, doing)?;
                self.disks.push(Disk { folder, id, reserve, now: free, at_start: free, at_measurement: free });
                self.disks.len() - 1
            }
        };
        let before = if bound.is_some() { Before::Nothing } else { Before::Unknown };
        let inside = inside.to_owned();
        self.places.push(Place { bound, folder, below, inside, disk, held: NOTHING, before });
        Ok(())
    }

    /// How long the next look can wait.
    pub(crate) fn pause(&self) -> Duration {
        let free = self.disks.iter().map(|disk| less(disk.now, disk.reserve));
        let left = self.places.iter().filter_map(|place| Some(less(place.bound?.1, self.may_hold(place))));
        let nearest = free.chain(left).fold(u64::MAX, |nearest, left| {
            nearest.min(left.bytes / MAX_BYTES_PER_MS).min(left.inodes / MAX_INODES_PER_MS)
        });
        Duration::from_millis(nearest).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    /// Looks at the file systems, and measures where that says too little. Returns why the command has to end, if it has. `slept`: the time
    /// since the last look. `init`: the command's first process.
    pub(crate) fn look(&mut self, slept: Duration, init: i32) -> io::Result<Option<DiskLimit>> {
        self.since_measured += slept;
        for disk in &mut self.disks {
            disk.now = Room::of(&disk.folder)?.free;
        }
        let low = self.disks.iter().position(|disk| DiskLimit::of_reserve(disk.reserve, disk.now).is_some());
        let entries = u32::try_from(self.entries).unwrap_or(u32::MAX);
        let may_be_over = self.places.iter().any(|place| self.over(place, self.may_hold(place)).is_some());
        let wanted = low.is_some()
            || may_be_over
            || self.places.iter().any(|place| matches!(place.before, Before::Unknown))
            || self.since_measured >= UNMEASURED + UNMEASURED_PER_ENTRY * entries;
        if wanted && self.since_measured >= PAUSE_PER_ENTRY * entries {
            self.measure(init, low.is_some());
            let over = self.places.iter().find_map(|place| self.over(place, place.held));
            if over.is_some() {
                self.say(low.unwrap_or_default(), State::Ending)?;
                return Ok(over);
            }
            if let Some(low) = low {
                self.say(low, State::Measured)?;
            }
        }
        let Some(low) = low else {
            if self.low_for.take().is_some() {
                // What was measured then is old the next time.
                self.say(self.said, State::Running)?;
            }
            return Ok(None);
        };
        if self.said != low {
            self.say(low, State::Running)?;
        }
        let low_for = self.low_for.map_or(Duration::ZERO, |before| before + slept);
        self.low_for = Some(low_for);
        let held = self.held_on(low);
        let (own, entries) = match &self.row {
            Some(row) => (row.number(), row.read()?),
            None => (0, vec![(0, Entry { state: State::Measured, disk: self.disks[low].id, held })]),
        };
        // After the table was read: a command that has ended leaves it when what it gave back has arrived. Measuring took its time, too.
        let disk = &mut self.disks[low];
        disk.now = Room::of(&disk.folder)?.free;
        let there: Vec<_> = entries.into_iter().filter(|(_, entry)| entry.disk == disk.id).collect();
        let Some(limit) = DiskLimit::of_reserve(disk.reserve, disk.now) else { return Ok(None) };
        if has_to_end(own, &there, limit, low_for) {
            self.say(low, State::Ending)?;
            return Ok(Some(limit));
        }
        Ok(None)
    }

    /// Removes what the command wrote, once nothing of it is left: scratch places always, its view when nobody will look at that.
    pub(crate) fn empty(&self, view_too: bool) -> io::Result<()> {
        for place in &self.places {
            let wanted = match place.bound {
                Some((WriteBound::Tmp | WriteBound::Home, _)) => true,
                Some((WriteBound::View, _)) => view_too,
                _ => false,
            };
            match open_folder(&place.folder, place.below) {
                Ok(folder) if wanted => scratch_folder::empty(&folder)?,
                // Init died before it made it, or the command was not to be emptied.
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for what was removed to be free again, for as long as that takes at most: the kernel takes down the mounts of a command that has
    /// ended when it comes to it. Until then the others see this one as ending, and no other is ended in its place.
    pub(crate) fn wait_for_room(&self) -> io::Result<()> {
        const LONGEST: Duration = Duration::from_secs(5);
        let mut waited = Duration::ZERO;
        let is_low =
            |disk: &Disk| Room::of(&disk.folder).map(|room| DiskLimit::of_reserve(disk.reserve, room.free).is_some());
        while waited < LONGEST && self.disks.iter().map(is_low).collect::<Result<Vec<_>, _>>()?.contains(&true) {
            thread::sleep(SHORTEST_PAUSE);
            waited += SHORTEST_PAUSE;
        }
        Ok(())
    }

    /// What a place can hold at most, unless somebody else frees room at the same time.
    fn may_hold(&self, place: &Place) -> WriteBudget {
        let disk = &self.disks[place.disk];
        let grown = less(disk.at_measurement, disk.now);
        WriteBudget { bytes: place.held.bytes + grown.bytes, inodes: place.held.inodes.saturating_add(grown.inodes) }
    }

    fn over(&self, place: &Place, held: WriteBudget) -> Option<DiskLimit> {
        let (bound, budget) = place.bound?;
        DiskLimit::of_place(bound, budget, held)
    }

    /// What the command holds on a file system, as far as it was measured.
    fn held_on(&self, disk: usize) -> WriteBudget {
        self.places.iter().filter(|place| place.disk == disk).fold(NOTHING, |all, place| {
            let before = if let Before::Held(before) = place.before { before } else { NOTHING };
            let held = less(place.held, before);
            WriteBudget { bytes: all.bytes + held.bytes, inodes: all.inodes + held.inodes }
        })
    }

    /// Measures all places. A file system that loses half of its reserve meanwhile comes first.
    fn measure(&mut self, init: i32, low: bool) {
        // Asked for only where they are needed: it takes a look at each process of the machine.
        let mut processes = None;
        let disks = &self.disks;
        let mut urgent = || {
            let half = |disk: &Disk| WriteBudget { bytes: disk.reserve.bytes / 2, inodes: disk.reserve.inodes / 2 };
            let is_urgent = |disk: &Disk| {
                Room::of(&disk.folder).is_ok_and(|room| DiskLimit::of_reserve(half(disk), room.free).is_some())
            };
            disks.iter().any(is_urgent)
        };
        let mut walk = Walk::new(&mut urgent);
        let mut held = loop {
            walk.shut = false;
            let mut held = Vec::new();
            for place in &self.places {
                held.push(match open_folder(&place.folder, place.below) {
                    Ok(folder) => walk.measure(folder),
                    // Not there yet, or not there any more: then it holds nothing.
                    Err(error) => {
                        walk.shut |= error == Errno::ACCESS;
                        NOTHING
                    }
                });
            }
            if !walk.shut || self.entered {
                break held;
            }
            // A kernel that refuses leaves what the command has shut unseen, as it is to any process of this user.
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
                // The deepest: a mount may lie below HOME.
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
                // It holds at least that, and what it held before is likely to be there still.
                place.held.bytes = place.held.bytes.max(held.bytes);
                place.held.inodes = place.held.inodes.max(held.inodes);
                continue;
            }
            place.held = held;
            if let Before::Unknown = place.before {
                place.before = Before::Held(held);
            }
        }
        for disk in self.disks.iter_mut().filter(|_| !stopped) {
            disk.at_measurement = disk.now;
        }
    }

    fn say(&mut self, disk: usize, state: State) -> io::Result<()> {
        self.said = disk;
        let (Some(row), held) = (&self.row, self.held_on(disk)) else { return Ok(()) };
        row.write(Entry { state, disk: self.disks[disk].id, held })
    }
}

/// Whether a command has to end because a file system has less free than its reserve.
///
/// The commands end one after the other: each that is ending halves what the others have to leave free, so that what it gives back can
/// arrive. The command that holds most goes first, once all have been measured; one that holds almost nothing, when half of the reserve is
/// gone; and every one when three quarters of it are gone.
///
/// `own`: the number of this command's row. `there`: the commands on that file system. `low_for`: how long the reserve has been touched.
fn has_to_end(
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
    if !all_measured && low_for < if urgent { SETTLE_URGENT } else { SETTLE } {
        return false;
    }
    // Of equals the latest row.
    let largest = running().max_by_key(|(row, entry)| (entry.held(unit), *row));
    largest.is_none_or(|(row, entry)| *row == own && (urgent || entry.held(unit) >= limit / TRIVIAL_PART))
}

fn less(from: WriteBudget, what: WriteBudget) -> WriteBudget {
    WriteBudget { bytes: from.bytes.saturating_sub(what.bytes), inodes: from.inodes.saturating_sub(what.inodes) }
}

fn open(path: &Path, mount: Option<&OwnedFd>) -> Result<OwnedFd, Failure> {
    let folder = match mount {
        Some(mount) => open_folder(mount, c"."),
        None => open_folder(CWD, path),
    };
    folder.at(Layer::View, || format!("opening {}", path.display()))
}

/// Joins the user namespace that a process of the command is in. This process made it, and has every right in it: to read what the command
/// has shut, and the descriptors of its processes. The first process has closed itself to that, the others have not.
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

    /// Which of these commands have to end, with a reserve of 100 MiB.
    fn ending(entries: &[Entry], free: u64, low_for: Duration) -> Vec<usize> {
        let there: Vec<_> = entries.iter().copied().enumerate().collect();
        let limit = DiskLimit { bound: WriteBound::Reserve, unit: Unit::Bytes, limit: 100 * MIB, found: free };
        let running = (0..entries.len()).filter(|row| entries[*row].state != State::Ending);
        running.filter(|row| has_to_end(*row, &there, limit, low_for)).collect()
    }

    #[test]
    fn the_command_that_holds_most_ends_and_no_other() {
        use State::{Ending, Measured};
        let commands = [entry(Measured, 3 * MIB), entry(Measured, 900 * MIB), entry(Measured, 400 * MIB)];
        assert_eq!(ending(&commands, 90 * MIB, Duration::ZERO), [1]);
        assert_eq!(ending(&commands, 100 * MIB, Duration::ZERO), [0_usize; 0], "the reserve is whole");
        // What it gives back has to arrive first.
        let commands = [commands[0], entry(Ending, 900 * MIB), commands[2]];
        assert_eq!(ending(&commands, 60 * MIB, Duration::ZERO), [0_usize; 0]);
        assert_eq!(ending(&commands, 40 * MIB, Duration::ZERO), [2], "unless the disk goes on filling");
        let equals = [entry(Measured, 9 * MIB), entry(Measured, 9 * MIB)];
        assert_eq!(ending(&equals, 90 * MIB, Duration::ZERO), [1], "one of two equals");
    }

    #[test]
    fn nobody_ends_before_all_were_measured() {
        use State::{Measured, Running};
        // The second may hold far more by now.
        let commands = [entry(Measured, 10 * MIB), entry(Running, 0)];
        assert_eq!(ending(&commands, 90 * MIB, Duration::from_millis(20)), [1_usize; 0]);
        assert_eq!(ending(&commands, 90 * MIB, SETTLE), [0]);
        assert_eq!(ending(&commands, 45 * MIB, SETTLE_URGENT), [0], "half of the reserve is gone");
        assert_eq!(ending(&commands, 24 * MIB, Duration::ZERO), [0, 1], "there is no time left for that");
    }

    #[test]
    fn a_command_that_holds_almost_nothing_ends_last() {
        use State::Measured;
        let commands = [entry(Measured, 4096), entry(Measured, 0)];
        assert_eq!(ending(&commands, 60 * MIB, SETTLE), [0_usize; 0], "ending them gives back nothing");
        assert_eq!(ending(&commands, 49 * MIB, SETTLE), [0]);
        assert_eq!(ending(&commands, 24 * MIB, SETTLE), [0, 1], "one of them may hide what it holds");
    }
}
