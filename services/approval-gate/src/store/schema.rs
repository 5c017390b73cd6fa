//! The tables, and what is checked of a row of approvals.

use belay_proto::v1::{Approval, approval::State};
use belay_reasons::StoreFault;
use belay_sqlite::{Schema, SqliteError, Table};
use prost::Message as _;

pub(super) const SCHEMA: Schema = Schema {
    // "BLYG"
    application_id: 0x424C_5947,
    format: 11,
    earlier_lacks: "which executor spoke of an approval last",
    create: "
        CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), store_id TEXT NOT NULL, last_revision INTEGER NOT NULL, sum INTEGER NOT NULL DEFAULT 0) STRICT;
        CREATE TABLE approval (
            key        INTEGER PRIMARY KEY,
            name       TEXT NOT NULL UNIQUE,
            namespace  TEXT NOT NULL,
            id         TEXT NOT NULL,
            execution  TEXT NOT NULL,
            state      INTEGER NOT NULL,
            revision   INTEGER NOT NULL UNIQUE,
            expires    INTEGER,
            delivered  INTEGER NOT NULL,
            -- The highest fencing token of the requests about it.
            fence      INTEGER NOT NULL,
            basic      BLOB NOT NULL,
            -- The request that decided it, if that had an id: the caller and the id, and the digest of the request.
            request    TEXT UNIQUE,
            request_digest TEXT,
            sum        INTEGER NOT NULL DEFAULT 0
        ) STRICT;
        CREATE INDEX approval_pending ON approval (namespace, key) WHERE state = 1;
        CREATE INDEX approval_open ON approval (key) WHERE state = 1;
        CREATE INDEX approval_other ON approval (namespace, key) WHERE state <> 1;
        CREATE INDEX approval_execution ON approval (execution, revision);
        CREATE INDEX approval_undelivered ON approval (revision) WHERE delivered = 0 AND state IN (2, 3, 4, 5, 9);
        CREATE INDEX approval_expires ON approval (expires) WHERE state = 1 AND expires IS NOT NULL;
        -- Written once and seldom read: apart from what changes and is listed.
        CREATE TABLE body (approval INTEGER PRIMARY KEY REFERENCES approval (key), subject BLOB NOT NULL, preview BLOB NOT NULL, sum INTEGER NOT NULL) STRICT;
        CREATE TABLE grant (
            approval   INTEGER PRIMARY KEY REFERENCES approval (key),
            body       BLOB NOT NULL,
            signature  BLOB NOT NULL,
            key_id     TEXT NOT NULL,
            sum        INTEGER NOT NULL DEFAULT 0
        ) STRICT;
        -- Sealed, and only until the executor has acknowledged it.
        CREATE TABLE answer (approval INTEGER PRIMARY KEY REFERENCES approval (key), sealed BLOB NOT NULL, sum INTEGER NOT NULL) STRICT;
        CREATE TABLE policy (revision INTEGER PRIMARY KEY, body BLOB NOT NULL, signature BLOB NOT NULL, key_id TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
    ",
};

pub(super) const META: Table = Table {
    name: "meta",
    columns: &["one", "store_id", "last_revision"],
    sum: "sum",
    affects: "the whole store of approvals",
};

pub(super) const APPROVAL: Table = Table {
    name: "approval",
    columns: &[
        "key",
        "name",
        "namespace",
        "id",
        "execution",
        "state",
        "revision",
        "expires",
        "delivered",
        "fence",
        "basic",
        "request",
        "request_digest",
    ],
    sum: "sum",
    affects: "this approval",
};

pub(super) const BODY: Table = Table {
    name: "body",
    columns: &["approval", "subject", "preview"],
    sum: "sum",
    affects: "what this approval shows",
};

pub(super) const GRANT: Table = Table {
    name: "grant",
    columns: &["approval", "body", "signature", "key_id"],
    sum: "sum",
    affects: "the call that this approval allows",
};

pub(super) const ANSWER: Table =
    Table { name: "answer", columns: &["approval", "sealed"], sum: "sum", affects: "the answer to this form" };

pub(super) const POLICY: Table = Table {
    name: "policy",
    columns: &["revision", "body", "signature", "key_id"],
    sum: "sum",
    affects: "this revision of the policy",
};

pub(super) const TABLES: [&Table; 7] = [&META, &APPROVAL, &BODY, &GRANT, &ANSWER, &POLICY, &belay_sqlite::POSITION];

pub(super) fn damaged(what: &str, name: &str) -> SqliteError {
    SqliteError::Fault(StoreFault::Corrupt(format!("{what} of `{name}` was changed outside of Belay")))
}

/// Decodes the approval of a row, and checks the row's columns against it.
pub(super) fn decoded(name: &str, state: i32, revision: i64, basic: &[u8]) -> Result<Approval, SqliteError> {
    let approval = Approval::decode(basic).map_err(|_| damaged("the row", name))?;
    let same = approval.name == name && approval.state == state && approval.revision == revision;
    match same && approval.state() != State::Unspecified {
        true => Ok(approval),
        false => Err(damaged("the row", name)),
    }
}
