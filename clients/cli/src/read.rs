//! Reads executions with their steps. The contract's answers are small: outputs, and what failed calls printed last, come step by step.

use belay_proto::v1::{
    Execution, ExecutionView, GetExecutionRequest, GetStepRequest, ListStepsRequest, Step, StepView, step::State,
};
use tonic::Status;

use crate::{args::Format, connect::Client};

/// The most failed steps of which the screen says what their calls printed last.
const FAILED_IN_FULL: usize = 50;

/// An execution with its steps, as far as `format` shows them: for programs with all outputs, for people with what the calls of failed steps
/// printed last. Steps of an execution that runs may be shown in a later state than the execution.
pub(crate) async fn execution(client: &mut Client, name: &str, format: Format) -> Result<Execution, Status> {
    let request = GetExecutionRequest { name: name.to_owned(), view: ExecutionView::Full.into() };
    let mut execution = client.get_execution(request).await?.into_inner();
    match format {
        Format::Json | Format::Jsonl => execution.steps = steps(client, name).await?,
        Format::Text => {
            let has_failed = |step: &&mut Step| step.state() == State::Failed || !step.failed_attempts.is_empty();
            for found in execution.steps.iter_mut().filter(has_failed).take(FAILED_IN_FULL) {
                *found = step(client, &format!("{name}/steps/{}", found.step_id)).await?;
            }
        }
    }
    Ok(execution)
}

/// One step with its output. `name` is `namespaces/*/executions/*/steps/*`.
pub(crate) async fn step(client: &mut Client, name: &str) -> Result<Step, Status> {
    let request = GetStepRequest { name: name.to_owned(), view: StepView::Full.into() };
    Ok(client.get_step(request).await?.into_inner())
}

/// All steps with their outputs.
async fn steps(client: &mut Client, execution: &str) -> Result<Vec<Step>, Status> {
    let (mut steps, mut page_token) = (Vec::new(), String::new());
    loop {
        let view = StepView::Full.into();
        let request = ListStepsRequest { parent: execution.to_owned(), view, page_token, page_size: 1_000 };
        let page = client.list_steps(request).await?.into_inner();
        steps.extend(page.steps);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(steps);
        }
    }
}
