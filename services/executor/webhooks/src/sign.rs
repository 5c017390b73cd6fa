//! The signature of a message.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use thiserror::Error;

/// Prefix of the text of a secret.
const PREFIX: &str = "whsec_";

/// The secret that a sender and a receiver share.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// A text is not a secret. The message does not repeat it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("is not a secret: it must be `whsec_` and 24 to 64 random bytes in base64")]
pub struct InvalidSecret;

impl Secret {
    /// Reads `whsec_` and 24 to 64 bytes in base64, with white space around it.
    ///
    /// # Errors
    /// [`InvalidSecret`] for any other text.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(InvalidSecret)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| InvalidSecret)?;
        (24..=64).contains(&bytes.len()).then_some(Self(bytes)).ok_or(InvalidSecret)
    }

    /// The value of the header `webhook-signature` for a message that is sent at `timestamp`, in seconds since the Unix epoch.
    pub(crate) fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of every length");
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the reference implementations' tests.
    #[test]
    fn a_message_is_signed_as_others_sign_it() {
        let secret = Secret::parse(" whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    #[test]
    fn what_is_too_short_or_no_base64_is_no_secret() {
        let short = STANDARD.encode([7; 23]);
        for text in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_not base64", &format!("whsec_{short}")] {
            assert_eq!(Secret::parse(text).unwrap_err(), InvalidSecret, "{text}");
        }
    }
}
