//! A driver's knowledge of the limits over executions of its execution.

use belay_defects::{Defect, is_planted};
use belay_execution::{Event, Execution, LimitMove, LimitRoom, LimitState, Timestamp, limit_moves};
use belay_journal::{ExecutionKey, LimitBound, LimitChange, LimitClaim, LimitStanding};
use belay_plan::{StartRate, WhenFull};

use crate::store::journal_reads::{JournalReads, unreadable};

/// Knowledge of a driver about the limits of its execution.
pub(super) struct Limits {
    /// The limits; none when the plan has none.
    pub(super) claims: Vec<LimitClaim>,
    /// The state of which the store knows.
    pub(super) stored: LimitState,
    /// When a limit with a rate has room again, while the execution waits for that.
    pub(super) frees_at: Option<Timestamp>,
}

impl Limits {
    pub(super) fn of(execution: &Execution) -> Self {
        Self { claims: claims_of(execution), stored: execution.limit_state(), frees_at: None }
    }

    /// When the driver is to look again.
    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        self.frees_at
    }

    /// The changes that follow from events that are about to be stored.
    pub(super) fn changes(&mut self, execution: &Execution, events: &[Event], now: Timestamp) -> Vec<LimitChange> {
        if self.claims.is_empty() {
            return Vec::new();
        }
        let moves = limit_moves(self.stored, events);
        self.stored = execution.limit_state();
        if !matches!(self.stored, LimitState::Waiting(_)) {
            self.frees_at = None;
        }
        changes_of(&self.claims, &moves, now)
    }
}

/// The limits of an execution, as the store has them.
pub(crate) fn claims_of(execution: &Execution) -> Vec<LimitClaim> {
    let bound = |bound: belay_plan::LimitBound| match bound {
        belay_plan::LimitBound::AtOnce(most) => LimitBound::AtOnce(most),
        belay_plan::LimitBound::Rate(StartRate { starts, window }) => {
            LimitBound::Rate { starts, window: i64::try_from(window.as_micros()).unwrap_or(i64::MAX) }
        }
    };
    let claims = execution.created().limits.iter();
    claims.map(|claim| LimitClaim { key: claim.key.clone(), bound: bound(claim.bound) }).collect()
}

/// The changes of the store that these are.
pub(super) fn changes_of(claims: &[LimitClaim], moves: &[LimitMove], now: Timestamp) -> Vec<LimitChange> {
    let (claims, at) = (|| claims.to_vec(), now.as_micros());
    let change = |made: &LimitMove| match made {
        LimitMove::Request => LimitChange::Request { claims: claims() },
        LimitMove::Acquire => LimitChange::Acquire { claims: claims(), at },
        LimitMove::Release => LimitChange::Release { at },
    };
    moves.iter().map(change).collect()
}

/// How an execution stands in each of its limits.
///
/// # Errors
/// The status of a store that cannot be read.
pub(super) async fn standings(
    reads: &JournalReads,
    namespace: &str,
    execution: Option<ExecutionKey>,
    claims: &[LimitClaim],
    now: Timestamp,
) -> Result<Vec<LimitStanding>, tonic::Status> {
    let mut standings = Vec::with_capacity(claims.len());
    for claim in claims {
        let (namespace, claim, at) = (namespace.to_owned(), claim.clone(), now.as_micros());
        let read = reads.read(move |reader| reader.limit_standing(&namespace, execution, &claim, at)).await;
        standings.push(read.map_err(|error| unreadable(&error))?);
    }
    Ok(standings)
}

/// Whether an execution that stands so may have all of its limits.
pub(super) fn room(claims: &[belay_plan::LimitClaim], standings: &[LimitStanding]) -> LimitRoom {
    let mut full = claims.iter().zip(standings).enumerate().filter(|(_, (_, standing))| !standing.is_free).peekable();
    match full.peek() {
        None => LimitRoom::Free,
        Some(_) if is_planted(Defect::LimitsIgnored) => LimitRoom::Free,
        Some(_) => {
            let refused = full.find(|(_, (claim, _))| claim.when_full == WhenFull::Refuse).map(|(place, _)| place);
            LimitRoom::Full { refused }
        }
    }
}

