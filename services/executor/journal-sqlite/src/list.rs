//! Pages of lists: chooses the index with the fewest candidates, and walks it in the order of the list.
//!
//! An index has the executions of one namespace with one value of one column, in the order of their creation or of their end. A query over several
//! values or namespaces merges several walks. What no index serves in the order of the list is checked row by row: the database passes over what it
//! sees not to match, at most [`MAX_PASSED`] executions a page, and the others are read, at most [`MAX_EXAMINED`]. Where these are too few for a page,
//! and an index that is in another order finds at most [`MAX_SORTED`] executions, they are sorted.

use std::{collections::VecDeque, sync::LazyLock};

use belay_journal::{
    AnyOf, Condition, ExecutionKey, ExecutionRow, MAX_EXAMINED, OrderBy, Page, Position, Query, Waits,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter, types::Value};

use crate::rows::{COLUMNS, execution_row, namespaces, report};

type Sql<T> = Result<T, rusqlite::Error>;

/// The number of walks that a merge begins per dimension: with more namespaces or values, the page walks the whole list instead.
const MAX_WALKS: usize = 64;

/// The number of executions that are sorted for a page at most. Each costs about a microsecond; more of them are matched by a walk of the whole list
/// soon enough.
const MAX_SORTED: usize = 16_384;

/// The most executions that a walk reads at once.
const MAX_CHUNK: usize = 512;

/// The number of executions that a walk passes over for a page at most. Each costs one to three microseconds, most of it to find its row.
const MAX_PASSED: usize = 16_384;

/// A set of executions that an index finds.
#[derive(Clone, Debug)]
struct Walk {
    /// The table and its index.
    table: String,
    /// The conditions that the index serves.
    condition: String,
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
    Ok(examine(connection, query)?.page)
}

/// Where a query looks.
struct Extent {
    /// The namespaces; `None` for all where they are too many.
    namespaces: Option<Vec<String>>,
    /// Whether executions that carry out the plans of steps are looked for (`true`), and whether others are (`false`).
    kinds: Vec<bool>,
}

impl Extent {
    fn of(connection: &Connection, query: &Query) -> Sql<Self> {
        let namespaces = match &query.namespace {
            Some(namespace) => Some(vec![namespace.clone()]),
            None => Some(namespaces(connection, "", MAX_WALKS + 1)?).filter(|found| found.len() <= MAX_WALKS),
        };
        let can_match = |has_parent: &bool| {
            query.filter.iter().all(|any| match any.0[..] {
                [Condition::HasParent(wanted)] => wanted == *has_parent,
                [Condition::Parent(_)] => *has_parent,
                _ => true,
            })
        };
        Ok(Self { namespaces, kinds: [false, true].into_iter().filter(can_match).collect() })
    }

    /// The walks of everything, in an order.
    fn whole(&self, order: OrderBy) -> Vec<Walk> {
        match &self.namespaces {
            None => vec![Walk::everything(order)],
            Some(names) => {
                let each = names.iter().flat_map(|name| self.kinds.iter().map(move |kind| (name, *kind)));
                each.map(|(name, has_parent)| Walk::by_kind(name, has_parent, order)).collect()
            }
        }
    }

