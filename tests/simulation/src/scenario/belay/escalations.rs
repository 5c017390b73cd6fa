//! Audits the escalations of plans: what has failed runs again as often as the plan says, each time after its delay, and then a person is waited for.

use std::time::Duration;

use belay_proto::v1::{self, execution_event::Kind, step};

use super::picture::Fold;
use super::promises;
use crate::trace;

/// The delay before a retry of which the plan does not say it.
const DELAY: Duration = Duration::from_secs(1);

/// How far the escalation of one execution has come.
#[derive(Debug, Default)]
pub(super) struct Escalations {
    /// How often what has failed ran again, since a person had it run again.
    retries: i32,
    /// When it runs again, in microseconds, while it waits for that.
    until: Option<i64>,
    /// Whether the plan has paused it for a person since.
    has_paused: bool,
    /// Whether it was cancelled, or ran out of time.
    is_stopped: bool,
}

impl Escalations {
    /// The rules that an event that follows those so far breaks; the fold does not have it yet.
    pub(super) fn before(&mut self, event: &v1::ExecutionEvent, fold: &Fold) -> Vec<String> {
        let Some(kind) = &event.kind else { return Vec::new() };
        let time = event.record_time.as_ref().map_or(0, belay_proto::micros);
        let mut broken = Vec::new();
        match kind {
            Kind::ExecutionCancelRequested(_) | Kind::ExecutionDeadlineExceeded(_) => {
                (self.is_stopped, self.until) = (true, None);
            }
            Kind::ExecutionRetried(retried) => match &retried.escalation {
                Some(retry) => broken.extend(self.retry(event, retried, *retry, fold)),
                None => {
                    let until = self.until;
                    *self = Self { until, ..Self::default() };
                }
            },
            Kind::ExecutionPaused(paused) if event.actor.is_none() && paused.resume_time.is_none() => {
                trace::count("plans paused by their escalation");
                let says_so = fold.plan.escalation.as_ref().is_some_and(|escalation| escalation.pause);
                if !says_so || self.has_paused || failed(fold).next().is_none() || !has_nothing_left(fold) {
                    broken.push("it is paused for a person, which its plan does not say".to_owned());
                }
                if self.may_retry(fold) {
                    broken.push(format!("it is paused for a person after {} of its retries", self.retries));
                }
                self.has_paused = true;
            }
            Kind::ExecutionResumed(_) => {
                let until = self.until.take();
                if event.actor.is_none() && until.is_none_or(|until| time < until) {
                    broken.push(format!("it goes on by itself at {time}, and was to at {until:?}"));
                }
            }
            Kind::StepStarted(_) if self.until.is_some() => {
                broken.push("a step starts before the time of the retry has come".to_owned());
            }
            Kind::ExecutionCompensationStarted(_) | Kind::ExecutionFinished(_) => broken.extend(self.end(fold)),
            _ => {}
        }
        broken.into_iter().map(|what| format!("event {}: {what}", event.sequence)).collect()
    }

    /// The plan has what failed run again.
    fn retry(
        &mut self,
        event: &v1::ExecutionEvent,
        retried: &v1::ExecutionRetried,
        retry: v1::EscalationRetry,
        fold: &Fold,
    ) -> Vec<String> {
        let Some(plan) = &fold.plan.escalation else { return vec!["its plan says nothing of a retry".to_owned()] };
        let mut broken = Vec::new();
        if (retry.number, retry.retries) != (self.retries + 1, plan.retries) || !self.may_retry(fold) {
            broken.push(format!("retry {} of {} follows {}", retry.number, retry.retries, self.retries));
        }
        if event.actor.is_some() || self.is_stopped || self.has_paused || !has_nothing_left(fold) {
            broken.push("it runs again by its plan, and that is not due".to_owned());
        }
        let delay = usize::try_from(self.retries).ok().and_then(|place| plan.backoff.get(place).copied());
        let delay = delay.map_or(micros_of(DELAY), |delay| delay.seconds * 1_000_000 + i64::from(delay.nanos) / 1000);
        let time = event.record_time.as_ref().map_or(0, belay_proto::micros);
        let until = retry.resume_time.as_ref().map_or(0, belay_proto::micros);
        if until != time + delay {
            broken.push(format!("its retry is due at {until}, and not {delay} after {time}"));
        }
        for step in failed(fold).filter(|step| !retried.step_ids.contains(&step.step_id)) {
            broken.push(format!("step {} has failed, and does not run again", step.step_id));
        }
        (self.retries, self.until) = (retry.number, Some(until));
        broken
    }

    /// Whether the plan has what failed run again once more.
    fn may_retry(&self, fold: &Fold) -> bool {
        let retries = fold.plan.escalation.as_ref().map_or(0, |escalation| escalation.retries);
        self.retries < retries && failed(fold).all(|step| promises::is_retried(step.failure.as_ref()))
    }

    /// It ends: every level of its escalation was there before.
    fn end(&self, fold: &Fold) -> Option<String> {
        let escalation = fold.plan.escalation.as_ref()?;
        let is_of_failure = failed(fold).next().is_some() && !self.is_stopped && fold.undone_by.is_empty();
        if !is_of_failure || self.has_paused {
            return None;
        }
        if self.may_retry(fold) {
            return Some(format!("it ends after {} of {} retries", self.retries, escalation.retries));
        }
        trace::count("escalations to their end");
        escalation.pause.then(|| "it ends, and no person was waited for".to_owned())
    }
}

fn micros_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The steps of the plan that have failed.
fn failed(fold: &Fold) -> impl Iterator<Item = &v1::Step> {
    let steps = fold.picture.steps.iter().zip(&fold.undoes);
    steps.filter(|(step, undoes)| step.state() == step::State::Failed && undoes.is_none()).map(|(step, _)| step)
}

fn has_nothing_left(fold: &Fold) -> bool {
    use step::State as S;
    let is_over = |step: &v1::Step| matches!(step.state(), S::Completed | S::Failed | S::Skipped | S::Cancelled);
    fold.picture.steps.iter().all(is_over)
}
