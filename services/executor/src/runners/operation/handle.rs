//! Handles of running operations.

use belay_execution::{OperationKey, RequiredAction};
use tokio::{sync::mpsc, task::AbortHandle};

use super::Update;
use crate::runners::link::InSession;

/// A running operation; dropping the handle aborts it. The runner forgets a call once its end is stored here, so an operation that sent the
/// call after that would run it again.
pub(crate) struct OperationHandle {
    pub(crate) required: RequiredAction,
    /// Distinguishes it from those that it replaced; 0 where they need not be.
    pub(crate) number: u64,
    pub(super) _running: Running,
}

/// The task that carries out an operation.
pub(super) enum Running {
    /// Without a task here, until the session has its end.
    InSession {
        _operation: InSession,
    },
    Task(AbortHandle),
}

impl OperationHandle {
    pub(crate) fn new(required: RequiredAction, task: AbortHandle) -> Self {
        Self::numbered(required, 0, task)
    }

    /// A handle of an operation whose reports are told from those of the one that it replaces.
    pub(crate) fn numbered(required: RequiredAction, number: u64, task: AbortHandle) -> Self {
        Self { required, number, _running: Running::Task(task) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Task(task) => task.abort(),
            Self::InSession { .. } => {}
        }
    }
}

/// Reports to the driver when the operation panics: nothing else would come from it.
pub(crate) struct ReportFault(mpsc::UnboundedSender<Update>, OperationKey);

impl ReportFault {
    pub(crate) fn new(updates: &mpsc::UnboundedSender<Update>, operation: OperationKey) -> Self {
        Self(updates.clone(), operation)
    }
}

impl Drop for ReportFault {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // An error means that the driver has ended.
            drop(self.0.send(Update::Fault(self.1)));
        }
    }
}
