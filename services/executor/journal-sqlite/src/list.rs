//! Pages of lists: chooses the index with the fewest candidates, and walks it in the order of the list.
//!
//! An index has the executions of one namespace with one value of one column, in the order of their creation. A query over several values or
//! namespaces merges several walks. What no index serves is checked row by row, at most [`MAX_EXAMINED`] rows a page.

use std::collections::VecDeque;

use belay_journal::{AnyOf, Condition, ExecutionRow, MAX_EXAMINED, OrderBy, Page, Position, Query, Waits};
use rusqlite::{Connection, ToSql, params_from_iter, types::Value};

use crate::rows::{COLUMNS, execution_row, namespaces, report};

type Sql<T> = Result<T, rusqlite::Error>;

/// The number of walks that a merge begins per dimension: with more namespaces or values, the page walks the whole list instead.
const MAX_WALKS: usize = 64;

/// The most executions that a walk reads at once.
const MAX_CHUNK: usize = 512;

/// A set of executions that an index finds.
#[derive(Clone, Debug)]
struct Walk {
    /// The tables, and the conditions that the index serves.
    found_by: String,
    /// The values of its parameters, the first ones of the statement.
    values: Vec<Value>,
    /// The column that it is sorted by, then by key.
    time: &'static str,
    /// The column of the key.
    key: &'static str,
    /// The order that it is in; `None` when it is in the order of ids.
    order: Option<OrderBy>,
}

/// How a page is found.
#[derive(Debug)]
enum Way {
    /// The walks are in the order of the list.
    Merge(Vec<Walk>),
    /// The walks find so few executions that all of them are read and sorted.
    Sort(Vec<Walk>),
}

/// One page of the executions that match a query.
pub(crate) fn page(connection: &Connection, query: &Query) -> Sql<Page> {
    match way(connection, query)? {
        Way::Merge(walks) => merge(connection, query, walks),
        Way::Sort(walks) => sort(connection, query, &walks),
    }
}

/// Chooses the walks with the fewest candidates.
fn way(connection: &Connection, query: &Query) -> Sql<Way> {
    let namespaces = match &query.namespace {
        Some(namespace) => Some(vec![namespace.clone()]),
        None => Some(namespaces(connection, "", MAX_WALKS + 1)?).filter(|found| found.len() <= MAX_WALKS),
    };
    let whole = match &namespaces {
        Some(namespaces) => namespaces.iter().map(|namespace| Walk::whole(Some(namespace), query.order.by)).collect(),
        None => vec![Walk::whole(None, query.order.by)],
    };
    let in_order = |walks: &[Walk]| walks.iter().all(|walk| walk.order == Some(query.order.by));
    let mut best: Option<((usize, u8), Vec<Walk>)> = None;
    for any in namespaces.iter().flat_map(|namespaces| query.filter.iter().map(move |any| (namespaces, any))) {
        let Some(walks) = walks(connection, any, query.order.by)? else { continue };
        if in_order(&walks) && query.filter.len() == 1 {
            return Ok(Way::Merge(walks));
        }
        let count = (count(connection, &walks)?, likely_count(any.1));
        if (in_order(&walks) || count.0 <= MAX_EXAMINED) && best.as_ref().is_none_or(|(fewest, _)| count < *fewest) {
            best = Some((count, walks));
        }
    }
    Ok(match best {
        Some((_, walks)) if in_order(&walks) => Way::Merge(walks),
        Some((_, walks)) => Way::Sort(walks),
        None => Way::Merge(whole),
    })
}

