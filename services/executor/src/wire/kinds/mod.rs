//! The kinds of steps, and of the operations that do their work, as messages: a file each, with both directions.

mod agent;
pub(super) mod call;
pub(super) mod child;
pub(super) mod wait;

use belay_execution::{Execution, OperationEnd, OperationEvent, StepView, SubjectKind, Work};
use belay_plan::{PlanDraft, StepKind, StepKindDraft, Violation};
use belay_proto::v1::{self, execution_event, step, step_spec};

use super::{
    approval::{decision_to, requirement_to},
    plan::values::{arguments_from, violation},
};
use crate::names::ExecutionName;

/// An event of an operation.
pub(super) fn operation_message(event: &OperationEvent) -> execution_event::Kind {
    use execution_event::Kind;
    match event {
        OperationEvent::Requested(Work::ToolCall(request)) => Kind::ToolCallRequested(call::requested_message(request)),
        OperationEvent::Requested(Work::Wait(condition)) => Kind::WaitStarted(wait::started_message(condition)),
        OperationEvent::Requested(Work::Child(child)) => Kind::ChildStarted(child::started_message(child)),
        OperationEvent::Held(requirement) => {
            let need = Some(requirement_to(requirement));
            match requirement.kind {
                SubjectKind::Call => Kind::ToolCallApprovalRequired(v1::ToolCallApprovalRequired { need }),
                SubjectKind::Effect => Kind::ToolCallEffectProposed(v1::ToolCallEffectProposed { need }),
            }
        }
        OperationEvent::Asked { approval, subject_digest } => Kind::ApprovalRequested(v1::ApprovalRequested {
            approval: approval.clone(),
            subject_digest: subject_digest.clone(),
        }),
        OperationEvent::Decided { approval, decision, reason } => Kind::ApprovalDecided(v1::ApprovalDecided {
            approval: approval.clone(),
            decision: decision_to(*decision).into(),
            reason: reason.clone(),
        }),
        OperationEvent::Dispatched => Kind::ToolCallDispatched(v1::ToolCallDispatched {}),
        OperationEvent::Reported(report) => child::report_message(*report),
        OperationEvent::Ended(OperationEnd::ToolCall(end)) => call::ended_message(end),
        OperationEvent::Ended(OperationEnd::Wait(end)) => Kind::WaitEnded(wait::ended_message(end)),
        OperationEvent::Ended(OperationEnd::Child { end, spent }) => {
            Kind::ChildEnded(child::ended_message(end, *spent))
        }
    }
}

/// The work of a step, for readers.
pub(super) fn detail(name: &ExecutionName, execution: &Execution, view: StepView<'_>) -> step::Detail {
    let call = |tool: &str| step::Detail::Tool(v1::ToolStepDetail { tool: tool.to_owned() });
    match view.spec().kind() {
        StepKind::Tool(tool) => call(&view.call().unwrap_or(tool).tool),
        StepKind::Calls(listed) => match view.call() {
            Some(one) => call(&one.tool),
            None => step::Detail::Calls(v1::CallsStepDetail {
                tools: listed.calls().map(|call| call.tool.clone()).collect(),
            }),
        },
        StepKind::Agent(agent) => match view.call() {
            Some(one) => call(&one.tool),
            None => step::Detail::Agent(agent::detail(agent, execution, view)),
        },
        StepKind::Plan(plan) => step::Detail::Plan(child::detail(plan, name, execution, view)),
        StepKind::Wait(wait) => step::Detail::Wait(wait::detail(wait, view)),
    }
}

/// The work of a step of a plan, as its author wrote it; `plan` writes the plan of a step that carries one out. What the message of a call has beside the
/// draft, the step has.
pub(super) fn spec_message(
    kind: StepKindDraft,
    (exclusive, network): (bool, Option<String>),
    verbatim: Vec<String>,
    plan: fn(PlanDraft) -> v1::Plan,
) -> step_spec::Kind {
    use step_spec::Kind;
    let payload = |value: serde_json::Value| Some(v1::Payload::of_json(value.to_string()));
    match kind {
        StepKindDraft::Tool { tool, arguments } => {
            let network = network.unwrap_or_default();
            Kind::Tool(v1::ToolStep { tool, arguments: payload(arguments), exclusive, verbatim, network })
        }
        StepKindDraft::Calls { calls, effects } => {
            Kind::Calls(call::several_message(calls, effects, exclusive, network))
        }
        StepKindDraft::Agent { agent, effects } => {
            Kind::Agent(Box::new(agent::spec_message(agent, effects, exclusive, network)))
        }
        StepKindDraft::Plan { plan: carried_out, inputs } => {
            Kind::Plan(Box::new(v1::PlanStep { plan: Some(plan(*carried_out)), inputs: payload(inputs) }))
        }
        StepKindDraft::Wait { wait } => Kind::Wait(wait::spec_message(wait)),
    }
}

/// The work of a step of a plan, and what the step has of the message of a call.
pub(super) struct KindParts {
    pub(super) kind: StepKindDraft,
    pub(super) exclusive: bool,
    pub(super) network: Option<String>,
    pub(super) verbatim: Vec<String>,
}

/// Reads what [`spec_message`] writes. `at` is where a field of the step stands; `plan` reads the plan of a step that carries one out.
pub(super) fn draft_from(
    kind: Option<step_spec::Kind>,
    at: &dyn Fn(&str) -> String,
    violations: &mut Vec<Violation>,
    plan: fn(v1::Plan) -> (PlanDraft, Vec<Violation>),
) -> KindParts {
    use step_spec::Kind;
    let alone = |kind| KindParts { kind, exclusive: false, network: None, verbatim: Vec::new() };
    let named = |network: String| Some(network).filter(|name| !name.is_empty());
    match kind {
        Some(Kind::Tool(v1::ToolStep { tool, arguments, exclusive, verbatim, network })) => {
            let arguments = arguments_from(arguments, at("tool.arguments"), violations);
            KindParts { kind: StepKindDraft::Tool { tool, arguments }, exclusive, network: named(network), verbatim }
        }
        Some(Kind::Calls(v1::CallsStep { calls, exclusive, effects, network })) => {
            let (calls, effects) = call::several_from(calls, effects, at, violations);
            let kind = StepKindDraft::Calls { calls, effects };
            KindParts { kind, exclusive, network: named(network), verbatim: Vec::new() }
        }
        Some(Kind::Agent(step)) => {
            let (exclusive, network) = (step.exclusive, named(step.network.clone()));
            let (agent, effects) = agent::draft_from(*step, at, violations);
            KindParts { kind: StepKindDraft::Agent { agent, effects }, exclusive, network, verbatim: Vec::new() }
        }
        Some(Kind::Plan(step)) => {
            let (plan, inputs) = child::draft_from(*step, at, violations, plan);
            alone(StepKindDraft::Plan { plan: Box::new(plan), inputs })
        }
        Some(Kind::Wait(wait)) => alone(StepKindDraft::Wait { wait: wait::draft_from(wait, at, violations) }),
        None => {
            violations
                .push(violation(at("kind"), "a step needs a kind: set `tool`, `calls`, `agent`, `wait` or `plan`"));
            alone(StepKindDraft::Tool { tool: String::new(), arguments: serde_json::Value::Null })
        }
    }
}
