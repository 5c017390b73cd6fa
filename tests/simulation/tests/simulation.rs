//! The simulations: see `belay_simulation::runner` for how to run more seeds, or one again.

use std::process::ExitCode;

use belay_simulation::runner;
use belay_simulation::scenario::{Expect, Scenario, append_log, belay, randomness};

/// Everything that runs.
///
/// `append_log` is the ground that S2-FR-058, S2-NFR-005 and S2-NFR-006 rest on: what was acknowledged is there after a crash
/// at any point. `belay` shows them, and S2-FR-049, S2-FR-052, S2-FR-057, S2-NFR-007, B-01, B-02, B-03, B-05, B-06, B-08, B-09 and
/// B-15, of the services themselves, with invariants 1 to 6, 8 and 12 of REQUIREMENTS section 4 after every run. The others
/// show that it would see it if they did not hold.
const SCENARIOS: &[Scenario] = &[
    Scenario { name: "randomness", run: randomness::run, expect: Expect::Holds { seeds: 20, counted: &[] } },
    Scenario {
        name: "append_log",
        run: append_log::synchronous_full,
        expect: Expect::Holds {
            seeds: 60,
            counted: &[
                "acknowledged",
                "recoveries",
                "power losses",
                "power losses in a commit",
                "kills",
                "cuts of the network",
                "disk faults",
            ],
        },
    },
    Scenario {
        name: "append_log_without_sync",
        run: append_log::synchronous_normal,
        expect: Expect::Found { violation: "is gone", first: 0, within: 200 },
    },
    Scenario {
        name: "belay",
        run: belay::as_it_is,
        expect: Expect::Holds {
            seeds: 90,
            counted: &[
                "answers of the journal lost",
                "approvals approved",
                "approvals cancelled",
                "approvals denied",
                "approvals expired",
                "approvals skipped",
                "approvals stale",
                "blobs read",
                "calls denied",
                "calls discarded",
                "calls on a grant",
                "cancellations",
                "conflicts",
                "cuts of the network",
                "decisions about something else refused",
                "decisions by the approval mode",
                "decisions of a service refused",
                "disk faults",
                "effects in place",
                "effects put in place again",
                "executions cancelled",
                "executions completed",
                "executions failed",
                "executions partial",
                "executions recovered",
                "executions timed out",
                "forged grants refused",
                "kills",
                "operations in sessions",
                "pauses",
                "power losses",
                "power losses in a commit",
                "restarts of a failed process",
                "resumptions",
                "retries",
                "spent grants refused",
                "stale callers refused",
                "stale owners refused",
                "unknown outcomes",
                "watches of approvals",
                "watches resumed",
            ],
        },
    },
    Scenario {
        name: "belay_losing_the_ledger",
        run: belay::losing_the_ledger,
        expect: Expect::Holds { seeds: 20, counted: &["executions recovered", "unknown outcomes"] },
    },
    Scenario {
        name: "belay_losing_the_gate",
        run: belay::losing_the_gate,
        expect: Expect::Holds { seeds: 20, counted: &["stores of the gate lost", "calls on a grant"] },
    },
    Scenario {
        name: "belay_restoring_the_journal",
        run: belay::restoring_the_journal,
        expect: Expect::Holds { seeds: 15, counted: &["journals restored", "watches reset"] },
    },
    // B-28: what was made after a backup is gone everywhere alike, and what was made before it goes on.
    Scenario {
        name: "belay_restoring_everything",
        run: belay::restoring_everything,
        expect: Expect::Holds {
            seeds: 20,
            counted: &[
                "approvals approved",
                "approvals in a backup that are not used yet",
                "backups restored",
                "calls on a grant",
                "children completed",
                "effects in place",
                "executions of a history that is gone",
                "executions recovered",
                "orders given again",
                "runs of a history that is gone",
                "watches reset",
            ],
        },
    },
    // B-20: flipped bits of the ledger are noticed, and never become a result.
    Scenario {
        name: "belay_damaging_a_row",
        run: belay::damaging_a_row,
        expect: Expect::Holds {
            seeds: 20,
            counted: &["rows of the ledger damaged", "approvals in the ledger damaged", "unknown outcomes"],
        },
    },
    Scenario {
        name: "belay_in_a_crowd",
        run: belay::in_a_crowd,
        expect: Expect::Holds { seeds: 10, counted: &["conflicts", "calls given up after conflicts"] },
    },
    Scenario {
        name: "belay_waiting",
        run: belay::waiting,
        expect: Expect::Holds {
            seeds: 20,
            counted: &[
                "signals",
                "waits for a time",
                "waits ended by their time",
                "waits ended by a signal",
                "waits ended by an answer",
                "answers refused",
                "second answers refused",
            ],
        },
    },
    Scenario {
        name: "belay_replacing_executors",
        run: belay::replacing_executors,
        expect: Expect::Holds {
            seeds: 25,
            counted: &["executors replaced", "writes of replaced executors refused", "executions recovered"],
        },
    },
    Scenario {
        name: "belay_nesting",
        run: belay::nesting,
        expect: Expect::Holds {
            seeds: 25,
            counted: &[
                "runs of children in a folder that was made",
                "children completed",
                "children failed",
                "children cancelled",
                "children that had ended before",
                "executions 2 deep",
                "executions 3 deep",
                "executions 4 deep",
                "executions 5 deep",
                "executions recovered",
                "inputs refused",
                "inputs used",
            ],
        },
    },
    Scenario {
        name: "belay_brooding",
        run: belay::brooding,
        expect: Expect::Holds { seeds: 15, counted: &["children completed", "executions recovered", "looks"] },
    },
    // B-28: what is deleted is gone, and nothing else is.
    Scenario {
        name: "belay_deleting",
        run: belay::deleting,
        expect: Expect::Holds {
            seeds: 25,
            counted: &[
                "children completed",
                "children deleted",
                "children deleted after their ends",
                "children not deleted yet",
                "executions deleted",
                "executions forked",
                "executions recovered",
                "looks",
                "outputs taken over",
            ],
        },
    },
    // B-26, B-28: what retention deletes by itself had ended, and nobody needs it any more.
    Scenario {
        name: "belay_retaining",
        run: belay::retaining,
        expect: Expect::Holds {
            seeds: 25,
            counted: &[
                "children completed",
                "children deleted after their ends",
                "children not kept",
                "children not kept after their parents",
                "executions deleted",
                "executions forked",
                "executions gone before their client",
                "executions not kept",
                "executions recovered",
                "looks",
                "outputs taken over",
                "requests about what was not kept",
            ],
        },
    },
    // S2-NFR-003: what is told reaches its receiver, whatever a clock said meanwhile.
    Scenario {
        name: "belay_telling",
        run: belay::telling,
        expect: Expect::Holds {
            seeds: 20,
            counted: &[
                "clocks set back",
                "clocks set forward",
                "executions recovered",
                "messages about waits",
                "messages accepted",
                "messages delivered",
                "messages given up",
                "messages not accepted",
            ],
        },
    },
    // B-34 and B-35 of a model's loop: no recorded answer is asked for again, nothing is done of one that is not recorded, the same record makes the same
    // prompt, and tokens stay within their budget.
    Scenario {
        name: "belay_asking_models",
        run: belay::asking_models,
        expect: Expect::Holds {
            seeds: 20,
            counted: &[
                "approvals of a model's calls decided",
                "budgets of tokens overrun",
                "clocks set back",
                "goals not reached",
                "goals reached",
                "kills",
                "power losses",
                "runs for a model",
                "turns asked again",
                "turns lost with their executor",
                "unknown outcomes of a model's calls",
            ],
        },
    },
    // No more executions hold a limit than may, and each gets its turn, however often the executor is killed.
    Scenario {
        name: "belay_limiting",
        run: belay::limiting,
        expect: Expect::Holds {
            seeds: 20,
            counted: &[
                "clocks set back",
                "clocks set forward",
                "kills",
                "limited executions that completed",
                "limited executions that were cancelled",
                "power losses",
                "starts that a limit refused",
            ],
        },
    },
    // Each nominal time of a schedule is decided once, whatever a clock says and whenever the executor is killed.
    Scenario {
        name: "belay_scheduling",
        run: belay::scheduling,
        expect: Expect::Holds {
            seeds: 20,
            counted: &[
                "clocks set back",
                "clocks set forward",
                "firings of schedules",
                "kills",
                "power losses",
                "times that schedules skipped",
                "triggers of schedules",
            ],
        },
    },
    Scenario {
        name: "belay_driving_some",
        run: belay::driving_some,
        expect: Expect::Holds {
            seeds: 15,
            counted: &["children completed", "children failed", "executions recovered"],
        },
    },
    Scenario {
        name: "belay_extending",
        run: belay::extending,
        expect: Expect::Holds {
            seeds: 25,
            counted: &[
                "calls after their checks",
                "calls fallen back to",
                "calls fallen back to by a person",
                "checks that did not hold",
                "files found by checks",
                "lists read",
                "lists collected",
                "lists of several entries collected",
                "entries that stay",
                "resources shared",
                "steps undone",
                "executions recovered",
            ],
        },
    },
    Scenario {
        name: "belay_escalating",
        run: belay::escalating,
        expect: Expect::Holds {
            seeds: 15,
            counted: &[
                "documents sent",
                "escalations to their end",
                "inputs refused",
                "inputs used",
                "plans paused by their escalation",
                "retries by the plan",
            ],
        },
    },
    Scenario {
        name: "belay_acknowledging_before_the_commit",
        run: belay::acknowledging_before_the_commit,
        expect: Expect::Found { violation: "is gone", first: 2, within: 200 },
    },
    Scenario {
        name: "belay_forgetting_calls",
        run: belay::forgetting_calls,
        expect: Expect::Found { violation: "executed again", first: 9, within: 200 },
    },
    Scenario {
        name: "belay_applying_before_the_row",
        run: belay::applying_before_the_row,
        expect: Expect::Found { violation: "is in place, and the call ended", first: 6, within: 200 },
    },
    Scenario {
        name: "belay_staging_without_sync",
        run: belay::staging_without_sync,
        expect: Expect::Found { violation: "what it did is gone", first: 19, within: 200 },
    },
    Scenario {
        name: "belay_applying_without_sync",
        run: belay::applying_without_sync,
        expect: Expect::Found { violation: "what it did is gone", first: 0, within: 200 },
    },
    Scenario {
        name: "belay_journal_without_sync",
        run: belay::journal_without_sync,
        expect: Expect::Found { violation: "is gone", first: 2, within: 200 },
    },
    Scenario {
        name: "belay_ledger_without_sync",
        run: belay::ledger_without_sync,
        expect: Expect::Found { violation: "executed again", first: 48, within: 200 },
    },
    Scenario {
        name: "belay_acknowledgement_not_retried",
        run: belay::acknowledgement_not_retried,
        expect: Expect::Found { violation: "are not acknowledged", first: 1, within: 200 },
    },
    Scenario {
        name: "belay_uncommitted_reported_unknown",
        run: belay::uncommitted_reported_unknown,
        expect: Expect::Found { violation: "is said to be in doubt, and it can be made again", first: 51, within: 200 },
    },
    Scenario {
        name: "belay_full_disk_fails_steps",
        run: belay::full_disk_fails_steps,
        expect: Expect::Found { violation: "failed because of a full disk", first: 2, within: 200 },
    },
    Scenario {
        name: "belay_lost_approval_not_recreated",
        run: belay::lost_approval_not_recreated,
        expect: Expect::Found { violation: "stuck", first: 2, within: 200 },
    },
    Scenario {
        name: "belay_wall_clock_timers",
        run: belay::wall_clock_timers,
        expect: Expect::Found { violation: "stuck", first: 6, within: 200 },
    },
    Scenario {
        name: "belay_expired_grant_drops_effect",
        run: belay::expired_grant_drops_effect,
        expect: Expect::Found { violation: "it was approved and could not go on", first: 15, within: 200 },
    },
    Scenario {
        name: "belay_cursor_ahead_rejected",
        run: belay::cursor_ahead_rejected,
        expect: Expect::Found { violation: "cursor: is after the last event", first: 10, within: 200 },
    },
    Scenario {
        name: "belay_stale_cursor_trusted",
        run: belay::stale_cursor_trusted,
        expect: Expect::Found { violation: "without a reset", first: 4, within: 200 },
    },
    Scenario {
        name: "belay_unreadable_row_stops_start",
        run: belay::unreadable_row_stops_start,
        expect: Expect::Found { violation: "the ledger cannot be opened", first: 2, within: 200 },
    },
    Scenario {
        name: "belay_endless_reruns",
        run: belay::endless_reruns,
        expect: Expect::Found { violation: "conflicts in the attempt", first: 0, within: 200 },
    },
    Scenario {
        name: "belay_lost_answer_trusted",
        run: belay::lost_answer_trusted,
        expect: Expect::Found { violation: "is gone", first: 9, within: 200 },
    },
    Scenario {
        name: "belay_lost_wake_up",
        run: belay::lost_wake_up,
        expect: Expect::Found { violation: "s late", first: 2, within: 200 },
    },
    Scenario {
        name: "belay_unrecorded_child_deleted",
        run: belay::unrecorded_child_deleted,
        expect: Expect::Found { violation: "had recorded its end", first: 7, within: 200 },
    },
    Scenario {
        name: "belay_unstored_end_dropped",
        run: belay::unstored_end_dropped,
        expect: Expect::Found { violation: "its parent has lost it", first: 18, within: 200 },
    },
    Scenario {
        name: "belay_lost_child_started_again",
        run: belay::lost_child_started_again,
        expect: Expect::Found { violation: "was deleted, and is there again", first: 8, within: 200 },
    },
    Scenario {
        name: "belay_child_of_running_taken",
        run: belay::child_of_running_taken,
        expect: Expect::Found { violation: "is in progress", first: 9, within: 200 },
    },
    Scenario {
        name: "belay_wall_clock_messages",
        run: belay::wall_clock_messages,
        expect: Expect::Found { violation: "messages are not delivered", first: 3, within: 200 },
    },
    Scenario {
        name: "belay_repetition_refused",
        run: belay::repetition_refused,
        expect: Expect::Found { violation: "is asked for again", first: 4, within: 200 },
    },
    Scenario {
        name: "belay_fork_forgets_output",
        run: belay::fork_forgets_output,
        expect: Expect::Found { violation: "and was to take over", first: 0, within: 200 },
    },
    Scenario {
        name: "belay_child_not_driven",
        run: belay::child_not_driven,
        expect: Expect::Found { violation: "stuck", first: 1, within: 200 },
    },
    Scenario {
        name: "belay_pause_of_child_kept",
        run: belay::pause_of_child_kept,
        expect: Expect::Found { violation: "stuck", first: 235, within: 400 },
    },
    Scenario {
        name: "belay_stale_look",
        run: belay::stale_look,
        expect: Expect::Found { violation: "had ended, and another answer", first: 4, within: 200 },
    },
    Scenario {
        name: "belay_unordered_collection",
        run: belay::unordered_collection,
        expect: Expect::Found { violation: "and the entries have", first: 0, within: 200 },
    },
    Scenario {
        name: "belay_incomplete_collection",
        run: belay::incomplete_collection,
        expect: Expect::Found { violation: "and the entries have", first: 0, within: 200 },
    },
    Scenario {
        name: "belay_stale_entries",
        run: belay::stale_entries,
        expect: Expect::Found { violation: "collects what is not done", first: 1, within: 200 },
    },
    Scenario {
        name: "belay_layer_left_out",
        run: belay::layer_left_out,
        expect: Expect::Found { violation: "no run did what", first: 3, within: 200 },
    },
    Scenario {
        name: "belay_held_budget_ignored",
        run: belay::held_budget_ignored,
        expect: Expect::Found { violation: "and the budget is", first: 2, within: 200 },
    },
    Scenario {
        name: "belay_namespace_holds_forgotten",
        run: belay::namespace_holds_forgotten,
        expect: Expect::Found { violation: "and by the events", first: 0, within: 200 },
    },
    Scenario {
        name: "belay_limit_turns_forgotten",
        run: belay::limit_turns_forgotten,
        expect: Expect::Found { violation: "wait for limits that nobody holds", first: 0, within: 50 },
    },
    Scenario {
        name: "belay_lost_turn_asked_again",
        run: belay::lost_turn_asked_again,
        expect: Expect::Found { violation: "ends are recorded", first: 0, within: 50 },
    },
    Scenario {
        name: "belay_lost_turn_not_counted",
        run: belay::lost_turn_not_counted,
        expect: Expect::Found { violation: "and its budget is", first: 8, within: 200 },
    },
    Scenario {
        name: "belay_limits_ignored",
        run: belay::limits_ignored,
        expect: Expect::Found { violation: "had a call at once", first: 0, within: 50 },
    },
    Scenario {
        name: "belay_scheduled_starts_forgotten",
        run: belay::scheduled_starts_forgotten,
        expect: Expect::Found { violation: "executions exist", first: 0, within: 200 },
    },
    Scenario {
        name: "belay_question_of_another_run",
        run: belay::question_of_another_run,
        expect: Expect::Found { violation: "and what is recorded is", first: 4, within: 200 },
    },
    Scenario {
        name: "belay_lost_timer",
        run: belay::lost_timer,
        expect: Expect::Found { violation: "stuck", first: 3, within: 200 },
    },
    Scenario {
        name: "belay_late_timer",
        run: belay::late_timer,
        expect: Expect::Found { violation: "s late", first: 7, within: 200 },
    },
    Scenario {
        name: "belay_double_dispatch",
        run: belay::double_dispatch,
        expect: Expect::Found { violation: "and its effect happened 2 times", first: 3, within: 200 },
    },
    Scenario {
        name: "belay_double_start",
        run: belay::double_start,
        expect: Expect::Found { violation: "was not requested", first: 12, within: 200 },
    },
    Scenario {
        name: "belay_unordered_append",
        run: belay::unordered_append,
        expect: Expect::Found { violation: "which had ended", first: 11, within: 200 },
    },
    Scenario {
        name: "belay_grant_reuse",
        run: belay::grant_reuse,
        expect: Expect::Found { violation: "its grant was spent twice", first: 32, within: 200 },
    },
    Scenario {
        name: "belay_stale_view",
        run: belay::stale_view,
        expect: Expect::Found { violation: "has recorded that it failed", first: 4, within: 200 },
    },
    Scenario {
        name: "belay_child_in_another_folder",
        run: belay::child_in_another_folder,
        expect: Expect::Found { violation: "its request was accepted for", within: 200, first: 0 },
    },
    Scenario {
        name: "belay_no_fence",
        run: belay::no_fence,
        expect: Expect::Found { violation: "had replaced, has written", first: 1, within: 200 },
    },
];

fn main() -> ExitCode {
    runner::main(SCENARIOS)
}
