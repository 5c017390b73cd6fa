//! Forgets executions that were deleted.

use std::sync::Arc;

use belay_proto::runner_v1::MadeFolder;
use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::{Code, Status};

use super::{Calls, Progress, not_durable};
use crate::lock::lock;
use crate::stop::Stop;

impl Calls {
    /// Forgets every call of an execution, `namespaces/*/executions/*`, and removes the folder that only it has used. `token`: the fencing token of
    /// its executor. An error leaves some of it, and the request has to be made again.
    pub(crate) async fn forget_execution(
        self: &Arc<Self>,
        execution: &str,
        folder: Option<&MadeFolder>,
        token: i64,
    ) -> Result<(), Status> {
        let prefix = format!("{execution}/steps/");
        let is_ended = |progress: &Progress| matches!(progress, Progress::Ended(_));
        let unended: Vec<String> = {
            let known = self.known();
            let of_it = known.calls.iter().filter(|(name, _)| name.starts_with(&prefix));
            let unended = of_it.filter(|(_, call)| !is_ended(&call.progress.borrow()));
            let held = known.held_below(&prefix).map(str::to_owned);
            unended.map(|(name, _)| name.clone()).chain(held).collect()
        };
        for name in unended {
            self.cancel(&name, Stop::AtOnce).await?;
        }
        // Until its effect is on the disk, a row is what applies it again after a power loss.
        if self.acknowledgements.has_unsynced(&prefix) {
            self.workspaces.sync().await;
            if self.acknowledgements.has_unsynced(&prefix) {
                let message = format!("Effects of {execution} are not synced to disk yet: retry.");
                return Err(status::error(Code::Unavailable, reasons::WORKSPACE_FAILED, message).into());
            }
        }
        {
            let mut known = self.known();
            let mut recent = lock(&self.recent);
            // While `known` is locked: otherwise a delayed request could start the call again.
            let forgotten =
                known.calls.extract_if(|name, call| name.starts_with(&prefix) && is_ended(&call.progress.borrow()));
            forgotten.for_each(|(name, _)| recent.add(name, token));
        }
        self.remove_layer_sets(self.workspaces.layer_sets(|set| set.execution == execution)).await;
        if !self.ledger.forget(execution).await.map_err(not_durable)? {
            let message = "The calls are deleted, and a reader such as `belay store check` keeps their bytes in the ledger's write-ahead log \
                           until it ends: retry.";
            return Err(status::error(Code::Unavailable, reasons::STORE_LOCKED, message).into());
        }
        match folder {
            None => Ok(()),
            Some(folder) => self.workspaces.remove_made(folder).await.map_err(|unavailable| unavailable.into_status()),
        }
    }
}
