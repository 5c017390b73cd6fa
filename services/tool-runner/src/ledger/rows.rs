//! Converts the ledger's entries to rows and back.

use std::{
    collections::HashMap,
    ffi::OsString,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
    sync::{LazyLock, PoisonError},
};

use belay_defects::{Defect, is_planted};
use belay_grant::Change;
use belay_proto::{check::check, runner_v1, stores::Stores, v1};
use belay_reasons as reasons;
use belay_sqlite::{DamagedRow, SqliteError, Store};
use prost::Message as _;
use rusqlite::{
    Connection, OptionalExtension as _, Row as SqlRow, Transaction, params, params_from_iter,
    types::{Type, Value, ValueRef},
};
use serde::{Deserialize, Serialize};

use super::{
    entry::{
        Contents, Entry, HeldCall, JudgementInput, LayerSet, PendingApproval, Row, SpentGrant, StepEffect,
        UnreadableRow, WorkspaceEffect, WriteOutcome,
    },
    tables::{CALL, FENCE, HELD, LAYER_SET, META, POLICY, SPENT},
};
use crate::{
    Secrets, StagedEffect,
    contents::Content,
    secrets::{Part, Sealer},
    subject::CommittedFiles,
};

type Sql<T> = Result<T, rusqlite::Error>;

/// The ledger's id and key, created if there are none. The key is `None` if the content was sealed with another key.
pub(super) fn identify(
    connection: &Connection,
    secrets: &Secrets,
    new_id: impl FnOnce() -> String,
) -> Result<(String, Option<Sealer>), SqliteError> {
    let read = format!("SELECT ledger_id, seal_key, {} FROM meta", META.intact());
    let stored =
        connection.query_row(&read, [], |row| Ok(((row.get(0)?, row.get(1)?), row.get::<_, bool>(2)?))).optional()?;
    let (id, key): (String, Vec<u8>) = match stored {
        Some((_, false)) => return Err(SqliteError::Row(META.damaged(1))),
        Some((stored, true)) => stored,
        None => {
            let id = new_id();
            let key = secrets.new_key(&id);
            connection.execute(&META.insert(), params![1, id, key])?;
            (id, key)
        }
    };
    if let Ok(sealer) = secrets.with_key(&id, &key) {
        return Ok((id, Some(sealer)));
    }
    let in_use = "SELECT EXISTS (SELECT 1 FROM call WHERE sealed IS NOT NULL OR typeof(staged) = 'blob') OR EXISTS (SELECT 1 FROM held)";
    if connection.query_row(in_use, [], |row| row.get(0))? {
        return Ok((id, None));
    }
    // Nothing in use was sealed with the old key.
    let key = secrets.new_key(&id);
    let sum = META.sum_of(["one", "ledger_id", "?1"]);
    connection.execute(&format!("UPDATE meta SET seal_key = ?1, sum = {sum}"), [&key])?;
    let sealer = secrets.with_key(&id, &key).expect("it was just wrapped");
    Ok((id, Some(sealer)))
}

pub(super) fn read(connection: &mut Connection, sealer: &Sealer) -> Sql<Contents> {
    restore_keys(connection)?;
    let fences = fences(connection)?;
    let (mut calls, mut held, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    let all = format!(
        "SELECT digest, ended, call, sealed, workspace, staged_id, staged, name, {}
         FROM call ORDER BY committed, name",
        CALL.intact()
    );
    let mut statement = connection.prepare(&all)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // A damaged name may be no text any more.
        let name = String::from_utf8_lossy(row.get_ref(7)?.as_bytes().unwrap_or_default()).into_owned();
        let read = match row.get::<_, bool>(8)? {
            true => decoded(row, sealer, &name),
            false => Err(self::unreadable(7, Type::Text, SqliteError::Row(CALL.damaged(&name)))),
        };
        match read {
            Ok(row) if row.call.state() == v1::tool_call::State::AwaitingApproval => {
                match sealed_approval(connection, sealer, &name)? {
                    Some(_) => held.push(HeldCall { name, staged: row.staged.map(|effect| effect.staged.id) }),
                    None => {
                        let why = SqliteError::Row(HELD.damaged(&name)).to_string();
                        unreadable.push(UnreadableRow { name, is_before_its_run: false, why });
                    }
                }
            }
            Ok(row) => calls.push(row),
            Err(why) if is_planted(Defect::UnreadableRowStopsStart) => return Err(why),
            Err(why) => {
                let is_before_its_run = is_before_its_run(connection, sealer, &name)?;
                unreadable.push(UnreadableRow { name, is_before_its_run, why: why.to_string() });
            }
        }
    }
    let read = format!("SELECT revision, body, signature, key_id, {} FROM policy", POLICY.intact());
    let policy = connection
        .query_row(&read, [], |row| {
            if !row.get::<_, bool>(4)? {
                // The gate sends it again.
                report(&POLICY.damaged(1));
                return Ok(None);
            }
            let (revision, body, signature, key_id) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(Some(v1::SignedPolicy { revision, body, signature, key_id }))
        })
        .optional()?
        .flatten();
    Ok(Contents { calls, held, unreadable, layer_sets: layer_sets(connection)?, fences, policy })
}

