//! Reads executions with their steps. The contract's answers are small: outputs, and what failed calls printed last, come step by step.

use belay_proto::v1::{
    AuditEntry, BlobRef, Execution, ExecutionView, GetExecutionRequest, GetStepRequest, ListAuditEntriesRequest,
    ListStepsRequest, ListToolCallsRequest, Payload, ReadBlobRequest, Step, StepView, ToolCall, payload::Content,
    step::State,
};
use tonic::{Code, Status};

use crate::{args::Format, connect::Client};

/// The most failed steps of which the screen says what their calls printed last.
const FAILED_IN_FULL: usize = 50;

/// An execution with its steps, as far as `format` shows them: for programs with all outputs, for people with what the calls of failed steps
/// printed last. Steps of an execution that runs may be shown in a later state than the execution.
pub(crate) async fn execution(client: &mut Client, name: &str, format: Format) -> Result<Execution, Status> {
    let request = GetExecutionRequest { name: name.to_owned(), view: ExecutionView::Full.into() };
    let mut execution = client.get_execution(request).await?.into_inner();
    match format {
        Format::Json | Format::Jsonl => {
            execution.steps = steps(client, name).await?;
            if let Some(outputs) = &mut execution.outputs {
                with_value(client, name, outputs).await?;
            }
        }
        Format::Text => {
            let has_failed = |step: &&mut Step| step.state() == State::Failed || !step.failed_attempts.is_empty();
            for found in execution.steps.iter_mut().filter(has_failed).take(FAILED_IN_FULL) {
                *found = step(client, &format!("{name}/steps/{}", found.step_id)).await?;
            }
        }
    }
    Ok(execution)
}

/// Reads a step with its output. `name` is `namespaces/*/executions/*/steps/*`.
pub(crate) async fn step(client: &mut Client, name: &str) -> Result<Step, Status> {
    let request = GetStepRequest { name: name.to_owned(), view: StepView::Full.into() };
    let mut step = client.get_step(request).await?.into_inner();
    let execution = name.rsplit_once("/steps/").map_or("", |(execution, _)| execution);
    with_output(client, execution, &mut step).await?;
    Ok(step)
}

/// All calls of an execution, or of one of its steps.
pub(crate) async fn tool_calls(client: &mut Client, parent: &str) -> Result<Vec<ToolCall>, Status> {
    let (mut calls, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListToolCallsRequest { parent: parent.to_owned(), page_token, page_size: 1_000 };
        let page = client.list_tool_calls(request).await?.into_inner();
        calls.extend(page.tool_calls);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(calls);
        }
    }
}

/// The audit log of an execution, at the level that its plan says.
pub(crate) async fn audit_entries(client: &mut Client, execution: &str) -> Result<Vec<AuditEntry>, Status> {
    let mut entries = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListAuditEntriesRequest { parent: execution.to_owned(), page_token, ..Default::default() };
        let page = client.list_audit_entries(request).await?.into_inner();
        entries.extend(page.entries);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(entries);
        }
    }
}

/// Puts the value of a step's output in the place of a reference to a blob.
pub(crate) async fn with_output(client: &mut Client, execution: &str, step: &mut Step) -> Result<(), Status> {
    match &mut step.output {
        Some(output) => with_value(client, execution, output).await,
        None => Ok(()),
    }
}

/// Puts the value in the place of a reference to a blob.
pub(crate) async fn with_value(client: &mut Client, execution: &str, payload: &mut Payload) -> Result<(), Status> {
    if let Some(Content::Blob(blob)) = &payload.content {
        let value = blob_text(client, execution, blob).await?;
        payload.content = Some(Content::Json(value));
    }
    Ok(())
}

/// The value in a blob of an execution. A stream that breaks continues where it was, as long as it brings something.
async fn blob_text(client: &mut Client, execution: &str, blob: &BlobRef) -> Result<String, Status> {
    let digits = blob.digest.rsplit(':').next().unwrap_or_default();
    let name = format!("{execution}/blobs/{digits}");
    let mut bytes = Vec::new();
    loop {
        let before = bytes.len();
        let request = ReadBlobRequest { name: name.clone(), offset: i64::try_from(before).unwrap_or(i64::MAX) };
        let mut pieces = client.read_blob(request).await?.into_inner();
        let end = loop {
            match pieces.message().await {
                Ok(Some(piece)) => bytes.extend(piece.data),
                Ok(None) => break Ok(()),
                Err(status) => break Err(status),
            }
        };
        match end {
            Err(status) if status.code() == Code::Unavailable && bytes.len() > before => {}
            Err(status) => return Err(status),
            Ok(()) => break,
        }
    }
    String::from_utf8(bytes).map_err(|_| Status::data_loss(format!("the blob {} is not text", blob.digest)))
}

/// All steps with their outputs.
async fn steps(client: &mut Client, execution: &str) -> Result<Vec<Step>, Status> {
    let (mut steps, mut page_token) = (Vec::new(), String::new());
    loop {
        let view = StepView::Full.into();
        let request = ListStepsRequest { parent: execution.to_owned(), view, page_token, page_size: 1_000 };
        let mut page = client.list_steps(request).await?.into_inner();
        for step in &mut page.steps {
            with_output(client, execution, step).await?;
        }
        steps.extend(page.steps);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(steps);
        }
    }
}
