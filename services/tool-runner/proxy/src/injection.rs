//! Puts the value of a credential into a request, and finds placeholders on their way to other hosts. Pure.

use std::{collections::BTreeMap, sync::Arc};

use belay_network::{Credential, Placement, Secret};
use belay_redaction::ValueFinder;
use data_encoding::BASE64;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use zeroize::Zeroizing;

use crate::scrub::Values;

/// A credential of one call.
#[derive(Clone, Debug)]
pub struct CallCredential {
    /// Its name.
    pub name: String,
    /// The text that the command has instead of the value.
    pub placeholder: String,
    /// The value.
    pub secret: Secret,
}

/// The credentials of one call, by name.
#[derive(Debug, Default)]
pub(crate) struct CallCredentials {
    by_name: BTreeMap<String, CallCredential>,
    /// The placeholders, in the order of the names.
    placeholders: Option<ValueFinder>,
    values: Option<Arc<Values>>,
}

/// Finds the placeholders of all credentials but one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForeignFinder<'a> {
    finder: &'a ValueFinder,
    /// The place of the one.
    own: Option<usize>,
}

impl ForeignFinder<'_> {
    /// Whether a text has one.
    pub(crate) fn is_in(self, text: &[u8]) -> bool {
        self.finder.find(text).iter().any(|found| Some(found.value) != self.own)
    }

    /// How many bytes at the end may be the beginning of one.
    pub(crate) fn pending(self, text: &[u8]) -> usize {
        self.finder.pending(text)
    }
}

/// A value that cannot be put into a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotPlaced;

impl CallCredentials {
    pub(crate) fn new(credentials: Vec<CallCredential>) -> Self {
        let by_name: BTreeMap<String, CallCredential> =
            credentials.into_iter().map(|credential| (credential.name.clone(), credential)).collect();
        let placeholders = ValueFinder::new(by_name.values().map(|known| known.placeholder.as_bytes()));
        let values = Values::new(by_name.values().map(|known| (known.secret.expose(), known.placeholder.as_str())));
        Self { placeholders, values: values.map(Arc::new), by_name }
    }

    /// Finds placeholders that must not go to a host whose requests carry this credential, or none. `None`: there are no such placeholders.
    pub(crate) fn foreign_to(&self, credential: Option<&str>) -> Option<ForeignFinder<'_>> {
        let finder = self.placeholders.as_ref()?;
        let own = credential.and_then(|name| self.by_name.keys().position(|known| known == name));
        (self.by_name.len() > usize::from(own.is_some())).then_some(ForeignFinder { finder, own })
    }

    /// The values, which are removed from answers.
    pub(crate) fn values(&self) -> Option<&Arc<Values>> {
        self.values.as_ref()
    }

    /// Puts the value of a credential into a request: what the client has sent in its place is removed first.
    pub(crate) fn place(
        &self,
        credential: &Credential,
        path: &mut String,
        headers: &mut HeaderMap,
    ) -> Result<(), NotPlaced> {
        let value = self.by_name.get(&credential.name).ok_or(NotPlaced)?.secret.expose();
        let (name, text) = match &credential.placement {
            Placement::Header { name, prefix } => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| NotPlaced)?;
                (name, Zeroizing::new([prefix.as_bytes(), value].concat()))
            }
            Placement::Basic { user } => {
                let both = Zeroizing::new([user.as_bytes(), b":", value].concat());
                let encoded = Zeroizing::new(BASE64.encode(&both));
                (header::AUTHORIZATION, Zeroizing::new([b"Basic ", encoded.as_bytes()].concat()))
            }
            Placement::Query { name } => {
                *path = with_parameter(path, name, value);
                return Ok(());
            }
        };
        let mut text = HeaderValue::from_bytes(&text).map_err(|_| NotPlaced)?;
        text.set_sensitive(true);
        headers.remove(&name);
        headers.insert(name, text);
        Ok(())
    }
}

/// A path with its query, in which one parameter has this value, and only once.
fn with_parameter(path: &str, name: &str, value: &[u8]) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let others = query.split('&').filter(|part| {
        let key = part.split('=').next().unwrap_or(part);
        !part.is_empty() && !is_name(key, name)
    });
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let value: String = value
        .iter()
        .map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    let mut all: Vec<String> = others.map(str::to_owned).collect();
    all.push(format!("{name}={value}"));
    format!("{path}?{}", all.join("&"))
}

