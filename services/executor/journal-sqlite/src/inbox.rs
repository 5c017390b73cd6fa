//! The messages between executions.

use std::sync::LazyLock;

use belay_journal::{ExecutionKey, InboxContent, InboxMessage, InboxRow, TakenMessage};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::{rows, schema::INBOX};

/// The number of the only content there is.
const CHILD_ENDED: i64 = 1;

/// Stores the messages that an execution sends. One to an execution that is not there is dropped.
pub(crate) fn send(
    connection: &Connection,
    from: ExecutionKey,
    messages: &[InboxMessage],
) -> Result<(), rusqlite::Error> {
    static PUT: LazyLock<String> =
        LazyLock::new(|| INBOX.insert().replacen("INSERT INTO", "INSERT OR REPLACE INTO", 1));
    for InboxMessage { to, revision, content } in messages {
        let InboxContent::ChildEnded = content;
        if rows::exists(connection, *to)? {
            connection.prepare_cached(&PUT)?.execute(params![to.0, from.0, CHILD_ENDED, revision])?;
        }
    }
    Ok(())
}

/// Removes messages from the inbox of an execution.
pub(crate) fn take(connection: &Connection, to: ExecutionKey, taken: &[TakenMessage]) -> Result<(), rusqlite::Error> {
    for TakenMessage { from, revision } in taken {
        const TAKE: &str = "DELETE FROM inbox WHERE exec = ?1 AND sender = ?2 AND revision <= ?3";
        connection.prepare_cached(TAKE)?.execute(params![to.0, from.0, revision])?;
    }
    Ok(())
}

/// Removes the messages to an execution.
pub(crate) fn remove_all(connection: &Connection, to: ExecutionKey) -> Result<(), rusqlite::Error> {
    connection.prepare_cached("DELETE FROM inbox WHERE exec = ?1")?.execute([to.0]).map(drop)
}

/// An execution that has not taken a message of this sender yet.
pub(crate) fn waiting_for(
    connection: &Connection,
    from: ExecutionKey,
) -> Result<Option<ExecutionKey>, rusqlite::Error> {
    const WAITING: &str = "SELECT exec FROM inbox INDEXED BY inbox_from WHERE sender = ?1 LIMIT 1";
    connection.prepare_cached(WAITING)?.query_row([from.0], |row| row.get(0).map(ExecutionKey)).optional()
}

/// The messages to an execution, in the order of their senders. Damaged ones are left out: the check of the store names them.
pub(crate) fn of(connection: &Connection, to: ExecutionKey, limit: i64) -> Result<Vec<InboxRow>, rusqlite::Error> {
    static READ: LazyLock<String> = LazyLock::new(|| {
        let intact = INBOX.intact();
        format!(
            "SELECT sender, revision FROM inbox WHERE exec = ?1 AND kind = {CHILD_ENDED} AND {intact} ORDER BY sender LIMIT ?2"
        )
    });
    let row = |row: &rusqlite::Row<'_>| {
        let (from, revision) = (ExecutionKey(row.get(0)?), row.get(1)?);
        Ok(InboxRow { to, from, revision, content: InboxContent::ChildEnded })
    };
    connection.prepare_cached(&READ)?.query_map([to.0, limit], row)?.collect()
}

/// The executions that have messages, in the order of their keys: those after `after`, at most `limit`.
pub(crate) fn recipients(
    connection: &Connection,
    after: ExecutionKey,
    limit: i64,
) -> Result<Vec<ExecutionKey>, rusqlite::Error> {
    const READ: &str = "SELECT DISTINCT exec FROM inbox WHERE exec > ?1 ORDER BY exec LIMIT ?2";
    connection.prepare_cached(READ)?.query_map([after.0, limit], |row| row.get(0).map(ExecutionKey))?.collect()
}
