//! The amounts of budgets that are used and held.

use serde::{Deserialize, Serialize};

use crate::{Amounts, BudgetLevel, BudgetUnit};

/// The amounts that are used and held of a budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) spent: Amounts,
    /// The reports that are recorded already.
    pub(crate) reported: Vec<(BudgetUnit, BudgetLevel)>,
    /// The amounts that operations in flight hold; they follow from those.
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
