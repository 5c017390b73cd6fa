//! Limits over executions: who waits for one, who holds it, and who has started in its window.

use crate::ExecutionKey;

/// The most executions that a [`LimitStanding`] names.
pub const MAX_LIMIT_EXECUTIONS: usize = 1_000;

/// A limit that an execution asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitClaim {
    /// The key, which all executions of the namespace share that are to be limited together.
    pub key: String,
    /// The bound that this execution keeps.
    pub bound: LimitBound,
}

/// The bound of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitBound {
    /// So many executions hold it at once.
    AtOnce(u32),
    /// So many executions have it in any window of time.
    Rate {
        /// How many.
        starts: u32,
        /// The length of the window, in microseconds.
        window: i64,
    },
}

impl LimitBound {
    /// The time for which an execution counts after it has got the limit, in microseconds; 0 when it counts until its end.
    pub fn window(self) -> i64 {
        match self {
            Self::AtOnce(_) => 0,
            Self::Rate { window, .. } => window,
        }
    }
}

/// A change of the limits of an execution, all of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitChange {
    /// It waits for its turn from now on, behind all that wait.
    Request {
        /// The limits.
        claims: Vec<LimitClaim>,
    },
    /// It holds them from now on. Refused as [`Refused::LimitFull`](crate::Refused::LimitFull) when one of them is full, or when another execution waits before it.
    Acquire {
        /// The limits.
        claims: Vec<LimitClaim>,
        /// Now, in microseconds since the Unix epoch.
        at: i64,
    },
    /// It neither waits for them nor holds them any more. What has started counts until its window ends.
    Release {
        /// Now, in microseconds since the Unix epoch.
        at: i64,
    },
}

/// An execution in a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitEntry {
    /// Its place in the order of the requests.
    pub position: i64,
    /// The execution.
    pub execution: ExecutionKey,
    /// When it got the limit, in microseconds since the Unix epoch; `None` while it waits.
    pub held_at: Option<i64>,
    /// See [`LimitBound::window`].
    pub window: i64,
    /// Whether it has ended: it counts until its window ends.
    pub released: bool,
}

impl LimitEntry {
    /// Whether it is over: the execution has ended, and so has its window.
    pub fn is_over(&self, at: i64) -> bool {
        self.released && self.held_at.is_none_or(|held_at| held_at.saturating_add(self.window) <= at)
    }
}

/// How an execution stands in a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitStanding {
    /// Whether it may have the limit now: it is its turn, and there is room.
    pub is_free: bool,
    /// The executions that hold the limit and have not ended, in the order of the requests; at most [`MAX_LIMIT_EXECUTIONS`].
    pub holders: Vec<ExecutionKey>,
    /// The executions that wait before it, in the order of the requests; at most [`MAX_LIMIT_EXECUTIONS`].
    pub ahead: Vec<ExecutionKey>,
    /// When a limit with a rate has room again, in microseconds since the Unix epoch; `None` when it has room, or when an execution has to end.
    pub frees_at: Option<i64>,
}

/// How an execution stands in a limit with these entries. Of itself it sees the place, if it waits; one that does not wait stands behind all that do.
pub fn standing(
    entries: impl Iterator<Item = LimitEntry>,
    execution: Option<ExecutionKey>,
    bound: LimitBound,
    at: i64,
) -> LimitStanding {
    let (mut own, mut waiting, mut holders, mut started) = (None, Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        match entry.held_at {
            _ if !entry.released && execution == Some(entry.execution) => own = Some(entry.position),
            None => waiting.push((entry.position, entry.execution)),
            Some(held_at) => {
                if !entry.released {
                    holders.push((entry.position, entry.execution));
                }
                started.push(held_at);
            }
        }
    }
    waiting.retain(|(position, _)| own.is_none_or(|own| *position < own));
    let in_order = |mut executions: Vec<(i64, ExecutionKey)>| -> Vec<ExecutionKey> {
        executions.sort_unstable();
        executions.into_iter().map(|(_, execution)| execution).take(MAX_LIMIT_EXECUTIONS).collect()
    };
    let (has_room, frees_at) = match bound {
        LimitBound::AtOnce(most) => (holders.len() < usize::try_from(most).unwrap_or(usize::MAX), None),
        LimitBound::Rate { starts, window } => {
            started.retain(|held_at| *held_at > at.saturating_sub(window));
            started.sort_unstable();
            let most = usize::try_from(starts.max(1)).unwrap_or(usize::MAX);
            let frees_at = started.len().checked_sub(most).map(|first| started[first].saturating_add(window));
            (frees_at.is_none(), frees_at)
        }
    };
    let (holders, ahead) = (in_order(holders), in_order(waiting));
    LimitStanding { is_free: has_room && ahead.is_empty(), holders, ahead, frees_at }
}

/// A limit for which executions wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedLimit {
    /// The namespace's id.
    pub namespace: String,
    /// The key.
    pub key: String,
    /// The execution whose turn it is.
    pub next: ExecutionKey,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(position: i64, held_at: Option<i64>, window: i64, released: bool) -> LimitEntry {
        LimitEntry { position, execution: ExecutionKey(position), held_at, window, released }
    }

    #[test]
    fn a_limit_is_had_in_the_order_of_the_requests() {
        let entries = [entry(1, Some(5), 0, false), entry(2, None, 0, false), entry(3, None, 0, false)];
        let stands = |execution: i64, most| {
            standing(entries.into_iter(), Some(ExecutionKey(execution)), LimitBound::AtOnce(most), 10)
        };
        let second = stands(2, 1);
        assert!(!second.is_free && second.ahead.is_empty() && second.holders == [ExecutionKey(1)]);
        assert!(stands(2, 2).is_free);
        assert!(!stands(3, 3).is_free, "another waits before it");
        assert_eq!(stands(4, 3).ahead, [ExecutionKey(2), ExecutionKey(3)], "a new one comes after all that wait");
    }

    #[test]
    fn a_rate_counts_what_started_in_the_window_that_ends_now() {
        let entries = [entry(1, Some(100), 50, true), entry(2, Some(120), 50, false), entry(3, Some(140), 50, true)];
        let stands = |starts, at| standing(entries.into_iter(), None, LimitBound::Rate { starts, window: 50 }, at);
        assert_eq!(stands(3, 149).frees_at, Some(150));
        assert!(stands(3, 150).is_free, "the first does not count any more");
        assert_eq!(stands(1, 150).frees_at, Some(190), "two more have to pass");
        assert!(stands(1, 190).is_free, "one that still runs does not count either");
        assert_eq!([149, 150].map(|at| entries[0].is_over(at)), [false, true]);
        assert!(!entries[1].is_over(1_000));
    }
}