    /// The walks that find everything that matches a part of a filter; `None` when no index does.
    fn walks(&self, connection: &Connection, any: &AnyOf, order: OrderBy) -> Sql<Option<Vec<Walk>>> {
        let Some(namespaces) = &self.namespaces else { return Ok(None) };
        let mut walks = Vec::new();
        for namespace in namespaces {
            let column = match &any.0[..] {
                [] => return Ok(None),
                all if all.iter().all(|one| matches!(one, Condition::State(..))) => "state",
                all if all.iter().all(|one| matches!(one, Condition::WaitsFor(..))) => "waits_for",
                all if all.iter().all(|one| matches!(one, Condition::PlanId(..))) => "plan_id",
                all if all.iter().all(|one| matches!(one, Condition::FailureReason(true, _))) => "failure_reason",
                // Of all lists the most frequent one.
                [Condition::HasParent(_)] => return Ok(Some(self.whole(order))),
                [Condition::EndTime(comparison, time)] => {
                    return Ok(Some(self.within(OrderBy::EndTime, comparison.bounds(*time))));
                }
                // In the order of their creation every walk keeps to these bounds.
                [Condition::CreateTime(comparison, time)] if order == OrderBy::EndTime => {
                    return Ok(Some(self.within(OrderBy::CreateTime, comparison.bounds(*time))));
                }
                all => {
                    match all.iter().map(|one| Walk::by_labels_or_id(namespace, one, order)).collect::<Option<Vec<_>>>()
                    {
                        // Of several, one execution may have more than one, and would be found twice.
                        Some(found) if found.len() == 1 => {
                            walks.extend(found);
                            continue;
                        }
                        _ => return Ok(None),
                    }
                }
            };
            let Some(values) = values(connection, namespace, column, any)? else { return Ok(None) };
            for value in values {
                let of_kind = |kind: &bool| Walk::by_column(namespace, column, value.clone(), *kind, order);
                walks.extend(self.kinds.iter().map(of_kind));
            }
        }
        Ok(Some(walks))
    }

    /// The walks of everything with a time between two.
    fn within(&self, order: OrderBy, (least, most): (i64, i64)) -> Vec<Walk> {
        self.whole(order).into_iter().map(|walk| walk.within(least, most)).collect()
    }
}

/// A page, and how it was found.
struct Examined {
    page: Page,
    /// The number of rows that were read.
    rows: usize,
}

fn examine(connection: &Connection, query: &Query) -> Sql<Examined> {
    let extent = Extent::of(connection, query)?;
    let walks = match way(connection, query, &extent)? {
        Way::Merge(walks) => walks,
        Way::Sort(walks) => return sort(connection, query, &walks),
    };
    let merged = merge(connection, query, walks.clone())?;
    let is_enough = merged.page.next.is_none() || merged.page.rows.len() >= query.limit.div_ceil(4);
    let few = if is_enough { None } else { few(connection, query, &extent, &walks)? };
    match few {
        None => Ok(merged),
        Some(few) => {
            let sorted = sort(connection, query, &few)?;
            Ok(Examined { rows: merged.rows + sorted.rows, ..sorted })
        }
    }
}

/// Chooses the walks with the fewest candidates.
fn way(connection: &Connection, query: &Query, extent: &Extent) -> Sql<Way> {
    // Every walk but those by labels keeps to these.
    let is_of_kind = |any: &&AnyOf| matches!(any.0[..], [Condition::HasParent(_)]);
    let is_only = query.filter.iter().filter(|any| !is_of_kind(any)).count() == 1;
    let mut best: Option<((usize, u8), Vec<Walk>)> = None;
    for any in &query.filter {
        let Some(walks) = extent.walks(connection, any, query.order.by)? else { continue };
        if in_order(query, &walks) && is_only && !is_of_kind(&any) {
            return Ok(Way::Merge(walks));
        }
        let count = (count(connection, &walks, MAX_EXAMINED)?, likely_count(any));
        let is_walked = in_order(query, &walks) || count.0 <= MAX_EXAMINED;
        if is_walked && best.as_ref().is_none_or(|(fewest, _)| count < *fewest) {
            best = Some((count, walks));
        }
    }
    Ok(match best {
        Some((_, walks)) if in_order(query, &walks) => Way::Merge(walks),
        Some((_, walks)) => Way::Sort(walks),
        None => Way::Merge(extent.whole(query.order.by)),
    })
}

