//! The store's queries.

use std::sync::LazyLock;

use belay_grant::digest_of;
use belay_proto::{
    runner_v1,
    v1::{self, Approval, approval::State, approval_need::Kind},
};
use belay_sqlite::{DamagedRow, SqliteError};
use prost::Message as _;
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

use super::schema::{ANSWER, APPROVAL, BODY, GRANT, POLICY, damaged, decoded};
use crate::feed::Head;

/// A filter for approvals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only this namespace; `None` means all.
    pub(crate) namespace: Option<String>,
    /// Only this execution; empty means all.
    pub(crate) execution: String,
    /// Only these states; empty means all.
    pub(crate) states: Vec<i32>,
    /// Only ids with this prefix.
    pub(crate) id_prefix: String,
}

impl Filter {
    /// The filter as an SQL condition. Unused columns are left out, so that an index can serve the rest; every parameter occurs in it.
    fn condition(&self) -> String {
        let namespace = if self.namespace.is_some() { "namespace = :namespace" } else { ":namespace IS NULL" };
        let execution = if self.execution.is_empty() { ":execution = ''" } else { "execution = :execution" };
        format!(
            "{namespace} AND {execution} AND (1 << state) & :mask <> 0 AND substr(id, 1, length(:prefix)) = :prefix"
        )
    }

    /// A bit for each state.
    fn mask(&self) -> i64 {
        match self.states.is_empty() {
            true => -1,
            false => {
                self.states.iter().filter(|state| (0..63).contains(*state)).fold(0, |mask, state| mask | 1 << state)
            }
        }
    }
}

/// The position in a list: pending approvals by age, then the others, the newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The last one was pending, with this key.
    Pending(i64),
    /// The last one was not, with this key.
    Other(i64),
}

impl Position {
    pub(crate) const START: Self = Self::Pending(0);
}

static COLUMNS: LazyLock<String> =
    LazyLock::new(|| format!("key, name, state, revision, basic, {}", APPROVAL.intact()));

fn report(damaged: &DamagedRow) {
    tracing::error!(%damaged, "A row of gate.db is set aside");
}

fn approval(row: &Row<'_>) -> Result<(i64, Approval), SqliteError> {
    if !row.get::<_, bool>(5)? {
        return Err(SqliteError::Row(APPROVAL.damaged(row.get::<_, i64>(0)?)));
    }
    let name: String = row.get(1)?;
    let basic = row.get_ref(4)?.as_blob().map_err(|_| damaged("the row", &name))?;
    Ok((row.get(0)?, decoded(&name, row.get(2)?, row.get(3)?, basic)?))
}

/// The row; `None` when it is damaged, which the service's log then names.
pub(super) fn intact<T>(read: Result<T, SqliteError>) -> Result<Option<T>, SqliteError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(SqliteError::Row(damaged)) => {
            report(&damaged);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(super) fn head(connection: &Connection) -> Result<Head, SqliteError> {
    // The approval with the last revision may be deleted.
    let last =
        "SELECT max(coalesce((SELECT max(revision) FROM approval), 0), coalesce((SELECT last_revision FROM meta), 0))";
    let revision = connection.prepare_cached(last)?.query_row([], |row| row.get(0))?;
    let sooner = "SELECT min(expires) FROM approval WHERE state = 1 AND expires IS NOT NULL";
    let next_expiry = connection.prepare_cached(sooner)?.query_row([], |row| row.get(0))?;
    Ok(Head { revision, next_expiry })
}

/// The highest fencing token of the requests about the approval with this key.
pub(super) fn fence(connection: &Connection, key: i64) -> Result<i64, SqliteError> {
    Ok(connection.prepare_cached("SELECT fence FROM approval WHERE key = ?1")?.query_row([key], |row| row.get(0))?)
}

/// How many approvals are pending.
pub(super) fn count_open(connection: &Connection) -> Result<usize, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM approval WHERE state = 1")?;
    let count: i64 = statement.query_row([], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The pending approval that was created first; a damaged one is left out.
pub(super) fn oldest_pending(connection: &Connection) -> Result<Option<Approval>, SqliteError> {
    let oldest = format!("SELECT {} FROM approval INDEXED BY approval_open WHERE state = 1 ORDER BY key", *COLUMNS);
    let mut statement = connection.prepare_cached(&oldest)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some((_, approval)) = intact(approval(row))? {
            return Ok(Some(approval));
        }
    }
    Ok(None)
}

/// An approval with its key.
pub(super) fn find(connection: &Connection, name: &str) -> Result<Option<(i64, Approval)>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {} FROM approval WHERE name = ?1", *COLUMNS))?;
    let mut rows = statement.query([name])?;
    rows.next()?.map(approval).transpose()
}

