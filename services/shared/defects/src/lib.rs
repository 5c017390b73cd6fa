//! Defects that Belay once had, kept so that the simulation can plant them again and show that it finds each of them.
//!
//! The code that fixes one asks [`is_planted`] and leaves the fix out when it is. Without the feature `plant`, which the simulation alone
//! turns on, that is `false` when compiling.

/// A defect to plant. Each says what goes wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Defect {
    /// The executor acknowledges the end of a call once: when the acknowledgement is lost, the row stays in the ledger for ever.
    AcknowledgesOnce = 1,
    /// The runner goes on when its ledger cannot be written, and reports a commit whose row could not be written as an unknown outcome,
    /// although nothing was put in place.
    DoubtsWhatDidNotHappen,
    /// A step fails when the disk of its workspace is full, instead of waiting for room.
    FailsForWantOfRoom,
    /// The executor does not ask again what a gate that lost its store does not know any more: the execution waits for ever.
    AsksOnce,
    /// Waiting is measured by the wall clock: an execution waits for an hour when that is set back by an hour.
    WaitsByTheWallClock,
    /// An approved effect is thrown away when its grant does not hold by the runner's clock.
    DropsGrantsThatRanOut,
    /// A watcher that has seen more than a restored journal holds is refused for ever.
    RefusesCursorsAhead,
    /// A watcher whose events were lost with the journal goes on as if nothing had happened, once the journal has outgrown its cursor.
    TrustsCursorsFromBefore,
}

/// Whether a defect is planted in this process.
#[cfg(feature = "plant")]
pub fn is_planted(defect: Defect) -> bool {
    planted::DEFECT.load(std::sync::atomic::Ordering::Relaxed) == defect as u8
}

/// Whether a defect is planted in this process: none can be.
#[cfg(not(feature = "plant"))]
pub const fn is_planted(_: Defect) -> bool {
    false
}

#[cfg(feature = "plant")]
pub use planted::plant;

#[cfg(feature = "plant")]
mod planted {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Defect;

    /// The planted defect's number; 0 for none.
    pub(super) static DEFECT: AtomicU8 = AtomicU8::new(0);

    /// Plants a defect in this process, for good. One process has one at most.
    pub fn plant(defect: Defect) {
        DEFECT.store(defect as u8, Ordering::Relaxed);
    }
}
