//! Faults of a part of a stored message, which does not know the number of its event.

use super::NotUnderstood;

/// The reason why a part of a stored message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It lacks this.
    Lacks(&'static str),
    /// This version does not understand it.
    NotUnderstood(NotUnderstood),
}

impl From<NotUnderstood> for Unread {
    fn from(problem: NotUnderstood) -> Self {
        Self::NotUnderstood(problem)
    }
}
