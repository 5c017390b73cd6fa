//! What is used and held of budgets.

use serde::{Deserialize, Serialize};

use crate::{Amounts, BudgetLevel, BudgetUnit};

/// What is used and held of a budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) spent: Amounts,
    /// What is recorded already of how far it is used.
    pub(crate) reported: Vec<(BudgetUnit, BudgetLevel)>,
    /// What operations in flight hold; it follows from those.
    #[serde(skip)]
    pub(crate) held: Amounts,
}

impl Account {
    pub(crate) fn is_reported(&self, unit: BudgetUnit, level: BudgetLevel) -> bool {
        self.reported.contains(&(unit, level))
    }

    /// An account that something was used of before.
    pub(crate) fn with_spent(spent: Amounts) -> Self {
        Self { spent, ..Self::default() }
    }
}
