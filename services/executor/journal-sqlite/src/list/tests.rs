//! Tests of the lists: which index a page walks, and how much of it.

use belay_journal::{
    AnyOf, Comparison, Condition, ExecutionKey, ExecutionSummary, Fence, JournalWriter as _, MAX_EXAMINED,
    NewExecution, Order, OrderBy, Page, ParentStep, Query, StoreWrite, Transition, Waits,
};
use belay_sqlite::{Location, Store, Threads};
use rusqlite::{Connection, types::Value};

use super::{
    choice::{Strategy, strategy},
    examine,
    examined_page::ExaminedPage,
    extent::{Extent, MAX_WALKS},
    merge::{MAX_CHUNK, MAX_PASSED, merge},
    page,
    sql_filter::SqlFilter,
    walk::Walk,
};
use crate::schema::SCHEMA;

/// More than are counted; half of them have the label `team`.
const MANY: i64 = 2 * (MAX_EXAMINED as i64 + 100);

fn execution(namespace: &str, id: String, created_at: i64) -> NewExecution {
    NewExecution {
        namespace: namespace.into(),
        id,
        shard: 1,
        created_at,
        plan_id: "plan".into(),
        labels: Default::default(),
        principal: String::new(),
        request_id: String::new(),
        request_hash: String::new(),
        parent: None,
    }
}

fn many() -> Vec<(NewExecution, ExecutionSummary)> {
    let waits_for = Waits::default().with(5);
    let summary = ExecutionSummary { state: 2, waits_for, ..Default::default() };
    let many = (1..=MANY).map(|number| {
        let mut one = execution("n", format!("e{number}"), number);
        if number > MANY / 2 {
            one.labels.insert("team".into(), "a".into());
        }
        (one, summary.clone())
    });
    let mut rare = execution("n", "rare-1".into(), 0);
    rare.plan_id = "rare".into();
    rare.labels.insert("rare".into(), "x".into());
    let waits_for = Waits::default().with(1);
    let (failure_reason, ended_at) = (Some("R".to_owned()), Some(7));
    let ended = ExecutionSummary { state: 3, waits_for, failure_reason, ended_at, ended: true, ..Default::default() };
    many.chain([(rare, ended)]).collect()
}

/// A journal with these executions, for its readers.
async fn stored(location: &Location, executions: Vec<(NewExecution, ExecutionSummary)>) -> Store {
    let mut store = crate::open(location, Threads::Inline, || "a store".into()).unwrap();
    let fence = Fence { shard: 1, token: store.fence };
    let create = |(execution, summary)| {
        let (shown, sealed, facts) = (vec![], None, None);
        let transition = Transition { first_sequence: 1, count: 1, version: 1, shown, sealed, facts };
        StoreWrite::Create {
            execution,
            transition,
            summary,
            seal_key: None,
            outbox: Vec::new(),
            inbox: Default::default(),
            folder: None,
            limits: Vec::new(),
            fence,
        }
    };
    let batch: Vec<StoreWrite> = executions.into_iter().map(create).collect();
    assert!(store.writer.commit(&batch).await.unwrap().iter().all(Result::is_ok));
    drop(store);
    belay_sqlite::open(location, &SCHEMA).unwrap()
}

fn query(filter: Vec<Vec<Condition>>) -> Query {
    // As a request does that names no parent.
    let filter = filter.into_iter().chain([vec![Condition::HasParent(false)]]).map(AnyOf).collect();
    let order = Order { by: OrderBy::CreateTime, descending: false };
    Query { namespace: Some("n".into()), filter, order, after: None, limit: 50 }
}

/// How a page is found, as `merge state` or `sort id`; several walks of one index are counted.
fn found(connection: &Connection, query: &Query) -> String {
    let (how, walks) = match strategy(connection, query, &Extent::of(connection, query).unwrap()).unwrap() {
        Strategy::Merge(walks) => ("merge", walks),
        Strategy::Sort(walks) => ("sort", walks),
    };
    let index = |walk: &Walk| {
        let index = walk.table.split(" INDEXED BY execution_").nth(1);
        let of_labels = walk.table.starts_with("label").then_some("label");
        index.or(of_labels).unwrap_or(if walk.condition.contains("id >= ") { "prefix" } else { "id" }).to_owned()
    };
    let index = walks.first().map_or("nothing".to_owned(), index);
    if walks.len() == 1 { format!("{how} {index}") } else { format!("{how} {} {index}", walks.len()) }
}