/// The approval that a request with an id decided, and the request's digest.
pub(super) fn of_request(connection: &Connection, id: &str) -> Result<Option<(String, Approval)>, SqliteError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {}, request_digest FROM approval WHERE request = ?1", *COLUMNS))?;
    let mut rows = statement.query([id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (_, decided) = approval(row)?;
    Ok(Some((row.get(6)?, decided)))
}

/// An approval with its body. Verifies the subject's digest, so that bytes that were changed on disk are neither shown nor signed.
pub(super) fn find_full(connection: &Connection, name: &str) -> Result<Option<Approval>, SqliteError> {
    let Some((key, mut approval)) = find(connection, name)? else { return Ok(None) };
    let body = connection
        .prepare_cached(&format!("SELECT subject, preview, {} FROM body WHERE approval = ?1", BODY.intact()))?
        .query_row([key], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, bool>(2)?)))
        .optional()?;
    let (subject, preview, intact) = body.ok_or_else(|| damaged("the subject", name))?;
    if !intact {
        return Err(SqliteError::Row(BODY.damaged(name)));
    }
    if digest_of(&subject) != approval.subject_digest {
        return Err(damaged("the subject", name));
    }
    approval.subject = subject;
    let undecodable = |_| damaged("the preview", name);
    match approval.kind() {
        Kind::Form => approval.form = Some(v1::Form::decode(preview.as_slice()).map_err(undecodable)?),
        Kind::Unspecified | Kind::Call | Kind::Effect => {
            approval.preview = Some(v1::Preview::decode(preview.as_slice()).map_err(undecodable)?);
        }
    }
    Ok(Some(approval))
}

fn list_query(filter: &Filter, pending: bool) -> String {
    let place = match pending {
        true => "state = 1 AND key > :key ORDER BY key",
        false => "state <> 1 AND key < :key ORDER BY key DESC",
    };
    format!("SELECT {} FROM approval WHERE {} AND {place}", *COLUMNS, filter.condition())
}

fn changes_query(filter: &Filter, undelivered: bool) -> String {
    let delivery = if undelivered { "delivered = 0 AND state IN (2, 3, 4, 5, 9) AND " } else { "" };
    let condition = filter.condition();
    format!(
        "SELECT {} FROM approval WHERE {delivery}{condition} AND revision > :after ORDER BY revision LIMIT :limit",
        *COLUMNS
    )
}

pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    after: Position,
    limit: usize,
) -> Result<Vec<(Position, Approval)>, SqliteError> {
    let mut found = Vec::new();
    let pending_state = 1 << State::Pending as i32;
    let mut section = |pending: bool, key: i64, position: fn(i64) -> Position| -> Result<(), SqliteError> {
        let wanted = if pending { filter.mask() & pending_state } else { filter.mask() & !pending_state };
        if wanted == 0 {
            // Listing open approvals must not scan all closed ones.
            return Ok(());
        }
        let mut statement = connection.prepare_cached(&list_query(filter, pending))?;
        let mut rows = statement.query(named_params! {
            ":namespace": filter.namespace, ":execution": filter.execution, ":mask": filter.mask(),
            ":prefix": filter.id_prefix, ":key": key,
        })?;
        while found.len() < limit
            && let Some(row) = rows.next()?
        {
            let Some((key, approval)) = intact(approval(row))? else { continue };
            found.push((position(key), approval));
        }
        Ok(())
    };
    let mut below = i64::MAX;
    match after {
        Position::Pending(key) => section(true, key, Position::Pending)?,
        Position::Other(key) => below = key,
    }
    section(false, below, Position::Other)?;
    Ok(found)
}

