//! The blobs that the decisions of one driver read and make.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use belay_execution::{BlobRef, BlobValue, Json, Payload};
use serde_json::Value;

use crate::{blobs::NewBlob, secrets::Secrets};

/// The blobs that the decisions of one driver read and make.
pub(crate) struct AtHand<'a> {
    pub(crate) uid: &'a str,
    /// Values of more bytes than this become blobs.
    pub(crate) max_inline: usize,
    /// The blobs that were got for a decision.
    pub(crate) values: &'a HashMap<Arc<str>, Result<Value, String>>,
    pub(crate) secrets: RefCell<&'a mut Secrets>,
    pub(crate) made: RefCell<&'a mut Made>,
    /// The blobs that a decision needs and that are not at hand.
    pub(crate) wanted: RefCell<Vec<BlobRef>>,
    pub(crate) random: &'a dyn Fn() -> [u8; 32],
}

/// The blobs that a driver has made since its last commit, and their originals until the operations have started.
#[derive(Default)]
pub(crate) struct Made {
    pub(crate) new: Vec<NewBlob>,
    pub(crate) originals: HashMap<Arc<str>, Json>,
}

impl belay_execution::Blobs for AtHand<'_> {
    fn value(&self, blob: &BlobRef) -> BlobValue<'_> {
        match self.values.get(&blob.digest) {
            Some(Ok(value)) => BlobValue::Known(value),
            Some(Err(why)) => BlobValue::Unreadable(why),
            None => {
                self.wanted.borrow_mut().push(blob.clone());
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
}