/// The walks in another order than that of the list that find the fewest executions: few enough to be sorted, and fewer than `merged` find.
fn few(connection: &Connection, query: &Query, extent: &Extent, merged: &[Walk]) -> Sql<Option<Vec<Walk>>> {
    let mut others = Vec::new();
    for any in &query.filter {
        let walks = extent.walks(connection, any, query.order.by)?;
        others.extend(walks.filter(|walks| !in_order(query, walks)));
    }
    if others.is_empty() {
        return Ok(None);
    }
    let (mut fewest, mut found) = (count(connection, merged, MAX_SORTED)?, None);
    for walks in others {
        let count = count(connection, &walks, MAX_SORTED)?;
        if count <= MAX_SORTED && count < fewest {
            (fewest, found) = (count, Some(walks));
        }
    }
    Ok(found)
}

fn in_order(query: &Query, walks: &[Walk]) -> bool {
    walks.iter().all(|walk| walk.order == Some(query.order.by))
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
    let (mut found, mut last) = match column {
        "plan_id" => (vec![Value::from(String::new())], Value::from(String::new())),
        _ => (Vec::new(), Value::from(i64::MIN)),
    };
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
        (Condition::PlanId(equal, text), Value::Text(value)) => (value == text) == *equal,
        _ => false,
    }
}

impl Walk {
    /// Everything, in the order of the list.
    fn everything(order: OrderBy) -> Self {
        let (index, condition, time) = match order {
            OrderBy::CreateTime => ("execution_created", "1", "created_at"),
            OrderBy::EndTime => ("execution_ended", "ended_at IS NOT NULL", "ended_at"),
        };
        let (table, condition) = (format!("execution INDEXED BY {index}"), condition.to_owned());
        Self { table, condition, values: Vec::new(), time, key: "exec", order: Some(order) }
    }

    /// The executions that carry out the plans of steps, or the others, in the order of the list.
    fn by_kind(namespace: &str, has_parent: bool, order: OrderBy) -> Self {
        let values = vec![namespace.to_owned().into(), has_parent.into()];
        Self::indexed("execution_kind", "(parent IS NOT NULL) = ?2", values, order)
    }

    /// The executions of a namespace, the first value, that an index finds in the order of the list: one of two, whose names differ in the order.
    fn indexed(index: &str, condition: &str, values: Vec<Value>, order: OrderBy) -> Self {
        let (suffix, has_ended, time) = match order {
            OrderBy::CreateTime => ("", "", "created_at"),
            OrderBy::EndTime => ("_ended", " AND ended_at IS NOT NULL", "ended_at"),
        };
        let table = format!("execution INDEXED BY {index}{suffix}");
        let condition = format!("namespace = ?1 AND {condition}{has_ended}");
        Self { table, condition, values, time, key: "exec", order: Some(order) }
    }

    fn by_column(namespace: &str, column: &str, value: Value, has_parent: bool, order: OrderBy) -> Self {
        let (index, order) = match column {
            "state" => ("execution_state", order),
            // What has ended waits for nothing.
            "waits_for" => ("execution_waits", OrderBy::CreateTime),
            "plan_id" => ("execution_plan", order),
            _ => ("execution_failure", order),
        };
        let is_set = if column == "failure_reason" { " AND failure_reason IS NOT NULL" } else { "" };
        let values = vec![namespace.to_owned().into(), value, has_parent.into()];
        Self::indexed(index, &format!("{column} = ?2 AND (parent IS NOT NULL) = ?3{is_set}"), values, order)
    }

