//! Counters and histograms of executions in this process. Names are those of `docs/operations.md`.

use belay_execution::{Decision, ExecutionState, ModelUsage};
use belay_reading::progress::Fact;
use belay_service_kit::metrics::{Counter, Histogram, Metric, Unit};

use crate::wire;

/// The ends of an execution, as the values of an attribute.
const ENDS: [ExecutionState; 5] = [
    ExecutionState::Completed,
    ExecutionState::Partial,
    ExecutionState::Failed,
    ExecutionState::Cancelled,
    ExecutionState::TimedOut,
];

/// Counters and histograms of executions in this process.
#[derive(Debug)]
pub(crate) struct Measures {
    executions: Counter,
    steps: Counter,
    failed_steps: Counter,
    retries: Counter,
    execution_duration: Histogram,
    step_duration: Histogram,
    approval_wait: Histogram,
    model_tokens: Counter,
    model_cost: Counter,
    webhook_attempts: Counter,
    schedule_times: Counter,
}

impl Measures {
    pub(crate) fn new() -> Self {
        Self {
            executions: Counter::by("status", &ENDS.map(wire::state_word)),
            steps: Counter::new(),
            failed_steps: Counter::new(),
            retries: Counter::new(),
            execution_duration: Histogram::by("status"),
            step_duration: Histogram::by("status"),
            approval_wait: Histogram::by("decision"),
            model_tokens: Counter::by("type", &["input", "cached", "output", "reasoning"]),
            model_cost: Counter::new(),
            webhook_attempts: Counter::by("outcome", &["delivered", "failed", "given_up"]),
            schedule_times: Counter::by("outcome", &["started", "skipped", "failed"]),
        }
    }

