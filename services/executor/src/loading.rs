//! Loads executions into memory.

use std::sync::Arc;

use belay_journal::ExecutionRow;
use tokio::sync::mpsc;

use crate::{
    driver::Driver,
    messages::{Command, Delivery},
    names::ExecutionName,
    registry::ExecutionRegistry,
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

    fn spawn(self: &Arc<Self>, row: ExecutionRow, commands: mpsc::UnboundedReceiver<Command>) {
        for Delivery { approval, answer } in self.take_on(row.key) {
            self.try_send(row.key, Command::Decided { approval: Box::new(approval), answer });
        }
        Driver::spawn_from_store(Arc::clone(self), row, commands);
    }
}
