//! Decodes stored messages into events. Each can be read by itself: steps are named by id.

use belay_execution::{
    Actor, Body, BudgetLevel, CachedFrom, Created, EscalationRetry, Event, ExecutionEvent, Finished, Json,
    OperationEnd, OperationEvent, OperationId, OperationReport, PauseCause, PlanUpdated, Progress, Resolution, Retried,
    RetryRequest, SignalReceived, SkipReason, StepEvent, StepId, SubjectKind, Timestamp, ToolFacts, Totals, Work,
    Workspace,
};
use belay_journal::Transition;
use belay_proto::{
    check::{Refused, check},
    runner_v1,
    v1::{self, execution_event::Kind},
};
use prost::Message as _;
use thiserror::Error;

use super::{
    NotUnderstood, OLDEST_VERSION, VERSION,
    approval::decided_from,
    approval_mode,
    budget::{allotment_from, amounts_from, report_from},
    duration,
    execution::state_from,
    failure_from, json,
    kinds::{call, child, wait},
    known,
    limit::claim_from,
    payload_from, recovery_from, stored_plan_from, timestamp,
    unread::Unread,
};

/// Why this version cannot read stored bytes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum DecodeError {
    #[error("event bytes are damaged: {0}")]
    Damaged(String),
    #[error("event {0} is of a kind that this version does not know")]
    UnknownKind(i64),
    #[error("events of version {0} are newer than this version reads")]
    Newer(u32),
    #[error(
        "events of version {0} are of an unreleased version of Belay, which had what only services need in the events themselves"
    )]
    Older(u32),
    /// A newer version wrote a field or a value that an execution cannot be carried out without.
    #[error("event {sequence}: {unknown}")]
    Unknown { sequence: i64, unknown: Refused },
    #[error("event {sequence}: {problem}")]
    NotUnderstood { sequence: i64, problem: NotUnderstood },
    #[error("event {sequence} lacks {what}")]
    Lacks { sequence: i64, what: &'static str },
}

impl DecodeError {
    /// Whether a newer version wrote what cannot be read, so that nothing is damaged.
    pub(crate) fn is_newer(&self) -> bool {
        match self {
            Self::UnknownKind(_) | Self::Newer(_) | Self::Unknown { .. } => true,
            Self::NotUnderstood { problem, .. } => {
                matches!(problem, NotUnderstood::Value { .. } | NotUnderstood::Blob(_))
            }
            Self::Damaged(_) | Self::Lacks { .. } | Self::Older(_) => false,
        }
    }
}

/// Whether an encoded event, with its length before it, is the last of its execution. Reads no more of it than that.
pub(crate) fn is_end(event: &[u8]) -> bool {
    /// The relevant part of a `belay.v1.ExecutionEvent`; a test compares the number with the contract.
    #[derive(Clone, PartialEq, prost::Message)]
    struct End {
        #[prost(message, optional, tag = "27")]
        finished: Option<()>,
    }
    End::decode_length_delimited(event).is_ok_and(|event| event.finished.is_some())
}

/// Checks that encoded messages, of which an execution is carried out, have nothing that this version does not know: it would be carried out
/// without that.
pub(crate) fn check_known(mut bytes: &[u8]) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        let damaged = |what: String| DecodeError::Damaged(what);
        let length = prost::decode_length_delimiter(&mut bytes).map_err(|error| damaged(error.to_string()))?;
        let (event, rest) = bytes.split_at_checked(length).ok_or_else(|| damaged("they end within an event".into()))?;
        if let Err(unknown) = check::<v1::ExecutionEvent>(event) {
            let sequence = v1::ExecutionEvent::decode(event).map_or(0, |event| event.sequence);
            return Err(match unknown.is_newer() {
                true => DecodeError::Unknown { sequence, unknown },
                false => damaged(format!("event {sequence}: {unknown}")),
            });
        }
        bytes = rest;
    }
    Ok(())
}

