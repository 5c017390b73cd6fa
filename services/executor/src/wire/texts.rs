//! The texts in messages that people, plans, tools and policies have written.

use std::collections::BTreeMap;

use belay_proto::v1::{self, execution_event::Kind, payload::Content, step};

/// A text in a message.
pub(crate) enum Text<'a> {
    Words(&'a mut String),
    /// A JSON value as text.
    Json(&'a mut String),
    Labels(&'a mut BTreeMap<String, String>),
}

type Each<'a> = &'a mut dyn FnMut(Text<'_>);

/// Visits the texts of an event. Names, ids, digests, paths of fields and numbers are not texts: Belay needs them.
pub(crate) fn of_event(event: &mut v1::ExecutionEvent, each: Each<'_>) {
    let Some(kind) = &mut event.kind else { return };
    match kind {
        Kind::ExecutionCreated(created) => {
            created.plan.iter_mut().for_each(|plan| of_plan(plan, each));
            each(Text::Labels(&mut created.labels));
            created.trace.iter_mut().for_each(|trace| each(Text::Words(&mut trace.tracestate)));
        }
        Kind::ExecutionPaused(paused) => each(Text::Words(&mut paused.reason)),
        Kind::ExecutionCancelRequested(request) => each(Text::Words(&mut request.reason)),
        Kind::ExecutionFinished(finished) => of_failure(&mut finished.failure, each),
        Kind::StepStarted(started) => each(Text::Words(&mut started.title)),
        Kind::StepRetryScheduled(retry) => of_failure(&mut retry.failure, each),
        Kind::StepFailed(failed) => of_failure(&mut failed.failure, each),
        Kind::StepOutcomeUnknown(unknown) => of_failure(&mut unknown.failure, each),
        Kind::ToolCallRequested(requested) => of_payload(&mut requested.arguments, each),
        Kind::ToolCallCompleted(completed) => {
            of_payload(&mut completed.result, each);
            of_receipt(&mut completed.receipt, each);
        }
        Kind::ToolCallFailed(failed) => {
            of_failure(&mut failed.failure, each);
            of_receipt(&mut failed.receipt, each);
        }
        Kind::ToolCallCancelled(cancelled) => of_failure(&mut cancelled.failure, each),
        Kind::ToolCallOutcomeUnknown(unknown) => of_failure(&mut unknown.failure, each),
        Kind::ToolCallEffectProposed(proposed) => of_need(&mut proposed.need, each),
        Kind::ToolCallApprovalRequired(required) => of_need(&mut required.need, each),
        Kind::ToolCallDenied(denied) => {
            of_failure(&mut denied.failure, each);
            of_receipt(&mut denied.receipt, each);
        }
        Kind::ToolCallOutput(output) => each(Text::Words(&mut output.text)),
        Kind::ApprovalDecided(decided) => each(Text::Words(&mut decided.reason)),
        Kind::ExecutionStarted(_)
        | Kind::ExecutionResumed(_)
        | Kind::ExecutionRecovered(_)
        | Kind::ExecutionDeadlineExceeded(_)
        | Kind::ExecutionAwaitingApproval(_)
        | Kind::StepCompleted(_)
        | Kind::StepSkipped(_)
        | Kind::StepCancelled(_)
        | Kind::ApprovalRequested(_) => {}
    }
}

/// Visits the texts of an execution.
pub(crate) fn of_execution(execution: &mut v1::Execution, each: Each<'_>) {
    execution.plan.iter_mut().for_each(|plan| of_plan(plan, each));
    each(Text::Labels(&mut execution.labels));
    of_failure(&mut execution.failure, each);
    execution.trace.iter_mut().for_each(|trace| each(Text::Words(&mut trace.tracestate)));
    execution.waiting.iter_mut().for_each(|waiting| each(Text::Words(&mut waiting.who)));
    for step in &mut execution.steps {
        each(Text::Words(&mut step.title));
        of_payload(&mut step.output, each);
        of_failure(&mut step.failure, each);
        step.failed_attempts.iter_mut().for_each(|attempt| of_failure(&mut attempt.failure, each));
        step.waiting.iter_mut().for_each(|waiting| each(Text::Words(&mut waiting.who)));
    }
}

/// Visits the texts of a plan.
pub(crate) fn of_plan(plan: &mut v1::Plan, each: Each<'_>) {
    each(Text::Words(&mut plan.description));
    for step in &mut plan.steps {
        each(Text::Words(&mut step.title));
        if let Some(step::Kind::Tool(tool)) = &mut step.kind {
            each(Text::Json(&mut tool.arguments));
        }
    }
}

fn of_payload(payload: &mut Option<v1::Payload>, each: Each<'_>) {
    if let Some(Content::Json(json)) = payload.as_mut().and_then(|payload| payload.content.as_mut()) {
        each(Text::Json(json));
    }
}

fn of_failure(failure: &mut Option<v1::Failure>, each: Each<'_>) {
    if let Some(failure) = failure {
        each(Text::Words(&mut failure.message));
        each(Text::Words(&mut failure.reason));
        if let Some(output) = &mut failure.last_output {
            each(Text::Words(&mut output.stdout));
            each(Text::Words(&mut output.stderr));
        }
    }
}

fn of_receipt(receipt: &mut Option<v1::Receipt>, each: Each<'_>) {
    if let Some(receipt) = receipt {
        of_decision(&mut receipt.decision, each);
        of_effect(&mut receipt.effect, each);
    }
}

fn of_need(need: &mut Option<v1::ApprovalNeed>, each: Each<'_>) {
    if let Some(need) = need {
        of_decision(&mut need.decision, each);
        of_effect(&mut need.effect, each);
    }
}

fn of_decision(decision: &mut Option<v1::PolicyDecision>, each: Each<'_>) {
    if let Some(decision) = decision {
        each(Text::Words(&mut decision.rule));
        each(Text::Words(&mut decision.reason));
    }
}

fn of_effect(effect: &mut Option<v1::EffectSummary>, each: Each<'_>) {
    for change in effect.iter_mut().flat_map(|effect| &mut effect.changes) {
        each(Text::Words(&mut change.path));
    }
}
