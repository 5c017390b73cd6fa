//! Contradictions: of parts of a filter with each other, and with the order.

use belay_journal::{AnyOf, Comparison, Condition, Order, OrderBy};
use belay_proto::v1::execution::State;

use crate::wire;

/// How many choices among alternatives are tried in the search for a contradiction.
const MAX_CHOICES: usize = 1_000;

/// Whether no execution can be in a list, since parts of its filter contradict each other, or its order: found without looking at any. Not every such
/// filter is found.
pub(crate) fn matches_nothing(filter: &[AnyOf], order: Order) -> bool {
    let has_ended = Condition::EndTime(Comparison::NotEqual, i64::MIN);
    let mut chosen = if order.by == OrderBy::EndTime { vec![&has_ended] } else { Vec::new() };
    let mut choices = MAX_CHOICES;
    !can_match(&mut chosen, filter, &mut choices)
}

/// Whether a condition can be chosen of each part so that none excludes another, nor one of those that are chosen already; `true` after too many choices.
fn can_match<'f>(chosen: &mut Vec<&'f Condition>, filter: &'f [AnyOf], choices: &mut usize) -> bool {
    let Some((any, rest)) = filter.split_first() else { return true };
    for one in &any.0 {
        if *choices == 0 {
            return true;
        }
        *choices -= 1;
        if chosen.iter().any(|other| excludes(other, one) || excludes(one, other)) {
            continue;
        }
        chosen.push(one);
        if can_match(chosen, rest, choices) {
            return true;
        }
        chosen.pop();
    }
    false
}

/// Whether no execution matches both. It is asked both ways round.
fn excludes(one: &Condition, other: &Condition) -> bool {
    use Condition as C;
    let differ = |left: &str, right: &str, equal: bool| (left != right) == equal;
    let disjoint = |(one, time): (Comparison, i64), (other, than): (Comparison, i64)| {
        let ((least, most), (low, high)) = (one.bounds(time), other.bounds(than));
        least.max(low) > most.min(high) || one == Comparison::Equal && !other.holds(time, than)
    };
    match (one, other) {
        (C::State(true, state), C::State(equal, other)) => (state != other) == *equal,
        (C::WaitsFor(true, kind), C::WaitsFor(false, other)) => kind == other,
        (C::PlanId(true, plan), C::PlanId(equal, other)) => differ(plan, other, *equal),
        (C::FailureReason(true, reason), C::FailureReason(equal, other)) => differ(reason, other, *equal),
        (C::Label(true, key, value), C::Label(equal, other, than)) => key == other && differ(value, than, *equal),
        (C::Id(true, id), C::Id(equal, other)) => differ(id, other, *equal),
        (C::Id(true, id), C::IdPrefix(prefix)) => !id.starts_with(prefix),
        (C::IdPrefix(prefix), C::IdPrefix(other)) => !prefix.starts_with(other) && !other.starts_with(prefix),
        (C::Parent(id), C::Parent(other)) => id != other,
        (C::Parent(_) | C::HasParent(true), C::HasParent(false)) => true,
        (C::CreateTime(one, time), C::CreateTime(other, than)) | (C::EndTime(one, time), C::EndTime(other, than)) => {
            disjoint((*one, *time), (*other, *than))
        }
        (ended, live) => has_ended(ended) == Some(true) && has_ended(live) == Some(false),
    }
}

/// Whether every execution that matches has ended (`true`), or none has (`false`).
fn has_ended(condition: &Condition) -> Option<bool> {
    match condition {
        Condition::State(true, number) => {
            let state = State::try_from(*number).ok().and_then(wire::state_from)?;
            Some(state.is_terminal())
        }
        Condition::EndTime(..) | Condition::FailureReason(true, _) => Some(true),
        // What has ended waits for nothing.
        Condition::WaitsFor(true, _) => Some(false),
        _ => None,
    }
}
