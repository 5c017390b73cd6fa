//! Where a query looks, and the walks that find what a part of its filter matches there.

use belay_journal::{AnyOf, Condition, OrderBy, Query, Waits};
use rusqlite::{Connection, Result as Sql, types::Value};

use super::walk::Walk;
use crate::rows::namespaces;

/// The number of walks that a merge begins per dimension: with more namespaces or values, the page walks the whole list instead.
pub(super) const MAX_WALKS: usize = 64;

/// Where a query looks.
pub(super) struct Extent {
    /// The namespaces; `None` for all where they are too many.
    namespaces: Option<Vec<String>>,
    /// Whether executions that carry out the plans of steps are looked for (`true`), and whether others are (`false`).
    kinds: Vec<bool>,
}

impl Extent {
    pub(super) fn of(connection: &Connection, query: &Query) -> Sql<Self> {
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
    pub(super) fn whole(&self, order: OrderBy) -> Vec<Walk> {
        match &self.namespaces {
            None => vec![Walk::everything(order)],
            Some(names) => {
                let each = names.iter().flat_map(|name| self.kinds.iter().map(move |kind| (name, *kind)));
                each.map(|(name, has_parent)| Walk::by_kind(name, has_parent, order)).collect()
            }
        }
    }

    /// The walks that find everything that matches a part of a filter; `None` when no index does.
    pub(super) fn walks(&self, connection: &Connection, any: &AnyOf, order: OrderBy) -> Sql<Option<Vec<Walk>>> {
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
