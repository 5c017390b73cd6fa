//! The tables.

use belay_sqlite::Schema;

pub(crate) const SCHEMA: Schema = Schema {
    // "BLYJ"
    application_id: 0x424C_594A,
    format: 3,
    earlier_lacks: "the principals, persons and services, that executions and approvals name now instead of credentials",
    create: "
        CREATE TABLE meta (
            one         INTEGER PRIMARY KEY CHECK (one = 1),
            store_id    TEXT NOT NULL,
            fence       INTEGER NOT NULL,
            heads_upto  INTEGER NOT NULL
        ) STRICT;

        CREATE TABLE execution (
            exec          INTEGER PRIMARY KEY AUTOINCREMENT,
            namespace     TEXT NOT NULL,
            id            TEXT NOT NULL,
            shard         INTEGER NOT NULL,
            created_at    INTEGER NOT NULL,
            plan_id       TEXT NOT NULL,
            labels        TEXT NOT NULL,
            principal     TEXT NOT NULL,
            request_id    TEXT,
            request_hash  TEXT NOT NULL,
            state         INTEGER NOT NULL,
            ended         INTEGER NOT NULL,
            wake_at       INTEGER,
            parked        INTEGER NOT NULL,
            last_log      INTEGER NOT NULL,
            last_seq      INTEGER NOT NULL,
            log_rows      INTEGER NOT NULL,
            UNIQUE (namespace, id),
            UNIQUE (namespace, request_id)
        ) STRICT;
        CREATE INDEX execution_unfinished ON execution (exec) WHERE ended = 0;

        CREATE TABLE log (
            id         INTEGER PRIMARY KEY,
            exec       INTEGER NOT NULL,
            previous   INTEGER NOT NULL,
            first_seq  INTEGER NOT NULL,
            count      INTEGER NOT NULL,
            version    INTEGER NOT NULL,
            fence      INTEGER NOT NULL,
            shown      BLOB NOT NULL,
            sealed     BLOB
        ) STRICT;

        CREATE TABLE seal_key (
            exec     INTEGER PRIMARY KEY,
            wrapped  BLOB NOT NULL
        ) STRICT;

        CREATE TABLE waypoint (
            exec       INTEGER NOT NULL,
            first_seq  INTEGER NOT NULL,
            log        INTEGER NOT NULL,
            PRIMARY KEY (exec, first_seq)
        ) STRICT, WITHOUT ROWID;
    ",
};
