//! The next thing that a started step does.

use crate::Body;

/// The next thing that a started step does.
pub(crate) enum Next {
    /// Its next event: it requests an operation, lists entries, ends or fails.
    Event(Body),
    /// It needs data that are not at hand, which the driver gets before anything else is decided.
    Data,
    /// It waits for steps of other executions to leave memory, which may take long: the other steps do not wait for that.
    Room,
}
