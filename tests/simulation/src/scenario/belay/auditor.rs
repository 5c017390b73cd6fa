//! Whoever comes after the last power loss and reads everything there is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use belay_proto::v1::tool_runner_service_client::ToolRunnerServiceClient;
use belay_proto::v1::{self, execution_event::Kind, watch_execution_response::Content};
use belay_service_kit::status;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tonic::{Code, Status};

use super::audit::Kept;
use super::client::{Connection, PATIENCE, pause};
use super::hosts::{self, Owners};
use super::told::Told;
use super::tools::SEND;
use crate::trace;

/// What was found, once everything was read.
pub(super) type Found = Arc<Mutex<Option<BTreeMap<String, Kept>>>>;

/// Reads every execution and all of its events; before that, calls a tool as an executor that was replaced would.
///
/// Without `owners` the runner has lost its memory of them, and the call is left out.
pub(super) async fn read_everything(seed: u64, told: Told, owners: Option<Owners>, found: Found) -> turmoil::Result {
    let mut random = StdRng::seed_from_u64(seed);
    let mut connection = Connection::new(&told);
    let mut kept = BTreeMap::new();
    for name in list(&mut connection, &mut random).await {
        let one = read(&mut connection, &name, &told, &mut random).await;
        let has_called = one.events.iter().any(|event| matches!(event.kind, Some(Kind::ToolCallRequested(_))));
        if let Some(owners) = owners.as_ref().filter(|_| has_called) {
            call_as_stale_owner(&one.execution, owners, &told, &mut random).await;
        }
        kept.insert(name, one);
    }
    *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    Ok(())
}

async fn list(connection: &mut Connection, random: &mut StdRng) -> Vec<String> {
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListExecutionsRequest {
            page_size: 2,
            page_token: page_token.clone(),
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

async fn read(connection: &mut Connection, name: &str, told: &Told, random: &mut StdRng) -> Kept {
    loop {
        let request = v1::WatchExecutionRequest {
            name: name.to_owned(),
            after_sequence: Some(0),
            ..v1::WatchExecutionRequest::default()
        };
        let read = connection.ask(|mut client| async move {
            let mut stream = client.watch_execution(request).await?.into_inner();
            let (mut snapshot, mut events) = (None, Vec::new());
            // Before the end of one that has ended there is nothing to wait for.
            while let Ok(message) = tokio::time::timeout(PATIENCE / 2, stream.message()).await {
                match message?.map(|message| message.content) {
                    Some(Some(Content::Snapshot(execution))) => snapshot = Some(execution),
                    Some(Some(Content::Event(event))) => events.push(event),
                    Some(_) => {}
                    None => break,
                }
            }
            let execution = snapshot.ok_or_else(|| Status::internal("a watch without a snapshot"))?;
            Ok(tonic::Response::new(Kept { execution, events }))
        });
        match read.await {
            Some(kept) => {
                told.saw(&kept.execution);
                return kept;
            }
            None => pause(random, 100).await,
        }
    }
}

/// A runner does not work for an executor that was replaced. S2-NFR-005, B-08.
async fn call_as_stale_owner(execution: &v1::Execution, owners: &Owners, told: &Told, random: &mut StdRng) {
    let request = v1::CallToolRequest {
        name: format!("{}/steps/stale/calls/1.1", execution.name),
        tool: SEND.to_owned(),
        fence: Some(v1::Fence { shard: execution.shard, token: 0 }),
        ..v1::CallToolRequest::default()
    };
    let newest = owners.newest_fence();
    loop {
        let mut client = ToolRunnerServiceClient::new(hosts::channel("http://runner:7100"));
        match tokio::time::timeout(PATIENCE, client.call_tool(request.clone())).await {
            Ok(Err(status)) if status::reason(&status).as_deref() == Some("FENCED") => {
                return trace::count("stale callers refused");
            }
            Ok(Err(status)) if status.code() != Code::Unavailable && status::reason(&status).is_some() => {
                return told.violation(format_args!("a caller with fence 0, where {newest} is the newest: {status:?}"));
            }
            Ok(Ok(_)) => {
                return told.violation(format_args!("a caller with fence 0 was heard, where {newest} is the newest"));
            }
            Ok(Err(_)) | Err(_) => pause(random, 100).await,
        }
    }
}
