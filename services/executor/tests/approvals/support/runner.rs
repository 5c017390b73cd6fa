//! A tool runner with one tool, `work`, which acts as its arguments say.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
};

use belay_proto::{
    runner_v1::{self, call_tool_response::Event, tool_runner_service_server::ToolRunnerService},
    session::ReceivedRequest,
    v1::{self, approval_need::Kind, tool_call::State},
};
use belay_service_kit::status;
use data_encoding::HEXLOWER;
use futures::Stream;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, Streaming};

use super::{eventually, session};

pub(super) type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The runner's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunnerState {
    calls: BTreeMap<String, runner_v1::ToolCall>,
    /// The names of the calls that ran, once for each run.
    pub(crate) worked: Vec<String>,
    /// The names of the calls whose effects were committed, once for each commit.
    pub(crate) committed: Vec<String>,
    pub(crate) discarded: Vec<String>,
    /// The deleted executions that it has forgotten, once for each request.
    pub(crate) forgotten: Vec<String>,
    /// The folders in which calls were made, by the execution; those of named directories are left out.
    pub(crate) folders: Vec<(String, String)>,
    /// The folders that it was to remove.
    pub(crate) removed_folders: Vec<String>,
    /// The execution whose directory is in use, so that it cannot be forgotten.
    pub(crate) in_use: Option<String>,
    pub(crate) traces: BTreeSet<String>,
    /// The number of requests to commit.
    pub(crate) asked_to_commit: usize,
    /// The number of requests to run a call.
    pub(crate) asked_to_run: usize,
    /// Whether every commit is refused.
    pub(crate) refuses_commits: bool,
    /// Whether every grant is refused.
    /// How many more grants it refuses because of the time.
    pub(crate) clock_is_wrong: usize,
    pub(crate) refuses_grants: bool,
    /// The arguments of calls, by name.
    pub(crate) arguments: BTreeMap<String, Value>,
    /// The results of the calls of a step; other calls complete.
    pub(crate) results: BTreeMap<String, Value>,
    /// The failures of the calls of a step.
    pub(crate) failures: BTreeMap<String, String>,
    /// The output of the calls of a step, in chunks; other calls write two words.
    pub(crate) words: BTreeMap<String, Vec<String>>,
    /// The rule's reason for requiring approval.
    pub(crate) reason: String,
    /// How many calls of a step conflict with another commit, from the first on.
    pub(crate) conflicts: BTreeMap<String, u32>,
    /// How many calls of a step fail while another call commits, from the first on.
    pub(crate) fail_beside: BTreeMap<String, u32>,
    /// The exclusive call for whose end other calls wait, if there is one.
    pub(crate) exclusive_call: Option<String>,
    /// The exclusive calls.
    pub(crate) exclusive: BTreeSet<String>,
    /// How many more streams break after the first chunk of output.
    pub(crate) breaks_streams: usize,
    /// The acknowledged calls.
    pub(crate) acknowledged: BTreeSet<String>,
    /// Whether acknowledgements are lost, as by a runner that is killed before it has stored them.
    pub(crate) loses_acknowledgements: bool,
    /// How many more acknowledgements are refused.
    pub(crate) refuses_acknowledgements: usize,
    /// Distinguishes the ledgers that it has had.
    pub(crate) ledger: usize,
    /// How many calls it refused that were meant for another ledger.
    pub(crate) meant_for_another: usize,
    /// The steps whose calls do not end: the stream stays open.
    pub(crate) stuck: BTreeSet<String>,
    /// Whether it has no sessions, as a runner that others wrote may have none.
    pub(crate) has_no_sessions: bool,
    /// The number of sessions that have begun.
    pub(crate) sessions: usize,
    /// How many more calls it refuses, and how.
    pub(crate) refuses_calls: (usize, Option<fn() -> Status>),
    /// Whether its tool only reads.
    pub(crate) only_reads: bool,
    /// Whether results of more than 32 KiB are references, as the contract has it.
    pub(crate) references: bool,
    /// The requests for results: the call and the offset.
    pub(crate) copies: Vec<(String, i64)>,
    /// The requests for results of calls that were acknowledged before.
    pub(crate) late_copies: usize,
    /// How many more copies break after the first piece.
    pub(crate) breaks_copies: usize,
    /// How many more copies have a wrong byte at their end.
    pub(crate) spoils_copies: usize,
    /// How many more copies find no result.
    pub(crate) loses_results: usize,
    /// Whether copies stop after the first piece, and stay open.
    pub(crate) holds_copies: bool,
    /// The reply about a call that a newer runner gives instead.
    pub(crate) newer_reply: Option<fn(&mut runner_v1::ToolCall)>,
}

