//! A client that reads all stored data after the last power loss.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use belay_proto::gate_v1::approval_gate_service_client::ApprovalGateServiceClient;
use belay_proto::runner_v1::tool_runner_service_client::ToolRunnerServiceClient;
use belay_proto::v1::approval_service_client::ApprovalServiceClient;
use belay_proto::{
    gate_v1, runner_v1,
    v1::{self, approval, execution_event::Kind, payload::Content as Payload, watch_execution_response::Content},
};
use belay_service_kit::status;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::calls::Blobs;
use super::client::{Connection, RPC_TIMEOUT, connect, pause, with_outputs};
use super::hosts::{self, Owners};
use super::records::{ExecutionEvidence, Observations, StoredData};
use super::tools::SEND;
use crate::trace;

/// The result, once everything was read.
pub(super) type FoundData = Arc<Mutex<Option<StoredData>>>;

/// Reads every execution with its events, all approvals and the runner's calls. Also tries requests that each endpoint must refuse, and calls
/// a tool as a replaced executor would.
///
/// Without `owners` the runner has lost its record of them, and that call is left out.
pub(super) async fn read_everything(
    seed: u64,
    observed: Observations,
    owners: Option<Owners>,
    found: FoundData,
) -> turmoil::Result {
    let mut random = StdRng::seed_from_u64(seed);
    let mut connection = Connection::new(&observed);
    let mut stored = StoredData::default();
    for name in list(&mut connection, &mut random).await {
        let one = read(&mut connection, &name, &observed, &mut random).await;
        let has_called = one.events.iter().any(|event| matches!(event.kind, Some(Kind::ToolCallRequested(_))));
        if let Some(owners) = owners.as_ref().filter(|_| has_called) {
            call_as_stale_owner(&one, owners, &observed, &mut random).await;
        }
        for event in one.events.iter().filter(|event| matches!(event.kind, Some(Kind::ToolCallRequested(_)))) {
            let request = runner_v1::GetToolCallRequest { name: belay_proto::call_name(&name, event) };
            let ask = |mut client: ToolRunnerServiceClient<Channel>| {
                let request = request.clone();
                async move { client.get_tool_call(request).await }
            };
            if let Ok(call) = until_answered(&mut random, || ask(runner())).await {
                stored.calls.insert(belay_proto::call_name(&name, event), call);
            }
        }
        stored.executions.insert(name, one);
    }
    stored.namespaces = namespaces(&mut connection, &mut random).await;
    read_gate(&mut stored, &observed, &mut random).await;
    if owners.is_some() {
        nothing_is_unacknowledged(&observed, &mut random).await;
    }
    *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(stored);
    Ok(())
}

fn runner() -> ToolRunnerServiceClient<Channel> {
    ToolRunnerServiceClient::new(hosts::channel(hosts::RUNNER_URI))
}

/// Sends a request until there is a response or a permanent error.
async fn until_answered<T, F>(random: &mut StdRng, ask: impl Fn() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    loop {
        match tokio::time::timeout(RPC_TIMEOUT, ask()).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) if status.code() != Code::Unavailable && status::reason(&status).is_some() => {
                return Err(status);
            }
            Ok(Err(_)) | Err(_) => pause(random, 100).await,
        }
    }
}

/// The maximum number of polls for a state that has to occur: about a quarter of a minute.
const MAX_POLLS: usize = 300;

/// S2-NFR-005: every call has ended, and the executor acknowledges it to the runner, whatever was lost before.
async fn nothing_is_unacknowledged(observed: &Observations, random: &mut StdRng) {
    let mut left = Vec::new();
    for _ in 0..MAX_POLLS {
        let ask = || async {
            let request = runner_v1::WatchUnacknowledgedToolCallsRequest::default();
            let mut watch = runner().watch_unacknowledged_tool_calls(request).await?.into_inner();
            let mut names = Vec::new();
            while let Some(message) = watch.message().await?.filter(|message| !message.names.is_empty()) {
                names.extend(message.names);
            }
            Ok(Response::new(names))
        };
        match until_answered(random, ask).await {
            Ok(names) if names.is_empty() => return,
            Ok(names) => left = names,
            Err(status) => return observed.violation(format_args!("what is unacknowledged cannot be had: {status:?}")),
        }
        pause(random, 100).await;
    }
    observed.violation(format_args!("these calls have ended and are not acknowledged: {left:?}"));
}

