//! What a server counts, and what is expected before it has counted.

use serde_json::Value;

/// The tokens of a request and its answer, as the server counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Those of the prompt, the cached ones included.
    pub input: u64,
    /// Those of the prompt that the server had in its cache.
    pub cached_input: u64,
    /// Those of the answer, its reasoning included.
    pub output: u64,
    /// Those of the answer in which the model thought, where the server counts them.
    pub reasoning: u64,
}

/// The first whole number at one of these paths.
pub(crate) fn number(value: &Value, paths: &[&str]) -> Option<u64> {
    paths.iter().find_map(|path| {
        let number = value.pointer(path)?;
        // Some servers write a whole number as 12.0.
        number.as_u64().or_else(|| number.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as u64))
    })
}

/// The tokens of a prompt of so many bytes, learnt from what the server has counted.
///
/// Before the first count it is one token for each byte, which no tokenizer exceeds by more than a few: an upper bound, on which budgets rely. Each count then
/// moves the ratio, as an exponential mean with the weight 1/2, so that it is right after two turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimator {
    /// Tokens for each byte.
    ratio: Option<f64>,
}

impl Estimator {
    /// The fewest tokens for each byte: longer words than any tokenizer has.
    const FEWEST: f64 = 1.0 / 16.0;

    /// Knows nothing yet.
    pub const NEW: Self = Self { ratio: None };

    /// How many tokens so many bytes have, rounded up.
    pub fn tokens(self, bytes: usize) -> u64 {
        (bytes as f64 * self.ratio.unwrap_or(1.0)).ceil() as u64
    }

    /// Learns from a count.
    pub fn learn(&mut self, bytes: usize, input: u64) {
        if bytes == 0 || input == 0 {
            return;
        }
        let seen = (input as f64 / bytes as f64).clamp(Self::FEWEST, 1.0);
        self.ratio = Some(self.ratio.map_or(seen, |known| (known + seen) / 2.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_an_upper_bound_first_and_right_after_two_turns() {
        let mut estimator = Estimator::NEW;
        assert_eq!(estimator.tokens(1000), 1000);
        estimator.learn(1000, 250);
        assert_eq!(estimator.tokens(4000), 1000);
        estimator.learn(4000, 2000);
        assert_eq!(estimator.tokens(1000), 375);
        estimator.learn(1000, 375);
        assert_eq!(estimator.tokens(1000), 375);
        for (bytes, input) in [(0, 9), (9, 0)] {
            estimator.learn(bytes, input);
        }
        assert_eq!(estimator.tokens(1000), 375, "nothing was counted");
    }

    #[test]
    fn numbers_are_read_as_servers_write_them() {
        let value = serde_json::json!({"a": 12.0, "b": {"c": 7}, "d": "3", "e": -1});
        assert_eq!(number(&value, &["/x", "/a"]), Some(12));
        assert_eq!(number(&value, &["/b/c"]), Some(7));
        assert_eq!((number(&value, &["/d"]), number(&value, &["/e"])), (None, None));
    }
}