impl RunnerState {
    /// The calls that have ended and were not acknowledged.
    pub(crate) fn unacknowledged(&self) -> Vec<String> {
        let ended = |call: &runner_v1::ToolCall| !matches!(call.state(), State::Unspecified | State::AwaitingApproval);
        let calls = self.calls.iter().filter(|(name, call)| ended(call) && !self.acknowledged.contains(*name));
        calls.map(|(name, _)| name.clone()).collect()
    }
}

impl RunnerState {
    fn ledger_id(&self) -> String {
        match self.ledger {
            0 => "ledger".into(),
            number => format!("ledger-{number}"),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Runner(watch::Sender<RunnerState>);

impl Default for Runner {
    fn default() -> Self {
        Self(watch::Sender::new(RunnerState::default()))
    }
}

impl Runner {
    pub(crate) fn seen(&self) -> RunnerState {
        self.0.borrow().clone()
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut RunnerState)) {
        self.0.send_modify(change);
    }

    pub(crate) async fn until(&self, what: &str, is: impl Fn(&RunnerState) -> bool) -> RunnerState {
        eventually(self.0.subscribe(), what, is).await
    }

    /// Loses all calls, and has another ledger from now on.
    pub(crate) fn replace_ledger(&self) {
        self.set(|seen| {
            seen.calls.clear();
            seen.ledger += 1;
        });
    }

    /// Changes the subject of a held call.
    pub(crate) fn change_subject(&self, call: &str) {
        self.set(|seen| {
            let need = seen.calls.get_mut(call).and_then(|call| call.approval_need.as_mut()).expect("it is held");
            need.subject_digest.push_str("-changed");
        });
    }

    /// The current digest of a held call.
    pub(crate) fn subject(&self, call: &str) -> Option<String> {
        self.0.borrow().calls.get(call)?.approval_need.as_ref().map(|need| need.subject_digest.clone())
    }

    /// A call as it leaves the runner.
    fn shown(&self, mut call: runner_v1::ToolCall) -> runner_v1::ToolCall {
        let seen = self.seen();
        if let Some(json) = result_text(&call).filter(|json| seen.references && json.len() > 32 << 10) {
            let blob = v1::BlobRef {
                digest: digest_of(json),
                size_bytes: i64::try_from(json.len()).expect("it is in memory"),
                media_type: "application/json".into(),
                redacted: false,
            };
            call.result = Some(v1::Payload { content: Some(v1::payload::Content::Blob(blob)) });
        }
        if let Some(change) = seen.newer_reply {
            change(&mut call);
        }
        call
    }

    fn work(&self, request: runner_v1::CallToolRequest) -> runner_v1::ToolCall {
        let Some(v1::payload::Content::Json(arguments)) = request.arguments.clone().unwrap_or_default().content else {
            panic!("arguments are JSON")
        };
        let arguments: Value = serde_json::from_str(&arguments).unwrap();
        let is = |key: &str| arguments.get(key).is_some();
        let name = request.name.clone();
        let mut reply = None;
        self.set(|seen| {
            seen.asked_to_run += 1;
            seen.arguments.insert(name.clone(), arguments.clone());
            seen.traces.extend(request.trace.map(|trace| trace.traceparent));
            let granted = request.grant.is_some();
            let known = seen.calls.get(&name).cloned();
            let may_run = known.as_ref().is_none_or(|call| granted && need_kind(call) == Some(Kind::Call));
            let mut call = known.unwrap_or_else(|| runner_v1::ToolCall {
                name: name.clone(),
                tool: "work".into(),
                receipt: Some(Box::new(v1::Receipt { ledger_id: "ledger".into(), ..v1::Receipt::default() })),
                ..runner_v1::ToolCall::default()
            });
            if may_run {
                let granted = if granted { "nonce" } else { "" };
                call.receipt.get_or_insert_default().grant_nonce = granted.into();
                call.approval_need = None;
                if is("prompt_call") && granted.is_empty() {
                    hold(&mut call, Kind::Call);
                } else if is("deny") {
                    call.state = State::Denied.into();
                    call.failure = Some(failure(v1::ErrorClass::PolicyDenied, "POLICY_DENIED"));
                } else if is("fails_once") && name.ends_with("/1.1") {
                    call.state = State::Failed.into();
                    call.failure = Some(failure(v1::ErrorClass::Transient, "TOOL_FAILED"));
                } else {
                    seen.worked.push(name.clone());
                    if is("effect") {
                        hold(&mut call, Kind::Effect)
                    } else {
                        complete(&mut call)
                    }
                    let step = step_of(&name);
                    if let Some(result) = seen.results.get(step) {
                        call.result = Some(json(result));
                    }
                    if let Some(message) = seen.failures.get(step) {
                        call.state = State::Failed.into();
                        let failed = failure(v1::ErrorClass::Fatal, "TOOL_FAILED");
                        let quota = v1::QuotaState { name: message.clone(), limit: 60, ..Default::default() };
                        let mut failed = v1::Failure {
                            message: message.clone(),
                            metadata: [("detail".to_owned(), message.clone())].into(),
                            retry_after: Some(pbjson_types::Duration { seconds: 30, nanos: 0 }),
                            quota: Some(quota),
                            ..failed
                        };
                        for _ in 0..6 {
                            failed = v1::Failure { cause: Some(Box::new(failed.clone())), ..failed };
                        }
                        call.failure = Some(failed);
                    }
                    let number: u32 = name.rsplit('.').next().unwrap().parse().unwrap();
                    if seen.conflicts.get(step).is_some_and(|conflicts| number <= *conflicts) {
                        call.state = State::Cancelled.into();
                        let message = "`f` was committed meanwhile by another.".into();
                        call.failure = Some(v1::Failure { message, ..failure(v1::ErrorClass::Cancelled, "CONFLICT") });
                    }
                    if seen.fail_beside.get(step).is_some_and(|fail| number <= *fail) {
                        call.state = State::Failed.into();
                        call.failure = Some(failure(v1::ErrorClass::Fatal, "TOOL_FAILED"));
                        let receipt = call.receipt.get_or_insert_default();
                        (receipt.concurrent_commits, receipt.concurrent_commit_count) = (vec!["another".into()], 3);
                    }
                }
                if let Some(decision) = call.approval_need.as_mut().and_then(|need| need.decision.as_mut()) {
                    decision.reason.push_str(&seen.reason);
                }
                seen.calls.insert(name, call.clone());
            }
            reply = Some(call);
        });
        reply.expect("just set")
    }
}

fn need_kind(call: &runner_v1::ToolCall) -> Option<Kind> {
    call.approval_need.as_ref().map(v1::ApprovalNeed::kind)
}

fn failure(class: v1::ErrorClass, reason: &str) -> v1::Failure {
    v1::Failure { error_class: class.into(), reason: reason.into(), message: "no".into(), ..v1::Failure::default() }
}

fn complete(call: &mut runner_v1::ToolCall) {
    call.state = State::Completed.into();
    call.result = Some(json(&serde_json::json!({"done": true})));
}

fn json(value: &Value) -> v1::Payload {
    v1::Payload { content: Some(v1::payload::Content::Json(value.to_string())) }
}

/// The result of a call as JSON text.
fn result_text(call: &runner_v1::ToolCall) -> Option<&str> {
    call.result.as_ref()?.as_json()
}

fn digest_of(text: &str) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(text)))
}