// Which index a page walks decides what it costs: here is which one it is.
#[tokio::test]
async fn the_index_with_the_fewest_candidates_is_walked() {
    use Condition as C;
    let folder = tempfile::tempdir().unwrap();
    let store = stored(&Location::file(folder.path().join("journal")), many()).await;
    let connection = store.readers.connection();
    let text = str::to_owned;
    let label = |key: &str, value: &str| C::Label(true, text(key), text(value));
    let plan = |equal, id: &str| C::PlanId(equal, text(id));
    let reason = |equal| C::FailureReason(equal, text("R"));
    let [common, rare] = [2, 3].map(|state| C::State(true, state));
    let states = |count: i32| (0..count).map(|state| C::State(true, state)).collect::<Vec<_>>();
    let ended = C::EndTime(Comparison::AtMost, 10);
    for (filter, expected) in [
        // One part of a filter whose walk is in the order of the list needs no counting.
        (vec![], "merge kind"),
        (vec![vec![common.clone()]], "merge state"),
        (vec![vec![common.clone(), common.clone()]], "merge state"),
        (vec![vec![common.clone(), rare.clone()]], "merge 2 state"),
        (vec![vec![common.clone(), rare.clone(), common.clone()]], "merge kind"),
        (vec![states(64)], "merge 64 state"),
        (vec![states(65)], "merge kind"),
        (vec![vec![C::State(false, 3)]], "merge state"),
        (vec![vec![C::WaitsFor(true, 1)]], "merge waits"),
        (vec![vec![C::WaitsFor(false, 1)]], "merge waits"),
        (vec![vec![plan(true, "plan")]], "merge plan"),
        (vec![vec![plan(false, "plan")]], "merge 2 plan"),
        (vec![vec![reason(true)]], "merge failure"),
        (vec![vec![reason(false)]], "merge kind"),
        (vec![vec![label("team", "a")]], "merge label"),
        (vec![vec![label("team", "a"), label("rare", "x")]], "merge kind"),
        (vec![vec![C::Id(true, text("rare-1"))]], "merge id"),
        (vec![vec![C::Id(false, text("rare-1"))]], "merge kind"),
        (vec![vec![]], "merge kind"),
        // Where the walk is in another order, few are sorted, and many are not.
        (vec![vec![ended.clone()]], "sort kind_ended"),
        (vec![vec![C::IdPrefix(text("rare"))]], "sort prefix"),
        (vec![vec![C::IdPrefix(text("e"))]], "merge kind"),
        // Of several parts, the one with the fewest candidates.
        (vec![vec![common.clone()], vec![rare.clone()]], "merge state"),
        (vec![vec![common.clone()], vec![label("rare", "x")]], "merge label"),
        (vec![vec![rare.clone(), common.clone()], vec![label("team", "a")]], "merge label"),
        (vec![vec![common.clone()], vec![ended.clone()]], "sort kind_ended"),
        (vec![vec![ended.clone()], vec![common.clone()]], "sort kind_ended"),
        // Where there are too many to be counted, or as many, the one that is likely to have fewer.
        (vec![vec![common.clone()], vec![label("team", "a")]], "merge label"),
        (vec![vec![label("team", "a")], vec![common.clone()]], "merge label"),
        (vec![vec![plan(true, "plan")], vec![label("team", "a")]], "merge label"),
        (vec![vec![C::WaitsFor(true, 5)], vec![plan(true, "plan")]], "merge plan"),
        (vec![vec![common.clone()], vec![C::WaitsFor(true, 5)]], "merge waits"),
        (vec![vec![C::HasLabel(text("team"))], vec![common.clone()]], "merge state"),
        (vec![vec![rare.clone()], vec![reason(true)]], "merge failure"),
        (vec![vec![label("rare", "x")], vec![C::Id(true, text("rare-1"))]], "merge id"),
        (vec![vec![label("rare", "x")], vec![C::IdPrefix(text("rare-"))]], "sort prefix"),
    ] {
        assert_eq!(found(&connection, &query(filter.clone())), expected, "{filter:?}");
    }
    let by_end = Query { order: Order { by: OrderBy::EndTime, descending: true }, ..query(vec![vec![ended]]) };
    assert_eq!(found(&connection, &by_end), "merge kind_ended");
    assert_eq!(found(&connection, &Query { namespace: None, ..query(vec![]) }), "merge kind");
}

