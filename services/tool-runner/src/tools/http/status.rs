//! Statuses that are failures. Pure.

use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use http::StatusCode;

use super::{session::Answered, url::HttpUrl};
use crate::ToolFailure;

/// The most characters of a body in a failure.
const MAX_SHOWN: usize = 1_000;

/// Whether a host answers with a failure.
pub(crate) fn is_failed(status: StatusCode) -> bool {
    status.as_u16() >= 400
}

/// The failure of a request that the host has answered with a failure: its class says whether another attempt may help.
pub(crate) fn failed_status(method: &str, url: &HttpUrl, answered: &Answered) -> ToolFailure {
    let status = answered.status;
    let class = match status.as_u16() {
        429 => ErrorClass::RateLimit,
        408 | 425 | 500.. => ErrorClass::Transient,
        _ => ErrorClass::InvalidArguments,
    };
    let line = match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    };
    let body = std::str::from_utf8(&answered.body).unwrap_or_default().trim();
    let body = if body.is_empty() { ".".to_owned() } else { format!(": {}", belay_text::shown(body, MAX_SHOWN)) };
    ToolFailure::new(class, reasons::HTTP_STATUS, format!("`{method} {url}` was answered with {line}{body}"))
        .with("status", status.as_u16())
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn a_status_says_whether_another_attempt_may_help() {
        let url = HttpUrl::parse("https://example.com/x").unwrap();
        for (status, class) in [
            (400, ErrorClass::InvalidArguments),
            (404, ErrorClass::InvalidArguments),
            (408, ErrorClass::Transient),
            (429, ErrorClass::RateLimit),
            (503, ErrorClass::Transient),
            (999, ErrorClass::Transient),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let body = b"no such\x1b[1A thing\n".to_vec();
            let answered = Answered { status, headers: HeaderMap::new(), body, truncated: false };
            let failed = failed_status("GET", &url, &answered);
            assert_eq!((failed.class, failed.metadata["status"].as_str()), (class, status.as_str()));
            assert!(
                failed
                    .message
                    .starts_with(&format!("`GET https://example.com/x` was answered with {}", status.as_u16()))
            );
            assert!(failed.message.contains("no such") && !failed.message.contains('\u{1b}'), "{}", failed.message);
        }
        assert!(is_failed(StatusCode::BAD_REQUEST) && !is_failed(StatusCode::FOUND));
    }
}
