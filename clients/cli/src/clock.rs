//! The wall clock, for what people read ("3m ago") and type (`--since 1h`). Nothing that is stored or decided depends on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970-01-01T00:00:00Z; zero on a machine whose clock stands before it.
#[expect(clippy::disallowed_methods, reason = "a client outside the simulation, which may not import service-kit")]
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