    /// Counts what happened.
    pub(crate) fn record(&self, facts: &[Fact<'_>]) {
        for fact in facts {
            match fact {
                // Another call is another attempt.
                Fact::Retry { .. } | Fact::Fallback { .. } => self.retries.increment(),
                Fact::StepEnded { status, failure, duration, .. } => {
                    self.steps.increment();
                    if failure.is_some() {
                        self.failed_steps.increment();
                    }
                    self.step_duration.record(status, *duration);
                }
                Fact::Decided { decision, waited } => {
                    let decision = match decision {
                        Decision::Approved => "APPROVED",
                        Decision::Denied => "DENIED",
                        Decision::Skipped => "SKIPPED",
                        Decision::Expired => "EXPIRED",
                    };
                    self.approval_wait.record(decision, *waited);
                }
                Fact::Finished(finished) => {
                    let status = wire::state_word(finished.state);
                    self.executions.add(status);
                    self.execution_duration.record(status, finished.duration);
                }
                Fact::CallEnded { ended, .. } => {
                    if let Some(usage) = ended.usage {
                        self.record_usage(usage);
                    }
                }
                Fact::WaitBegan { .. }
                | Fact::Skipped { .. }
                | Fact::StopRequested { .. }
                | Fact::RetryDropped { .. } => {}
            }
        }
    }

    /// Counts what a model's server has counted: each token under one type, so that their sum is all of them.
    fn record_usage(&self, usage: ModelUsage) {
        let ModelUsage { input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, cost_micros } = usage;
        self.model_tokens.add_many("input", input_tokens.saturating_sub(cached_input_tokens));
        self.model_tokens.add_many("cached", cached_input_tokens.min(input_tokens));
        self.model_tokens.add_many("output", output_tokens.saturating_sub(reasoning_tokens));
        self.model_tokens.add_many("reasoning", reasoning_tokens.min(output_tokens));
        self.model_cost.add_many("", cost_micros.unwrap_or_default());
    }

    /// Counts an attempt to send a message to a webhook.
    pub(crate) fn webhook(&self, outcome: &'static str) {
        self.webhook_attempts.add(outcome);
    }

    /// Counts a time of a schedule.
    pub(crate) fn schedule(&self, outcome: &'static str) {
        self.schedule_times.add(outcome);
    }

    /// The metrics.
    pub(crate) fn read(&self) -> Vec<Metric> {
        let mut metrics = vec![
            Metric::counter("executor.executions.count", "Executions that have ended, by how", &self.executions),
            Metric::counter("executor.steps.executed", "Steps that have started and ended", &self.steps),
            Metric::counter("executor.steps.failed", "Steps that have failed for good", &self.failed_steps),
            Metric::counter(
                "executor.retries.count",
                "Attempts that failed and were followed by another",
                &self.retries,
            ),
            Metric::counter(
                "belay.executor.model.tokens",
                "Tokens of models as their servers have counted them: of prompts, those of them that were cached, of answers, those of them that were reasoning",
                &self.model_tokens,
            ),
            Metric::counter(
                "belay.executor.model.cost_micros",
                "What models have cost by the settings, in millionths of a US dollar",
                &self.model_cost,
            ),
            Metric::counter(
                "belay.executor.webhook.attempts",
                "Attempts to send a message to a webhook: accepted, to be repeated, or the last one",
                &self.webhook_attempts,
            ),
            Metric::counter(
                "belay.executor.schedule.times",
                "Times of schedules: an execution was started, none was, or it never can be",
                &self.schedule_times,
            ),
        ];
        let ends = self.execution_duration.read();
        let count: u64 = ends.iter().map(|(_, durations)| durations.count()).sum();
        // Of nothing there is no average.
        if count > 0 {
            let completed = vec![("status", wire::state_word(ExecutionState::Completed))];
            let completed = ends.iter().find(|(of, _)| *of == completed).map_or(0, |(_, durations)| durations.count());
            let seconds: f64 = ends.iter().map(|(_, durations)| durations.sum).sum();
            metrics.push(Metric::gauge(
                "executor.executions.success_rate",
                "The share of the executions that ended in this process that completed",
                Unit::Ratio,
                completed as f64 / count as f64,
            ));
            metrics.push(Metric::gauge(
                "executor.duration.average_ms",
                "The average time from the acceptance to the end of the executions that ended in this process",
                Unit::None,
                seconds * 1e3 / count as f64,
            ));
        }
        metrics.extend([
            Metric::durations(
                "executor.execution.duration",
                "From the acceptance of an execution to its end, waiting for people included",
                &self.execution_duration,
            ),
            Metric::durations(
                "executor.step.duration",
                "From the start of a step's first attempt to its end, waiting for people included",
                &self.step_duration,
            ),
            Metric::durations(
                "executor.approval.wait.duration",
                "From when a call was held to the decision on its approval",
                &self.approval_wait,
            ),
        ]);
        metrics
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_execution::{Finished, Totals};
    use belay_reading::progress::Fact;
    use belay_service_kit::metrics::Values;

    use super::*;

    /// Each token of a model is counted once, whatever its server says it was.
    #[test]
    fn the_tokens_of_models_are_counted_by_what_they_were() {
        let measures = Measures::new();
        let usage = ModelUsage {
            input_tokens: 100,
            cached_input_tokens: 60,
            output_tokens: 20,
            reasoning_tokens: 5,
            cost_micros: Some(7),
        };
        measures.record_usage(usage);
        // A server that counts more reasoning than answer is believed in the answer.
        measures.record_usage(ModelUsage { output_tokens: 1, reasoning_tokens: 9, ..ModelUsage::default() });
        let counts = |counter: &Counter| counter.read().into_iter().map(|(_, count)| count).collect::<Vec<u64>>();
        assert_eq!(counts(&measures.model_tokens), [60, 40, 15, 6], "cached, input, output, reasoning");
        assert_eq!(counts(&measures.model_cost), [7]);
    }

    /// S4-32: the average and the share of successes are of what has ended; before the first end there is neither.
    #[test]
    fn averages_are_of_the_executions_that_ended() {
        let measures = Measures::new();
        let value = |name: &str| {
            let metrics = measures.read();
            let found = metrics.into_iter().find(|metric| metric.name == name)?;
            let Values::Gauge(points) = found.values else { panic!("{name} is a gauge") };
            Some(points[0].1)
        };
        assert_eq!(value("executor.executions.success_rate"), None);
        for (state, seconds) in
            [(ExecutionState::Completed, 1), (ExecutionState::Failed, 2), (ExecutionState::Completed, 6)]
        {
            let duration = Duration::from_secs(seconds);
            let finished = Finished { state, totals: Totals::default(), failure: None, duration, outputs: None };
            measures.record(&[Fact::Finished(&finished)]);
        }
        assert_eq!(value("executor.executions.success_rate"), Some(2.0 / 3.0));
        assert_eq!(value("executor.duration.average_ms"), Some(3_000.0));
        let Some(Metric { values: Values::Counter(counts), .. }) = measures.read().into_iter().next() else {
            panic!("the first metric counts executions")
        };
        let counted: Vec<_> = counts.iter().map(|(of, count)| (of[0].1, *count)).collect();
        let expected = [("CANCELLED", 0), ("COMPLETED", 2), ("FAILED", 1), ("PARTIAL", 0), ("TIMED_OUT", 0)];
        assert_eq!(counted, expected);
    }
}
