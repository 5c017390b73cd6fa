use std::sync::Arc;

use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::{Code, Status};

use super::list_executions::page_size;
use crate::{
    ExecutionRegistry,
    journal_reads::{undecodable, unreadable},
    names::{ExecutionName, execution_or_step},
    secrets::shown,
    tool_calls::ToolCalls,
    wire,
};

/// How many bytes of calls a page has, unless one call alone has more.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

pub(super) async fn list_tool_calls(
    registry: &Arc<ExecutionRegistry>,
    request: v1::ListToolCallsRequest,
) -> Result<v1::ListToolCallsResponse, Status> {
    let (name, step) = execution_or_step("parent", &request.parent)?;
    let size = page_size(request.page_size, 100)?;
    // The token is the number of the event with the last request on the pages before.
    let mut cursor: u64 = match request.page_token.as_str() {
        "" => 0,
        token => token.parse().map_err(|_| {
            Status::from(status::invalid("page_token", "is not one that this method returned: begin without one"))
        })?,
    };
    let looked = registry.follower.look(&name, |seen| {
        let has_step = step.as_ref().is_none_or(|step| seen.execution.step_key(step).is_some());
        has_step.then(|| seen.redactor())
    });
    let redactor = looked.await?.ok_or_else(|| no_step(&name, step.as_deref().unwrap_or_default(), &request.parent))?;
    let key = registry.follower.find(&name).await?.key;
    let page = registry.thresholds.watch_page.max(1);
    let mut calls = ToolCalls::new(name.to_string(), step, size);
    while !calls.is_whole() {
        let read = registry.follower.read(move |reader| reader.read(key, cursor, page)).await;
        let transitions = read.map_err(|error| unreadable(&error))?;
        let Some(last) = transitions.last() else { break };
        let from = cursor;
        cursor = last.last_sequence();
        for transition in &transitions {
            let messages = wire::decode_all(transition).map_err(|error| undecodable(&error, &registry.vault))?;
            let later = |sequence| u64::try_from(sequence).is_ok_and(|sequence| sequence > from);
            // As they are shown: the originals of secrets are not needed.
            let about_operations = messages.into_iter().filter(|event| event.operation > 0 && later(event.sequence));
            for event in wire::to_events(about_operations, |_| None) {
                calls.apply(&event.map_err(|error| undecodable(&error, &registry.vault))?);
            }
        }
    }
    let (calls, next) = calls.page(MAX_PAGE_BYTES);
    Ok(v1::ListToolCallsResponse {
        tool_calls: calls.into_iter().map(|call| shown(&redactor, call)).collect(),
        next_page_token: next.map(|next| next.to_string()).unwrap_or_default(),
    })
}

/// The error of a step that an execution does not have.
pub(super) fn no_step(name: &ExecutionName, step: &str, parent: &str) -> Status {
    let message = format!("Execution `{}` has no step `{step}`.", name.id);
    status::error(Code::NotFound, reasons::STEP_NOT_FOUND, message).with("name", parent).into()
}
