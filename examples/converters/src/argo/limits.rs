//! Limits of a template: time, attempts, and what executions share.

use serde_json::json;

use super::{converter::Converter, leaf::seconds, templates::ONE_MACHINE};
use crate::{
    fields::{Field, Fields},
    left_out::Report,
    plan::Step,
};

/// Limits over executions and their steps: the one place for them, when plans have such limits.
pub(super) fn synchronization(fields: &mut Fields<'_>, report: &mut Report) {
    if let Some(field) = fields.take("synchronization") {
        report.add(
            &field,
            "synchronization",
            "a plan does not limit what other executions do at the same time",
            "within one execution, write `resources`",
        );
    }
}

impl<'n> Converter<'_, 'n> {
    /// Gives a step the time limit and the retries of its template.
    pub(super) fn limits(&mut self, step: &mut Step, fields: &mut Fields<'n>) {
        synchronization(fields, self.report);
        if let Some(deadline) = fields.take("activeDeadlineSeconds") {
            step.timeout = deadline.text().and_then(|text| seconds(&text));
            if step.timeout.is_none() {
                self.report.add(
                    &deadline,
                    "activeDeadlineSeconds",
                    "a time limit is a number in a plan",
                    "write `timeout: 10m`",
                );
            }
        }
        let Some(Ok(mut retry)) = fields.take("retryStrategy").map(|retry| retry.fields()) else { return };
        let limit = retry.take("limit");
        let attempts = limit
            .as_ref()
            .and_then(Field::number)
            .map_or(if limit.is_none() { 100.0 } else { 0.0 }, |limit| limit + 1.0);
        if (1.0..=100.0).contains(&attempts) {
            #[expect(clippy::cast_possible_truncation, reason = "at most 100")]
            let mut policy = json!({"max_attempts": attempts as i64});
            if let Some(Ok(mut backoff)) = retry.take("backoff").map(|backoff| backoff.fields()) {
                let mut time = |key: &str| backoff.take(key).and_then(|field| seconds(&field.text()?));
                let (initial, max) = (time("duration"), time("maxDuration").or_else(|| time("cap")));
                let factor = backoff
                    .take("factor")
                    .and_then(|factor| factor.number())
                    .filter(|factor| *factor >= 1.0)
                    .unwrap_or(1.0);
                if let Some(initial) = initial {
                    policy["backoff"] =
                        json!({"initial": initial, "factor": factor, "max": max.unwrap_or_else(|| "1h".to_owned())});
                }
                backoff.leave_rest(self.report, &[]);
            }
            step.retry = Some(policy);
        } else if let Some(limit) = limit {
            self.report.add(
                &limit,
                "retryStrategy.limit",
                "attempts are 1 to 100 in a plan",
                "write `retry: {max_attempts: …}`",
            );
        }
        retry.leave_rest(
            self.report,
            &[
                (
                    "retryPolicy",
                    "every failure that may pass is tried again",
                    "`on_error` says what follows by the class of the failure",
                ),
                (
                    "expression",
                    "retries follow the class of the failure",
                    "`retry: {by_output: true}` classifies what a program printed",
                ),
                ("affinity", ONE_MACHINE, ""),
            ],
        );
    }
}
