//! Machines: which run of which host is executing, and the state of its power and disk.
//!
//! turmoil ends a host by dropping its futures. Dropping a SQLite connection closes it properly: it checkpoints, syncs and
//! unlinks the log, which no machine does when it loses power. So every file handle stores the run ("boot") in which it was opened, and works
//! only while that run is executing. [`halt`] is called before the drop; from then on no handle of that run can change the disk, even if it is
//! still held.
//!
//! A tokio runtime belongs to one run of one host (turmoil creates a new one at every restart), which identifies the executing run.
//!
//! A host's code runs until it waits, so a power loss between two steps never falls between a write and its sync. [`fail_power_after`] does:
//! the n-th change of the disk from now does not happen, nor anything after it. [`crate::net`] drops what the dead machine still sends, and
//! [`crate::world`] ends it at the end of the step.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use belay_group_commit::Pauses;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::runtime;

use crate::trace;

/// The state of a host's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Disk {
    /// No fault.
    #[default]
    Well,
    /// A share of the operations, one in this many, fails with an I/O error.
    Failing {
        /// At least 1.
        one_in: u32,
    },
    /// No file can grow.
    Full,
    /// No store can grow; other files can.
    StoresFull,
    /// Stores can grow; no other file can.
    WorkspacesFull,
    /// Every sync fails, and makes nothing durable.
    Unsyncable,
}

/// A run of one host, unique in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boot(u64);

/// The kind of a disk access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Within what the file has.
    Write,
    /// Beyond it.
    Grow(Volume),
    Sync,
}

/// A part of a host's disk that can be full on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Volume {
    /// The services' stores.
    Stores,
    /// Everything else.
    Workspaces,
}

impl Volume {
    /// The folder of the stores.
    const STORES: &str = "/data";

    pub(crate) fn of(path: &Path) -> Self {
        if path.starts_with(Self::STORES) { Self::Stores } else { Self::Workspaces }
    }
}

/// Why the disk refuses an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The machine that opened this file has ended or has no power.
    Dead,
    Failed,
    Full,
}

struct Run {
    boot: Boot,
    runtime: runtime::Id,
    powered: bool,
    /// Its process has requested its end.
    exiting: bool,
    databases: BTreeSet<PathBuf>,
}

#[derive(Default)]
struct Host {
    run: Option<Run>,
    fuse: Option<u32>,
    disk: Disk,
    /// Whether its wall clock was behind at some time.
    was_behind: bool,
    /// How far its wall clock is ahead, in microseconds.
    clock_ahead: i64,
    /// Names whose removal no sync of their folder has made durable. They outlive a killed process, as the page cache does.
    unlinked: BTreeSet<PathBuf>,
}

struct Machines {
    hosts: BTreeMap<&'static str, Host>,
    boots: u64,
    calm: bool,
    kill_points: Vec<KillPoint>,
    random: SmallRng,
    interleaving: Interleaving,
    /// Decides about pauses.
    pausing: SmallRng,
}

/// The pauses that the services make where their threads would be interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interleaving {
    /// A pause at one place in this many; 0 for none.
    pub one_in: u32,
    /// The longest pause. Half of all pauses only let other tasks run.
    pub longest: Duration,
}

impl Machines {
    fn new(seed: u64) -> Self {
        Self {
            hosts: BTreeMap::new(),
            boots: 0,
            calm: false,
            kill_points: Vec::new(),
            random: SmallRng::seed_from_u64(seed),
            interleaving: Interleaving::default(),
            pausing: SmallRng::seed_from_u64(seed ^ 0x5EED),
        }
    }

    /// The executing host, if it has power.
    fn here(&mut self) -> Option<(&'static str, &mut Host)> {
        let runtime = runtime::Handle::try_current().ok()?.id();
        let live = |run: &Run| run.runtime == runtime && run.powered;
        self.hosts.iter_mut().find(|(_, host)| host.run.as_ref().is_some_and(live)).map(|(name, host)| (*name, host))
    }

    fn here_in(&mut self, boot: Boot) -> Option<(&'static str, &mut Host)> {
        self.here().filter(|(_, host)| host.run.as_ref().is_some_and(|run| run.boot == boot))
    }
}

thread_local! {
    static MACHINES: RefCell<Machines> = RefCell::new(Machines::new(0));
}

/// Forgets every machine. `seed` decides which operations of a failing disk fail.
pub fn reset(seed: u64) {
    MACHINES.set(Machines::new(seed));
}

