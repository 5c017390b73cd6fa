//! Reads how a failed call is retried: attempts, and the delays between them.

use super::{
    super::{fields::Value, tree::Kind},
    Reader,
    values::milliseconds,
};
use crate::{
    Backoff, RetryPolicy,
    limits::MAX_ATTEMPTS,
    path::shown,
    retry::{DEFAULT_FACTOR, DEFAULT_INITIAL, DEFAULT_MAX, Never, Profile, QueueForLater, RateLimit},
};

impl<'n> Reader<'n> {
    pub(super) fn retry(&mut self, retry: &Value<'n>) -> Option<RetryPolicy> {
        let mut fields = retry.fields(&mut self.report, "an object such as {max_attempts: 3, backoff: [1s, 2s]}")?;
        let named = fields.take_exactly("profile");
        let has_profile = named.is_some();
        let profile = named.and_then(|value| self.profile(&value)).map(Profile::policy);
        let limited = fields.take_exactly("rate_limit").and_then(|value| self.rate_limit(&value));
        let by_output = fields.take_exactly("by_output").map(|value| value.flag(&mut self.report));
        let ours = fields.take_exactly("backoff");
        let theirs = fields.take_exactly("backoffMs");
        let attempts = fields.take(&mut self.report, "max_attempts");
        if let (Some(_), Some(theirs)) = (&ours, &theirs) {
            theirs.refuse(&mut self.report, || "duplicates `backoff`: give only one of them".to_owned());
        }
        let their_form = attempts.as_ref().is_some_and(|value| value.path == retry.path.key("maxAttempts"));
        let backoff = match (&ours, &theirs) {
            (Some(backoff), _) => self.backoff(backoff),
            (None, Some(delays)) => {
                let delays = delays.scalars(&mut self.report, "milliseconds");
                Some(Backoff::List(delays.iter().filter_map(|delay| milliseconds(delay, &mut self.report)).collect()))
            }
            (None, None) if their_form => Some(Backoff::List(Vec::new())),
            (None, None) => Some(profile.as_ref().map_or(Backoff::DEFAULT, |profile| profile.backoff.clone())),
        };
        if attempts.is_none() && theirs.is_none() && !has_profile {
            let path = retry.path.key("max_attempts");
            self.report.refuse(&path, retry.node.offset, || {
                "is required: the number of attempts, including the first, unless a `profile` gives it".to_owned()
            });
        }
        let profile = profile.unwrap_or_default();
        let max_attempts =
            attempts.map_or(Some(profile.max_attempts), |value| value.whole(&mut self.report, 1..=MAX_ATTEMPTS));
        fields.finish(&mut self.report);
        Some(RetryPolicy {
            max_attempts: max_attempts?,
            backoff: backoff?,
            rate_limit: limited.unwrap_or(profile.rate_limit),
            by_output: by_output.unwrap_or(profile.by_output),
        })
    }

    fn profile(&mut self, value: &Value<'n>) -> Option<Profile> {
        let word = value.text(&mut self.report);
        let known = Profile::WORDS.iter().find(|(known, _)| *known == word);
        if known.is_none() {
            let words: Vec<&str> = Profile::WORDS.iter().map(|(word, _)| *word).collect();
            value.refuse(&mut self.report, || format!("must be one of {}, not `{}`", words.join(", "), shown(&word)));
        }
        known.map(|(_, profile)| *profile)
    }

    /// Reads the reaction to a rate limit: `never`, `queue_for_later`, or a list of delays.
    fn rate_limit(&mut self, value: &Value<'n>) -> Option<RateLimit> {
        match &value.node.kind {
            Kind::Text(word) if word == "never" => Some(RateLimit::Never(Never::Never)),
            Kind::Text(word) if word == "queue_for_later" => {
                Some(RateLimit::QueueForLater(QueueForLater::QueueForLater))
            }
            Kind::List(_) => {
                let delays = value.list(&mut self.report, "durations");
                Some(RateLimit::Delays(delays.iter().filter_map(|delay| self.duration(delay)).collect()))
            }
            _ => {
                value.refuse(&mut self.report, || {
                    "must be `never`, `queue_for_later`, or a list of delays such as [60s, 120s]".to_owned()
                });
                None
            }
        }
    }

    pub(super) fn backoff(&mut self, backoff: &Value<'n>) -> Option<Backoff> {
        if let Kind::List(_) = backoff.node.kind {
            let delays = backoff.list(&mut self.report, "durations");
            return Some(Backoff::List(delays.iter().filter_map(|delay| self.duration(delay)).collect()));
        }
        let mut fields =
            backoff.fields(&mut self.report, "a list such as [1s, 2s], or {initial: 1s, factor: 2, max: 30s}")?;
        let initial = fields.take_exactly("initial").map_or(Some(DEFAULT_INITIAL), |value| self.duration(&value));
        let factor = fields.take_exactly("factor").map_or(Some(DEFAULT_FACTOR), |value| self.number(&value));
        let max = match fields.take_exactly("max") {
            Some(value) => self.duration(&value),
            None => initial.map(|initial| initial.max(DEFAULT_MAX)),
        };
        fields.finish(&mut self.report);
        Some(Backoff::Exponential { initial: initial?, factor: factor?, max: max? })
    }
}
