//! Executions of steps' plans as messages.

use belay_execution::{Amounts, Child, ChildEnd, Execution, OperationEnd, OperationReport, StepView};
use belay_plan::{PlanDraft, PlanStep, Violation};
use belay_proto::v1::{self, child_ended::End, execution_event::Kind};

use super::super::{
    budget::{allotment_from, allotment_message, amounts_from, amounts_message},
    failure, failure_from, inline, json,
    plan::values::{json_from, violation},
    time, timestamp,
    unread::Unread,
};
use crate::names::ExecutionName;

pub(super) fn started_message(Child { execution, inputs, until, allotment }: &Child) -> v1::ChildStarted {
    v1::ChildStarted {
        execution_id: execution.clone(),
        inputs: Some(inline(inputs)),
        deadline_time: until.map(time),
        allotment: allotment.map(allotment_message),
    }
}

pub(in crate::wire) fn started_from(message: v1::ChildStarted) -> Result<Child, Unread> {
    let v1::ChildStarted { execution_id, inputs, deadline_time, allotment } = message;
    let inputs = json(inputs, "the inputs of a plan")?;
    let (until, allotment) = (deadline_time.as_ref().map(timestamp), allotment.map(allotment_from));
    Ok(Child { execution: execution_id, inputs, until, allotment })
}

pub(super) fn report_message(report: OperationReport) -> Kind {
    match report {
        OperationReport::ChildCreated => Kind::ChildCreated(v1::ChildCreated {}),
        OperationReport::ChildPaused => Kind::ChildPaused(v1::ChildPaused { resumed: false }),
        OperationReport::ChildResumed => Kind::ChildPaused(v1::ChildPaused { resumed: true }),
    }
}

pub(in crate::wire) fn paused_from(v1::ChildPaused { resumed }: v1::ChildPaused) -> OperationReport {
    if resumed { OperationReport::ChildResumed } else { OperationReport::ChildPaused }
}

pub(super) fn ended_message(end: &ChildEnd, spent: Option<Amounts>) -> v1::ChildEnded {
    let end = match end {
        ChildEnd::Completed { output } => End::Output(inline(output)),
        ChildEnd::Failed { failure: cause } => End::Failure(failure(cause)),
        ChildEnd::Cancelled => End::Cancelled(v1::ChildCancelled {}),
    };
    v1::ChildEnded { end: Some(end), spent: spent.map(amounts_message) }
}

pub(in crate::wire) fn ended_from(v1::ChildEnded { end, spent }: v1::ChildEnded) -> Result<OperationEnd, Unread> {
    let end = match end.ok_or(Unread::Lacks("its end"))? {
        End::Output(output) => ChildEnd::Completed { output: json(Some(output), "the output of a plan")? },
        End::Failure(failed) => ChildEnd::Failed { failure: failure_from(failed)? },
        End::Cancelled(v1::ChildCancelled {}) => ChildEnd::Cancelled,
    };
    Ok(OperationEnd::Child { end, spent: spent.map(amounts_from) })
}

/// The execution of a step's plan, for readers.
pub(super) fn detail(
    step: &PlanStep,
    name: &ExecutionName,
    execution: &Execution,
    view: StepView<'_>,
) -> v1::PlanStepDetail {
    let child = view.child(execution).map(|id| ExecutionName { namespace: name.namespace.clone(), id });
    let execution = child.map(|child| child.to_string()).unwrap_or_default();
    v1::PlanStepDetail { execution, plan_id: step.plan.id().to_owned() }
}

/// The plan of a step, read by `read`, and its inputs.
pub(super) fn draft_from(
    v1::PlanStep { plan, inputs }: v1::PlanStep,
    at: &dyn Fn(&str) -> String,
    violations: &mut Vec<Violation>,
    read: fn(v1::Plan) -> (PlanDraft, Vec<Violation>),
) -> (PlanDraft, serde_json::Value) {
    let plan = plan.unwrap_or_else(|| {
        violations.push(violation(at("plan.plan"), "is required: the plan that the step carries out"));
        v1::Plan::default()
    });
    let (plan, of_plan) = read(plan);
    let within = |violation: Violation| Violation { field: at(&format!("plan.{}", violation.field)), ..violation };
    violations.extend(of_plan.into_iter().map(within));
    let inputs = inputs.and_then(|inputs| inputs.content);
    let inputs = inputs.map(|inputs| json_from(inputs, at("inputs"), violations));
    (plan, inputs.unwrap_or_else(|| serde_json::json!({})))
}
