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
    /// The layers of another execution that it takes over.
    pub(super) carried: Option<CarriedLayers>,
}

/// The layers of another execution, which a call takes over: it begins with them, and what they change is part of its own layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CarriedLayers {
    execution: String,
    round: i32,
    pub(super) layers: Vec<String>,
}

impl StepLayers {
    /// Reads the message.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, which names the field.
    pub(crate) fn read(layers: v1::StepLayers) -> Result<Self, Status> {
        let v1::StepLayers { step, round, layers, entry, carried } = layers;
        if step.is_empty() {
            return Err(status::invalid("layers.step", "is needed").into());
        }
        if round < 1 {
            return Err(status::invalid("layers.round", "must be 1 or more").into());
        }
        check_references("layers.layers", &layers)?;
        let entry = Some(entry).filter(|entry| !entry.is_empty());
        if entry.as_deref().is_some_and(|entry| !is_plain(entry)) {
            return Err(status::invalid("layers.entry", "must have 1 to 64 letters, digits, `-` and `_`").into());
        }
        let carried = carried.map(CarriedLayers::read).transpose()?;
        if carried.is_some() && (entry.is_none() || !layers.is_empty()) {
            let message = "cannot be taken over by a call that commits, or begins with layers of its own step";
            return Err(status::invalid("layers.carried", message).into());
        }
        Ok(Self { step, round, begin_with: layers, entry, carried })
    }

    /// Whether it takes over the layers of another execution.
    pub(crate) fn takes_over(&self) -> bool {
        self.carried.is_some()
    }

    /// The text that distinguishes a request with these layers from others about the same call.
    pub(crate) fn identity(&self) -> String {
        let Self { step, round, begin_with, entry, carried } = self;
        let own = format!("{step} {round} {} {}", entry.as_deref().unwrap_or_default(), begin_with.join(","));
        match carried {
            None => own,
            Some(CarriedLayers { execution, round, layers }) => {
                format!("{own} {execution} {round} {}", layers.join(","))
            }
        }
    }

    /// The name of the set of layers, and the beginning of the names of the sets of all runs of the step.
    pub(super) fn set(&self, tag: &str, execution: &str) -> (String, String) {
        let of_step = sets_of_step(tag, execution, &self.step);
        (format!("{of_step}{}", self.round), of_step)
    }

    /// The name of the set whose layers it begins with, and these.
    pub(super) fn begins_with(&self, tag: &str, execution: &str) -> (String, &[String]) {
        match &self.carried {
            None => (self.set(tag, execution).0, &self.begin_with),
            Some(CarriedLayers { execution, round, layers }) => {
                (format!("{}{round}", sets_of_step(tag, execution, &self.step)), layers)
            }
        }
    }
}

impl CarriedLayers {
    fn read(carried: v1::CarriedLayers) -> Result<Self, Status> {
        let v1::CarriedLayers { execution, round, layers } = carried;
        if execution.is_empty() {
            return Err(status::invalid("layers.carried.execution", "is needed").into());
        }
        if round < 1 {
            return Err(status::invalid("layers.carried.round", "must be 1 or more").into());
        }
        check_references("layers.carried.layers", &layers)?;
        Ok(Self { execution, round, layers })
    }
}

/// The beginning of the names of the sets of all runs of a step.
fn sets_of_step(tag: &str, execution: &str, step: &str) -> String {
    let digest = Sha256::new().chain_update(execution).chain_update([0]).chain_update(step).finalize();
    format!("{tag}-{}-", &HEXLOWER.encode(&digest)[..24])
}

fn check_references(field: &str, layers: &[String]) -> Result<(), Status> {
    if layers.len() > MAX_LAYERS {
        let message = format!("has {} entries, and the limit is {MAX_LAYERS}", layers.len());
        return Err(status::invalid(field, message).into());
    }
    let is_reference = |text: &str| text.split_once('.').is_some_and(|(id, digest)| is_plain(id) && is_plain(digest));
    match layers.iter().find(|layer| !is_reference(layer)) {
        None => Ok(()),
        Some(other) => {
            let message = format!("has {other:?}, which no receipt has as its layer");
            Err(status::invalid(field, message).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> v1::StepLayers {
        v1::StepLayers { step: "a".into(), round: 1, layers: vec!["one.d".into()], entry: "0".into(), carried: None }
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

    fn carried() -> v1::CarriedLayers {
        v1::CarriedLayers { execution: "other".into(), round: 2, layers: vec!["two.e".into()] }
    }

    /// What another execution has left is in the set of its own step.
    #[test]
    fn layers_of_another_execution_are_found_in_its_set() {
        let message = v1::StepLayers { layers: vec![], carried: Some(carried()), ..message() };
        let read = StepLayers::read(message.clone()).unwrap();
        let of_other = StepLayers::read(v1::StepLayers { round: 2, carried: None, ..message.clone() }).unwrap();
        assert_eq!(read.begins_with("tag", "e"), (of_other.set("tag", "other").0, &["two.e".to_owned()][..]));
        assert_ne!(read.set("tag", "e").0, of_other.set("tag", "other").0);
        let refused = |change: &dyn Fn(&mut v1::StepLayers)| {
            let mut changed = message.clone();
            change(&mut changed);
            StepLayers::read(changed).unwrap_err().message().to_owned()
        };
        let of = |change: &dyn Fn(&mut v1::CarriedLayers)| refused(&|layers| change(layers.carried.as_mut().unwrap()));
        assert!(of(&|carried| carried.execution.clear()).starts_with("layers.carried.execution"));
        assert!(of(&|carried| carried.round = 0).starts_with("layers.carried.round"));
        assert!(of(&|carried| carried.layers = vec!["a/b.c".into()]).starts_with("layers.carried.layers"));
        assert!(refused(&|layers| layers.entry.clear()).starts_with("layers.carried"));
        assert!(refused(&|layers| layers.layers = vec!["one.d".into()]).starts_with("layers.carried"));
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
            v1::StepLayers { layers: vec![], carried: Some(carried()), ..message() },
            v1::StepLayers { layers: vec![], carried: Some(v1::CarriedLayers { round: 3, ..carried() }), ..message() },
        ];
        for other in others {
            assert_ne!(identity(other), identity(message()));
        }
    }
}
