//! Headers of requests, as authors write them, and of answers, as results show them. Pure.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

/// The headers that belong to the connection, or that the tool and the proxy write, each with what to do instead.
const RESERVED: [(&str, &str); 15] = [
    ("host", "it follows from `url`"),
    ("content-length", "it follows from the body"),
    ("transfer-encoding", "it follows from the body"),
    ("accept-encoding", "the body is asked for as it is"),
    ("connection", "each request has a connection of its own"),
    ("keep-alive", "each request has a connection of its own"),
    ("expect", "the body is sent at once"),
    ("te", "trailers are not passed on"),
    ("trailer", "trailers are not passed on"),
    ("upgrade", "only HTTP is spoken"),
    ("http2-settings", "only HTTP/1.1 is spoken"),
    ("proxy-authenticate", "the proxy is Belay's own"),
    ("proxy-authorization", "the proxy is Belay's own"),
    ("proxy-connection", "the proxy is Belay's own"),
    (belay_proxy::OWN_ANSWER, "the proxy is Belay's own"),
];

/// Checks a header of a request.
///
/// # Errors
/// The problem, and what to do, after the name of the field.
pub(crate) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let known = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "has a name that a header cannot have: use letters, digits and `-`".to_owned())?;
    if let Some((_, instead)) = RESERVED.iter().find(|(reserved, _)| known == *reserved) {
        return Err(format!("cannot be set, because {instead}: remove it"));
    }
    let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte) || byte == b'\t');
    let value = HeaderValue::from_str(value).ok().filter(|_| is_plain);
    let value = value.ok_or("has a character that a header cannot have: use ASCII without line breaks")?;
    Ok((known, value))
}

/// The headers of an answer by their lower-case names. Several of one name are joined as HTTP says, but for cookies, which have a line each.
pub(crate) fn shown_headers(headers: &HeaderMap) -> Value {
    let mut shown = Map::new();
    for name in headers.keys() {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let between = if name == http::header::SET_COOKIE { "\n" } else { ", " };
        shown.insert(name.as_str().to_owned(), values.join(between).into());
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_are_refused_in_words() {
        for (name, value, problem) in [
            ("Host", "other.example", "it follows from `url`"),
            ("Connection", "close", "a connection of its own"),
            ("Transfer-Encoding", "chunked", "follows from the body"),
            ("Proxy-Authorization", "Basic x", "Belay's own"),
            ("Belay-Proxy", "x", "Belay's own"),
            ("Upgrade", "websocket", "only HTTP"),
            ("a b", "x", "a name that a header cannot have"),
            ("", "x", "a name that a header cannot have"),
            ("X-A", "a\r\nX-B: c", "without line breaks"),
            ("X-A", "ä", "use ASCII"),
        ] {
            let refused = header(name, value).unwrap_err();
            assert!(refused.contains(problem), "{name}: {refused}");
        }
        let (name, value) = header("X-Api-Version", "2024-01-01").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-api-version", "2024-01-01"));
    }

    #[test]
    fn several_headers_of_one_name_are_one() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("vary", "a"), ("vary", "b"), ("set-cookie", "a=1"), ("set-cookie", "b=2")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        assert_eq!(shown_headers(&headers), serde_json::json!({"vary": "a, b", "set-cookie": "a=1\nb=2"}));
    }
}