fn step_of(call: &str) -> &str {
    call.split("/steps/").nth(1).and_then(|rest| rest.split('/').next()).expect("the name of a call")
}

fn hold(call: &mut runner_v1::ToolCall, kind: Kind) {
    let decision = v1::PolicyDecision {
        verdict: v1::policy_decision::Verdict::Prompt.into(),
        rule: "writes".into(),
        reason: "files change".into(),
        policy_revision: 7,
    };
    let modified = v1::path_change::Kind::Modified.into();
    let change = v1::PathChange { path: "a.txt".into(), kind: modified, ..v1::PathChange::default() };
    let effect = v1::EffectSummary { modified: 1, changes: vec![change], ..v1::EffectSummary::default() };
    call.state = State::AwaitingApproval.into();
    call.approval_need = Some(v1::ApprovalNeed {
        kind: kind.into(),
        subject_digest: format!("sha256:{} {kind:?}", call.name),
        decision: Some(decision),
        effect: Some(effect),
        risk: v1::Risk::Medium.into(),
        allowing_rules: vec!["{id: allow-a, on: effect, decide: auto}".to_owned()],
    });
}

fn not_found(name: &str) -> Status {
    status::error(Code::NotFound, "CALL_NOT_FOUND", format!("There is no call {name}.")).into()
}

