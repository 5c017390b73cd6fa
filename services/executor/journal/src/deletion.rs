//! Data that a store keeps of a deleted execution until everything else of it is gone.

use sha2::{Digest as _, Sha256};

use crate::ExecutionKey;

/// The request for a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteRequest {
    /// The caller's request id; empty when there is none.
    pub id: String,
    /// The digest of the request, which distinguishes a repeated request from another one with the same id.
    pub hash: String,
}

/// A deleted execution whose name cannot be used again yet. It outlives a crash: the owner continues with each deletion that is not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The execution's key, which no other execution gets.
    pub key: ExecutionKey,
    /// Its namespace's id.
    pub namespace: String,
    /// Its id.
    pub id: String,
    /// The shard it belonged to.
    pub shard: u32,
    /// When it was deleted, in microseconds since the Unix epoch.
    pub deleted_at: i64,
    /// The request for it.
    pub request: DeleteRequest,
    /// The [`digest`](start_request) of the request that started it; `None` when that had no id.
    pub start_request: Option<String>,
    /// The id of the folder that goes with it, which no other execution used when it was deleted; `None` when others did, or it had none.
    pub folder: Option<String>,
    /// From when on its name may be used again, in microseconds since the Unix epoch; `None` until the deletion is closed.
    pub reusable_at: Option<i64>,
}

/// A request that starts an execution, as a store tells it from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRequest {
    /// The namespace's id.
    pub namespace: String,
    /// The principal who asks.
    pub principal: String,
    /// The caller's request id, which is not empty.
    pub id: String,
    /// The digest of the request.
    pub hash: String,
    /// When it is made, in microseconds since the Unix epoch.
    pub at: i64,
}

/// The SHA-256, in hexadecimal, of the principal and the id of the request that started an execution: all that a store keeps of it once the execution is
/// deleted. A repetition of the request is known by it. `None` for an empty id.
pub fn start_request(principal: &str, request_id: &str) -> Option<String> {
    // No principal has a line break in its name.
    (!request_id.is_empty()).then(|| format!("{:x}", Sha256::digest(format!("{principal}\n{request_id}"))))
}
