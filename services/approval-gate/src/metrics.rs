//! Metrics of the gate.

use belay_proto::v1::Approval;
use belay_service_kit::metrics::{Metric, MetricsSource, Reading, Unit};

use crate::Gate;

impl MetricsSource for Gate {
    fn metrics(&self) -> Reading<'_> {
        Box::pin(async move {
            match (self.store.count_open().await, self.store.oldest_pending().await) {
                (Ok(pending), Ok(oldest)) => vec![
                    Metric::gauge(
                        "belay.gate.pending_approvals",
                        "Approvals and forms that wait for a person",
                        Unit::None,
                        pending as f64,
                    ),
                    Metric::gauge(
                        "belay.gate.oldest_pending_approval",
                        "How long the oldest of them has waited; 0 when there is none",
                        Unit::Seconds,
                        oldest.map_or(0.0, |oldest| age_seconds(&oldest, self.clock.now_micros())),
                    ),
                ],
                (Err(error), _) | (_, Err(error)) => {
                    tracing::warn!(%error, "Pending approvals cannot be counted");
                    Vec::new()
                }
            }
        })
    }
}

/// How long ago an approval was created; 0 when the clock was set back since.
fn age_seconds(approval: &Approval, now: i64) -> f64 {
    let created = approval.create_time.as_ref().map_or(now, belay_proto::micros);
    (now - created).max(0) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_is_as_old_as_the_clock_says_and_never_younger_than_now() {
        let approval = Approval { create_time: Some(belay_proto::timestamp(1_000_000)), ..Approval::default() };
        assert_eq!([3_500_000, 1_000_000, 0].map(|now| age_seconds(&approval, now)), [2.5, 0.0, 0.0]);
        assert_eq!(age_seconds(&Approval::default(), 5), 0.0);
    }
}
