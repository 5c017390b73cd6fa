//! How the ledger's entries become rows, and rows entries again.

use std::{os::unix::ffi::OsStrExt as _, path::PathBuf, sync::PoisonError};

use belay_proto::v1;
use belay_sqlite::{SqliteError, Store};
use prost::Message as _;
use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, Transaction, params, types::Type};

use super::{Contents, Entry, Held, InPlace, Row, Spent, Written};
use crate::{Staged, contents::Content};

type Sql<T> = Result<T, rusqlite::Error>;

/// A ledger of a format from before its first release is not carried over.
pub(super) fn refuse_older(connection: &Connection, format: i64) -> Result<(), SqliteError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == format {
        return Ok(());
    }
    let message = format!("it has format {found} of an unreleased version, and this one reads {format}: move it away");
    Err(SqliteError::Other(message))
}

pub(super) fn read(connection: &Connection, new_id: impl FnOnce() -> String) -> Sql<(String, Contents)> {
    connection.execute("INSERT INTO meta (one, ledger_id) VALUES (1, ?1) ON CONFLICT (one) DO NOTHING", [new_id()])?;
    let id = connection.query_row("SELECT ledger_id FROM meta", [], |row| row.get(0))?;
    let fences = connection
        .prepare("SELECT shard, token FROM fence")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Sql<_>>()?;
    let calls = connection
        .prepare("SELECT digest, ended, call, workspace, staged_id, staged FROM call ORDER BY name")?
        .query_map([], |row| {
            let call = message(row, 2)?;
            let staged = in_place(row, 3)?;
            Ok(Row { digest: row.get(0)?, ended: row.get(1)?, call, staged, held: None, spends: None })
        })?
        .collect::<Sql<_>>()?;
    let policy = connection
        .query_row("SELECT revision, body, signature, key_id FROM policy", [], |row| {
            let (revision, body, signature, key_id) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(v1::SignedPolicy { revision, body, signature, key_id })
        })
        .optional()?;
    Ok((id, Contents { calls, fences, policy }))
}

/// What a call waits with.
pub(super) fn held(connection: &Connection, name: &str) -> Sql<Option<(Held, Option<InPlace>)>> {
    connection
        .prepare_cached(
            "SELECT subject, basis, result, contents, workspace, staged_id, staged
             FROM held JOIN call USING (name) WHERE name = ?1",
        )?
        .query_row([name], |row| {
            let basis: String = row.get(1)?;
            let basis = serde_json::from_str(&basis).map_err(|error| unreadable(1, Type::Text, error))?;
            let contents: Vec<u8> = row.get(3)?;
            let contents = unpack(&contents).map_err(|error| unreadable(3, Type::Blob, error))?;
            Ok((Held { subject: row.get(0)?, basis, result: row.get(2)?, contents }, in_place(row, 4)?))
        })
        .optional()
}

pub(super) fn is_spent(connection: &Connection, nonce: &str) -> Sql<bool> {
    connection.prepare_cached("SELECT 1 FROM spent WHERE nonce = ?1")?.exists([nonce])
}

fn message(row: &SqlRow<'_>, column: usize) -> Sql<v1::ToolCall> {
    let bytes: Vec<u8> = row.get(column)?;
    v1::ToolCall::decode(bytes.as_slice()).map_err(|error| unreadable(column, Type::Blob, error))
}

fn in_place(row: &SqlRow<'_>, first: usize) -> Sql<Option<InPlace>> {
    let workspace: Option<Vec<u8>> = row.get(first)?;
    let Some(workspace) = workspace else { return Ok(None) };
    let workspace = PathBuf::from(std::ffi::OsStr::from_bytes(&workspace));
    Ok(Some(InPlace { workspace, staged: Staged { id: row.get(first + 1)?, plan: row.get(first + 2)? } }))
}

fn unreadable(column: usize, kind: Type, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, error.into())
}

