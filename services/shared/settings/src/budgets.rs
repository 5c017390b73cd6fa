//! The section `budgets`: what the executions of a namespace may use in a day or a month.

use crate::ValueWithOrigin;

/// The window of time that a budget is for, by the calendar in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetWindow {
    /// A day.
    Day,
    /// A month.
    Month,
}

impl BudgetWindow {
    /// The values in the file.
    pub(crate) const WORDS: [(&'static str, Self); 2] = [("day", Self::Day), ("month", Self::Month)];

    /// The value in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// The budget of a namespace. It has at least one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceBudget {
    /// The namespace's id; `*` for each one without a budget of its own.
    pub namespace: ValueWithOrigin<String>,
    /// The window.
    pub window: ValueWithOrigin<BudgetWindow>,
    /// The most calls in a window; `None` means no limit.
    pub calls: Option<ValueWithOrigin<u64>>,
    /// The most bytes of output in a window; `None` means no limit.
    pub output_bytes: Option<ValueWithOrigin<u64>>,
    /// The most tokens of models in a window; `None` means no limit.
    pub tokens: Option<ValueWithOrigin<u64>>,
    /// The most millionths of a US dollar that models may cost in a window; `None` means no limit.
    pub cost_micros: Option<ValueWithOrigin<u64>>,
}

/// The namespace of a budget that is for each one without a budget of its own.
pub(crate) const EACH: &str = "*";

/// The budgets of all namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceBudgets(pub Vec<NamespaceBudget>);

impl NamespaceBudgets {
    /// The budget of a namespace; `None` when it has none.
    pub fn of(&self, namespace: &str) -> Option<&NamespaceBudget> {
        let named = |name: &str| self.0.iter().find(|budget| budget.namespace.value == name);
        named(namespace).or_else(|| named(EACH))
    }
}