/// Whether a parameter has this name, with whatever escapes.
fn is_name(key: &str, name: &str) -> bool {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%');
        match escaped.and_then(|digits| data_encoding::HEXLOWER_PERMISSIVE.decode(digits).ok()) {
            Some(decoded) => {
                bytes.extend(decoded);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes.eq_ignore_ascii_case(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use belay_network::DraftCredential;

    use super::*;

    fn credential(draft: DraftCredential) -> Credential {
        let hosts = vec!["https://api.example.com".to_owned()];
        Credential::new(&DraftCredential { name: "c".to_owned(), hosts, ..draft }).unwrap()
    }

    fn call(value: &str) -> CallCredentials {
        let of = |name: &str, value: &str, placeholder: &str| CallCredential {
            name: name.to_owned(),
            placeholder: placeholder.to_owned(),
            secret: Secret::new(value.as_bytes().to_vec()).unwrap(),
        };
        CallCredentials::new(vec![of("c", value, "placeholder-of-c"), of("d", "another-value", "placeholder-of-d")])
    }

    fn placed(draft: DraftCredential, path: &str, sent: &[(&'static str, &'static str)]) -> (String, HeaderMap) {
        let (mut path, mut headers) = (path.to_owned(), HeaderMap::new());
        for (name, value) in sent {
            headers.append(*name, HeaderValue::from_static(value));
        }
        call("s3cret/value").place(&credential(draft), &mut path, &mut headers).unwrap();
        (path, headers)
    }

    #[test]
    fn a_value_takes_the_place_of_what_the_client_has_sent() {
        let sent = [("authorization", "Bearer placeholder"), ("authorization", "Basic other"), ("accept", "*/*")];
        let (path, headers) = placed(DraftCredential::default(), "/a?b", &sent);
        let all: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(path, "/a?b");
        assert!(all.len() == 1 && all[0] == "Bearer s3cret/value", "{all:?}");
        assert!(headers["authorization"].is_sensitive() && headers["accept"] == "*/*");

        let key = DraftCredential { header: Some("X-Api-Key".to_owned()), ..DraftCredential::default() };
        let (_, headers) = placed(key, "/", &[("x-api-key", "placeholder")]);
        assert_eq!(headers["x-api-key"], "s3cret/value");

        let basic = DraftCredential { basic: Some("user".to_owned()), ..DraftCredential::default() };
        let (_, headers) = placed(basic, "/", &sent);
        assert_eq!(headers["authorization"], "Basic dXNlcjpzM2NyZXQvdmFsdWU=");
        assert_eq!(headers.get_all("authorization").iter().count(), 1);
    }

    #[test]
    fn a_parameter_is_there_once_whatever_the_client_has_sent() {
        let query = || DraftCredential { query: Some("api_key".to_owned()), ..DraftCredential::default() };
        for (sent, expected) in [
            ("/a", "/a?api_key=s3cret%2Fvalue"),
            ("/a?x=1&api_key=placeholder&y", "/a?x=1&y&api_key=s3cret%2Fvalue"),
            ("/a?API_KEY=1&api%5fkey=2&api_key&api_keys=3", "/a?api_keys=3&api_key=s3cret%2Fvalue"),
            ("/a?x=1?api_key=2", "/a?x=1?api_key=2&api_key=s3cret%2Fvalue"),
        ] {
            assert_eq!(placed(query(), sent, &[]).0, expected);
        }
    }

    #[test]
    fn a_placeholder_is_foreign_to_every_host_but_its_own() {
        let call = call("s3cret/value");
        let finds = |credential, text: &str| call.foreign_to(credential).unwrap().is_in(text.as_bytes());
        assert_eq!((finds(Some("c"), "placeholder-of-c"), finds(Some("c"), "x placeholder-of-d")), (false, true));
        assert_eq!((finds(None, "placeholder-of-c"), finds(None, "cGxhY2Vob2xkZXItb2YtZA==")), (true, true));
        assert!(CallCredentials::default().foreign_to(None).is_none());
    }
}