/// Contents one after the other, as `ContentChunk`s with their lengths in front.
fn pack(contents: &[Content]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Content { digest, data } in contents {
        v1::ContentChunk { digest: digest.clone(), data: data.clone(), last: true }
            .encode_length_delimited(&mut bytes)
            .expect("a vector grows");
    }
    bytes
}

fn unpack(mut bytes: &[u8]) -> Result<Vec<Content>, prost::DecodeError> {
    let mut contents = Vec::new();
    while !bytes.is_empty() {
        let v1::ContentChunk { digest, data, .. } = v1::ContentChunk::decode_length_delimited(&mut bytes)?;
        contents.push(Content { digest, data });
    }
    Ok(contents)
}

/// Writes a batch in one transaction. An entry whose grant is spent is left out; the others are not.
pub(super) fn write(store: &Store, batch: &[Entry]) -> Sql<Vec<Written>> {
    let mut connection = store.writer.lock().unwrap_or_else(PoisonError::into_inner);
    let transaction = connection.transaction()?;
    let written = batch.iter().map(|entry| write_one(&transaction, entry)).collect::<Sql<Vec<_>>>()?;
    transaction.commit()?;
    Ok(written)
}

fn write_one(transaction: &Transaction<'_>, entry: &Entry) -> Sql<Written> {
    match entry {
        Entry::Call(row) => return write_call(transaction, row),
        Entry::Acknowledged { names } => {
            for name in names {
                transaction.prepare_cached("DELETE FROM call WHERE name = ?1 AND ended")?.execute([name])?;
            }
        }
        Entry::Forgotten { name } => {
            transaction.prepare_cached("DELETE FROM call WHERE name = ?1")?.execute([name])?;
        }
        Entry::Fence { shard, token } => {
            transaction
                .prepare_cached(
                    "INSERT INTO fence (shard, token) VALUES (?1, ?2) ON CONFLICT (shard) DO UPDATE SET token = max(token, ?2)",
                )?
                .execute(params![shard, token])?;
        }
        Entry::Policy(v1::SignedPolicy { revision, body, signature, key_id }) => {
            transaction
                .prepare_cached(
                    "INSERT OR REPLACE INTO policy (one, revision, body, signature, key_id) VALUES (1, ?1, ?2, ?3, ?4)",
                )?
                .execute(params![revision, body, signature, key_id])?;
        }
        Entry::Expired { before } => {
            transaction.prepare_cached("DELETE FROM spent WHERE expires < ?1")?.execute([before])?;
        }
    }
    Ok(Written::Done)
}

fn write_call(transaction: &Transaction<'_>, row: &Row) -> Sql<Written> {
    let Row { digest, ended, call, staged, held, spends } = row;
    if let Some(Spent { nonce, expires }) = spends {
        let taken = transaction
            .prepare_cached("INSERT INTO spent (nonce, expires) VALUES (?1, ?2) ON CONFLICT (nonce) DO NOTHING")?
            .execute(params![nonce, expires])?;
        if taken == 0 {
            return Ok(Written::GrantSpent);
        }
    }
    let workspace = staged.as_ref().map(|staged| staged.workspace.as_os_str().as_bytes());
    let plan = staged.as_ref().map(|staged| &staged.staged);
    transaction
        .prepare_cached(
            "INSERT INTO call (name, digest, ended, call, workspace, staged_id, staged) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (name) DO UPDATE SET digest = ?2, ended = ?3, call = ?4, workspace = ?5, staged_id = ?6, staged = ?7",
        )?
        .execute(params![
            call.name,
            digest,
            ended,
            call.encode_to_vec(),
            workspace,
            plan.map(|plan| &plan.id),
            plan.map(|plan| &plan.plan)
        ])?;
    transaction.prepare_cached("DELETE FROM held WHERE name = ?1")?.execute([&call.name])?;
    if let Some(Held { subject, basis, result, contents }) = held {
        let basis = serde_json::to_string(basis).expect("words and texts are always JSON");
        transaction
            .prepare_cached("INSERT INTO held (name, subject, basis, result, contents) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![call.name, subject, basis, result, pack(contents)])?;
    }
    Ok(Written::Done)
}
