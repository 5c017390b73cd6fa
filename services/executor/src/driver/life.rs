//! The life of a driver: it is loaded from the journal, drives its execution until that parks or ends, and is loaded again after a fault.
//!
//! A fault is a panic in the driver or in one of its operations. What it held in memory is dropped; the journal has everything that was shown
//! or acted on, so the next driver continues as after the loss of the process. An execution whose drivers fail again and again is set aside,
//! so that it takes nothing from the others: the next start of the executor, perhaps of a version without the fault, takes it up again.

use std::{panic::AssertUnwindSafe, sync::Arc};

use belay_journal::ExecutionKey;
use belay_reasons as reasons;
use belay_service_kit::{Retry, status, words};
use futures::FutureExt as _;
use tokio::sync::mpsc;
use tonic::{Code, Status};
use tracing::Instrument as _;

use super::{Driver, Loaded};
use crate::{journal_reads::unreadable, messages::Command, names::ExecutionName, registry::ExecutionRegistry};

/// How many faults there may be while an execution is in memory. One that comes from its state comes back at once; one that has another cause
/// is over after the first.
const MAX_FAULTS: u32 = 3;

/// Why a driver has stopped.
pub(super) enum Exit {
    /// Its execution is parked or has ended, and has left memory.
    Unloaded,
    /// The service is stopping.
    Stopping,
    /// The store failed, or another owner wrote to it.
    Lost(Status),
    /// One of its operations failed by a fault in the executor.
    Fault(String),
}

/// With what the life of a driver begins.
pub(super) enum First {
    /// The driver of an execution that was just created.
    Driver(Box<Driver>),
    /// An execution in the journal.
    Stored,
}

/// Drives an execution until it leaves memory.
pub(super) async fn live(
    registry: Arc<ExecutionRegistry>,
    key: ExecutionKey,
    name: ExecutionName,
    first: First,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let (mut first, mut faults, mut retry) = (Some(first), 0, Retry::RPC);
    loop {
        let life = one(&registry, key, first.take(), &mut commands);
        let fault = match AssertUnwindSafe(life).catch_unwind().await {
            Ok(Exit::Unloaded) => return,
            Ok(Exit::Stopping) => return registry.evict(key),
            Ok(Exit::Lost(status)) => {
                tracing::error!(execution.name = %name, %status, "An execution is stopped until the next start of the executor");
                registry.evict(key);
                return refuse_all(commands, &status);
            }
            Ok(Exit::Fault(what)) => what,
            Err(panic) => words(panic.as_ref()),
        };
        faults += 1;
        // The driver may have committed events that it did not publish.
        registry.feed(key).read_again();
        // It may quote what the driver had in memory.
        let fault = registry.vault.shown(fault);
        if faults == MAX_FAULTS {
            tracing::error!(execution.name = %name, fault, "The driver of an execution failed again; the execution is set aside until the next start of the executor");
            let status = set_aside(&name);
            registry.set_aside(key, status.clone());
            return refuse_all(commands, &status);
        }
        tracing::error!(execution.name = %name, fault, "The driver of an execution failed; the execution continues from its journal");
        // The driver may have received a decision that it did not record: the gate sends it again.
        registry.notices.review_now();
        retry.pause(&registry.ids).await;
    }
}

/// One driver, from what the life begins with or, after a fault, from the journal.
async fn one(
    registry: &Arc<ExecutionRegistry>,
    key: ExecutionKey,
    first: Option<First>,
    commands: &mut mpsc::UnboundedReceiver<Command>,
) -> Exit {
    match first {
        Some(First::Driver(mut driver)) => {
            let log_span = driver.trace.log_span();
            return driver.run(commands).instrument(log_span).await;
        }
        Some(First::Stored) | None => {}
    }
    let mut driver = match load(registry, key).await {
        Ok(loaded) => Driver::new(Arc::clone(registry), loaded),
        Err(exit) => return exit,
    };
    // A call whose approval is still pending has not been sent again since it was held.
    let sent = driver
        .execution
        .operations()
        .filter(|operation| operation.pending_approval.as_ref().is_none_or(|pending| pending.decided.is_some()));
    let counted = sent.map(|operation| {
        let is_call = operation.tool_call().is_some();
        (operation.key, is_call.then(|| registry.calls_in_doubt.add()))
    });
    driver.in_doubt = counted.collect();
    let log_span = driver.trace.log_span();
    driver.run(commands).instrument(log_span).await
}

/// Reads an execution from the journal. Its row as well: the one by which it was found may be older than the end of the driver before.
async fn load(registry: &Arc<ExecutionRegistry>, key: ExecutionKey) -> Result<Loaded, Exit> {
    let mut retry = Retry::RPC;
    loop {
        let row = registry.reads.read(move |reader| reader.get(key)).await;
        let loaded = match row.map_err(|error| unreadable(&error)) {
            Ok(Some(row)) => Driver::from_store(registry, row).await,
            // It has been deleted.
            Ok(None) => return Err(Exit::Stopping),
            Err(status) => Err(status),
        };
        match loaded {
            Ok(loaded) => return Ok(loaded),
            // A temporary disk failure must not leave the execution without a driver.
            Err(status) if status.code() == Code::Unavailable => {
                tracing::warn!(execution.key = key.0, %status, "An execution cannot be loaded now; retrying");
                tokio::select! {
                    biased;
                    () = registry.shutdown.requested() => return Err(Exit::Stopping),
                    () = retry.pause(&registry.ids) => {}
                }
            }
            Err(status) => return Err(Exit::Lost(status)),
        }
    }
}

fn refuse_all(mut commands: mpsc::UnboundedReceiver<Command>, status: &Status) {
    commands.close();
    while let Ok(command) = commands.try_recv() {
        command.refuse(status);
    }
}

/// The answer to requests for an execution that is set aside.
fn set_aside(name: &ExecutionName) -> Status {
    let message = format!(
        "Execution `{}` was set aside after {MAX_FAULTS} faults of the executor in a row; nothing of it is lost. Restart the executor to take \
         it up again, and report the fault that its log names.",
        name.id
    );
    status::error(Code::Internal, reasons::EXECUTION_SET_ASIDE, message).with("name", name).into()
}
