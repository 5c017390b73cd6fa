//! The tables.

use belay_sqlite::Schema;

pub(crate) const SCHEMA: Schema = Schema {
    // "BLYJ"
    application_id: 0x424C_594A,
    format: 4,
    earlier_lacks: "the columns and indexes that lists and timers go by",
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
            -- One bit for each kind.
            waits_for     INTEGER NOT NULL,
            updated_at    INTEGER NOT NULL,
            ended_at      INTEGER,
            failure_reason TEXT,
            steps         INTEGER NOT NULL,
            completed     INTEGER NOT NULL,
            failed        INTEGER NOT NULL,
            skipped       INTEGER NOT NULL,
            cancelled     INTEGER NOT NULL,
            last_log      INTEGER NOT NULL,
            last_seq      INTEGER NOT NULL,
            log_rows      INTEGER NOT NULL,
            UNIQUE (namespace, id),
            UNIQUE (namespace, request_id)
        ) STRICT;
        -- What needs a driver when the executor starts, and what is due.
        CREATE INDEX execution_claimable ON execution (exec) WHERE ended = 0 AND parked = 0;
        CREATE INDEX execution_due ON execution (wake_at, exec) WHERE parked = 1 AND wake_at IS NOT NULL;
        CREATE INDEX execution_parked ON execution (updated_at, exec) WHERE parked = 1 AND wake_at IS NOT NULL;
        -- Lists: each index has the executions with one value in the order of the list.
        CREATE INDEX execution_created ON execution (created_at, exec);
        CREATE INDEX execution_ended ON execution (ended_at, exec) WHERE ended_at IS NOT NULL;
        CREATE INDEX execution_in_namespace ON execution (namespace, created_at, exec);
        CREATE INDEX execution_ended_in ON execution (namespace, ended_at, exec) WHERE ended_at IS NOT NULL;
        CREATE INDEX execution_state ON execution (namespace, state, created_at, exec);
        CREATE INDEX execution_plan ON execution (namespace, plan_id, created_at, exec);
        CREATE INDEX execution_waits ON execution (namespace, waits_for, created_at, exec);
        CREATE INDEX execution_failure ON execution (namespace, failure_reason, created_at, exec);
        CREATE TABLE label (
            namespace   TEXT NOT NULL,
            key         TEXT NOT NULL,
            value       TEXT NOT NULL,
            created_at  INTEGER NOT NULL,
            exec        INTEGER NOT NULL,
            PRIMARY KEY (namespace, key, value, created_at, exec)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX label_key ON label (namespace, key, created_at, exec);

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
