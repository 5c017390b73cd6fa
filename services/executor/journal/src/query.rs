//! Lists of executions: what a query asks for, and which executions match it.

use std::cmp::Ordering;

use crate::{ExecutionKey, ExecutionRow};

/// How many executions a page of a list reads at most, unless it has room for more. It bounds the duration of a page whatever the
/// filter; a row takes some microseconds.
pub const MAX_EXAMINED: usize = 384;

/// A list of executions: those that match, in an order, from a position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The namespace's id; `None` for all namespaces.
    pub namespace: Option<String>,
    /// All of these have to match.
    pub filter: Vec<AnyOf>,
    /// The order.
    pub order: Order,
    /// The position after which the page begins.
    pub after: Option<Position>,
    /// The maximum number of executions in the page.
    pub limit: usize,
}

/// Conditions of which at least one has to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyOf(pub Vec<Condition>);

/// A condition on an execution. Each `bool` tells whether the value has to be equal (`true`) or different (`false`); a value that is not
/// set is different from every value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The state, as the number of `belay.v1.Execution.State`.
    State(bool, i32),
    /// A kind that is among its waits, by the number of `belay.v1.WaitingReason.Kind`.
    WaitsFor(bool, i32),
    /// The plan's id.
    PlanId(bool, String),
    /// The reason of the failure it ended with.
    FailureReason(bool, String),
    /// The value of a label.
    Label(bool, String, String),
    /// It has a label with this key.
    HasLabel(String),
    /// The id.
    Id(bool, String),
    /// The id begins with this.
    IdPrefix(String),
    /// It carries out the plan of a step of the execution with this id.
    Parent(String),
    /// Whether it carries out the plan of a step.
    HasParent(bool),
    /// When it was created, in microseconds since the Unix epoch.
    CreateTime(Comparison, i64),
    /// When it ended, in microseconds since the Unix epoch. An execution that has not ended matches no comparison.
    EndTime(Comparison, i64),
}

/// A comparison of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

impl Comparison {
    /// Whether `left` compares so to `right`.
    pub fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::Greater => left > right,
            Self::AtLeast => left >= right,
        }
    }

    /// The smallest and the largest time that compare so to `time`.
    pub fn bounds(self, time: i64) -> (i64, i64) {
        match self {
            Self::Equal => (time, time),
            Self::NotEqual => (i64::MIN, i64::MAX),
            Self::Less => (i64::MIN, time.saturating_sub(1)),
            Self::AtMost => (i64::MIN, time),
            Self::Greater => (time.saturating_add(1), i64::MAX),
            Self::AtLeast => (time, i64::MAX),
        }
    }
}

/// The order of a list; of executions with the same time, by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The time that it goes by.
    pub by: OrderBy,
    /// The latest first.
    pub descending: bool,
}

impl Order {
    /// The newest first.
    pub const NEWEST_FIRST: Self = Self { by: OrderBy::CreateTime, descending: true };

    /// Compares positions: what comes first in the list is less.
    pub fn compare(self, left: Position, right: Position) -> Ordering {
        if self.descending { right.cmp(&left) } else { left.cmp(&right) }
    }
}

/// The time that an order goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderBy {
    /// When it was created.
    CreateTime,
    /// When it ended. Executions that have not ended are not in the list.
    EndTime,
}

/// The position of an execution in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The time that the order goes by, in microseconds since the Unix epoch.
    pub time: i64,
    /// The execution.
    pub key: ExecutionKey,
}

impl Position {
    /// Before every position of an ascending order.
    pub const START: Self = Self { time: i64::MIN, key: ExecutionKey(i64::MIN) };

    /// After every execution with this time or an earlier one.
    pub fn after(time: i64) -> Self {
        Self { time, key: ExecutionKey(i64::MAX) }
    }
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The executions that match, in order.
    pub rows: Vec<ExecutionRow>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<Position>,
}

