//! Pages that are sorted: of walks in another order than that of the list.

use std::sync::LazyLock;

use belay_journal::{ExecutionKey, OrderBy, Page, Position, Query};
use rusqlite::{Connection, OptionalExtension as _, Result as Sql, params_from_iter};

use super::{examined_page::ExaminedPage, walk::Walk};
use crate::rows::{COLUMNS, execution_row, report};

/// A page of executions that the walks do not find in the order of the list: the positions of all are read and sorted, and then the rows of the page.
pub(super) fn sort(connection: &Connection, query: &Query, walks: &[Walk]) -> Sql<ExaminedPage> {
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
    Ok(ExaminedPage { page, rows })
}