fn unused() -> Status {
    Status::unimplemented("the executor does not ask for this")
}

#[tonic::async_trait]
impl ToolRunnerService for Runner {
    async fn check_calls(
        &self,
        _: Request<runner_v1::CheckCallsRequest>,
    ) -> Result<Response<runner_v1::CheckCallsResponse>, Status> {
        Ok(Response::new(runner_v1::CheckCallsResponse::default()))
    }

    async fn answer_tool_call(
        &self,
        _: Request<runner_v1::AnswerToolCallRequest>,
    ) -> Result<Response<runner_v1::AnswerToolCallResponse>, Status> {
        Err(unused())
    }

    type SessionStream = Messages<runner_v1::SessionResponse>;

    async fn session(
        &self,
        request: Request<Streaming<ReceivedRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if self.seen().has_no_sessions {
            return Err(unused());
        }
        self.set(|seen| seen.sessions += 1);
        Ok(Response::new(session::serve(self.clone(), request.into_inner())))
    }

    type CallToolStream = Messages<runner_v1::CallToolResponse>;
    type AttachToolCallStream = Messages<runner_v1::AttachToolCallResponse>;
    type GetEffectStream = Messages<runner_v1::GetEffectResponse>;

    async fn list_tools(
        &self,
        _: Request<runner_v1::ListToolsRequest>,
    ) -> Result<Response<runner_v1::ListToolsResponse>, Status> {
        let tool = v1::Tool {
            name: "work".into(),
            parameters_schema: "{}".into(),
            result_schema: "{}".into(),
            recovery: match self.seen().only_reads {
                true => v1::RecoveryClass::ReadOnly.into(),
                false => v1::RecoveryClass::Transactional.into(),
            },
            default_timeout: Some(pbjson_types::Duration { seconds: 60, nanos: 0 }),
            ..v1::Tool::default()
        };
        let (tools, ledger_id) = (vec![tool], self.seen().ledger_id());
        Ok(Response::new(runner_v1::ListToolsResponse { tools, ledger_id, ..Default::default() }))
    }

