//! The simulations: see `belay_simulation::runner` for how to run more seeds, or one again.

use std::process::ExitCode;

use belay_simulation::runner;
use belay_simulation::scenario::{Expect, Scenario, append_log, belay, randomness};

/// Everything that runs. S2-FR-058, S2-NFR-005 and S2-NFR-006 rest on the append log: what was acknowledged is there after
/// a crash at any point.
const SCENARIOS: &[Scenario] = &[
    Scenario { name: "randomness", run: randomness::run, expect: Expect::Holds { counted: &[] } },
    Scenario {
        name: "append_log",
        run: append_log::synchronous_full,
        expect: Expect::Holds {
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
        expect: Expect::Found { violation: "is gone", within: 200 },
    },
    Scenario { name: "belay", run: belay::as_it_is, expect: Expect::Holds { counted: &[] } },
    Scenario {
        name: "belay_acknowledging_before_the_commit",
        run: belay::acknowledging_before_the_commit,
        expect: Expect::Found { violation: "is gone", within: 200 },
    },
    Scenario {
        name: "belay_forgetting_calls",
        run: belay::forgetting_calls,
        expect: Expect::Found { violation: "executed again", within: 200 },
    },
    Scenario {
        name: "belay_journal_without_sync",
        run: belay::journal_without_sync,
        expect: Expect::Found { violation: "is gone", within: 200 },
    },
    Scenario {
        name: "belay_ledger_without_sync",
        run: belay::ledger_without_sync,
        expect: Expect::Found { violation: "executed again", within: 200 },
    },
];

fn main() -> ExitCode {
    runner::main(SCENARIOS)
}
