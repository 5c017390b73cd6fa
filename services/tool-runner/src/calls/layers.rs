//! Calls of a step that have one effect: each but the last leaves a layer, and the last commits what all of them have changed.

use std::sync::Arc;

use belay_proto::v1::{self, ErrorClass, tool_call::State};
use belay_reasons as reasons;
use belay_service_kit::status;
use belay_workspace::{LayerPlace, ViewError};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use tonic::Status;

use super::{
    Calls, Progress,
    effect::Layering,
    judge::read_notes,
    not_durable,
    record::{self, Unsuccessful},
    run::Job,
};
use crate::{
    ToolFailure, View,
    ledger::{Entry, LayerSet, StepEffect},
    subject::parts,
    workspace_locks::WorkspaceGuard,
};

/// The most layers that a call begins with.
const MAX_LAYERS: usize = 1000;

/// The place of a call among those of its step, as its request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepLayers {
    step: String,
    round: i32,
    /// The layers that the call begins with, in their order.
    pub(crate) begin_with: Vec<String>,
    /// Whose layer it leaves; `None` for the call that commits.
    pub(crate) entry: Option<String>,
}

impl StepLayers {
    /// Reads the message.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, which names the field.
    pub(crate) fn read(layers: v1::StepLayers) -> Result<Self, Status> {
        let v1::StepLayers { step, round, layers, entry } = layers;
        if step.is_empty() {
            return Err(status::invalid("layers.step", "is needed").into());
        }
        if round < 1 {
            return Err(status::invalid("layers.round", "must be 1 or more").into());
        }
        if layers.len() > MAX_LAYERS {
            let message = format!("has {} entries, and the limit is {MAX_LAYERS}", layers.len());
            return Err(status::invalid("layers.layers", message).into());
        }
        let is_plain = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=64).contains(&text.len()) && text.bytes().all(plain)
        };
        let is_reference =
            |text: &str| text.split_once('.').is_some_and(|(id, digest)| is_plain(id) && is_plain(digest));
        if let Some(other) = layers.iter().find(|layer| !is_reference(layer)) {
            let message = format!("has {other:?}, which no receipt has as its layer");
            return Err(status::invalid("layers.layers", message).into());
        }
        let entry = Some(entry).filter(|entry| !entry.is_empty());
        if entry.as_deref().is_some_and(|entry| !is_plain(entry)) {
            return Err(status::invalid("layers.entry", "must have 1 to 64 letters, digits, `-` and `_`").into());
        }
        Ok(Self { step, round, begin_with: layers, entry })
    }

    /// What distinguishes a request with these layers from others about the same call.
    pub(crate) fn identity(&self) -> String {
        let Self { step, round, begin_with, entry } = self;
        format!("{step} {round} {} {}", entry.as_deref().unwrap_or_default(), begin_with.join(","))
    }

    /// The name of the set of layers, and the beginning of the names of the sets of all runs of the step.
    fn set(&self, tag: &str, execution: &str) -> (String, String) {
        let digest = Sha256::new().chain_update(execution).chain_update([0]).chain_update(&self.step).finalize();
        let of_step = format!("{tag}-{}-", &HEXLOWER.encode(&digest)[..24]);
        (format!("{of_step}{}", self.round), of_step)
    }
}

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
            format!("The call cannot go on from what the step has changed: {error}."),
        ),
    )
}

