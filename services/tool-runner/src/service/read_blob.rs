use belay_proto::runner_v1;
use belay_reasons as reasons;
use belay_service_kit::status;
use futures::stream;
use tonic::{Code, Status};

use super::{checks::check_name, follow::Messages};
use crate::Calls;

/// The largest piece, in bytes.
const MAX_PIECE_BYTES: usize = 64 << 10;

pub(super) fn read_blob(
    calls: &Calls,
    request: &runner_v1::ReadBlobRequest,
) -> Result<Messages<runner_v1::ReadBlobResponse>, Status> {
    check_name(&request.name)?;
    let offset =
        u64::try_from(request.offset).map_err(|_| Status::from(status::invalid("offset", "must not be negative")))?;
    let blob = calls.blob(&request.name, &request.digest)?;
    let length = blob.bytes().len();
    let Some(offset) = usize::try_from(offset).ok().filter(|offset| *offset <= length) else {
        let message = format!("offset: {offset} is after the end of the blob, which has {length} bytes");
        return Err(status::error(Code::OutOfRange, reasons::BLOB_OFFSET_OUT_OF_RANGE, message).into());
    };
    let pieces = (offset..length).step_by(MAX_PIECE_BYTES).map(move |from| {
        let data = blob.bytes()[from..length.min(from + MAX_PIECE_BYTES)].to_vec();
        Ok(runner_v1::ReadBlobResponse { offset: i64::try_from(from).expect("it is in memory"), data })
    });
    Ok(Box::pin(stream::iter(pieces)))
}
