//! The bytes that a person approves, and the signed permission that follows from them.
//!
//! A [`Subject`] says what is to be decided; its canonical bytes are digested, shown and stored. A [`Grant`] is signed over its own
//! bytes and names the subject's digest. A service that has the gate's public key verifies it without calling another service. Nothing is
//! encoded twice: the signed bytes are the stored bytes.
//!
//! Pure: keys, times and nonces are arguments.

mod digest;
mod grant;
mod seal;
mod subject;

pub use digest::digest_of;
pub use ed25519_dalek::{SigningKey, VerifyingKey};
pub use grant::{Grant, GrantExpectation, Scope};
pub use seal::{InvalidSeal, Keys, SignedBytes, key_id};
pub use subject::{CallWords, Change, ChangeKind, Folder, Gravity, HiddenWords, Kind, Network, Risk, Subject};

use serde::{Serialize, de::DeserializeOwned};

/// The canonical form of a message: JSON with the fields in the order of their declaration, no white space, integers only.
pub(crate) fn canonical(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, integers and lists are always JSON")
}

/// Parses canonical bytes, and rejects all others.
///
/// # Errors
/// [`InvalidSeal::Malformed`] when they are not such a message, another spelling of one, or more than `limit` bytes.
pub(crate) fn from_canonical<T: Serialize + DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, InvalidSeal> {
    if bytes.len() > limit {
        return Err(InvalidSeal::Malformed(format!("it has {} bytes, and the limit is {limit}", bytes.len())));
    }
    let value: T = serde_json::from_slice(bytes).map_err(|error| InvalidSeal::Malformed(shown(&error.to_string())))?;
    if canonical(&value) != bytes {
        return Err(InvalidSeal::Malformed("it is not in canonical form".into()));
    }
    Ok(value)
}

/// Untrusted text for a message: one line, bounded.
fn shown(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_at_most_its_limit_of_bytes() {
        assert_eq!(from_canonical::<String>(br#""abc""#, 5), Ok("abc".to_owned()));
        let refused = from_canonical::<String>(br#""abc""#, 4);
        assert_eq!(refused, Err(InvalidSeal::Malformed("it has 5 bytes, and the limit is 4".into())));
    }
}
