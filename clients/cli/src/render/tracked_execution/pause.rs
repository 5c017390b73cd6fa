//! The time in which an execution did nothing but wait for a person.

use std::time::Duration;

use pbjson_types::Timestamp;

use crate::render::{event_description::IdleChange, time};

/// The time in which an execution did nothing but wait for a person.
#[derive(Debug, Default)]
pub(super) struct Pause {
    since: Option<Timestamp>,
    pub(super) total: Duration,
}

impl Pause {
    /// Takes the change that an event of this time makes into account; each has to be given once.
    pub(super) fn see(&mut self, change: IdleChange, at: Option<Timestamp>) {
        match change {
            IdleChange::Begins => self.since = at,
            IdleChange::None => {}
            IdleChange::Ends => {
                let until = at.as_ref().and_then(time::since_epoch);
                self.total += time::between(self.since.take().as_ref(), until).unwrap_or_default();
            }
        }
    }
}
