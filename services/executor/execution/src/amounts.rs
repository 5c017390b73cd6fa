//! Amounts of what calls use.

use belay_text::dollars;
use serde::{Deserialize, Serialize};

/// A unit that a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BudgetUnit {
    /// Calls.
    Calls,
    /// Bytes of output.
    OutputBytes,
    /// Tokens of models: of prompts and of answers.
    Tokens,
    /// Millionths of a US dollar that models cost.
    CostMicros,
}

impl BudgetUnit {
    /// All units.
    pub const ALL: [Self; 4] = [Self::Calls, Self::OutputBytes, Self::Tokens, Self::CostMicros];

    /// So much of so much, for people: `3 of 10 calls`, `$0.50 of $1.00`.
    pub fn in_words(self, amount: u64, of: u64) -> String {
        match self {
            Self::CostMicros => format!("{} of {}", dollars(amount), dollars(of)),
            Self::Calls | Self::OutputBytes | Self::Tokens => format!("{amount} of {of} {}", self.words()),
        }
    }

    /// So much, for people: `10 calls`, `$1.00`.
    pub fn amount_in_words(self, amount: u64) -> String {
        match self {
            Self::CostMicros => dollars(amount),
            Self::Calls | Self::OutputBytes | Self::Tokens => format!("{amount} {}", self.words()),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::OutputBytes => "bytes of output",
            Self::Tokens => "tokens",
            Self::CostMicros => "dollars",
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
    /// Tokens of models: of prompts and of answers.
    pub tokens: u64,
    /// Millionths of a US dollar that models cost.
    pub cost_micros: u64,
}

impl Amounts {
    /// The amount of one unit.
    pub fn of(self, unit: BudgetUnit) -> u64 {
        match unit {
            BudgetUnit::Calls => self.calls,
            BudgetUnit::OutputBytes => self.output_bytes,
            BudgetUnit::Tokens => self.tokens,
            BudgetUnit::CostMicros => self.cost_micros,
        }
    }

    /// The amounts of all units.
    pub fn from_fn(amount: impl Fn(BudgetUnit) -> u64) -> Self {
        let [calls, output_bytes, tokens, cost_micros] = BudgetUnit::ALL.map(amount);
        Self { calls, output_bytes, tokens, cost_micros }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self::from_fn(|unit| self.of(unit).saturating_add(other.of(unit)))
    }

    /// Subtracts the other amounts, unit by unit; zero for a unit of which the other has more.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self::from_fn(|unit| self.of(unit).saturating_sub(other.of(unit)))
    }
}