/// Reads every approval and every grant.
async fn read_gate(stored: &mut StoredData, observed: &Observations, random: &mut StdRng) {
    stored.asked = observed.approvals();
    let people = || ApprovalServiceClient::new(hosts::channel(hosts::PEOPLE_URI));
    let services = || ApprovalGateServiceClient::new(hosts::channel(hosts::SERVICES_URI));
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListApprovalsRequest {
            parent: "namespaces/-".into(),
            page_size: 3,
            page_token,
            ..v1::ListApprovalsRequest::default()
        };
        let page = until_answered(random, || {
            let request = request.clone();
            async move { people().list_approvals(request).await }
        });
        match page.await {
            Ok(page) => {
                names.extend(page.approvals.into_iter().map(|approval| (approval.name, approval.execution)));
                page_token = page.next_page_token;
            }
            Err(status) => return observed.violation(format_args!("approvals cannot be listed: {status:?}")),
        }
        if page_token.is_empty() {
            break;
        }
    }
    for (name, execution) in names {
        let request = v1::GetApprovalRequest { name: name.clone(), view: v1::ApprovalView::Full.into() };
        let look = || {
            let request = request.clone();
            async move { people().get_approval(request).await }
        };
        let mut approval = until_answered(random, look).await;
        // The executor was restarted, and reports to the gate what it may not have reported before. If it does not, the run ends without a
        // result.
        while approval.as_ref().is_ok_and(|approval| is_over(approval, stored)) {
            trace::event(format_args!("the gate has no report yet about the use of {name}"));
            pause(random, 100).await;
            approval = until_answered(random, look).await;
        }
        // Every execution has ended, so nothing waits for a decision: the executor cancels the approval, unless a person decides first.
        for _ in 0..MAX_POLLS {
            if !approval.as_ref().is_ok_and(|approval| approval.state() == approval::State::Pending) {
                break;
            }
            pause(random, 100).await;
            approval = until_answered(random, look).await;
        }
        // The gate forgets it with its execution.
        let is_forgotten = |status: &Status| {
            status::reason(status).as_deref() == Some("APPROVAL_NOT_FOUND") && observed.is_taken(&execution)
        };
        match approval {
            Err(status) if is_forgotten(&status) => continue,
            Ok(approval) => {
                if approval.state() == approval::State::Pending {
                    observed.violation(format_args!("{name} is still asked, and its execution has ended"));
                }
                wrong_endpoints(&approval, observed, random).await;
                stored.approvals.insert(name.clone(), approval);
            }
            Err(status) => observed.violation(format_args!("{name} is listed and cannot be had: {status:?}")),
        }
        let request = gate_v1::GetGrantRequest { approval: name.clone() };
        let grant = until_answered(random, || {
            let request = request.clone();
            async move { services().get_grant(request).await }
        });
        use approval::State as S;
        let is_usable = matches!(stored.approvals[&name].state(), S::Approved | S::Consumed);
        match grant.await {
            Ok(grant) if is_usable => drop(stored.grants.insert(name, grant)),
            Ok(_) => observed.violation(format_args!("there is a grant of {name}, which is not approved")),
            Err(status) if is_forgotten(&status) => drop(stored.approvals.remove(&name)),
            Err(status) if is_usable => observed.violation(format_args!("there is no grant of {name}: {status:?}")),
            Err(_) => {}
        }
    }
}