#[tokio::test]
async fn a_query_merges_at_most_so_many_walks() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::file(folder.path().join("journal"));
    let state = ExecutionSummary { state: 2, ..Default::default() };
    let of_plan = |number: usize| {
        let one = execution("n", format!("e{number}"), 1);
        (NewExecution { plan_id: format!("p{number:02}"), ..one }, state.clone())
    };
    let of_namespace = |number: usize| (execution(&format!("n{number:02}"), "e".into(), 1), state.clone());
    let other_plans = query(vec![vec![Condition::PlanId(false, "p00".into())]]);
    let everywhere = Query { namespace: None, ..query(vec![]) };
    {
        let batch = (0..MAX_WALKS).map(of_plan).chain((1..MAX_WALKS).map(of_namespace)).collect();
        let store = stored(&location, batch).await;
        let connection = store.readers.connection();
        assert_eq!(found(&connection, &other_plans), "merge 64 plan");
        assert_eq!(found(&connection, &everywhere), "merge 64 kind");
    }
    let store = stored(&location, vec![of_plan(MAX_WALKS), of_namespace(MAX_WALKS)]).await;
    let connection = store.readers.connection();
    assert_eq!(found(&connection, &other_plans), "merge kind");
    let one_plan = query(vec![vec![Condition::PlanId(true, "p00".into())]]);
    assert_eq!(found(&connection, &one_plan), "merge plan", "what is named is not looked for");
    assert_eq!(found(&connection, &everywhere), "merge created");
}

// A page ends where it has to, and says so only when more may follow.
#[tokio::test]
async fn a_page_ends_at_its_limit_or_where_it_has_examined_enough() {
    let folder = tempfile::tempdir().unwrap();
    let store = stored(&Location::file(folder.path().join("journal")), many()).await;
    let connection = store.readers.connection();
    let of = |filter: Vec<Vec<Condition>>, limit: usize| {
        let Page { rows, next } = page(&connection, &Query { limit, ..query(filter) }).unwrap();
        (rows.len(), next.is_some())
    };
    let labelled = Condition::Label(true, "team".into(), "a".into());
    let half = MANY as usize / 2;
    assert_eq!(of(vec![vec![labelled.clone()]], half), (half, false), "there are no more");
    assert_eq!(of(vec![vec![labelled.clone()]], half - 1), (half - 1, true));
    let prefixed = Condition::IdPrefix("e10".into());
    assert_eq!(of(vec![vec![prefixed.clone()]], 11), (11, false), "e10 and e100 to e109");
    assert_eq!(of(vec![vec![prefixed]], 10), (10, true));
    let unmatched = vec![vec![Condition::HasLabel("nothing".into()), Condition::Id(true, "none".into())]];
    assert_eq!(of(unmatched, 10), (0, true), "it has examined enough, and found nothing");
}