/// The walks that find everything that matches a part of a filter; `None` when no index does.
fn walks(connection: &Connection, (namespaces, any): (&Vec<String>, &AnyOf), order: OrderBy) -> Sql<Option<Vec<Walk>>> {
    let mut walks = Vec::new();
    for namespace in namespaces {
        let column = match &any.0[..] {
            [] => return Ok(None),
            all if all.iter().all(|one| matches!(one, Condition::State(..))) => "state",
            all if all.iter().all(|one| matches!(one, Condition::WaitsFor(..))) => "waits_for",
            all if all.iter().all(|one| matches!(one, Condition::PlanId(..))) => "plan_id",
            all if all.iter().all(|one| matches!(one, Condition::FailureReason(..))) => "failure_reason",
            // Of all lists the most frequent one.
            [Condition::HasParent(false)] => {
                walks.push(Walk::roots(namespace, order));
                continue;
            }
            [Condition::EndTime(comparison, time)] => {
                let (least, most) = comparison.bounds(*time);
                walks.push(Walk::whole(Some(namespace), OrderBy::EndTime).within(least, most));
                continue;
            }
            all => match all.iter().map(|one| Walk::by_labels_or_id(namespace, one)).collect::<Option<Vec<_>>>() {
                // Of several, one execution may have more than one, and would be found twice.
                Some(found) if found.len() == 1 => {
                    walks.extend(found);
                    continue;
                }
                _ => return Ok(None),
            },
        };
        let Some(values) = values(connection, namespace, column, any)? else { return Ok(None) };
        walks.extend(values.into_iter().map(|value| Walk::by_column(namespace, column, value)));
    }
    Ok(Some(walks))
}

/// A rank by how many executions a part of a filter is likely to find, the fewest first: it decides between indexes that find too many to be
/// counted.
fn likely_count(any: &AnyOf) -> u8 {
    let of_one = |condition: &Condition| match condition {
        Condition::Id(true, _) | Condition::IdPrefix(_) => 0,
        Condition::Label(true, ..) => 1,
        Condition::PlanId(true, _) | Condition::FailureReason(true, _) | Condition::Parent(_) => 2,
        Condition::WaitsFor(true, _) => 3,
        Condition::State(true, _) => 4,
        _ => 5,
    };
    any.0.iter().map(of_one).max().unwrap_or(u8::MAX)
}

/// The values of a column that match, for a part of a filter that is about this column only; `None` when they are too many.
fn values(connection: &Connection, namespace: &str, column: &str, any: &AnyOf) -> Sql<Option<Vec<Value>>> {
    let listed = any.0.iter().map(|one| match one {
        Condition::State(true, state) => Some(Value::from(*state)),
        Condition::PlanId(true, text) | Condition::FailureReason(true, text) => Some(Value::from(text.clone())),
        _ => None,
    });
    if let Some(mut listed) = listed.collect::<Option<Vec<_>>>() {
        listed.dedup();
        return Ok(Some(listed).filter(|listed| listed.len() <= MAX_WALKS && distinct(listed)));
    }
    // Each value is found by the index, so that the cost does not grow with the executions that have it.
    let next = format!("SELECT min({column}) FROM execution WHERE namespace = ?1 AND {column} > ?2");
    let mut statement = connection.prepare_cached(&next)?;
    let mut found = if column == "failure_reason" { vec![Value::Null] } else { Vec::new() };
    let mut last =
        if matches!(column, "state" | "waits_for") { Value::from(i64::MIN) } else { Value::from(String::new()) };
    if column == "plan_id" {
        found.push(last.clone());
    }
    loop {
        match statement.query_row((namespace, &last), |row| row.get::<_, Value>(0))? {
            Value::Null => break,
            _ if found.len() > MAX_WALKS => return Ok(None),
            next => {
                found.push(next.clone());
                last = next;
            }
        }
    }
    found.retain(|value| any.0.iter().any(|one| accepts(one, value)));
    Ok(Some(found))
}

fn distinct(values: &[Value]) -> bool {
    (1..values.len()).all(|index| !values[..index].contains(&values[index]))
}

/// Whether an execution with this value in the condition's column matches it.
fn accepts(condition: &Condition, value: &Value) -> bool {
    match (condition, value) {
        (Condition::State(equal, state), Value::Integer(value)) => (*value == i64::from(*state)) == *equal,
        (Condition::WaitsFor(equal, kind), Value::Integer(value)) => {
            Waits(u32::try_from(*value).unwrap_or(0)).contains(*kind) == *equal
        }
        (Condition::PlanId(equal, text) | Condition::FailureReason(equal, text), Value::Text(value)) => {
            (value == text) == *equal
        }
        (Condition::FailureReason(equal, _), Value::Null) => !equal,
        _ => false,
    }
}

