//! State that the processes of the services share.

use std::error::Error;
use std::sync::Arc;

use belay_executor::Models;
use belay_grant::{Keys, SigningKey};
use belay_settings::{BudgetWindow, NamespaceBudget, NamespaceBudgets, ValueWithOrigin};

use super::super::archive::Archive;
use super::super::backup::Backup;
use super::super::bugs::Bugs;
use super::super::damage::DamagedCalls;
use super::super::knobs::Knobs;
use super::super::outside::Outside;
use super::super::records::Mailbox;
use super::super::retention::DeletedExecutions;
use super::inventory::Inventory;
use super::owners::Owners;
use crate::checker::Checker;

/// State that the processes of the services need across restarts.
#[derive(Debug, Clone)]
pub(in super::super) struct Site {
    pub(in super::super) bugs: Bugs,
    pub(in super::super) outside: Outside,
    pub(in super::super) checker: Checker,
    /// For ids and keys.
    pub(in super::super) seed: u64,
    pub(in super::super) owners: Owners,
    /// The policy at the gate's first start, and at all later ones.
    pub(in super::super) policies: [Arc<str>; 2],
    pub(in super::super) inventory: Inventory,
    pub(in super::super) knobs: Knobs,
    pub(in super::super) archive: Archive,
    pub(in super::super) damaged: DamagedCalls,
    /// Executions that retention has deleted.
    pub(in super::super) taken: DeletedExecutions,
    /// Messages that the receiver of webhooks has got.
    pub(in super::super) mailbox: Mailbox,
    /// The backup that is put back.
    pub(in super::super) backup: Backup,
    /// The simulation's own seed.
    pub(in super::super) number: u64,
    /// The models that steps may ask.
    pub(in super::super) models: Models,
}

/// How many bytes of output a namespace may use in a day: more than all calls return, also where forks and retries of nested plans return large values
/// again and again, and as much as 32 calls hold. A namespace that has used it up waits for the next day, which no run lasts.
const OUTPUT_OF_A_DAY: u64 = 32 * 32 * 1024;

impl Site {
    /// The budget of each namespace: so many calls that none is refused, and as much output as some calls hold.
    pub(super) fn budgets(&self) -> NamespaceBudgets {
        if !self.bugs.has_budgets() || self.seed.is_multiple_of(2) {
            return NamespaceBudgets::default();
        }
        NamespaceBudgets(vec![NamespaceBudget {
            namespace: ValueWithOrigin::default_of("*".to_owned()),
            window: ValueWithOrigin::default_of(BudgetWindow::Day),
            calls: Some(ValueWithOrigin::default_of(1_000_000)),
            output_bytes: Some(ValueWithOrigin::default_of(OUTPUT_OF_A_DAY)),
            tokens: None,
            cost_micros: None,
        }])
    }

    /// Records a violation: lost stores are accepted, so no store may be reported as behind.
    pub(super) fn behind(&self, why: String) -> Box<dyn Error> {
        self.checker.violation(format_args!("a store is said to be behind: {why}"));
        why.into()
    }

    pub(super) fn signing_key(&self) -> SigningKey {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        SigningKey::from_bytes(&seed)
    }

    /// The keys that may sign grants.
    pub(in super::super) fn keys(&self) -> Keys {
        Keys::new([self.signing_key().verifying_key()])
    }
}