    fn by_labels_or_id(namespace: &str, condition: &Condition, order: OrderBy) -> Option<Self> {
        let namespace = Value::from(namespace.to_owned());
        match condition {
            Condition::Label(true, key, value) => {
                let index = match order {
                    OrderBy::CreateTime => "",
                    OrderBy::EndTime => " INDEXED BY label_ended",
                };
                let values = vec![namespace, key.clone().into(), value.clone().into()];
                Some(Self::labelled(index, "label.key = ?2 AND label.value = ?3", values, order))
            }
            Condition::HasLabel(key) => {
                let values = vec![namespace, key.clone().into()];
                Some(Self::labelled(" INDEXED BY label_key", "label.key = ?2", values, OrderBy::CreateTime))
            }
            Condition::Parent(id) => {
                let values = vec![namespace, id.clone().into()];
                Some(Self::indexed("execution_children", "parent_id = ?2", values, OrderBy::CreateTime))
            }
            Condition::Id(true, id) => Some(Self {
                table: "execution".to_owned(),
                condition: "namespace = ?1 AND id = ?2".to_owned(),
                values: vec![namespace, id.clone().into()],
                time: if order == OrderBy::EndTime { "ended_at" } else { "created_at" },
                key: "exec",
                order: Some(order),
            }),
            Condition::IdPrefix(prefix) => Some(Self {
                table: "execution".to_owned(),
                condition: "namespace = ?1 AND id >= ?2 AND id < ?3".to_owned(),
                // Ids are ASCII.
                values: vec![namespace, prefix.clone().into(), format!("{prefix}\u{7f}").into()],
                time: "created_at",
                key: "exec",
                order: None,
            }),
            _ => None,
        }
    }

    fn labelled(index: &str, condition: &str, values: Vec<Value>, order: OrderBy) -> Self {
        let (has_ended, time) = match order {
            OrderBy::CreateTime => ("", "label.created_at"),
            OrderBy::EndTime => (" AND label.ended_at IS NOT NULL", "label.ended_at"),
        };
        let condition = format!("label.namespace = ?1 AND {condition}{has_ended}");
        Self { table: format!("label{index}"), condition, values, time, key: "label.exec", order: Some(order) }
    }

    /// Those within a time, of the column that it is sorted by.
    fn within(mut self, least: i64, most: i64) -> Self {
        let (first, second) = (self.values.len() + 1, self.values.len() + 2);
        self.condition.push_str(&format!(" AND {} BETWEEN ?{first} AND ?{second}", self.time));
        self.values.extend([least.into(), most.into()]);
        self
    }

    /// The tables that have the rows.
    fn rows(&self) -> String {
        match self.time.starts_with("label.") {
            true => format!("{} JOIN execution USING (exec)", self.table),
            false => self.table.clone(),
        }
    }

    /// The statement that reads executions between two positions, at most so many, and passes over those that do not match what it is narrowed by. Its last
    /// five parameters are these positions and this number.
    fn select(&self, narrowed: &Narrowed, descending: bool) -> String {
        let narrowing = narrowed.conditions(self.values.len() + 1);
        let first = self.values.len() + narrowed.values.len() + 1;
        format!(
            "SELECT {} FROM {} WHERE {}{narrowing} {} LIMIT ?{}",
            *COLUMNS,
            self.rows(),
            self.condition,
            self.between(first, descending),
            first + 4
        )
    }

    /// The statement that reads, from the index alone, the position of the execution that follows so many others between two positions. Its last five
    /// parameters are these positions and this number.
    fn skip(&self, descending: bool) -> String {
        let Self { table, condition, time, key, .. } = self;
        let first = self.values.len() + 1;
        let between = self.between(first, descending);
        format!("SELECT {time}, {key} FROM {table} WHERE {condition} {between} LIMIT 1 OFFSET ?{}", first + 4)
    }

    /// Between two positions, in the order of the list; the first parameter is this one.
    fn between(&self, first: usize, descending: bool) -> String {
        let Self { time, key, .. } = self;
        let [second, third, fourth] = [first + 1, first + 2, first + 3];
        let direction = if descending { "DESC" } else { "ASC" };
        format!(
            "AND ({time}, {key}) > (?{first}, ?{second}) AND ({time}, {key}) < (?{third}, ?{fourth})
             ORDER BY {time} {direction}, {key} {direction}"
        )
    }
}

