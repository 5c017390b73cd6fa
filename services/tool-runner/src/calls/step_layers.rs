//! The place of a call among those of its step, when they have one effect together.

use belay_proto::v1;
use belay_service_kit::status;
use belay_workspace::is_plain;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use tonic::Status;

/// The most layers that a call begins with.
const MAX_LAYERS: usize = 1000;

/// The place of a call among those of its step, as its request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepLayers {
    step: String,
    pub(super) round: i32,
    /// The layers that the call begins with, in their order.
    pub(crate) begin_with: Vec<String>,
    /// The entry whose layer it leaves; `None` for the call that commits.
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

    /// The text that distinguishes a request with these layers from others about the same call.
    pub(crate) fn identity(&self) -> String {
        let Self { step, round, begin_with, entry } = self;
        format!("{step} {round} {} {}", entry.as_deref().unwrap_or_default(), begin_with.join(","))
    }

    /// The name of the set of layers, and the beginning of the names of the sets of all runs of the step.
    pub(super) fn set(&self, tag: &str, execution: &str) -> (String, String) {
        let digest = Sha256::new().chain_update(execution).chain_update([0]).chain_update(&self.step).finalize();
        let of_step = format!("{tag}-{}-", &HEXLOWER.encode(&digest)[..24]);
        (format!("{of_step}{}", self.round), of_step)
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