/// B-23: a list reads about as many rows as it has, whatever single restriction it has and in either order, also where only few match, or none.
#[tokio::test]
async fn a_list_reads_about_as_many_rows_as_it_has() {
    use Condition as C;
    const EACH: i64 = 2_500;
    let text = str::to_owned;
    let waits = |kind| Waits::default().with(kind);
    let one = |number: i64, few: bool| {
        let name = if few { "few" } else { "many" };
        let mut one = execution("n", format!("{name}-{number:05}"), number);
        one.plan_id = name.into();
        one.labels = [(text("team"), text(name)), (text(name), text("x"))].into();
        let has_ended = number % 2 == 0;
        let summary = ExecutionSummary {
            state: if few { 3 } else { 2 } + if has_ended { 4 } else { 0 },
            ended: has_ended,
            // Those that began first ended last.
            ended_at: has_ended.then_some(1_000_000 - number),
            failure_reason: has_ended.then(|| name.to_uppercase()),
            waits_for: if has_ended { Waits::default() } else { waits(if few { 1 } else { 2 }) },
            ..Default::default()
        };
        (one, summary)
    };
    // Few in the middle of many, whatever the order and the direction; and as many children, of which few have another parent.
    let is_few = |number: i64| (EACH - 500..EACH + 500).contains(&number);
    let all = (0..2 * EACH).map(|number| one(number, is_few(number))).chain((0..2 * EACH).map(|number| {
        let (mut child, summary) = one(number + 2 * EACH, false);
        child.id = format!("child-{number}");
        child.labels.clear();
        // For a list of the others they are what is to be passed over.
        child.plan_id = "few".into();
        let parent = if is_few(number) { "few" } else { "many" };
        child.parent = Some(ParentStep { execution: ExecutionKey(1), execution_id: parent.into(), step_id: text("s") });
        let failure_reason = summary.ended.then(|| text("FEW"));
        let waits_for = if summary.ended { Waits::default() } else { waits(1) };
        (child, ExecutionSummary { state: summary.state + 1, failure_reason, waits_for, ..summary })
    }));
    let folder = tempfile::tempdir().unwrap();
    let store = stored(&Location::file(folder.path().join("journal")), all.collect()).await;
    let connection = store.readers.connection();
    let label = |equal, key: &str, value: &str| C::Label(equal, text(key), text(value));
    let sorted = |condition: &C, by| match condition {
        C::IdPrefix(_) => true,
        C::CreateTime(..) => by == OrderBy::EndTime,
        C::EndTime(..) => by == OrderBy::CreateTime,
        C::WaitsFor(true, _) | C::HasLabel(_) | C::Parent(_) => by == OrderBy::EndTime,
        _ => false,
    };
    for condition in [
        C::State(true, 3),
        C::State(true, 7),
        C::State(true, 99),
        C::WaitsFor(true, 1),
        C::WaitsFor(true, 9),
        C::PlanId(true, text("few")),
        C::PlanId(true, text("none")),
        C::FailureReason(true, text("FEW")),
        C::FailureReason(true, text("NONE")),
        label(true, "team", "few"),
        label(true, "team", "none"),
        C::HasLabel(text("few")),
        C::HasLabel(text("none")),
        C::Id(true, text("few-02500")),
        C::Id(true, text("none")),
        C::IdPrefix(text("few-")),
        C::IdPrefix(text("none-")),
        C::IdPrefix(text("many-04")),
        C::Parent(text("few")),
        C::Parent(text("none")),
        C::HasParent(true),
        C::CreateTime(Comparison::Less, 20),
        C::CreateTime(Comparison::Less, -1),
        C::EndTime(Comparison::Less, 1_000_000 - 4 * EACH + 20),
        C::EndTime(Comparison::Less, 0),
    ] {
        let is_about_children = matches!(condition, C::Parent(_) | C::HasParent(_));
        for (by, descending) in
            [OrderBy::CreateTime, OrderBy::EndTime].into_iter().flat_map(|by| [(by, true), (by, false)])
        {
            let order = Order { by, descending };
            let mut next = Query { order, ..query(vec![vec![condition.clone()]]) };
            if is_about_children {
                next.filter.pop();
            }
            let (mut listed, mut read) = (0, 0);
            // Two pages of 50, or everything that there is.
            loop {
                let ExaminedPage { page, rows } = examine(&connection, &next).unwrap();
                (listed, read) = (listed + page.rows.len(), read + rows);
                next.after = page.next;
                if next.after.is_none() || listed >= 100 {
                    break;
                }
            }
            let least = if sorted(&condition, by) { 2 * MAX_EXAMINED + EACH as usize } else { 64 };
            assert!(read <= 3 * listed + least, "{condition:?} {order:?}: {read} rows for {listed}");
        }
    }
}

