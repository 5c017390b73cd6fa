//! Lists of executions and of namespaces.

use super::{
    common::{commit, create, created, new_execution, update},
    contents::{EVERYTHING, all, one, pages},
};
use crate::{
    AnyOf, Comparison, Condition, ExecutionKey, ExecutionRow, ExecutionSummary, JournalWriter, MAX_EXAMINED,
    NewExecution, OpenedStore, Order, OrderBy, ParentStep, Query, StoreWriteOutcome, Waits,
};

/// Whatever the filter, the order and the page: what a list contains is what matches.
pub(super) async fn lists_by_filter<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    for index in 0_i64..48 {
        let mut execution = new_execution(&format!("list-{index}"), "", "", 100 + index / 2);
        execution.namespace = ["lists", "other-lists"][usize::from(index % 3 == 2)].into();
        execution.plan_id = format!("plan-{}", index % 4);
        if index % 5 != 0 {
            execution.labels.insert("team".into(), ["a", "b"][usize::from(index % 2 == 0)].into());
        }
        if index % 7 == 3 {
            let (execution_id, step_id) = (format!("parent-{}", index % 2), "s".into());
            execution.parent = Some(ParentStep { execution: ExecutionKey(1), execution_id, step_id });
        }
        let key = created(&commit(store, vec![create(execution, fence)]).await[0]);
        let (ended, waits) = (index % 4 == 0, Waits(u32::try_from(index % 4).unwrap()));
        let summary = ExecutionSummary {
            state: i32::try_from(index % 6).unwrap(),
            ended,
            waits_for: if ended { Waits::default() } else { waits },
            ended_at: ended.then_some(1000 - index),
            failure_reason: (index % 8 == 0).then(|| format!("REASON_{}", index % 3)),
            ..ExecutionSummary::default()
        };
        assert_eq!(
            commit(store, vec![update(key, 3, summary.clone(), fence)]).await,
            vec![Ok(StoreWriteOutcome::Appended)]
        );
        // Some go on after their end, and some of these end again.
        if index % 12 == 4 {
            let goes_on = ExecutionSummary { ended: false, ended_at: None, failure_reason: None, ..summary.clone() };
            assert_eq!(
                commit(store, vec![update(key, 4, goes_on, fence)]).await,
                vec![Ok(StoreWriteOutcome::Appended)]
            );
        }
        if index % 24 == 4 {
            let again = ExecutionSummary { ended_at: Some(2000 + index), ..summary };
            assert_eq!(commit(store, vec![update(key, 5, again, fence)]).await, vec![Ok(StoreWriteOutcome::Appended)]);
        }
    }
    let text = str::to_owned;
    let conditions = [
        Condition::State(true, 3),
        Condition::State(false, 3),
        Condition::State(true, 99),
        Condition::WaitsFor(true, 1),
        Condition::WaitsFor(false, 1),
        Condition::PlanId(true, text("plan-2")),
        Condition::PlanId(false, text("plan-2")),
        Condition::FailureReason(true, text("REASON_1")),
        Condition::FailureReason(false, text("REASON_1")),
        Condition::Label(true, text("team"), text("a")),
        Condition::Label(false, text("team"), text("a")),
        Condition::Label(true, text("team"), text("no such value")),
        Condition::HasLabel(text("team")),
        Condition::HasLabel(text("tea")),
        Condition::Id(true, text("list-7")),
        Condition::Id(false, text("list-7")),
        Condition::IdPrefix(text("list-1")),
        Condition::IdPrefix(text("list_")),
        Condition::Parent(text("parent-1")),
        Condition::Parent(text("parent-2")),
        Condition::HasParent(true),
        Condition::HasParent(false),
        Condition::CreateTime(Comparison::AtLeast, 110),
        Condition::CreateTime(Comparison::Less, 110),
        Condition::CreateTime(Comparison::Equal, 110),
        Condition::CreateTime(Comparison::NotEqual, 110),
        Condition::EndTime(Comparison::Greater, 980),
        Condition::EndTime(Comparison::AtMost, 980),
    ];
    let mut filters = vec![Vec::new()];
    filters.extend(conditions.iter().cloned().map(one));
    for pair in conditions.windows(2) {
        filters.push(vec![AnyOf(pair.to_vec())]);
        filters.push(pair.iter().map(|condition| AnyOf(vec![condition.clone()])).collect());
    }
    filters
        .extend(conditions.windows(7).map(|seven| vec![AnyOf(vec![seven[0].clone()]), AnyOf(vec![seven[6].clone()])]));
    let rows = all(store).await;
    assert!(rows.iter().filter(|row| row.execution.id.starts_with("list-")).count() == 48, "everything is in a list");
    for filter in filters {
        for namespace in [None, Some("lists"), Some("other-lists"), Some("nobody")] {
            for order in [OrderBy::CreateTime, OrderBy::EndTime]
                .into_iter()
                .flat_map(|by| [true, false].map(|descending| Order { by, descending }))
            {
                let query =
                    Query { namespace: namespace.map(text), filter: filter.clone(), order, after: None, limit: 1000 };
                let mut expected: Vec<_> = rows.iter().filter(|row| query.matches(row)).cloned().collect();
                let place = |row: &ExecutionRow| query.position(row).expect("it matches");
                expected.sort_by(|left, right| order.compare(place(left), place(right)));
                for limit in [1000, 7] {
                    let found: Vec<_> = pages(store, &Query { limit, ..query.clone() })
                        .await
                        .into_iter()
                        .flat_map(|page| page.rows)
                        .collect();
                    assert_eq!(found, expected, "{query:?}");
                }
            }
        }
    }
}