/// Registers the executing code as a new run of `host`, on the current runtime.
///
/// # Panics
/// Outside a tokio runtime.
pub fn boot(host: &'static str) {
    let runtime = runtime::Handle::current().id();
    MACHINES.with_borrow_mut(|machines| {
        machines.boots += 1;
        let boot = Boot(machines.boots);
        let run = Run { boot, runtime, powered: true, exiting: false, databases: BTreeSet::new() };
        machines.hosts.entry(host).or_default().run = Some(run);
    });
}

/// Ends the current run of `host`: no file opened in it works any more, not even for closing.
pub fn halt(host: &str) {
    MACHINES.with_borrow_mut(|machines| {
        if let Some(host) = machines.hosts.get_mut(host) {
            host.run = None;
            host.fuse = None;
        }
    });
}

/// Schedules a power loss of `host` after `changes` more changes of its disk (writes, truncations, syncs, creations and deletions).
pub fn fail_power_after(host: &'static str, changes: u32) {
    MACHINES.with_borrow_mut(|machines| machines.hosts.entry(host).or_default().fuse = Some(changes));
}

/// The hosts whose scheduled power loss has happened and that were not halted since.
pub fn without_power() -> Vec<&'static str> {
    hosts_whose_run(|run| !run.powered)
}

/// Ends the executing process at the end of the step, as if killed: nothing is closed. It is started again.
pub fn exit() {
    MACHINES.with_borrow_mut(|machines| {
        if let Some(run) = machines.here().and_then(|(_, host)| host.run.as_mut()) {
            run.exiting = true;
        }
    });
}

/// The hosts whose process has requested its end and that were not halted since.
pub fn exiting() -> Vec<&'static str> {
    hosts_whose_run(|run| run.exiting)
}

/// A stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It has arrived and was not processed yet.
    Arrived,
    /// It was processed, and its response was not sent yet.
    Answered,
}

/// A process kill in the middle of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillPoint {
    /// The RPC, without its service.
    pub method: &'static str,
    /// The stage.
    pub moment: Moment,
    /// The host whose process is killed.
    pub victim: &'static str,
}

/// Kills a process when the next request reaches the stage.
pub fn set_kill_point(point: KillPoint) {
    MACHINES.with_borrow_mut(|machines| machines.kill_points.push(point));
}

/// Removes every kill point.
pub fn clear_kill_points() {
    MACHINES.with_borrow_mut(|machines| machines.kill_points.clear());
}

/// Reports that a request for `method` has reached `moment` on the executing machine. Returns whether this kills its own process, which then must
/// not continue.
pub(crate) fn reach(method: &str, moment: Moment) -> bool {
    MACHINES.with_borrow_mut(|machines| {
        let Some(here) = machines.here().map(|(name, _)| name) else { return true };
        let is_reached = |point: &KillPoint| point.method == method && point.moment == moment;
        let Some(index) = machines.kill_points.iter().position(is_reached) else { return false };
        let point = machines.kill_points.remove(index);
        trace::event(format_args!("{}: killed when {here} has a {method} that is {moment:?}", point.victim));
        trace::count(match moment {
            Moment::Arrived => "kills before a request was carried out",
            Moment::Answered => "kills before an answer was sent",
        });
        if let Some(run) = machines.hosts.get_mut(point.victim).and_then(|host| host.run.as_mut()) {
            run.exiting = true;
        }
        point.victim == here
    })
}

/// Sets how far the wall clock of `host` is ahead, in microseconds, across restarts.
pub fn set_clock(host: &'static str, ahead: i64) {
    MACHINES.with_borrow_mut(|machines| {
        let host = machines.hosts.entry(host).or_default();
        host.clock_ahead = ahead;
        host.was_behind |= ahead < 0;
    });
}

/// Whether the wall clock of `host` was behind at some time, and so was set forward again.
pub fn was_behind(host: &'static str) -> bool {
    MACHINES.with_borrow(|machines| machines.hosts.get(host).is_some_and(|host| host.was_behind))
}

/// How far the wall clock of the executing machine is ahead, in microseconds.
pub fn clock_ahead() -> i64 {
    MACHINES.with_borrow_mut(|machines| machines.here().map_or(0, |(_, host)| host.clock_ahead))
}

/// Sets the state of the disk of `host`, across restarts.
pub fn set_disk(host: &'static str, disk: Disk) {
    MACHINES.with_borrow_mut(|machines| machines.hosts.entry(host).or_default().disk = disk);
}

/// Sets the pauses of all hosts.
pub fn interleave(interleaving: Interleaving) {
    MACHINES.with_borrow_mut(|machines| machines.interleaving = interleaving);
}

