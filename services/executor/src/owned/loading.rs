//! Loads executions into memory.

use std::sync::{Arc, Weak};

use belay_defects::{Defect, is_planted};
use belay_journal::{ExecutionKey, ExecutionRow};
use belay_service_kit::Retry;
use tokio::sync::mpsc;

use crate::{
    driver::Driver,
    feeds::Mail,
    names::ExecutionName,
    owned::{
        messages::{Command, Delivery},
        registry::ExecutionRegistry,
    },
};

impl ExecutionRegistry {
    /// Sends a command to an execution, loading it into memory if needed.
    pub(crate) async fn send(self: &Arc<Self>, row: ExecutionRow, command: Command) {
        let name = ExecutionName { namespace: row.execution.namespace.clone(), id: row.execution.id.clone() };
        self.until_created(&name).await;
        if let Some(status) = self.why_aside(row.key) {
            return command.refuse(&status);
        }
        if let Some(commands) = self.enter(row.key, vec![command]) {
            self.spawn(row, commands);
        }
    }

    /// Loads an execution into memory, unless it is there.
    pub(crate) fn load(self: &Arc<Self>, row: ExecutionRow) {
        if self.why_aside(row.key).is_some() {
            return;
        }
        if let Some(commands) = self.enter(row.key, Vec::new()) {
            self.spawn(row, commands);
        }
    }

    /// Loads a child of an execution that this process drives, so that it is driven as well. A service that drives all executions has taken it up.
    pub(crate) fn drive_child(self: &Arc<Self>, row: ExecutionRow) {
        if !self.drives_all() && !row.summary.ended && !is_planted(Defect::ChildNotDriven) {
            self.load(row);
        }
    }

    /// Delivers a message to the execution that it is for, which is loaded if needed. One that another process drives reads it from its inbox.
    pub(crate) async fn deliver(self: &Arc<Self>, Mail { to, ended }: Mail) {
        self.wake(to, ended.map_or(Command::ReviewChildren, |ended| Command::ChildEnded(Box::new(ended)))).await;
    }

    /// Sends a command to an execution that this process drives, or loads it: then it looks at everything itself.
    pub(crate) async fn wake(self: &Arc<Self>, to: ExecutionKey, command: Command) {
        if self.try_send(to, command) || !self.is_driven(to) {
            return;
        }
        let mut retry = Retry::RPC;
        loop {
            match self.reads.read(move |reader| reader.get(to)).await {
                Ok(Some(row)) => return self.load(row),
                // It has been deleted, with its inbox.
                Ok(None) => return,
                Err(error) => tracing::error!(%error, "An execution that is to be woken cannot be read; retrying"),
            }
            retry.pause(&self.ids).await;
        }
    }

    fn spawn(self: &Arc<Self>, row: ExecutionRow, commands: mpsc::UnboundedReceiver<Command>) {
        for Delivery { approval, answer } in self.take_on(row.key) {
            self.try_send(row.key, Command::Decided { approval: Box::new(approval), answer });
        }
        Driver::spawn_from_store(Arc::clone(self), row, commands);
    }
}

/// Delivers the messages that executions send each other.
pub(crate) async fn deliver_mail(registry: Weak<ExecutionRegistry>) {
    let Some(this) = registry.upgrade() else { return };
    let follower = Arc::clone(&this.reading.follower);
    drop(this);
    let mut mailed = follower.mailed.lock().await;
    while let Some(mail) = mailed.recv().await {
        let Some(this) = registry.upgrade() else { return };
        this.deliver(mail).await;
    }
}
