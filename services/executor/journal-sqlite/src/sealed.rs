//! Visits the executions that have a key, for the check of their blobs.

use belay_journal::ExecutionKey;
use belay_sqlite::{Location, SqliteError};

use crate::schema::{self, LOG};

/// A transition of an execution that has a key.
#[derive(Clone, Copy, Debug)]
pub struct SealedTransition<'a> {
    /// The execution.
    pub key: ExecutionKey,
    /// The id of its namespace.
    pub namespace: &'a str,
    /// Its id.
    pub id: &'a str,
    /// Its key, wrapped.
    pub wrapped: &'a [u8],
    /// Its events with their secrets hidden.
    pub shown: &'a [u8],
}

/// See [`crate::each_sealed`].
pub(crate) fn each(location: &Location, visit: &mut dyn FnMut(SealedTransition<'_>)) -> Result<(), SqliteError> {
    let query = format!(
        "SELECT log.exec, execution.namespace, execution.id, seal_key.wrapped, log.shown
         FROM (SELECT * FROM log WHERE {}) AS log JOIN seal_key USING (exec) JOIN execution USING (exec) ORDER BY log.id",
        LOG.intact()
    );
    let visited = belay_sqlite::inspect(location, &schema::SCHEMA, |connection| {
        let mut query = connection.prepare(&query)?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            visit(SealedTransition {
                key: ExecutionKey(row.get(0)?),
                namespace: row.get_ref(1)?.as_str()?,
                id: row.get_ref(2)?.as_str()?,
                wrapped: row.get_ref(3)?.as_blob()?,
                shown: row.get_ref(4)?.as_blob()?,
            });
        }
        Ok(())
    });
    visited.map(Option::unwrap_or_default)
}
