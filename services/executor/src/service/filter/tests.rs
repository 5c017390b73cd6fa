//! Filters and orders: what they mean, what is refused, and what can match nothing.

use belay_journal::{
    AnyOf, Comparison, Condition, ExecutionKey, ExecutionRow, ExecutionSummary, NewExecution, Order, OrderBy,
    ParentStep, Query, Waits,
};
use belay_proto::v1::{execution::State, waiting_reason::Kind};

use super::{matches_nothing, order, parse};
use crate::wire;

fn one(text: &str) -> Condition {
    let [AnyOf(any)] = parse(text).unwrap().try_into().unwrap();
    let [one] = any.try_into().unwrap();
    one
}

#[test]
fn each_field_has_its_operators() {
    let text = str::to_owned;
    assert_eq!(one("state = RUNNING"), Condition::State(true, State::Running.into()));
    assert_eq!(one("state!=STATE_TIMED_OUT"), Condition::State(false, State::TimedOut.into()));
    assert_eq!(one("waits_for:APPROVAL"), Condition::WaitsFor(true, Kind::Approval.into()));
    assert_eq!(one("waits_for != TIMER"), Condition::WaitsFor(false, Kind::Timer.into()));
    assert_eq!(one("plan_id = deploy"), Condition::PlanId(true, text("deploy")));
    assert_eq!(one("failure_reason != DENIED"), Condition::FailureReason(false, text("DENIED")));
    assert_eq!(one("labels.team = a"), Condition::Label(true, text("team"), text("a")));
    assert_eq!(one("labels.a.b/c != \"x = \\\"y\\\"\""), Condition::Label(false, text("a.b/c"), text("x = \"y\"")));
    assert_eq!(one("labels.\"a b\" = 'AND'"), Condition::Label(true, text("a b"), text("AND")));
    assert_eq!(one("labels.team:*"), Condition::HasLabel(text("team")));
    assert_eq!(one("labels.team:a"), Condition::Label(true, text("team"), text("a")));
    assert_eq!(one("id = a-1"), Condition::Id(true, text("a-1")));
    assert_eq!(one("id=\"a-*\""), Condition::IdPrefix(text("a-")));
    assert_eq!(one("parent = release"), Condition::Parent(text("release")));
    assert_eq!(one("parent:*"), Condition::HasParent(true));
    for (operator, comparison) in [
        ("=", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<", Comparison::Less),
        ("<=", Comparison::AtMost),
        (">", Comparison::Greater),
        (">=", Comparison::AtLeast),
    ] {
        let time = "\"1970-01-01T01:00:00.5+01:00\"";
        assert_eq!(one(&format!("create_time {operator} {time}")), Condition::CreateTime(comparison, 500_000));
        assert_eq!(one(&format!("end_time{operator}{time}")), Condition::EndTime(comparison, 500_000));
    }
}

#[test]
fn or_binds_more_tightly_than_and() {
    let sizes = |text: &str| parse(text).unwrap().iter().map(|any| any.0.len()).collect::<Vec<_>>();
    assert_eq!(sizes(""), [0; 0]);
    assert_eq!(sizes("  "), [0; 0]);
    assert_eq!(sizes("state = FAILED AND id = a OR id = b AND id != c"), [1, 2, 1]);
}

#[test]
fn errors_name_the_place() {
    for (filter, error) in [
        ("stat = RUNNING", "at character 1: `stat` is not a field: use state, labels.KEY, plan_id, "),
        ("id = a AND labels = b", "at character 12: labels needs a key, such as labels.team"),
        ("labels. = b", "at character 1: labels. needs a key"),
        ("state = RUN", "at character 9: `RUN` is not a state, such as RUNNING or FAILED"),
        ("state = UNSPECIFIED", "at character 9: `UNSPECIFIED` is not a state"),
        ("state > RUNNING", "at character 7: `>` is not supported for state"),
        ("ünd = x", "at character 1: `ünd` is not a field"),
        ("labels.ü = \"ü\" und", "at character 16: expected AND, OR or the end, found `und`"),
        ("waits_for = GODOT", "at character 13: `GODOT` is nothing to wait for"),
        ("create_time > yesterday", "at character 15: `yesterday` is not a time, such as"),
        ("create_time > 2026-01-01T00:00:00Z", "at character 15: `2026-01-01T00` is not a time"),
        ("create_time : \"2026-01-01T00:00:00Z\"", "at character 13: `:` is not supported for create_time"),
        ("id", "at character 3: expected =, !=, <, <=, >, >= or :, found the end"),
        ("id =", "at character 5: expected a value, found the end"),
        ("id = AND", "at character 6: expected a value, found `AND`"),
        ("id = a AND", "at character 11: expected state, labels.KEY,"),
        ("id = a id = b", "at character 8: expected AND, OR or the end, found `id`"),
        ("(id = a)", "at character 1: `(`: parentheses are not supported"),
        ("NOT id = a", "at character 1: NOT is not supported: use !="),
        ("-id = a", "at character 1: expected state"),
        ("id = \"a", "at character 6: the text that begins with \" has no end"),
        ("parent != a", "at character 11: `parent` is followed by `= ID`, or by `:*`"),
        ("parent:a", "at character 8: `parent` is followed by `= ID`, or by `:*`"),
        ("id != a*", "at character 7: `*` is supported after `id =` only"),
        ("= a", "at character 1: expected state"),
    ] {
        let found = parse(filter).unwrap_err().to_string();
        assert!(found.starts_with(error), "{filter}: {found}");
    }
    assert!(parse(&"x".repeat(5000)).unwrap_err().to_string().contains("the limit is 4096"));
    assert!(parse(&vec!["id = a"; 65].join(" OR ")).unwrap_err().to_string().contains("64 restrictions"));
}

/// Whatever the bytes, there is an answer.
#[test]
fn nothing_makes_it_panic() {
    let pieces =
        ["labels.", "\"", "'", "\\", "=", "!", "!=", " ", "AND", "(", "ü", "id", "*", ":", "-", "\u{0}", "state"];
    let mut seed = 1_u32;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..seed % 9 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.push_str(pieces[(seed >> 16) as usize % pieces.len()]);
        }
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let _ = parse(&text);
    }
}

