//! `fetch_url`: returns the text at a URL of a host of the step's network profile.

mod html;

use std::{sync::Arc, time::Duration};

use belay_network::Profile;
use belay_policy::ToolKind;
use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    files::{Work, invalid, read_arguments},
    http::{
        Answered, Asked, DEFAULT_BYTES, HttpHost, HttpUrl, STOP_GRACE, Session, SessionWork, failed_status, is_failed,
    },
    http_request::{planned_url, without_partial_character},
};
use crate::{
    Annotations, Invocation, NetworkProblem, PlannedProblem, Recovery, Tool, ToolFailure, ToolResult, ToolSpec, Touches,
};

/// The most redirects that are followed.
const MAX_REDIRECTS: usize = 10;

/// The tool.
#[derive(Clone)]
pub struct FetchUrl {
    host: HttpHost,
}

impl FetchUrl {
    pub(super) fn new(host: HttpHost) -> Self {
        Self { host }
    }
}

#[derive(Deserialize)]
struct Arguments {
    url: String,
    max_bytes: Option<usize>,
}

/// How a text is made of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Text,
    /// Text if it can be read as such: the host does not say.
    Unknown,
    Binary,
}

impl SessionWork for Arguments {
    async fn work(self, session: &mut Session) -> ToolResult {
        let url = HttpUrl::parse(&self.url).map_err(|problem| invalid(format!("arguments/url: {problem}")))?;
        let (url, answered) = fetch(session, url, self.max_bytes.unwrap_or(DEFAULT_BYTES)).await?;
        text_at(&url, answered)
    }
}

/// Asks for a URL, and for those to which hosts redirect. Returns the last one with its answer.
pub(super) async fn fetch(
    session: &mut Session,
    mut url: HttpUrl,
    max_bytes: usize,
) -> Result<(HttpUrl, Answered), ToolFailure> {
    for followed in 0..=MAX_REDIRECTS {
        let answered = session.ask(request(&url, max_bytes)).await?;
        match redirect(&url, &answered)? {
            None => return Ok((url, answered)),
            Some(_) if followed == MAX_REDIRECTS => break,
            Some(next) => url = next,
        }
    }
    Err(not_followed(
        &url,
        &format!("it is the {}th redirect of this call, and {MAX_REDIRECTS} are followed", MAX_REDIRECTS + 1),
    ))
}

/// The request for a URL. It has nothing of the caller, so that nothing of the caller reaches the host of a redirect.
fn request(url: &HttpUrl, max_bytes: usize) -> Asked {
    let headers = [
        (header::USER_AGENT, "belay"),
        (header::ACCEPT, "text/html, text/plain, application/json, */*;q=0.5"),
        // The proxy looks for the values of credentials in the body as it is.
        (header::ACCEPT_ENCODING, "identity"),
    ];
    let headers = headers.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value)));
    Asked { method: Method::GET, url: url.clone(), headers: headers.collect(), body: Bytes::new(), max_bytes }
}