/// Checks that this version reads the events of a stored transition.
pub(crate) fn check_version(transition: &Transition) -> Result<(), DecodeError> {
    match transition.version {
        ..OLDEST_VERSION => Err(DecodeError::Older(transition.version)),
        OLDEST_VERSION..=VERSION => Ok(()),
        version => Err(DecodeError::Newer(version)),
    }
}

/// The messages of a stored transition, with secrets hidden.
pub(crate) fn decode_all(transition: &Transition) -> Result<Vec<v1::ExecutionEvent>, DecodeError> {
    check_version(transition)?;
    decode_bytes(&transition.shown)
}

/// The execution's uid, if the message is its first.
pub(crate) fn uid_of(first: &v1::ExecutionEvent) -> Option<&str> {
    if let Some(Kind::ExecutionCreated(created)) = &first.kind { Some(&created.uid) } else { None }
}

/// Length-delimited messages.
pub(crate) fn decode_bytes(mut bytes: &[u8]) -> Result<Vec<v1::ExecutionEvent>, DecodeError> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let event = v1::ExecutionEvent::decode_length_delimited(&mut bytes);
        events.push(event.map_err(|error| DecodeError::Damaged(error.to_string()))?);
    }
    Ok(events)
}

/// Decodes messages into events. `facts` gives what is stored beside an event ([`Transition::facts`]), without which the first one and those that change
/// the plan are not decoded.
pub(crate) fn to_events<'f>(
    messages: impl IntoIterator<Item = v1::ExecutionEvent>,
    facts: impl Fn(u64) -> Option<&'f [u8]>,
) -> impl Iterator<Item = Result<Event, DecodeError>> {
    messages.into_iter().map(move |message| {
        let facts = facts(u64::try_from(message.sequence).unwrap_or(0));
        decode(message, facts)
    })
}

/// Decodes one message.
pub(crate) fn decode(message: v1::ExecutionEvent, facts: Option<&[u8]>) -> Result<Event, DecodeError> {
    let sequence = message.sequence;
    let lacks = |what| DecodeError::Lacks { sequence, what };
    let time = message.record_time.as_ref().ok_or_else(|| lacks("its time"))?;
    let time = Timestamp::from_micros(belay_proto::micros(time));
    let actor = message.actor.map(|v1::Actor { principal, request_id }| Actor { principal, request_id });
    let kind = message.kind.ok_or(DecodeError::UnknownKind(sequence))?;
    let subject = SubjectName { step_id: message.step_id, attempt: message.attempt, operation: message.operation };
    let body = decode_kind(subject, kind, facts, sequence, &lacks)?;
    Ok(Event { sequence: u64::try_from(sequence).unwrap_or(0), time, actor, body })
}

type Lacks<'a> = &'a dyn Fn(&'static str) -> DecodeError;

/// The subject of a message, as it is written.
struct SubjectName {
    step_id: String,
    attempt: i32,
    operation: i32,
}

impl SubjectName {
    fn step(self, lacks: Lacks<'_>) -> Result<(StepId, u32), DecodeError> {
        let attempt = u32::try_from(self.attempt).map_err(|_| lacks("its attempt"))?;
        if self.step_id.is_empty() { Err(lacks("its step")) } else { Ok((self.step_id.into(), attempt)) }
    }

    fn operation(self, lacks: Lacks<'_>) -> Result<OperationId, DecodeError> {
        let number = u32::try_from(self.operation).ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| lacks("the number of its operation"))?;
        let (step, attempt) = self.step(lacks)?;
        Ok(OperationId { step, attempt, number })
    }
}

