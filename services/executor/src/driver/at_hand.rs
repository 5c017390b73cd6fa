//! The blobs that the decisions of one driver read and make.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use belay_execution::{BlobRef, BlobValue, Evaluated, Json, Payload};
use belay_plan::Condition;
use serde_json::Value;

use crate::{blobs::NewBlob, conditions::ToEvaluate, secrets::Secrets};

/// The blobs that the decisions of one driver read and make.
pub(crate) struct AtHand<'a> {
    pub(crate) uid: &'a str,
    /// Values of more bytes than this become blobs.
    pub(crate) max_inline: usize,
    pub(crate) known: &'a Known,
    pub(crate) secrets: RefCell<&'a mut Secrets>,
    pub(crate) made: RefCell<&'a mut Made>,
    /// What a decision needs and is not at hand.
    pub(crate) wanted: RefCell<Wanted>,
    pub(crate) random: &'a dyn Fn() -> [u8; 32],
}

/// What was got for a decision.
#[derive(Default)]
pub(crate) struct Known {
    /// Blobs, by their digests.
    pub(crate) blobs: HashMap<Arc<str>, Result<Value, String>>,
    /// Whether the conditions of steps hold, by the ids of the steps.
    pub(crate) conditions: HashMap<String, Result<bool, String>>,
}

/// What a decision needs.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) blobs: Vec<BlobRef>,
    pub(crate) conditions: Vec<ToEvaluate>,
}

impl Wanted {
    pub(crate) fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.conditions.is_empty()
    }
}

/// The blobs that a driver has made since its last commit, and their originals until the operations have started.
#[derive(Default)]
pub(crate) struct Made {
    pub(crate) new: Vec<NewBlob>,
    pub(crate) originals: HashMap<Arc<str>, Json>,
}

impl belay_execution::Blobs for AtHand<'_> {
    fn value(&self, blob: &BlobRef) -> BlobValue<'_> {
        match self.known.blobs.get(&blob.digest) {
            Some(Ok(value)) => BlobValue::Known(value),
            Some(Err(why)) => BlobValue::Unreadable(why),
            None => {
                self.wanted.borrow_mut().blobs.push(blob.clone());
                BlobValue::Wanted
            }
        }
    }

    fn payload(&self, json: Json) -> Payload {
        if json.as_str().len() <= self.max_inline {
            return json.into();
        }
        let new = self.secrets.borrow_mut().blob(self.uid, &json, self.random);
        let reference = new.reference.clone();
        let mut made = self.made.borrow_mut();
        made.originals.insert(Arc::clone(&reference.digest), json);
        made.new.push(new);
        Payload::Blob(reference)
    }

    fn evaluate(&self, step: &str, condition: &Condition, variables: Vec<(String, Value)>) -> Evaluated {
        match self.known.conditions.get(step) {
            Some(Ok(holds)) => Evaluated::Known(*holds),
            Some(Err(why)) => Evaluated::Failed(why.clone()),
            None => {
                let expression = condition.expression().to_owned();
                let condition = ToEvaluate { step: step.to_owned(), expression, variables };
                self.wanted.borrow_mut().conditions.push(condition);
                Evaluated::Wanted
            }
        }
    }
}
