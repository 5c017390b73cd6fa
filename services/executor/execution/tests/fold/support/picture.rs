//! Events as a reader would tell them: a line for each moment.

use std::time::Duration;

use belay_execution::{
    Body, BudgetLevel, BudgetReport, ChildEnd, ExecutionEvent, ExecutionState, OperationEnd, OperationEvent,
    OperationId, OperationReport, PauseCause, Resolution, SkipReason, StepEvent, SubjectKind, ToolCallEnd,
    WaitCondition, WaitEnd, Work,
};

use super::{Play, START};

impl Play {
    /// Everything that happened after the acceptance.
    pub(crate) fn full_picture(&self) -> Vec<String> {
        self.draw(|_| true)
    }

    /// Returns the events of the execution and its steps, without calls that add nothing.
    pub(crate) fn picture(&self) -> Vec<String> {
        self.draw(|body| match body {
            Body::Execution(_) | Body::Step { .. } => true,
            Body::Operation { id, event } => match event {
                OperationEvent::Requested(Work::ToolCall(_)) => id.number > 1,
                OperationEvent::Requested(Work::Wait(_) | Work::Child(_))
                | OperationEvent::Held(_)
                | OperationEvent::Decided { .. }
                | OperationEvent::Reported(_)
                | OperationEvent::Ended(
                    OperationEnd::ToolCall(ToolCallEnd::Cancelled { .. })
                    | OperationEnd::Wait(_)
                    | OperationEnd::Child { .. },
                ) => true,
                OperationEvent::Asked { .. }
                | OperationEvent::Dispatched
                | OperationEvent::Ended(OperationEnd::ToolCall(_)) => false,
            },
        })
    }

    fn draw(&self, shown: impl Fn(&Body) -> bool) -> Vec<String> {
        let mut lines: Vec<(Duration, Vec<String>)> = Vec::new();
        for event in self.events[1..].iter().filter(|event| shown(&event.body)) {
            let at = event.time.since(START);
            if lines.last().is_none_or(|(moment, _)| *moment != at) {
                lines.push((at, Vec::new()));
            }
            let (_, line) = lines.last_mut().expect("just pushed");
            line.push(words(&event.body));
        }
        lines.into_iter().map(|(at, line)| format!("{}s {}", at.as_secs_f64(), line.join(", "))).collect()
    }
}

fn words(body: &Body) -> String {
    match body {
        Body::Execution(event) => execution_words(event),
        Body::Step { step, attempt, event } => format!("{step} {}", step_words(*attempt, event)),
        Body::Operation { id: OperationId { step, attempt, number }, event } => match event {
            OperationEvent::Requested(Work::ToolCall(_)) => format!("{step} call {attempt}.{number}"),
            OperationEvent::Dispatched => format!("{step} dispatched"),
            OperationEvent::Held(requirement) => match requirement.kind {
                SubjectKind::Call => format!("{step} held"),
                SubjectKind::Effect => format!("{step} held with its effect"),
            },
            OperationEvent::Ended(OperationEnd::ToolCall(end)) => {
                format!("{step} call {attempt}.{number} {}", end_words(end))
            }
            OperationEvent::Asked { .. } => format!("asked about {step} call {attempt}.{number}"),
            OperationEvent::Decided { approval, decision, .. } => {
                let by = if approval.is_empty() { " by its mode" } else { "" };
                format!("{step} {}{by}", format!("{decision:?}").to_uppercase())
            }
            OperationEvent::Requested(Work::Child(_)) => format!("{step} starts its plan"),
            OperationEvent::Reported(OperationReport::ChildCreated) => format!("{step} plan created"),
            OperationEvent::Reported(OperationReport::ChildPaused) => format!("{step} plan paused"),
            OperationEvent::Reported(OperationReport::ChildResumed) => format!("{step} plan resumed"),
            OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Completed { .. }, .. }) => {
                format!("{step} plan completed")
            }
            OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Failed { failure }, .. }) => {
                format!("{step} plan failed {:?}", failure.class)
            }
            OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Cancelled, .. }) => {
                format!("{step} plan cancelled")
            }
            OperationEvent::Requested(Work::Wait(WaitCondition::Time { .. })) => format!("{step} waits"),
            OperationEvent::Requested(Work::Wait(WaitCondition::Signal { signal, .. })) => {
                format!("{step} waits for {signal}")
            }
            OperationEvent::Requested(Work::Wait(WaitCondition::Form { form, .. })) => {
                format!("{step} asks {}", form.title)
            }
            OperationEvent::Requested(Work::Wait(WaitCondition::Question { form, .. })) => {
                format!("{step} call asks {}", form.title)
            }
            OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Declined { decision, .. })) => {
                format!("{step} wait Declined ({decision:?})")
            }
            OperationEvent::Ended(OperationEnd::Wait(end)) => {
                format!("{step} wait {}", format!("{end:?}").split(' ').next().unwrap_or_default())
            }
        },
    }
}

