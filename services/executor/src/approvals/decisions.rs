//! Decisions of the gate: the inbox delivers them to their executions, the outbox reports to the gate how they were used.
//!
//! A denial is acknowledged once it is stored. An approval is acknowledged only with its use: until then the gate sends it again with each
//! watch, so it reaches its final state even when an executor crashes. The execution's events record how it was used.

mod compare;
mod outbox;
pub(crate) mod outcome;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use belay_proto::gate_v1::watch_decisions_response::Content;
use belay_service_kit::Retry;
use tokio::task::{JoinError, JoinHandle};
use tonic::Code;

pub(crate) use self::outbox::run as run_outbox;
use crate::{
    approvals::gate::{Gate, not_understood},
    names::ExecutionName,
    owned::{
        messages::{Command, Delivery, GateNotice},
        registry::ExecutionRegistry,
    },
    wire,
};

/// A watch without a message for this long has lost its gate: three heartbeats.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45);

/// The inbox: receives every decision and delivers it to its execution, until the service stops.
pub(crate) async fn run_inbox(registry: Weak<ExecutionRegistry>, gate: Gate) {
    let mut retry = Retry::RPC;
    // The gate's store, when what it asks was compared with what executions ask.
    let mut compared = None;
    loop {
        let is_available = match gate.watch().await {
            Ok(mut stream) => {
                let Some(this) = registry.upgrade() else { return };
                this.reading.availability.gate().set_available();
                let run = compare::run_of_gate(&this);
                drop(this);
                // A gate that replies now may have another store than before.
                let mut comparing = (run.is_none() || compared != run).then(|| Comparing::start(registry.clone()));
                loop {
                    let Some(outbox) = registry.upgrade().map(|this| Arc::clone(&this.notices)) else { return };
                    let message = tokio::select! {
                        biased;
                        () = outbox.review() => {
                            compared = None;
                            break true;
                        }
                        () = Comparing::end(&mut comparing) => {
                            comparing = None;
                            compared.clone_from(&run);
                            continue;
                        }
                        message = tokio::time::timeout(WATCH_TIMEOUT, stream.message()) => message,
                    };
                    match message {
                        Ok(Ok(Some(message))) => {
                            retry.succeeded();
                            let Some(registry) = registry.upgrade() else { return };
                            if let Some(Content::Approval(approval)) = message.content
                                && !deliver(&registry, Delivery { approval, answer: message.answer }).await
                            {
                                // The next watch returns it again.
                                break true;
                            }
                        }
                        Ok(Ok(None)) => break true,
                        Ok(Err(_)) | Err(_) => break false,
                    }
                }
            }
            Err(status) => {
                tracing::debug!(%status, "The approval gate does not answer, asking again");
                false
            }
        };
        let Some(this) = registry.upgrade() else { return };
        if !is_available {
            this.reading.availability.gate().set_unavailable(this.now());
        }
        let delay = retry.delay(&this.ids);
        drop(this);
        tokio::time::sleep(delay).await;
    }
}

/// A comparison that runs beside the delivery of decisions; it ends when this is dropped.
struct Comparing(JoinHandle<()>);

impl Comparing {
    fn start(registry: Weak<ExecutionRegistry>) -> Self {
        Self(tokio::spawn(async move {
            if let Some(registry) = registry.upgrade() {
                compare::run(&registry).await;
            }
        }))
    }

    /// Returns when there is one and it has ended.
    async fn end(comparing: &mut Option<Self>) {
        let ended = match comparing {
            Some(Self(task)) => task.await,
            None => std::future::pending().await,
        };
        if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Comparing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Delivers a decision to its execution, loading the execution if needed. When the execution has ended, reports to the gate how the decision
/// was used. Returns `false` when the store cannot be read now; the decision then stays undelivered.
pub(crate) async fn deliver(registry: &Arc<ExecutionRegistry>, delivery: Delivery) -> bool {
    let Delivery { approval, .. } = &delivery;
    let name = approval.name.clone();
    if let Err(problem) = wire::check_approval(approval) {
        // Not acknowledged, so the gate sends it to a newer executor.
        tracing::error!(approval = name, status = %not_understood(&problem), "A decision is left to the approval gate");
        return true;
    }
    if wire::is_pending(approval.state()) {
        return true;
    }
    let row = match ExecutionName::parse("execution", &approval.execution) {
        Ok(execution) => registry.reads.find(&execution).await,
        Err(status) => Err(status),
    };
    match row {
        Ok(row) if row.summary.ended => {
            return outcome::report_late_decision(registry, row.key, approval).await;
        }
        Ok(row) => {
            if let Some(Delivery { approval, answer }) = registry.unless_unowned(row.key, delivery) {
                registry.send(row, Command::Decided { approval: Box::new(approval), answer }).await;
            }
        }
        Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => {
            tracing::warn!(approval = name, "Dropped a decision for an execution that this journal does not have");
            GateNotice::dropped(approval).into_iter().for_each(|notice| registry.notify_gate(notice));
        }
        Err(status) => {
            tracing::error!(approval = name, %status, "A decision cannot be delivered now; it will be delivered again");
            return false;
        }
    }
    true
}
