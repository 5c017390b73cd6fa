//! The contract's revision, which peers announce to each other.
//!
//! Every request and every response carries the sender's revision in the metadata [`HEADER`]. Nothing is decided by it: a request is refused for
//! what it has and not for its sender's revision, so that a client that uses nothing new works with an older server. It is read only to explain
//! a refusal.

use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};

/// The revision of this version's contract. It increases with every release that adds to the contract.
pub const REVISION: u32 = 1;

/// [`REVISION`] as it is sent.
pub const TEXT: &str = "1";

/// The name of the metadata that carries the revision.
pub const NAME: &str = "belay-contract";

/// [`NAME`] as a key.
pub static HEADER: HeaderName = HeaderName::from_static(NAME);

/// Adds this version's revision to the metadata of a request or a response.
pub fn announce(headers: &mut HeaderMap) {
    headers.insert(&HEADER, HeaderValue::from_static(TEXT));
}

/// The revision that a peer has announced; `None` for one that announces none.
pub fn announced(value: &HeaderValue) -> Option<u32> {
    value.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_is_announced() {
        let mut headers = HeaderMap::new();
        announce(&mut headers);
        assert_eq!(announced(&headers[&HEADER]), Some(REVISION));
        assert_eq!(announced(&HeaderValue::from_static("first")), None);
    }
}
