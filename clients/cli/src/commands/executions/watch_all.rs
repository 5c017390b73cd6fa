//! `belay executions watch` without an execution: all of them.

use std::{convert::Infallible, time::Duration};

use belay_proto::v1::{WatchExecutionsRequest, WatchExecutionsResponse, watch_executions_response::Content};

use super::list::{ExecutionFilter, filter};
use crate::{
    args::Format,
    clock,
    connect::{Requirement, Session},
    context::Context,
    exit::Exit,
    failure::Failure,
    follow::{HEARTBEAT, broken},
    names,
    render::{execution, json, text::Line, text::Style},
};

/// Follows the executions that match, through broken connections, until the command is stopped.
pub(super) async fn watch_all(context: &Context, matching: &ExecutionFilter) -> Result<Exit, Failure> {
    let mut session = Session::open(&context.target, Requirement::Records).await?;
    let mut request = WatchExecutionsRequest {
        parent: names::parent(&context.namespace),
        filter: filter(matching, clock::now()),
        heartbeat_interval: Some(HEARTBEAT.into()),
        include_children: matching.children,
        ..Default::default()
    };
    let mut tries = 0;
    loop {
        let Err(why) = follow(context, &mut session, &mut request, &mut tries).await;
        let why = match why {
            WatchEnd::Broken(status) => status,
            WatchEnd::Failed(failure) => {
                session.close().await;
                return Err(failure);
            }
        };
        tries += 1;
        match broken(&why, tries) {
            Ok(wait) => {
                context.screen.say(&Line::default().and(Style::Warn, lost(why.message(), wait)));
                tokio::time::sleep(wait).await;
                // What fails here fails again at the next watch, which counts it.
                drop(session.reconnect(false).await);
            }
            Err(failure) => {
                session.close().await;
                return Err(failure);
            }
        }
    }
}

fn lost(why: &str, wait: Duration) -> String {
    format!("the connection is lost ({why}); trying again in {:.1}s", wait.as_secs_f64())
}

/// Why a watch ended.
enum WatchEnd {
    /// Another may succeed.
    Broken(tonic::Status),
    /// The output cannot be written.
    Failed(Failure),
}

/// Follows a watch from the request's cursor on, which moves with what is printed.
async fn follow(
    context: &Context,
    session: &mut Session,
    request: &mut WatchExecutionsRequest,
    tries: &mut u32,
) -> Result<Infallible, WatchEnd> {
    // What has changed meanwhile is news like any other.
    let mut lists = request.cursor.is_empty();
    let mut messages = session.client.watch_executions(request.clone()).await.map_err(WatchEnd::Broken)?.into_inner();
    loop {
        let message = messages.message().await.map_err(WatchEnd::Broken)?;
        let message =
            message.ok_or_else(|| WatchEnd::Broken(tonic::Status::unavailable("the server ended the watch")))?;
        *tries = 0;
        lists |= matches!(message.content, Some(Content::Reset(_)));
        if lists || !matches!(message.content, Some(Content::Listed(_))) {
            print(context, &message).map_err(WatchEnd::Failed)?;
        }
        if !message.cursor.is_empty() {
            request.cursor = message.cursor;
        }
    }
}

fn print(context: &Context, message: &WatchExecutionsResponse) -> Result<(), Failure> {
    match (context.screen.format, &message.content) {
        // Only says that the connection is alive.
        (_, Some(Content::Heartbeat(_)) | None) => {}
        (Format::Json | Format::Jsonl, Some(_)) => context.screen.print_json(&json::of(message)?)?,
        (Format::Text, Some(Content::Execution(changed))) => {
            context.screen.print(&[execution::changed(changed, clock::now())])?;
        }
        (Format::Text, Some(Content::Removed(removed))) => context.screen.print(&[execution::removed(removed)])?,
        (Format::Text, Some(Content::Listed(_))) => context.screen.say(&Line::new("watching for changes")),
        (Format::Text, Some(Content::Reset(_))) => {
            context
                .screen
                .say(&Line::default().and(Style::Warn, "what changed meanwhile is not known; all that match follow"));
        }
    }
    Ok(())
}
