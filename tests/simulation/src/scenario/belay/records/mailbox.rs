//! Messages of webhooks: those that the executor has committed, and those that the receiver has got.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_journal::{BatchOutcome, StoreWrite};
use serde_json::Value;

use super::super::hosts::now_micros;

/// The fate of messages, recorded outside of the machines. Clones are one record.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Mailbox(Arc<Mutex<MailboxState>>);

/// The record of a [`Mailbox`].
#[derive(Debug, Default)]
pub(in super::super) struct MailboxState {
    pub(in super::super) got: Vec<Delivery>,
    /// When the executor has tried to connect, in true time in microseconds since the Unix epoch.
    pub(in super::super) tried: Vec<i64>,
    /// The messages that the executor has committed, and since when.
    pub(in super::super) committed: BTreeMap<String, i64>,
    /// How many messages waited when the outbox was looked at last.
    pub(in super::super) waiting: Option<usize>,
    pub(in super::super) receivers: u64,
    pub(in super::super) is_calm: bool,
}

/// A message that the receiver has got.
#[derive(Debug)]
pub(in super::super) struct Delivery {
    pub(in super::super) id: String,
    pub(in super::super) body: Value,
    pub(in super::super) at: i64,
    pub(in super::super) accepted: bool,
}

impl Mailbox {
    /// The record.
    pub(in super::super) fn state(&self) -> MutexGuard<'_, MailboxState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a batch, and records the messages that it stores.
    pub(in super::super) async fn remembering(
        &self,
        batch: &[StoreWrite],
        commit: impl Future<Output = BatchOutcome>,
    ) -> BatchOutcome {
        let begun = now_micros();
        let answers = commit.await?;
        let mut state = self.state();
        for (operation, answer) in batch.iter().zip(&answers) {
            if let (StoreWrite::Create { outbox, .. } | StoreWrite::Append { outbox, .. }, Ok(_)) = (operation, answer)
            {
                state.committed.extend(outbox.iter().map(|message| (message.id.clone(), begun)));
            }
        }
        Ok(answers)
    }

    /// From now on the receiver accepts everything that it does not refuse for good.
    pub(in super::super) fn calm(&self) {
        self.state().is_calm = true;
    }

    /// Forgets how many messages waited.
    pub(in super::super) fn look_again(&self) {
        self.state().waiting = None;
    }

    /// How many messages wait, as far as the outbox was looked at.
    pub(in super::super) fn waiting(&self) -> Option<usize> {
        self.state().waiting
    }
}
