use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::{Code, Status};

/// The refusal of a request that changes something, in a process that only reads.
pub(super) fn read_only() -> Status {
    status::error(
        Code::FailedPrecondition,
        reasons::READ_ONLY,
        "This executor only reads, and nothing was started or changed: send it to the one that drives the executions.",
    )
    .into()
}