pub(super) fn changes(
    connection: &Connection,
    filter: &Filter,
    undelivered: bool,
    after: i64,
    limit: usize,
) -> Result<Vec<Approval>, SqliteError> {
    let query = changes_query(filter, undelivered);
    let mut statement = connection.prepare_cached(&query)?;
    let mut rows = statement.query(named_params! {
        ":namespace": filter.namespace, ":execution": filter.execution, ":mask": filter.mask(),
        ":prefix": filter.id_prefix, ":after": after, ":limit": i64::try_from(limit).unwrap_or(i64::MAX),
    })?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.extend(intact(approval(row))?.map(|(_, approval)| approval));
    }
    Ok(found)
}

/// The sealed answer to a form, if it is kept.
pub(super) fn sealed_answer(connection: &Connection, name: &str) -> Result<Option<Vec<u8>>, SqliteError> {
    let kept = format!(
        "SELECT sealed, {} FROM answer JOIN approval ON approval.key = answer.approval WHERE name = ?1",
        ANSWER.intact()
    );
    let answer = connection.prepare_cached(&kept)?.query_row([name], |row| {
        if !row.get::<_, bool>(1)? {
            return Ok(Err(SqliteError::Row(ANSWER.damaged(name))));
        }
        Ok(Ok(row.get(0)?))
    });
    answer.optional()?.transpose()
}

/// The grant of an approval, if there is one.
pub(super) fn grant(connection: &Connection, name: &str) -> Result<Option<runner_v1::Grant>, SqliteError> {
    let kept = format!(
        "SELECT body, signature, key_id, {} FROM grant JOIN approval ON approval.key = grant.approval WHERE name = ?1",
        GRANT.intact()
    );
    let grant = connection.prepare_cached(&kept)?.query_row([name], |row| {
        if !row.get::<_, bool>(3)? {
            return Ok(Err(SqliteError::Row(GRANT.damaged(name))));
        }
        Ok(Ok(runner_v1::Grant { body: row.get(0)?, signature: row.get(1)?, key_id: row.get(2)? }))
    });
    grant.optional()?.transpose()
}

/// The newest policy. When its row is damaged, an earlier one is not good enough.
pub(super) fn policy(connection: &Connection) -> Result<Option<v1::SignedPolicy>, SqliteError> {
    let newest = format!(
        "SELECT revision, body, signature, key_id, {} FROM policy ORDER BY revision DESC LIMIT 1",
        POLICY.intact()
    );
    let policy = connection.query_row(&newest, [], |row| {
        if !row.get::<_, bool>(4)? {
            return Ok(Err(SqliteError::Row(POLICY.damaged(row.get::<_, i64>(0)?))));
        }
        let (revision, body, signature, key_id) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(Ok(v1::SignedPolicy { revision, body, signature, key_id }))
    });
    policy.optional()?.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The store keeps every approval forever, so frequent queries must not scan the table.
    #[test]
    fn an_index_serves_every_query() {
        let folder = tempfile::tempdir().unwrap();
        let location = belay_sqlite::Location::file(folder.path().join("gate"));
        let store = belay_sqlite::open(&location, &super::super::schema::SCHEMA).unwrap();
        let connection = store.readers.connection();
        let plan = |query: String| -> String {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            // Without values for its parameters: a plan does not depend on them.
            let mut rows = statement.raw_query();
            let mut steps = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                steps.push(row.get::<_, String>(3).unwrap());
            }
            steps.join("; ")
        };
        let all = Filter { namespace: Some("n".into()), ..Filter::default() };
        let one = Filter { execution: "e".into(), ..all.clone() };
        let everywhere = Filter::default();
        for (query, index) in [
            (list_query(&all, true), "approval_pending"),
            (list_query(&all, false), "approval_other"),
            (list_query(&everywhere, true), "approval_open"),
            (changes_query(&one, false), "approval_execution"),
            (changes_query(&everywhere, false), "sqlite_autoindex_approval_2"),
            (changes_query(&everywhere, true), "approval_undelivered"),
            (changes_query(&all, true), "approval_undelivered"),
        ] {
            let plan = plan(query);
            assert!(plan.starts_with("SEARCH") && plan.contains(index), "{index}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{index}: {plan}");
        }
    }
}
