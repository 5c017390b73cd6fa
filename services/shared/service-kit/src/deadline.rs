//! DEADLINE_EXCEEDED when the caller's deadline passes.
//!
//! tonic's own timer answers CANCELLED, which clients in other languages do not take for a deadline. The same timer one level further in
//! answers first, and with the right word. It times the head of the response; streams look after themselves.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{Either, select};
use http::{HeaderMap, Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

/// Adds the timer to a service.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Deadline { inner }
    }
}

/// A service with the timer.
#[derive(Clone, Debug)]
pub struct Deadline<S> {
    inner: S,
}

impl<S, Body, Answer> Service<Request<Body>> for Deadline<S>
where
    S: Service<Request<Body>, Response = Response<Answer>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    Answer: Default + Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limit = limit(request.headers());
        let answer = self.inner.call(request);
        let Some(limit) = limit else { return Box::pin(answer) };
        Box::pin(async move {
            // A little before tonic's own timer, which would otherwise tie.
            let timer = tokio::time::sleep(limit.saturating_sub(Duration::from_micros(500)));
            match select(Box::pin(answer), Box::pin(timer)).await {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => {
                    Ok(Status::new(Code::DeadlineExceeded, "the caller's deadline passed before the answer was there")
                        .into_http())
                }
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
    use super::*;

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
        let mut service = DeadlineLayer.layer(tower::service_fn(|_: Request<()>| async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok::<_, std::convert::Infallible>(Response::new(String::new()))
        }));
        let request = Request::builder().header("grpc-timeout", "1S").body(()).unwrap();
        let answer = service.call(request).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4");
        let request = Request::builder().header("grpc-timeout", "6S").body(()).unwrap();
        assert!(!service.call(request).await.unwrap().headers().contains_key("grpc-status"));
    }
}
