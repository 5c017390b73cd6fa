//! Amounts of what calls use.

use serde::{Deserialize, Serialize};

/// A unit that a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BudgetUnit {
    /// Calls.
    Calls,
    /// Bytes of output.
    OutputBytes,
}

impl BudgetUnit {
    /// All units.
    pub const ALL: [Self; 2] = [Self::Calls, Self::OutputBytes];

    /// The name that people read after a number.
    pub fn words(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::OutputBytes => "bytes of output",
        }
    }
}

/// An amount of everything that a budget limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Calls.
    pub calls: u64,
    /// Bytes of results as JSON, and of the output of calls that failed as far as it is kept.
    pub output_bytes: u64,
}

impl Amounts {
    /// The amount of one unit.
    pub fn of(self, unit: BudgetUnit) -> u64 {
        match unit {
            BudgetUnit::Calls => self.calls,
            BudgetUnit::OutputBytes => self.output_bytes,
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            output_bytes: self.output_bytes.saturating_add(other.output_bytes),
        }
    }

    /// Subtracts the other amounts, unit by unit; zero for a unit of which the other has more.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(other.calls),
            output_bytes: self.output_bytes.saturating_sub(other.output_bytes),
        }
    }
}
