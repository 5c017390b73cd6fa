//! Calls of tools as messages.

use std::sync::Arc;

use belay_execution::{OperationEvent, SubjectKind, ToolCallEnd, ToolCallRequest};
use belay_plan::{CallDraft, CheckPlace, Effects, Violation};
use belay_proto::v1::{self, execution_event::Kind};

use super::super::{
    NotUnderstood,
    approval::{layers_from, layers_to, network_from, network_to, receipt_from, receipt_to, requirement_from},
    budget::{amounts, amounts_from, namespace_hold, namespace_hold_from},
    duration, failure, failure_from, known, payload, payload_from,
    plan::values::{arguments_from, violation},
    unread::Unread,
};

pub(super) fn requested_message(request: &ToolCallRequest) -> v1::ToolCallRequested {
    v1::ToolCallRequested {
        tool: request.tool.clone(),
        arguments: Some(payload(&request.arguments)),
        arguments_digest: request.arguments_digest.clone(),
        ledger_id: request.ledger_id.clone(),
        timeout: Some(belay_proto::duration(request.timeout)),
        check: request.check.map(check_place),
        held: amounts(request.held),
        layers: request.layers.as_ref().map(layers_to),
        namespace_hold: request.namespace_hold.map(namespace_hold),
    }
}

pub(in crate::wire) fn requested_from(message: v1::ToolCallRequested) -> Result<Arc<ToolCallRequest>, Unread> {
    Ok(Arc::new(ToolCallRequest {
        tool: message.tool,
        arguments: payload_from(message.arguments, "the arguments of the call")?,
        arguments_digest: message.arguments_digest,
        ledger_id: message.ledger_id,
        timeout: duration(message.timeout),
        check: check_place_from(message.check)?,
        held: message.held.map(amounts_from).unwrap_or_default(),
        layers: message.layers.map(layers_from).transpose()?,
        namespace_hold: message.namespace_hold.map(namespace_hold_from).transpose()?,
    }))
}

/// The approval that a held call waits for.
pub(in crate::wire) fn held_from(need: Option<v1::ApprovalNeed>, kind: SubjectKind) -> Result<OperationEvent, Unread> {
    let need = need.ok_or(Unread::Lacks("what is to be decided"))?;
    Ok(OperationEvent::Held(Box::new(requirement_from(need, kind)?)))
}

pub(super) fn ended_message(end: &ToolCallEnd) -> Kind {
    match end {
        ToolCallEnd::Completed { result, receipt } => Kind::ToolCallCompleted(v1::ToolCallCompleted {
            result: Some(payload(result)),
            receipt: Some(Box::new(receipt_to(receipt))),
        }),
        ToolCallEnd::Failed { failure: cause, receipt } => Kind::ToolCallFailed(v1::ToolCallFailed {
            failure: Some(failure(cause)),
            receipt: Some(Box::new(receipt_to(receipt))),
        }),
        ToolCallEnd::Denied { failure: cause, receipt } => Kind::ToolCallDenied(v1::ToolCallDenied {
            failure: Some(failure(cause)),
            receipt: Some(Box::new(receipt_to(receipt))),
        }),
        ToolCallEnd::Cancelled { failure: cause, grant_nonce } => Kind::ToolCallCancelled(v1::ToolCallCancelled {
            failure: cause.as_ref().map(failure),
            grant_nonce: grant_nonce.clone(),
        }),
        ToolCallEnd::OutcomeUnknown { failure: cause, grant_nonce, network } => {
            let (failure, grant_nonce) = (Some(failure(cause)), grant_nonce.clone());
            let network = network.as_deref().map(network_to);
            Kind::ToolCallOutcomeUnknown(v1::ToolCallOutcomeUnknown { failure, grant_nonce, network })
        }
    }
}

pub(in crate::wire) fn completed_from(message: v1::ToolCallCompleted) -> Result<ToolCallEnd, Unread> {
    let result = payload_from(message.result, "the result of the call")?;
    Ok(ToolCallEnd::Completed { result, receipt: Box::new(receipt_from(*message.receipt.unwrap_or_default())?) })
}

pub(in crate::wire) fn failed_from(message: v1::ToolCallFailed) -> Result<ToolCallEnd, Unread> {
    let failure = required_failure(message.failure)?;
    Ok(ToolCallEnd::Failed { failure, receipt: Box::new(receipt_from(*message.receipt.unwrap_or_default())?) })
}

pub(in crate::wire) fn denied_from(message: v1::ToolCallDenied) -> Result<ToolCallEnd, Unread> {
    let failure = required_failure(message.failure)?;
    Ok(ToolCallEnd::Denied { failure, receipt: Box::new(receipt_from(*message.receipt.unwrap_or_default())?) })
}