/// The part of a filter that the database checks, so that it passes over most of what does not match without reading the whole row. It is never narrower
/// than the filter, which every row that is read is held against.
#[derive(Debug, Default)]
struct Narrowed {
    /// Conditions with `?` for each value.
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Narrowed {
    fn by(query: &Query) -> Self {
        let mut narrowed = Self::default();
        for any in &query.filter {
            let Some(columns) = any.0.iter().map(column).collect::<Option<Vec<_>>>() else { continue };
            let (conditions, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
            narrowed.conditions.push(if conditions.is_empty() { "0".to_owned() } else { conditions.join(" OR ") });
            narrowed.values.extend(values);
        }
        narrowed
    }

    /// They follow other conditions; the parameter of their first value is `first`.
    fn conditions(&self, first: usize) -> String {
        let mut parameter = first;
        let mut text = String::new();
        for condition in &self.conditions {
            text.push_str(" AND (");
            for (index, part) in condition.split('?').enumerate() {
                if index > 0 {
                    text.push_str(&format!("?{parameter}"));
                    parameter += 1;
                }
                text.push_str(part);
            }
            text.push(')');
        }
        text
    }
}

/// A condition on one column of an execution that has no index in its way, and its value; `None` for what is not in a column of its own.
fn column(condition: &Condition) -> Option<(&'static str, Value)> {
    let is = |equal: bool, is: &'static str, is_not: &'static str| if equal { is } else { is_not };
    Some(match condition {
        // With a plus sign no index is chosen for them: the walk has its own.
        Condition::State(equal, state) => (is(*equal, "+state = ?", "+state <> ?"), (*state).into()),
        Condition::WaitsFor(equal, kind) => {
            let bit = Waits::default().with(*kind).0;
            (is(*equal, "waits_for & ? <> 0", "waits_for & ? = 0"), bit.into())
        }
        Condition::PlanId(equal, plan) => (is(*equal, "+plan_id = ?", "+plan_id <> ?"), plan.clone().into()),
        Condition::FailureReason(equal, reason) => {
            (is(*equal, "+failure_reason IS ?", "+failure_reason IS NOT ?"), reason.clone().into())
        }
        _ => return None,
    })
}

/// How many executions the walks find, counted up to a few more than `most`.
fn count(connection: &Connection, walks: &[Walk], most: usize) -> Sql<usize> {
    let mut count = 0;
    for walk in walks {
        let Walk { table, condition, .. } = walk;
        let rows = format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT {})", most + 1);
        let mut statement = connection.prepare_cached(&rows)?;
        count += statement.query_row(params_from_iter(&walk.values), |row| row.get::<_, i64>(0))? as usize;
        if count > most {
            break;
        }
    }
    Ok(count)
}

/// A page of executions that the walks do not find in the order of the list: the positions of all are read and sorted, and then the rows of the page.
fn sort(connection: &Connection, query: &Query, walks: &[Walk]) -> Sql<Examined> {
    let time = match query.order.by {
        OrderBy::CreateTime => "execution.created_at",
        OrderBy::EndTime => "execution.ended_at",
    };
    let (least, most) = query.bounds();
    let (mut found, mut rows) = (Vec::new(), 0);
    for walk in walks {
        let positions = format!("SELECT {time}, execution.exec FROM {} WHERE {}", walk.rows(), walk.condition);
        let mut statement = connection.prepare_cached(&positions)?;
        let read = statement.query_map(params_from_iter(&walk.values), |row| {
            Ok((row.get::<_, Option<i64>>(0)?, ExecutionKey(row.get(1)?)))
        })?;
        for read in read {
            let (time, key) = read?;
            rows += 1;
            let Some(time) = time.filter(|time| (least..=most).contains(time)) else { continue };
            let position = Position { time, key };
            found.extend(
                query.after.is_none_or(|after| query.order.compare(after, position).is_lt()).then_some(position),
            );
        }
    }
    found.sort_unstable_by(|left, right| query.order.compare(*left, *right));
    static ROW: LazyLock<String> = LazyLock::new(|| format!("SELECT {} FROM execution WHERE exec = ?1", *COLUMNS));
    let mut statement = connection.prepare_cached(&ROW)?;
    let (mut page, mut last) = (Page::default(), None);
    for position in found {
        rows += 1;
        // Deleted or changed meanwhile, or damaged.
        let read = statement.query_row([position.key.0], execution_row).optional()?;
        let Some(row) = read.and_then(|row| row.inspect_err(report).ok()) else { continue };
        if query.position(&row) != Some(position) || !query.matches(&row) {
            continue;
        }
        if page.rows.len() == query.limit {
            page.next = last;
            break;
        }
        page.rows.push(row);
        last = Some(position);
    }
    Ok(Examined { page, rows })
}

/// A page of the executions that the walks find, each in the order of the list.
fn merge(connection: &Connection, query: &Query, walks: Vec<Walk>) -> Sql<Examined> {
    let chunk = (query.limit / walks.len().max(1) + 1).clamp(8, 256);
    let narrowed = Narrowed::by(query);
    let mut walks: Vec<Walking<'_>> =
        walks.into_iter().map(|walk| Walking::new(connection, query, walk, &narrowed, chunk)).collect();
    let mut may_pass = MAX_PASSED;
    let most = MAX_EXAMINED.max(query.limit + 1);
    let (mut page, mut examined, mut last) = (Page::default(), 0, None);
    loop {
        let mut first: Option<(Ahead, usize)> = None;
        for (index, walk) in walks.iter_mut().enumerate() {
            if let Some(ahead) = walk.peek(&mut may_pass)?
                && first.is_none_or(|(first, _)| query.order.compare(ahead.position(), first.position()).is_lt())
            {
                first = Some((ahead, index));
            }
        }
        let (position, index) = match first {
            None => break,
            Some((Ahead::Row(position), index)) => (position, index),
            // Whatever comes before it was examined, in every walk.
            Some((Ahead::Unread(position), _)) => {
                page.next = Some(position);
                break;
            }
        };
        let row = walks[index].found.pop_front().expect("peeked");
        let matches = query.matches(&row);
        if matches && page.rows.len() == query.limit {
            page.next = last;
            break;
        }
        page.rows.extend(matches.then_some(row));
        last = Some(position);
        examined += 1;
        if examined == most {
            page.next = last;
            break;
        }
    }
    Ok(Examined { page, rows: walks.iter().map(|walk| walk.read).sum() })
}

/// The next place in a walk.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    /// An execution at this position.
    Row(Position),
    /// It has passed over enough for this page, up to and with this position.
    Unread(Position),
}