impl Query {
    /// Whether an execution matches, wherever the page begins.
    pub fn matches(&self, row: &ExecutionRow) -> bool {
        self.position(row).is_some()
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == row.execution.namespace)
            && self.filter.iter().all(|any| any.matches(row))
    }

    /// The position of an execution in the list; `None` when the order has no place for it.
    pub fn position(&self, row: &ExecutionRow) -> Option<Position> {
        let time = match self.order.by {
            OrderBy::CreateTime => row.execution.created_at,
            OrderBy::EndTime => row.summary.ended_at?,
        };
        Some(Position { time, key: row.key })
    }

    /// The smallest and the largest time that an execution in the list can have, of the time that the order goes by.
    pub fn bounds(&self) -> (i64, i64) {
        let bounds = self.filter.iter().filter_map(|any| match (&any.0[..], self.order.by) {
            ([Condition::CreateTime(comparison, time)], OrderBy::CreateTime)
            | ([Condition::EndTime(comparison, time)], OrderBy::EndTime) => Some(comparison.bounds(*time)),
            _ => None,
        });
        bounds.fold((i64::MIN, i64::MAX), |(low, high), (least, most)| (low.max(least), high.min(most)))
    }
}

impl AnyOf {
    /// Whether an execution matches one of the conditions.
    pub fn matches(&self, row: &ExecutionRow) -> bool {
        self.0.iter().any(|condition| condition.matches(row))
    }
}

