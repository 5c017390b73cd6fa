//! A model, as its operator has configured it.

use std::{fmt, time::Duration};

use crate::{BaseUrl, Usage};

/// The API that a model's server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Chat Completions: what every local server speaks.
    Chat,
    /// Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
}

impl Api {
    /// The values in the settings.
    pub const WORDS: [(&'static str, Self); 3] =
        [("chat", Self::Chat), ("responses", Self::Responses), ("messages", Self::Messages)];

    /// The value in the settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }
}

/// The way in which a model calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCalls {
    /// By the tool calls of its API.
    Native,
    /// By answers that have to follow a JSON schema, one call each. Servers that enforce schemas make small models usable this way.
    Constrained,
}

impl ToolCalls {
    /// The values in the settings.
    pub const WORDS: [(&'static str, Self); 2] = [("native", Self::Native), ("constrained", Self::Constrained)];

    /// The value in the settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Constrained => "constrained",
        }
    }
}

/// The price of a model, in millionths of a US dollar for a million tokens: 150,000 is $0.15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// For tokens of the prompt.
    pub input: u64,
    /// For tokens of the prompt that the server had in its cache.
    pub cached_input: u64,
    /// For tokens of the answer, its reasoning included.
    pub output: u64,
}

impl Price {
    /// What an answer cost, in millionths of a US dollar, rounded up.
    pub fn cost(self, usage: &Usage) -> u64 {
        let cached = usage.cached_input.min(usage.input);
        let parts = [(usage.input - cached, self.input), (cached, self.cached_input), (usage.output, self.output)];
        let of = |(tokens, price): &(u64, u64)| u128::from(*tokens) * u128::from(*price);
        // Servers may count anything.
        let sum = parts.iter().map(of).fold(0, u128::saturating_add);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// The time limits of a model's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// Until the first part of the answer. Connecting and reading a long prompt are in it.
    pub first_byte: Duration,
    /// From one part of the answer to the next. What only keeps the connection open is no part of the answer.
    pub between_bytes: Duration,
    /// For the whole answer.
    pub answer: Duration,
}

impl TimeLimits {
    /// Enough for a long prompt on a machine without a graphics card, and less than anybody would wait for a server that has stopped.
    pub const DEFAULT: Self = Self {
        first_byte: Duration::from_secs(120),
        between_bytes: Duration::from_secs(60),
        answer: Duration::from_secs(1200),
    };
}

/// A model that plans may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name in plans.
    pub name: String,
    /// What its server speaks.
    pub api: Api,
    /// Where its server is.
    pub base_url: BaseUrl,
    /// Its name at the server.
    pub model: String,
    /// How many tokens prompt and answer may have together.
    pub window: u64,
    /// How many tokens an answer may have.
    pub max_output: u64,
    /// How it calls tools.
    pub tool_calls: ToolCalls,
    /// What it costs; `None` where that is not known, as of a model on one's own machine.
    pub price: Option<Price>,
    /// How long its server may take.
    pub limits: TimeLimits,
    /// The name of the credential that its server gets.
    pub credential: Option<String>,
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} at {})", self.name, self.model, self.base_url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_counts_cached_tokens_once_and_is_rounded_up() {
        let price = Price { input: 3_000_000, cached_input: 300_000, output: 15_000_000 };
        let usage = Usage { input: 10_000, cached_input: 8_000, output: 100, reasoning: 40 };
        assert_eq!(price.cost(&usage), 2_000 * 3 + 2_400 + 100 * 15);
        assert_eq!(
            price.cost(&Usage { input: 0, cached_input: 1, output: 0, reasoning: 0 }),
            0,
            "more cached than sent"
        );
        let tiny = Price { input: 1, cached_input: 0, output: 0 };
        assert_eq!(tiny.cost(&Usage { input: 1, ..Usage::default() }), 1);
        let dear = Price { input: u64::MAX, cached_input: 0, output: u64::MAX };
        assert_eq!(dear.cost(&Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() }), u64::MAX);
    }
}