fn decode_created(
    created: v1::ExecutionCreated,
    facts: Option<&[u8]>,
    sequence: i64,
    lacks: Lacks<'_>,
) -> Result<Created, DecodeError> {
    let unknown = |problem| DecodeError::NotUnderstood { sequence, problem };
    let facts = decode_facts(facts.ok_or_else(|| lacks("what is stored beside it"))?, sequence)?;
    let mode = known(created.approval_mode, "the approval mode").map_err(unknown)?;
    let plan = stored_plan_from(created.plan.ok_or_else(|| lacks("its plan"))?);
    let trace = created.trace.unwrap_or_default();
    Ok(Created {
        uid: created.uid,
        plan: plan.map_err(|invalid| DecodeError::Damaged(invalid.to_string()))?,
        approval_mode: approval_mode(mode),
        workspace: workspace_from(created.workspace, created.made_folder).ok_or_else(|| lacks("its workspace"))?,
        inputs: match created.inputs {
            None => Json::from_text("{}"),
            inputs => json(inputs, "the inputs of an execution").map_err(unknown)?,
        },
        labels: created.labels,
        tools: tools_from(facts.tools, sequence)?,
        start_at: created.start_time.as_ref().map(timestamp),
        parent_step: created.parent_step,
        forked_from: created.forked_from,
        deadline: created.deadline_time.as_ref().map(timestamp),
        trace: (trace.traceparent, trace.tracestate),
        shard: u32::try_from(facts.shard).unwrap_or(0),
        allotment: created.allotment.map(allotment_from),
        spent: created.spent.map(amounts_from).unwrap_or_default(),
        limits: created.limits.into_iter().map(claim_from).collect::<Result<_, _>>().map_err(unknown)?,
    })
}

/// Exactly one of them has a text.
fn workspace_from(directory: String, made_folder: String) -> Option<Workspace> {
    match (directory.is_empty(), made_folder.is_empty()) {
        (false, true) => Some(Workspace::Directory(directory)),
        (true, false) => Some(Workspace::MadeFolder(made_folder)),
        (true, true) | (false, false) => None,
    }
}

fn decode_updated(
    updated: v1::ExecutionPlanUpdated,
    facts: Option<&[u8]>,
    sequence: i64,
    lacks: Lacks<'_>,
) -> Result<PlanUpdated, DecodeError> {
    let facts = decode_facts(facts.ok_or_else(|| lacks("what is stored beside it"))?, sequence)?;
    let plan = stored_plan_from(updated.plan.ok_or_else(|| lacks("its plan"))?);
    Ok(PlanUpdated {
        plan: plan.map_err(|invalid| DecodeError::Damaged(invalid.to_string()))?,
        tools: tools_from(facts.tools, sequence)?,
        revision: u32::try_from(updated.revision).map_err(|_| lacks("its revision"))?,
        deadline: updated.deadline_time.as_ref().map(timestamp),
        reason: updated.reason,
    })
}

fn tools_from(tools: Vec<runner_v1::ToolFacts>, sequence: i64) -> Result<Vec<ToolFacts>, DecodeError> {
    let unknown = |problem| DecodeError::NotUnderstood { sequence, problem };
    let tool = |facts: runner_v1::ToolFacts| {
        Ok(ToolFacts {
            recovery: recovery_from(known(facts.recovery, "the recovery class of a tool").map_err(unknown)?),
            used_as: facts.used_as,
            tool: facts.tool,
            default_timeout: duration(facts.default_timeout),
            secret_arguments: facts.secret_arguments,
            secret_result: facts.secret_result,
            takes_network: facts.takes_network,
            description: facts.description,
            parameters: facts.parameters_schema,
        })
    };
    tools.into_iter().map(tool).collect()
}

/// Decodes the facts that are stored beside an event.
fn decode_facts(facts: &[u8], sequence: i64) -> Result<runner_v1::ExecutionFacts, DecodeError> {
    let damaged = |what: String| DecodeError::Damaged(format!("what is stored beside event {sequence}: {what}"));
    check::<runner_v1::ExecutionFacts>(facts).map_err(|unknown| match unknown.is_newer() {
        true => DecodeError::Unknown { sequence, unknown },
        false => damaged(unknown.to_string()),
    })?;
    runner_v1::ExecutionFacts::decode(facts).map_err(|error| damaged(error.to_string()))
}

