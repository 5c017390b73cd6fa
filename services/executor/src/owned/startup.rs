//! The start of the service: its tasks, and what it drives.

use belay_reasons::StoreFault;
use std::{
    collections::HashSet,
    sync::{Arc, Weak},
};

use belay_defects::{Defect, is_planted};
use belay_journal::{ExecutionKey, ExecutionRow, JournalWriter, StoreError};
use belay_service_kit::supervise;
use tokio::sync::oneshot;

use crate::{
    approvals::decisions,
    feeds::Mail,
    owned::{
        budget_waits, limit_reviews, loading,
        messages::Command,
        registry::{ExecutionRegistry, Parts},
        timers,
    },
    runners::{acknowledge, connection},
    service::schedules::fire,
    upkeep::{deletions, retention, webhooks},
};

/// How many executions a start reads and loads at a time.
const CLAIM_PAGE: usize = 256;

impl ExecutionRegistry {
    /// Opens the registry on a store. No execution runs until [`Self::drive_all`], a start or a resume.
    pub fn new<W: JournalWriter>(parts: Parts<W>) -> Arc<Self> {
        let retention = parts.retention.clone();
        let (registry, notices, acknowledgements) = Self::open(parts);
        let (notices, acknowledgements) = (Arc::new(notices), Arc::new(acknowledgements));
        let (gate, runner, ids) = (registry.gate.clone(), registry.runner.clone(), Arc::clone(&registry.ids));
        registry.keep("follows decisions", move |registry| decisions::run_inbox(registry, gate.clone()));
        let wants_session = registry.reading.thresholds.session;
        if wants_session {
            runner.link().start();
        }
        let connected = runner.clone();
        registry
            .keep("connects the runner", move |registry| connection::run(registry, connected.clone(), wants_session));
        registry.keep("loads executions in time", timers::wake_in_time);
        let follower = Arc::clone(&registry.reading.follower);
        registry.keep("drops executions without readers", move |_| {
            let follower = Arc::clone(&follower);
            async move { follower.give_up_left_overs().await }
        });
        registry.keep("delivers messages between executions", loading::deliver_mail);
        registry.keep("gives executions their turns in limits", limit_reviews::run);
        registry.keep("completes deletions", deletions::run);
        registry.keep("deletes executions past their retention", move |registry| {
            retention::run(registry, retention.clone())
        });
        registry.keep("sends messages to webhooks", webhooks::run);
        // These two go on until what is queued has been sent.
        let (gate, ownership) = (registry.gate.clone(), registry.ownership.clone());
        let send =
            move || decisions::run_outbox(Arc::clone(&notices), gate.clone(), Arc::clone(&ids), ownership.clone());
        tokio::spawn(registry.supervised("sends notices to the gate", send));
        let (runner, ids, fence) = (registry.runner.clone(), Arc::clone(&registry.ids), registry.fence);
        let max_batch = registry.reading.thresholds.acknowledge_batch;
        let send = move || {
            acknowledge::send(runner.clone(), fence, Arc::clone(&acknowledgements), max_batch, Arc::clone(&ids))
        };
        tokio::spawn(registry.supervised("acknowledges calls", send));
        let (this, stores) = (Arc::downgrade(&registry), Arc::clone(&registry.stores));
        tokio::spawn(async move {
            let behind = stores.behind().await;
            if let Some(this) = this.upgrade() {
                this.fail(Arc::new(StoreError::Fault(StoreFault::Behind(behind.to_string()))));
            }
        });
        registry
    }

    /// Keeps a task running until the service stops.
    fn keep<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        task: impl Fn(Weak<Self>) -> F + Send + 'static,
    ) {
        let (this, shutdown) = (Arc::downgrade(self), self.reading.shutdown.clone());
        let task = self.supervised(what, move || task(Weak::clone(&this)));
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = shutdown.requested() => {}
                () = task => {}
            }
        });
    }

    /// Runs a task until it returns, again after each panic.
    fn supervised<F: Future<Output = ()> + Send + 'static>(
        &self,
        what: &'static str,
        task: impl Fn() -> F + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (ids, sealer) = (Arc::clone(&self.ids), Arc::clone(&self.reading.sealer));
        let mut first = true;
        let task = move || {
            let fails = std::mem::take(&mut first) && is_planted(Defect::TasksPanic);
            let task = task();
            async move {
                assert!(!fails, "planted");
                task.await;
            }
        };
        async move { supervise(what, &ids, |fault| sealer.shown(fault), task).await }
    }

    /// Takes over every execution that has not ended, and returns how many of them are loaded at once. Parked executions stay out of memory
    /// until they are due.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    pub async fn drive_all(self: &Arc<Self>) -> Result<usize, StoreError> {
        let early = self.take_on_all();
        let (mut count, mut after) = (0, ExecutionKey(i64::MIN));
        loop {
            let claimable = self.reads.read(move |reader| reader.claimable(after, CLAIM_PAGE)).await?;
            let Some(last) = claimable.last() else { break };
            after = last.key;
            count += claimable.len();
            claimable.into_iter().for_each(|row| self.load(row));
        }
        let mut after = ExecutionKey(i64::MIN);
        loop {
            let recipients = self.reads.read(move |reader| reader.recipients(after, CLAIM_PAGE)).await?;
            let Some(last) = recipients.last() else { break };
            after = *last;
            for to in recipients {
                self.deliver(Mail { to, ended: None }).await;
            }
        }
        limit_reviews::take_over(self).await?;
        if !is_planted(Defect::LateTimer) {
            self.wake_ups.look_now();
        }
        self.keep("loads what waits since before the clock was set back", timers::recheck_after_set_back);
        self.keep("fires schedules", fire::run);
        self.keep("loads what a budget has room for again", budget_waits::resume_where_room);
        for delivery in early {
            decisions::deliver(self, delivery).await;
        }
        // The gate may lack what they ask.
        self.notices.review_now();
        Ok(count)
    }

    /// Pauses every execution that this process drives and discards their running calls, so that nothing continues automatically at the
    /// next start. Children are left to their parents, which pause and resume them. Returns when that is done.
    pub async fn pause_all(self: &Arc<Self>, principal: &str, reason: &str) {
        let mut rows = Vec::new();
        for key in self.driven() {
            match self.reads.read(move |reader| reader.get(key)).await {
                Ok(row) => rows.extend(row.filter(|row| !row.summary.ended)),
                Err(error) => tracing::error!(%error, "An execution could not be paused"),
            }
        }
        let driven: HashSet<ExecutionKey> = rows.iter().map(|row| row.key).collect();
        let is_child =
            |row: &ExecutionRow| row.execution.parent.as_ref().is_some_and(|parent| driven.contains(&parent.execution));
        let (children, roots): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_child);
        for row in roots {
            let (reply, received) = oneshot::channel();
            let (principal, reason) = (principal.to_owned(), reason.to_owned());
            self.send(row, Command::PauseAndDrain { principal, reason, reply }).await;
            // An error means that the execution ended first.
            drop(received.await);
        }
        // Their parents have paused them by now; what is left is that their calls end.
        for row in children {
            let (reply, received) = oneshot::channel();
            self.send(row, Command::Drain { reply }).await;
            drop(received.await);
        }
    }
}
