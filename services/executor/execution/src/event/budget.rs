//! Events about budgets.

use serde::{Deserialize, Serialize};

use crate::{Amounts, BudgetUnit, StepId};

/// How many bytes of output are held for a call, of which nobody knows what it will return: the size up to which a result is inline in an event.
pub(crate) const OUTPUT_HELD: u64 = 32 * 1024;

/// The share of the budgets of a step and its plan that the execution of the step's plan may use; `None` of a unit means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allotment {
    /// Calls.
    pub calls: Option<u64>,
    /// Bytes of output.
    pub output_bytes: Option<u64>,
    /// Tokens of models.
    pub tokens: Option<u64>,
    /// Millionths of a US dollar that models cost.
    pub cost_micros: Option<u64>,
}

impl Allotment {
    /// The limits of all units.
    pub fn from_fn(limit: impl Fn(BudgetUnit) -> Option<u64>) -> Self {
        let [calls, output_bytes, tokens, cost_micros] = BudgetUnit::ALL.map(limit);
        Self { calls, output_bytes, tokens, cost_micros }
    }

    /// The limit of one unit.
    pub fn of(self, unit: BudgetUnit) -> Option<u64> {
        match unit {
            BudgetUnit::Calls => self.calls,
            BudgetUnit::OutputBytes => self.output_bytes,
            BudgetUnit::Tokens => self.tokens,
            BudgetUnit::CostMicros => self.cost_micros,
        }
    }

    /// The amounts that it gives; of a unit without a limit nothing is held.
    pub(crate) fn held(self) -> Amounts {
        Amounts::from_fn(|unit| self.of(unit).unwrap_or_default())
    }
}

/// How far a budget is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BudgetLevel {
    /// Four fifths of it are used.
    Warning,
    /// Something is to start and finds nothing left.
    Exceeded,
    /// More is used than there was, because calls in flight returned more than was held for them.
    Overrun,
}

/// How far a budget is used of one unit; recorded once for each level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetReport {
    /// How far.
    pub level: BudgetLevel,
    /// The unit.
    pub unit: BudgetUnit,
    /// The step whose budget it is; `None` for that of the plan.
    pub step: Option<StepId>,
    /// How much is used.
    pub spent: u64,
    /// How much there was.
    pub limit: u64,
}

impl BudgetReport {
    /// Says of a budget that is used up which it is, and how much of it: `the budget of the plan is used up: 2 of 2 calls`.
    pub fn in_words(&self) -> String {
        let Self { unit, step, spent, limit, .. } = self;
        let whose = match step {
            Some(step) => format!("step `{step}`"),
            None => "the plan".to_owned(),
        };
        format!("the budget of {whose} is used up: {}", unit.in_words(*spent, *limit))
    }
}