    async fn call_tool(
        &self,
        request: Request<runner_v1::CallToolRequest>,
    ) -> Result<Response<Self::CallToolStream>, Status> {
        let request = request.into_inner();
        let mut refusal = None;
        self.set(|seen| {
            refusal = seen.refuses_calls.1.filter(|_| seen.refuses_calls.0 > 0);
            seen.refuses_calls.0 = seen.refuses_calls.0.saturating_sub(1);
        });
        if let Some(refusal) = refusal {
            return Err(refusal());
        }
        let is_elsewhere = {
            let seen = self.0.borrow();
            request.ledger_id != seen.ledger_id() && !seen.calls.contains_key(&request.name)
        };
        if is_elsewhere {
            self.set(|seen| seen.meant_for_another += 1);
            return Err(status::error(Code::FailedPrecondition, "LEDGER_CHANGED", "It is another ledger.").into());
        }
        if self.seen().stuck.contains(step_of(&request.name)) {
            self.work(request);
            return Ok(Response::new(Box::pin(futures::stream::pending())));
        }
        let says =
            request.arguments.clone().and_then(|arguments| arguments.content).is_some_and(
                |content| matches!(content, v1::payload::Content::Json(text) if text.contains("\"says\"")),
            );
        let words = self.seen().words.get(step_of(&request.name)).cloned();
        let words = words.unwrap_or_else(|| vec!["one\n".into(), "two".into()]);
        let exclusive = request.exclusive.then(|| request.name.clone());
        let execution = request.name.split("/steps/").next().unwrap_or_default().to_owned();
        let folder = request.made_folder.clone().map(|folder| (execution, folder.id));
        self.set(|seen| {
            seen.exclusive.extend(exclusive);
            seen.folders.extend(folder);
        });
        let reply = self.work(request);
        let reply = self.shown(reply);
        let mut breaks = false;
        self.set(|seen| {
            breaks = says && seen.breaks_streams > 0;
            seen.breaks_streams -= usize::from(breaks);
        });
        let message = |event| runner_v1::CallToolResponse { event: Some(event) };
        let piece = move |offset, text: &str| {
            let stream = v1::tool_call_output::Stream::Stdout.into();
            message(Event::Output(v1::ToolCallOutput { stream, offset, text: text.into() }))
        };
        let end =
            message(if reply.state() == State::AwaitingApproval { Event::Held(reply) } else { Event::Result(reply) });
        let mut waits = self.0.subscribe();
        Ok(Response::new(Box::pin(async_stream::try_stream! {
            let exclusive_call = waits.borrow_and_update().exclusive_call.clone();
            if let Some(exclusive_call) = exclusive_call {
                yield message(Event::Waiting(runner_v1::ToolCallWaiting { exclusive_call }));
                waits.wait_for(|seen| seen.exclusive_call.is_none()).await.expect("the runner is there");
            }
            if says {
                let mut offset = 0;
                for text in words {
                    yield piece(offset, &text);
                    offset += i64::try_from(text.len()).expect("it is short");
                    if breaks {
                        Err(Status::unavailable("the line broke"))?;
                    }
                }
            }
            yield end;
        })))
    }

    async fn forget_executions(
        &self,
        request: Request<runner_v1::ForgetExecutionsRequest>,
    ) -> Result<Response<runner_v1::ForgetExecutionsResponse>, Status> {
        let executions = request.into_inner().executions;
        let folders: Vec<String> =
            executions.iter().filter_map(|execution| Some(execution.made_folder.clone()?.id)).collect();
        let asked: Vec<String> = executions.into_iter().map(|execution| execution.name).collect();
        let mut forgotten = Vec::new();
        self.set(|seen| {
            forgotten = asked.into_iter().filter(|name| seen.in_use.as_ref() != Some(name)).collect();
            seen.calls.retain(|name, _| !forgotten.iter().any(|execution| name.starts_with(&format!("{execution}/"))));
            seen.forgotten.extend(forgotten.iter().cloned());
            seen.removed_folders.extend(folders);
        });
        Ok(Response::new(runner_v1::ForgetExecutionsResponse { forgotten }))
    }

