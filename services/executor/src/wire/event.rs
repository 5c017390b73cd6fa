//! Encodes events as messages, the same for the store and for watchers.

use belay_execution::{
    Actor, Body, BudgetLevel, Created, EscalationRetry, Event, ExecutionEvent, ExecutionState, Finished, OperationId,
    PauseCause, Progress, Resolution, Retried, RetryRequest, StepEvent, Subject, Timestamp, ToolFacts,
};
use belay_proto::{
    runner_v1,
    v1::{self, execution_event::Kind},
};
use prost::Message as _;

use super::{
    approval::carried_to,
    budget::{allotment_message, amounts, budget_report},
    cached_result,
    execution::{approval_mode_to, skip_reason, state, totals, workspace_fields},
    failure, inline, kinds,
    limit::claim_message,
    payload, recovery_to, stored_plan_message, time,
};

/// The version of the events' meaning that this version writes.
pub(crate) const VERSION: u32 = 14;

/// The oldest version that this version reads. Those before it were never released, and had what only services need in the events themselves.
pub(crate) const OLDEST_VERSION: u32 = 5;

/// The name of a call: opaque to everybody else.
pub(crate) fn call_name(execution: &str, call: &OperationId) -> String {
    let OperationId { step, attempt, number } = call;
    format!("{execution}/steps/{step}/calls/{attempt}.{number}")
}

/// The call with this name, if it can be the name of one.
pub(crate) fn parse_call(name: &str) -> Option<OperationId> {
    let mut parts = name.rsplit('/');
    let (attempt, number) = parts.next()?.split_once('.')?;
    let step = parts.nth(1)?;
    Some(OperationId { step: step.into(), attempt: attempt.parse().ok()?, number: number.parse().ok()? })
}

/// Encodes one event.
pub(crate) fn encode(event: &Event) -> v1::ExecutionEvent {
    let mut message = about(event.body.subject());
    message.sequence = i64::try_from(event.sequence).unwrap_or(i64::MAX);
    message.record_time = Some(time(event.time));
    message.actor = event.actor.as_ref().map(actor);
    message.kind = Some(kind(&event.body));
    message
}

fn about(subject: Subject<'_>) -> v1::ExecutionEvent {
    let (step, attempt, operation) = match subject {
        Subject::Execution => return v1::ExecutionEvent::default(),
        Subject::Step { step, attempt } => (step, attempt, 0),
        Subject::Operation(OperationId { step, attempt, number }) => (step, *attempt, *number),
    };
    let step_id = step.as_str().to_owned();
    v1::ExecutionEvent { step_id, attempt: count(attempt), operation: count(operation), ..Default::default() }
}

/// The event of a call's output, without its time and content.
pub(crate) fn output_frame(call: &OperationId) -> v1::ExecutionEvent {
    v1::ExecutionEvent { ephemeral: true, safe_to_skip: true, ..about(Subject::Operation(call)) }
}

/// The event of an output chunk: its secrets are hidden already.
pub(crate) fn output_event(
    frame: &v1::ExecutionEvent,
    now: Timestamp,
    output: v1::ToolCallOutput,
) -> v1::ExecutionEvent {
    v1::ExecutionEvent { record_time: Some(time(now)), kind: Some(Kind::ToolCallOutput(output)), ..frame.clone() }
}