impl Walk {
    /// Everything, in the order of the list.
    fn whole(namespace: Option<&str>, order: OrderBy) -> Self {
        let (index, time) = match (order, namespace) {
            (OrderBy::CreateTime, Some(_)) => ("execution_in_namespace", "created_at"),
            (OrderBy::CreateTime, None) => ("execution_created", "created_at"),
            (OrderBy::EndTime, Some(_)) => ("execution_ended_in", "ended_at"),
            (OrderBy::EndTime, None) => ("execution_ended", "ended_at"),
        };
        let mut conditions = vec!["1"];
        conditions.extend(namespace.map(|_| "namespace = ?1"));
        conditions.extend((order == OrderBy::EndTime).then_some("ended_at IS NOT NULL"));
        let found_by = format!("execution INDEXED BY {index} WHERE {}", conditions.join(" AND "));
        Self {
            found_by,
            values: namespace.into_iter().map(|name| name.to_owned().into()).collect(),
            time,
            key: "exec",
            order: Some(order),
        }
    }

    /// The executions that carry out no step's plan, in the order of the list.
    fn roots(namespace: &str, order: OrderBy) -> Self {
        let (found_by, time) = match order {
            OrderBy::CreateTime => {
                ("execution INDEXED BY execution_roots WHERE namespace = ?1 AND parent IS NULL", "created_at")
            }
            OrderBy::EndTime => (
                "execution INDEXED BY execution_roots_ended WHERE namespace = ?1 AND parent IS NULL AND ended_at IS NOT NULL",
                "ended_at",
            ),
        };
        let (found_by, values) = (found_by.to_owned(), vec![namespace.to_owned().into()]);
        Self { found_by, values, time, key: "exec", order: Some(order) }
    }

    fn by_column(namespace: &str, column: &str, value: Value) -> Self {
        let index = match column {
            "state" => "execution_state",
            "waits_for" => "execution_waits",
            "plan_id" => "execution_plan",
            _ => "execution_failure",
        };
        let found_by = format!("execution INDEXED BY {index} WHERE namespace = ?1 AND {column} IS ?2");
        let values = vec![namespace.to_owned().into(), value];
        Self { found_by, values, time: "created_at", key: "exec", order: Some(OrderBy::CreateTime) }
    }

    fn by_labels_or_id(namespace: &str, condition: &Condition) -> Option<Self> {
        let mut values: Vec<Value> = vec![namespace.to_owned().into()];
        let (found_by, time, key) = match condition {
            Condition::Label(true, label, value) => {
                values.extend([label.clone().into(), value.clone().into()]);
                let found = "label JOIN execution USING (exec) WHERE label.namespace = ?1 AND label.key = ?2 AND label.value = ?3";
                (found, "label.created_at", "label.exec")
            }
            Condition::HasLabel(label) => {
                values.push(label.clone().into());
                let found = "label INDEXED BY label_key JOIN execution USING (exec) WHERE label.namespace = ?1 AND label.key = ?2";
                (found, "label.created_at", "label.exec")
            }
            Condition::Parent(id) => {
                values.push(id.clone().into());
                let found = "execution INDEXED BY execution_children WHERE namespace = ?1 AND parent_id = ?2 AND parent IS NOT NULL";
                (found, "created_at", "exec")
            }
            Condition::Id(true, id) => {
                values.push(id.clone().into());
                ("execution WHERE namespace = ?1 AND id = ?2", "created_at", "exec")
            }
            Condition::IdPrefix(prefix) => {
                // Ids are ASCII.
                values.extend([prefix.clone().into(), format!("{prefix}\u{7f}").into()]);
                ("execution WHERE namespace = ?1 AND id >= ?2 AND id < ?3", "created_at", "exec")
            }
            _ => return None,
        };
        let order = (!matches!(condition, Condition::IdPrefix(_))).then_some(OrderBy::CreateTime);
        Some(Self { found_by: found_by.to_owned(), values, time, key, order })
    }

    /// Those within a time, of the column that it is sorted by.
    fn within(mut self, least: i64, most: i64) -> Self {
        let (first, second) = (self.values.len() + 1, self.values.len() + 2);
        self.found_by.push_str(&format!(" AND {} BETWEEN ?{first} AND ?{second}", self.time));
        self.values.extend([least.into(), most.into()]);
        self
    }