impl Condition {
    /// Whether an execution matches.
    pub fn matches(&self, row: &ExecutionRow) -> bool {
        let ExecutionRow { execution, summary, .. } = row;
        match self {
            Self::State(equal, state) => (summary.state == *state) == *equal,
            Self::WaitsFor(equal, kind) => summary.waits_for.contains(*kind) == *equal,
            Self::PlanId(equal, plan) => (execution.plan_id == *plan) == *equal,
            Self::FailureReason(equal, reason) => (summary.failure_reason.as_ref() == Some(reason)) == *equal,
            Self::Label(equal, key, value) => (execution.labels.get(key) == Some(value)) == *equal,
            Self::HasLabel(key) => execution.labels.contains_key(key),
            Self::Id(equal, id) => (execution.id == *id) == *equal,
            Self::IdPrefix(prefix) => execution.id.starts_with(prefix),
            Self::Parent(id) => execution.parent.as_ref().is_some_and(|parent| parent.execution_id == *id),
            Self::HasParent(has) => execution.parent.is_some() == *has,
            Self::CreateTime(comparison, time) => comparison.holds(execution.created_at, *time),
            Self::EndTime(comparison, time) => summary.ended_at.is_some_and(|ended| comparison.holds(ended, *time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{ExecutionSummary, NewExecution, ParentStep, Waits};

    fn row() -> ExecutionRow {
        ExecutionRow {
            key: ExecutionKey(7),
            execution: NewExecution {
                namespace: "n".into(),
                id: "run-1".into(),
                shard: 0,
                created_at: 100,
                plan_id: "deploy".into(),
                labels: BTreeMap::from([("team".into(), "a".into())]),
                principal: String::new(),
                request_id: String::new(),
                request_hash: String::new(),
                parent: Some(ParentStep {
                    execution: ExecutionKey(3),
                    execution_id: "release".into(),
                    step_id: "s".into(),
                }),
            },
            summary: ExecutionSummary { state: 3, waits_for: Waits(0).with(2), ..ExecutionSummary::default() },
            revision: 1,
        }
    }

    fn ended() -> ExecutionRow {
        let row = row();
        let summary =
            ExecutionSummary { ended_at: Some(200), failure_reason: Some("TIMEOUT".into()), ..row.summary.clone() };
        ExecutionRow { summary, ..row }
    }

    #[test]
    fn a_comparison_holds_for_what_it_says_and_has_its_bounds() {
        use Comparison as C;
        for (comparison, less, equal, greater, bounds) in [
            (C::Equal, false, true, false, (5, 5)),
            (C::NotEqual, true, false, true, (i64::MIN, i64::MAX)),
            (C::Less, true, false, false, (i64::MIN, 4)),
            (C::AtMost, true, true, false, (i64::MIN, 5)),
            (C::Greater, false, false, true, (6, i64::MAX)),
            (C::AtLeast, false, true, true, (5, i64::MAX)),
        ] {
            let holds = [4, 5, 6].map(|left| comparison.holds(left, 5));
            assert_eq!((holds, comparison.bounds(5)), ([less, equal, greater], bounds), "{comparison:?}");
        }
    }

    // The stores' conformance compares their lists with these conditions: here is what they mean.
    #[test]
    fn a_condition_matches_what_it_names() {
        use Condition as C;
        let text = str::to_owned;
        for (matches, differs) in [
            (C::State(true, 3), C::State(true, 4)),
            (C::WaitsFor(true, 2), C::WaitsFor(true, 1)),
            (C::PlanId(true, text("deploy")), C::PlanId(true, text("deplo"))),
            (C::Label(true, text("team"), text("a")), C::Label(true, text("team"), text("b"))),
            (C::HasLabel(text("team")), C::HasLabel(text("tea"))),
            (C::Id(true, text("run-1")), C::Id(true, text("run-2"))),
            (C::IdPrefix(text("run-")), C::IdPrefix(text("ran-"))),
            (C::Parent(text("release")), C::Parent(text("releas"))),
            (C::HasParent(true), C::HasParent(false)),
            (C::CreateTime(Comparison::Equal, 100), C::CreateTime(Comparison::Equal, 200)),
            (C::EndTime(Comparison::Equal, 200), C::EndTime(Comparison::Equal, 100)),
            (C::FailureReason(true, text("TIMEOUT")), C::FailureReason(true, text("CRASH"))),
        ] {
            assert!(matches.matches(&ended()), "{matches:?}");
            assert!(!differs.matches(&ended()), "{differs:?}");
            let inverted = |condition: &C| match condition.clone() {
                C::State(equal, state) => Some(C::State(!equal, state)),
                C::WaitsFor(equal, kind) => Some(C::WaitsFor(!equal, kind)),
                C::PlanId(equal, plan) => Some(C::PlanId(!equal, plan)),
                C::FailureReason(equal, reason) => Some(C::FailureReason(!equal, reason)),
                C::Label(equal, key, value) => Some(C::Label(!equal, key, value)),
                C::Id(equal, id) => Some(C::Id(!equal, id)),
                C::HasParent(has) => Some(C::HasParent(!has)),
                C::HasLabel(_) | C::IdPrefix(_) | C::Parent(_) | C::CreateTime(..) | C::EndTime(..) => None,
            };
            assert!(inverted(&matches).is_none_or(|not| !not.matches(&ended())), "not {matches:?}");
            assert!(inverted(&differs).is_none_or(|not| not.matches(&ended())), "not {differs:?}");
        }
        let without = row();
        assert!(!C::FailureReason(true, text("TIMEOUT")).matches(&without));
        assert!(
            C::FailureReason(false, text("TIMEOUT")).matches(&without),
            "what is not set is different from every value"
        );
        assert!(C::Label(false, text("other"), text("a")).matches(&without));
        assert!(!C::EndTime(Comparison::NotEqual, 1).matches(&without), "it has not ended");
    }

    fn query(by: OrderBy, filter: Vec<AnyOf>) -> Query {
        Query { namespace: None, filter, order: Order { by, descending: false }, after: None, limit: 1 }
    }

    #[test]
    fn a_query_matches_by_all_parts_of_its_filter_and_its_namespace() {
        let any = |conditions: &[&Condition]| AnyOf(conditions.iter().map(|one| (*one).clone()).collect());
        let [here, not_here] = [Condition::State(true, 3), Condition::State(true, 4)];
        let matches = |filter| query(OrderBy::CreateTime, filter).matches(&row());
        assert!(matches(vec![any(&[&not_here, &here]), any(&[&here])]));
        assert!(!matches(vec![any(&[&here]), any(&[&not_here])]));
        assert!(!matches(vec![any(&[])]));
        let of = |namespace: &str| Query { namespace: Some(namespace.into()), ..query(OrderBy::CreateTime, vec![]) };
        assert!(of("n").matches(&row()) && !of("m").matches(&row()));
        assert!(query(OrderBy::EndTime, vec![]).matches(&ended()) && !query(OrderBy::EndTime, vec![]).matches(&row()));
    }

    #[test]
    fn the_bounds_of_a_query_are_those_of_the_time_that_it_goes_by() {
        let created = |comparison, time| AnyOf(vec![Condition::CreateTime(comparison, time)]);
        let ended = AnyOf(vec![Condition::EndTime(Comparison::AtMost, 9)]);
        let filter = vec![created(Comparison::Greater, 5), created(Comparison::AtMost, 8), ended];
        assert_eq!(query(OrderBy::CreateTime, filter.clone()).bounds(), (6, 8));
        assert_eq!(query(OrderBy::EndTime, filter).bounds(), (i64::MIN, 9));
        let either = AnyOf(vec![Condition::CreateTime(Comparison::Equal, 5), Condition::State(true, 3)]);
        assert_eq!(query(OrderBy::CreateTime, vec![either]).bounds(), (i64::MIN, i64::MAX));
    }
}