fn execution_words(event: &ExecutionEvent) -> String {
    use ExecutionEvent as E;
    match event {
        E::Created(_) => "created".to_owned(),
        E::LimitsRequested => "limits requested".to_owned(),
        E::LimitsAcquired => "limits acquired".to_owned(),
        E::Started => "started".to_owned(),
        E::Paused { resume_at: Some(at), .. } => format!("paused until {}s", at.since(START).as_secs_f64()),
        E::Paused { cause: PauseCause::Budget | PauseCause::Verification, reason, .. } => format!("paused, {reason}"),
        E::Paused { discard_calls: false, .. } => "paused".to_owned(),
        E::Paused { discard_calls: true, .. } => "paused, discarding".to_owned(),
        E::Resumed => "resumed".to_owned(),
        E::BudgetReported(BudgetReport { level, unit, step, spent, limit }) => {
            let whose = step.as_ref().map(|step| format!("{step} ")).unwrap_or_default();
            let level = match level {
                BudgetLevel::Warning => "budget warning",
                BudgetLevel::Exceeded => "budget exceeded",
                BudgetLevel::Overrun => "budget overrun",
            };
            format!("{whose}{level} {spent}/{}", unit.amount_in_words(*limit))
        }
        E::CancelRequested { kill, .. } => if *kill { "kill requested" } else { "cancel requested" }.to_owned(),
        E::SignalReceived(received) => format!("signal {}", received.signal),
        E::Retried(retried) => {
            let ids: Vec<&str> = retried.steps.iter().map(|id| id.as_str()).collect();
            let at = retried.escalation.map(|retry| format!(" at {}s", retry.resume_at.since(START).as_secs_f64()));
            format!("{} run again{}", ids.join(" "), at.unwrap_or_default())
        }
        E::PlanUpdated(updated) => format!("plan {}", updated.revision),
        E::CompensationStarted { steps } => {
            let ids: Vec<&str> = steps.iter().map(|id| id.as_str()).collect();
            format!("undoes {}", ids.join(" "))
        }
        E::DeadlineExceeded => "out of time".to_owned(),
        E::AwaitingApproval => "awaiting approval".to_owned(),
        E::Recovered { in_doubt } => format!("recovered with {} in doubt", in_doubt.len()),
        E::Finished(finished) => match finished.state {
            ExecutionState::TimedOut => "TIMED_OUT".to_owned(),
            state => format!("{state:?}").to_uppercase(),
        },
    }
}

fn step_words(attempt: u32, event: &StepEvent) -> String {
    match event {
        StepEvent::Started if attempt == 1 => "started".to_owned(),
        StepEvent::Started => format!("started attempt {attempt}"),
        StepEvent::RetryScheduled { failure, delay, .. } => {
            format!("waits {}s after {}", delay.as_secs_f64(), failure.reason)
        }
        StepEvent::FallbackSwitched { failure, from, to, reason: _ } => {
            format!("{from} gives way to {to} after {}", failure.reason)
        }
        StepEvent::CachedResultUsed { failure, result, source } => {
            let result = result.inline().map_or("a blob", belay_execution::Json::as_str);
            format!("uses {result}, {}s old, after {}", source.age.as_secs_f64(), failure.reason)
        }
        StepEvent::ItemsListed { first: 0, items } => format!("lists {}", items.len()),
        StepEvent::ItemsListed { first, items } => format!("lists {} more after {first}", items.len()),
        StepEvent::ItemsCollected { output } => {
            format!("collects {}", output.inline().map_or("a blob", belay_execution::Json::as_str))
        }
        StepEvent::Completed { .. } => "completed".to_owned(),
        StepEvent::Failed { failure, .. } => format!("failed {}", failure.reason),
        StepEvent::Skipped { reason, because, group, .. } => {
            let because = because.as_ref().map_or(String::new(), |because| format!(" by {because}"));
            let group = group.as_ref().map_or(String::new(), |group| format!(" in {group}"));
            format!("skipped {}{because}{group}", skip_words(*reason))
        }
        StepEvent::Cancelled { .. } => "cancelled".to_owned(),
        StepEvent::OutcomeUnknown { .. } => "unknown".to_owned(),
        StepEvent::Resolved { resolution, .. } => match resolution {
            Resolution::Completed(_) => "found completed".to_owned(),
            Resolution::Failed => "found failed".to_owned(),
            Resolution::Again => "found to be made again".to_owned(),
        },
        StepEvent::SkipRequested { .. } => "to skip".to_owned(),
        StepEvent::OutputSet { output, .. } => format!("given {}", output.as_str()),
        StepEvent::ConversationCarriedOver { turns, .. } => format!("begins with {turns} turns"),
        StepEvent::RetryAdvanced { .. } => "to retry now".to_owned(),
        StepEvent::RetryCancelled { .. } => "not to retry".to_owned(),
    }
}

fn end_words(end: &ToolCallEnd) -> String {
    match end {
        ToolCallEnd::Completed { .. } => "ok".to_owned(),
        ToolCallEnd::Failed { failure, .. } => failure.reason.clone(),
        ToolCallEnd::Cancelled { failure: None, .. } => "stopped".to_owned(),
        ToolCallEnd::Cancelled { failure: Some(failure), .. } => format!("stopped {}", failure.reason),
        ToolCallEnd::Denied { failure, .. } => format!("denied {}", failure.reason),
        ToolCallEnd::OutcomeUnknown { .. } => "unknown".to_owned(),
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
        SkipReason::Requested => "REQUESTED",
        SkipReason::PlanUpdated => "PLAN_UPDATED",
        SkipReason::NotListed => "NOT_LISTED",
        SkipReason::ConditionFalse => "CONDITION_FALSE",
    }
}