/// The layers that are in use. Those of a damaged row are removed, and the step that wants them says so.
fn layer_sets(connection: &Connection) -> Sql<Vec<LayerSet>> {
    let read = format!("SELECT name, execution, workspace, {} FROM layer_set", LAYER_SET.intact());
    let set = |row: &SqlRow<'_>| {
        let name = String::from_utf8_lossy(row.get_ref(0)?.as_bytes().unwrap_or_default()).into_owned();
        if !row.get::<_, bool>(3)? {
            report(&LAYER_SET.damaged(&name));
            return Ok(None);
        }
        let workspace = PathBuf::from(OsString::from_vec(row.get(2)?));
        Ok(Some(LayerSet { name, execution: row.get(1)?, workspace }))
    };
    let sets: Vec<Option<LayerSet>> = connection.prepare(&read)?.query_map([], set)?.collect::<Sql<_>>()?;
    Ok(sets.into_iter().flatten().collect())
}

fn report(damaged: &DamagedRow) {
    tracing::error!(%damaged, "A row of ledger.db is set aside");
}

/// Gives damaged rows of calls and of spent grants back the key under which they were written, where nothing else is damaged: under another name, a
/// call would run again, and a grant could be spent again.
fn restore_keys(connection: &mut Connection) -> Sql<()> {
    for table in [&CALL, &SPENT] {
        let (columns, name) = (table.columns.join(", "), table.name);
        let damaged = format!("SELECT {columns}, sum FROM {name} WHERE NOT {}", table.intact());
        let mut restored = Vec::new();
        let mut statement = connection.prepare(&damaged)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let count = table.columns.len();
            // Where another column is not even text any more, the key is not all that is damaged.
            let Ok(rest) = (1..count).map(|index| row.get::<_, Value>(index)).collect::<Sql<Vec<_>>>() else {
                continue;
            };
            let key = row.get_ref(0)?.as_bytes().unwrap_or_default().to_vec();
            if let Some(original) = table.original_key(&key, &rest, row.get(count)?) {
                restored.push((key, original, rest));
            }
        }
        drop(rows);
        drop(statement);
        for (found, original, mut values) in restored {
            values.insert(0, Value::Text(original));
            let transaction = connection.transaction()?;
            // Not by the index, where the row is in the wrong place.
            let delete = format!("DELETE FROM {name} WHERE CAST({} AS BLOB) = ?1", table.columns[0]);
            transaction.execute(&delete, [&found])?;
            transaction.execute(&format!("{} ON CONFLICT DO NOTHING", table.insert()), params_from_iter(values))?;
            transaction.commit()?;
            let found = String::from_utf8_lossy(&found);
            tracing::error!(table = name, key = %found, "The key of a row was damaged; it was restored by its checksum");
        }
    }
    Ok(())
}

/// The fences. One that is damaged becomes the highest of the others: an executor writes all shards with one token.
fn fences(connection: &Connection) -> Sql<HashMap<i32, i64>> {
    let read = format!("SELECT shard, token, {} FROM fence", FENCE.intact());
    let rows: Vec<(i32, i64, bool)> = connection
        .prepare(&read)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Sql<_>>()?;
    let highest = rows.iter().filter(|(.., intact)| *intact).map(|(_, token, _)| *token).max().unwrap_or(0);
    rows.iter().filter(|(.., intact)| !intact).for_each(|(shard, ..)| report(&FENCE.damaged(shard)));
    Ok(rows.into_iter().map(|(shard, token, intact)| (shard, if intact { token } else { highest })).collect())
}