    /// The statement that reads the next executions between two positions, at most so many; these are its last five parameters.
    fn select(&self, descending: bool) -> String {
        let Self { found_by, time, key, .. } = self;
        let first = self.values.len() + 1;
        let [second, third, fourth, fifth] = [first + 1, first + 2, first + 3, first + 4];
        let direction = if descending { "DESC" } else { "ASC" };
        format!(
            "SELECT {} FROM {found_by} AND ({time}, {key}) > (?{first}, ?{second}) AND ({time}, {key}) < (?{third}, ?{fourth})
             ORDER BY {time} {direction}, {key} {direction} LIMIT ?{fifth}",
            *COLUMNS
        )
    }

    fn values(&self) -> impl Iterator<Item = &dyn ToSql> {
        self.values.iter().map(|value| value as &dyn ToSql)
    }
}

/// How many executions the walks find, counted up to a few more than [`MAX_EXAMINED`].
fn count(connection: &Connection, walks: &[Walk]) -> Sql<usize> {
    let mut count = 0;
    for walk in walks {
        let rows = format!("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {})", walk.found_by, MAX_EXAMINED + 1);
        let mut statement = connection.prepare_cached(&rows)?;
        count += statement.query_row(params_from_iter(walk.values()), |row| row.get::<_, i64>(0))? as usize;
        if count > MAX_EXAMINED {
            break;
        }
    }
    Ok(count)
}

/// A page of a few executions, which the walks do not find in the order of the list.
fn sort(connection: &Connection, query: &Query, walks: &[Walk]) -> Sql<Page> {
    let mut found = Vec::new();
    for walk in walks {
        let mut statement = connection.prepare_cached(&format!("SELECT {} FROM {}", *COLUMNS, walk.found_by))?;
        let rows = statement.query_map(params_from_iter(walk.values()), execution_row)?;
        for row in rows {
            let Ok(row) = row?.inspect_err(report) else { continue };
            let position = query.position(&row).filter(|_| query.matches(&row));
            let is_after =
                |position: &Position| query.after.is_none_or(|after| query.order.compare(after, *position).is_lt());
            found.extend(position.filter(is_after).map(|position| (position, row)));
        }
    }
    found.sort_unstable_by(|(left, _), (right, _)| query.order.compare(*left, *right));
    let more = found.len() > query.limit;
    found.truncate(query.limit);
    let next = found.last().filter(|_| more).map(|(position, _)| *position);
    Ok(Page { rows: found.into_iter().map(|(_, row)| row).collect(), next })
}

/// A page of the executions that the walks find, each in the order of the list.
fn merge(connection: &Connection, query: &Query, walks: Vec<Walk>) -> Sql<Page> {
    let chunk = (query.limit / walks.len().max(1) + 1).clamp(8, 256);
    let mut walks: Vec<Walking<'_>> =
        walks.into_iter().map(|walk| Walking::new(connection, query, walk, chunk)).collect();
    let most = MAX_EXAMINED.max(query.limit + 1);
    let (mut page, mut examined, mut last) = (Page::default(), 0, None);
    loop {
        let mut first: Option<(Position, usize)> = None;
        for (index, walk) in walks.iter_mut().enumerate() {
            if let Some(position) = walk.peek()?
                && first.is_none_or(|(first, _)| query.order.compare(position, first).is_lt())
            {
                first = Some((position, index));
            }
        }
        let Some((position, index)) = first else { return Ok(page) };
        let row = walks[index].found.pop_front().expect("peeked");
        let matches = query.matches(&row);
        if matches && page.rows.len() == query.limit {
            page.next = last;
            return Ok(page);
        }
        page.rows.extend(matches.then_some(row));
        last = Some(position);
        examined += 1;
        if examined == most {
            page.next = last;
            return Ok(page);
        }
    }
}

/// A walk that is under way.
struct Walking<'a> {
    connection: &'a Connection,
    query: &'a Query,
    walk: Walk,
    found: VecDeque<ExecutionRow>,
    /// The ends of what is still to be found, both exclusive.
    between: (Position, Position),
    chunk: usize,
    is_at_end: bool,
}

impl<'a> Walking<'a> {
    fn new(connection: &'a Connection, query: &'a Query, walk: Walk, chunk: usize) -> Self {
        let (least, most) = query.bounds();
        let mut between = (Position { time: least, ..Position::START }, Position::after(most));
        if let Some(after) = query.after {
            match query.order.descending {
                true => between.1 = between.1.min(after),
                false => between.0 = between.0.max(after),
            }
        }
        Self { connection, query, walk, found: VecDeque::new(), between, chunk, is_at_end: false }
    }

