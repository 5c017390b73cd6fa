//! Changes of plans, and of what becomes of steps.

use belay_proto::v1::{self, step};
use rand::Rng;
use rand::rngs::StdRng;

use super::super::records::Observations;
use super::connection::Connection;
use super::states::to_fall_back;
use crate::trace;

/// Adds a step to the plan, and renames one that waits.
pub(super) async fn update(
    connection: &mut Connection,
    observed: &Observations,
    execution: &v1::Execution,
    request_id: String,
    random: &mut StdRng,
) {
    let Some(mut plan) = execution.plan.clone() else { return };
    let waits = |step: &v1::Step| step.state() == step::State::Pending && step.attempt == 0;
    if let Some(waiting) = execution.steps.iter().find(|step| waits(step))
        && let Some(step) = plan.steps.iter_mut().find(|step| step.id == waiting.step_id)
    {
        step.title = format!("revision {}", execution.plan_revision + 1);
    }
    let is_call = |step: &&v1::StepSpec| matches!(step.kind, Some(v1::step_spec::Kind::Tool(_)));
    let Some(like) = plan.steps.iter().find(is_call).cloned() else { return };
    let on = plan.steps[random.random_range(0..plan.steps.len())].id.clone();
    let kind = like.kind.map(|kind| match kind {
        v1::step_spec::Kind::Tool(tool) => {
            v1::step_spec::Kind::Tool(v1::ToolStep { arguments: Some(v1::Payload::of_json(r#"{"value":0}"#)), ..tool })
        }
        other => other,
    });
    let (id, depends_on) = (format!("s{}", plan.steps.len()), vec![on]);
    plan.steps.push(v1::StepSpec { id, depends_on, kind, ..v1::StepSpec::default() });
    let request = v1::UpdatePlanRequest {
        name: execution.name.clone(),
        source: Some(v1::update_plan_request::Source::Plan(plan)),
        revision: Some(execution.plan_revision),
        reason: "the seed said so".to_owned(),
        request_id: request_id.clone(),
        ..v1::UpdatePlanRequest::default()
    };
    for _ in 0..2 {
        let request = request.clone();
        let answer = connection.ask(|mut client| async move { client.update_plan(request).await });
        if let Some(execution) = answer.await {
            observed.acknowledged(&execution.name, request_id.clone());
            observed.saw(&execution);
        }
    }
}

/// Changes what becomes of a step that waits to start, or for its next attempt.
pub(super) async fn change(
    connection: &mut Connection,
    observed: &Observations,
    execution: &v1::Execution,
    request_id: String,
    random: &mut StdRng,
) {
    use step::State::{BackingOff, Pending, Ready};
    let can_change = |step: &&v1::Step| matches!(step.state(), Pending | Ready | BackingOff);
    let steps: Vec<&v1::Step> = execution.steps.iter().filter(can_change).collect();
    if steps.is_empty() {
        return;
    }
    let to_fall_back = to_fall_back(execution);
    let is_fallback = to_fall_back.is_some() && random.random_bool(0.7);
    let step = to_fall_back.filter(|_| is_fallback).unwrap_or(steps[random.random_range(0..steps.len())]);
    let (name, reason, id) = (step.name.clone(), "the seed said so".to_owned(), request_id.clone());
    let answer = match if is_fallback { 4 } else { random.random_range(0..4) } {
        0 => {
            let request = v1::SkipStepRequest { name, reason, request_id: id, etag: String::new() };
            connection.ask(|mut client| async move { client.skip_step(request).await }).await
        }
        1 => {
            let output = Some(v1::Payload::of_json(r#"{"run":0}"#));
            let request = v1::SetStepOutputRequest { name, output, reason, request_id: id, etag: String::new() };
            connection.ask(|mut client| async move { client.set_step_output(request).await }).await
        }
        change => {
            let change = match change {
                2 => v1::RetryChange::Now,
                3 => v1::RetryChange::Cancel,
                _ => v1::RetryChange::Fallback,
            };
            let change = change.into();
            let request = v1::RetryStepRequest { name, change, reason, request_id: id, etag: String::new() };
            connection.ask(|mut client| async move { client.retry_step(request).await }).await
        }
    };
    if let Some(execution) = answer {
        trace::count("steps changed by a person");
        observed.acknowledged(&execution.name, request_id);
        observed.saw(&execution);
    }
}