fn count(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn actor(actor: &Actor) -> v1::Actor {
    v1::Actor { principal: actor.principal.clone(), request_id: actor.request_id.clone() }
}

fn progress(progress: &Progress) -> Option<v1::Progress> {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    Some(v1::Progress { done: count(progress.done), total: count(progress.total) })
}

fn kind(body: &Body) -> Kind {
    match body {
        Body::Execution(event) => execution_kind(event),
        Body::Step { attempt, event, .. } => step_kind(*attempt, event),
        Body::Operation { event, .. } => kinds::operation_message(event),
    }
}

fn execution_kind(event: &ExecutionEvent) -> Kind {
    use ExecutionEvent as E;
    match event {
        E::Created(created) => Kind::ExecutionCreated(Box::new(created_message(created))),
        E::LimitsRequested => Kind::LimitsRequested(v1::LimitsRequested {}),
        E::LimitsAcquired => Kind::LimitsAcquired(v1::LimitsAcquired {}),
        E::Started => Kind::ExecutionStarted(v1::ExecutionStarted {}),
        E::Paused { reason, discard_calls, resume_at, cause } => Kind::ExecutionPaused(v1::ExecutionPaused {
            reason: reason.clone(),
            discard_calls: *discard_calls,
            resume_time: resume_at.map(time),
            by_budget: *cause == PauseCause::Budget,
            next_stage: if *cause == PauseCause::Verification { VERIFIER } else { "" }.to_owned(),
        }),
        E::BudgetReported(report) => {
            let message = budget_report(report);
            match report.level {
                BudgetLevel::Warning => Kind::BudgetWarning(message),
                BudgetLevel::Exceeded => Kind::BudgetExceeded(message),
                BudgetLevel::Overrun => Kind::BudgetOverrun(message),
            }
        }
        E::Resumed => Kind::ExecutionResumed(v1::ExecutionResumed {}),
        E::CancelRequested { reason, kill } => {
            Kind::ExecutionCancelRequested(v1::ExecutionCancelRequested { reason: reason.clone(), kill: *kill })
        }
        E::SignalReceived(received) => Kind::SignalReceived(v1::SignalReceived {
            signal: received.signal.clone(),
            payload: Some(inline(&received.payload)),
        }),
        E::Recovered { in_doubt } => {
            let reference = |id: &OperationId| v1::OperationRef {
                step_id: id.step.as_str().to_owned(),
                attempt: count(id.attempt),
                operation: count(id.number),
            };
            Kind::ExecutionRecovered(v1::ExecutionRecovered { in_doubt: in_doubt.iter().map(reference).collect() })
        }
        E::Retried(retried) => Kind::ExecutionRetried(retried_message(retried)),
        E::PlanUpdated(updated) => Kind::ExecutionPlanUpdated(Box::new(v1::ExecutionPlanUpdated {
            plan: Some(stored_plan_message(&updated.plan)),
            revision: count(updated.revision),
            reason: updated.reason.clone(),
            deadline_time: updated.deadline.map(time),
        })),
        E::AwaitingApproval => Kind::ExecutionAwaitingApproval(v1::ExecutionAwaitingApproval {}),
        E::CompensationStarted { steps } => Kind::ExecutionCompensationStarted(v1::ExecutionCompensationStarted {
            step_ids: steps.iter().map(|step| step.as_str().to_owned()).collect(),
        }),
        E::DeadlineExceeded => Kind::ExecutionDeadlineExceeded(v1::ExecutionDeadlineExceeded {}),
        E::Finished(finished) => Kind::ExecutionFinished(Box::new(finished_message(finished))),
    }
}

fn retried_message(retried: &Retried) -> v1::ExecutionRetried {
    let Retried { steps, request, deadline, escalation } = retried;
    let RetryRequest { from, skip_failed, start_paused, plan_digest, reason } = request;
    v1::ExecutionRetried {
        step_ids: steps.iter().map(|step| step.as_str().to_owned()).collect(),
        from_step: from.as_ref().map(|step| step.as_str().to_owned()).unwrap_or_default(),
        skip_failed: *skip_failed,
        start_paused: *start_paused,
        plan_digest: plan_digest.clone(),
        reason: reason.clone(),
        deadline_time: deadline.map(time),
        escalation: escalation.map(|EscalationRetry { number, retries, resume_at }| v1::EscalationRetry {
            number: count(number),
            retries: count(retries),
            resume_time: Some(time(resume_at)),
        }),
    }
}

fn created_message(created: &Created) -> v1::ExecutionCreated {
    let (workspace, made_folder) = workspace_fields(&created.workspace);
    v1::ExecutionCreated {
        uid: created.uid.clone(),
        plan: Some(stored_plan_message(&created.plan)),
        approval_mode: approval_mode_to(created.approval_mode).into(),
        workspace,
        made_folder,
        start_time: created.start_at.map(time),
        parent_step: created.parent_step.clone(),
        forked_from: created.forked_from.clone(),
        inputs: (created.inputs.as_str() != "{}").then(|| inline(&created.inputs)),
        labels: created.labels.clone(),
        deadline_time: created.deadline.map(time),
        trace: Some(v1::TraceContext { traceparent: created.trace.0.clone(), tracestate: created.trace.1.clone() }),
        allotment: created.allotment.map(allotment_message),
        spent: amounts(created.spent),
        limits: created.limits.iter().map(claim_message).collect(),
    }
}

/// Encodes the parts of events that only services need, as they are stored beside the events; of one transition only one event has such parts. The
/// events are sent as they are stored, so that nothing can be left out of them on the way to clients.
pub(crate) fn facts_beside(events: &[Event]) -> Option<Vec<u8>> {
    events.iter().find_map(|event| match &event.body {
        Body::Execution(ExecutionEvent::Created(created)) => Some(encode_facts(created.shard, &created.tools)),
        Body::Execution(ExecutionEvent::PlanUpdated(updated)) => Some(encode_facts(0, &updated.tools)),
        _ => None,
    })
}

/// Facts as they are stored beside events.
fn encode_facts(shard: u32, tools: &[ToolFacts]) -> Vec<u8> {
    let shard = i32::try_from(shard).unwrap_or(i32::MAX);
    runner_v1::ExecutionFacts { shard, tools: tools.iter().map(facts).collect() }.encode_to_vec()
}

fn facts(facts: &ToolFacts) -> runner_v1::ToolFacts {
    runner_v1::ToolFacts {
        tool: facts.tool.clone(),
        used_as: facts.used_as.clone(),
        recovery: recovery_to(facts.recovery).into(),
        default_timeout: Some(belay_proto::duration(facts.default_timeout)),
        secret_arguments: facts.secret_arguments.clone(),
        secret_result: facts.secret_result.clone(),
        takes_network: facts.takes_network,
        description: facts.description.clone(),
        parameters_schema: facts.parameters.clone(),
    }
}

/// The stage after the executor's.
const VERIFIER: &str = "verifier";

fn finished_message(finished: &Finished) -> v1::ExecutionFinished {
    let next_stage = match finished.state {
        ExecutionState::Completed => VERIFIER,
        ExecutionState::Pending
        | ExecutionState::Running
        | ExecutionState::AwaitingApproval
        | ExecutionState::Paused
        | ExecutionState::Cancelling
        | ExecutionState::Partial
        | ExecutionState::Failed
        | ExecutionState::Cancelled
        | ExecutionState::TimedOut => "",
    };
    v1::ExecutionFinished {
        state: state(finished.state).into(),
        totals: Some(totals(finished.totals)),
        failure: finished.failure.as_ref().map(failure),
        next_stage: next_stage.into(),
        duration: Some(belay_proto::duration(finished.duration)),
        outputs: finished.outputs.as_ref().and_then(|outputs| outputs.as_ref().ok()).map(payload),
        outputs_failure: finished.outputs.as_ref().and_then(|outputs| outputs.as_ref().err()).map(failure),
    }
}

fn step_kind(attempt: u32, event: &StepEvent) -> Kind {
    match event {
        StepEvent::Started => Kind::StepStarted(v1::StepStarted {}),
        StepEvent::RetryScheduled { failure: cause, retry_count, delay, not_before } => {
            Kind::StepRetryScheduled(v1::StepRetryScheduled {
                failure: Some(failure(cause)),
                retry_count: count(*retry_count),
                delay: Some(belay_proto::duration(*delay)),
                retry_time: Some(time(*not_before)),
            })
        }
        StepEvent::FallbackSwitched { failure: cause, from, to, reason } => {
            Kind::StepFallbackSwitched(v1::StepFallbackSwitched {
                failure: Some(failure(cause)),
                failed_tool: from.clone(),
                fallback_tool: to.clone(),
                reason: reason.clone(),
            })
        }
        StepEvent::CachedResultUsed { failure: cause, result, source } => {
            Kind::StepCachedResultUsed(v1::StepCachedResultUsed {
                failure: Some(failure(cause)),
                result: Some(payload(result)),
                source: Some(cached_result(source)),
            })
        }
        StepEvent::ItemsListed { first, items } => {
            let first = i32::try_from(*first).unwrap_or(i32::MAX);
            Kind::StepItemsListed(v1::StepItemsListed { items: items.iter().map(inline).collect(), first })
        }
        StepEvent::ItemsCollected { output } => {
            Kind::StepItemsCollected(v1::StepItemsCollected { output: Some(payload(output)) })
        }
        StepEvent::Completed { progress: done, duration } => Kind::StepCompleted(v1::StepCompleted {
            progress: progress(done),
            duration: Some(belay_proto::duration(*duration)),
        }),
        StepEvent::Failed { failure: cause, progress: done } => Kind::StepFailed(v1::StepFailed {
            failure: Some(failure(cause)),
            attempts: count(attempt),
            progress: progress(done),
        }),
        StepEvent::Skipped { reason, because, group, progress: done } => Kind::StepSkipped(v1::StepSkipped {
            reason: skip_reason(*reason).into(),
            because: because.as_ref().map(|because| because.as_str().to_owned()).unwrap_or_default(),
            group: group.clone().unwrap_or_default(),
            progress: progress(done),
        }),
        StepEvent::Cancelled { progress: done } => Kind::StepCancelled(v1::StepCancelled { progress: progress(done) }),
        StepEvent::OutcomeUnknown { failure: cause } => {
            Kind::StepOutcomeUnknown(v1::StepOutcomeUnknown { failure: Some(failure(cause)) })
        }
        StepEvent::Resolved { resolution, reason } => {
            let (how, result) = match resolution {
                Resolution::Completed(result) => (v1::StepResolution::Completed, Some(inline(result))),
                Resolution::Failed => (v1::StepResolution::Failed, None),
                Resolution::Again => (v1::StepResolution::Again, None),
            };
            Kind::StepResolved(v1::StepResolved { resolution: how.into(), result, reason: reason.clone() })
        }
        StepEvent::SkipRequested { reason } => {
            Kind::StepSkipRequested(v1::StepSkipRequested { reason: reason.clone() })
        }
        StepEvent::OutputSet { output, reason } => {
            Kind::StepOutputSet(v1::StepOutputSet { output: Some(inline(output)), reason: reason.clone() })
        }
        StepEvent::ConversationCarriedOver { conversation, turns, layers, spent, reason } => {
            Kind::StepConversationCarriedOver(v1::StepConversationCarriedOver {
                conversation: Some(payload(conversation)),
                turns: i32::try_from(*turns).unwrap_or(i32::MAX),
                layers: layers.as_ref().map(carried_to),
                spent: amounts(*spent),
                reason: reason.clone(),
            })
        }
        StepEvent::RetryAdvanced { reason } => {
            Kind::StepRetryAdvanced(v1::StepRetryAdvanced { reason: reason.clone() })
        }
        StepEvent::RetryCancelled { reason } => {
            Kind::StepRetryCancelled(v1::StepRetryCancelled { reason: reason.clone() })
        }
    }
}