/// B-23: what a list passes over is not read, wherever the few that match are, and each page continues where the one before has stopped.
#[tokio::test]
async fn a_list_passes_over_what_does_not_match_without_reading_it() {
    use Condition as C;
    let folder = tempfile::tempdir().unwrap();
    const ALL: usize = 2 * MAX_PASSED + 5_000;
    let one = |number: usize| {
        let mut one = execution("n", format!("e{number}"), number as i64 / 3);
        one.labels.insert("team".into(), "a".into());
        one.plan_id = if number.is_multiple_of(3) { "third".into() } else { "plan".into() };
        let few = number == 7 || number + 7 == ALL;
        let state = if few { 3 } else { 2 };
        let (waits_for, reason) = (Waits::default().with(if few { 1 } else { 2 }), few.then(|| "R".to_owned()));
        (one, ExecutionSummary { state, waits_for, failure_reason: reason, ..Default::default() })
    };
    let store = stored(&Location::file(folder.path().join("journal")), (0..ALL).map(one).collect()).await;
    let connection = store.readers.connection();
    let text = str::to_owned;
    let label = C::Label(true, text("team"), text("a"));
    for (filter, expected) in [
        (vec![C::State(true, 3)], 2),
        (vec![C::State(false, 2)], 2),
        (vec![C::WaitsFor(true, 1)], 2),
        (vec![C::WaitsFor(false, 2)], 2),
        (vec![C::FailureReason(true, text("R")), C::State(true, 77)], 2),
        (vec![C::PlanId(true, text("third")), C::State(true, 3)], ALL.div_ceil(3) + 1),
        (vec![C::State(true, 77)], 0),
        (vec![], 0),
    ] {
        for descending in [false, true] {
            let order = Order { by: OrderBy::CreateTime, descending };
            let mut next = Query { order, limit: 10_000, ..query(vec![vec![label.clone()], filter.clone()]) };
            // The index of labels is walked also where another one would find fewer.
            let (mut listed, mut read, mut pages) = (Vec::new(), 0, 0);
            loop {
                let walk = Walk::by_labels_or_id("n", &label, next.order.by).unwrap();
                let ExaminedPage { page, rows } = merge(&connection, &next, vec![walk]).unwrap();
                listed.extend(page.rows.into_iter().map(|row| row.key));
                (read, pages) = (read + rows, pages + 1);
                next.after = page.next;
                if next.after.is_none() {
                    break;
                }
            }
            let mut each = listed.clone();
            each.dedup();
            assert_eq!((listed.len(), each.len()), (expected, expected), "{filter:?}");
            assert!(read <= expected + MAX_CHUNK * pages, "{filter:?}: {read} rows");
            assert!(expected > 2 || pages <= 3, "{filter:?}: {pages} pages");
        }
    }
}

/// A million executions may wait: no walk may scan or sort them.
#[test]
fn an_index_serves_every_walk() {
    let folder = tempfile::tempdir().unwrap();
    let store = belay_sqlite::open(&Location::file(folder.path().join("journal")), &SCHEMA).unwrap();
    let connection = store.readers.connection();
    let text = str::to_owned;
    let mut walks: Vec<Walk> = Vec::new();
    for order in [OrderBy::CreateTime, OrderBy::EndTime] {
        walks.push(Walk::everything(order));
        walks.extend([false, true].map(|has_parent| Walk::by_kind("n", has_parent, order)));
        let columns = ["state", "waits_for", "plan_id", "failure_reason"];
        walks.extend(columns.map(|column| Walk::by_column("n", column, Value::Null, false, order)));
        let (key, value) = (text("k"), text("v"));
        let conditions =
            [Condition::Label(true, key.clone(), value), Condition::HasLabel(key), Condition::Parent(text("p"))];
        walks.extend(conditions.iter().map(|condition| Walk::by_labels_or_id("n", condition, order).unwrap()));
    }
    let one_of_each = [
        Condition::State(true, 1),
        Condition::WaitsFor(true, 1),
        Condition::PlanId(true, text("p")),
        Condition::FailureReason(true, text("R")),
    ];
    let filter = SqlFilter::by(&query(one_of_each.into_iter().map(|one| vec![one]).collect()));
    for walk in walks {
        for (descending, skips) in [(false, false), (true, false), (false, true), (true, true)] {
            let select = if skips { walk.skip(descending) } else { walk.select(&filter, descending) };
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {select}")).unwrap();
            // Without values for its parameters: a plan does not depend on them.
            let mut rows = statement.raw_query();
            let mut steps = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                steps.push(row.get::<_, String>(3).unwrap());
            }
            let plan = steps.join("; ");
            assert!(steps.iter().all(|step| step.starts_with("SEARCH")), "{walk:?}: {plan}");
            let joins = walk.table.starts_with("label") && !skips;
            assert_eq!(steps.len(), if joins { 2 } else { 1 }, "none is sorted: {plan}");
            assert!(
                !skips || steps[0].contains("COVERING") || steps[0].contains("PRIMARY KEY"),
                "no row is read: {plan}"
            );
            let bound = format!("{}>?", walk.time.rsplit('.').next().unwrap());
            assert!(
                steps[0].contains(&bound) || steps[0].contains("_at,exec)>(?"),
                "the index finds the position: {plan}"
            );
        }
    }
}
