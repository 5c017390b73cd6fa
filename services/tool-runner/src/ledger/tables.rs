//! The tables of the ledger's file.

use belay_sqlite::{Schema, Table};

pub(super) const SCHEMA: Schema = Schema {
    // "BLYL"
    application_id: 0x424C_594C,
    format: 10,
    earlier_lacks: "which networks calls had",
    create: "
        CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), ledger_id TEXT NOT NULL, seal_key BLOB NOT NULL, sum INTEGER NOT NULL) STRICT;
        CREATE TABLE fence (shard INTEGER PRIMARY KEY, token INTEGER NOT NULL, sum INTEGER NOT NULL DEFAULT 0) STRICT;
        CREATE TABLE call (
            name      TEXT PRIMARY KEY,
            digest    TEXT NOT NULL,
            ended     INTEGER NOT NULL,
            -- As it is shown, and sealed as it is where that differs.
            call      BLOB NOT NULL,
            sealed    BLOB,
            -- A staged effect and the folder it belongs to: its plan as text, or sealed where a name in it may be a secret.
            workspace BLOB,
            staged_id TEXT,
            staged    ANY,
            -- In which order effects were put in place, and are again after a crash.
            committed INTEGER,
            sum       INTEGER NOT NULL,
            CHECK ((workspace IS NULL) = (staged IS NULL) AND (staged IS NULL) = (staged_id IS NULL))
        ) STRICT, WITHOUT ROWID;
        -- What a call that waits for a decision waits with.
        CREATE TABLE held (
            id       INTEGER PRIMARY KEY,
            name     TEXT NOT NULL UNIQUE,
            subject  BLOB NOT NULL,
            -- Both sealed.
            waits    BLOB NOT NULL,
            contents BLOB NOT NULL,
            sum      INTEGER NOT NULL
        ) STRICT;
        -- Layers of steps whose calls have one effect: in which workspace, and which execution they go with.
        CREATE TABLE layer_set (
            name      TEXT PRIMARY KEY,
            execution TEXT NOT NULL,
            workspace BLOB NOT NULL,
            sum       INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        -- Rows of calls that could not be read, as they were found, without their checksums.
        CREATE TABLE set_aside (
            name      TEXT PRIMARY KEY,
            why       TEXT NOT NULL,
            digest    ANY,
            ended     ANY,
            call      ANY,
            sealed    ANY,
            workspace ANY,
            staged_id ANY,
            staged    ANY
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE spent (nonce TEXT PRIMARY KEY, expires INTEGER NOT NULL, sum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE policy (
            one       INTEGER PRIMARY KEY CHECK (one = 1),
            revision  INTEGER NOT NULL,
            body      BLOB NOT NULL,
            signature BLOB NOT NULL,
            key_id    TEXT NOT NULL,
            sum       INTEGER NOT NULL
        ) STRICT;
    ",
};

pub(super) const META: Table =
    Table { name: "meta", columns: &["one", "ledger_id", "seal_key"], sum: "sum", affects: "the whole ledger" };

pub(super) const FENCE: Table =
    Table { name: "fence", columns: &["shard", "token"], sum: "sum", affects: "which executor may call in this shard" };

pub(super) const CALL: Table = Table {
    name: "call",
    columns: &["name", "digest", "ended", "call", "sealed", "workspace", "staged_id", "staged", "committed"],
    sum: "sum",
    affects: "the outcome of this call",
};

pub(super) const HELD: Table = Table {
    name: "held",
    columns: &["name", "subject", "waits", "contents"],
    sum: "sum",
    affects: "the approval that this call waits for",
};

pub(super) const LAYER_SET: Table = Table {
    name: "layer_set",
    columns: &["name", "execution", "workspace"],
    sum: "sum",
    affects: "what the calls of a step have changed that was not committed: the step has to run again",
};

pub(super) const SPENT: Table =
    Table { name: "spent", columns: &["nonce", "expires"], sum: "sum", affects: "whether this grant was spent" };

pub(super) const POLICY: Table = Table {
    name: "policy",
    columns: &["one", "revision", "body", "signature", "key_id"],
    sum: "sum",
    affects: "the copy of the policy, which the gate has",
};

pub(super) const TABLES: [&Table; 8] =
    [&META, &FENCE, &CALL, &HELD, &LAYER_SET, &SPENT, &POLICY, &belay_sqlite::POSITION];