fn decode_escalation(retry: &v1::EscalationRetry, lacks: Lacks<'_>) -> Result<EscalationRetry, DecodeError> {
    Ok(EscalationRetry {
        number: u32::try_from(retry.number).map_err(|_| lacks("the number of its retry"))?,
        retries: u32::try_from(retry.retries).map_err(|_| lacks("how many retries there are"))?,
        resume_at: retry.resume_time.as_ref().map(timestamp).ok_or_else(|| lacks("when its steps run again"))?,
    })
}

fn decode_finished(finished: v1::ExecutionFinished, sequence: i64, lacks: Lacks<'_>) -> Result<Finished, DecodeError> {
    let unknown = |problem| DecodeError::NotUnderstood { sequence, problem };
    let state = known(finished.state, "the state of an execution").map_err(unknown)?;
    let counted = finished.totals.unwrap_or_default();
    Ok(Finished {
        state: state_from(state).ok_or_else(|| lacks("its state"))?,
        totals: Totals {
            total: count(counted.total),
            completed: count(counted.completed),
            failed: count(counted.failed),
            skipped: count(counted.skipped),
            cancelled: count(counted.cancelled),
        },
        failure: finished.failure.map(failure_from).transpose().map_err(unknown)?,
        duration: duration(finished.duration),
        outputs: match (finished.outputs_failure, finished.outputs) {
            (Some(failure), _) => Some(Err(failure_from(failure).map_err(unknown)?)),
            (None, None) => None,
            (None, outputs) => Some(Ok(payload_from(outputs, "the outputs of an execution").map_err(unknown)?)),
        },
    })
}

fn count(n: i32) -> usize {
    usize::try_from(n).unwrap_or(0)
}

fn progress(progress: Option<v1::Progress>) -> Progress {
    let v1::Progress { done, total } = progress.unwrap_or_default();
    Progress { done: count(done), total: count(total) }
}