fn decoded(row: &SqlRow<'_>, sealer: &Sealer, name: &str) -> Sql<Row> {
    let call = message(row, 2, sealer)?;
    if call.name != name {
        return Err(unreadable(2, Type::Blob, MisplacedRow(call.name)));
    }
    let staged = workspace_effect(row, 4, sealer, name)?;
    Ok(Row { digest: row.get(0)?, ended: row.get(1)?, call, staged, pending: None, spends: None, removes: None })
}

/// A row is stored under the name of another call.
#[derive(Debug, thiserror::Error)]
#[error("it is the row of {0}")]
struct MisplacedRow(String);

/// Moves undecodable rows to `set_aside`, unchanged. The outcome of such a call becomes unknown; a call that waited for approval before its tool
/// ran had not happened, so it is dropped.
pub(super) fn set_aside(
    connection: &mut Connection,
    sealer: &Sealer,
    ledger_id: &str,
    found: &mut Contents,
) -> Sql<()> {
    if found.unreadable.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    for UnreadableRow { name, is_before_its_run, why } in &found.unreadable {
        transaction.execute(
            "INSERT OR REPLACE INTO set_aside (name, why, digest, ended, call, sealed, workspace, staged_id, staged)
             SELECT name, ?2, digest, ended, call, sealed, workspace, staged_id, staged FROM call WHERE name = ?1",
            params![name, why],
        )?;
        transaction.execute("DELETE FROM call WHERE name = ?1", [name])?;
        transaction.execute("DELETE FROM held WHERE name = ?1", [name])?;
        tracing::error!(
            call = name,
            why,
            "Cannot decode the ledger's row of a call; the row was moved to the table `set_aside`, and the outcome of the call is unknown"
        );
        if !is_before_its_run {
            let row = unknown(name, ledger_id);
            write_call(&transaction, sealer, &row, &mut 0)?;
            found.calls.push(row);
        }
    }
    transaction.commit()
}

/// The row of a call whose stored row cannot be decoded.
fn unknown(name: &str, ledger_id: &str) -> Row {
    let message = "The tool runner's ledger is damaged in the row of this call; the outcome of the call is unknown.";
    let failure = v1::Failure {
        error_class: v1::ErrorClass::OutcomeUnknown.into(),
        reason: reasons::OUTCOME_UNKNOWN.into(),
        message: message.into(),
        ..v1::Failure::default()
    };
    let call = runner_v1::ToolCall {
        name: name.to_owned(),
        state: v1::tool_call::State::OutcomeUnknown.into(),
        failure: Some(failure),
        receipt: Some(Box::new(v1::Receipt { ledger_id: ledger_id.to_owned(), ..v1::Receipt::default() })),
        ..runner_v1::ToolCall::default()
    };
    // An empty digest matches any request.
    Row { digest: String::new(), ended: true, call, staged: None, pending: None, spends: None, removes: None }
}

/// The highest commit number of the rows.
pub(super) fn last_committed(connection: &Connection) -> Sql<i64> {
    connection.query_row("SELECT coalesce(max(committed), 0) FROM call", [], |row| row.get(0))
}

/// The sealed part of a pending approval, as JSON.
#[derive(Serialize, Deserialize)]
struct SealedApproval {
    basis: JudgementInput,
    result: Option<String>,
    changes: Vec<Change>,
    /// Earlier versions wrote none.
    #[serde(default)]
    committed: CommittedFiles,
    #[serde(default)]
    of_step: Option<StepEffect>,
}

impl SealedApproval {
    fn read(row: &SqlRow<'_>, column: usize, sealer: &Sealer, name: &str) -> Sql<Self> {
        let opened = opened(row, column, sealer, name, Part::Approval)?;
        serde_json::from_slice(&opened).map_err(|error| unreadable(column, Type::Blob, error))
    }
}

