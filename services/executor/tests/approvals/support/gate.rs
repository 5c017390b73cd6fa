//! A gate at which the test decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
};

use belay_proto::{
    gate_v1::{self, approval_gate_service_server::ApprovalGateService, watch_decisions_response::Content},
    runner_v1,
    v1::{self, approval::State, approval_need::Kind},
};
use belay_service_kit::status;
use futures::Stream;
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status};

use super::{Runner, eventually};

/// The gate's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct GateState {
    pub(crate) approvals: BTreeMap<String, v1::Approval>,
    pub(crate) delivered: BTreeSet<String>,
    pub(crate) consumed: BTreeSet<String>,
    pub(crate) stale: BTreeSet<String>,
    pub(crate) cancelled: BTreeSet<String>,
    /// The deleted executions that it has forgotten, once for each request.
    pub(crate) forgotten: Vec<String>,
    pub(crate) modes: BTreeSet<i32>,
    pub(crate) grants: usize,
    /// Returns the current digest of a call, which the gate checks as the real one does.
    runner: Option<Runner>,
    /// Whether reports about the use of grants are lost.
    pub(crate) loses_outcomes: bool,
    /// Why it refuses every form.
    pub(crate) refuses_forms: Option<&'static str>,
    /// With what requests for approvals are refused: the code, the reason and the words.
    pub(crate) refuses_approvals: Option<(Code, &'static str, &'static str)>,
    /// The execution whose requests for forms are not answered for now.
    pub(crate) holds_forms_of: Option<String>,
    /// How many requests were held so, and how many of them were answered afterwards.
    pub(crate) held: usize,
    pub(crate) released: usize,
    /// Whether decisions and answers are not delivered for now.
    pub(crate) holds_decisions: bool,
    /// Whether no notice arrives: cancellations and acknowledgements.
    pub(crate) refuses_notices: bool,
    /// The decision of the policy in AUTO mode.
    pub(crate) policy: Option<State>,
    /// The number of requests to create an approval.
    pub(crate) created: usize,
    /// The state that a newer gate replies with.
    pub(crate) newer_state: Option<i32>,
    /// The answers to forms that are not acknowledged, by approval.
    pub(crate) answers: BTreeMap<String, String>,
    /// The subjects of forms, by approval.
    pub(crate) forms: BTreeMap<String, String>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

#[derive(Clone)]
pub(crate) struct Gate(watch::Sender<GateState>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(GateState::default()))
    }
}

impl Gate {
    pub(crate) fn seen(&self) -> GateState {
        self.0.borrow().clone()
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut GateState)) {
        self.0.send_modify(change);
    }

    /// Lets the gate read the subjects of calls from this runner.
    pub(crate) fn checks(&self, runner: &Runner) {
        self.set(|seen| seen.runner = Some(runner.clone()));
    }

    pub(crate) async fn until(&self, what: &str, is: impl Fn(&GateState) -> bool) -> GateState {
        eventually(self.0.subscribe(), what, is).await
    }

    /// The pending approval of a step, once there is one.
    pub(crate) async fn pending_approval(&self, step: &str) -> v1::Approval {
        let open = |seen: &GateState| {
            let mut all = seen.approvals.values();
            all.find(|approval| approval.step_id == step && approval.state() == State::Pending).cloned()
        };
        let seen = self.until(&format!("a question about {step}"), |seen| open(seen).is_some()).await;
        open(&seen).expect("just seen")
    }

    /// Loses all approvals, as when the store is lost.
    pub(crate) fn lose_store(&self) {
        self.set(|seen| seen.approvals.clear());
    }

    /// The person approves.
    pub(crate) fn approve(&self, name: &str) {
        self.decide(name, State::Approved, "");
    }

    /// The person answers a form.
    pub(crate) fn answer(&self, name: &str, answer: &str) {
        self.set(|seen| drop(seen.answers.insert(name.to_owned(), answer.to_owned())));
        self.decide(name, State::Answered, "");
    }

    /// The person decides.
    pub(crate) fn decide(&self, name: &str, state: State, reason: &str) {
        self.set(|seen| {
            let approval = seen.approvals.get_mut(name).expect("there is such a question");
            assert_eq!(approval.state(), State::Pending, "{name} is not open");
            approval.state = state.into();
            approval.decided_by = "ann".into();
            approval.decide_reason = reason.into();
        });
    }
}

