//! Calls of a step that have one effect: each but the last leaves a layer, and the last commits what all of them have changed.

use std::{collections::BTreeSet, sync::Arc};

use belay_proto::v1::{ErrorClass, tool_call::State};
use belay_reasons as reasons;
use belay_workspace::{LayerOwner, LayerPlace, ViewError};
use tokio::{sync::watch, time::Instant};
use tonic::Status;

use super::{
    CallRequest, Calls,
    effect::{LayerTarget, Layering},
    judge::read_notes,
    not_durable,
    record::{self, Unsuccessful},
    step_layers::StepLayers,
    stoppable::until_stopped,
    work::{StopCause, limit_of},
};
use crate::{
    LedgerFailure, ToolFailure, View,
    ledger::{Entry, LayerNote, LayerSet, SealedSecrets, StepEffect},
    output::{MAX_FOUND as MAX_SECRETS, MAX_FOUND_BYTES as MAX_SECRETS_BYTES},
    stop::Stop,
    subject::parts,
    workspace_locks::WorkspaceGuard,
};

/// The end of a call whose view cannot begin with the layers of its step. To call again would not help: only the whole step can run again.
fn not_begun(error: &ViewError) -> Unsuccessful {
    let reason = match error {
        ViewError::LayerConflict { .. } => reasons::STEP_CONFLICT,
        ViewError::LayerGone { .. } => reasons::LAYER_GONE,
        _ => return record::workspace_failed(error),
    };
    (
        State::Failed,
        ToolFailure::new(
            ErrorClass::PreconditionFailed,
            reason,
            format!("The call cannot continue from the changes of its step: {error}."),
        ),
    )
}