/// Whether a call waits for approval and its tool has not run. Not where that cannot be read: what ran may have had effects outside the workspace,
/// and the grant that it ran on is spent.
fn is_before_its_run(connection: &Connection, sealer: &Sealer, name: &str) -> Sql<bool> {
    Ok(sealed_approval(connection, sealer, name)?.is_some_and(|approval| approval.result.is_none()))
}

/// The sealed part of a pending approval; `None` if there is none, or it cannot be read.
fn sealed_approval(connection: &Connection, sealer: &Sealer, name: &str) -> Sql<Option<SealedApproval>> {
    static READ: LazyLock<String> =
        LazyLock::new(|| format!("SELECT waits FROM held WHERE name = ?1 AND {}", HELD.intact()));
    let read = |row: &SqlRow<'_>| Ok(SealedApproval::read(row, 0, sealer, name).ok());
    Ok(connection.prepare_cached(&READ)?.query_row([name], read).optional()?.flatten())
}

/// The pending approval of a call.
pub(super) fn pending_approval(
    connection: &Connection,
    sealer: &Sealer,
    name: &str,
) -> Result<Option<(PendingApproval, Option<WorkspaceEffect>)>, SqliteError> {
    let read = format!(
        "SELECT subject, waits, contents, workspace, staged_id, staged, {}, {} FROM held JOIN call USING (name) WHERE name = ?1",
        HELD.intact(),
        CALL.intact()
    );
    let found = connection.prepare_cached(&read)?.query_row([name], |row| {
        if !row.get::<_, bool>(6)? || !row.get::<_, bool>(7)? {
            return Ok(Err(SqliteError::Row(HELD.damaged(name))));
        }
        let SealedApproval { basis, result, changes, committed, of_step } = SealedApproval::read(row, 1, sealer, name)?;
        let contents = opened(row, 2, sealer, name, Part::Contents)?;
        let contents = unpack(&contents).map_err(|error| unreadable(2, Type::Blob, error))?;
        let pending = PendingApproval { subject: row.get(0)?, basis, result, changes, committed, contents, of_step };
        Ok(Ok((pending, workspace_effect(row, 3, sealer, name)?)))
    });
    found.optional()?.transpose()
}

/// The row of a call that waits for approval.
pub(super) fn held_call(connection: &Connection, sealer: &Sealer, name: &str) -> Result<Row, SqliteError> {
    let read = format!(
        "SELECT digest, ended, call, sealed, workspace, staged_id, staged, {} FROM call WHERE name = ?1",
        CALL.intact()
    );
    let found = connection.prepare_cached(&read)?.query_row([name], |row| match row.get(7)? {
        true => decoded(row, sealer, name).map(Some),
        false => Ok(None),
    });
    found.optional()?.flatten().ok_or_else(|| SqliteError::Row(CALL.damaged(name)))
}

pub(super) fn is_spent(connection: &Connection, nonce: &str) -> Sql<bool> {
    connection.prepare_cached("SELECT 1 FROM spent WHERE nonce = ?1")?.exists([nonce])
}

/// The call: the sealed original if there is one, else the stored message.
fn message(row: &SqlRow<'_>, column: usize, sealer: &Sealer) -> Sql<runner_v1::ToolCall> {
    let decode = |bytes: &[u8]| {
        // What this format does not have is damage: read as the default, an unknown recovery class would let the call run again.
        check::<runner_v1::ToolCall>(bytes).map_err(|refused| unreadable(column, Type::Blob, refused))?;
        runner_v1::ToolCall::decode(bytes).map_err(|error| unreadable(column, Type::Blob, error))
    };
    let shown = decode(row.get_ref(column)?.as_blob()?)?;
    match row.get_ref(column + 1)? {
        ValueRef::Null => Ok(shown),
        _ => decode(&opened(row, column + 1, sealer, &shown.name, Part::Call)?),
    }
}

fn opened(row: &SqlRow<'_>, column: usize, sealer: &Sealer, call: &str, part: Part) -> Sql<Vec<u8>> {
    let sealed = row.get_ref(column)?.as_blob()?;
    sealer.open(call, part, sealed).map_err(|error| unreadable(column, Type::Blob, error))
}

