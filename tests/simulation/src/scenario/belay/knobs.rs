//! Thresholds that the seed varies. They affect how the services work, never what they guarantee.

use std::time::Duration;

use belay_executor::Thresholds;
use belay_journal_sqlite::Intervals;
use belay_settings::ExecutorLimits;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::machine::Interleaving;

/// The thresholds of all services of one simulation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Knobs {
    pub(super) executor: Thresholds,
    /// How many steps executions may have in memory.
    pub(super) steps: u32,
    pub(super) journal: Intervals,
    /// How many answers of the journal to commits are lost, in each run of the executor: none, as with an embedded store, or some.
    pub(super) max_lost_answers: usize,
    /// The maximum number of operations in one commit of the ledger and of the gate's store.
    pub(super) store_batch: usize,
    pub(super) runner: belay_tool_runner::Thresholds,
    pub(super) interleaving: Interleaving,
}

impl Knobs {
    /// Each threshold is as in production, or so small that it is crossed all the time.
    pub(super) fn generate(random: &mut StdRng, seed: u64) -> Self {
        let mut turned = |usual: usize, least: usize, most: usize| match random.random_bool(0.4) {
            true => usual,
            false => random.random_range(least..=most),
        };
        let usual = Thresholds::default();
        let executor = Thresholds {
            max_batch: turned(usual.max_batch, 1, 3),
            max_recent: turned(usual.max_recent, 0, 4),
            watch_page: turned(usual.watch_page, 1, 4),
            acknowledge_batch: turned(usual.acknowledge_batch, 1, 3),
            park_after: Duration::from_millis(turned(5000, 0, 200) as u64),
            snapshot_events: turned(usual.snapshot_events as usize, 1, 12) as u64,
            max_inline: usual.max_inline,
            // Without sessions, as with a runner that has none: rarely.
            session: turned(1, 0, 2) > 0,
            ..usual
        };
        let usual = Intervals::default();
        let journal = Intervals {
            checkpoint_rows: turned(usual.checkpoint_rows as usize, 1, 12) as u64,
            waypoint_rows: turned(usual.waypoint_rows as usize, 1, 5) as u64,
        };
        let usual = belay_tool_runner::Thresholds::default();
        let runner = belay_tool_runner::Thresholds {
            max_waiting_rows: turned(usual.max_waiting_rows, 1, 3),
            linger: Duration::from_millis(turned(2000, 0, 300) as u64),
            ..usual
        };
        let store_batch = turned(belay_group_commit::MAX_BATCH, 1, 3);
        // So small that most results are blobs.
        let executor = Thresholds { max_inline: turned(executor.max_inline, 1, 40), ..executor };
        let max_lost_answers = turned(0, 1, 40);
        // The same at the runner, which then has room for a few of them only.
        let runner = belay_tool_runner::Thresholds {
            max_inline: turned(runner.max_inline, 1, 40),
            max_kept_bytes: turned(runner.max_kept_bytes, 0, 300),
            ..runner
        };
        let interleaving = interleaving(&mut StdRng::seed_from_u64(!seed));
        // So few that executions wait for others to leave memory.
        let steps =
            [ExecutorLimits::default().steps.value, 160, 80][StdRng::seed_from_u64(seed ^ 0x57e9).random_range(0..3)];
        Self { executor, steps, journal, max_lost_answers, store_batch, runner, interleaving }
    }
}

impl Knobs {
    /// The limits of the executor.
    pub(super) fn limits(&self) -> ExecutorLimits {
        let mut limits = ExecutorLimits::default();
        limits.steps.value = self.steps;
        limits
    }
}

/// In one simulation of five, as if nothing were ever interrupted.
fn interleaving(random: &mut StdRng) -> Interleaving {
    let one_in = [0, 2, 4, 8, 16][random.random_range(0..5)];
    Interleaving { one_in, longest: Duration::from_micros([300, 2_000, 8_000][random.random_range(0..3)]) }
}