/// The URL to which a host redirects.
fn redirect(url: &HttpUrl, answered: &Answered) -> Result<Option<HttpUrl>, ToolFailure> {
    let redirects = matches!(
        answered.status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let Some(location) = answered.headers.get(header::LOCATION).filter(|_| redirects) else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    let next = url.join(&location).map_err(|problem| not_followed(url, &format!("its `Location` {problem}")))?;
    if url.is_tls && !next.is_tls {
        return Err(not_followed(url, &format!("it leads from https to `{next}`, which is in clear text")));
    }
    Ok(Some(next))
}

fn not_followed(url: &HttpUrl, why: &str) -> ToolFailure {
    let message = format!("The redirect of `{url}` was not followed: {why}.");
    ToolFailure::new(ErrorClass::InvalidArguments, reasons::REDIRECT_NOT_FOLLOWED, message)
}

/// The result of an answer that is not a redirect.
pub(super) fn text_at(url: &HttpUrl, answered: Answered) -> ToolResult {
    if is_failed(answered.status) {
        return Err(failed_status("GET", url, &answered));
    }
    let Answered { status, headers, mut body, truncated } = answered;
    let content_type = content_type(&headers);
    let not_text = || {
        let shown = if content_type.is_empty() { "no content type" } else { &content_type };
        let message = format!(
            "`{url}` is not text ({}): use `http_request`, or download it with a command.",
            belay_text::shown(shown, 200)
        );
        ToolFailure::new(ErrorClass::InvalidArguments, reasons::CONTENT_NOT_TEXT, message)
    };
    let form = form(&content_type);
    if form == Form::Binary || body.contains(&0) {
        return Err(not_text());
    }
    if truncated {
        without_partial_character(&mut body);
    }
    let text = match String::from_utf8(body) {
        Ok(text) => text,
        Err(_) if form == Form::Unknown => return Err(not_text()),
        // Before UTF-8, a byte was mostly a character of Western Europe.
        Err(error) if is_latin(&content_type) => error.as_bytes().iter().map(|byte| char::from(*byte)).collect(),
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    let text = if form == Form::Html { html::text(&text) } else { text };
    Ok(json!({
        "url": url.to_string(),
        "status": status.as_u16(),
        "content_type": content_type,
        "text": text,
        "truncated": truncated,
    }))
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    value.unwrap_or_default()
}

fn is_latin(content_type: &str) -> bool {
    let content_type = content_type.to_ascii_lowercase();
    ["iso-8859-1", "latin1", "windows-1252"].iter().any(|name| content_type.contains(name))
}

/// How the text of a content type is read.
fn form(content_type: &str) -> Form {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "" => Form::Unknown,
        "text/html" | "application/xhtml+xml" => Form::Html,
        "application/json"
        | "application/xml"
        | "application/javascript"
        | "application/x-javascript"
        | "application/ecmascript"
        | "application/x-ndjson"
        | "application/yaml"
        | "application/x-yaml"
        | "application/toml"
        | "application/graphql"
        | "application/sql"
        | "application/x-sh" => Form::Text,
        kind if kind.starts_with("text/")
            || kind.ends_with("+json")
            || kind.ends_with("+xml")
            || kind.ends_with("+yaml") =>
        {
            Form::Text
        }
        _ => Form::Binary,
    }
}

impl Tool for FetchUrl {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fetch_url",
            aliases: &["FETCH_URL", "FetchUrl"],
            description: "Returns the text at a URL of a host of the step's `network` profile, which it needs: HTML as plain text, other text as it is. Follows redirects \
                          within the profile.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["url"],
  "properties": {
    "url": {"type": "string", "description": "The URL, `https://` or `http://`, without a user and without `#…`.", "examples": ["https://docs.example.com/guide.html"]},
    "max_bytes": {"type": "integer", "minimum": 1, "maximum": 16777216, "default": 1048576, "description": "The most bytes that are read."}
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["url", "status", "content_type", "text", "truncated"],
  "properties": {
    "url": {"type": "string", "description": "The URL that was answered, after redirects."},
    "status": {"type": "integer", "description": "The status."},
    "content_type": {"type": "string", "description": "The content type, as the host says it; empty if it does not."},
    "text": {"type": "string", "description": "The text."},
    "truncated": {"type": "boolean", "description": "Whether there is more."}
  }
}"#,
            recovery: Recovery::ReadOnly,
            touches: Touches::Nothing,
            kind: ToolKind::Network,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { title: "Fetch a URL", destructive: false, idempotent: true, open_world: true },
        }
    }

    // Its hosts are all of the profile: a redirect may lead to each of them.

    fn check_planned(&self, arguments: &Value) -> Vec<PlannedProblem> {
        planned_url(arguments).into_iter().collect()
    }

    fn takes_network(&self) -> bool {
        true
    }

    fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        self.host.network(asked)
    }

    // It changes nothing, but what it asks for leaves this machine: it is not previewed, and its end has a row.
    fn recovery_of(&self, _arguments: &str) -> Option<Recovery> {
        Some(Recovery::Idempotent)
    }

    fn stop_grace(&self) -> Duration {
        STOP_GRACE
    }

    fn call(&self, invocation: Invocation) -> Work {
        let host = self.host.clone();
        Box::pin(async move {
            let arguments: Arguments = read_arguments(invocation.arguments.clone())?;
            Session::new(host, &invocation, None, true)?.run(arguments).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, headers: &[(&'static str, &'static str)], body: &[u8]) -> Answered {
        let headers =
            headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
        let status = StatusCode::from_u16(status).unwrap();
        Answered { status, headers: headers.collect(), body: body.to_vec(), truncated: false }
    }

    #[test]
    fn a_redirect_never_leads_from_tls_to_clear_text() {
        let tls = HttpUrl::parse("https://example.com/a").unwrap();
        let clear = HttpUrl::parse("http://example.com/a").unwrap();
        let to = |url: &HttpUrl, status, location| redirect(url, &answered(status, &[("location", location)], b""));
        let next = |url: &HttpUrl, status, location| to(url, status, location).unwrap().map(|url| url.to_string());
        assert_eq!(next(&tls, 302, "/b"), Some("https://example.com/b".to_owned()));
        assert_eq!(next(&clear, 308, "https://example.com/b"), Some("https://example.com/b".to_owned()));
        assert_eq!((next(&tls, 200, "/b"), next(&tls, 304, "/b")), (None, None));
        for location in ["http://example.com/b", "ftp://example.com/", "https://user@example.com/"] {
            let refused = to(&tls, 301, location).unwrap_err();
            assert_eq!(refused.reason, "REDIRECT_NOT_FOLLOWED", "{location}");
            assert!(refused.message.contains("`https://example.com/a`"), "{}", refused.message);
        }
    }

    #[test]
    fn the_content_type_says_how_a_body_is_read() {
        let url = HttpUrl::parse("https://example.com/a").unwrap();
        let text = |kind, body: &[u8]| text_at(&url, answered(200, &[("content-type", kind)], body));
        assert_eq!(text("text/html; charset=utf-8", b"<p>a &amp; b</p>").unwrap()["text"], "a & b\n");
        assert_eq!(text("application/problem+json", b"{\"a\": 1}").unwrap()["text"], "{\"a\": 1}");
        assert_eq!(text("text/plain; charset=iso-8859-1", b"\xe4").unwrap()["text"], "ä");
        assert_eq!(text("text/plain", b"\xe4").unwrap()["text"], "\u{fffd}");
        assert_eq!(text_at(&url, answered(200, &[], b"plain")).unwrap()["content_type"], "");
        for (kind, body) in
            [("image/png", b"x".as_slice()), ("text/plain", b"a\0b"), ("application/octet-stream", b"x")]
        {
            let refused = text(kind, body).unwrap_err();
            assert_eq!(refused.reason, "CONTENT_NOT_TEXT");
            assert!(refused.message.contains(kind), "{}", refused.message);
        }
        assert_eq!(text_at(&url, answered(200, &[], b"\xff\xfe")).unwrap_err().reason, "CONTENT_NOT_TEXT");
        assert_eq!(text_at(&url, answered(404, &[], b"no")).unwrap_err().reason, "HTTP_STATUS");
    }
}
