//! The outputs that the templates of a step read.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use belay_reasons as reasons;
use serde_json::Value;

use crate::{BlobRef, BlobValue, Blobs, ErrorClass, Execution, Failure, MAX_READ_BYTES, Payload};

/// The outputs that templates read, by the ids of their steps; `None` while a blob is not at hand.
pub(super) fn outputs<'a>(
    execution: &Execution,
    steps: impl Iterator<Item = &'a str>,
    blobs: &'a dyn Blobs,
) -> Result<Option<BTreeMap<&'a str, Cow<'a, Value>>>, Failure> {
    let mut outputs = BTreeMap::new();
    let (mut read, mut is_wanted) = (BTreeSet::new(), false);
    for id in steps {
        let Some(output) = execution.steps.key(id).and_then(|key| execution.steps[key].output.as_ref()) else {
            continue;
        };
        if outputs.contains_key(id) {
            continue;
        }
        let blob = match output {
            Payload::Inline(json) => {
                outputs.insert(id, Cow::Owned(json.value()));
                continue;
            }
            Payload::Blob(blob) => blob,
        };
        read.insert((&blob.digest, blob.size));
        let bytes: u64 = read.iter().map(|(_, size)| size).sum();
        if bytes > MAX_READ_BYTES {
            let message = format!(
                "The templates read more than {MAX_READ_BYTES} bytes of outputs, which is the limit, with that of step `{id}`: read \
                 fewer outputs in one step."
            );
            return Err(Failure::new(ErrorClass::InvalidArguments, reasons::UNRESOLVED_REFERENCE, message));
        }
        match blobs.value(blob) {
            BlobValue::Known(value) => drop(outputs.insert(id, Cow::Borrowed(value))),
            BlobValue::Unreadable(why) => return Err(unreadable(id, blob, why)),
            BlobValue::Wanted => is_wanted = true,
        }
    }
    Ok((!is_wanted).then_some(outputs))
}

fn unreadable(step: &str, blob: &BlobRef, why: &str) -> Failure {
    let message = format!("The output of step `{step}`, the blob {}, cannot be read: {why}.", blob.digest);
    Failure::new(ErrorClass::Internal, reasons::BLOB_DAMAGED, message)
}
