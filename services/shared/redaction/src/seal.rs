//! Seals hidden values so that only Belay can read them: XChaCha20-Poly1305.
//!
//! Sealed bytes are the version (1), the nonce (24 bytes), and the text with its 16 bytes of authentication. Each is bound to its place: what
//! was sealed for one event opens for no other. An execution has a key of its own, which is stored wrapped by the master key; deleting the
//! wrapped key makes all that it sealed unreadable.

use std::fmt;

use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use thiserror::Error;
use zeroize::Zeroize as _;

/// The version of the format below. This code refuses later versions.
const VERSION: u8 = 1;
/// The nonce's length in bytes: long enough that random nonces do not collide.
const NONCE: usize = 24;
/// The version and the nonce.
const HEADER: usize = 1 + NONCE;
/// The length of the authentication tag, in bytes.
const TAG: usize = 16;

/// The context that a sealed value is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound<'a> {
    /// The execution's uid. A name can be reused, a uid cannot.
    pub execution: &'a str,
    /// The sequence of the event.
    pub sequence: i64,
}

/// Why sealed bytes cannot be opened.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NotOpened {
    /// They are too short.
    #[error("it is cut off: {0} bytes, and sealed ones are at least {least}", least = HEADER + TAG)]
    CutOff(usize),
    /// A newer Belay wrote them.
    #[error("it has version {0} of the sealed form, and this Belay reads version {VERSION}: use the newer one")]
    Version(u8),
    /// They were changed, belong to another place, or were sealed with another key.
    #[error("it was changed, belongs to another event, or was sealed with another key")]
    NotAuthentic,
}

/// The key of one execution's values.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey([u8; 32]);

/// The key that wraps the others. It stands outside of the database.
#[derive(Clone)]
pub struct MasterKey([u8; 32]);

impl SealKey {
    /// The key of these bytes, which have to be random.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl MasterKey {
    /// The key of these bytes, which have to be random.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The execution's key as it can be stored. `nonce` has to be random.
    pub fn wrap(&self, execution: &str, key: &SealKey, nonce: [u8; 24]) -> Vec<u8> {
        encrypt(&self.0, &key_place(execution), &key.0, nonce)
    }

    /// The key in stored bytes.
    ///
    /// # Errors
    /// [`NotOpened`], when they are not this execution's key, or another master key wrapped it.
    pub fn unwrap(&self, execution: &str, wrapped: &[u8]) -> Result<SealKey, NotOpened> {
        let mut bytes = decrypt(&self.0, &key_place(execution), wrapped)?;
        let key = <[u8; 32]>::try_from(bytes.as_slice()).map(SealKey).map_err(|_| NotOpened::NotAuthentic);
        bytes.zeroize();
        key
    }
}

impl Drop for SealKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Drop for MasterKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(…)")
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

/// Seals a text, which becomes 41 bytes longer. `nonce` must be random: using one twice with one key reveals both texts.
pub fn seal(key: &SealKey, place: Bound<'_>, plaintext: &[u8], nonce: [u8; 24]) -> Vec<u8> {
    encrypt(&key.0, &value_place(place), plaintext, nonce)
}

/// The text in sealed bytes.
///
/// # Errors
/// [`NotOpened`], without any part of the text.
pub fn open(key: &SealKey, place: Bound<'_>, sealed: &[u8]) -> Result<Vec<u8>, NotOpened> {
    decrypt(&key.0, &value_place(place), sealed)
}

/// What is authenticated along: which kind of text, and where it belongs. The number stands first and has a fixed length, so two places
/// never give the same bytes.
fn value_place(Bound { execution, sequence }: Bound<'_>) -> Vec<u8> {
    [b"belay value\0".as_slice(), &sequence.to_be_bytes(), execution.as_bytes()].concat()
}

fn key_place(execution: &str) -> Vec<u8> {
    [b"belay key\0".as_slice(), execution.as_bytes()].concat()
}