impl Calls {
    /// Begins the view of a call of a step, with the layers that it begins with.
    pub(super) async fn view_over(
        &self,
        guard: &Arc<WorkspaceGuard>,
        (request, id): (&CallRequest, &str),
        layers: &StepLayers,
        cancelled: &mut watch::Receiver<Stop>,
        deadline: Instant,
    ) -> Result<(Box<dyn View>, Layering), Unsuccessful> {
        let set = self.layer_set(&request.name, layers);
        let (from, begin_with) = layers.begins_with(self.workspaces.tag(), parts(&request.name).0);
        let (guard, id, begin_with) = (Arc::clone(guard), id.to_owned(), begin_with.to_vec());
        let (entry, call, takes_over) = (layers.entry.clone(), request.name.clone(), layers.takes_over());
        let drops_conflicts = request.tool.spec.name == belay_policy::REBASE_CHANGES;
        let begin = move |stop: belay_workspace::Stop<'_>| {
            let directory = guard.directory();
            let owner = if takes_over { LayerOwner::View } else { LayerOwner::Calls };
            let view = if drops_conflicts {
                directory.view_without_conflicts(&id, &from, &begin_with, owner, stop)?
            } else {
                directory.view_over(&id, &from, &begin_with, stop)?
            };
            let notes_of = |set: &str| {
                let notes = read_notes(&directory.layer_notes(set, &begin_with)?);
                notes.map_err(|error| ViewError::Layers { why: error.to_string() })
            };
            let layering = match entry {
                Some(entry) => {
                    let secrets = SealedSecrets { call, sealed: String::new() };
                    let place = LayerPlace { set, entry };
                    // Its layer stands without those that it takes over.
                    let (over, mut taken_over) =
                        if takes_over { (Vec::new(), notes_of(&from)?) } else { (begin_with.clone(), Vec::new()) };
                    // An approval is for the execution in which a person gave it.
                    taken_over.iter_mut().for_each(|note| note.basis.covered.clear());
                    Layering::Leaves(LayerTarget { place, over, secrets, taken_over })
                }
                None => Layering::Commits(StepEffect { notes: notes_of(&set)?, set }),
            };
            Ok((view, layering))
        };
        match until_stopped(&self.lanes.effects, begin, cancelled, deadline).await {
            // The tool has not run.
            (Err(ViewError::Stopped), Some(StopCause::TimedOut)) => {
                Err((State::TimedOut, record::timed_out(limit_of(request))))
            }
            (Err(ViewError::Stopped), _) => Err((State::Cancelled, record::cancelled())),
            (begun, _) => begun.map_err(|error| not_begun(&error)),
        }
    }

    /// The secrets that the calls of layers knew, for the one that commits what they have changed, or takes it over.
    pub(super) fn secrets_of(&self, notes: &[LayerNote]) -> Result<Vec<String>, Unsuccessful> {
        let mut secrets = BTreeSet::new();
        for LayerNote { secrets: sealed, .. } in notes {
            let opened = self.ledger.open_secrets(sealed).ok_or_else(|| {
                let message = "The call cannot continue from the changes of its step: this ledger has not sealed the secrets of its layers.";
                (State::Failed, ToolFailure::new(ErrorClass::PreconditionFailed, reasons::LAYER_GONE, message))
            })?;
            secrets.extend(opened);
        }
        let bytes: usize = secrets.iter().map(String::len).sum();
        if secrets.len() > MAX_SECRETS || bytes > MAX_SECRETS_BYTES {
            let (values, limit) = (secrets.len(), MAX_SECRETS_BYTES / 1024);
            let message = format!(
                "The calls of the step knew {values} secrets of {bytes} bytes together, and one call can hide {MAX_SECRETS} of {limit} KiB: divide the \
                 step into several, or leave out `effects: per_step`."
            );
            return Err((State::Failed, ToolFailure::new(ErrorClass::PreconditionFailed, reasons::TOO_LARGE, message)));
        }
        Ok(secrets.into_iter().collect())
    }

    /// The name of the set that the layers of a call are in.
    pub(super) fn layer_set(&self, call: &str, layers: &StepLayers) -> String {
        layers.set(self.workspaces.tag(), parts(call).0).0
    }

    /// Makes it durable that a set of layers is in use in a workspace, and removes the sets of earlier runs of the step.
    pub(super) async fn use_layer_set(
        self: &Arc<Self>,
        call: &str,
        layers: &StepLayers,
        guard: &Arc<WorkspaceGuard>,
    ) -> Result<(), Status> {
        let execution = parts(call).0;
        let (name, of_step) = layers.set(self.workspaces.tag(), execution);
        if self.workspaces.has_layers(&name) {
            return Ok(());
        }
        let set = LayerSet { name: name.clone(), execution: execution.into(), workspace: guard.path().to_owned() };
        self.ledger.write(Entry::LayerSet(set.clone())).await.map_err(not_durable)?;
        self.workspaces.keep_layers(set);
        // Not those of later runs: a call may end long after its step was made to run again.
        let is_earlier = |set: &LayerSet| {
            let round = set.name.strip_prefix(&of_step).and_then(|round| round.parse().ok());
            round.is_some_and(|round: i32| round < layers.round)
        };
        self.remove_layer_sets(self.workspaces.layer_sets(is_earlier)).await;
        Ok(())
    }

    /// Makes it durable again that a set is in use: the commit that its removal went with could not be applied, and may be tried once more.
    pub(super) async fn keep_layer_set(&self, name: Option<&str>) -> Result<(), LedgerFailure> {
        for set in self.workspaces.layer_sets(|set| Some(&*set.name) == name) {
            self.ledger.write(Entry::LayerSet(set)).await?;
        }
        Ok(())
    }

    /// Removes the files of a set whose removal is durable, in the background.
    pub(super) fn remove_later(self: &Arc<Self>, name: &str) {
        let sets = self.workspaces.layer_sets(|set| set.name == name);
        let calls = Arc::clone(self);
        tokio::spawn(async move {
            for set in sets {
                calls.remove_layer_files(set).await;
            }
        });
    }

    /// Removes sets of layers. What cannot be removed now is removed when its workspace is opened next: nothing keeps it any more.
    pub(super) async fn remove_layer_sets(self: &Arc<Self>, sets: Vec<LayerSet>) {
        for set in sets {
            if let Err(error) = self.ledger.write(Entry::RemovedLayers { set: set.name.clone() }).await {
                tracing::warn!(%error, "Cannot remove layers of a step from the ledger; they stay until the execution is deleted");
                return;
            }
            self.remove_layer_files(set).await;
        }
    }

    async fn remove_layer_files(self: &Arc<Self>, LayerSet { name, workspace, .. }: LayerSet) {
        self.workspaces.release_layers(&name);
        let removed = match self.workspaces.open(self.workspaces.known(workspace)).await {
            Ok(guard) => {
                let guard = Arc::new(guard);
                let remove = move || guard.directory().remove_layers(&name);
                self.lanes.effects.run(remove).await.map_err(|error| error.to_string())
            }
            Err(unavailable) => Err(unavailable.to_string()),
        };
        if let Err(why) = removed {
            tracing::warn!(why, "Cannot remove layers of a step; they stay until the workspace is next opened");
        }
    }
}
