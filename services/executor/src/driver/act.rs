//! Actions of a driver after each decision.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_execution::{
    Action, Child, ChildPause, OperationKey, OperationKind, RecoveryClass, RequiredAction, StepKey, Timestamp,
    WaitCondition,
};
use belay_journal::ParentStep;
use belay_plan::{PlanStep, StepKind, is_own_tool, limits::MAX_DESCRIPTION_CHARS};
use belay_proto::{gate_v1, v1};
use belay_service_kit::Retry;
use belay_telemetry::TraceContext;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Span;

use super::{
    Driver, RequestingAgain,
    child::{ChildOperation, InheritedAttributes},
};
use crate::{
    approvals::{form_request::create_request, request_again::RequestAgain},
    names::ExecutionName,
    owned::messages::GateNotice,
    runners::{operation::ToolCallOperation, output::OutputForwarder},
    wire,
};

impl Driver {
    /// Starts the operations that the execution needs now, and aborts the others. A cancellation always runs to its end, since it returns
    /// how the call ended; unless the call is to be killed, which returns the same.
    pub(super) fn act(&mut self) -> Option<Timestamp> {
        let actions = self.execution.actions();
        let wanted: BTreeMap<OperationKey, RequiredAction> =
            actions.iter().map(|action| (action.operation, action.required)).collect();
        self.operations.retain(|call, operation| {
            let wanted = wanted.get(call).copied();
            wanted == Some(operation.required) || operation.required.stops() && wanted != Some(RequiredAction::Kill)
        });
        let operations = &self.operations;
        self.blockers.retain_busy(|call| operations.get(call).is_some_and(|operation| !operation.required.stops()));
        for action in actions {
            if !self.is_under_way(action) {
                self.start_operation(action.operation, action.required);
            }
        }
        self.tell_replies();
        self.execution.wake_at()
    }

    /// Whether an operation in flight does this. One with another purpose is about to be replaced, unless it cancels the call.
    pub(super) fn is_under_way(&self, action: Action) -> bool {
        let under_way = self.operations.get(&action.operation);
        under_way.is_some_and(|operation| {
            operation.required == action.required
                || operation.required.stops() && action.required != RequiredAction::Kill
        })
    }

    fn start_operation(&mut self, key: OperationKey, required: RequiredAction) {
        let in_flight = self.execution.operation(key).expect("actions name operations in flight only");
        let created = self.execution.created();
        let id = self.execution.operation_id(key);
        let mut name = wire::call_name(&self.execution_name, &id);
        if is_planted(Defect::DoubleDispatch) && self.in_doubt.contains_key(&key) {
            name.push_str("00");
        }
        if let Some(asking) = self.form_request(key, &name) {
            return drop(self.operations.insert(key, asking.start()));
        }
        if let OperationKind::Child { child, created, pause } = &in_flight.kind {
            let (child, created, pause) = (child.clone(), *created, *pause);
            self.child_operations += 1;
            let operation = self.child_operation(key, child, created, pause);
            return drop(self.operations.insert(key, operation.start(required)));
        }
        let request = Arc::clone(in_flight.tool_call().expect("only forms, plans and calls of tools need something"));
        if required.stops()
            && let Some(pending) = in_flight.pending_approval.as_ref().filter(|pending| pending.decided.is_none())
        {
            self.registry.notify_gate(match pending.approval.clone() {
                Some(approval) => GateNotice::Cancel(approval),
                None => GateNotice::Withdraw { execution: self.execution_name.clone(), call: name.clone() },
            });
        }
        if is_own_tool(&request.tool) {
            return self.start_own_call(key, &request, required);
        }
        let operation = ToolCallOperation {
            registry: Arc::clone(&self.registry),
            key,
            name,
            namespace: self.name.namespace.clone(),
            workspace: created.workspace.clone(),
            context: self.execution.context(),
            trace: self.trace.call(&id),
            arguments: self.arguments(&request.arguments),
            request,
            // Without facts no call is requested; the worst is assumed all the same.
            recovery: self.execution.recovery(key).unwrap_or(RecoveryClass::Manual),
            exclusive: self.execution.step(key.step).spec().exclusive(),
            network: self.execution.network(key).map(str::to_owned),
            pending_approval: in_flight.pending_approval.clone(),
            mode: created.approval_mode,
            principal: self.execution.principal().to_owned(),
            request_reason: if required == RequiredAction::RequestApproval {
                self.request_reason(key.step)
            } else {
                String::new()
            },
            fence: self.registry.runner_fence(created.shard),
            maybe_sent: required.stops() || self.in_doubt.contains_key(&key),
            updates: self.update_sender.clone(),
            output: OutputForwarder::new(Arc::clone(&self.feed), id, self.secrets.redactor().clone()),
            retry: Retry::RPC,
            is_busy: false,
            is_copied: false,
            failed_copies: 0,
            waited_for_name: Duration::ZERO,
            has_warned: false,
            delay: match self.blockers.waits_for_machine(key.step) {
                true => machine_delay(self.execution.calls_for_purpose(key)),
                false => Duration::ZERO,
            },
            log_span: Span::current(),
        };
        self.operations.insert(key, operation.start(required));
    }

