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
use hmac::{Hmac, Mac};
use sha2::Sha256;
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
/// How many bytes longer a text is when it is sealed.
pub const SEALED_LONGER: usize = HEADER + TAG;

/// The context that a sealed value is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound<'a> {
    /// The execution's uid. A name can be reused, a uid cannot.
    pub execution: &'a str,
    /// The sequence of the event.
    pub sequence: i64,
}

/// The context that a sealed chunk of a blob is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPlace<'a> {
    /// The execution's uid.
    pub execution: &'a str,
    /// The blob's digest; see [`blob_digest`].
    pub blob: &'a [u8; 32],
    /// Whether it is of the original, and not of the form whose secrets are hidden.
    pub original: bool,
    /// Its number, from 0.
    pub number: u32,
    /// Whether it is the last. So a blob that was cut off is not authentic.
    pub last: bool,
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

/// Seals a chunk of a blob, which becomes [`SEALED_LONGER`] bytes longer. `nonce` must be random, as for [`seal`].
pub fn seal_chunk(key: &SealKey, place: ChunkPlace<'_>, chunk: &[u8], nonce: [u8; 24]) -> Vec<u8> {
    encrypt(&key.0, &chunk_place(place), chunk, nonce)
}

/// The chunk in sealed bytes.
///
/// # Errors
/// [`NotOpened`], without any part of the chunk.
pub fn open_chunk(key: &SealKey, place: ChunkPlace<'_>, sealed: &[u8]) -> Result<Vec<u8>, NotOpened> {
    decrypt(&key.0, &chunk_place(place), sealed)
}

/// The digest of a blob of the execution with this key: HMAC-SHA256 over both its forms, so that it tells nothing about the content without the key.
/// `original` is `None` when it has no secrets.
///
/// # Panics
/// Never: HMAC takes keys of any length.
pub fn blob_digest(key: &SealKey, shown: &[u8], original: Option<&[u8]>) -> [u8; 32] {
    let hmac = |key: &[u8]| <Hmac<Sha256> as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    let own_key = hmac(&key.0).chain_update(b"belay blob digest").finalize().into_bytes();
    let digest = hmac(&own_key).chain_update((shown.len() as u64).to_be_bytes()).chain_update(shown);
    digest.chain_update(original.unwrap_or_default()).finalize().into_bytes().into()
}

/// The context that is authenticated along: the kind of text, and where it belongs. The number stands first and has a fixed length, so two places
/// never give the same bytes.
fn value_place(Bound { execution, sequence }: Bound<'_>) -> Vec<u8> {
    [b"belay value\0".as_slice(), &sequence.to_be_bytes(), execution.as_bytes()].concat()
}

fn chunk_place(ChunkPlace { execution, blob, original, number, last }: ChunkPlace<'_>) -> Vec<u8> {
    let flags = [u8::from(original), u8::from(last)];
    [b"belay blob\0".as_slice(), blob, &number.to_be_bytes(), &flags, execution.as_bytes()].concat()
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
    fn a_chunk_opens_in_its_place_and_nowhere_else() {
        let place = ChunkPlace { execution: "uid", blob: &[9; 32], original: true, number: 3, last: true };
        let sealed = seal_chunk(&KEY, place, b"chunk", [3; 24]);
        assert_eq!(sealed.len(), 5 + SEALED_LONGER);
        assert_eq!(open_chunk(&KEY, place, &sealed).unwrap(), b"chunk");
        let elsewhere = [
            ChunkPlace { execution: "uie", ..place },
            ChunkPlace { blob: &[8; 32], ..place },
            ChunkPlace { original: false, ..place },
            ChunkPlace { number: 2, ..place },
            ChunkPlace { last: false, ..place },
        ];
        for place in elsewhere {
            assert_eq!(open_chunk(&KEY, place, &sealed), Err(NotOpened::NotAuthentic));
        }
    }

    #[test]
    fn a_blob_s_digest_depends_on_the_key_and_on_both_forms() {
        let digest = |key: u8, shown: &str, original: Option<&str>| {
            blob_digest(&SealKey::new([key; 32]), shown.as_bytes(), original.map(str::as_bytes))
        };
        let all = [
            digest(1, "ab", None),
            digest(2, "ab", None),
            digest(1, "abc", None),
            digest(1, "ab", Some("c")),
            digest(1, "a", Some("bc")),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(all[0], digest(1, "ab", None));
    }

    #[test]
    fn a_key_is_never_shown() {
        assert_eq!(format!("{KEY:?} {:?}", MasterKey::new([1; 32])), "SealKey(…) MasterKey(…)");
    }
}
