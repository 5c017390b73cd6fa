//! The reader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_journal::{
    ExecutionKey, ExecutionRow, ExecutionSummary, Filter, JournalReader, NewExecution, StoreError, Transition,
};
use belay_sqlite::SqliteError;
use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter, types::Value};

use crate::{
    Heads,
    rows::{self, read_labels, recorded_head},
    store_error,
};

const COLUMNS: &str =
    "exec, namespace, id, shard, created_at, plan_id, labels, principal, coalesce(request_id, ''), request_hash,
                       state, ended, wake_at, parked";

pub(crate) struct SqliteReader {
    connection: Arc<Mutex<Connection>>,
    heads: Heads,
}

impl SqliteReader {
    pub(crate) fn new(connection: Arc<Mutex<Connection>>, heads: Heads) -> Self {
        Self { connection, heads }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows(&self, tail: &str, values: Vec<Value>) -> Result<Vec<ExecutionRow>, StoreError> {
        let read = || -> Result<Vec<ExecutionRow>, rusqlite::Error> {
            let connection = self.connection();
            let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM execution {tail}"))?;
            statement.query_map(params_from_iter(values), execution_row)?.collect()
        };
        read().map_err(failed)
    }
}

fn failed(error: rusqlite::Error) -> StoreError {
    store_error(SqliteError::from(error))
}

fn execution_row(row: &Row<'_>) -> Result<ExecutionRow, rusqlite::Error> {
    Ok(ExecutionRow {
        key: ExecutionKey(row.get(0)?),
        execution: NewExecution {
            namespace: row.get(1)?,
            id: row.get(2)?,
            shard: row.get(3)?,
            created_at: row.get(4)?,
            plan_id: row.get(5)?,
            labels: read_labels(&row.get::<_, String>(6)?),
            principal: row.get(7)?,
            request_id: row.get(8)?,
            request_hash: row.get(9)?,
        },
        summary: ExecutionSummary {
            state: row.get(10)?,
            ended: row.get(11)?,
            wake_at: row.get(12)?,
            parked: row.get(13)?,
        },
    })
}

impl JournalReader for SqliteReader {
    fn find(&self, namespace: &str, id: &str) -> Result<Option<ExecutionRow>, StoreError> {
        Ok(self
            .rows("WHERE namespace = ?1 AND id = ?2", vec![namespace.to_owned().into(), id.to_owned().into()])?
            .pop())
    }

    fn get(&self, key: ExecutionKey) -> Result<Option<ExecutionRow>, StoreError> {
        Ok(self.rows("WHERE exec = ?1", vec![key.0.into()])?.pop())
    }

    fn list(&self, filter: &Filter) -> Result<Vec<ExecutionRow>, StoreError> {
        let mut conditions = vec!["1".to_owned()];
        let mut values: Vec<Value> = Vec::new();
        let mut add = |condition: &str, value: Value| {
            values.push(value);
            conditions.push(condition.replace('?', &format!("?{}", values.len())));
        };
        if !filter.namespace.is_empty() {
            add("namespace = ?", filter.namespace.clone().into());
        }
        if let Some(since) = filter.created_since {
            add("created_at >= ?", since.into());
        }
        if let Some(ExecutionKey(before)) = filter.before {
            add("exec < ?", before.into());
        }
        if !filter.id_prefix.is_empty() {
            add("substr(id, 1, length(?)) = ?", filter.id_prefix.clone().into());
        }
        for (key, value) in &filter.labels {
            // The text begins with a key, or a record separator stands before it.
            add("instr(char(30) || labels, ?) > 0", format!("\u{1e}{key}\u{1f}{value}\u{1e}").into());
        }
        if !filter.states.is_empty() {
            let states: Vec<String> = filter.states.iter().map(i32::to_string).collect();
            conditions.push(format!("state IN ({})", states.join(", ")));
        }
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        self.rows(&format!("WHERE {} ORDER BY exec DESC LIMIT {limit}", conditions.join(" AND ")), values)
    }

    fn namespaces(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        // Each is found by the index of names, so that the cost does not grow with the executions in it.
        const NEXT: &str = "SELECT min(namespace) FROM execution WHERE namespace > ?1";
        let read = || -> Result<Vec<String>, rusqlite::Error> {
            let connection = self.connection();
            let mut statement = connection.prepare_cached(NEXT)?;
            let mut found: Vec<String> = Vec::new();
            while found.len() < limit {
                let last = found.last().map_or(after, String::as_str);
                let Some(next) = statement.query_row([last], |row| row.get::<_, Option<String>>(0))? else { break };
                found.push(next);
            }
            Ok(found)
        };
        read().map_err(failed)
    }

    fn read(&self, key: ExecutionKey, after: u64, limit: usize) -> Result<Vec<Transition>, StoreError> {
        // Locked before the connection: the writer holds its connection, in a simulation the same one, when it takes this lock.
        let known = self.heads.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let read = || -> Result<Vec<Transition>, rusqlite::Error> {
            let connection = self.connection();
            let Some(head) = known.map_or_else(|| recorded_head(&connection, key), |head| Ok(Some(head)))? else {
                return Ok(Vec::new());
            };
            if head.last_sequence <= after {
                return Ok(Vec::new());
            }
            let far_enough = i64::try_from(after.saturating_add(limit as u64)).unwrap_or(i64::MAX);
            let entry: Option<i64> = connection
                .prepare_cached(
                    "SELECT log FROM waypoint WHERE exec = ?1 AND first_seq > ?2 ORDER BY first_seq LIMIT 1",
                )?
                .query_row([key.0, far_enough], |row| row.get(0))
                .optional()?;
            let mut transitions = Vec::new();
            let mut next = entry.unwrap_or(head.row);
            let mut statement = connection
                .prepare_cached("SELECT previous, first_seq, count, version, shown, sealed FROM log WHERE id = ?1")?;
            while next != 0 {
                let (previous, transition) = statement.query_row([next], |row| {
                    let transition = Transition {
                        first_sequence: row.get(1)?,
                        count: row.get(2)?,
                        version: row.get(3)?,
                        shown: row.get(4)?,
                        sealed: row.get(5)?,
                    };
                    Ok((row.get(0)?, transition))
                })?;
                if transition.last_sequence() <= after {
                    break;
                }
                transitions.push(transition);
                next = previous;
            }
            transitions.reverse();
            transitions.truncate(limit);
            Ok(transitions)
        };
        read().map_err(failed)
    }

    fn seal_key(&self, key: ExecutionKey) -> Result<Option<Vec<u8>>, StoreError> {
        rows::seal_key(&self.connection(), key).map_err(failed)
    }

    fn unfinished(&self) -> Result<Vec<ExecutionRow>, StoreError> {
        self.rows("WHERE ended = 0 ORDER BY exec", Vec::new())
    }
}
