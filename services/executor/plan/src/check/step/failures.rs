//! Consequences of a step's failure: further attempts, the delays between them, and strategies by class.

use crate::{Backoff, OnError, RateLimit, RetryPolicy, check::Checker, limits::MAX_ATTEMPTS, path::FieldPath};

impl Checker<'_> {
    pub(in crate::check) fn retry(&mut self, path: &FieldPath, retry: &RetryPolicy) {
        if !(1..=MAX_ATTEMPTS).contains(&retry.max_attempts) {
            self.rule(&path.key("max_attempts"), || format!("must be 1 to {MAX_ATTEMPTS}, not {}", retry.max_attempts));
        }
        if let RateLimit::Delays(delays) = &retry.rate_limit {
            let path = path.key("rate_limit");
            if delays.is_empty() || delays.len() > MAX_ATTEMPTS as usize {
                self.rule(&path, || format!("has {} delays: give 1 to {MAX_ATTEMPTS}, or `never`", delays.len()));
            } else {
                for (entry, delay) in delays.iter().enumerate() {
                    self.duration(&path.index(entry), Some(*delay));
                }
            }
        }
        self.backoff(&path.key("backoff"), &retry.backoff);
    }

    /// Checks the strategies for failures of a step.
    pub(in crate::check) fn on_error(&mut self, path: &FieldPath, on_error: &OnError, calls_tool: bool) {
        for (&class, &strategy) in on_error {
            let path = path.key(class.name());
            let word = strategy.word();
            if !strategy.is_for(class) {
                let classes: Vec<&str> = strategy.classes().collect();
                self.rule(&path, || format!("`{word}` can follow {}, not {}", classes.join(", "), class.name()));
            } else if strategy.is_for_calls() && !calls_tool {
                self.rule(&path, || {
                    format!("`{word}` is for steps that call a tool: remove it, or make it `compensate`")
                });
            }
        }
    }

    /// The delays between attempts.
    pub(in crate::check) fn backoff(&mut self, path: &FieldPath, backoff: &Backoff) {
        match backoff {
            Backoff::List(delays) => {
                if delays.len() > MAX_ATTEMPTS as usize {
                    self.rule(path, || {
                        format!("has {} delays, but there are at most {MAX_ATTEMPTS} attempts", delays.len())
                    });
                    return;
                }
                for (entry, delay) in delays.iter().enumerate() {
                    self.duration(&path.index(entry), Some(*delay));
                }
            }
            Backoff::Exponential { initial, factor, max } => {
                self.duration(&path.key("initial"), Some(*initial));
                self.duration(&path.key("max"), Some(*max));
                if !factor.is_finite() || *factor < 1.0 {
                    self.rule(&path.key("factor"), || format!("must be a number from 1, not {factor}"));
                }
                if max < initial {
                    self.rule(&path.key("max"), || "must not be shorter than `initial`".to_owned());
                }
            }
        }
    }
}
