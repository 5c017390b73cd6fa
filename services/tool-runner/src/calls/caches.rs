//! The changes that a call makes in caches that are kept: they are merged into the caches when the call commits, and dropped when it does not.

use std::{path::PathBuf, sync::Arc};

use super::Calls;
use crate::{View, registry::RegisteredTool, subject, workspace_locks::WorkspaceGuard};

impl Calls {
    /// Where the caches are kept that a call may change; none when they cannot be found.
    pub(super) fn kept_caches(tool: &RegisteredTool, call: &str, guard: &WorkspaceGuard) -> Vec<PathBuf> {
        tool.tool.kept_caches(subject::namespace(call), guard.path()).unwrap_or_else(|error| {
            tracing::warn!(call, %error, "The caches of a workspace cannot be found; what the call has left in them is dropped");
            Vec::new()
        })
    }

    /// Keeps the changes of caches in a view until the call has ended.
    pub(super) async fn stage_caches(&self, guard: &Arc<WorkspaceGuard>, view: Box<dyn View>) -> Box<dyn View> {
        let guard = Arc::clone(guard);
        let stage = move || {
            if let Err(error) = guard.directory().stage_caches(&*view) {
                tracing::warn!(%error, "The caches that a call has filled cannot be kept, and are dropped");
            }
            view
        };
        self.lanes.quick.run(stage).await
    }

    /// Merges what the call with this view has left in caches into them. A failure costs a later command time, and the call nothing.
    pub(super) async fn merge_caches(&self, guard: &Arc<WorkspaceGuard>, view: String, caches: Vec<PathBuf>) {
        if caches.is_empty() {
            return;
        }
        let guard = Arc::clone(guard);
        let merge = move || {
            let Some(changes) = guard.directory().caches(&view)? else { return Ok(()) };
            for cache in &caches {
                changes.merge(cache.file_name().unwrap_or_default(), cache)?;
            }
            Ok::<_, belay_workspace::IoFailure>(())
        };
        if let Err(error) = self.lanes.effects.run(merge).await {
            tracing::warn!(%error, "The files that a call has left in a cache cannot be merged into it; a cache that got a part of it is emptied before its next use");
        }
    }

    /// Drops what the call with this view has left in caches.
    pub(super) async fn drop_caches(&self, guard: &Arc<WorkspaceGuard>, view: String) {
        let guard = Arc::clone(guard);
        self.lanes.effects.run(move || drop(guard.directory().caches(&view))).await;
    }
}
