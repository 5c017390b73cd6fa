use std::sync::Arc;

use belay_journal::ExecutionKey;
use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::{Code, Status};

use super::watch_execution::Messages;
use crate::{
    ExecutionReader,
    names::{ExecutionName, blob_name},
    store::blobs::{Unreadable, digest_bytes, digest_of},
};

pub(super) async fn read_blob(
    reading: &Arc<ExecutionReader>,
    request: v1::ReadBlobRequest,
) -> Result<Messages<v1::ReadBlobResponse>, Status> {
    let (name, digits) = blob_name("name", &request.name)?;
    let mut offset =
        u64::try_from(request.offset).map_err(|_| Status::from(status::invalid("offset", "must not be negative")))?;
    let key = reading.follower.find(&name).await?.key;
    let digest = digest_of(&digits).ok_or_else(|| not_found(&name, &digits))?;
    let bytes = digest_bytes(&digest).expect("it was just made");
    let uid = reading.follower.look(&name, |seen| seen.execution.created().uid.clone()).await?;
    let opener = reading.follower.opener(key, &name, uid).await.map_err(|error| match error.code() {
        // An execution without a key has no blob.
        Code::DataLoss => not_found(&name, &digits),
        _ => error,
    })?;
    let first = match reading.blobs.shown(&opener, bytes, offset).await {
        Ok(Some(first)) => first,
        Ok(None) => {
            let message = format!("offset: {offset} is after the end of the blob");
            return Err(status::error(Code::OutOfRange, reasons::BLOB_OFFSET_OUT_OF_RANGE, message).into());
        }
        Err(Unreadable::Missing) => return Err(missing(reading, key, &name, &digits, &digest).await),
        Err(unreadable) => return Err(unreadable.status(&digest)),
    };
    let reading = Arc::clone(reading);
    Ok(Box::pin(async_stream::try_stream! {
        let mut data = first;
        while !data.is_empty() {
            let length = data.len() as u64;
            yield v1::ReadBlobResponse { offset: i64::try_from(offset).unwrap_or(i64::MAX), data };
            offset += length;
            let next = reading.blobs.shown(&opener, bytes, offset).await.map_err(|unreadable| unreadable.status(&digest))?;
            data = next.unwrap_or_default();
        }
    }))
}

fn not_found(name: &ExecutionName, digits: &str) -> Status {
    let message = format!("Execution `{}` has no blob `{digits}`.", name.id);
    status::error(Code::NotFound, reasons::BLOB_NOT_FOUND, message).with("name", name).into()
}

/// The error of a blob without a file: damage when an event names it.
async fn missing(
    reading: &ExecutionReader,
    key: ExecutionKey,
    name: &ExecutionName,
    digits: &str,
    digest: &str,
) -> Status {
    match reading.follower.events(key).await {
        Ok(stored) if stored.blobs.contains(digits) => Unreadable::Missing.status(digest),
        Ok(_) => not_found(name, digits),
        Err(error) => error,
    }
}
