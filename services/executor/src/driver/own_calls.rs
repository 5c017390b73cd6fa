//! Calls that the executor carries out itself: it asks a step's model, and takes what the model says that the step has produced.

use std::{cell::Cell, sync::Arc};

use belay_defects::{Defect, is_planted};
use belay_execution::{
    ErrorClass, Failure, Json, OperationKey, Receipt, RequiredAction, StepKey, ToolCallEnd, ToolCallRequest,
};
use belay_plan::{COMPLETION_TOOL, JUDGE_TOOL};
use belay_reasons as reasons;

use super::{Driver, exit::Exit};
use crate::{
    models::{
        judge::Judging,
        turn::{ModelTurn, lost},
    },
    runners::{
        operation::{OperationHandle, Update},
        output::OutputForwarder,
    },
};

/// The end of a call of whose record a part was not read, which is read before calls start.
fn not_at_hand() -> ToolCallEnd {
    let message = "A part of what is recorded was not read before the call.";
    let failure = Failure::new(ErrorClass::Internal, reasons::INTERNAL, message);
    ToolCallEnd::Failed { failure, receipt: Box::new(Receipt::default()) }
}

impl Driver {
    /// Starts a call that the executor carries out itself.
    pub(super) fn start_own_call(&mut self, key: OperationKey, request: &ToolCallRequest, required: RequiredAction) {
        let (updates, registry) = (self.update_sender.clone(), Arc::clone(&self.registry));
        let end = match required {
            RequiredAction::Dispatch if request.tool == COMPLETION_TOOL => {
                Some(match self.arguments(&request.arguments) {
                    Some(arguments) => {
                        let result = Json::canonical(&arguments.value()["result"]).into();
                        ToolCallEnd::Completed { result, receipt: Box::new(Receipt::default()) }
                    }
                    None => not_at_hand(),
                })
            }
            // Whether the model was asked is not known, and what it answered is gone: it is asked again as any other that has failed for a while, and counted.
            RequiredAction::Dispatch if self.in_doubt.contains_key(&key) && !is_planted(Defect::LostTurnAskedAgain) => {
                Some(lost(&self.asked_model(key, request)))
            }
            RequiredAction::Dispatch => None,
            RequiredAction::RequestApproval
            | RequiredAction::Commit
            | RequiredAction::Pause
            | RequiredAction::Discard
            | RequiredAction::Cancel
            | RequiredAction::Kill => Some(ToolCallEnd::Cancelled { failure: None, grant_nonce: String::new() }),
        };
        // What is not at hand is no empty value: the model would be asked something else than what is recorded.
        let is_missing = Cell::new(false);
        let turns = match &end {
            Some(_) => Vec::new(),
            None if request.tool == JUDGE_TOOL => Vec::new(),
            None => self.execution.conversation(key.step, &|payload| {
                let json = self.arguments(payload);
                is_missing.set(is_missing.get() || json.is_none());
                json.map(|json| json.value()).unwrap_or_default()
            }),
        };
        let end = end.or_else(|| is_missing.get().then(not_at_hand));
        let is_judged = request.tool == JUDGE_TOOL;
        let arguments = self.arguments(&request.arguments).filter(|_| is_judged);
        let end = end.or_else(|| (is_judged && arguments.is_none()).then(not_at_hand));
        let task = match end {
            Some(end) => tokio::spawn(async move {
                // An error means that the driver has ended.
                let _ = updates.send(Update::Ended { operation: key, end, is_copied: false });
            }),
            None if is_judged => {
                let model = self.asked_model(key, request);
                let arguments = arguments.map(|arguments| arguments.value()).unwrap_or_default();
                tokio::spawn(Judging { registry, key, model, arguments, timeout: request.timeout, updates }.run())
            }
            None => {
                let (feed, id) = (Arc::clone(&self.feed), self.execution.operation_id(key));
                let output = OutputForwarder::new(feed, id, self.secrets.redactor().clone());
                let turn = ModelTurn { registry, key, turns, timeout: request.timeout, updates, output };
                tokio::spawn(turn.run())
            }
        };
        self.operations.insert(key, OperationHandle::new(required, task.abort_handle()));
    }

    /// The model that a call asks, by its name in the settings: a check can name one, and so can a turn.
    fn asked_model(&self, key: OperationKey, request: &ToolCallRequest) -> String {
        let arguments = self.arguments(&request.arguments).filter(|_| request.tool == JUDGE_TOOL);
        let named = arguments.and_then(|arguments| arguments.value()["model"].as_str().map(str::to_owned));
        let step = self.execution.step(key.step);
        named.unwrap_or_else(|| step.asked_model().unwrap_or_default().to_owned())
    }

    /// Gets what is recorded of a conversation that is about to go on, as far as it is in blobs.
    pub(super) async fn get_conversation(&mut self, turn: StepKey) -> Result<(), Exit> {
        let blobs =
            self.execution.recorded_conversation(turn).into_iter().filter_map(|payload| payload.blob().cloned());
        for blob in blobs.collect::<Vec<_>>() {
            self.get_original(&blob).await?;
        }
        Ok(())
    }
}
