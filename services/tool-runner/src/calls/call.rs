//! A call in memory: its progress, its output, and who follows it.

use std::sync::Arc;

use belay_proto::{runner_v1, v1::tool_call::State};
use belay_reasons as reasons;
use belay_service_kit::status;
use tokio::sync::watch;
use tonic::{Code, Status};

use super::ended::EndedCall;
use crate::{
    Ledger,
    ledger::Row,
    output::OutputBuffer,
    questions::Questions,
    secrets::CallSecrets,
    stop::{self, Stop},
};

/// Where a call is in its life.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    /// Its tool runs.
    Running,
    /// A decision about it is being carried out.
    Resolving,
    /// It waits for approval.
    AwaitingApproval(Arc<runner_v1::ToolCall>),
    Ended(EndedCall),
    /// The write of its row failed, so its outcome is unknown until the runner has restarted and read the ledger.
    Unresolved,
}

impl Progress {
    /// Whether the runner is working on it, as opposed to waiting for a decision or having ended.
    fn is_busy(&self) -> bool {
        matches!(self, Self::Running | Self::Resolving)
    }
}

/// A subscription to the progress and output of a call.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) name: String,
    pub(crate) progress: watch::Receiver<Progress>,
    /// The exclusive call whose end this one waits for.
    pub(crate) waits_for: watch::Receiver<Option<Arc<str>>>,
    pub(crate) output: Arc<OutputBuffer>,
    /// The questions that it asks; `None` for one that does not.
    pub(crate) questions: Option<Questions>,
}

/// A call. Clones are the same call.
#[derive(Clone)]
pub(super) struct Call {
    /// The digest of tool, workspace and arguments; empty for a tombstone, which matches any request.
    pub(super) digest: Arc<str>,
    pub(super) progress: Arc<watch::Sender<Progress>>,
    pub(super) cancel: Arc<watch::Sender<Stop>>,
    /// The exclusive call whose end this one waits for.
    pub(super) waits_for: Arc<watch::Sender<Option<Arc<str>>>>,
    pub(super) output: Arc<OutputBuffer>,
    /// The questions that it asks; `None` for one that does not.
    pub(super) questions: Option<Questions>,
    /// The message returned while the call runs.
    pub(super) started: Arc<runner_v1::ToolCall>,
    /// Redacts its secrets in output, approvals and failures.
    pub(super) secrets: Arc<CallSecrets>,
}

impl Call {
    pub(super) fn new(
        digest: Arc<str>,
        progress: Progress,
        started: runner_v1::ToolCall,
        secrets: Arc<CallSecrets>,
    ) -> Self {
        Self {
            digest,
            progress: Arc::new(watch::Sender::new(progress)),
            cancel: Arc::new(watch::Sender::new(Stop::No)),
            waits_for: Arc::new(watch::Sender::new(None)),
            output: Arc::new(OutputBuffer::new(secrets.redactor(), secrets.marks_result())),
            questions: None,
            started: Arc::new(started),
            secrets,
        }
    }

    pub(super) fn subscription(&self) -> Subscription {
        Subscription {
            name: self.started.name.clone(),
            progress: self.progress.subscribe(),
            waits_for: self.waits_for.subscribe(),
            output: Arc::clone(&self.output),
            questions: self.questions.clone(),
        }
    }

    pub(super) fn now(&self) -> Arc<runner_v1::ToolCall> {
        match &*self.progress.borrow() {
            Progress::Running | Progress::Resolving | Progress::Unresolved => Arc::clone(&self.started),
            Progress::AwaitingApproval(call) => Arc::clone(call),
            Progress::Ended(ended) => Arc::clone(&ended.call),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(*self.progress.borrow(), Progress::Ended(_))
    }

    pub(super) fn awaits_approval(&self) -> bool {
        matches!(*self.progress.borrow(), Progress::AwaitingApproval(_))
    }

    /// Whether it waits for approval, and only the map of calls has it.
    pub(super) fn can_be_unloaded(&self) -> bool {
        self.awaits_approval() && Arc::strong_count(&self.progress) == 1
    }

    /// Returns its progress once it is no longer busy.
    pub(super) async fn wait_until_idle(&self) -> Result<Progress, Status> {
        wait_until_idle(&mut self.progress.subscribe()).await
    }

    /// Moves a call that waits for approval to `next`, so that no other request can decide it. Returns `None` when the call does not wait
    /// for approval.
    pub(super) fn claim_pending(&self, next: Progress) -> Option<Arc<runner_v1::ToolCall>> {
        let mut waited = None;
        self.progress.send_if_modified(|progress| {
            if let Progress::AwaitingApproval(call) = progress {
                waited = Some(Arc::clone(call));
                *progress = next;
            }
            waited.is_some()
        });
        waited
    }
}

/// Returns the progress of a call once it is no longer busy.
pub(crate) async fn wait_until_idle(progress: &mut watch::Receiver<Progress>) -> Result<Progress, Status> {
    match progress.wait_for(|progress| !progress.is_busy()).await.as_deref() {
        Ok(Progress::Unresolved) => Err(unresolved()),
        Ok(progress) => Ok(progress.clone()),
        Err(_) => {
            Err(status::error(Code::Unavailable, reasons::RUNNER_STOPPING, "The tool runner is stopping.").into())
        }
    }
}

/// Returns when cancellation of the call has been requested.
pub(super) async fn cancel_requested(cancelled: &mut watch::Receiver<Stop>) {
    stop::at_least(cancelled, Stop::Gracefully).await;
}

/// The error for a call whose row may or may not have been written.
pub(crate) fn unresolved() -> Status {
    let message = "The call ledger cannot be written, so the outcome of this call is unknown until the runner has restarted: retry then.";
    status::error(Code::Unavailable, reasons::LEDGER_UNAVAILABLE, message).into()
}

/// The call as it was when it started, for those who attach to it.
fn as_started(call: runner_v1::ToolCall) -> runner_v1::ToolCall {
    runner_v1::ToolCall {
        state: State::Running.into(),
        result: None,
        failure: None,
        end_time: None,
        receipt: None,
        approval_need: None,
        ..call
    }
}

/// A call as the ledger has it.
pub(super) fn restore(ledger: &Ledger, row: &Row, progress: Progress) -> Call {
    let started = as_started(row.call.clone());
    let secrets = ledger.secrets_of_call(&started);
    Call::new(row.digest.as_str().into(), progress, started, secrets)
}

#[cfg(test)]
mod tests {
    use belay_proto::v1;

    use super::*;

    #[test]
    fn who_attaches_to_a_restored_call_is_told_only_that_it_started() {
        let ended = runner_v1::ToolCall {
            name: "the call".into(),
            state: State::Completed.into(),
            tool: "write_file".into(),
            result: Some(v1::Payload::of_json("7")),
            failure: Some(v1::Failure::default()),
            end_time: Some(belay_proto::timestamp(9_000_000)),
            receipt: Some(Box::new(v1::Receipt::default())),
            approval_need: Some(v1::ApprovalNeed::default()),
            ..runner_v1::ToolCall::default()
        };
        let started = as_started(ended);
        let expected = runner_v1::ToolCall {
            name: "the call".into(),
            state: State::Running.into(),
            tool: "write_file".into(),
            ..runner_v1::ToolCall::default()
        };
        assert_eq!(started, expected);
    }
}
