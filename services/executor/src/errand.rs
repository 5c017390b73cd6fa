//! One call's way to the runner and back, however often it has to be asked.

use std::{sync::Arc, time::Duration};

use belay_execution::{CallRequest, EventKind};
use belay_proto::v1;
use tokio::{sync::mpsc, task::AbortHandle};

use crate::{
    core::Executions,
    runner::{Answer, without_ledger},
};

/// How long to wait before a runner that is away is asked again: doubles from the first to the last.
const RUNNER_PATIENCE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What a driver hears from its calls.
pub(crate) enum News {
    Ended(EventKind),
    /// The runner does not answer.
    Away,
    /// Another executor owns the shard.
    Fenced,
}

/// A task on its way to the runner. When this is dropped it sends nothing more: the runner forgets a call once its end is stored here,
/// so whoever still asked for it after that would have it run again.
pub(crate) struct Underway {
    /// Whether it is to stop the call, not to have it run.
    pub(crate) stops: bool,
    task: AbortHandle,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One call's way to the runner, until there is an answer.
pub(crate) struct Errand {
    pub(crate) executions: Arc<Executions>,
    pub(crate) name: String,
    pub(crate) workspace: String,
    pub(crate) request: CallRequest,
    pub(crate) fence: v1::Fence,
    /// Whether somebody may have sent the call before.
    pub(crate) maybe_sent: bool,
    pub(crate) heard: mpsc::UnboundedSender<News>,
}

impl Errand {
    /// Sets out: to have the call run, or to stop it.
    pub(crate) fn start(self, stop: bool) -> Underway {
        Underway { stops: stop, task: tokio::spawn(self.run(stop)).abort_handle() }
    }

    async fn run(mut self, stop: bool) {
        let runner = &self.executions.runner;
        let mut ledger_id = self.request.ledger_id.clone();
        let (mut patience, longest) = RUNNER_PATIENCE;
        loop {
            let answer = if stop {
                runner.stop(self.name.clone(), &self.request, self.fence, &ledger_id).await
            } else {
                runner.call(self.name.clone(), self.workspace.clone(), &self.request, self.fence, &ledger_id).await
            };
            let news = match answer {
                Answer::Ended(end) => News::Ended(end),
                Answer::Fenced => News::Fenced,
                Answer::LedgerChanged => {
                    // Heard anew for the intents to come.
                    let catalogue = runner.catalogue(true).await;
                    match without_ledger(&self.request).filter(|_| self.maybe_sent) {
                        Some(unknown) => News::Ended(unknown),
                        None => {
                            // Not any ledger: were it lost too, the next would have the call run again.
                            match catalogue {
                                Ok(catalogue) => ledger_id.clone_from(&catalogue.ledger_id),
                                Err(_) => tokio::time::sleep(patience).await,
                            }
                            continue;
                        }
                    }
                }
                Answer::Away(status) => {
                    self.maybe_sent = true;
                    tracing::debug!(call = self.name, %status, "The runner does not answer, asking again");
                    if self.heard.send(News::Away).is_err() {
                        return;
                    }
                    tokio::time::sleep(patience).await;
                    patience = (patience * 2).min(longest);
                    continue;
                }
            };
            // The driver is gone when the service stops; the next one asks again.
            drop(self.heard.send(news));
            return;
        }
    }
}
