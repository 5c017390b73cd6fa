//! The signed permission that follows an approval.

use ed25519_dalek::SigningKey;
use serde::{Deserialize, Serialize};

use crate::{InvalidSeal, Keys, SignedBytes, canonical, from_canonical, seal::GRANT};

/// A permission for one call and one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The version of this message; 1 now.
    pub v: u32,
    /// `namespaces/*/approvals/*`.
    pub approval: String,
    /// The digest of what was approved.
    pub subject_digest: String,
    /// The call it is valid for: `namespaces/*/executions/*/steps/*/calls/*`.
    pub call: String,
    /// The service that may accept it: `tool-runner`.
    pub audience: String,
    /// The approver, as the gate authenticated them.
    pub approver: String,
    /// The revision of the policy that required the approval.
    pub policy_revision: i64,
    /// The time from which it is valid, in seconds since 1970.
    pub not_before: i64,
    /// The time from which it is no longer valid, in seconds since 1970.
    pub expires: i64,
    /// How far it reaches.
    pub scope: Scope,
    /// How often it may be used.
    pub uses: u32,
    /// Random; a runner accepts each nonce once.
    pub nonce: String,
}

/// How far a grant reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call, once.
    Once,
}

/// The values that a runner requires of a grant.
#[derive(Clone, Copy, Debug)]
pub struct GrantExpectation<'a> {
    /// The call that waits for approval.
    pub call: &'a str,
    /// The digest of its subject.
    pub subject_digest: &'a str,
    /// The revision of the policy that required the approval.
    pub policy_revision: i64,
    /// Seconds since 1970.
    pub now: i64,
}

impl Grant {
    /// The audience of every grant.
    pub const AUDIENCE: &str = "tool-runner";
    /// The approver in grants that the policy approved without a person.
    pub const POLICY: &str = "policy";
    /// How long after a decision the gate still renews its expired grant, in seconds: a year. A runner remembers spent nonces for as long.
    pub const RENEWABLE: i64 = 365 * 24 * 60 * 60;
    /// How far a runner's clock may be behind the gate's, in seconds. Expiry has no such tolerance: a grant that has expired on either clock has
    /// expired.
    const SKEW: i64 = 60;
    /// The maximum size of a grant in bytes, far above what the longest names take.
    const MAX_BYTES: usize = 16 * 1024;

    /// The period for which a grant claims to be valid, in seconds since 1970. This verifies nothing; [`Grant::verify`] does.
    ///
    /// # Errors
    /// [`InvalidSeal::Malformed`] when the bytes are not a grant.
    pub fn times(body: &[u8]) -> Result<(i64, i64), InvalidSeal> {
        let grant: Self = from_canonical(body, Self::MAX_BYTES)?;
        Ok((grant.not_before, grant.expires))
    }

    /// Signs it.
    pub fn sign(&self, key: &SigningKey) -> SignedBytes {
        SignedBytes::new(GRANT, key, canonical(self))
    }

    /// Returns the grant in signed bytes if it is valid for what is expected. The ledger checks by its nonce that it was not used before.
    ///
    /// # Errors
    /// [`InvalidSeal`], naming what does not fit.
    pub fn verify(signed: &SignedBytes, keys: &Keys, expected: GrantExpectation<'_>) -> Result<Self, InvalidSeal> {
        keys.verify(GRANT, signed)?;
        let grant: Self = from_canonical(&signed.body, Self::MAX_BYTES)?;
        let same = |what, found: &str, expected: &str| match found == expected {
            true => Ok(()),
            false => Err(InvalidSeal::Mismatch { what, found: found.to_owned(), expected: expected.to_owned() }),
        };
        same("version", &grant.v.to_string(), "1")?;
        same("audience", &grant.audience, Self::AUDIENCE)?;
        same("call", &grant.call, expected.call)?;
        same("subject", &grant.subject_digest, expected.subject_digest)?;
        same("policy revision", &grant.policy_revision.to_string(), &expected.policy_revision.to_string())?;
        same("number of uses", &grant.uses.to_string(), "1")?;
        for (what, said) in [("approval", &grant.approval), ("approver", &grant.approver), ("nonce", &grant.nonce)] {
            if said.is_empty() {
                return Err(InvalidSeal::Malformed(format!("it has no {what}")));
            }
        }
        let (not_before, expires, now) = (grant.not_before, grant.expires, expected.now);
        // Checked first: with the tolerance for clocks, such a grant would be valid for a moment.
        if not_before >= expires || now.saturating_add(Self::SKEW) < not_before || now >= expires {
            return Err(InvalidSeal::Time { not_before, expires, now });
        }
        Ok(grant)
    }
}
