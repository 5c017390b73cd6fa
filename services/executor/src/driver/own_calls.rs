//! Calls that the executor carries out itself: it asks a step's model, and takes what the model says that the step has produced.

use std::sync::Arc;

use belay_execution::{Json, OperationKey, Receipt, RequiredAction, StepKey, ToolCallEnd, ToolCallRequest};
use belay_plan::COMPLETION_TOOL;
use serde_json::Value;

use super::{Driver, exit::Exit};
use crate::{
    models::turn::{ModelTurn, lost},
    runners::operation::{OperationHandle, Update},
};

impl Driver {
    /// Starts a call that the executor carries out itself.
    pub(super) fn start_own_call(&mut self, key: OperationKey, request: &ToolCallRequest, required: RequiredAction) {
        let (updates, registry) = (self.update_sender.clone(), Arc::clone(&self.registry));
        let end = match required {
            RequiredAction::Dispatch if request.tool == COMPLETION_TOOL => {
                let arguments = self.arguments(&request.arguments).map(|json| json.value()).unwrap_or_default();
                let result = Json::canonical(&arguments["result"]).into();
                Some(ToolCallEnd::Completed { result, receipt: Receipt::default() })
            }
            // Whether the model was asked is not known, and what it answered is gone: it is asked again as any other that has failed for a while, and counted.
            RequiredAction::Dispatch if self.in_doubt.contains_key(&key) => {
                Some(lost(self.execution.step(key.step).spec().agent().map_or("", |agent| agent.model())))
            }
            RequiredAction::Dispatch => None,
            RequiredAction::RequestApproval
            | RequiredAction::Commit
            | RequiredAction::Pause
            | RequiredAction::Discard
            | RequiredAction::Cancel
            | RequiredAction::Kill => Some(ToolCallEnd::Cancelled { failure: None, grant_nonce: String::new() }),
        };
        let task = match end {
            Some(end) => tokio::spawn(async move {
                // An error means that the driver has ended.
                let _ = updates.send(Update::Ended { operation: key, end, is_copied: false });
            }),
            None => {
                let turns = self.execution.conversation(key.step, &|payload| {
                    self.arguments(payload).map(|json| json.value()).unwrap_or(Value::Null)
                });
                tokio::spawn(ModelTurn { registry, key, turns, timeout: request.timeout, updates }.run())
            }
        };
        self.operations.insert(key, OperationHandle::new(required, task.abort_handle()));
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
