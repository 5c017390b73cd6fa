//! How a driver ends.

use tonic::Status;

/// Why a driver has stopped.
pub(super) enum Exit {
    /// Its execution is parked, and has left memory.
    Parked,
    /// Its execution has ended, and has left memory.
    Ended,
    /// The service is stopping.
    Stopping,
    /// The store failed, or another owner wrote to it.
    Lost(Status),
    /// The disk failed to return a value that it needs. It may return it later.
    Unreadable(Status),
    /// The store has refused events that were decided by what others have changed meanwhile.
    Outdated(String),
    /// An operation of it failed by a fault in the executor.
    Fault(String),
}