/// When a limit with a rate has room for an execution that is next in it, in microseconds since the Unix epoch. An execution that is not next is woken when it is:
/// a timer of each that waits would wake all of them whenever there is room for one.
pub(super) fn frees_at(standings: &[LimitStanding]) -> Option<i64> {
    standings.iter().filter(|standing| standing.ahead.is_empty()).filter_map(|standing| standing.frees_at).max()
}

/// Whether another execution may have its turn by these changes: not by one that only begins to wait, behind all others.
pub(super) fn gives_turns(changes: &[LimitChange]) -> bool {
    changes.iter().any(|change| !matches!(change, LimitChange::Request { .. }))
}

/// The executions in the way of one that stands so, which are to be cancelled: the oldest first, and no more than have to go.
pub(super) fn in_the_way(claim: &belay_plan::LimitClaim, standing: LimitStanding) -> Vec<ExecutionKey> {
    let belay_plan::LimitBound::AtOnce(most) = claim.bound else { return Vec::new() };
    if claim.when_full != WhenFull::CancelOlder || standing.is_free {
        return Vec::new();
    }
    let mut older = standing.holders;
    older.extend(standing.ahead);
    older.truncate((older.len() + 1).saturating_sub(usize::try_from(most).unwrap_or(usize::MAX)));
    older
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(most: u32, when_full: WhenFull) -> belay_plan::LimitClaim {
        belay_plan::LimitClaim { key: "k".into(), bound: belay_plan::LimitBound::AtOnce(most), when_full }
    }

    fn standing(holders: &[i64], ahead: &[i64], most: usize) -> LimitStanding {
        let keys = |keys: &[i64]| keys.iter().copied().map(ExecutionKey).collect();
        let is_free = ahead.is_empty() && holders.len() < most;
        LimitStanding { is_free, holders: keys(holders), ahead: keys(ahead), frees_at: None }
    }

    #[test]
    fn no_more_are_cancelled_than_are_in_the_way() {
        let older = |most: u32, holders: &[i64], ahead: &[i64]| {
            let standing = standing(holders, ahead, usize::try_from(most).unwrap());
            in_the_way(&claim(most, WhenFull::CancelOlder), standing).into_iter().map(|key| key.0).collect::<Vec<_>>()
        };
        assert_eq!(older(1, &[1], &[]), [1]);
        assert_eq!(older(1, &[1], &[2, 3]), [1, 2, 3]);
        assert_eq!(older(3, &[1, 2, 3], &[4]), [1, 2], "the oldest go");
        assert_eq!(older(3, &[1], &[]), [0; 0]);
        assert_eq!(older(3, &[1], &[2]), [0; 0], "there is room for both, and the other has its turn first");
        assert_eq!(in_the_way(&claim(1, WhenFull::Wait), standing(&[1], &[], 1)), []);
    }

    /// However many wait, one of them has a timer, and one that begins to wait wakes none.
    #[test]
    fn only_the_next_execution_is_woken() {
        let waits = |ahead: &[i64]| LimitStanding { frees_at: Some(7), ..standing(&[], ahead, 1) };
        assert_eq!(frees_at(&[waits(&[])]), Some(7));
        assert_eq!(frees_at(&[waits(&[1])]), None);
        assert_eq!(frees_at(&[waits(&[1]), LimitStanding { frees_at: Some(5), ..waits(&[]) }]), Some(5));
        let (request, release) = (LimitChange::Request { claims: Vec::new() }, LimitChange::Release { at: 1 });
        assert!(!gives_turns(std::slice::from_ref(&request)) && gives_turns(&[request, release]));
    }

    #[test]
    fn one_limit_that_refuses_refuses() {
        let (free, full) = (standing(&[], &[], 1), standing(&[1], &[], 1));
        let of = |claims: &[WhenFull], standings: &[&LimitStanding]| {
            let claims: Vec<_> = claims.iter().map(|when_full| claim(1, *when_full)).collect();
            let standings: Vec<_> = standings.iter().map(|standing| (*standing).clone()).collect();
            room(&claims, &standings)
        };
        use WhenFull::{Refuse, Wait};
        assert_eq!(of(&[Refuse, Wait], &[&free, &free]), LimitRoom::Free);
        assert_eq!(of(&[Refuse, Wait], &[&free, &full]), LimitRoom::Full { refused: None });
        assert_eq!(of(&[Wait, Refuse], &[&full, &full]), LimitRoom::Full { refused: Some(1) });
    }
}
