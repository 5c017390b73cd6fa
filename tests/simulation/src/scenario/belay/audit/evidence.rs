//! Evidence that the audit looks at, and violations that it finds.

use super::super::archive::Archive;
use super::super::client::Order;
use super::super::damage::DamagedCalls;
use super::super::hosts::{Owners, WorkspaceChanges};
use super::super::outside::Outside;
use super::super::records::{Observations, RepeatedCalls, StoredData};
use crate::world::TICK;

/// How far one machine's clock may be ahead of another's, in microseconds: one step of the simulation.
pub(in super::super) const SKEW: i64 = TICK.as_micros() as i64;

/// All violations.
pub(in super::super) type Violations = Vec<String>;

/// All inputs of the audit.
pub(in super::super) struct Evidence<'a> {
    pub(in super::super) stored: &'a StoredData,
    pub(in super::super) observed: &'a Observations,
    pub(in super::super) outside: &'a Outside,
    pub(in super::super) workspaces: &'a WorkspaceChanges,
    /// Whether the runner has lost its ledger.
    pub(in super::super) ledger_lost: bool,
    pub(in super::super) orders: &'a [Order],
    pub(in super::super) keys: &'a belay_grant::Keys,
    pub(in super::super) owners: &'a Owners,
    /// The contents of the gate's lost stores.
    pub(in super::super) archive: &'a Archive,
    /// The calls whose rows in the ledger could not be read any more.
    pub(in super::super) damaged: &'a DamagedCalls,
    /// The calls that the attacker has made again.
    pub(in super::super) repeated: &'a RepeatedCalls,
    /// Whether an executor drives only what it is asked to.
    pub(in super::super) drives_some: bool,
}

impl Evidence<'_> {
    /// Whether the runner has lost its row of this call.
    pub(in super::super) fn row_lost(&self, call: &str) -> bool {
        self.ledger_lost || self.damaged.contains(call)
    }
}