const BY_END: Order = Order { by: OrderBy::EndTime, descending: true };

#[test]
fn a_filter_that_contradicts_itself_or_its_order_matches_nothing() {
    let time = |second: u32| format!("\"2026-01-01T00:00:{second:02}Z\"");
    let nothing = |text: &str, order| matches_nothing(&parse(text).unwrap(), order);
    for text in [
        "state = RUNNING AND state = FAILED",
        "state = FAILED AND state != FAILED",
        "state = RUNNING AND failure_reason = X",
        "state = COMPLETED AND waits_for = APPROVAL",
        "waits_for = TIMER AND waits_for != TIMER",
        "waits_for = TIMER AND failure_reason = X",
        "plan_id = a AND plan_id = b",
        "labels.k = a AND labels.k = b",
        "labels.k = a AND labels.k != a",
        "id = a AND id = b",
        "id = a AND id = \"b*\"",
        "id = \"a*\" AND id = \"b*\"",
        "parent = a AND parent = b",
        "state = RUNNING OR state = PAUSED AND state = FAILED OR state = PARTIAL",
        "state = RUNNING OR waits_for = TIMER AND failure_reason = X",
        &format!("create_time < {0} AND create_time >= {0}", time(5)),
        &format!("create_time = {0} AND create_time != {0}", time(5)),
        &format!("create_time < {} AND create_time > {}", time(4), time(6)),
        &format!("end_time > {} AND state = RUNNING", time(5)),
    ] {
        assert!(nothing(text, Order::NEWEST_FIRST) && nothing(text, BY_END), "{text}");
    }
    for text in
        ["state = RUNNING", "state = RUNNING OR state = PENDING", "waits_for = TIMER", "state = PAUSED AND id = a"]
    {
        assert!(!nothing(text, Order::NEWEST_FIRST), "{text}");
        assert!(nothing(text, BY_END), "{text}: what is sorted by its end has ended");
    }
    for text in [
        "",
        "waits_for = TIMER AND waits_for = APPROVAL",
        "state = RUNNING OR state = FAILED AND failure_reason = X",
        "state != RUNNING AND state != FAILED",
        "labels.k = a AND labels.l = b AND labels.k:*",
        "id = \"a*\" AND id = \"ab*\" AND id != abc",
        "id = \"a*\" AND id = ab",
        "failure_reason != X AND waits_for != TIMER",
    ] {
        assert!(!nothing(text, Order::NEWEST_FIRST), "{text}");
    }
}

