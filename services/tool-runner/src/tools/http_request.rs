//! `http_request`: makes one request to a host of the step's network profile.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use belay_network::Profile;
use belay_policy::ToolKind;
use http::{HeaderMap, HeaderValue, Method, header};
use hyper::body::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{
    files::{Work, invalid, read_arguments},
    http::{
        Answered, Asked, DEFAULT_BYTES, HttpHost, HttpUrl, STOP_GRACE, Session, SessionWork, failed_status, header,
        is_failed, shown_headers,
    },
};
use crate::{
    Annotations, CallIntent, Invocation, NetworkProblem, PlannedProblem, Recovery, Tool, ToolFailure, ToolResult,
    ToolSpec, Touches,
};

/// The tool.
#[derive(Clone)]
pub struct HttpRequest {
    host: HttpHost,
}

impl HttpRequest {
    pub(super) fn new(host: HttpHost) -> Self {
        Self { host }
    }
}

#[derive(Deserialize)]
struct Arguments {
    method: Option<String>,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    #[serde(default, deserialize_with = "given")]
    json: Option<Value>,
    timeout_ms: Option<u64>,
    max_bytes: Option<usize>,
    check: Option<bool>,
}

/// Reads `null` as a value that was given.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The method of a call.
fn method(arguments: &Value) -> &str {
    arguments["method"].as_str().unwrap_or("GET")
}

/// Whether a lost request may be made again.
fn repeats(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

impl Arguments {
    /// The request.
    fn asked(&self) -> Result<Asked, ToolFailure> {
        let url = HttpUrl::parse(&self.url).map_err(|problem| invalid(format!("arguments/url: {problem}")))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_static("belay"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        // The proxy looks for the values of credentials in the body as it is.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let body = match (&self.body, &self.json) {
            (Some(_), Some(_)) => {
                return Err(invalid("arguments/json: use either `body` or `json`, not both"));
            }
            (Some(body), None) => Bytes::from(body.clone()),
            (None, Some(value)) => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Bytes::from(value.to_string())
            }
            (None, None) => Bytes::new(),
        };
        for (name, value) in &self.headers {
            let (name, value) =
                header(name, value).map_err(|problem| invalid(format!("arguments/headers/{name}: {problem}")))?;
            headers.insert(name, value);
        }
        let method = self.method.as_deref().unwrap_or("GET");
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| invalid("arguments/method: must be the name of a method, such as `GET`"))?;
        Ok(Asked { method, url, headers, body, max_bytes: self.max_bytes.unwrap_or(DEFAULT_BYTES) })
    }
}

impl SessionWork for Arguments {
    async fn work(self, session: &mut Session) -> ToolResult {
        let asked = self.asked()?;
        let (method, url) = (asked.method.clone(), asked.url.clone());
        let answered = session.ask(asked).await?;
        if self.check.unwrap_or(true) && is_failed(answered.status) {
            return Err(failed_status(method.as_str(), &url, &answered));
        }
        Ok(result(answered))
    }
}

fn result(answered: Answered) -> Value {
    let Answered { status, headers, mut body, truncated } = answered;
    if truncated {
        without_partial_character(&mut body);
    }
    let length = body.len();
    let (text, is_base64) = match String::from_utf8(body) {
        Ok(text) => (text, false),
        Err(error) => (BASE64_STANDARD.encode(error.as_bytes()), true),
    };
    json!({
        "status": status.as_u16(),
        "headers": shown_headers(&headers),
        "body": text,
        "body_bytes": length,
        "truncated": truncated,
        "is_base64": is_base64,
    })
}

/// Removes the part of a character at the end of a text that was cut.
pub(super) fn without_partial_character(body: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(body)
        && error.error_len().is_none()
    {
        body.truncate(error.valid_up_to());
    }
}

/// The problems of a planned URL.
pub(super) fn planned_url(arguments: &Value) -> Option<PlannedProblem> {
    let message = HttpUrl::parse(arguments["url"].as_str()?).err()?;
    Some(PlannedProblem { pointer: "/url".to_owned(), message, refused: true })
}