impl Calls {
    /// Begins the view of a call of a step, with the layers that it begins with.
    pub(super) async fn view_over(
        &self,
        guard: &Arc<WorkspaceGuard>,
        job: &Job,
        layers: &StepLayers,
        id: &str,
    ) -> Result<(Box<dyn View>, Layering), Unsuccessful> {
        let set = self.layer_set(&job.request.name, layers);
        let (guard, id, begin_with) = (Arc::clone(guard), id.to_owned(), layers.begin_with.clone());
        let entry = layers.entry.clone();
        let begin = move || {
            let directory = guard.directory();
            let view = directory.view_over(&id, &set, &begin_with)?;
            let layering = match entry {
                Some(entry) => Layering::Leaves(LayerPlace { set, entry }, begin_with),
                None => {
                    let notes = read_notes(&directory.layer_notes(&set, &begin_with)?);
                    let notes = notes.map_err(|error| ViewError::Layers { why: error.to_string() })?;
                    Layering::Commits(StepEffect { set, notes })
                }
            };
            Ok((view, layering))
        };
        self.lanes.effects.run(begin).await.map_err(|error| not_begun(&error))
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

    /// Removes the layers of a step once the call that commits its effect has ended well, in the background.
    pub(super) fn remove_committed(self: &Arc<Self>, call: &str, layers: Option<&StepLayers>, progress: &Progress) {
        let Some(layers) = layers.filter(|layers| layers.entry.is_none()) else { return };
        if !matches!(progress, Progress::Ended(ended) if ended.call.state() == State::Completed) {
            return;
        }
        self.remove_later(&self.layer_set(call, layers));
    }

    /// The same once the effect of the step was approved and committed.
    pub(super) fn remove_approved(self: &Arc<Self>, effect: &StepEffect) {
        self.remove_later(&effect.set);
    }

    fn remove_later(self: &Arc<Self>, name: &str) {
        let sets = self.workspaces.layer_sets(|set| set.name == name);
        let calls = Arc::clone(self);
        tokio::spawn(async move { calls.remove_layer_sets(sets).await });
    }

    /// Removes sets of layers. What cannot be removed now is removed when its workspace is opened next: nothing keeps it any more.
    pub(super) async fn remove_layer_sets(self: &Arc<Self>, sets: Vec<LayerSet>) {
        for LayerSet { name, workspace, .. } in sets {
            if let Err(error) = self.ledger.write(Entry::RemovedLayers { set: name.clone() }).await {
                tracing::warn!(%error, "Cannot remove layers of a step from the ledger; they stay until the execution is deleted");
                return;
            }
            self.workspaces.release_layers(&name);
            let removed = match self.workspaces.open(self.workspaces.known(workspace)).await {
                Ok(guard) => {
                    let guard = Arc::new(guard);
                    self.lanes
                        .effects
                        .run(move || guard.directory().remove_layers(&name))
                        .await
                        .map_err(|error| error.to_string())
                }
                Err(unavailable) => Err(unavailable.to_string()),
            };
            if let Err(why) = removed {
                tracing::warn!(why, "Cannot remove layers of a step; they stay until the workspace is next opened");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> v1::StepLayers {
        v1::StepLayers { step: "a".into(), round: 1, layers: vec!["one.d".into()], entry: "0".into() }
    }

    #[test]
    fn what_a_request_says_of_its_layers_is_checked_by_field() {
        let read = StepLayers::read(message()).unwrap();
        assert_eq!((read.begin_with.as_slice(), read.entry.as_deref()), (&["one.d".to_owned()][..], Some("0")));
        let refused = |change: &dyn Fn(&mut v1::StepLayers)| {
            let mut changed = message();
            change(&mut changed);
            StepLayers::read(changed).unwrap_err().message().to_owned()
        };
        assert!(refused(&|layers| layers.step.clear()).starts_with("layers.step"));
        assert!(refused(&|layers| layers.round = 0).starts_with("layers.round"));
        assert!(refused(&|layers| layers.entry = "../x".into()).starts_with("layers.entry"));
        assert!(refused(&|layers| layers.layers = vec!["a/b.c".into()]).starts_with("layers.layers"));
        assert!(refused(&|layers| layers.layers = vec!["a.b".into(); MAX_LAYERS + 1]).starts_with("layers.layers"));
    }

    #[test]
    fn sets_are_apart_by_execution_step_and_run() {
        let set = |execution: &str, step: &str, round| {
            let message = v1::StepLayers { step: step.into(), round, ..message() };
            StepLayers::read(message).unwrap().set("tag", execution).0
        };
        let all = [set("e", "a", 1), set("e", "a", 2), set("e", "b", 1), set("f", "a", 1)];
        let apart: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(apart.len(), all.len());
        let identity = |message| StepLayers::read(message).unwrap().identity();
        let others = [
            v1::StepLayers { round: 2, ..message() },
            v1::StepLayers { entry: "1".into(), ..message() },
            v1::StepLayers { layers: vec![], ..message() },
        ];
        for other in others {
            assert_ne!(identity(other), identity(message()));
        }
    }
}