/// Whether the approved call has ended although its approval does not show it.
fn is_over(approval: &v1::Approval, stored: &StoredData) -> bool {
    let ends = |event: &v1::ExecutionEvent| {
        let is_end = matches!(
            event.kind,
            Some(
                Kind::ToolCallCompleted(_)
                    | Kind::ToolCallFailed(_)
                    | Kind::ToolCallCancelled(_)
                    | Kind::ToolCallDenied(_)
                    | Kind::ToolCallOutcomeUnknown(_)
            )
        );
        is_end && belay_proto::call_name(&approval.execution, event) == approval.call
    };
    let kept = stored.executions.get(&approval.execution);
    approval.state() == approval::State::Approved && kept.is_some_and(|kept| kept.events.iter().any(ends))
}

/// A person gets no grant, and a service decides nothing. B-05.
async fn wrong_endpoints(approval: &v1::Approval, observed: &Observations, random: &mut StdRng) {
    let request = gate_v1::GetGrantRequest { approval: approval.name.clone() };
    let grant = until_answered(random, || {
        let request = request.clone();
        async move { ApprovalGateServiceClient::new(hosts::channel(hosts::PEOPLE_URI)).get_grant(request).await }
    });
    if grant.await.map_err(|status| status.code()) != Err(Code::PermissionDenied) {
        observed.violation(format_args!("a person was given the grant of {}", approval.name));
    }
    let request = v1::DecideApprovalRequest {
        name: approval.name.clone(),
        subject_digest: approval.subject_digest.clone(),
        decision: v1::Decision::Approve.into(),
        reason: String::new(),
        ..Default::default()
    };
    let decided = until_answered(random, || {
        let request = request.clone();
        async move { ApprovalServiceClient::new(hosts::channel(hosts::SERVICES_URI)).decide_approval(request).await }
    });
    match decided.await {
        Err(status) if status.code() == Code::PermissionDenied => trace::count("decisions of a service refused"),
        other => observed.violation(format_args!("a service decided {}: {other:?}", approval.name)),
    }
}

async fn list(connection: &mut Connection, random: &mut StdRng) -> Vec<String> {
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListExecutionsRequest {
            parent: "namespaces/-".to_owned(),
            page_size: 2,
            page_token: page_token.clone(),
            include_children: true,
            ..v1::ListExecutionsRequest::default()
        };
        let page = connection.ask(|mut client| async move { client.list_executions(request).await });
        let Some(page) = page.await else {
            pause(random, 100).await;
            continue;
        };
        names.extend(page.executions.into_iter().map(|execution| execution.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return names;
        }
    }
}

async fn namespaces(connection: &mut Connection, random: &mut StdRng) -> Vec<v1::Namespace> {
    loop {
        let request = v1::ListNamespacesRequest { page_size: 100, ..v1::ListNamespacesRequest::default() };
        let page = connection.ask(|mut client| async move { client.list_namespaces(request).await });
        match page.await {
            Some(page) => return page.namespaces,
            None => pause(random, 100).await,
        }
    }
}

async fn read(
    connection: &mut Connection,
    name: &str,
    observed: &Observations,
    random: &mut StdRng,
) -> ExecutionEvidence {
    loop {
        let request = v1::WatchExecutionRequest {
            name: name.to_owned(),
            include_earlier_events: true,
            view: v1::ExecutionView::Full.into(),
            ..v1::WatchExecutionRequest::default()
        };
        let read = connection.ask(|mut client| async move {
            let mut stream = client.watch_execution(request).await?.into_inner();
            let (mut snapshot, mut events) = (None, Vec::new());
            // Nothing to wait for: the execution has ended.
            while let Ok(message) = tokio::time::timeout(RPC_TIMEOUT / 2, stream.message()).await {
                match message?.map(|message| message.content) {
                    Some(Some(Content::Snapshot(execution))) => snapshot = Some(execution),
                    Some(Some(Content::Event(event))) => events.push(event),
                    Some(_) => {}
                    None => break,
                }
            }
            let execution = snapshot.ok_or_else(|| Status::internal("a watch without a snapshot"))?;
            Ok(tonic::Response::new(ExecutionEvidence { execution, events, blobs: Blobs::new() }))
        });
        match read.await {
            Some(kept) => {
                observed.saw(&kept.execution);
                match with_outputs(connection, &kept.execution).await {
                    Some(execution) => {
                        let blobs = read_blobs(name, &kept.events, observed, random).await;
                        return ExecutionEvidence { execution, blobs, ..kept };
                    }
                    None => pause(random, 100).await,
                }
            }
            None => pause(random, 100).await,
        }
    }
}

