//! The blobs of one execution, as its driver reads and writes them.

use std::{
    cell::{Cell, RefCell},
    mem,
    sync::Arc,
};

use belay_execution::{
    BlobRef, CallIdentity, DecideContext, Event, Execution, Json, OperationKey, Payload, Receipt, RequiredAction,
    Timestamp, ToolCallEnd, ToolCallRequest,
};
use belay_plan::MODEL_TOOL;
use serde_json::Value;

use super::{
    Driver, Exit,
    blob_context::{BlobContext, FoundResult, MissingData, ResolvedData},
    earlier_results::{EarlierResults, ResultWithOrigin},
};
use crate::{
    owned::registry::unwritable,
    runners::operation::{Large, ReportFault, SealedResult, Update},
    store::{
        blobs::{Opener, Unreadable, owner, unwritten},
        marks,
    },
};

impl Driver {
    /// Decides what can be decided now, and gets the blobs, evaluates the conditions and asks for the room that it takes.
    pub(super) async fn decide(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Result<(), Exit> {
        let mut resolved = ResolvedData::default();
        self.charge_namespace(events);
        loop {
            let missing = self.advance(now, &resolved, events);
            let gets_more = !missing.blobs.is_empty() || !missing.evaluations.is_empty() || !missing.calls.is_empty();
            let MissingData { blobs, evaluations, calls, room, usage, limits } = missing;
            if limits {
                resolved.limit_room = Some(self.limit_room().await?);
                continue;
            }
            if self.wants_namespace_amounts(usage, now).await? {
                continue;
            }
            match room {
                Some((_, steps)) if self.steps.ask(steps) => continue,
                Some((step, _)) => self.blockers.set_without_room(self.execution.step_key(&step), now),
                None => {
                    self.blockers.set_without_room(None, now);
                    self.steps.set(self.execution.steps().len());
                }
            }
            if !gets_more {
                return Ok(());
            }
            for blob in blobs {
                let value = match self.value(&blob).await {
                    Err(unreadable) if unreadable.is_temporary() => {
                        return Err(Exit::Unreadable(unreadable.status(&blob.digest)));
                    }
                    value => value.map_err(|unreadable| unreadable.to_string()),
                };
                resolved.blobs.insert(Arc::clone(&blob.digest), value);
            }
            for call in calls {
                let earlier = self.earlier_result(&call, now).await?;
                resolved.earlier.insert(call, earlier);
            }
            for evaluation in evaluations {
                let evaluate = move || {
                    let holds = evaluation.evaluate();
                    (evaluation.key, holds)
                };
                let (key, holds) = self.registry.reading.blobs.run_blocking(evaluate).await;
                resolved.evaluated.insert(key, holds);
            }
        }
    }

    /// The last result of the same call in an earlier execution of the same plan; `None` when there is none. Its secrets are this execution's from now on.
    async fn earlier_result(&mut self, call: &CallIdentity, now: Timestamp) -> Result<Option<FoundResult>, Exit> {
        let results = match self.earlier_results.take().filter(|results| results.is_fresh(now)) {
            Some(results) => results,
            None => {
                let asks = (self.key, self.parent, &self.execution);
                let found = EarlierResults::find(&self.registry.reads, &self.name, asks, now).await;
                found.map_err(Exit::Unreadable)?
            }
        };
        let Some(ResultWithOrigin { result, completed_at, origin }) = self.earlier_results.insert(results).get(call)
        else {
            return Ok(None);
        };
        let json = match &result {
            Payload::Inline(json) => json.clone(),
            Payload::Blob(blob) => {
                let Some(opener) = origin.opener() else { return Ok(None) };
                // The execution was deleted meanwhile, or its file cannot be read, which is no reason to hold up this one.
                let Ok(json) = self.registry.reading.blobs.original(&opener, blob).await else { return Ok(None) };
                json
            }
        };
        let facts = self.execution.tools().iter().find(|facts| facts.tool == call.tool);
        let marked = facts.map_or_else(Vec::new, |facts| marks::at(&facts.secret_result, &json));
        // All of them: a value may have one in any spelling.
        self.secrets.mark(origin.secrets.known().map(str::to_owned).collect::<Vec<_>>());
        self.secrets.mark(marked);
        Ok(Some(FoundResult { result: json, execution: origin.name.to_string(), completed_at }))
    }

    /// Decides what can be decided with what is known; returns what more would take.
    fn advance(&mut self, now: Timestamp, resolved: &ResolvedData, events: &mut Vec<Event>) -> MissingData {
        let ledger_id = Arc::clone(&self.ledger_id);
        let context = DecideContext { now, ledger_id: &ledger_id };
        self.with_at_hand(resolved, |execution, blob_context| {
            events.extend(execution.advance_with(context, blob_context));
            blob_context.missing.take()
        })
    }

    /// Does something with the execution that needs what is known, and may make new blobs.
    fn with_at_hand<T>(
        &mut self,
        resolved: &ResolvedData,
        work: impl FnOnce(&mut Execution, &BlobContext<'_>) -> T,
    ) -> T {
        let blob_context = BlobContext {
            steps: Cell::new(self.execution.steps().len()),
            room: self.steps.steps(),
            most_steps: self.steps.most(),
            uid: &self.uid,
            models: &self.registry.models,
            max_inline: self.registry.reading.thresholds.max_inline,
            resolved,
            secrets: RefCell::new(&mut self.secrets),
            made: RefCell::new(&mut self.made),
            missing: RefCell::default(),
            random: &|| self.registry.ids.next_key(),
            usage: RefCell::new(self.usage.pending.as_mut()),
            now: self.registry.now(),
        };
        work(&mut self.execution, &blob_context)
    }

    /// Learns the secrets that the tool's schema marks in the result of a call that has ended.
    pub(super) fn mark_result(&mut self, operation: OperationKey, end: &ToolCallEnd) {
        let ToolCallEnd::Completed { result: Payload::Inline(result), .. } = end else { return };
        let request = self.execution.operation(operation).and_then(|operation| operation.tool_call());
        let facts = request.and_then(|call| self.execution.tools().iter().find(|facts| facts.tool == call.tool));
        let marked = facts.map_or_else(Vec::new, |facts| marks::at(&facts.secret_result, result));
        self.secrets.mark(marked);
    }

    /// Hides and seals the result of a call apart from this task, when it is too large for an event: for the largest that takes seconds, in which
    /// other steps continue. The end of the call is recorded when it is sealed. Returns an end that can be recorded at once.
    pub(super) fn seal_if_large(
        &mut self,
        operation: OperationKey,
        end: ToolCallEnd,
        is_copied: bool,
    ) -> Option<ToolCallEnd> {
        match end {
            ToolCallEnd::Completed { result: Payload::Inline(result), receipt }
                if result.as_str().len() > self.registry.reading.thresholds.max_inline =>
            {
                self.seal_result(operation, result, *receipt, is_copied);
                None
            }
            end @ (ToolCallEnd::Completed { .. }
            | ToolCallEnd::Failed { .. }
            | ToolCallEnd::Denied { .. }
            | ToolCallEnd::Cancelled { .. }
            | ToolCallEnd::OutcomeUnknown { .. }) => Some(end),
        }
    }

    fn seal_result(&self, operation: OperationKey, result: Json, receipt: Receipt, is_copied: bool) {
        let (registry, uid, updates) = (Arc::clone(&self.registry), Arc::clone(&self.uid), self.update_sender.clone());
        let mut secrets = self.secrets.fork();
        tokio::spawn(async move {
            let _fault = ReportFault::new(&updates, operation);
            let ids = Arc::clone(&registry.ids);
            let seal = move || {
                let blob = secrets.blob(&uid, &result, &|| ids.next_key());
                SealedResult { operation, receipt, is_copied, large: Large { json: result, blob, secrets } }
            };
            let sealed = registry.reading.blobs.run_blocking(seal).await;
            // A driver that has ended gets the result from the runner again.
            let _ = updates.send(Update::ResultSealed(Box::new(sealed)));
        });
    }

    /// The end of a call whose result was sealed, and what is to be kept with it. `None` when the execution's secrets or its key have changed
    /// meanwhile: it is sealed again.
    pub(super) fn accept_sealed(&mut self, sealed: SealedResult) -> Option<(ToolCallEnd, Large)> {
        let SealedResult { operation, receipt, is_copied, large } = sealed;
        if !self.secrets.agrees(&large.secrets) {
            self.seal_result(operation, large.json, receipt, is_copied);
            return None;
        }
        let result = Payload::Blob(large.blob.reference.clone());
        Some((ToolCallEnd::Completed { result, receipt: Box::new(receipt) }, large))
    }

    /// Keeps a large result whose reference is in an event that is about to be stored.
    pub(super) fn keep(&mut self, large: Large) {
        let Large { json, blob, secrets } = large;
        self.secrets.join(secrets);
        self.made.originals.insert(Arc::clone(&blob.reference.digest), json);
        self.made.new.push(blob);
    }

    /// Makes the new blobs durable; their events are committed after that.
    pub(super) async fn write_blobs(&mut self) -> Result<(), Exit> {
        let new = mem::take(&mut self.made.new);
        if new.is_empty() {
            return Ok(());
        }
        self.registry.reading.blobs.write(owner(&self.name), new).await.map_err(|error| {
            let error = Arc::new(unwritten(&error));
            self.registry.fail(Arc::clone(&error));
            Exit::Lost(unwritable(&belay_group_commit::CommitError::Failed(error)))
        })
    }

    /// Gets the arguments of calls that are about to be sent.
    pub(super) async fn get_arguments(&mut self) -> Result<(), Exit> {
        let takes_more = |call: &Arc<ToolCallRequest>| call.arguments.blob().is_some() || call.tool == MODEL_TOOL;
        if !self.execution.operations().filter_map(|operation| operation.tool_call()).any(takes_more) {
            return Ok(());
        }
        for action in self.execution.actions() {
            let Some(call) = self.execution.operation(action.operation).and_then(|operation| operation.tool_call())
            else {
                continue;
            };
            let is_turn = call.tool == MODEL_TOOL;
            let blob = call.arguments.blob().cloned();
            let sends = match action.required {
                RequiredAction::Dispatch | RequiredAction::RequestApproval | RequiredAction::Commit => true,
                RequiredAction::Pause | RequiredAction::Cancel | RequiredAction::Kill | RequiredAction::Discard => {
                    false
                }
            };
            if !sends || self.is_under_way(action) {
                continue;
            }
            if is_turn {
                self.get_conversation(action.operation.step).await?;
            } else if let Some(blob) = blob {
                self.get_original(&blob).await?;
            }
        }
        Ok(())
    }

    /// Gets the original of a blob for the operations that are about to start.
    pub(super) async fn get_original(&mut self, blob: &BlobRef) -> Result<(), Exit> {
        match self.original(blob).await {
            Ok(json) => {
                self.made.originals.insert(Arc::clone(&blob.digest), json);
                Ok(())
            }
            Err(unreadable) if unreadable.is_temporary() => Err(Exit::Unreadable(unreadable.status(&blob.digest))),
            // The call may be running already, so that it cannot be said to have failed.
            Err(unreadable) => Err(Exit::Lost(unreadable.status(&blob.digest))),
        }
    }

    /// The arguments of a call for its operation. `None` for an operation that sends none, for which [`Self::get_arguments`] has not got them.
    pub(super) fn arguments(&self, arguments: &Payload) -> Option<Json> {
        match arguments {
            Payload::Inline(json) => Some(json.clone()),
            Payload::Blob(blob) => self.made.originals.get(&blob.digest).cloned(),
        }
    }

    /// The original of a blob.
    async fn original(&self, blob: &BlobRef) -> Result<Json, Unreadable> {
        match self.made.originals.get(&blob.digest) {
            Some(original) => Ok(original.clone()),
            None => self.registry.reading.blobs.original(&self.opener()?, blob).await,
        }
    }

    /// The value of a blob.
    async fn value(&self, blob: &BlobRef) -> Result<Value, Unreadable> {
        let Some(original) = self.made.originals.get(&blob.digest).cloned() else {
            return self.registry.reading.blobs.value(&self.opener()?, blob).await;
        };
        let parse = move || serde_json::from_str(original.as_str()).map_err(|_| Unreadable::NotJson);
        self.registry.reading.blobs.run_blocking(parse).await
    }

    fn opener(&self) -> Result<Opener, Unreadable> {
        let key = self.secrets.own_key().ok_or(Unreadable::Missing)?.clone();
        Ok(Opener { owner: owner(&self.name), uid: Arc::clone(&self.uid), key })
    }
}
