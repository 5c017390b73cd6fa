//! The operator's log about an execution. The driver's span names the execution and its trace.
//!
//! Each line has `event`, `session_id` (the execution) and `task_id` (the plan); what is about a step has `step_id`, and what is about a call
//! `tool`, `parameters`, `result_status` and `duration_ms`; a call that a model is, or has asked for, `turn`, and one of a model `tokens_used`.

use std::time::Duration;

use belay_execution::{Failure, Finished, ModelUsage, Payload, SkipReason, StepId, ToolCallRequest, Waiting};
use belay_reading::progress::{EndedCall, Fact};

use super::Driver;
use crate::wire;

/// How much of a call's parameters is logged, in characters.
const MAX_PARAMETERS: usize = 1_024;

/// Waits for a time that are shorter than this are not logged: people wait for nothing.
const LONG_WAIT: Duration = Duration::from_secs(60);

impl Driver {
    /// Logs that an execution was accepted.
    pub(super) fn log_accepted(&self) {
        let created = self.execution.created();
        let steps = created.plan.steps().len();
        tracing::info!(
            event = "execution_accepted",
            session_id = self.execution_name,
            task_id = created.plan.id(),
            steps,
            principal = self.execution.principal(),
            "An execution was accepted"
        );
    }

    /// Logs each attempt and each step that failed, each long wait, and the end; each call, for those who look closely. The events are stored already.
    pub(super) fn log(&self, facts: &[Fact<'_>]) {
        for fact in facts {
            match fact {
                Fact::CallEnded { call, ended } => {
                    if tracing::enabled!(tracing::Level::DEBUG) {
                        self.log_call(&call.step, call.attempt, ended);
                    }
                }
                Fact::Retry { step, attempt, failure, delay, call } => {
                    self.log_retry(step, *attempt, failure, *delay, call.as_ref());
                }
                Fact::Fallback { step, attempt, failure, tools, call } => {
                    self.log_fallback(step, *attempt, failure, *tools, call.as_ref());
                }
                Fact::StepEnded { step, attempt, status, failure: Some(failure), duration, call } => {
                    self.log_failed(step, *attempt, status, failure, *duration, call.as_ref());
                }
                Fact::WaitBegan { step, tool, waiting } => self.log_wait(step, tool.as_deref(), *waiting),
                Fact::Skipped { step, reason } => self.log_skipped(step, *reason),
                Fact::StopRequested { kill } => self.log_stop(*kill),
                Fact::RetryDropped { step, attempt } => self.log_dropped(step, *attempt),
                Fact::Finished(finished) => self.log_finished(finished),
                Fact::StepEnded { failure: None, .. } | Fact::Decided { .. } => {}
            }
        }
    }

    fn log_call(&self, step: &StepId, attempt: u32, ended: &EndedCall) {
        tracing::debug!(
            event = "call_ended",
            session_id = self.execution_name,
            task_id = self.execution.plan().id(),
            step_id = step.as_str(),
            attempt,
            tool = ended.request.tool,
            parameters = self.parameters(&ended.request),
            result_status = ended.status,
            duration_ms = millis(ended.duration),
            turn = ended.turn,
            tokens_used = ended.usage.map(ModelUsage::tokens),
            "A call has ended"
        );
    }

    fn log_failed(
        &self,
        step: &StepId,
        attempt: u32,
        result_status: &str,
        failure: &Failure,
        duration: Duration,
        call: Option<&EndedCall>,
    ) {
        tracing::info!(
            event = "step_failed",
            session_id = self.execution_name,
            task_id = self.execution.plan().id(),
            step_id = step.as_str(),
            attempt,
            tool = call.map(|call| call.request.tool.as_str()),
            parameters = call.map(|call| self.parameters(&call.request)),
            result_status,
            duration_ms = millis(duration),
            turn = call.and_then(|call| call.turn),
            tokens_used = call.and_then(|call| call.usage).map(ModelUsage::tokens),
            reason = self.reason(failure),
            class = wire::class_name(failure.class),
            "A step has failed"
        );
    }

    fn log_retry(&self, step: &StepId, attempt: u32, failure: &Failure, delay: Duration, call: Option<&EndedCall>) {
        tracing::warn!(
            event = "attempt_failed",
            session_id = self.execution_name,
            task_id = self.execution.plan().id(),
            step_id = step.as_str(),
            attempt,
            tool = call.map(|call| call.request.tool.as_str()),
            parameters = call.map(|call| self.parameters(&call.request)),
            result_status = call.map_or("FAILED", |call| call.status),
            duration_ms = call.map(|call| millis(call.duration)),
            turn = call.and_then(|call| call.turn),
            tokens_used = call.and_then(|call| call.usage).map(ModelUsage::tokens),
            reason = self.reason(failure),
            class = wire::class_name(failure.class),
            delay_ms = millis(delay),
            "An attempt has failed, and another one is planned"
        );
    }

    fn log_wait(&self, step: &StepId, tool: Option<&str>, waiting: Waiting) {
        if let Waiting::Time { since, until } = waiting
            && until.since(since) < LONG_WAIT
        {
            return;
        }
        let reason = wire::waiting_reason(&self.name, &self.execution, waiting);
        tracing::info!(
            event = "wait_began",
            session_id = self.execution_name,
            task_id = self.execution.plan().id(),
            step_id = step.as_str(),
            tool,
            waits_for = reason.kind().as_str_name().trim_start_matches("KIND_"),
            until = reason.until_time.as_ref().map(wire::time_text),
            "A step waits"
        );
    }

    /// Logs the request in the words of supervisors, which programs look for.
    fn log_stop(&self, kill: bool) {
        let (session_id, task_id) = (&self.execution_name, self.execution.plan().id());
        match kill {
            false => tracing::info!(event = "stop_requested", session_id, task_id, "user_cancel requested"),
            true => tracing::info!(event = "stop_requested", session_id, task_id, "user_kill requested"),
        }
    }

    fn log_skipped(&self, step: &StepId, reason: SkipReason) {
        tracing::info!(
            event = "step_skipped",
            session_id = self.execution_name,
            task_id = self.execution.plan().id(),
            step_id = step.as_str(),
            reason = wire::skip_reason(reason).as_str_name().trim_start_matches("SKIP_REASON_"),
            "A step is skipped"
        );
    }

    fn log_dropped(&self, step: &StepId, attempt: u32) {
        tracing::info!(
            event = "retry_dropped",
            session_id = self.execution_name,
            task_id = self.execution.plan().id(),
            step_id = step.as_str(),
            attempt,
            "retry skipped due to user stop"
        );
    }

    fn log_fallback(
        &self,
        step: &StepId,
        attempt: u32,
        failure: &Failure,
        [from, to]: [&str; 2],
        call: Option<&EndedCall>,
    ) {
        tracing::warn!(
            event = "fallback_switched",
            session_id = self.execution_name,
            task_id = self.execution.plan().id(),
            step_id = step.as_str(),
            attempt,
            tool = from,
            to,
            parameters = call.map(|call| self.parameters(&call.request)),
            result_status = call.map_or("FAILED", |call| call.status),
            duration_ms = call.map(|call| millis(call.duration)),
            reason = self.reason(failure),
            class = wire::class_name(failure.class),
            "All attempts of a call have failed, and another takes its place"
        );
    }

    fn log_finished(&self, finished: &Finished) {
        let failure = finished.failure.as_ref();
        let state = wire::state_name(&self.execution);
        tracing::info!(
            event = "execution_ended",
            session_id = self.execution_name,
            task_id = self.execution.plan().id(),
            state,
            result_status = state,
            duration_ms = millis(finished.duration),
            reason = failure.map(|failure| self.reason(failure)),
            class = failure.map(|failure| wire::class_name(failure.class)),
            completed = finished.totals.completed,
            failed = finished.totals.failed,
            skipped = finished.totals.skipped,
            cancelled = finished.totals.cancelled,
            "The execution has ended"
        );
    }

    /// A failure's reason; a tool's may quote its arguments.
    fn reason(&self, failure: &Failure) -> String {
        self.registry.reading.sealer.shown(failure.reason.clone())
    }

    /// A call's parameters without secrets, and cut where they are long.
    fn parameters(&self, request: &ToolCallRequest) -> String {
        match &request.arguments {
            Payload::Inline(json) => cut(self.secrets.shown_json(json.as_str().to_owned())),
            Payload::Blob(blob) => format!("{} bytes", blob.size),
        }
    }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_PARAMETERS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parameters_are_cut_between_characters() {
        assert_eq!(cut("ä".repeat(MAX_PARAMETERS)), "ä".repeat(MAX_PARAMETERS));
        assert_eq!(cut("ä".repeat(MAX_PARAMETERS + 1)), format!("{}…", "ä".repeat(MAX_PARAMETERS)));
    }
}