fn workspace_effect(row: &SqlRow<'_>, first: usize, sealer: &Sealer, call: &str) -> Sql<Option<WorkspaceEffect>> {
    let workspace: Option<Vec<u8>> = row.get(first)?;
    let Some(workspace) = workspace else { return Ok(None) };
    let workspace = PathBuf::from(std::ffi::OsStr::from_bytes(&workspace));
    let plan = match row.get_ref(first + 2)? {
        ValueRef::Blob(_) => String::from_utf8(opened(row, first + 2, sealer, call, Part::Plan)?)
            .map_err(|error| unreadable(first + 2, Type::Blob, error))?,
        text => text.as_str()?.to_owned(),
    };
    Ok(Some(WorkspaceEffect { workspace, staged: StagedEffect { id: row.get(first + 1)?, plan } }))
}

fn unreadable(column: usize, kind: Type, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, error.into())
}

/// Contents in sequence, as length-delimited `ContentChunk`s.
fn pack(contents: &[Content]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Content { digest, data } in contents {
        runner_v1::ContentChunk { digest: digest.clone(), data: data.clone(), last: true }
            .encode_length_delimited(&mut bytes)
            .expect("a vector grows");
    }
    bytes
}

fn unpack(mut bytes: &[u8]) -> Result<Vec<Content>, prost::DecodeError> {
    let mut contents = Vec::new();
    while !bytes.is_empty() {
        let runner_v1::ContentChunk { digest, data, .. } =
            runner_v1::ContentChunk::decode_length_delimited(&mut bytes)?;
        contents.push(Content { digest, data });
    }
    Ok(contents)
}

/// Writes a batch in one transaction, after deleting the rows `deletes`. An entry whose grant is spent is left out; the others are written.
/// Returns the result of each entry and the number of the commit. `last` is the highest commit number of effects.
pub(super) fn write(
    store: &Store,
    sealer: &Sealer,
    positions: &Stores,
    deletes: &[String],
    batch: &[Entry],
    last: &mut i64,
) -> Sql<(Vec<WriteOutcome>, i64)> {
    let mut connection = store.writer.lock().unwrap_or_else(PoisonError::into_inner);
    let transaction = connection.transaction()?;
    for name in deletes {
        transaction.prepare_cached("DELETE FROM call WHERE name = ?1 AND ended")?.execute([name])?;
    }
    let written = batch.iter().map(|entry| write_one(&transaction, sealer, entry, last)).collect::<Sql<Vec<_>>>()?;
    let number = belay_sqlite::count_commit(&transaction, positions)?;
    transaction.commit()?;
    Ok((written, number))
}

fn write_one(transaction: &Transaction<'_>, sealer: &Sealer, entry: &Entry, last: &mut i64) -> Sql<WriteOutcome> {
    match entry {
        Entry::Call(row) => return write_call(transaction, sealer, row, last),
        Entry::FlushDeletes => {}
        Entry::Delete { name } => {
            transaction.prepare_cached("DELETE FROM call WHERE name = ?1")?.execute([name])?;
        }
        Entry::Forget { execution } => {
            // Every name that begins with `{execution}/steps/`.
            let (from, until) = (format!("{execution}/steps/"), format!("{execution}/steps0"));
            for table in ["call", "held", "set_aside"] {
                transaction
                    .prepare_cached(&format!("DELETE FROM {table} WHERE name >= ?1 AND name < ?2"))?
                    .execute([&from, &until])?;
            }
            transaction.prepare_cached("DELETE FROM layer_set WHERE execution = ?1")?.execute([execution])?;
        }
        Entry::LayerSet(LayerSet { name, execution, workspace }) => {
            let insert = LAYER_SET.insert().replacen("INSERT", "INSERT OR REPLACE", 1);
            transaction.prepare_cached(&insert)?.execute(params![name, execution, workspace.as_os_str().as_bytes()])?;
        }
        Entry::RemovedLayers { set } => {
            transaction.prepare_cached("DELETE FROM layer_set WHERE name = ?1")?.execute([set])?;
        }
        Entry::Fence { shard, token } => {
            transaction
                .prepare_cached(
                    "INSERT INTO fence (shard, token) VALUES (?1, ?2) ON CONFLICT (shard) DO UPDATE SET token = max(token, ?2)",
                )?
                .execute(params![shard, token])?;
            transaction.prepare_cached(&FENCE.stamp("shard = ?1"))?.execute([shard])?;
        }
        Entry::Policy(v1::SignedPolicy { revision, body, signature, key_id }) => {
            let insert = POLICY.insert().replacen("INSERT", "INSERT OR REPLACE", 1);
            transaction.prepare_cached(&insert)?.execute(params![1, revision, body, signature, key_id])?;
        }
        Entry::Expired { before } => {
            transaction.prepare_cached("DELETE FROM spent WHERE expires < ?1")?.execute([before])?;
        }
    }
    Ok(WriteOutcome::Done)
}

