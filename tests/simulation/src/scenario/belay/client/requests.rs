//! Requests about one execution.

use belay_proto::v1;
use rand::Rng;
use rand::rngs::StdRng;

use super::super::picture::Depth;
use super::super::plans;
use super::super::records::Observations;
use super::connection::{Connection, RPC_TIMEOUT};
use crate::trace;

pub(super) async fn look(connection: &mut Connection, name: &str, random: &mut StdRng) -> Option<v1::Execution> {
    let name = name.to_owned();
    let execution = if random.random_bool(0.2) {
        let longest_wait = Some(belay_proto::duration(RPC_TIMEOUT / 2));
        let request = v1::WaitExecutionRequest { name, longest_wait };
        let answer = connection.ask(|mut client| async move { client.wait_execution(request).await });
        answer.await?
    } else {
        let view = v1::ExecutionView::Full.into();
        let request = v1::GetExecutionRequest { name, view };
        let answer = connection.ask(|mut client| async move { client.get_execution(request).await });
        answer.await?
    };
    connection.observed.saw(&execution);
    if random.random_bool(0.3) {
        with_outputs(connection, &execution).await;
    }
    Some(execution)
}

/// The execution with the outputs of its steps, when it is still in this state.
pub(in super::super) async fn with_outputs(
    connection: &mut Connection,
    execution: &v1::Execution,
) -> Option<v1::Execution> {
    let view = v1::StepView::Full.into();
    let request = v1::ListStepsRequest { parent: execution.name.clone(), page_size: 1_000, view, ..Default::default() };
    let answer = connection.ask(|mut client| async move { client.list_steps(request).await });
    let page = answer.await.filter(|page| page.last_sequence == execution.last_sequence)?;
    let whole = v1::Execution { steps: page.steps, ..execution.clone() };
    connection.observed.saw_to(&whole, Depth::Outputs);
    Some(whole)
}

/// To have what did not complete run again.
pub(super) fn retry_request(name: &str, request_id: String, random: &mut StdRng) -> v1::RetryExecutionRequest {
    v1::RetryExecutionRequest {
        name: name.to_owned(),
        skip_failed: random.random_bool(0.2),
        start_paused: random.random_bool(0.1),
        reason: "the seed said so".to_owned(),
        request_id,
        ..v1::RetryExecutionRequest::default()
    }
}

/// Sends it twice. Returns it when there is no answer.
pub(super) async fn retry(
    connection: &mut Connection,
    observed: &Observations,
    request: v1::RetryExecutionRequest,
) -> Option<v1::RetryExecutionRequest> {
    let mut is_known = false;
    for _ in 0..2 {
        let again = request.clone();
        let answer = connection.ask(|mut client| async move { client.retry_execution(again).await });
        let answer = answer.await;
        is_known |= answer.is_some() || connection.is_refused;
        if let Some(execution) = answer {
            observed.acknowledged(&request.name, request.request_id.clone());
            observed.saw(&execution);
        }
    }
    (!is_known).then_some(request)
}

pub(super) async fn cancel(connection: &mut Connection, observed: &Observations, name: &str, request_id: String) {
    let request = v1::CancelExecutionRequest {
        name: name.to_owned(),
        reason: "the seed said so".to_owned(),
        request_id: request_id.clone(),
        ..v1::CancelExecutionRequest::default()
    };
    let answer = connection.ask(|mut client| async move { client.cancel_execution(request).await });
    if let Some(execution) = answer.await {
        trace::count("cancellations");
        observed.acknowledged(name, request_id);
        observed.saw(&execution);
    }
}

/// The same signal twice, with one request id: one of them counts.
pub(super) async fn signal(connection: &mut Connection, observed: &Observations, name: &str, request_id: String) {
    let payload = v1::payload::Content::Json(r#"{"run":0}"#.to_owned());
    let request = v1::SignalExecutionRequest {
        name: name.to_owned(),
        signal: plans::SIGNAL.to_owned(),
        payload: Some(v1::Payload { content: Some(payload) }),
        request_id: request_id.clone(),
    };
    for _ in 0..2 {
        let request = request.clone();
        let answer = connection.ask(|mut client| async move { client.signal_execution(request).await });
        if let Some(execution) = answer.await {
            trace::count("signals");
            observed.acknowledged(name, request_id.clone());
            observed.saw(&execution);
        }
    }
}

/// Says what a call did whose outcome is unknown.
pub(super) async fn resolve(
    connection: &mut Connection,
    observed: &Observations,
    step: &v1::Step,
    request_id: String,
    random: &mut StdRng,
) {
    let (resolution, result) = match random.random_range(0..3) {
        0 => (v1::StepResolution::Completed, Some(v1::Payload::of_json(r#"{"run":0}"#))),
        1 => (v1::StepResolution::Failed, None),
        _ => (v1::StepResolution::Again, None),
    };
    let request = v1::ResolveStepRequest {
        name: step.name.clone(),
        resolution: resolution.into(),
        result,
        reason: "the seed said so".to_owned(),
        request_id: request_id.clone(),
        ..v1::ResolveStepRequest::default()
    };
    let answer = connection.ask(|mut client| async move { client.resolve_step(request).await });
    if let Some(execution) = answer.await {
        trace::count("unknown outcomes resolved");
        observed.acknowledged(&execution.name, request_id);
        observed.saw(&execution);
    }
}

pub(super) async fn suspend(
    connection: &mut Connection,
    observed: &Observations,
    name: &str,
    request_id: String,
    discard_calls: bool,
) {
    let request = v1::PauseExecutionRequest {
        name: name.to_owned(),
        reason: "the seed said so".to_owned(),
        request_id: request_id.clone(),
        discard_calls,
        ..v1::PauseExecutionRequest::default()
    };
    let answer = connection.ask(|mut client| async move { client.pause_execution(request).await });
    if let Some(execution) = answer.await {
        trace::count("pauses");
        observed.acknowledged(name, request_id);
        observed.saw(&execution);
    }
}

pub(super) async fn resume(connection: &mut Connection, observed: &Observations, name: &str, request_id: String) {
    let request = v1::ResumeExecutionRequest {
        name: name.to_owned(),
        request_id: request_id.clone(),
        ..v1::ResumeExecutionRequest::default()
    };
    let answer = connection.ask(|mut client| async move { client.resume_execution(request).await });
    if let Some(execution) = answer.await {
        trace::count("resumptions");
        observed.acknowledged(name, request_id);
        observed.saw(&execution);
    }
}