impl Ahead {
    fn position(self) -> Position {
        match self {
            Self::Row(position) | Self::Unread(position) => position,
        }
    }
}

/// A walk that is under way.
struct Walking<'a> {
    connection: &'a Connection,
    query: &'a Query,
    walk: Walk,
    narrowed: &'a Narrowed,
    found: VecDeque<ExecutionRow>,
    /// The ends of what is still to be found, both exclusive.
    between: (Position, Position),
    /// The last execution that it has looked at.
    passed: Option<Position>,
    chunk: usize,
    is_at_end: bool,
    /// The number of rows that were read.
    read: usize,
}

impl<'a> Walking<'a> {
    fn new(connection: &'a Connection, query: &'a Query, walk: Walk, narrowed: &'a Narrowed, chunk: usize) -> Self {
        let (least, most) = query.bounds();
        let mut between = (Position { time: least, ..Position::START }, Position::after(most));
        if let Some(after) = query.after {
            match query.order.descending {
                true => between.1 = between.1.min(after),
                false => between.0 = between.0.max(after),
            }
        }
        let found = VecDeque::new();
        Self { connection, query, walk, narrowed, found, between, passed: None, chunk, is_at_end: false, read: 0 }
    }

    /// Finds what comes next. Looks at most at so many executions more.
    fn peek(&mut self, may_pass: &mut usize) -> Sql<Option<Ahead>> {
        while self.found.is_empty() && !self.is_at_end {
            if let Some(passed) = self.passed.filter(|_| *may_pass == 0) {
                return Ok(Some(Ahead::Unread(passed)));
            }
            *may_pass = may_pass.saturating_sub(self.chunk);
            self.read()?;
        }
        Ok(self.found.front().and_then(|row| self.query.position(row)).map(Ahead::Row))
    }

