//! Connects the session with the runner, again and again, and reads what arrives.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_proto::{runner_v1::SessionResponse, session::ReceivedPositions, stores::Stores};
use belay_service_kit::{Retry, status, stores};
use tonic::{Code, Status, Streaming};

use crate::{
    owned::registry::ExecutionRegistry,
    runners::{acknowledge, link::Link, runner::Runner},
};

/// The delay before connecting again when an operation waits for that.
const SHORTEST_DELAY: Duration = Duration::from_millis(50);
/// The delay before a store that could not be read is read again.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// A session without a message for this long has lost its runner: three heartbeats.
const SILENCE: Duration = Duration::from_secs(45);
/// How long the runner may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps a session with the runner, and sends lost acknowledgements again each time one begins. With a runner that has no sessions, or when none is
/// wanted, operations go by methods.
pub(crate) async fn run(registry: Weak<ExecutionRegistry>, runner: Runner, wants_session: bool) {
    // What waits for the session of a task that has failed gets no reply.
    runner.link().end_if_begun(wants_session);
    tokio::select! {
        () = keep(&registry, &runner, wants_session) => {}
        () = acknowledge::review(&registry, &runner), if wants_session => {}
    }
}

async fn keep(registry: &Weak<ExecutionRegistry>, runner: &Runner, wants_session: bool) {
    let link = runner.link();
    let mut retry = Retry::RPC;
    loop {
        let ended = match wants_session {
            true => connect(registry, runner, &mut retry).await,
            false => Status::unimplemented("no session is wanted"),
        };
        let has_none = ended.code() == Code::Unimplemented && status::reason(&ended).is_none();
        let is_available = if has_none {
            link.use_methods();
            acknowledge::watch(registry, runner).await
        } else {
            tracing::debug!(status = %ended, "The session with the runner has ended");
            false
        };
        let Some(strong) = registry.upgrade() else { return };
        match is_available {
            true => strong.reading.availability.runner().set_available(),
            false => strong.reading.availability.runner().set_unavailable(strong.now()),
        }
        let delay = retry.delay(&strong.ids);
        drop(strong);
        link.end(&ended, wants_session);
        let first = delay.min(SHORTEST_DELAY);
        tokio::time::sleep(first).await;
        tokio::select! {
            () = link.added.notified() => {}
            () = tokio::time::sleep(delay - first) => {}
        }
    }
}

/// Connects a session and serves it until it ends; returns why it ended.
async fn connect(registry: &Weak<ExecutionRegistry>, runner: &Runner, retry: &mut Retry) -> Status {
    let link = runner.link();
    let stores = runner.stores();
    let requests = link.open(stores.clone());
    let opening = async {
        let mut responses = runner.open_session(requests).await?;
        let first = responses.message().await?;
        first
            .map(|first| (responses, first))
            .ok_or_else(|| Status::unavailable("the runner closed the session before its hello"))
    };
    let (mut responses, first) = match tokio::time::timeout(HELLO_TIMEOUT, opening).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(status)) => return status,
        Err(_) => return Status::unavailable("the runner did not send its hello in time"),
    };
    let mut positions = ReceivedPositions::default();
    let mut next = first;
    loop {
        if let Err(status) = take(registry, link, stores.as_deref(), &mut positions, next) {
            return status;
        }
        retry.succeeded();
        next = match message(&mut responses).await {
            Ok(message) => message,
            Err(status) => return status,
        };
    }
}

async fn message(responses: &mut Streaming<SessionResponse>) -> Result<SessionResponse, Status> {
    match tokio::time::timeout(SILENCE, responses.message()).await {
        Ok(Ok(Some(message))) => Ok(message),
        Ok(Ok(None)) => Err(Status::unavailable("the runner has closed it")),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(Status::unavailable("the runner was silent for too long")),
    }
}

/// Takes a message of the runner.
fn take(
    registry: &Weak<ExecutionRegistry>,
    link: &Arc<Link>,
    stores: Option<&Stores>,
    positions: &mut ReceivedPositions,
    mut message: SessionResponse,
) -> Result<(), Status> {
    if message.hello.is_some() {
        link.on_hello()?;
        if let Some(registry) = registry.upgrade() {
            registry.reading.availability.runner().set_available();
        }
    } else if !link.has_received_hello() {
        return Err(Status::internal("the runner did not send its hello first"));
    }
    if let (Some(stores), Some(received)) = (stores, message.stores.take()) {
        positions.observe(stores, received).map_err(|behind| {
            tracing::error!(%behind, "A store is behind");
            stores::refusal(&behind)
        })?;
    }
    let names = std::mem::take(&mut message.unacknowledged);
    link.deliver(message);
    if !names.is_empty() && !is_planted(Defect::AcknowledgementNotRetried) {
        let registry = Weak::clone(registry);
        tokio::spawn(async move {
            while let Some(registry) = registry.upgrade()
                && !acknowledge::acknowledge(&registry, names.clone()).await
            {
                drop(registry);
                tokio::time::sleep(READ_AGAIN).await;
            }
        });
    }
    Ok(())
}
