//! Predicates that find events.

use belay_execution::{Body, ExecutionEvent, OperationEvent, StepEvent, ToolCallEnd, Work};

pub(crate) fn paused(body: &Body) -> bool {
    matches!(body, Body::Execution(ExecutionEvent::Paused { .. }))
}

pub(crate) fn cancel_requested(body: &Body) -> bool {
    matches!(body, Body::Execution(ExecutionEvent::CancelRequested { .. }))
}

pub(crate) fn step_started(body: &Body) -> bool {
    matches!(body, Body::Step { event: StepEvent::Started, .. })
}

pub(crate) fn retry_scheduled(body: &Body) -> bool {
    matches!(body, Body::Step { event: StepEvent::RetryScheduled { .. }, .. })
}

pub(crate) fn call_requested(body: &Body) -> bool {
    matches!(body, Body::Operation { event: OperationEvent::Requested(Work::ToolCall(_)), .. })
}

pub(crate) fn held(body: &Body) -> bool {
    matches!(body, Body::Operation { event: OperationEvent::Held(_), .. })
}

pub(crate) fn dispatched(body: &Body) -> bool {
    matches!(body, Body::Operation { event: OperationEvent::Dispatched, .. })
}

pub(crate) fn call_completed(body: &Body) -> bool {
    matches!(body.call_end(), Some((_, ToolCallEnd::Completed { .. })))
}

pub(crate) fn approval_requested(body: &Body) -> bool {
    matches!(body, Body::Operation { event: OperationEvent::Asked { .. }, .. })
}

pub(crate) fn decided(body: &Body) -> bool {
    matches!(body, Body::Operation { event: OperationEvent::Decided { .. }, .. })
}

pub(crate) fn wait_requested(body: &Body) -> bool {
    matches!(body, Body::Operation { event: OperationEvent::Requested(Work::Wait(_)), .. })
}

pub(crate) fn child_requested(body: &Body) -> bool {
    matches!(body, Body::Operation { event: OperationEvent::Requested(Work::Child(_)), .. })
}