impl Tool for HttpRequest {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "http_request",
            aliases: &["HTTP_REQUEST", "HttpRequest"],
            description: "Makes one HTTP request to a host of the step's `network` profile, which it needs. A credential of the profile is put in by the proxy; \
                          redirects are not followed. A status of 400 or more is a failure unless `check` is false.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["url"],
  "properties": {
    "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], "default": "GET", "description": "The method. GET and HEAD are repeatable; a lost call with another one waits for a person."},
    "url": {"type": "string", "description": "The URL, `https://` or `http://`, without a user and without `#…`.", "examples": ["https://api.example.com/v1/items?limit=10"]},
    "headers": {
      "type": "object",
      "maxProperties": 64,
      "additionalProperties": {"type": "string", "maxLength": 8192},
      "description": "Additional headers. Host, those of the connection, and Content-Length are set by the tool.",
      "examples": [{"Accept": "application/json"}]
    },
    "body": {"type": "string", "description": "The body, as text."},
    "json": {"description": "The body, as any JSON value; sets Content-Type."},
    "timeout_ms": {"type": "integer", "minimum": 1, "maximum": 86400000, "description": "A time limit in milliseconds, if shorter than that of the call."},
    "max_bytes": {"type": "integer", "minimum": 0, "maximum": 16777216, "default": 1048576, "description": "The most bytes of the body in the result."},
    "check": {"type": "boolean", "default": true, "description": "Fail if the status is 400 or more."}
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["status", "headers", "body", "body_bytes", "truncated", "is_base64"],
  "properties": {
    "status": {"type": "integer", "description": "The status."},
    "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "The headers by their lower-case names; several of one name are joined by `, `, cookies by line breaks."},
    "body": {"type": "string", "description": "The body: as text if it is UTF-8, otherwise in base64."},
    "body_bytes": {"type": "integer", "description": "The bytes of the body that are in the result."},
    "truncated": {"type": "boolean", "description": "Whether the body has more."},
    "is_base64": {"type": "boolean", "description": "Whether `body` is in base64."}
  }
}"#,
            recovery: Recovery::Manual,
            touches: Touches::Nothing,
            kind: ToolKind::Network,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations {
                title: "Make an HTTP request",
                destructive: true,
                idempotent: false,
                open_world: true,
            },
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        let url = arguments["url"].as_str().and_then(|url| HttpUrl::parse(url).ok());
        CallIntent { hosts: url.into_iter().map(|url| url.host.to_string()).collect(), ..CallIntent::default() }
    }

    fn check_planned(&self, arguments: &Value) -> Vec<PlannedProblem> {
        let headers = arguments["headers"].as_object().into_iter().flatten();
        let refused = headers.filter_map(|(name, value)| {
            let message = header(name, value.as_str()?).err()?;
            let pointer = format!("/headers/{}", name.replace('~', "~0").replace('/', "~1"));
            Some(PlannedProblem { pointer, message, refused: true })
        });
        planned_url(arguments).into_iter().chain(refused).collect()
    }

    fn takes_network(&self) -> bool {
        true
    }

    fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        self.host.network(asked)
    }

    fn recovery_of(&self, arguments: &str) -> Option<Recovery> {
        let arguments: Value = serde_json::from_str(arguments).ok()?;
        Some(if repeats(method(&arguments)) { Recovery::Idempotent } else { Recovery::Manual })
    }

    fn stop_grace(&self) -> Duration {
        STOP_GRACE
    }

    fn call(&self, invocation: Invocation) -> Work {
        let host = self.host.clone();
        Box::pin(async move {
            let repeats = repeats(method(&invocation.arguments));
            let arguments: Arguments = read_arguments(invocation.arguments.clone())?;
            let limit = arguments.timeout_ms.map(Duration::from_millis);
            Session::new(host, &invocation, limit, repeats)?.run(arguments).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arguments: Value) -> Result<Asked, String> {
        let arguments: Arguments = read_arguments(arguments).unwrap();
        arguments.asked().map_err(|failure| failure.message)
    }

    #[test]
    fn a_request_has_what_its_arguments_say() {
        let request = asked(json!({
            "method": "POST", "url": "https://example.com/x", "json": {"a": [1, null]}, "headers": {"Accept": "text/plain", "X-A": "b"}
        }))
        .unwrap();
        assert_eq!((request.method.as_str(), &request.body[..]), ("POST", br#"{"a":[1,null]}"#.as_slice()));
        let header = |name: &str| request.headers[name].to_str().unwrap().to_owned();
        assert_eq!(
            (header("content-type"), header("accept"), header("x-a")),
            ("application/json".into(), "text/plain".into(), "b".into())
        );
        assert_eq!(header("accept-encoding"), "identity");
        assert_eq!(&asked(json!({"url": "https://example.com/", "json": null})).unwrap().body[..], b"null");
        assert_eq!(&asked(json!({"url": "https://example.com/", "body": "x"})).unwrap().body[..], b"x");
        let plain = asked(json!({"url": "https://example.com/"})).unwrap();
        assert_eq!((plain.method.as_str(), plain.body.len(), plain.max_bytes), ("GET", 0, DEFAULT_BYTES));
    }

    #[test]
    fn what_cannot_be_sent_names_its_argument() {
        for (arguments, problem) in [
            (json!({"url": "ftp://example.com/"}), "arguments/url: must begin with `https://`"),
            (json!({"url": "https://example.com/", "body": "", "json": 1}), "arguments/json: use either"),
            (json!({"url": "https://example.com/", "headers": {"Host": "x"}}), "arguments/headers/Host: cannot be set"),
        ] {
            let refused = asked(arguments).unwrap_err();
            assert!(refused.starts_with(problem), "{refused}");
        }
    }

    /// B-32: a lost request is made again only if nothing happens twice.
    #[test]
    fn the_method_says_how_a_call_is_recovered() {
        let tool = HttpRequest::new(HttpHost::for_test());
        for (arguments, recovery) in [
            (r#"{"url": "https://a.example/"}"#, Some(Recovery::Idempotent)),
            (r#"{"method": "HEAD"}"#, Some(Recovery::Idempotent)),
            (r#"{"method": "POST"}"#, Some(Recovery::Manual)),
            (r#"{"method": "OPTIONS"}"#, Some(Recovery::Manual)),
            (r#"{"method": 7}"#, Some(Recovery::Idempotent)),
            // It is refused before it runs.
            ("not JSON", None),
        ] {
            assert_eq!(tool.recovery_of(arguments), recovery, "{arguments}");
        }
        let hosts = |url: &str| tool.intent(&json!({"url": url})).hosts;
        assert_eq!((hosts("https://A.example:8443/x"), hosts("${url}")), (vec!["a.example".to_owned()], vec![]));
        assert_eq!(tool.network(None), Err(NetworkProblem::NoNetwork));
        assert_eq!(tool.network(Some("none")), Err(NetworkProblem::NoNetwork));
        assert_eq!(tool.network(Some("registries")).unwrap().unwrap().name, "registries");
    }

    #[test]
    fn a_result_has_text_or_base64() {
        let of = |body: &[u8], truncated| {
            let headers = HeaderMap::new();
            result(Answered { status: http::StatusCode::OK, headers, body: body.to_vec(), truncated })
        };
        let text = of("a€".as_bytes(), false);
        assert_eq!((&text["body"], &text["is_base64"], &text["body_bytes"]), (&json!("a€"), &json!(false), &json!(4)));
        let cut = of(&"a€".as_bytes()[..3], true);
        assert_eq!((&cut["body"], &cut["truncated"], &cut["body_bytes"]), (&json!("a"), &json!(true), &json!(1)));
        let binary = of(b"\xff\x00\x01", false);
        assert_eq!((&binary["body"], &binary["is_base64"]), (&json!("/wAB"), &json!(true)));
    }
}