pub(in crate::wire) fn cancelled_from(message: v1::ToolCallCancelled) -> Result<ToolCallEnd, Unread> {
    let failure = message.failure.map(failure_from).transpose()?;
    Ok(ToolCallEnd::Cancelled { failure, grant_nonce: message.grant_nonce })
}

pub(in crate::wire) fn outcome_unknown_from(message: v1::ToolCallOutcomeUnknown) -> Result<ToolCallEnd, Unread> {
    let failure = required_failure(message.failure)?;
    let network = message.network.map(network_from).transpose()?.map(Box::new);
    Ok(ToolCallEnd::OutcomeUnknown { failure, grant_nonce: message.grant_nonce, network })
}

fn required_failure(failure: Option<v1::Failure>) -> Result<belay_execution::Failure, Unread> {
    Ok(failure_from(failure.ok_or(Unread::Lacks("its failure"))?)?)
}

/// A call that is not the step's own: one of several, one that takes the place of the step's, or one that undoes what that has done.
pub(in crate::wire) fn other_message(CallDraft { tool, arguments, verbatim }: CallDraft) -> v1::ToolStep {
    let arguments = Some(v1::Payload::of_json(arguments.to_string()));
    v1::ToolStep { tool, arguments, exclusive: false, verbatim, network: String::new() }
}

/// Reads what [`other_message`] writes; `field` is where it stands.
pub(in crate::wire) fn other_from(call: v1::ToolStep, field: &str, violations: &mut Vec<Violation>) -> CallDraft {
    if call.exclusive {
        let message = "is for the step, and holds for this call as well: remove it";
        violations.push(violation(format!("{field}.exclusive"), message));
    }
    if !call.network.is_empty() {
        let message = "is for the step, and holds for this call as well: remove it";
        violations.push(violation(format!("{field}.network"), message));
    }
    let arguments = arguments_from(call.arguments, format!("{field}.arguments"), violations);
    CallDraft { tool: call.tool, arguments, verbatim: call.verbatim }
}

/// How what the calls of a step change becomes the workspace's.
pub(super) fn effects_message(effects: Effects) -> v1::calls_step::Effects {
    match effects {
        Effects::PerCall => v1::calls_step::Effects::Unspecified,
        Effects::PerStep => v1::calls_step::Effects::PerStep,
    }
}

/// Reads what [`effects_message`] writes; `field` is where it stands.
pub(super) fn effects_from(effects: i32, field: impl Fn() -> String, violations: &mut Vec<Violation>) -> Effects {
    match v1::calls_step::Effects::try_from(effects) {
        Ok(v1::calls_step::Effects::Unspecified | v1::calls_step::Effects::PerCall) => Effects::PerCall,
        Ok(v1::calls_step::Effects::PerStep) => Effects::PerStep,
        Err(_) => {
            let message = "is not a value that this version knows: use EFFECTS_PER_CALL or EFFECTS_PER_STEP";
            violations.push(violation(field(), message));
            Effects::default()
        }
    }
}

pub(super) fn several_message(
    calls: Vec<CallDraft>,
    effects: Effects,
    exclusive: bool,
    network: Option<String>,
) -> v1::CallsStep {
    let effects = effects_message(effects);
    let calls = calls.into_iter().map(other_message).collect();
    v1::CallsStep { calls, exclusive, effects: effects.into(), network: network.unwrap_or_default() }
}

/// The calls of a step that makes several, and how what they change becomes the workspace's.
pub(super) fn several_from(
    calls: Vec<v1::ToolStep>,
    effects: i32,
    at: &dyn Fn(&str) -> String,
    violations: &mut Vec<Violation>,
) -> (Vec<CallDraft>, Effects) {
    let effects = effects_from(effects, || at("calls.effects"), violations);
    let read = |(place, call)| other_from(call, &at(&format!("calls[{place}]")), violations);
    (calls.into_iter().enumerate().map(read).collect(), effects)
}

fn check_place(place: CheckPlace) -> v1::CheckPlace {
    use v1::check_place::When;
    let (when, position) = match place {
        CheckPlace::Before(position) => (When::Before, position),
        CheckPlace::After(position) => (When::After, position),
    };
    v1::CheckPlace { when: when.into(), position: i32::try_from(position).unwrap_or(i32::MAX) }
}

fn check_place_from(place: Option<v1::CheckPlace>) -> Result<Option<CheckPlace>, NotUnderstood> {
    use v1::check_place::When;
    let Some(place) = place else { return Ok(None) };
    let position = usize::try_from(place.position).map_err(|_| NotUnderstood::Missing("the position of a check"))?;
    match known(place.when, "the place of a check")? {
        When::Before => Ok(Some(CheckPlace::Before(position))),
        When::After => Ok(Some(CheckPlace::After(position))),
        When::Unspecified => Err(NotUnderstood::Missing("the place of a check")),
    }
}
