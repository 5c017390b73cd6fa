//! The choice between indexes: the one that finds the fewest candidates.

use belay_journal::{AnyOf, Condition, MAX_EXAMINED, Query};
use rusqlite::{Connection, Result as Sql, params_from_iter};

use super::{extent::Extent, walk::Walk};

/// The number of executions that are sorted for a page at most. Each costs about a microsecond; more of them are matched by a walk of the whole list
/// soon enough.
const MAX_SORTED: usize = 16_384;

/// How a page is found.
#[derive(Debug)]
pub(super) enum Strategy {
    /// The walks are in the order of the list.
    Merge(Vec<Walk>),
    /// The walks find so few executions that all of them are read and sorted.
    Sort(Vec<Walk>),
}

/// Chooses the walks with the fewest candidates.
pub(super) fn strategy(connection: &Connection, query: &Query, extent: &Extent) -> Sql<Strategy> {
    // Every walk but those by labels keeps to these.
    let is_of_kind = |any: &&AnyOf| matches!(any.0[..], [Condition::HasParent(_)]);
    let is_only = query.filter.iter().filter(|any| !is_of_kind(any)).count() == 1;
    let mut best: Option<((usize, u8), Vec<Walk>)> = None;
    for any in &query.filter {
        let Some(walks) = extent.walks(connection, any, query.order.by)? else { continue };
        if in_order(query, &walks) && is_only && !is_of_kind(&any) {
            return Ok(Strategy::Merge(walks));
        }
        let count = (count(connection, &walks, MAX_EXAMINED)?, likely_count(any));
        let is_walked = in_order(query, &walks) || count.0 <= MAX_EXAMINED;
        if is_walked && best.as_ref().is_none_or(|(fewest, _)| count < *fewest) {
            best = Some((count, walks));
        }
    }
    Ok(match best {
        Some((_, walks)) if in_order(query, &walks) => Strategy::Merge(walks),
        Some((_, walks)) => Strategy::Sort(walks),
        None => Strategy::Merge(extent.whole(query.order.by)),
    })
}

/// The walks in another order than that of the list that find the fewest executions: few enough to be sorted, and fewer than `merged` find.
pub(super) fn few(connection: &Connection, query: &Query, extent: &Extent, merged: &[Walk]) -> Sql<Option<Vec<Walk>>> {
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