    fn child_operation(&self, key: OperationKey, child: Child, is_created: bool, pause: ChildPause) -> ChildOperation {
        let created = self.execution.created();
        let step = self.execution.step(key.step);
        let StepKind::Plan(PlanStep { plan, .. }) = step.spec().kind() else {
            unreachable!("only a step with a plan has a child")
        };
        let (namespace, mut id) = (self.name.namespace.clone(), child.execution.clone());
        if is_planted(Defect::DoubleDispatch) && self.in_doubt.contains_key(&key) {
            id.push('0');
        }
        ChildOperation {
            registry: Arc::clone(&self.registry),
            key,
            number: self.child_operations,
            parent: ParentStep {
                execution: self.key,
                execution_id: self.name.id.clone(),
                step_id: step.id().to_string(),
            },
            parent_step: format!("{}/steps/{}", self.execution_name, step.id()),
            name: ExecutionName { namespace, id },
            child,
            is_created,
            may_be_paused: pause != ChildPause::Runs,
            discards_calls: self.execution.discards_calls(),
            plan: Arc::clone(plan),
            inherited: InheritedAttributes {
                approval_mode: created.approval_mode,
                workspace: created.workspace.clone(),
                labels: created.labels.clone(),
                principal: self.execution.principal().to_owned(),
                trace: self.trace.attempt(step.id(), key.attempt),
                tree: Arc::clone(self.steps.tree()),
            },
            updates: self.update_sender.clone(),
        }
    }

    /// Requests from the gate what it lacks of what the execution asks, and withdraws what nothing waits for. `pending` is what the gate has. A
    /// gate that lost its store creates an approval again under the same name; for one that was decided meanwhile it returns the decision.
    pub(super) fn compare_approvals(&mut self, pending: &[v1::Approval], turn: Arc<OwnedSemaphorePermit>) {
        let asked: BTreeSet<(&str, &str)> =
            pending.iter().map(|approval| (approval.call.as_str(), approval.subject_digest.as_str())).collect();
        let mut wanted = BTreeSet::new();
        for operation in self.execution.operations() {
            if let Some(subject_digest) = operation.asked_subject() {
                let id = self.execution.operation_id(operation.key);
                wanted.insert((wire::call_name(&self.execution_name, &id), subject_digest.to_owned()));
            }
        }
        for approval in pending {
            if !wanted.contains(&(approval.call.clone(), approval.subject_digest.clone())) {
                tracing::info!(approval = approval.name, "Nothing waits for an approval; it is cancelled");
                self.notices.push(GateNotice::Cancel(approval.name.clone()));
            }
        }
        let requests: Vec<_> = self.execution.requested_approvals().filter_map(|key| self.request_of(key)).collect();
        let is_missing = |request: &gate_v1::CreateApprovalRequest| {
            !asked.contains(&(request.call.as_str(), request.subject_digest.as_str()))
        };
        let missing: Vec<_> = requests.into_iter().filter(|(_, request, _)| is_missing(request)).collect();
        if missing.is_empty() {
            return;
        }
        let (registry, updates) = (Arc::clone(&self.registry), self.update_sender.clone());
        let number = self.requesting_again.as_ref().map_or(0, |again| again.number.wrapping_add(1));
        let keys = missing.iter().map(|(key, ..)| *key).collect();
        let operation = RequestAgain { registry, number, missing, turn, updates }.start();
        self.requesting_again = Some(RequestingAgain { number, missing: keys, _operation: operation });
    }

