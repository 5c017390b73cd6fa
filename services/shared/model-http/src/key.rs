//! The key of a server, and where it stands in a request.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use belay_network::{Placement, Secret};
use reqwest::header::{HeaderName, HeaderValue};

/// What stands where a server has repeated a key.
const HIDDEN: &str = "[REDACTED]";

pub(crate) struct Key<'a> {
    pub(crate) placement: &'a Placement,
    pub(crate) secret: &'a Secret,
}

impl Key<'_> {
    /// The header with the key, which no log shows.
    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let (name, value) = match self.placement {
            Placement::Header { name, prefix } => (name.as_str(), [prefix.as_bytes(), self.secret.expose()].concat()),
            Placement::Basic { user } => {
                let pair = [user.as_bytes(), b":", self.secret.expose()].concat();
                ("authorization", format!("Basic {}", STANDARD.encode(pair)).into_bytes())
            }
            Placement::Query { .. } => return None,
        };
        // A credential's name and value have been checked where they were read.
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_bytes(&value).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }

    /// The parameter with the key.
    pub(crate) fn parameter(&self) -> Option<(&str, String)> {
        let Placement::Query { name } = self.placement else { return None };
        Some((name, String::from_utf8_lossy(self.secret.expose()).into_owned()))
    }

    /// Replaces the key where it stands.
    pub(crate) fn hide(&self, text: &mut String) {
        if let Ok(secret) = std::str::from_utf8(self.secret.expose())
            && text.contains(secret)
        {
            *text = text.replace(secret, HIDDEN);
        }
    }
}