fn encrypt(key: &[u8; 32], place: &[u8], plaintext: &[u8], nonce: [u8; NONCE]) -> Vec<u8> {
    let aad = [&[VERSION], place].concat();
    let cipher = XChaCha20Poly1305::new(key.into());
    let sealed = cipher.encrypt(XNonce::from_slice(&nonce), Payload { msg: plaintext, aad: &aad });
    let sealed = sealed.expect("a text in memory is shorter than the 256 GiB of the cipher");
    [&[VERSION], nonce.as_slice(), &sealed].concat()
}

fn decrypt(key: &[u8; 32], place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, NotOpened> {
    // The version comes first: a newer form may be shorter.
    match sealed.first() {
        Some(&version) if version != VERSION => return Err(NotOpened::Version(version)),
        _ if sealed.len() < HEADER + TAG => return Err(NotOpened::CutOff(sealed.len())),
        _ => {}
    }
    let (header, text) = sealed.split_at(HEADER);
    let aad = [&[VERSION], place].concat();
    let cipher = XChaCha20Poly1305::new(key.into());
    cipher
        .decrypt(XNonce::from_slice(&header[1..]), Payload { msg: text, aad: &aad })
        .map_err(|_| NotOpened::NotAuthentic)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SealKey = SealKey::new([7; 32]);
    const PLACE: Bound<'_> = Bound { execution: "0123456789abcdefghjk", sequence: 12 };

    #[test]
    fn what_was_sealed_opens_in_its_place_and_nowhere_else() {
        for text in [b"".as_slice(), b"hunter2", &[0xff; 5000]] {
            let sealed = seal(&KEY, PLACE, text, [3; 24]);
            assert_eq!(sealed.len(), text.len() + 41);
            assert_eq!(open(&KEY, PLACE, &sealed).unwrap(), text);
            let elsewhere = [
                Bound { sequence: 13, ..PLACE },
                Bound { execution: "0123456789abcdefghj", ..PLACE },
                Bound { execution: "", sequence: 12 },
            ];
            for place in elsewhere {
                assert_eq!(open(&KEY, place, &sealed), Err(NotOpened::NotAuthentic));
            }
            assert_eq!(open(&SealKey::new([8; 32]), PLACE, &sealed), Err(NotOpened::NotAuthentic));
        }
    }

    #[test]
    fn no_byte_can_be_changed() {
        let sealed = seal(&KEY, PLACE, b"hunter2", [3; 24]);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&KEY, PLACE, &changed).is_err(), "byte {at}");
            assert!(open(&KEY, PLACE, &sealed[..at]).is_err(), "{at} bytes");
        }
        assert_eq!(open(&KEY, PLACE, &[2]), Err(NotOpened::Version(2)));
        assert_eq!(open(&KEY, PLACE, &[1, 2]), Err(NotOpened::CutOff(2)));
    }

    #[test]
    fn the_master_key_wraps_one_execution_s_key() {
        let master = MasterKey::new([1; 32]);
        let wrapped = master.wrap("one", &KEY, [5; 24]);
        assert_eq!(master.unwrap("one", &wrapped).unwrap(), KEY);
        assert_eq!(master.unwrap("two", &wrapped), Err(NotOpened::NotAuthentic));
        assert_eq!(MasterKey::new([2; 32]).unwrap("one", &wrapped), Err(NotOpened::NotAuthentic));
        // A value is not a key, even under the same bytes.
        let value = seal(&SealKey::new([1; 32]), Bound { execution: "one", sequence: 0 }, &[7; 32], [5; 24]);
        assert_eq!(master.unwrap("one", &value), Err(NotOpened::NotAuthentic));
    }

    #[test]
    fn what_was_sealed_once_is_read_for_ever() {
        let sealed = seal(&KEY, PLACE, b"hunter2", [3; 24]);
        let hex: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "01030303030303030303030303030303030303030303030303ec73256f1053f4a76f42e22241449328fe18073f68d7f0"
        );
    }

    #[test]
    fn a_key_is_never_shown() {
        assert_eq!(format!("{KEY:?} {:?}", MasterKey::new([1; 32])), "SealKey(…) MasterKey(…)");
    }
}