fn decode_kind(
    subject: SubjectName,
    kind: Kind,
    facts: Option<&[u8]>,
    sequence: i64,
    lacks: Lacks<'_>,
) -> Result<Body, DecodeError> {
    let unknown = |problem| DecodeError::NotUnderstood { sequence, problem };
    let some_failure = |failure: Option<v1::Failure>| failure.map(failure_from).transpose().map_err(unknown);
    let failure = |failure: Option<v1::Failure>| some_failure(failure)?.ok_or_else(|| lacks("its failure"));
    let execution = |event: ExecutionEvent| Ok(Body::Execution(event));
    let step = |subject: SubjectName, event| {
        let (step, attempt) = subject.step(lacks)?;
        Ok(Body::Step { step, attempt, event })
    };
    let operation = |subject: SubjectName, event| Ok(Body::Operation { id: subject.operation(lacks)?, event });
    let unread = |problem| match problem {
        Unread::Lacks(what) => lacks(what),
        Unread::NotUnderstood(problem) => unknown(problem),
    };
    let requested =
        |subject, work: Result<Work, Unread>| operation(subject, OperationEvent::Requested(work.map_err(unread)?));
    let ended =
        |subject, end: Result<OperationEnd, Unread>| operation(subject, OperationEvent::Ended(end.map_err(unread)?));
    let call_ended = |subject, end: Result<_, _>| ended(subject, end.map(OperationEnd::ToolCall));
    let held = |subject, need, kind| operation(subject, call::held_from(need, kind).map_err(unread)?);
    match kind {
        Kind::ExecutionCreated(created) => {
            execution(ExecutionEvent::Created(Box::new(decode_created(*created, facts, sequence, lacks)?)))
        }
        Kind::LimitsRequested(_) => execution(ExecutionEvent::LimitsRequested),
        Kind::LimitsAcquired(_) => execution(ExecutionEvent::LimitsAcquired),
        Kind::ExecutionStarted(_) => execution(ExecutionEvent::Started),
        Kind::ExecutionPaused(v1::ExecutionPaused { reason, discard_calls, resume_time, by_budget, next_stage }) => {
            let resume_at = resume_time.as_ref().map(|time| Timestamp::from_micros(belay_proto::micros(time)));
            let cause = match (by_budget, next_stage.as_str()) {
                (true, _) => PauseCause::Budget,
                (false, "") => PauseCause::Request,
                (false, _) => PauseCause::Verification,
            };
            execution(ExecutionEvent::Paused { reason, discard_calls, resume_at, cause })
        }
        Kind::BudgetWarning(report) => {
            execution(ExecutionEvent::BudgetReported(report_from(report, BudgetLevel::Warning).map_err(unknown)?))
        }
        Kind::BudgetExceeded(report) => {
            execution(ExecutionEvent::BudgetReported(report_from(report, BudgetLevel::Exceeded).map_err(unknown)?))
        }
        Kind::BudgetOverrun(report) => {
            execution(ExecutionEvent::BudgetReported(report_from(report, BudgetLevel::Overrun).map_err(unknown)?))
        }
        Kind::ExecutionResumed(_) => execution(ExecutionEvent::Resumed),
        Kind::ExecutionCancelRequested(asked) => {
            execution(ExecutionEvent::CancelRequested { reason: asked.reason, kill: asked.kill })
        }
        Kind::SignalReceived(received) => {
            let payload = json(received.payload, "the payload of a signal").map_err(unknown)?;
            execution(ExecutionEvent::SignalReceived(SignalReceived { signal: received.signal, payload }))
        }
        Kind::ExecutionRecovered(recovered) => {
            let named = |v1::OperationRef { step_id, attempt, operation }| SubjectName { step_id, attempt, operation };
            let in_doubt = recovered.in_doubt.into_iter().map(|operation| named(operation).operation(lacks));
            execution(ExecutionEvent::Recovered { in_doubt: in_doubt.collect::<Result<_, _>>()? })
        }
        Kind::ExecutionCompensationStarted(started) => {
            let steps = started.step_ids.into_iter().map(Into::into).collect();
            execution(ExecutionEvent::CompensationStarted { steps })
        }
        Kind::ExecutionDeadlineExceeded(_) => execution(ExecutionEvent::DeadlineExceeded),
        Kind::ExecutionAwaitingApproval(_) => execution(ExecutionEvent::AwaitingApproval),
        Kind::ExecutionRetried(retried) => execution(ExecutionEvent::Retried(Box::new(Retried {
            steps: retried.step_ids.into_iter().map(Into::into).collect(),
            request: RetryRequest {
                from: Some(retried.from_step).filter(|step| !step.is_empty()).map(Into::into),
                skip_failed: retried.skip_failed,
                start_paused: retried.start_paused,
                plan_digest: retried.plan_digest,
                reason: retried.reason,
            },
            deadline: retried.deadline_time.as_ref().map(timestamp),
            escalation: retried.escalation.map(|retry| decode_escalation(&retry, lacks)).transpose()?,
        }))),
        Kind::ExecutionPlanUpdated(updated) => {
            execution(ExecutionEvent::PlanUpdated(Box::new(decode_updated(*updated, facts, sequence, lacks)?)))
        }
        Kind::ExecutionFinished(finished) => {
            execution(ExecutionEvent::Finished(Box::new(decode_finished(*finished, sequence, lacks)?)))
        }
        Kind::StepStarted(_) => step(subject, StepEvent::Started),
        Kind::StepRetryScheduled(retry) => {
            let event = StepEvent::RetryScheduled {
                failure: failure(retry.failure)?,
                retry_count: u32::try_from(retry.retry_count).unwrap_or(0),
                delay: duration(retry.delay),
                not_before: retry.retry_time.as_ref().map(timestamp).ok_or_else(|| lacks("its time of retry"))?,
            };
            step(subject, event)
        }
        Kind::StepCompleted(completed) => {
            let (progress, duration) = (progress(completed.progress), duration(completed.duration));
            step(subject, StepEvent::Completed { progress, duration })
        }
        Kind::StepFailed(failed) => {
            let (failure, progress) = (failure(failed.failure)?, progress(failed.progress));
            step(subject, StepEvent::Failed { failure, progress })
        }
        Kind::StepSkipped(skipped) => {
            let reason = known(skipped.reason, "the reason of a skipped step").map_err(unknown)?;
            let reason = skip_reason_from(reason).ok_or_else(|| lacks("its reason"))?;
            let because = Some(skipped.because).filter(|because| !because.is_empty()).map(StepId::from);
            let group = Some(skipped.group).filter(|group| !group.is_empty());
            step(subject, StepEvent::Skipped { reason, because, group, progress: progress(skipped.progress) })
        }
        Kind::StepCancelled(cancelled) => {
            step(subject, StepEvent::Cancelled { progress: progress(cancelled.progress) })
        }
        Kind::StepOutcomeUnknown(unknown) => {
            step(subject, StepEvent::OutcomeUnknown { failure: failure(unknown.failure)? })
        }
        Kind::StepResolved(resolved) => {
            let how = known(resolved.resolution, "the resolution of a step").map_err(unknown)?;
            let resolution = match how {
                v1::StepResolution::Unspecified => return Err(lacks("its resolution")),
                v1::StepResolution::Completed => {
                    Resolution::Completed(json(resolved.result, "the result of a resolved step").map_err(unknown)?)
                }
                v1::StepResolution::Failed => Resolution::Failed,
                v1::StepResolution::Again => Resolution::Again,
            };
            step(subject, StepEvent::Resolved { resolution, reason: resolved.reason })
        }
        Kind::StepFallbackSwitched(v1::StepFallbackSwitched { failure: cause, failed_tool, fallback_tool, reason }) => {
            let (from, to) = (failed_tool, fallback_tool);
            step(subject, StepEvent::FallbackSwitched { failure: failure(cause)?, from, to, reason })
        }
        Kind::StepCachedResultUsed(v1::StepCachedResultUsed { failure: cause, result, source }) => {
            let result = payload_from(result, "the earlier result of a step").map_err(unknown)?;
            let v1::CachedResult { execution, complete_time, age } =
                source.ok_or_else(|| lacks("where its result comes from"))?;
            let completed_at =
                complete_time.as_ref().map(timestamp).ok_or_else(|| lacks("when its result was returned"))?;
            let source = CachedFrom { execution, completed_at, age: duration(age) };
            step(subject, StepEvent::CachedResultUsed { failure: failure(cause)?, result, source })
        }
        Kind::StepItemsListed(listed) => {
            let items = listed.items.into_iter().map(|item| json(Some(item), "an entry of a list").map_err(unknown));
            let first = count(listed.first);
            step(subject, StepEvent::ItemsListed { first, items: items.collect::<Result<_, _>>()? })
        }
        Kind::StepItemsCollected(collected) => {
            let output = payload_from(collected.output, "the outputs of entries").map_err(unknown)?;
            step(subject, StepEvent::ItemsCollected { output })
        }
        Kind::StepSkipRequested(skip) => step(subject, StepEvent::SkipRequested { reason: skip.reason }),
        Kind::StepOutputSet(set) => {
            let output = json(set.output, "the output of a step").map_err(unknown)?;
            step(subject, StepEvent::OutputSet { output, reason: set.reason })
        }
        Kind::StepConversationCarriedOver(carried) => {
            let v1::StepConversationCarriedOver { conversation, turns, layers, spent, reason } = carried;
            let conversation = payload_from(conversation, "a conversation").map_err(unknown)?;
            let turns = u32::try_from(turns).unwrap_or(0);
            let layers = layers.map(super::approval::carried_from);
            let spent = spent.map(amounts_from).unwrap_or_default();
            step(subject, StepEvent::ConversationCarriedOver { conversation, turns, layers, spent, reason })
        }
        Kind::StepRetryAdvanced(advanced) => step(subject, StepEvent::RetryAdvanced { reason: advanced.reason }),
        Kind::StepRetryCancelled(cancelled) => step(subject, StepEvent::RetryCancelled { reason: cancelled.reason }),
        Kind::ToolCallRequested(request) => requested(subject, call::requested_from(request).map(Work::ToolCall)),
        Kind::ToolCallDispatched(_) => operation(subject, OperationEvent::Dispatched),
        Kind::ToolCallEffectProposed(proposed) => held(subject, proposed.need, SubjectKind::Effect),
        Kind::ToolCallApprovalRequired(required) => held(subject, required.need, SubjectKind::Call),
        Kind::ToolCallCompleted(completed) => call_ended(subject, call::completed_from(completed)),
        Kind::ToolCallFailed(failed) => call_ended(subject, call::failed_from(failed)),
        Kind::ToolCallDenied(denied) => call_ended(subject, call::denied_from(denied)),
        Kind::ToolCallCancelled(cancelled) => call_ended(subject, call::cancelled_from(cancelled)),
        Kind::ToolCallOutcomeUnknown(unknown) => call_ended(subject, call::outcome_unknown_from(unknown)),
        // Output is transient, and never stored.
        Kind::ToolCallOutput(_) => Err(DecodeError::UnknownKind(sequence)),
        Kind::ApprovalRequested(v1::ApprovalRequested { approval: name, subject_digest }) => {
            operation(subject, OperationEvent::Asked { approval: name, subject_digest })
        }
        Kind::ApprovalDecided(decided) => {
            let decision = known(decided.decision, "the decision of an approval").map_err(unknown)?;
            let decision = decided_from(decision).ok_or_else(|| lacks("its decision"))?;
            let (name, reason) = (decided.approval, decided.reason);
            operation(subject, OperationEvent::Decided { approval: name, decision, reason })
        }
        Kind::ChildStarted(started) => requested(subject, child::started_from(started).map(Work::Child)),
        Kind::ChildCreated(v1::ChildCreated {}) => {
            operation(subject, OperationEvent::Reported(OperationReport::ChildCreated))
        }
        Kind::ChildPaused(paused) => operation(subject, OperationEvent::Reported(child::paused_from(paused))),
        Kind::ChildEnded(end) => ended(subject, child::ended_from(end)),
        Kind::WaitStarted(started) => requested(subject, wait::started_from(started).map(Work::Wait)),
        Kind::WaitEnded(end) => ended(subject, wait::ended_from(end).map(OperationEnd::Wait)),
    }
}

fn skip_reason_from(reason: v1::SkipReason) -> Option<SkipReason> {
    Some(match reason {
        v1::SkipReason::Unspecified => return None,
        v1::SkipReason::DependencyFailed => SkipReason::DependencyFailed,
        v1::SkipReason::DependencySkipped => SkipReason::DependencySkipped,
        v1::SkipReason::ConditionFalse => SkipReason::ConditionFalse,
        v1::SkipReason::StopOnError => SkipReason::StopOnError,
        v1::SkipReason::Cancelled => SkipReason::Cancelled,
        v1::SkipReason::TimedOut => SkipReason::TimedOut,
        v1::SkipReason::ApprovalSkipped => SkipReason::ApprovalSkipped,
        v1::SkipReason::NonInteractive => SkipReason::NonInteractive,
        v1::SkipReason::Requested => SkipReason::Requested,
        v1::SkipReason::PlanUpdated => SkipReason::PlanUpdated,
        v1::SkipReason::NotListed => SkipReason::NotListed,
    })
}

#[cfg(test)]
mod tests;
