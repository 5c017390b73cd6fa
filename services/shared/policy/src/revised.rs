//! The policies with their revision, and the bytes that the gate signs.

use serde::Deserialize;
use thiserror::Error;

use crate::{
    Policies, Violation,
    canonical::{MAX_BYTES, Message, VERSION, canonical},
    document::Document,
};

/// The policies of all namespaces with their revision: one change of the file is one revision, whichever namespaces it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisedPolicies {
    /// From 1; increases with every policy that becomes active.
    pub revision: i64,
    /// The policies.
    pub policies: Policies,
}

/// Why bytes are not a policy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InvalidPolicy {
    /// They are too many.
    #[error("the policy has {0} bytes and the limit is {MAX_BYTES}")]
    TooLarge(usize),
    /// They are not a policy.
    #[error("the policy cannot be read: {0}")]
    Malformed(String),
    /// They are a policy, but not in canonical form.
    #[error("the policy is not in canonical form")]
    NotCanonical,
    /// Their format has another version.
    #[error("the policy's format is version {0} and this service supports only {VERSION}: update this service")]
    Version(u32),
    /// The revision is below 1.
    #[error("the policy's revision is {0} and must be at least 1")]
    Revision(i64),
    /// The policy in them is not valid.
    #[error("the policy is not valid: {}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Refused(Vec<Violation>),
}

/// Reads the version alone, whatever the format.
#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

impl RevisedPolicies {
    /// The canonical bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (policy, namespaces) = self.policies.documents();
        canonical(&Message { v: VERSION, revision: self.revision, policy, namespaces })
    }

    /// Parses canonical bytes. The caller must verify their signature first.
    ///
    /// # Errors
    /// [`InvalidPolicy`] when they are not exactly what [`RevisedPolicies::to_bytes`] returns for a valid policy.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidPolicy> {
        if bytes.len() > MAX_BYTES {
            return Err(InvalidPolicy::TooLarge(bytes.len()));
        }
        let malformed = |error: serde_json::Error| InvalidPolicy::Malformed(error.to_string());
        let VersionOnly { v } = serde_json::from_slice(bytes).map_err(malformed)?;
        if v != VERSION {
            return Err(InvalidPolicy::Version(v));
        }
        let message: Message<Document, String> = serde_json::from_slice(bytes).map_err(malformed)?;
        if canonical(&message) != bytes {
            return Err(InvalidPolicy::NotCanonical);
        }
        let Message { v: _, revision, policy, namespaces } = message;
        if revision < 1 {
            return Err(InvalidPolicy::Revision(revision));
        }
        let policies = Policies::new(policy, namespaces).map_err(InvalidPolicy::Refused)?;
        Ok(Self { revision, policies })
    }
}