    /// The position of the next execution.
    fn peek(&mut self) -> Sql<Option<Position>> {
        while self.found.is_empty() && !self.is_at_end {
            self.read()?;
        }
        Ok(self.found.front().and_then(|row| self.query.position(row)))
    }

    fn read(&mut self) -> Sql<()> {
        let select = self.walk.select(self.query.order.descending);
        let (after, before) = self.between;
        let chunk = i64::try_from(self.chunk).unwrap_or(i64::MAX);
        let bounds: [i64; 5] = [after.time, after.key.0, before.time, before.key.0, chunk];
        let values = self.walk.values().chain(bounds.iter().map(|bound| bound as &dyn ToSql));
        let mut statement = self.connection.prepare_cached(&select)?;
        let mut count = 0;
        for row in statement.query_map(params_from_iter(values), execution_row)? {
            count += 1;
            self.found.extend(row?.inspect_err(report).ok());
        }
        // So many damaged rows are not looked behind.
        self.is_at_end = count < self.chunk || self.found.is_empty() && self.chunk >= MAX_CHUNK;
        if let Some(last) = self.found.back().and_then(|row| self.query.position(row)) {
            match self.query.order.descending {
                true => self.between.1 = last,
                false => self.between.0 = last,
            }
        }
        // The next chunk is longer: nothing that matched was in this one, or the page is long.
        self.chunk = (self.chunk * 2).min(MAX_CHUNK);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use belay_journal::{
        Comparison, ExecutionSummary, Fence, JournalWriter as _, NewExecution, Operation, Order, Transition,
    };
    use belay_sqlite::{Location, Store, Threads};

    use super::*;
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
        let ended =
            ExecutionSummary { state: 3, waits_for, failure_reason, ended_at, ended: true, ..Default::default() };
        many.chain([(rare, ended)]).collect()
    }

    /// A journal with these executions, for its readers.
    async fn stored(location: &Location, executions: Vec<(NewExecution, ExecutionSummary)>) -> Store {
        let mut store = crate::open(location, Threads::Inline, || "a store".into()).unwrap();
        let fence = Fence { shard: 1, token: store.fence };
        let create = |(execution, summary)| {
            let (shown, sealed, facts) = (vec![], None, None);
            let transition = Transition { first_sequence: 1, count: 1, version: 1, shown, sealed, facts };
            Operation::Create {
                execution,
                transition,
                summary,
                seal_key: None,
                outbox: Vec::new(),
                inbox: Default::default(),
                folder: None,
                fence,
            }
        };
        let batch: Vec<Operation> = executions.into_iter().map(create).collect();
        assert!(store.writer.commit(&batch).await.unwrap().iter().all(Result::is_ok));
        drop(store);
        belay_sqlite::open(location, &SCHEMA).unwrap()
    }

    fn query(filter: Vec<Vec<Condition>>) -> Query {
        let filter = filter.into_iter().map(AnyOf).collect();
        let order = Order { by: OrderBy::CreateTime, descending: false };
        Query { namespace: Some("n".into()), filter, order, after: None, limit: 50 }
    }

