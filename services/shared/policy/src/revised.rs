//! A policy with its revision, as the bytes that the gate signs.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Policy, Violation, check::MAX_BYTES, document::Document};

/// The version of the bytes.
const VERSION: u32 = 2;

/// A policy with its place among its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revised {
    /// From 1; rises with every policy that becomes active.
    pub revision: i64,
    /// The policy.
    pub policy: Policy,
}

/// Why bytes are not a policy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InvalidPolicy {
    /// There are more of them than a policy can have.
    #[error("the policy has {0} bytes, and may have {MAX_BYTES}")]
    TooLarge(usize),
    /// They say no policy.
    #[error("the policy cannot be read: {0}")]
    Malformed(String),
    /// They say a policy, but not in the one way in which it is signed.
    #[error("the policy is not in canonical form")]
    NotCanonical,
    /// They are of another version than this one knows.
    #[error("the policy's format is version {0}, and only {VERSION} is known here: update this service")]
    Version(u32),
    /// Revisions begin with 1.
    #[error("the policy's revision is {0}, and revisions begin with 1")]
    Revision(i64),
    /// The policy in them is not valid.
    #[error("the policy is refused: {}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Refused(Vec<Violation>),
}

/// The bytes as values, in canonical order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<P> {
    v: u32,
    revision: i64,
    policy: P,
}

/// Of bytes whose version may be another one.
#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// The canonical bytes: JSON with the fields in the order of their declaration, no white space, integers only.
fn canonical(message: &Message<impl Serialize>) -> Vec<u8> {
    serde_json::to_vec(message).expect("strings, integers and lists are always JSON")
}

/// How many bytes a policy has at most when it is signed.
pub(crate) fn length(policy: &Document) -> usize {
    canonical(&Message { v: VERSION, revision: i64::MAX, policy }).len()
}

impl Revised {
    /// The canonical bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        canonical(&Message { v: VERSION, revision: self.revision, policy: &self.policy.document })
    }

    /// The policy that these bytes say. Whether they are signed is for the caller to check first.
    ///
    /// # Errors
    /// [`InvalidPolicy`] when they say none, or say it in another way than [`Revised::to_bytes`] does.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidPolicy> {
        if bytes.len() > MAX_BYTES {
            return Err(InvalidPolicy::TooLarge(bytes.len()));
        }
        let malformed = |error: serde_json::Error| InvalidPolicy::Malformed(error.to_string());
        let VersionOnly { v } = serde_json::from_slice(bytes).map_err(malformed)?;
        if v != VERSION {
            return Err(InvalidPolicy::Version(v));
        }
        let message: Message<Document> = serde_json::from_slice(bytes).map_err(malformed)?;
        if canonical(&message) != bytes {
            return Err(InvalidPolicy::NotCanonical);
        }
        let Message { v: _, revision, policy } = message;
        if revision < 1 {
            return Err(InvalidPolicy::Revision(revision));
        }
        let policy = Policy::new(policy).map_err(InvalidPolicy::Refused)?;
        Ok(Self { revision, policy })
    }
}
