//! Follows a call: its updates, until it ends or waits for approval.

use std::{pin::Pin, sync::Arc};

use belay_proto::{runner_v1, v1};
use belay_reasons as reasons;
use belay_service_kit::{Shutdown, status};
use futures::{Stream, StreamExt as _};
use tokio::sync::watch;
use tonic::{Code, Status};

use crate::{
    calls::{Progress, Subscription, unresolved},
    output::{Allowance, Position},
};

/// The messages of a response.
pub(super) type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// An update that a subscriber of a call gets.
pub(super) enum CallUpdate {
    Started(String),
    Output(v1::ToolCallOutput),
    /// It waits for the end of this exclusive call; empty once it does not wait any more.
    WaitingFor(String),
    /// These questions are open; none once they have their replies.
    Asking(Arc<[runner_v1::ToolCallQuestion]>),
    AwaitingApproval(Arc<runner_v1::ToolCall>),
    Ended(Arc<runner_v1::ToolCall>),
}

/// Streams a call until it ends or waits for approval. A call that has ended already, without output, is one message, not two.
pub(super) fn follow<T: Send + 'static>(
    subscription: Subscription,
    position: Position,
    shutdown: Shutdown,
    message: fn(CallUpdate) -> T,
) -> Messages<T> {
    let updates = updates(subscription, position, shutdown, Arc::default());
    Box::pin(updates.map(move |update| update.map(message)))
}

/// The updates of a call until it ends or waits for approval, with as much output as is allowed.
pub(super) fn updates(
    subscription: Subscription,
    mut position: Position,
    shutdown: Shutdown,
    allowance: Arc<Allowance>,
) -> impl Stream<Item = Result<CallUpdate, Status>> + Send + 'static {
    async_stream::stream! {
        let Subscription { name, mut progress, mut waits_for, output, questions } = subscription;
        let mut asking = questions.map(|questions| questions.subscribe());
        let mut sent_questions: Option<Arc<[runner_v1::ToolCallQuestion]>> = None;
        let mut sent_waits_for = None;
        let mut more = output.subscribe();
        let (mut yielded, mut started) = (false, false);
        loop {
            // Marked before `progress` is read: all output precedes the end of the call.
            more.mark_unchanged();
            let last = match &*progress.borrow_and_update() {
                Progress::Running | Progress::Resolving => Ok(None),
                Progress::AwaitingApproval(call) => Ok(Some(CallUpdate::AwaitingApproval(Arc::clone(call)))),
                Progress::Ended(ended) => Ok(Some(CallUpdate::Ended(Arc::clone(&ended.call)))),
                Progress::Unresolved => Err(unresolved()),
            };
            let last = match last {
                Ok(last) => last,
                Err(status) => {
                    yield Err(status);
                    return;
                }
            };
            if last.is_none() && !yielded {
                // Lets a quick call end first.
                yielded = true;
                tokio::task::yield_now().await;
                continue;
            }
            if last.is_none() && !started {
                started = true;
                yield Ok(CallUpdate::Started(name.clone()));
            }
            let now = waits_for.borrow_and_update().clone();
            if last.is_none() && now != sent_waits_for {
                yield Ok(CallUpdate::WaitingFor(now.as_deref().unwrap_or_default().to_owned()));
                sent_waits_for = now;
            }
            if let Some(asking) = asking.as_mut().filter(|_| last.is_none()) {
                let now = Arc::clone(&asking.borrow_and_update());
                if sent_questions.as_ref() != Some(&now) {
                    yield Ok(CallUpdate::Asking(Arc::clone(&now)));
                    sent_questions = Some(now);
                }
            }
            let mut is_allowed = allowance.is_left();
            while is_allowed && let Some(piece) = output.next(&mut position, last.is_some()) {
                is_allowed = allowance.spend(piece.text.len());
                yield Ok(CallUpdate::Output(piece));
            }
            let is_ended = last.is_some();
            if let Some(last) = last.filter(|_| is_allowed || !output.has_more(&position)) {
                yield Ok(last);
                return;
            }
            let open = tokio::select! {
                biased;
                changed = progress.changed(), if !is_ended => changed.is_ok(),
                _ = more.changed(), if is_allowed => true,
                Ok(()) = waits_for.changed(), if !is_ended => true,
                Some(Ok(())) = changed(&mut asking), if !is_ended => true,
                () = allowance.granted(), if !is_allowed => true,
                () = shutdown.requested() => false,
            };
            if !open {
                yield Err(stopping());
                return;
            }
        }
    }
}

/// Waits until a call asks or has a reply; `None` at once for one that does not ask.
async fn changed<T>(asking: &mut Option<watch::Receiver<T>>) -> Option<Result<(), watch::error::RecvError>> {
    Some(asking.as_mut()?.changed().await)
}

pub(super) fn stopping() -> Status {
    status::error(Code::Unavailable, reasons::RUNNER_STOPPING, "The tool runner is stopping.").into()
}
