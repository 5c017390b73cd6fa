use std::{collections::HashSet, sync::Arc, time::Duration};

use belay_proto::v1::{self, Approval, watch_approvals_response::Content};
use belay_reasons as reasons;
use belay_service_kit::{
    Permit, Principal,
    cursor::{Cursor, Source, WatchIdentity},
    status,
    watch::{Wake, heartbeat_interval, wake},
};
use futures::StreamExt as _;
use tokio::sync::watch;
use tonic::{Code, Status};

use super::messages::Messages;
use crate::{Gate, feed::Head, gate::unreadable, names::parent, store::Filter};

/// The number of approvals read from the store at once.
const PAGE: usize = 256;

pub(super) async fn watch_approvals(
    gate: &Arc<Gate>,
    caller: &Principal,
    request: v1::WatchApprovalsRequest,
) -> Result<Messages<v1::WatchApprovalsResponse>, Status> {
    let heartbeat = heartbeat_interval(request.heartbeat_interval.as_ref())?;
    let watched = WatchIdentity::approvals(&request.parent, &request.execution);
    let resumed: Option<Cursor<1>> = watched.read(&request.cursor)?;
    let filter = Filter { namespace: parent(&request.parent)?, execution: request.execution, ..Filter::default() };
    let source = Source::new(&[&gate.store.watched_as()]);
    let last = gate.store.follow().borrow().revision;
    let (after, reset) = match resumed.map(|cursor| cursor.check(source, last).map(|()| cursor.place[0])) {
        None => (0, None),
        Some(Ok(after)) => (after, None),
        Some(Err(reason)) => {
            tracing::warn!(?resumed, last, ?reason, "A watch of approvals cannot resume from its cursor; it is reset");
            (0, Some(reason))
        }
    };
    let updates = watch(gate, caller, filter, false, after, heartbeat).await?;
    let clock = Arc::clone(&gate.clock);
    let message = move |revision, content| {
        let cursor = watched.write(&Cursor { source, place: [revision] });
        v1::WatchApprovalsResponse { cursor, content: Some(content) }
    };
    let reset = reset.map(|reason| Ok(message(0, Content::Reset(v1::WatchReset { reason: reason.into() }))));
    let updates = updates.map(move |update| {
        Ok(match update? {
            Update::Approval(approval) => message(approval.revision, Content::Approval(*approval)),
            Update::Listed(revision) => message(revision, Content::Listed(v1::WatchListed {})),
            Update::Quiet(revision) => {
                let server_time = Some(belay_proto::timestamp(clock.now_micros()));
                message(revision, Content::Heartbeat(v1::WatchHeartbeat { server_time }))
            }
        })
    });
    Ok(Box::pin(futures::stream::iter(reset).chain(updates)))
}

/// A message to a watcher.
pub(super) enum Update {
    /// An approval in its current state, in BASIC view.
    Approval(Box<Approval>),
    /// Everything that there was when the watch began has been sent, up to this revision.
    Listed(i64),
    /// Everything up to this revision has been sent.
    Quiet(i64),
}

/// Watches the approvals that match `filter` and have changed after revision `after`; if `undelivered`, only those whose decision no executor
/// has acknowledged.
pub(super) async fn watch(
    gate: &Arc<Gate>,
    caller: &Principal,
    filter: Filter,
    undelivered: bool,
    after: i64,
    heartbeat: Duration,
) -> Result<impl futures::Stream<Item = Result<Update, Status>> + Send + use<>, Status> {
    let taken = gate.watchers.take_for(caller)?;
    gate.expire_due().await?;
    let head = gate.store.follow();
    Ok(Watch { _taken: taken, gate: Arc::clone(gate), head, filter, undelivered, heartbeat, cursor: after }.stream())
}

/// A watcher. The initial approvals and later changes are read the same way: everything after the cursor.
struct Watch {
    /// Its slot within the limit of watchers.
    _taken: Permit,
    gate: Arc<Gate>,
    head: watch::Receiver<Head>,
    filter: Filter,
    undelivered: bool,
    heartbeat: Duration,
    /// The revision up to which everything has been sent.
    cursor: i64,
}