fn unused() -> Status {
    Status::unimplemented("the executor does not ask for this")
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ApprovalGateService for Gate {
    type WatchDecisionsStream = Messages<gate_v1::WatchDecisionsResponse>;
    type WatchPolicyStream = Messages<gate_v1::WatchPolicyResponse>;

    async fn create_approval(
        &self,
        request: Request<gate_v1::CreateApprovalRequest>,
    ) -> Result<Response<v1::Approval>, Status> {
        let request = request.into_inner();
        let is_form = !request.form.is_empty();
        if let Some(why) = self.seen().refuses_forms.filter(|_| is_form) {
            return Err(status::error(Code::InvalidArgument, "INVALID_ARGUMENT", why).into());
        }
        if let Some((code, reason, why)) = self.seen().refuses_approvals.filter(|_| !is_form) {
            return Err(status::error(code, reason, why).into());
        }
        let checked = is_form
            || self
                .seen()
                .runner
                .is_none_or(|runner| runner.subject(&request.call).as_deref() == Some(request.subject_digest.as_str()));
        if !checked {
            let error = status::error(Code::FailedPrecondition, "SUBJECT_CHANGED", "The runner holds something else.");
            return Err(error.into());
        }
        let (execution, rest) = request.call.split_once("/steps/").expect("the name of a call");
        let (namespace, execution_id) = execution.split_once("/executions/").expect("the name of an execution");
        let (step, call) = rest.split_once("/calls/").expect("the name of a call");
        let changed = request.subject_digest.rsplit_once("-changed").map_or("", |_| "-changed");
        let kind = if request.subject_digest.contains("Effect") { "effect" } else { "call" };
        let name = format!("{namespace}/approvals/{execution_id}-{step}-{call}-{kind}{changed}");
        let is_held = |seen: &GateState| is_form && seen.holds_forms_of.as_deref() == Some(execution);
        let was_held = is_held(&self.seen());
        if was_held {
            self.set(|seen| seen.held += 1);
            self.until("the release of a request", |seen| !is_held(seen)).await;
        }
        let mut reply = v1::Approval::default();
        self.set(|seen| {
            seen.released += usize::from(was_held);
            seen.modes.insert(request.approval_mode);
            let policy = seen.policy.filter(|_| request.approval_mode() == v1::ApprovalMode::Auto);
            let approval = seen.approvals.entry(name.clone()).or_insert_with(|| v1::Approval {
                name,
                state: policy.unwrap_or(State::Pending).into(),
                kind: if is_form { Kind::Form } else { Kind::Unspecified }.into(),
                decided_by: policy.map(|_| "policy".to_owned()).unwrap_or_default(),
                execution: execution.to_owned(),
                step_id: step.to_owned(),
                call: request.call.clone(),
                subject_digest: request.subject_digest.clone(),
                requested_by: request.requested_by.clone(),
                ..v1::Approval::default()
            });
            // A lost answer is asked for again.
            if approval.state() == State::Answered && seen.delivered.remove(&approval.name) {
                approval.state = State::Pending.into();
            }
            reply = approval.clone();
            if is_form {
                seen.forms.insert(reply.name.clone(), String::from_utf8(request.form.clone()).expect("it is JSON"));
            }
            seen.created += 1;
            reply.state = seen.newer_state.unwrap_or(reply.state);
        });
        Ok(Response::new(reply))
    }

    async fn list_pending_approvals(
        &self,
        request: Request<gate_v1::ListPendingApprovalsRequest>,
    ) -> Result<Response<gate_v1::ListPendingApprovalsResponse>, Status> {
        let request = request.into_inner();
        let wanted = |approval: &&v1::Approval| {
            (request.execution.is_empty() || approval.execution == request.execution)
                && approval.state() == State::Pending
        };
        let approvals = self.0.borrow().approvals.values().filter(wanted).cloned().collect();
        Ok(Response::new(gate_v1::ListPendingApprovalsResponse { approvals, next_page_token: String::new() }))
    }

    async fn watch_decisions(
        &self,
        _: Request<gate_v1::WatchDecisionsRequest>,
    ) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        let mut reply = self.0.subscribe();
        reply.mark_changed();
        Ok(Response::new(Box::pin(async_stream::try_stream! {
            let mut sent = BTreeSet::new();
            while reply.changed().await.is_ok() {
                let decided: Vec<(v1::Approval, Option<v1::Payload>)> = {
                    let seen = reply.borrow_and_update();
                    let due = seen.approvals.values().filter(|approval| {
                        !seen.holds_decisions
                            && approval.state() != State::Pending
                            && approval.state() != State::Cancelled
                            && !seen.delivered.contains(&approval.name)
                            && !sent.contains(&approval.name)
                    });
                    let answer = |name| seen.answers.get(name).map(|answer| v1::Payload::of_json(answer.clone()));
                    due.map(|approval| (approval.clone(), answer(&approval.name))).collect()
                };
                for (approval, answer) in decided {
                    sent.insert(approval.name.clone());
                    yield gate_v1::WatchDecisionsResponse { content: Some(Content::Approval(approval)), answer };
                }
            }
        })))
    }

    async fn cancel_approval(
        &self,
        request: Request<gate_v1::CancelApprovalRequest>,
    ) -> Result<Response<v1::Approval>, Status> {
        let name = request.into_inner().name;
        if self.seen().refuses_notices {
            return Err(Status::unavailable("the gate is away"));
        }
        let mut reply = Err(status::error(Code::NotFound, "APPROVAL_NOT_FOUND", "There is none.").into());
        self.set(|seen| {
            if let Some(approval) = seen.approvals.get_mut(&name) {
                approval.state = State::Cancelled.into();
                seen.cancelled.insert(name);
                reply = Ok(approval.clone());
            }
        });
        reply.map(Response::new)
    }

    async fn acknowledge_approvals(
        &self,
        request: Request<gate_v1::AcknowledgeApprovalsRequest>,
    ) -> Result<Response<gate_v1::AcknowledgeApprovalsResponse>, Status> {
        let request = request.into_inner();
        if self.seen().refuses_notices
            || self.seen().loses_outcomes && !(request.consumed.is_empty() && request.stale.is_empty())
        {
            return Err(Status::unavailable("the gate is away"));
        }
        self.set(|seen| {
            request.delivered.iter().for_each(|name| drop(seen.answers.remove(name)));
            seen.delivered.extend(request.delivered);
            seen.delivered.extend(request.consumed.iter().chain(&request.stale).cloned());
            seen.consumed.extend(request.consumed);
            seen.stale.extend(request.stale);
        });
        Ok(Response::new(gate_v1::AcknowledgeApprovalsResponse {}))
    }

    async fn forget_executions(
        &self,
        request: Request<gate_v1::ForgetExecutionsRequest>,
    ) -> Result<Response<gate_v1::ForgetExecutionsResponse>, Status> {
        let executions = request.into_inner().executions;
        self.set(|seen| {
            seen.approvals.retain(|_, approval| !executions.contains(&approval.execution));
            seen.forgotten.extend(executions);
        });
        Ok(Response::new(gate_v1::ForgetExecutionsResponse {}))
    }

    async fn get_grant(
        &self,
        request: Request<gate_v1::GetGrantRequest>,
    ) -> Result<Response<runner_v1::Grant>, Status> {
        let name = request.into_inner().approval;
        self.set(|seen| seen.grants += 1);
        let state = self.0.borrow().approvals.get(&name).map(v1::Approval::state);
        match state {
            Some(State::Approved | State::Consumed) => Ok(Response::new(runner_v1::Grant {
                body: name.into_bytes(),
                signature: vec![0; 64],
                key_id: "key".into(),
            })),
            None => Err(status::error(Code::NotFound, "APPROVAL_NOT_FOUND", "There is none.").into()),
            Some(state) => Err(status::error(Code::FailedPrecondition, "NOT_APPROVED", "Nobody has approved it.")
                .with("state", state.as_str_name())
                .into()),
        }
    }

    async fn watch_policy(
        &self,
        _: Request<gate_v1::WatchPolicyRequest>,
    ) -> Result<Response<Self::WatchPolicyStream>, Status> {
        Err(unused())
    }

    async fn get_verification_keys(
        &self,
        _: Request<gate_v1::GetVerificationKeysRequest>,
    ) -> Result<Response<gate_v1::GetVerificationKeysResponse>, Status> {
        Err(unused())
    }
}
