//! Pages of lists: chooses the index with the fewest candidates, and walks it in the order of the list.
//!
//! An index has the executions of one namespace with one value of one column, in the order of their creation or of their end. A query over several
//! values or namespaces merges several walks. What no index serves in the order of the list is checked row by row: the database passes over what it
//! sees not to match, at most [`merge::MAX_PASSED`] executions a page, and the others are read, at most [`MAX_EXAMINED`](belay_journal::MAX_EXAMINED).
//! Where these are too few for a page, and an index that is in another order finds at most [`choice::MAX_SORTED`] executions, they are sorted.

mod choice;
mod examined_page;
mod extent;
mod merge;
mod sort;
mod sql_filter;
mod walk;

use belay_journal::{Page, Query};
use rusqlite::{Connection, Result as Sql};

use self::{
    choice::{Strategy, few, strategy},
    examined_page::ExaminedPage,
    extent::Extent,
    merge::merge,
    sort::sort,
};

/// Returns a page of the executions that match a query.
pub(crate) fn page(connection: &Connection, query: &Query) -> Sql<Page> {
    Ok(examine(connection, query)?.page)
}

fn examine(connection: &Connection, query: &Query) -> Sql<ExaminedPage> {
    let extent = Extent::of(connection, query)?;
    let walks = match strategy(connection, query, &extent)? {
        Strategy::Merge(walks) => walks,
        Strategy::Sort(walks) => return sort(connection, query, &walks),
    };
    let merged = merge(connection, query, walks.clone())?;
    let is_enough = merged.page.next.is_none() || merged.page.rows.len() >= query.limit.div_ceil(4);
    let few = if is_enough { None } else { few(connection, query, &extent, &walks)? };
    match few {
        None => Ok(merged),
        Some(few) => {
            let sorted = sort(connection, query, &few)?;
            Ok(ExaminedPage { rows: merged.rows + sorted.rows, ..sorted })
        }
    }
}

#[cfg(test)]
mod tests;
