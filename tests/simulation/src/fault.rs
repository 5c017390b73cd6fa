//! What goes wrong in a simulation and when, as plain data made from the seed.

use std::fmt;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::machine::Disk;

/// One thing that goes wrong, with its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// `host` loses power between two of its steps: what was not synced is lost or torn, and its peers hear nothing.
    PowerLoss {
        /// The host.
        host: &'static str,
        /// From the loss until it starts again.
        down: Duration,
    },
    /// The same, at the change of the disk that comes after `changes` more: in the middle of a commit.
    PowerLossAtChange {
        /// The host.
        host: &'static str,
        /// Writes, truncations, syncs, creations and deletions that still happen.
        changes: u32,
        /// From the loss until it starts again.
        down: Duration,
    },
    /// The process of `host` is killed and starts again at once. The page cache survives; its connections break.
    Kill {
        /// The host.
        host: &'static str,
    },
    /// Nothing passes between `a` and `b`, and what was on its way is lost.
    Partition {
        /// One side.
        a: &'static str,
        /// The other.
        b: &'static str,
        /// Until it is repaired.
        lasts: Duration,
    },
    /// Nothing passes from `from` to `to`; the other direction works.
    OneWayPartition {
        /// Who is not heard.
        from: &'static str,
        /// Who does not hear.
        to: &'static str,
        /// Until it is repaired.
        lasts: Duration,
    },
    /// The disk of `host` fails or is full.
    Disk {
        /// The host.
        host: &'static str,
        /// What is wrong.
        disk: Disk,
        /// Until it is well.
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
            Self::Partition { a, b, lasts } => write!(f, "{a} and {b} are cut off from each other for {lasts:?}"),
            Self::OneWayPartition { from, to, lasts } => write!(f, "{from} is not heard by {to} for {lasts:?}"),
            Self::Disk { host, disk, lasts } => write!(f, "{host}: disk {disk:?} for {lasts:?}"),
        }
    }
}

/// What goes wrong when, counted from the start of the simulation.
pub type Schedule = Vec<(Duration, Fault)>;

/// The machines that faults can befall.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    /// Hosts that lose power, are killed and have disks. At least one.
    pub servers: &'static [&'static str],
    /// Everybody on the network, the servers among them. At least two.
    pub everyone: &'static [&'static str],
}

/// A schedule of up to ten faults within `horizon`, in order of time.
///
/// # Panics
/// When the site has no server or fewer than two machines.
pub fn generate(random: &mut StdRng, site: Site, horizon: Duration) -> Schedule {
    let mut schedule: Schedule = (0..random.random_range(2..=10))
        .map(|_| (milliseconds(random, 0, horizon.as_millis() as u64), fault(random, site)))
        .collect();
    // A stable sort: faults of one instant stay in the order in which they were made.
    schedule.sort_by_key(|(at, _)| *at);
    schedule
}

fn fault(random: &mut StdRng, site: Site) -> Fault {
    let host = *site.servers.choose(random).expect("a site has a server");
    let pair: Vec<_> = site.everyone.choose_multiple(random, 2).copied().collect();
    let &[a, b] = pair.as_slice() else { panic!("a site has two machines") };
    match random.random_range(0..100) {
        0..15 => Fault::PowerLoss { host, down: milliseconds(random, 1, 800) },
        15..45 => {
            Fault::PowerLossAtChange { host, changes: random.random_range(0..40), down: milliseconds(random, 1, 800) }
        }
        45..55 => Fault::Kill { host },
        55..70 => Fault::Partition { a, b, lasts: milliseconds(random, 10, 1500) },
        70..80 => Fault::OneWayPartition { from: a, to: b, lasts: milliseconds(random, 10, 1500) },
        _ => {
            let disk = match random.random_range(0..4) {
                0 | 1 => Disk::Failing { one_in: random.random_range(2..60) },
                2 => Disk::Full,
                _ => Disk::Unsyncable,
            };
            Fault::Disk { host, disk, lasts: milliseconds(random, 10, 800) }
        }
    }
}

fn milliseconds(random: &mut StdRng, least: u64, most: u64) -> Duration {
    Duration::from_millis(random.random_range(least..=most))
}

/// What holds throughout a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// The longest a message is under way.
    pub max_latency: Duration,
    /// The probability that a write reaches the disk at once, unasked.
    pub spontaneous_sync: f64,
    /// Of each write that was not synced, a power loss leaves a random number of blocks of this size, in bytes; `None`: all or
    /// nothing is synced, nothing is torn.
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