/// A page that would take long ends early, and the next one continues.
pub(super) async fn lists_page_by_page<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let many = MAX_EXAMINED + 10;
    for from in (0..many).step_by(512) {
        let batch = (from..many.min(from + 512)).map(|index| {
            let execution = new_execution(&format!("many-{index}"), "", "", 5000);
            create(NewExecution { namespace: "many".into(), ..execution }, fence)
        });
        assert!(commit(store, batch.collect()).await.iter().all(Result::is_ok));
    }
    // No index serves an inequality of ids.
    let filter =
        vec![AnyOf(vec![Condition::IdPrefix("many-3".into())]), AnyOf(vec![Condition::Id(false, "many-7".into())])];
    let query = Query { namespace: Some("many".into()), filter, limit: 10_000, ..EVERYTHING };
    let found: usize = pages(store, &query).await.iter().map(|page| page.rows.len()).sum();
    assert_eq!(found, (0..many).filter(|index| index.to_string().starts_with('3')).count());
    let filter = vec![
        AnyOf(vec![Condition::Label(false, "id".into(), "many-7".into())]),
        AnyOf(vec![Condition::State(false, 2)]),
    ];
    let query = Query { filter, limit: 10, ..query };
    assert!(pages(store, &query).await.iter().all(|page| page.rows.is_empty()), "all are in state 2");
    let filter = one(Condition::Label(false, "id".into(), "many-0".into()));
    let pages = pages(store, &Query { filter, limit: 10_000, ..query }).await;
    assert_eq!(pages.iter().map(|page| page.rows.len()).sum::<usize>(), many - 1);
}

pub(super) async fn lists_namespaces<W: JournalWriter>(store: &mut OpenedStore<W>) {
    for namespace in ["team-b", "team-a", "team-b"] {
        let id = format!("namespace-{}", all(store).await.len());
        let execution = NewExecution { namespace: namespace.into(), ..new_execution(&id, "", "", 300) };
        created(&commit(store, vec![create(execution, store.fence)]).await[0]);
    }
    assert_eq!(
        store.reader.namespaces("", 10).await.unwrap(),
        ["default", "lists", "many", "other-lists", "team-a", "team-b"]
    );
    assert_eq!(store.reader.namespaces("other-lists", 1).await.unwrap(), ["team-a"]);
    assert_eq!(store.reader.namespaces("team-b", 10).await.unwrap(), Vec::<String>::new());
}
