//! Belay's own services: an executor, a tool runner and an approval gate, each with its store on its machine's simulated disk; clients
//! that start, pause, resume, cancel and watch executions; people who decide, and an attacker who forges grants; while power, processes,
//! network and disks fail and clocks are wrong.
//!
//! ```text
//! alice, bob ── gRPC ──▶ executor (journal) ── gRPC ──▶ runner (ledger, workspaces) ──▶ tools ──▶ the outside world
//!                              │                          ▲   ▲
//!                              ▼           what is asked, │   │ forged grants
//! pat, quinn ─── gRPC ──▶ gate (approvals) ◀── policy ────┘   └── mallory
//! ```
//!
//! Observations of clients and people and the work of the tools are recorded outside of the machines. After the last fault every execution has to
//! end; then all machines lose power once more, and their stored data is compared with the records.

mod archive;
mod asking_models;
mod audit;
mod auditor;
mod backup;
mod bugs;
mod calls;
mod children;
mod client;
mod damage;
mod decisions;
mod documents;
mod effects;
mod escalations;
mod features;
mod forger;
mod hosts;
mod inputs;
mod knobs;
mod lateness;
mod limiting;
mod looker;
mod operator;
mod orders;
mod outside;
mod people;
mod picture;
mod plain;
mod plans;
mod planted;
mod policy;
mod promises;
mod records;
mod recurring_faults;
mod retention;
mod run;
mod scenarios;
mod scheduling;
mod shared_journal;
mod site;
mod slow_journal;
mod spending;
mod tools;
mod watcher;
mod webhooks;
mod workspaces;

pub use self::asking_models::{asking_models, lost_turn_asked_again, lost_turn_not_counted};
pub use self::limiting::{limit_turns_forgotten, limiting, limits_ignored};
pub use self::planted::{
    acknowledgement_not_retried, acknowledging_before_the_commit, applying_before_the_row, applying_without_sync,
    child_in_another_folder, child_not_driven, child_of_running_taken, cursor_ahead_rejected, double_dispatch,
    double_start, endless_reruns, expired_grant_drops_effect, forgetting_calls, fork_forgets_output,
    full_disk_fails_steps, grant_reuse, held_budget_ignored, incomplete_collection, journal_without_sync, late_timer,
    layer_left_out, ledger_without_sync, lost_answer_trusted, lost_approval_not_recreated, lost_child_started_again,
    lost_timer, lost_wake_up, namespace_holds_forgotten, no_fence, pause_of_child_kept, question_of_another_run,
    repetition_refused, staging_without_sync, stale_cursor_trusted, stale_entries, stale_look, stale_view,
    uncommitted_reported_unknown, unordered_append, unordered_collection, unreadable_row_stops_start,
    unrecorded_child_deleted, unstored_end_dropped, wall_clock_messages, wall_clock_timers,
};
pub use self::scenarios::{
    as_it_is, brooding, damaging_a_row, deleting, driving_some, escalating, extending, in_a_crowd, losing_the_gate,
    losing_the_ledger, nesting, replacing_executors, restoring_everything, restoring_the_journal, retaining, telling,
    waiting,
};
pub use self::scheduling::{scheduled_starts_forgotten, scheduling};