    /// The request for an approval or an answer that is pending.
    fn request_of(&self, key: OperationKey) -> Option<(OperationKey, gate_v1::CreateApprovalRequest, TraceContext)> {
        let operation = self.execution.operation(key)?;
        let id = self.execution.operation_id(key);
        let (call, requested_by) = (wire::call_name(&self.execution_name, &id), self.execution.principal().to_owned());
        let request = match (operation.pending_approval.as_ref(), operation.wait().and_then(WaitCondition::form)) {
            (Some(pending), _) => gate_v1::CreateApprovalRequest {
                call,
                subject_digest: pending.requirement.subject_digest.clone(),
                requested_by,
                approval_mode: wire::approval_mode_to(self.execution.created().approval_mode).into(),
                form: Vec::new(),
                request_reason: self.request_reason(key.step),
                fencing_token: self.registry.fence,
            },
            (None, Some(form)) => create_request(call, form, requested_by, self.registry.fence),
            (None, None) => return None,
        };
        Some((key, request, self.trace.call(&id)))
    }

    /// The reason for the step's calls, in its author's words, as people are shown them: at most as many characters as the gate takes. A title has no limit
    /// of its own, and what redaction puts in place of a secret may be longer. Before them stands which model makes the call, where one does: the author does not know its calls.
    fn request_reason(&self, step: StepKey) -> String {
        let view = self.execution.step(step);
        let spec = view.spec();
        let words = if spec.description().is_empty() { spec.title() } else { spec.description() };
        let caller = view
            .called_by(&self.execution)
            .map(|(model, turn)| format!("the model `{model}` asks for it in turn {turn}"));
        let words = [caller.as_deref().unwrap_or_default(), words];
        let words = words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ");
        let shown = self.secrets.shown(words);
        match shown.chars().nth(MAX_DESCRIPTION_CHARS) {
            None => shown,
            Some(_) => shown.chars().take(MAX_DESCRIPTION_CHARS - 1).chain(['…']).collect(),
        }
    }

    /// The execution in BASIC view: the answer to a request that changed it. Everything else that is read comes from the feed's view.
    pub(super) fn summarize(&self) -> Box<v1::Execution> {
        let mut summary = self.secrets.summarize(&self.name, &self.execution);
        summary.waiting.extend(self.blockers.reasons().execution.iter().map(wire::blocker));
        Box::new(summary)
    }

    /// Shows readers the reasons for waiting that are in no event.
    pub(super) fn publish_waits(&mut self) {
        let waits = self.blockers.reasons();
        if waits != self.shown_waits {
            self.feed.set_waits(waits.clone());
            self.shown_waits = waits;
        }
    }
}

/// The delay before the call with this number, when the machine could not carry out the previous one: doubles from a second to a minute.
fn machine_delay(number: u32) -> Duration {
    Duration::from_secs(1 << number.saturating_sub(2).min(6)).min(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_for_a_machine_doubles_from_a_second_to_a_minute() {
        // The first call had none before it.
        let seconds = [2, 3, 4, 5, 6, 7, 8, 9, 66, u32::MAX].map(|number| machine_delay(number).as_secs());
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
    }
}
