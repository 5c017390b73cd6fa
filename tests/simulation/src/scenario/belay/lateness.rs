//! Audits when what waits for a time continues: not much later than at its time, in true time, however long its executor was away.

use std::collections::BTreeMap;

use belay_proto::v1::{self, execution_event::Kind, wait_ended::Cause};

use super::hosts::{Owners, Write};
use super::site::EXECUTOR;
use crate::{machine, trace};

/// How much later than at its time something may continue once nothing is wrong any more, in microseconds: less than the time after which an executor
/// looks without a reason.
const MAX_LATE: i64 = 10_000_000;

/// How much longer something may wait once the executor's clock is set forward, in microseconds: for the longest sleep.
const LONGEST_SLEEP: i64 = 30_000_000;

/// The waits of one execution.
pub(super) struct Lateness<'a> {
    name: &'a str,
    owners: &'a Owners,
    /// Until then, what is due may have to wait for what is wrong or for a person: true time in microseconds since the Unix epoch.
    not_before: i64,
    /// Whether an executor drives only what it is asked to: nobody asks at the right time for all that the one before it drove.
    drives_some: bool,
    /// The fence of the executor that stored the event before.
    fence: Option<i64>,
    /// When each step continues, in the same.
    due: BTreeMap<&'a str, i64>,
}

impl<'a> Lateness<'a> {
    pub(super) fn new(name: &'a str, owners: &'a Owners, healed_at: Option<i64>, drives_some: bool) -> Self {
        let healed_at = healed_at.unwrap_or(i64::MAX);
        let not_before =
            if machine::was_behind(EXECUTOR) { healed_at.saturating_add(LONGEST_SLEEP) } else { healed_at };
        Self { name, owners, not_before, drives_some, fence: None, due: BTreeMap::new() }
    }

    /// A description of the lateness of an event that follows those so far; `None` when it is on time.
    pub(super) fn of(&mut self, event: &'a v1::ExecutionEvent) -> Option<String> {
        let Write { at: stored, fence } = self.owners.stored(self.name, event.sequence)?;
        // This is the first sign that another executor drives it.
        if self.fence.replace(fence) != Some(fence) && self.drives_some {
            self.not_before = self.not_before.max(stored);
        }
        let time = event.record_time.as_ref().map_or(0, belay_proto::micros);
        let due = |until: &pbjson_types::Timestamp| stored + belay_proto::micros(until) - time;
        let step = event.step_id.as_str();
        match event.kind.as_ref()? {
            Kind::ExecutionResumed(_) | Kind::ExecutionRetried(_) | Kind::ExecutionPlanUpdated(_) => {
                self.not_before = self.not_before.max(stored);
            }
            Kind::WaitStarted(started) if started.signal.is_empty() && started.form.is_none() => {
                self.due.extend(started.until_time.as_ref().map(|until| (step, due(until))));
            }
            Kind::StepRetryScheduled(retry) => {
                self.due.extend(retry.retry_time.as_ref().map(|until| (step, due(until))));
            }
            Kind::WaitEnded(ended) if ended.cause() == Cause::Elapsed => return self.went_on(step, stored),
            Kind::StepStarted(_) => return self.went_on(step, stored),
            _ if !step.is_empty() => drop(self.due.remove(step)),
            _ => {}
        }
        None
    }

    fn went_on(&mut self, step: &str, now: i64) -> Option<String> {
        let due = self.due.remove(step)?;
        trace::count("waits for a time");
        let late = now - due.max(self.not_before);
        (late > MAX_LATE).then(|| format!("step {step} went on {} s late", late / 1_000_000))
    }
}