/// The pauses of the executing simulation.
pub const PAUSES: Pauses = Pauses { next: next_pause };

fn next_pause() -> Option<Duration> {
    MACHINES.with_borrow_mut(|machines| {
        let Interleaving { one_in, longest } = machines.interleaving;
        let random = &mut machines.pausing;
        (one_in > 0 && random.random_ratio(1, one_in)).then(|| match random.random_bool(0.5) {
            true => Duration::ZERO,
            false => longest.mul_f64(random.random()),
        })
    })
}

/// Runs `inspect` without disk faults and power losses: for checkers, which are not part of the tested system.
pub fn without_faults<R>(inspect: impl FnOnce() -> R) -> R {
    struct Calm(bool);
    impl Drop for Calm {
        fn drop(&mut self) {
            MACHINES.with_borrow_mut(|machines| machines.calm = self.0);
        }
    }
    let _calm = Calm(MACHINES.with_borrow_mut(|machines| std::mem::replace(&mut machines.calm, true)));
    inspect()
}

/// Whether the executing machine has power.
pub(crate) fn is_powered() -> bool {
    MACHINES.with_borrow_mut(|machines| machines.here().is_some())
}

/// The executing run.
pub(crate) fn current() -> Option<Boot> {
    if !turmoil::in_simulation() {
        return None;
    }
    MACHINES.with_borrow_mut(|machines| machines.here().and_then(|(_, host)| host.run.as_ref().map(|run| run.boot)))
}

/// Checks whether a file opened in `boot` may be accessed now, and counts the change.
pub(crate) fn access(boot: Boot, access: Access) -> Result<(), Refusal> {
    if !turmoil::in_simulation() {
        return Err(Refusal::Dead);
    }
    MACHINES.with_borrow_mut(|machines| {
        let calm = machines.calm;
        let (name, host) = machines.here_in(boot).ok_or(Refusal::Dead)?;
        if calm {
            return Ok(());
        }
        if access != Access::Read {
            match &mut host.fuse {
                Some(0) => {
                    host.fuse = None;
                    if let Some(run) = &mut host.run {
                        run.powered = false;
                    }
                    trace::event(format_args!("{name}: power fails at {access:?}"));
                    return Err(Refusal::Dead);
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
        match host.disk {
            Disk::Well => Ok(()),
            Disk::Full if matches!(access, Access::Grow(_)) => Err(Refusal::Full),
            Disk::StoresFull if access == Access::Grow(Volume::Stores) => Err(Refusal::Full),
            Disk::WorkspacesFull if access == Access::Grow(Volume::Workspaces) => Err(Refusal::Full),
            Disk::Unsyncable if access == Access::Sync => Err(Refusal::Failed),
            Disk::Full | Disk::StoresFull | Disk::WorkspacesFull | Disk::Unsyncable => Ok(()),
            Disk::Failing { one_in } => match machines.random.random_ratio(1, one_in) {
                true => Err(Refusal::Failed),
                false => Ok(()),
            },
        }
    })
}

/// Registers `path` as an open database in `boot`; returns false when it already is.
pub(crate) fn claim_database(boot: Boot, path: &Path) -> bool {
    with_host(boot, |host| host.run.as_mut().is_some_and(|run| run.databases.insert(path.to_owned()))).unwrap_or(false)
}

/// Undoes [`claim_database`].
pub(crate) fn release_database(boot: Boot, path: &Path) {
    with_host(boot, |host| host.run.as_mut().map(|run| run.databases.remove(path)));
}

/// Records that the name `path` was removed and that no sync of its folder has made this durable.
pub(crate) fn note_unlinked(boot: Boot, path: &Path) {
    with_host(boot, |host| host.unlinked.insert(path.to_owned()));
}

/// Removes the record of [`note_unlinked`]; returns whether there was one.
pub(crate) fn take_unlinked(boot: Boot, path: &Path) -> bool {
    with_host(boot, |host| host.unlinked.remove(path)).unwrap_or(false)
}

fn hosts_whose_run(is_so: impl Fn(&Run) -> bool) -> Vec<&'static str> {
    MACHINES.with_borrow(|machines| {
        machines.hosts.iter().filter(|(_, host)| host.run.as_ref().is_some_and(&is_so)).map(|(name, _)| *name).collect()
    })
}

fn with_host<R>(boot: Boot, change: impl FnOnce(&mut Host) -> R) -> Option<R> {
    MACHINES.with_borrow_mut(|machines| machines.here_in(boot).map(|(_, host)| change(host)))
}
