use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of some bytes, as `sha256:` and 64 hexadecimal digits.
pub fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}