impl Watch {
    fn stream(mut self) -> impl futures::Stream<Item = Result<Update, Status>> {
        async_stream::try_stream! {
            let mut begun = false;
            loop {
                // Marked as seen before reading: a commit in between is read now, or wakes the wait below.
                let known = self.head.borrow_and_update().revision;
                while self.cursor < known {
                    for approval in self.next(known).await? {
                        yield Update::Approval(Box::new(approval));
                    }
                }
                if !begun {
                    begun = true;
                    yield Update::Listed(self.cursor);
                }
                // An error means that the store has closed, because the gate is stopping.
                let head = &mut self.head;
                let changed = async {
                    if head.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                };
                match wake(changed, &self.gate.shutdown, self.heartbeat).await {
                    Wake::Changed => {}
                    Wake::Quiet => yield Update::Quiet(self.cursor),
                    Wake::Stopping => {
                        Err(Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The gate is stopping; watch again.")))?;
                    }
                }
            }
        }
    }

    /// Returns the next matching changes, at most a page, and moves the cursor past them.
    async fn next(&mut self, known: i64) -> Result<Vec<Approval>, Status> {
        // The change does not contain whether the decision was delivered; only the store does.
        if !self.undelivered
            && let Some(changes) = self.gate.store.recent(self.cursor)
        {
            self.cursor = changes.last().map_or(known, |last| last.revision.max(known));
            // Like the store: each approval in its latest state only.
            let mut later = HashSet::new();
            let newest = changes.iter().rev().filter(|change| later.insert(change.name.as_str()) && self.fits(change));
            let mut newest: Vec<Approval> = newest.map(|change| (**change).clone()).collect();
            newest.reverse();
            return Ok(newest);
        }
        let found = self.gate.store.changes(self.filter.clone(), self.undelivered, self.cursor, PAGE).await;
        let found = found.map_err(|error| unreadable(&error))?;
        // After a full page there may be more. A partial page covers everything up to `known`.
        let last = found.last().map_or(0, |last| last.revision);
        self.cursor = if found.len() == PAGE { last } else { last.max(known) };
        Ok(found)
    }

    fn fits(&self, approval: &Approval) -> bool {
        let within = |namespace: &String| {
            let rest = approval.name.strip_prefix("namespaces/").and_then(|rest| rest.strip_prefix(namespace.as_str()));
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        self.filter.namespace.as_ref().is_none_or(within)
            && (self.filter.execution.is_empty() || self.filter.execution == approval.execution)
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::approval::State;
    use futures::{StreamExt as _, future::join_all};

    use super::*;
    use crate::gate::tests::{ask, gate};

    fn life<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    /// More than one page, none of it in memory, and changes while it is read.
    #[test]
    fn a_watch_reads_changes_that_are_only_in_the_store() {
        const APPROVALS: usize = 2 * PAGE + PAGE / 2;
        let folder = tempfile::tempdir().unwrap();
        life(async {
            let gate = gate(folder.path()).await;
            let calls: Vec<String> = (0..APPROVALS).map(|n| n.to_string()).collect();
            join_all(calls.iter().map(|call| ask(&gate, call, None))).await;
        });
        life(async {
            let gate = gate(folder.path()).await;
            let mut watch = watch_approvals(
                &gate,
                &Principal::owner(),
                v1::WatchApprovalsRequest { parent: "namespaces/-".into(), ..Default::default() },
            )
            .await
            .unwrap();
            let mut revisions = Vec::new();
            for _ in 0..PAGE {
                let Content::Approval(approval) = watch.next().await.unwrap().unwrap().content.unwrap() else {
                    panic!("the snapshot has not been sent");
                };
                revisions.push(approval.revision);
            }
            let late = ask(&gate, "late", None).await;
            while revisions.last() != Some(&late.revision) {
                if let Content::Approval(approval) = watch.next().await.unwrap().unwrap().content.unwrap() {
                    revisions.push(approval.revision);
                }
            }
            assert_eq!(revisions, (1..=late.revision).collect::<Vec<_>>());
        });
    }

    /// A late watcher gets each approval once, in its current state, although its changes are still in memory.
    #[test]
    fn a_late_watcher_gets_no_earlier_state() {
        let folder = tempfile::tempdir().unwrap();
        life(async {
            let gate = gate(folder.path()).await;
            let asked = ask(&gate, "1.1", None).await;
            let other = ask(&gate, "1.2", None).await;
            let cancel = |asked: &Approval| Ok(Some(Approval { state: State::Cancelled.into(), ..asked.clone() }));
            gate.store.change(&asked.name, 0, None, cancel).await.unwrap().unwrap();
            let mut watch = watch_approvals(
                &gate,
                &Principal::owner(),
                v1::WatchApprovalsRequest { parent: "namespaces/-".into(), ..Default::default() },
            )
            .await
            .unwrap();
            let mut received = Vec::new();
            while let Content::Approval(approval) = watch.next().await.unwrap().unwrap().content.unwrap() {
                received.push((approval.state(), approval.name));
            }
            assert_eq!(received, [(State::Pending, other.name), (State::Cancelled, asked.name)]);
        });
    }
}