    /// Reads what may match of the next executions: the index says where these end.
    fn read(&mut self) -> Sql<()> {
        let descending = self.query.order.descending;
        let chunk = i64::try_from(self.chunk).unwrap_or(i64::MAX);
        let end = {
            let mut statement = self.connection.prepare_cached(&self.walk.skip(descending))?;
            let bounds = bounds(self.between, chunk - 1);
            let values = self.walk.values.iter().chain(&bounds);
            let position = |row: &Row<'_>| Ok(Position { time: row.get(0)?, key: ExecutionKey(row.get(1)?) });
            statement.query_row(params_from_iter(values), position).optional()?
        };
        let (after, before) = self.between;
        let part = match (end, descending) {
            (None, _) => self.between,
            // With the last one.
            (Some(end), true) => (Position { key: ExecutionKey(end.key.0.saturating_sub(1)), ..end }, before),
            (Some(end), false) => (after, Position { key: ExecutionKey(end.key.0.saturating_add(1)), ..end }),
        };
        let mut statement = self.connection.prepare_cached(&self.walk.select(self.narrowed, descending))?;
        let bounds = bounds(part, chunk);
        let values = self.walk.values.iter().chain(&self.narrowed.values).chain(&bounds);
        for row in statement.query_map(params_from_iter(values), execution_row)? {
            self.read += 1;
            self.found.extend(row?.inspect_err(report).ok());
        }
        match end {
            None => self.is_at_end = true,
            Some(end) if descending => self.between.1 = end,
            Some(end) => self.between.0 = end,
        }
        self.passed = end;
        // The next part is longer: nothing that matched was in this one, or the page is long.
        self.chunk = (self.chunk * 2).min(MAX_CHUNK);
        Ok(())
    }
}

/// The last parameters of a statement of a walk.
fn bounds((after, before): (Position, Position), number: i64) -> [Value; 5] {
    [after.time, after.key.0, before.time, before.key.0, number].map(Value::from)
}

#[cfg(test)]
mod tests {
    use belay_journal::{
        Comparison, ExecutionSummary, Fence, JournalWriter as _, NewExecution, Operation, Order, ParentStep, Transition,
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
        // As a request does that names no parent.
        let filter = filter.into_iter().chain([vec![Condition::HasParent(false)]]).map(AnyOf).collect();
        let order = Order { by: OrderBy::CreateTime, descending: false };
        Query { namespace: Some("n".into()), filter, order, after: None, limit: 50 }
    }

    /// How a page is found, as `merge state` or `sort id`; several walks of one index are counted.
    fn found(connection: &Connection, query: &Query) -> String {
        let (how, walks) = match way(connection, query, &Extent::of(connection, query).unwrap()).unwrap() {
            Way::Merge(walks) => ("merge", walks),
            Way::Sort(walks) => ("sort", walks),
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
            child.parent =
                Some(ParentStep { execution: ExecutionKey(1), execution_id: parent.into(), step_id: text("s") });
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
                    let Examined { page, rows } = examine(&connection, &next).unwrap();
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

    /// B-23: what a list passes over is not read, wherever the few that match are, and each page goes on where the one before has stopped.
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
                    let Examined { page, rows } = merge(&connection, &next, vec![walk]).unwrap();
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
        let narrowed = Narrowed::by(&query(one_of_each.into_iter().map(|one| vec![one]).collect()));
        for walk in walks {
            for (descending, skips) in [(false, false), (true, false), (false, true), (true, true)] {
                let select = if skips { walk.skip(descending) } else { walk.select(&narrowed, descending) };
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
}