    async fn get_tool_call(
        &self,
        _: Request<runner_v1::GetToolCallRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        Err(unused())
    }

    async fn attach_tool_call(
        &self,
        _: Request<runner_v1::AttachToolCallRequest>,
    ) -> Result<Response<Self::AttachToolCallStream>, Status> {
        Err(unused())
    }

    async fn cancel_tool_call(
        &self,
        request: Request<runner_v1::CancelToolCallRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        let name = request.into_inner().name;
        let mut reply = runner_v1::ToolCall::default();
        self.set(|seen| {
            let call =
                seen.calls.entry(name.clone()).or_insert_with(|| runner_v1::ToolCall { name, ..Default::default() });
            if matches!(call.state(), State::AwaitingApproval | State::Unspecified) {
                call.state = State::Cancelled.into();
                call.approval_need = None;
            }
            reply = call.clone();
        });
        Ok(Response::new(self.shown(reply)))
    }

    type ReadBlobStream = Messages<runner_v1::ReadBlobResponse>;

    async fn read_blob(
        &self,
        request: Request<runner_v1::ReadBlobRequest>,
    ) -> Result<Response<Self::ReadBlobStream>, Status> {
        let runner_v1::ReadBlobRequest { name, digest, offset } = request.into_inner();
        let (mut breaks, mut spoils, mut loses) = (false, false, false);
        self.set(|seen| {
            seen.copies.push((name.clone(), offset));
            seen.late_copies += usize::from(seen.acknowledged.contains(&name));
            let taken = |left: &mut usize| std::mem::replace(left, left.saturating_sub(1)) > 0;
            (loses, breaks) = (taken(&mut seen.loses_results), taken(&mut seen.breaks_copies));
            spoils = !breaks && taken(&mut seen.spoils_copies);
        });
        let seen = self.seen();
        let call = seen.calls.get(&name).filter(|_| !loses).ok_or_else(|| {
            Status::from(
                status::error(Code::NotFound, "CALL_NOT_FOUND", format!("There is no call {name}."))
                    .with("ledger_id", seen.ledger_id()),
            )
        })?;
        let text = result_text(call).expect("it has completed");
        assert_eq!(digest_of(text), digest, "the executor names the reference");
        let mut bytes = text.as_bytes().to_vec();
        *bytes.last_mut().expect("it is not empty") ^= u8::from(spoils);
        let holds = seen.holds_copies;
        Ok(Response::new(Box::pin(async_stream::try_stream! {
            let mut from = usize::try_from(offset).expect("not negative");
            while from < bytes.len() {
                let data = bytes[from..bytes.len().min(from + 65_536)].to_vec();
                let length = data.len();
                yield runner_v1::ReadBlobResponse { offset: i64::try_from(from).expect("it is in memory"), data };
                from += length;
                if breaks {
                    Err(Status::unavailable("the line broke"))?;
                }
                if holds {
                    std::future::pending::<()>().await;
                }
            }
        })))
    }

    async fn get_effect(
        &self,
        _: Request<runner_v1::GetEffectRequest>,
    ) -> Result<Response<Self::GetEffectStream>, Status> {
        Err(unused())
    }