/// Reads every blob that an event names. B-09: each is there, and as long as its event says.
async fn read_blobs(name: &str, events: &[v1::ExecutionEvent], observed: &Observations, random: &mut StdRng) -> Blobs {
    let mut blobs = Blobs::new();
    for event in events {
        let payload = match &event.kind {
            Some(Kind::ToolCallRequested(requested)) => requested.arguments.as_ref(),
            Some(Kind::ToolCallCompleted(completed)) => completed.result.as_ref(),
            Some(Kind::StepItemsCollected(collected)) => collected.output.as_ref(),
            Some(Kind::ExecutionFinished(finished)) => finished.outputs.as_ref(),
            _ => None,
        };
        let Some(Payload::Blob(blob)) = payload.and_then(|payload| payload.content.as_ref()) else { continue };
        let digits = blob.digest.rsplit(':').next().unwrap_or_default();
        let request = v1::ReadBlobRequest { name: format!("{name}/blobs/{digits}"), offset: 0 };
        let read = until_answered(random, || {
            let request = request.clone();
            async move {
                let mut pieces = connect(hosts::EXECUTOR_URI).read_blob(request).await?.into_inner();
                let mut bytes = Vec::new();
                while let Some(piece) = pieces.message().await? {
                    bytes.extend(piece.data);
                }
                Ok(Response::new(bytes))
            }
        });
        match read.await {
            Ok(bytes) if i64::try_from(bytes.len()) == Ok(blob.size_bytes) => {
                trace::count("blobs read");
                blobs.insert(blob.digest.clone(), String::from_utf8_lossy(&bytes).into_owned());
            }
            Ok(bytes) => observed.violation(format_args!("{} of {name} has {} bytes", blob.digest, bytes.len())),
            Err(status) => observed.violation(format_args!("{} of {name} cannot be read: {status:?}", blob.digest)),
        }
    }
    blobs
}

/// A runner rejects calls of a replaced executor. S2-NFR-005, B-08.
async fn call_as_stale_owner(kept: &ExecutionEvidence, owners: &Owners, observed: &Observations, random: &mut StdRng) {
    let request = runner_v1::CallToolRequest {
        name: format!("{}/steps/stale/calls/1.1", kept.execution.name),
        tool: SEND.to_owned(),
        workspace: hosts::SHARED_WORKSPACE.to_owned(),
        fence: Some(runner_v1::Fence { shard: hosts::shard(&kept.execution.name), token: 0 }),
        ..runner_v1::CallToolRequest::default()
    };
    let newest = owners.newest_fence();
    loop {
        let mut client = ToolRunnerServiceClient::new(hosts::channel(hosts::RUNNER_URI));
        match tokio::time::timeout(RPC_TIMEOUT, client.call_tool(request.clone())).await {
            Ok(Err(status)) if status::reason(&status).as_deref() == Some("FENCED") => {
                return trace::count("stale callers refused");
            }
            Ok(Err(status)) if status.code() != Code::Unavailable && status::reason(&status).is_some() => {
                return observed
                    .violation(format_args!("a caller with fence 0, where {newest} is the newest: {status:?}"));
            }
            Ok(Ok(_)) => {
                return observed
                    .violation(format_args!("a caller with fence 0 was heard, where {newest} is the newest"));
            }
            Ok(Err(_)) | Err(_) => pause(random, 100).await,
        }
    }
}