/// Whatever the filter: where it is said that nothing matches, none of very different executions does.
#[test]
fn what_is_said_to_match_nothing_matches_nothing() {
    let mut seed = 1_u32;
    let mut below = |most: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % most
    };
    let rows: Vec<ExecutionRow> = (0..400)
        .map(|n| {
            let state = State::try_from(1 + n % 10).unwrap();
            let ended = wire::state_from(state).unwrap().is_terminal();
            let mut text = |of: &[&str]| of[below(of.len() as u32) as usize].to_owned();
            let parent = [None, Some("a"), Some("b")][n as usize % 3];
            ExecutionRow {
                key: ExecutionKey(n.into()),
                execution: NewExecution {
                    namespace: "n".into(),
                    id: text(&["a", "ab", "abc", "b"]),
                    shard: 0,
                    created_at: i64::from(n % 4),
                    plan_id: text(&["a", "b"]),
                    labels: [("k".to_owned(), text(&["a", "b"]))].into(),
                    principal: String::new(),
                    request_id: String::new(),
                    request_hash: String::new(),
                    parent: parent.map(|parent| ParentStep {
                        execution: ExecutionKey(1),
                        execution_id: parent.into(),
                        step_id: "s".into(),
                    }),
                },
                summary: ExecutionSummary {
                    state: state.into(),
                    ended,
                    ended_at: ended.then_some(i64::from(n % 5)),
                    failure_reason: (ended && n % 3 > 0).then(|| text(&["a", "b"])),
                    waits_for: if ended { Waits::default() } else { Waits(n as u32 % 8 * 2) },
                    ..ExecutionSummary::default()
                },
                revision: 1,
            }
        })
        .collect();
    let comparisons = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::AtMost,
        Comparison::Greater,
        Comparison::AtLeast,
    ];
    let (mut found, mut contradictions) = (0, 0);
    for _ in 0..20_000 {
        let mut condition = || {
            let text = ["a", "ab", "b"][below(3) as usize].to_owned();
            let (equal, number) = (below(2) == 0, below(5));
            let comparison = comparisons[below(6) as usize];
            match below(11) {
                0 => Condition::State(equal, 1 + below(10) as i32),
                1 => Condition::WaitsFor(equal, 1 + below(3) as i32),
                2 => Condition::PlanId(equal, text),
                3 => Condition::FailureReason(equal, text),
                4 => Condition::Label(equal, "k".into(), text),
                5 => Condition::Id(equal, text),
                6 => Condition::IdPrefix(text),
                7 => Condition::Parent(text),
                8 => Condition::HasParent(equal),
                9 => Condition::CreateTime(comparison, number.into()),
                _ => Condition::EndTime(comparison, number.into()),
            }
        };
        let filter: Vec<AnyOf> =
            [1, 2, 1].map(|alternatives| AnyOf((0..alternatives).map(|_| condition()).collect())).into();
        for order in [Order::NEWEST_FIRST, BY_END] {
            let query = Query { namespace: None, filter: filter.clone(), order, after: None, limit: 1 };
            let matching = rows.iter().find(|row| query.matches(row));
            let is_contradiction = matches_nothing(&filter, order);
            assert!(!is_contradiction || matching.is_none(), "{filter:?} {order:?}: {matching:?}");
            found += usize::from(matching.is_some());
            contradictions += usize::from(is_contradiction);
        }
    }
    assert!(found > 1_000 && contradictions > 1_000, "{found} {contradictions}");
}

#[test]
fn an_order_names_a_time() {
    let by = |text: &str| order(text, &[]).map(|order| (order.by, order.descending));
    assert_eq!(by(""), Ok((OrderBy::CreateTime, true)));
    assert_eq!(by(" create_time "), Ok((OrderBy::CreateTime, false)));
    assert_eq!(by("end_time desc"), Ok((OrderBy::EndTime, true)));
    let ended = parse("end_time > \"2026-01-01T00:00:00Z\"").unwrap();
    assert_eq!(order("", &ended), Ok(Order { by: OrderBy::EndTime, descending: true }));
    assert!(by("state").unwrap_err().starts_with("`state` cannot be sorted by"));
    assert!(by("create_time, end_time").is_err());
    assert!(by("create_time down").is_err());
}
