//! DEADLINE_EXCEEDED when the caller's deadline passes.
//!
//! tonic's own timer returns CANCELLED, which clients in other languages do not treat as a deadline. This timer runs inside of it, fires
//! first, and returns the right code. It covers the response up to its headers; a stream checks its deadline itself.

use std::time::Duration;

use futures::future::{Either, select};
use http::{HeaderMap, Request, Response};
use tonic::{Code, Status, body::Body};

use crate::middleware::{Middleware, ResponseFuture};

/// Responds with DEADLINE_EXCEEDED when the caller's deadline passes before the service responds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline;

impl Middleware for Deadline {
    fn handle<F, E>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        let limit = limit(request.headers());
        let answer = next(request);
        let Some(limit) = limit else { return Box::pin(answer) };
        Box::pin(async move {
            // A little earlier than tonic's own timer, which would otherwise fire at the same moment.
            let timer = tokio::time::sleep(limit.saturating_sub(Duration::from_micros(500)));
            match select(Box::pin(answer), Box::pin(timer)).await {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => Ok(Status::new(
                    Code::DeadlineExceeded,
                    "the caller's deadline passed before the response was ready",
                )
                .into_http()),
            }
        })
    }
}

/// The `grpc-timeout` header: digits and a unit.
fn limit(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let amount: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(amount.saturating_mul(3600)),
        "M" => Duration::from_secs(amount.saturating_mul(60)),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tower::{Layer as _, Service as _};

    use super::*;
    use crate::middleware::MiddlewareLayer;

    #[test]
    fn the_header_is_read_as_the_protocol_says() {
        let parse =
            |text: &str| limit(&HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), text.parse().unwrap())]));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(parse("99999999S"), Some(Duration::from_secs(99_999_999)));
        for bad in ["", "m", "-1S", "123456789S", "1x", "1.5S"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_a_passed_deadline() {
        let mut service = MiddlewareLayer(Deadline).layer(tower::service_fn(|_: Request<Body>| async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        }));
        let request = Request::builder().header("grpc-timeout", "1S").body(Body::empty()).unwrap();
        let answer = service.call(request).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4");
        let request = Request::builder().header("grpc-timeout", "6S").body(Body::empty()).unwrap();
        assert!(!service.call(request).await.unwrap().headers().contains_key("grpc-status"));
    }
}
