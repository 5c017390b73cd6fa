//! Signatures: Ed25519 over a message's bytes with a prefix for the kind of message.

use data_encoding::HEXLOWER;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::shown;

/// Bytes with a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedBytes {
    /// The signed bytes.
    pub body: Vec<u8>,
    /// 64 bytes.
    pub signature: Vec<u8>,
    /// The key that signed.
    pub key_id: String,
}

/// Why signed bytes are rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InvalidSeal {
    /// No key of that id is trusted.
    #[error("key `{0}` is not one of the gate's")]
    UnknownKey(String),
    /// The signature does not fit.
    #[error("the signature does not fit")]
    Signature,
    /// The bytes are malformed.
    #[error("it cannot be read: {0}")]
    Malformed(String),
    /// It was signed for something else.
    #[error("it is for another {what}: {found}, not {expected}")]
    Mismatch {
        /// The field.
        what: &'static str,
        /// The value that it has.
        found: String,
        /// The value that it should have.
        expected: String,
    },
    /// It is not valid yet, or has expired.
    #[error("it is valid from {not_before} to {expires} (seconds since 1970), and the time is {now}")]
    Time {
        /// From when.
        not_before: i64,
        /// Until when.
        expires: i64,
        /// Now.
        now: i64,
    },
}

/// The first 16 hexadecimal digits of a public key's SHA-256.
pub fn key_id(key: &VerifyingKey) -> String {
    HEXLOWER.encode(&Sha256::digest(key.as_bytes())[..8])
}

/// The public keys that are trusted.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<(String, VerifyingKey)>);

impl Keys {
    /// These keys and no others.
    pub fn new(keys: impl IntoIterator<Item = VerifyingKey>) -> Self {
        Self(keys.into_iter().map(|key| (key_id(&key), key)).collect())
    }

    /// Reads a key from its 32 bytes.
    ///
    /// # Errors
    /// [`InvalidSeal::Malformed`] when they are not a public key, or one for which anyone can sign.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidSeal> {
        let malformed = |error: &dyn std::fmt::Display| InvalidSeal::Malformed(error.to_string());
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| malformed(&"a public key has 32 bytes"))?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|error| malformed(&error))?;
        if key.is_weak() {
            // Anyone can sign for it.
            return Err(malformed(&"it is a weak public key"));
        }
        Ok(Self::new([key]))
    }

    /// The keys with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &VerifyingKey)> {
        self.0.iter().map(|(id, key)| (id.as_str(), key))
    }

    pub(crate) fn verify(&self, domain: &str, signed: &SignedBytes) -> Result<(), InvalidSeal> {
        // The id only selects the key; the signature is the proof.
        let key = self.0.iter().find(|(id, _)| *id == signed.key_id);
        let (_, key) = key.ok_or_else(|| InvalidSeal::UnknownKey(shown(&signed.key_id)))?;
        let signature = Signature::from_slice(&signed.signature).map_err(|_| InvalidSeal::Signature)?;
        // Strict: a signature has one spelling, and a weak key signs nothing.
        key.verify_strict(&message(domain, &signed.body), &signature).map_err(|_| InvalidSeal::Signature)
    }
}

impl SignedBytes {
    pub(crate) fn new(domain: &str, key: &SigningKey, body: Vec<u8>) -> Self {
        let signature = key.sign(&message(domain, &body)).to_vec();
        Self { body, signature, key_id: key_id(&key.verifying_key()) }
    }

    /// Signs a policy's bytes.
    pub fn policy(key: &SigningKey, body: Vec<u8>) -> Self {
        Self::new(POLICY, key, body)
    }

    /// Whether these are a policy's bytes that one of the keys signed.
    ///
    /// # Errors
    /// [`InvalidSeal`] when they are not.
    pub fn verify_policy(&self, keys: &Keys) -> Result<(), InvalidSeal> {
        keys.verify(POLICY, self)
    }
}

/// The prefix of a grant's bytes for signing. No prefix begins with another, so a signature for one kind is invalid for the other.
pub(crate) const GRANT: &str = "belay grant 1\n";
/// The prefix of a policy's bytes for signing.
const POLICY: &str = "belay policy 1\n";

fn message(domain: &str, body: &[u8]) -> Vec<u8> {
    [domain.as_bytes(), body].concat()
}
