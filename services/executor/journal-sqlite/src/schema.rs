//! The tables.

use belay_sqlite::{Schema, Table};

pub(crate) const SCHEMA: Schema = Schema {
    // "BLYJ"
    application_id: 0x424C_594A,
    format: 20,
    earlier_lacks: "the tokens and the cost of models",
    create: "
        CREATE TABLE meta (
            one         INTEGER PRIMARY KEY CHECK (one = 1),
            store_id    TEXT NOT NULL,
            fence       INTEGER NOT NULL,
            heads_upto  INTEGER NOT NULL,
            sum         INTEGER NOT NULL
        ) STRICT;

        CREATE TABLE execution (
            exec          INTEGER PRIMARY KEY AUTOINCREMENT,
            namespace     TEXT NOT NULL,
            id            TEXT NOT NULL,
            shard         INTEGER NOT NULL,
            -- The folder that the tool runner makes for it.
            folder        TEXT,
            created_at    INTEGER NOT NULL,
            plan_id       TEXT NOT NULL,
            labels        TEXT NOT NULL,
            principal     TEXT NOT NULL,
            request_id    TEXT,
            request_hash  TEXT NOT NULL,
            -- The step whose plan it carries out.
            parent        INTEGER,
            parent_id     TEXT,
            parent_step   TEXT,
            state         INTEGER NOT NULL,
            ended         INTEGER NOT NULL,
            wake_at       INTEGER,
            parked        INTEGER NOT NULL,
            -- One bit for each kind.
            waits_for     INTEGER NOT NULL,
            asks          INTEGER NOT NULL,
            updated_at    INTEGER NOT NULL,
            ended_at      INTEGER,
            failure_reason TEXT,
            steps         INTEGER NOT NULL,
            completed     INTEGER NOT NULL,
            failed        INTEGER NOT NULL,
            skipped       INTEGER NOT NULL,
            cancelled     INTEGER NOT NULL,
            last_log      INTEGER NOT NULL DEFAULT 0,
            last_seq      INTEGER NOT NULL DEFAULT 0,
            log_rows      INTEGER NOT NULL DEFAULT 0,
            -- Of everything before last_log, and of the rest.
            sum           INTEGER NOT NULL,
            head_sum      INTEGER NOT NULL DEFAULT 0,
            UNIQUE (namespace, id),
            UNIQUE (namespace, principal, request_id)
        ) STRICT;
        -- What needs a driver when the executor starts, and what is due.
        CREATE INDEX execution_claimable ON execution (exec) WHERE ended = 0 AND parked = 0;
        CREATE INDEX execution_due ON execution (wake_at, exec) WHERE parked = 1 AND wake_at IS NOT NULL;
        CREATE INDEX execution_parked ON execution (updated_at, exec) WHERE parked = 1 AND wake_at IS NOT NULL;
        -- Who uses a folder.
        CREATE INDEX execution_folder ON execution (namespace, folder) WHERE folder IS NOT NULL;
        -- Lists: each index has the executions with one value in the order of the list. Those by end have only what has ended, and are written at the end.
        CREATE INDEX execution_created ON execution (created_at, exec);
        CREATE INDEX execution_ended ON execution (ended_at, exec) WHERE ended_at IS NOT NULL;
        CREATE INDEX execution_state ON execution (namespace, state, (parent IS NOT NULL), created_at, exec);
        CREATE INDEX execution_plan ON execution (namespace, plan_id, (parent IS NOT NULL), created_at, exec);
        CREATE INDEX execution_waits ON execution (namespace, waits_for, (parent IS NOT NULL), created_at, exec);
        CREATE INDEX execution_failure ON execution (namespace, failure_reason, (parent IS NOT NULL), created_at, exec)
            WHERE failure_reason IS NOT NULL;
        CREATE INDEX execution_children ON execution (namespace, parent_id, created_at, exec) WHERE parent_id IS NOT NULL;
        CREATE INDEX execution_state_ended ON execution (namespace, state, (parent IS NOT NULL), ended_at, exec) WHERE ended_at IS NOT NULL;
        CREATE INDEX execution_plan_ended ON execution (namespace, plan_id, (parent IS NOT NULL), ended_at, exec) WHERE ended_at IS NOT NULL;
        CREATE INDEX execution_failure_ended ON execution (namespace, failure_reason, (parent IS NOT NULL), ended_at, exec)
            WHERE failure_reason IS NOT NULL AND ended_at IS NOT NULL;
        -- The whole namespace: the executions that carry out no step's plan, and those that do.
        CREATE INDEX execution_kind ON execution (namespace, (parent IS NOT NULL), created_at, exec);
        CREATE INDEX execution_kind_ended ON execution (namespace, (parent IS NOT NULL), ended_at, exec) WHERE ended_at IS NOT NULL;
        -- A copy of `execution.labels` and `ended_at`, which is checked with them.
        CREATE TABLE label (
            namespace   TEXT NOT NULL,
            key         TEXT NOT NULL,
            value       TEXT NOT NULL,
            created_at  INTEGER NOT NULL,
            exec        INTEGER NOT NULL,
            ended_at    INTEGER,
            PRIMARY KEY (namespace, key, value, created_at, exec)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX label_key ON label (namespace, key, created_at, exec);
        CREATE INDEX label_ended ON label (namespace, key, value, ended_at, exec) WHERE ended_at IS NOT NULL;

        CREATE TABLE log (
            id         INTEGER PRIMARY KEY,
            exec       INTEGER NOT NULL,
            previous   INTEGER NOT NULL,
            first_seq  INTEGER NOT NULL,
            count      INTEGER NOT NULL,
            version    INTEGER NOT NULL,
            fence      INTEGER NOT NULL,
            shown      BLOB NOT NULL,
            sealed     BLOB,
            facts      BLOB,
            sum        INTEGER NOT NULL
        ) STRICT;

        CREATE TABLE seal_key (
            exec     INTEGER PRIMARY KEY,
            wrapped  BLOB NOT NULL,
            sum      INTEGER NOT NULL
        ) STRICT;

        -- The last one of each execution, in a table of its own: it may be large, and is read only to load one.
        CREATE TABLE snapshot (
            exec     INTEGER PRIMARY KEY,
            seq      INTEGER NOT NULL,
            version  INTEGER NOT NULL,
            content  BLOB NOT NULL,
            sealed   INTEGER NOT NULL,
            sum      INTEGER NOT NULL
        ) STRICT;

        CREATE TABLE waypoint (
            exec       INTEGER NOT NULL,
            first_seq  INTEGER NOT NULL,
            log        INTEGER NOT NULL,
            sum        INTEGER NOT NULL,
            PRIMARY KEY (exec, first_seq)
        ) STRICT, WITHOUT ROWID;

        -- Messages for webhooks. A number is never used again.
        CREATE TABLE outbox (
            id          INTEGER PRIMARY KEY AUTOINCREMENT,
            exec        INTEGER NOT NULL,
            webhook     TEXT NOT NULL,
            message     TEXT NOT NULL,
            body        TEXT NOT NULL,
            created_at  INTEGER NOT NULL,
            attempts    INTEGER NOT NULL,
            next_at     INTEGER NOT NULL,
            sum         INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX outbox_next ON outbox (webhook, next_at, id);
        CREATE INDEX outbox_of ON outbox (exec);

        -- Messages between executions: the last one of each sender to each recipient.
        CREATE TABLE inbox (
            exec      INTEGER NOT NULL,
            sender    INTEGER NOT NULL,
            kind      INTEGER NOT NULL,
            revision  INTEGER NOT NULL,
            sum       INTEGER NOT NULL,
            PRIMARY KEY (exec, sender)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX inbox_from ON inbox (sender);

        -- What the calls of a namespace use of its budget in a window of time.
        CREATE TABLE usage (
            namespace          TEXT NOT NULL,
            start_at           INTEGER NOT NULL,
            end_at             INTEGER NOT NULL,
            used_calls         INTEGER NOT NULL,
            used_output_bytes  INTEGER NOT NULL,
            used_tokens        INTEGER NOT NULL,
            used_cost_micros   INTEGER NOT NULL,
            held_calls         INTEGER NOT NULL,
            held_output_bytes  INTEGER NOT NULL,
            held_tokens        INTEGER NOT NULL,
            held_cost_micros   INTEGER NOT NULL,
            sum                INTEGER NOT NULL,
            PRIMARY KEY (namespace, start_at, end_at)
        ) STRICT, WITHOUT ROWID;

        CREATE TABLE schedule (
            namespace  TEXT NOT NULL,
            id         TEXT NOT NULL,
            revision   INTEGER NOT NULL,
            content    BLOB NOT NULL,
            state      BLOB NOT NULL,
            sum        INTEGER NOT NULL,
            PRIMARY KEY (namespace, id)
        ) STRICT, WITHOUT ROWID;

        -- Who waits for a limit over executions, who holds it, and who has started in its window.
        CREATE TABLE limit_entry (
            position   INTEGER PRIMARY KEY,
            namespace  TEXT NOT NULL,
            limit_key  TEXT NOT NULL,
            exec       INTEGER NOT NULL,
            -- When it got the limit; NULL while it waits.
            held_at    INTEGER,
            -- For how long it counts after that; 0 when until its end.
            window     INTEGER NOT NULL,
            -- It has ended.
            released   INTEGER NOT NULL,
            sum        INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX limit_entry_by_key ON limit_entry (namespace, limit_key, held_at, position);
        CREATE INDEX limit_entry_by_execution ON limit_entry (exec);

        -- What is left of a deleted execution.
        CREATE TABLE deletion (
            exec          INTEGER PRIMARY KEY,
            namespace     TEXT NOT NULL,
            id            TEXT NOT NULL,
            shard         INTEGER NOT NULL,
            deleted_at    INTEGER NOT NULL,
            request_id    TEXT NOT NULL,
            request_hash  TEXT NOT NULL,
            -- A digest of the id of the request that started it.
            start_request TEXT,
            -- The folder that goes with it.
            folder        TEXT,
            -- Its last row of the log that is still there; 0 when none is.
            last_log      INTEGER NOT NULL,
            reusable_at   INTEGER,
            sum           INTEGER NOT NULL,
            UNIQUE (namespace, id)
        ) STRICT;
        CREATE INDEX deletion_start ON deletion (namespace, start_request) WHERE start_request IS NOT NULL;
        CREATE INDEX deletion_open ON deletion (exec) WHERE reusable_at IS NULL;
        CREATE INDEX deletion_folder ON deletion (namespace, folder) WHERE folder IS NOT NULL AND reusable_at IS NULL;
        CREATE INDEX deletion_deleted ON deletion (deleted_at, exec);
        CREATE INDEX deletion_closed ON deletion (reusable_at) WHERE reusable_at IS NOT NULL;
    ",
};

pub(crate) const META: Table = Table {
    name: "meta",
    columns: &["one", "store_id", "fence", "heads_upto"],
    sum: "sum",
    affects: "the whole journal",
};

pub(crate) const EXECUTION: Table = Table {
    name: "execution",
    columns: &[
        "exec",
        "namespace",
        "id",
        "shard",
        "folder",
        "created_at",
        "plan_id",
        "labels",
        "principal",
        "request_id",
        "request_hash",
        "parent",
        "parent_id",
        "parent_step",
        "state",
        "ended",
        "wake_at",
        "parked",
        "waits_for",
        "asks",
        "updated_at",
        "ended_at",
        "failure_reason",
        "steps",
        "completed",
        "failed",
        "skipped",
        "cancelled",
    ],
    sum: "sum",
    affects: "this execution",
};

/// The part of an execution's row that names its last row of the log.
pub(crate) const HEAD: Table = Table {
    name: "execution",
    columns: &["exec", "last_log", "last_seq", "log_rows"],
    sum: "head_sum",
    affects: "this execution",
};

pub(crate) const LOG: Table = Table {
    name: "log",
    columns: &["id", "exec", "previous", "first_seq", "count", "version", "fence", "shown", "sealed", "facts"],
    sum: "sum",
    affects: "the execution with these events",
};

pub(crate) const SEAL_KEY: Table =
    Table { name: "seal_key", columns: &["exec", "wrapped"], sum: "sum", affects: "the execution with this key" };

pub(crate) const SNAPSHOT: Table = Table {
    name: "snapshot",
    columns: &["exec", "seq", "version", "content", "sealed"],
    sum: "sum",
    affects: "nothing but the speed of reading this execution",
};

pub(crate) const WAYPOINT: Table = Table {
    name: "waypoint",
    columns: &["exec", "first_seq", "log"],
    sum: "sum",
    affects: "nothing but the speed of reading this execution",
};

pub(crate) const DELETION: Table = Table {
    name: "deletion",
    columns: &[
        "exec",
        "namespace",
        "id",
        "shard",
        "deleted_at",
        "request_id",
        "request_hash",
        "start_request",
        "folder",
        "last_log",
        "reusable_at",
    ],
    sum: "sum",
    affects: "the deletion of this execution",
};

pub(crate) const OUTBOX: Table = Table {
    name: "outbox",
    columns: &["id", "exec", "webhook", "message", "body", "created_at", "attempts", "next_at"],
    sum: "sum",
    affects: "this message for a webhook",
};

pub(crate) const INBOX: Table = Table {
    name: "inbox",
    columns: &["exec", "sender", "kind", "revision"],
    sum: "sum",
    affects: "this message to the execution",
};

pub(crate) const USAGE: Table = Table {
    name: "usage",
    columns: &[
        "namespace",
        "start_at",
        "end_at",
        "used_calls",
        "used_output_bytes",
        "used_tokens",
        "used_cost_micros",
        "held_calls",
        "held_output_bytes",
        "held_tokens",
        "held_cost_micros",
    ],
    sum: "sum",
    affects: "the budget of this namespace",
};

pub(crate) const SCHEDULE: Table = Table {
    name: "schedule",
    columns: &["namespace", "id", "revision", "content", "state"],
    sum: "sum",
    affects: "this schedule",
};

pub(crate) const LIMIT_ENTRY: Table = Table {
    name: "limit_entry",
    columns: &["position", "namespace", "limit_key", "exec", "held_at", "window", "released"],
    sum: "sum",
    affects: "the limit over executions with this entry",
};

/// All of them.
pub(crate) const TABLES: [&Table; 14] = [
    &META,
    &EXECUTION,
    &HEAD,
    &LOG,
    &SEAL_KEY,
    &SNAPSHOT,
    &WAYPOINT,
    &OUTBOX,
    &INBOX,
    &USAGE,
    &SCHEDULE,
    &LIMIT_ENTRY,
    &DELETION,
    &belay_sqlite::POSITION,
];
