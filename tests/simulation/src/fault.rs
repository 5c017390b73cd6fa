//! The schedule of faults of a simulation, as plain data generated from the seed.

use std::fmt;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::machine::{Disk, KillPoint, Moment};

/// A fault, with its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `host` loses power between two of its steps: what was not synced is lost or torn, and its peers are sent nothing.
    PowerLoss {
        /// The host.
        host: &'static str,
        /// From the loss until it starts again.
        down: Duration,
    },
    /// The same, after `changes` more changes of the disk: in the middle of a commit.
    PowerLossAtChange {
        /// The host.
        host: &'static str,
        /// The number of writes, truncations, syncs, creations and deletions that still happen.
        changes: u32,
        /// From the loss until it starts again.
        down: Duration,
    },
    /// The process of `host` is killed and starts again at once. The page cache survives; its connections break.
    Kill {
        /// The host.
        host: &'static str,
    },
    /// A process is killed when the next request reaches a stage, and starts again at once.
    KillAtRequest(KillPoint),
    /// No message passes between `a` and `b`, and messages in flight are lost.
    Partition {
        /// The one side.
        a: &'static str,
        /// The other.
        b: &'static str,
        /// Until it is repaired.
        lasts: Duration,
    },
    /// No message passes from `from` to `to`; the other direction works.
    OneWayPartition {
        /// The sender whose messages are lost.
        from: &'static str,
        /// The receiver.
        to: &'static str,
        /// Until it is repaired.
        lasts: Duration,
    },
    /// The disk of `host` fails or is full.
    Disk {
        /// The host.
        host: &'static str,
        /// The fault of the disk.
        disk: Disk,
        /// Until it is well.
        lasts: Duration,
    },
    /// The wall clock of `host` is wrong: it jumps forward or back, and later jumps to the right time.
    Clock {
        /// The host.
        host: &'static str,
        /// How far it is ahead, in seconds; behind when negative.
        ahead: i64,
        /// Until it is put right.
        lasts: Duration,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerLoss { host, down } => write!(f, "{host}: power loss for {down:?}"),
            Self::PowerLossAtChange { host, changes, down } => {
                write!(f, "{host}: power loss for {down:?} after {changes} changes of the disk")
            }
            Self::Kill { host } => write!(f, "{host}: process killed"),
            Self::KillAtRequest(KillPoint { method, moment, victim }) => {
                write!(f, "{victim}: process killed when a {method} is {moment:?}")
            }
            Self::Partition { a, b, lasts } => write!(f, "{a} and {b} are cut off from each other for {lasts:?}"),
            Self::OneWayPartition { from, to, lasts } => write!(f, "nothing passes from {from} to {to} for {lasts:?}"),
            Self::Disk { host, disk, lasts } => write!(f, "{host}: disk {disk:?} for {lasts:?}"),
            Self::Clock { host, ahead, lasts } => write!(f, "{host}: clock {ahead:+} s for {lasts:?}"),
        }
    }
}

/// Faults with their times since the start of the simulation.
pub type Schedule = Vec<(Duration, Fault)>;

/// The targets of faults.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    /// Hosts that lose power, are killed and have disks. At least one.
    pub servers: &'static [&'static str],
    /// All machines on the network, the servers among them. At least two.
    pub everyone: &'static [&'static str],
    /// The requests in the middle of which processes are killed, each with the hosts of its two ends.
    pub requests: &'static [(&'static str, [&'static str; 2])],
    /// Whether some faults last until [`crate::world::World::heal`]: only for a simulation that calls it.
    pub for_good: bool,
}

/// Longer than any simulation: until `heal` ends the fault.
const UNTIL_HEALED: Duration = Duration::from_secs(100_000);

/// A schedule of up to ten faults within `horizon`, in order of time.
///
/// # Panics
/// When the site has no server or fewer than two machines.
pub fn generate(random: &mut StdRng, site: Site, horizon: Duration) -> Schedule {
    let mut schedule: Schedule = (0..random.random_range(2..=10))
        .map(|_| (milliseconds(random, 0, horizon.as_millis() as u64), fault(random, site)))
        .collect();
    // A stable sort: simultaneous faults stay in the order of generation.
    schedule.sort_by_key(|(at, _)| *at);
    schedule
}

fn fault(random: &mut StdRng, site: Site) -> Fault {
    let host = *site.servers.choose(random).expect("a site has a server");
    let pair: Vec<_> = site.everyone.choose_multiple(random, 2).copied().collect();
    let &[a, b] = pair.as_slice() else { panic!("a site has two machines") };
    match random.random_range(0..100) {
        0..12 => Fault::PowerLoss { host, down: milliseconds(random, 1, 800) },
        12..38 => {
            Fault::PowerLossAtChange { host, changes: random.random_range(0..40), down: milliseconds(random, 1, 800) }
        }
        38..45 => Fault::Kill { host },
        45..55 => kill_at_request(random, site).unwrap_or(Fault::Kill { host }),
        55..67 => Fault::Partition { a, b, lasts: milliseconds(random, 10, 1500) },
        67..75 => Fault::OneWayPartition { from: a, to: b, lasts: milliseconds(random, 10, 1500) },
        75..83 => Fault::Clock { host, ahead: ahead(random), lasts: lasts(random, site, 1500) },
        _ => {
            let disk = match random.random_range(0..8) {
                0 | 1 => Disk::Failing { one_in: random.random_range(1..60) },
                2 => Disk::Full,
                3 | 4 => Disk::StoresFull,
                5 | 6 => Disk::WorkspacesFull,
                _ => Disk::Unsyncable,
            };
            Fault::Disk { host, disk, lasts: lasts(random, site, 800) }
        }
    }
}

fn kill_at_request(random: &mut StdRng, site: Site) -> Option<Fault> {
    let &(method, ends) = site.requests.choose(random)?;
    let moment = *[Moment::Arrived, Moment::Answered].choose(random)?;
    Some(Fault::KillAtRequest(KillPoint { method, moment, victim: ends.choose(random)? }))
}

/// Some milliseconds up to `most`, or until `heal`.
fn lasts(random: &mut StdRng, site: Site, most: u64) -> Duration {
    if site.for_good && random.random_bool(0.25) { UNTIL_HEALED } else { milliseconds(random, 10, most) }
}

/// How far a clock is set, in seconds: seconds, minutes, hours or days, in both directions.
fn ahead(random: &mut StdRng) -> i64 {
    let most = *[30, 15 * 60, 5 * 3600, 40 * 3600].choose(random).expect("not empty");
    random.random_range(-most..=most)
}

fn milliseconds(random: &mut StdRng, least: u64, most: u64) -> Duration {
    Duration::from_millis(random.random_range(least..=most))
}

/// Conditions that apply throughout a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// The maximum delay of a message.
    pub max_latency: Duration,
    /// The probability that a write reaches the disk at once, without a sync.
    pub spontaneous_sync: f64,
    /// A power loss keeps a random number of blocks of this size, in bytes, of each unsynced write; `None` means that no write is torn.
    pub torn_block: Option<u64>,
}

impl Conditions {
    /// Conditions from the seed.
    pub fn generate(random: &mut StdRng) -> Self {
        Self {
            max_latency: milliseconds(random, 1, 60),
            spontaneous_sync: *[0.0, 0.02, 0.3].choose(random).expect("not empty"),
            torn_block: *[None, Some(512), Some(512), Some(4096)].choose(random).expect("not empty"),
        }
    }
}