    async fn commit_effect(
        &self,
        request: Request<runner_v1::CommitEffectRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        let request = request.into_inner();
        let mut reply = Err(not_found(&request.name));
        self.set(|seen| {
            seen.asked_to_commit += 1;
            if seen.refuses_commits {
                reply = Err(status::error(Code::Unavailable, "RUNNER_STOPPING", "Not now.").into());
            } else if seen.clock_is_wrong > 0 {
                seen.clock_is_wrong -= 1;
                let refused = status::error(Code::PermissionDenied, "GRANT_REFUSED", "it holds from 1 to 2");
                reply = Err(refused.with("cause", "time").into());
            } else if seen.refuses_grants || request.grant.is_none() {
                reply = Err(status::error(Code::PermissionDenied, "GRANT_REFUSED", "the grant has expired").into());
            } else if let Some(call) = seen.calls.get_mut(&request.name) {
                if call.state() == State::AwaitingApproval {
                    call.approval_need = None;
                    let first = request.name.ends_with("/1.1");
                    if first && request.name.contains("/steps/conflict/") {
                        call.state = State::Cancelled.into();
                        call.failure = Some(failure(v1::ErrorClass::Transient, "CONFLICT"));
                    } else {
                        complete(call);
                        if let Some(result) = seen.results.get(step_of(&request.name)) {
                            call.result = Some(json(result));
                        }
                        let receipt = call.receipt.get_or_insert_default();
                        receipt.grant_nonce = "nonce".into();
                        receipt.effect_digest = "sha256:effect".into();
                        seen.committed.push(request.name.clone());
                    }
                }
                reply = Ok(call.clone());
            }
        });
        reply.map(|call| Response::new(self.shown(call)))
    }

    async fn discard_effect(
        &self,
        request: Request<runner_v1::DiscardEffectRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        let request = request.into_inner();
        let mut reply = Err(not_found(&request.name));
        self.set(|seen| {
            if let Some(call) = seen.calls.get_mut(&request.name) {
                if request.name.contains("/steps/rogue/") {
                    complete(call);
                }
                if call.state() == State::AwaitingApproval {
                    call.state = State::Denied.into();
                    (call.failure, call.approval_need) = (request.failure, None);
                    seen.discarded.push(request.name.clone());
                }
                reply = Ok(call.clone());
            }
        });
        reply.map(Response::new)
    }

    async fn check_workspace(
        &self,
        request: Request<runner_v1::CheckWorkspaceRequest>,
    ) -> Result<Response<runner_v1::CheckWorkspaceResponse>, Status> {
        match request.into_inner().workspace.as_str() {
            "/link" => Ok(Response::new(runner_v1::CheckWorkspaceResponse { workspace: "/real".into() })),
            path => Err(status::invalid("workspace", format!("there is no folder {path}")).into()),
        }
    }

    async fn get_enforcement(
        &self,
        _: Request<runner_v1::GetEnforcementRequest>,
    ) -> Result<Response<runner_v1::EnforcementReport>, Status> {
        Err(unused())
    }

    type WatchUnacknowledgedToolCallsStream = Messages<runner_v1::WatchUnacknowledgedToolCallsResponse>;

    async fn watch_unacknowledged_tool_calls(
        &self,
        _: Request<runner_v1::WatchUnacknowledgedToolCallsRequest>,
    ) -> Result<Response<Self::WatchUnacknowledgedToolCallsStream>, Status> {
        let names = self.seen().unacknowledged();
        Ok(Response::new(Box::pin(async_stream::try_stream! {
            yield runner_v1::WatchUnacknowledgedToolCallsResponse { names };
            std::future::pending::<()>().await;
        })))
    }

    async fn acknowledge_tool_calls(
        &self,
        request: Request<runner_v1::AcknowledgeToolCallsRequest>,
    ) -> Result<Response<runner_v1::AcknowledgeToolCallsResponse>, Status> {
        let mut answer = Ok(Response::new(runner_v1::AcknowledgeToolCallsResponse {}));
        self.set(|seen| {
            if seen.loses_acknowledgements {
                return;
            }
            if seen.refuses_acknowledgements > 0 {
                seen.refuses_acknowledgements -= 1;
                answer = Err(status::error(Code::Unavailable, "RUNNER_STOPPING", "Not now.").into());
                return;
            }
            seen.acknowledged.extend(request.into_inner().names);
        });
        answer
    }
}
