//! The permission that follows from a yes.

use ed25519_dalek::SigningKey;
use serde::{Deserialize, Serialize};

use crate::{Invalid, Keys, Signed, canonical, from_canonical, seal::GRANT};

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
    /// The call it is good for: `namespaces/*/executions/*/steps/*/calls/*`.
    pub call: String,
    /// Who may take it: `tool-runner`.
    pub audience: String,
    /// Who approved, as the gate authenticated them.
    pub approver: String,
    /// The revision of the policy that asked.
    pub policy_revision: i64,
    /// Seconds since 1970 before which it is not good.
    pub not_before: i64,
    /// Seconds since 1970 from which on the grant is no longer valid.
    pub expires: i64,
    /// How far it reaches.
    pub scope: Scope,
    /// How often it may be used.
    pub uses: u32,
    /// Random; a runner takes each one once.
    pub nonce: String,
}

/// How far a grant reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call, once.
    Once,
}

/// What a runner expects of a grant.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The call that waits.
    pub call: &'a str,
    /// The digest of what it waits with.
    pub subject_digest: &'a str,
    /// The revision of the policy that asked.
    pub policy_revision: i64,
    /// Seconds since 1970.
    pub now: i64,
}

impl Grant {
    /// Whom every grant is for.
    pub const AUDIENCE: &str = "tool-runner";
    /// The approver of what the policy approved itself, in an execution that asks no person.
    pub const POLICY: &str = "policy";
    /// For how long after a decision its grant is signed anew when its time is over, in seconds: a year. A runner remembers for as long
    /// that the nonce was spent.
    pub const RENEWABLE: i64 = 365 * 24 * 60 * 60;
    /// How far a runner's clock may be behind the gate's, in seconds. Nothing is added at the other end: a grant that has expired anywhere
    /// has expired.
    const SKEW: i64 = 60;
    /// Most bytes of a grant. The longest names of an approval, a call and a person take a fraction of it.
    const MAX_BYTES: usize = 16 * 1024;

    /// From when to when a grant says that it holds, in seconds since 1970. Nothing is verified: whether to believe it is for
    /// [`Grant::verify`].
    ///
    /// # Errors
    /// [`Invalid::Malformed`] when the bytes are not a grant.
    pub fn times(body: &[u8]) -> Result<(i64, i64), Invalid> {
        let grant: Self = from_canonical(body, Self::MAX_BYTES)?;
        Ok((grant.not_before, grant.expires))
    }

    /// Signs it.
    pub fn sign(&self, key: &SigningKey) -> Signed {
        Signed::new(GRANT, key, canonical(self))
    }

    /// The grant in signed bytes, if it is good for what is expected. Whether it was used before is for the ledger to say, by its nonce.
    ///
    /// # Errors
    /// [`Invalid`], naming what does not fit.
    pub fn verify(signed: &Signed, keys: &Keys, expected: Expected<'_>) -> Result<Self, Invalid> {
        keys.verify(GRANT, signed)?;
        let grant: Self = from_canonical(&signed.body, Self::MAX_BYTES)?;
        let same = |what, found: &str, expected: &str| match found == expected {
            true => Ok(()),
            false => Err(Invalid::Mismatch { what, found: found.to_owned(), expected: expected.to_owned() }),
        };
        same("version", &grant.v.to_string(), "1")?;
        same("audience", &grant.audience, Self::AUDIENCE)?;
        same("call", &grant.call, expected.call)?;
        same("subject", &grant.subject_digest, expected.subject_digest)?;
        same("policy revision", &grant.policy_revision.to_string(), &expected.policy_revision.to_string())?;
        same("number of uses", &grant.uses.to_string(), "1")?;
        for (what, said) in [("approval", &grant.approval), ("approver", &grant.approver), ("nonce", &grant.nonce)] {
            if said.is_empty() {
                return Err(Invalid::Malformed(format!("it has no {what}")));
            }
        }
        let (not_before, expires, now) = (grant.not_before, grant.expires, expected.now);
        // The first: the allowance for clocks would open a window that ends before it begins.
        if not_before >= expires || now.saturating_add(Self::SKEW) < not_before || now >= expires {
            return Err(Invalid::Time { not_before, expires, now });
        }
        Ok(grant)
    }
}
