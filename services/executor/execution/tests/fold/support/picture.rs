//! Events as a reader would tell them: a line for each moment.

use std::time::Duration;

use belay_execution::{CallId, EventKind, ExecutionState, SkipReason, SubjectKind};

use super::{Play, START};

impl Play {
    /// Everything that happened after the acceptance.
    pub(crate) fn full_picture(&self) -> Vec<String> {
        self.draw(|_| true)
    }

    /// What happened to the execution and its steps, without the calls where they say nothing more.
    pub(crate) fn picture(&self) -> Vec<String> {
        self.draw(|kind| match kind {
            EventKind::CallRequested(request) => request.call.number > 1,
            EventKind::CallCompleted { .. }
            | EventKind::CallFailed { .. }
            | EventKind::CallDenied { .. }
            | EventKind::ApprovalRequested { .. }
            | EventKind::CallOutcomeUnknown { .. } => false,
            _ => true,
        })
    }

    fn draw(&self, shown: impl Fn(&EventKind) -> bool) -> Vec<String> {
        let mut lines: Vec<(Duration, Vec<String>)> = Vec::new();
        for event in self.events[1..].iter().filter(|event| shown(&event.kind)) {
            let at = event.time.since(START);
            if lines.last().is_none_or(|(moment, _)| *moment != at) {
                lines.push((at, Vec::new()));
            }
            let (_, line) = lines.last_mut().expect("just pushed");
            line.push(self.words(&event.kind));
        }
        lines.into_iter().map(|(at, line)| format!("{}s {}", at.as_secs_f64(), line.join(", "))).collect()
    }

    fn words(&self, kind: &EventKind) -> String {
        let name = |step: usize| self.execution.plan().steps()[step].id();
        let call_name = |call: CallId| format!("{} call {}.{}", name(call.step), call.attempt, call.number);
        match kind {
            EventKind::Created(_) => "created".to_owned(),
            EventKind::Started => "started".to_owned(),
            EventKind::Paused { discard_calls: false, .. } => "paused".to_owned(),
            EventKind::Paused { discard_calls: true, .. } => "paused, discarding".to_owned(),
            EventKind::Resumed { .. } => "resumed".to_owned(),
            EventKind::CancelRequested { .. } => "cancel requested".to_owned(),
            EventKind::DeadlineExceeded => "out of time".to_owned(),
            EventKind::Recovered { in_doubt } => format!("recovered with {} in doubt", in_doubt.len()),
            EventKind::Finished(finished) => match finished.state {
                ExecutionState::TimedOut => "TIMED_OUT".to_owned(),
                state => format!("{state:?}").to_uppercase(),
            },
            EventKind::StepStarted { step, attempt: 1 } => format!("{} started", name(*step)),
            EventKind::StepStarted { step, attempt } => format!("{} started attempt {attempt}", name(*step)),
            EventKind::RetryScheduled { step, failure, delay, .. } => {
                format!("{} waits {}s after {}", name(*step), delay.as_secs_f64(), failure.reason)
            }
            EventKind::StepCompleted { step, .. } => format!("{} completed", name(*step)),
            EventKind::StepFailed { step, failure, .. } => format!("{} failed {}", name(*step), failure.reason),
            EventKind::StepSkipped { step, reason, because, .. } => {
                let because = because.map_or(String::new(), |because| format!(" by {}", name(because)));
                format!("{} skipped {}{because}", name(*step), skip_words(*reason))
            }
            EventKind::StepCancelled { step, .. } => format!("{} cancelled", name(*step)),
            EventKind::StepOutcomeUnknown { step, .. } => format!("{} unknown", name(*step)),
            EventKind::CallRequested(request) => call_name(request.call),
            EventKind::CallCompleted { call, .. } => format!("{} ok", call_name(*call)),
            EventKind::CallFailed { call, failure, .. } => format!("{} {}", call_name(*call), failure.reason),
            EventKind::CallCancelled { call, failure: None, .. } => format!("{} stopped", call_name(*call)),
            EventKind::CallCancelled { call, failure: Some(failure), .. } => {
                format!("{} stopped {}", call_name(*call), failure.reason)
            }
            EventKind::CallDenied { call, failure, .. } => format!("{} denied {}", call_name(*call), failure.reason),
            EventKind::AwaitingApproval => "awaiting approval".to_owned(),
            EventKind::CallHeld { call, requirement } => match requirement.kind {
                SubjectKind::Call => format!("{} held", name(call.step)),
                SubjectKind::Effect => format!("{} held with its effect", name(call.step)),
            },
            EventKind::ApprovalRequested { call, .. } => format!("asked about {}", call_name(*call)),
            EventKind::ApprovalDecided { call, decision, approval, .. } => {
                let by = if approval.is_empty() { " by its mode" } else { "" };
                format!("{} {}{by}", name(call.step), format!("{decision:?}").to_uppercase())
            }
            EventKind::CallOutcomeUnknown { call, .. } => format!("{} unknown", call_name(*call)),
        }
    }
}

fn skip_words(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::DependencyFailed => "DEPENDENCY_FAILED",
        SkipReason::DependencySkipped => "DEPENDENCY_SKIPPED",
        SkipReason::StopOnError => "STOP_ON_ERROR",
        SkipReason::Cancelled => "CANCELLED",
        SkipReason::TimedOut => "TIMED_OUT",
        SkipReason::ApprovalSkipped => "APPROVAL_SKIPPED",
        SkipReason::NonInteractive => "NON_INTERACTIVE",
    }
}