fn write_call(transaction: &Transaction<'_>, sealer: &Sealer, row: &Row, last: &mut i64) -> Sql<WriteOutcome> {
    static INSERT: LazyLock<String> = LazyLock::new(|| {
        let changes = CALL.columns[1..].iter().chain([&CALL.sum]).map(|column| format!("{column} = excluded.{column}"));
        format!("{} ON CONFLICT (name) DO UPDATE SET {}", CALL.insert(), changes.collect::<Vec<_>>().join(", "))
    });
    let Row { digest, ended, call, staged, pending, spends, removes } = row;
    if let Some(SpentGrant { nonce, expires }) = spends {
        let taken = transaction
            .prepare_cached(&format!("{} ON CONFLICT (nonce) DO NOTHING", SPENT.insert()))?
            .execute(params![nonce, expires])?;
        if taken == 0 && !is_planted(Defect::GrantReuse) {
            return Ok(WriteOutcome::GrantSpent);
        }
    }
    let workspace = staged.as_ref().map(|staged| staged.workspace.as_os_str().as_bytes());
    let secrets = sealer.of_call(call);
    let plan = staged.as_ref().map(|staged| &staged.staged);
    let stored_plan = plan.map(|StagedEffect { plan, .. }| match secrets.redactor().may_hide_json(plan) {
        true => Value::Blob(sealer.seal(&call.name, Part::Plan, plan.as_bytes())),
        false => Value::Text(plan.clone()),
    });
    let committed = (*ended && plan.is_some()).then(|| {
        *last += 1;
        *last
    });
    let shown = secrets.call(call);
    let sealed = (shown != *call).then(|| sealer.seal(&call.name, Part::Call, &call.encode_to_vec()));
    transaction.prepare_cached(&INSERT)?.execute(params![
        call.name,
        digest,
        ended,
        shown.encode_to_vec(),
        sealed,
        workspace,
        plan.map(|plan| &plan.id),
        stored_plan,
        committed
    ])?;
    transaction.prepare_cached("DELETE FROM held WHERE name = ?1")?.execute([&call.name])?;
    if let Some(set) = removes {
        transaction.prepare_cached("DELETE FROM layer_set WHERE name = ?1")?.execute([set])?;
    }
    if let Some(PendingApproval { subject, basis, result, changes, committed, contents, of_step }) = pending {
        let sealed_approval = SealedApproval {
            basis: basis.clone(),
            result: result.clone(),
            changes: changes.clone(),
            committed: committed.clone(),
            of_step: of_step.clone(),
        };
        let sealed_approval = serde_json::to_vec(&sealed_approval).expect("words and texts are always JSON");
        transaction.prepare_cached(&HELD.insert())?.execute(params![
            call.name,
            subject,
            sealer.seal(&call.name, Part::Approval, &sealed_approval),
            sealer.seal(&call.name, Part::Contents, &pack(contents))
        ])?;
    }
    Ok(WriteOutcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    // What the executor gets of a call whose row is gone: it must neither run again nor pass for done.
    #[test]
    fn a_call_whose_row_cannot_be_read_has_an_unknown_outcome() {
        let Row { digest, ended, call, staged, pending, spends, removes } = unknown("the call", "the ledger");
        assert_eq!((digest.as_str(), ended, staged, pending, spends, removes), ("", true, None, None, None, None));
        assert_eq!((call.name.as_str(), call.state()), ("the call", v1::tool_call::State::OutcomeUnknown));
        assert_eq!(call.receipt.unwrap().ledger_id, "the ledger");
        let failure = call.failure.unwrap();
        assert_eq!(
            (failure.error_class(), failure.reason.as_str()),
            (v1::ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN)
        );
        assert!(failure.message.contains("ledger is damaged"), "{failure:?}");
    }
}