    /// How a page is found, as `merge state` or `sort id`; several walks of one index are counted.
    fn found(connection: &Connection, query: &Query) -> String {
        let (how, walks) = match way(connection, query).unwrap() {
            Way::Merge(walks) => ("merge", walks),
            Way::Sort(walks) => ("sort", walks),
        };
        let index = |walk: &Walk| {
            let names = ["state", "waits", "plan", "failure", "in_namespace", "created", "ended_in", "ended"];
            let name = names.into_iter().find(|name| walk.found_by.contains(&format!("execution_{name} ")));
            let of_labels = walk.found_by.starts_with("label ").then_some("label");
            name.or(of_labels).unwrap_or(if walk.found_by.contains("id >= ") { "prefix" } else { "id" })
        };
        let index = walks.first().map_or("nothing", index);
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
            (vec![], "merge in_namespace"),
            (vec![vec![common.clone()]], "merge state"),
            (vec![vec![common.clone(), common.clone()]], "merge state"),
            (vec![vec![common.clone(), rare.clone()]], "merge 2 state"),
            (vec![vec![common.clone(), rare.clone(), common.clone()]], "merge in_namespace"),
            (vec![states(64)], "merge 64 state"),
            (vec![states(65)], "merge in_namespace"),
            (vec![vec![C::State(false, 3)]], "merge state"),
            (vec![vec![C::WaitsFor(true, 1)]], "merge waits"),
            (vec![vec![C::WaitsFor(false, 1)]], "merge waits"),
            (vec![vec![plan(true, "plan")]], "merge plan"),
            (vec![vec![plan(false, "plan")]], "merge 2 plan"),
            (vec![vec![reason(true)]], "merge failure"),
            (vec![vec![reason(false)]], "merge failure"),
            (vec![vec![label("team", "a")]], "merge label"),
            (vec![vec![label("team", "a"), label("rare", "x")]], "merge in_namespace"),
            (vec![vec![C::Id(true, text("rare-1"))]], "merge id"),
            (vec![vec![C::Id(false, text("rare-1"))]], "merge in_namespace"),
            (vec![vec![]], "merge in_namespace"),
            // Where the walk is in another order, few are sorted, and many are not.
            (vec![vec![ended.clone()]], "sort ended_in"),
            (vec![vec![C::IdPrefix(text("rare"))]], "sort prefix"),
            (vec![vec![C::IdPrefix(text("e"))]], "merge in_namespace"),
            // Of several parts, the one with the fewest candidates.
            (vec![vec![common.clone()], vec![rare.clone()]], "merge state"),
            (vec![vec![common.clone()], vec![label("rare", "x")]], "merge label"),
            (vec![vec![rare.clone(), common.clone()], vec![label("team", "a")]], "merge label"),
            (vec![vec![common.clone()], vec![ended.clone()]], "sort ended_in"),
            (vec![vec![ended.clone()], vec![common.clone()]], "sort ended_in"),
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
        assert_eq!(found(&connection, &by_end), "merge ended_in");
        assert_eq!(found(&connection, &Query { namespace: None, ..query(vec![]) }), "merge in_namespace");
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
            assert_eq!(found(&connection, &everywhere), "merge 64 in_namespace");
        }
        let store = stored(&location, vec![of_plan(MAX_WALKS), of_namespace(MAX_WALKS)]).await;
        let connection = store.readers.connection();
        assert_eq!(found(&connection, &other_plans), "merge in_namespace");
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

    /// A million executions may wait: no walk may scan or sort them.
    #[test]
    fn an_index_serves_every_walk() {
        let folder = tempfile::tempdir().unwrap();
        let store = belay_sqlite::open(&Location::file(folder.path().join("journal")), &SCHEMA).unwrap();
        let connection = store.readers.connection();
        let text = str::to_owned;
        let mut walks: Vec<Walk> = [OrderBy::CreateTime, OrderBy::EndTime]
            .into_iter()
            .flat_map(|order| [Walk::whole(None, order), Walk::whole(Some("n"), order)])
            .collect();
        walks.extend(
            ["state", "waits_for", "plan_id", "failure_reason"].map(|column| Walk::by_column("n", column, Value::Null)),
        );
        let labels = [Condition::Label(true, text("k"), text("v")), Condition::HasLabel(text("k"))];
        walks.extend(labels.iter().map(|condition| Walk::by_labels_or_id("n", condition).unwrap()));
        for walk in walks {
            for descending in [false, true] {
                let mut statement =
                    connection.prepare(&format!("EXPLAIN QUERY PLAN {}", walk.select(descending))).unwrap();
                // Without values for its parameters: a plan does not depend on them.
                let mut rows = statement.raw_query();
                let mut steps = Vec::new();
                while let Some(row) = rows.next().unwrap() {
                    steps.push(row.get::<_, String>(3).unwrap());
                }
                let plan = steps.join("; ");
                assert!(steps.iter().all(|step| step.starts_with("SEARCH")), "{walk:?}: {plan}");
                let bound = format!("{}>?", walk.time.rsplit('.').next().unwrap());
                assert!(
                    steps[0].contains(&bound) || steps[0].contains("(created_at,exec)>(?"),
                    "the index finds the position: {plan}"
                );
            }
        }
    }
}
