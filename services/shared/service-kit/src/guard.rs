//! The middleware in front of every service: authenticates the caller and checks that it may call the method. Only health needs no credential.
//!
//! Streams and long waits are checked again while they last: a caller whose credential was revoked is cut off within [`RECHECK`].

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use belay_proto::stores::{COMMITS, STORES};
use futures::future::{Either, select};
use http::{HeaderMap, Request, Response, header::AUTHORIZATION};
use http_body::Frame;
use tokio::time::{Interval, MissedTickBehavior};
use tonic::{Status, body::Body};

use crate::{
    Access,
    auth::{AuthenticationError, Credentials},
    connections::Admission,
    methods,
    middleware::{Middleware, ResponseFuture, refuse},
    peer::Peer,
    principal::Principal,
    register::TokenDigest,
};

/// How long an accepted request may still be served after its caller's credential was revoked.
pub const RECHECK: Duration = Duration::from_secs(1);

/// Lets a request pass when its caller may make it, and adds the caller to the request.
#[derive(Clone, Debug)]
pub(crate) struct Guard(pub(crate) Access);

impl Middleware for Guard {
    fn handle<F, E>(&self, mut request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        let path = request.uri().path().to_owned();
        if methods::is_open(&path) {
            remove_reports(request.headers_mut());
            return Box::pin(next(request));
        }
        let shown = match shown(&request) {
            Ok(shown) => shown,
            Err(unknown) => return refuse(unknown.into()),
        };
        let check = Check { access: self.0.clone(), shown, path };
        let principal = match check.passes() {
            Ok(principal) => principal,
            Err(status) => return refuse(status),
        };
        if let Some(admission) = request.extensions().get::<Arc<Admission>>() {
            admission.admit();
        }
        // Only services report the positions of their stores.
        if !matches!(principal, Principal::Service(_)) {
            remove_reports(request.headers_mut());
        }
        request.extensions_mut().insert(principal);
        let answer = next(request);
        if !self.0.can_change() {
            return Box::pin(answer);
        }
        Box::pin(async move {
            let mut timer = timer();
            let revoked = {
                let check = &check;
                let timer = &mut timer;
                Box::pin(async move {
                    loop {
                        timer.tick().await;
                        if let Err(status) = check.passes() {
                            return status;
                        }
                    }
                })
            };
            let answer = match select(Box::pin(answer), revoked).await {
                Either::Left((answer, _)) => answer?,
                Either::Right((status, _)) => return Ok(status.into_http()),
            };
            Ok(answer.map(|inner| Body::new(CheckedBody { inner, check, timer, ended: false })))
        })
    }
}

fn remove_reports(headers: &mut HeaderMap) {
    headers.remove(&STORES);
    headers.remove(&COMMITS);
}

/// The credentials of this request and its connection.
pub(crate) fn shown<B>(request: &Request<B>) -> Result<Credentials, AuthenticationError> {
    let token = token(request.headers())?;
    let uid = match request.extensions().get::<Peer>() {
        Some(Peer { is_foreign: true, .. }) if token.is_none() => return Err(AuthenticationError::ForeignPeer),
        Some(Peer { uid, is_foreign: false }) => *uid,
        Some(_) | None => None,
    };
    Ok(Credentials { uid, token })
}

fn token(headers: &HeaderMap) -> Result<Option<TokenDigest>, AuthenticationError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(AuthenticationError::Malformed),
        (Some(value), None) => {
            let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
            token.map(|token| Some(TokenDigest::of(token))).ok_or(AuthenticationError::Malformed)
        }
    }
}

/// The check of one request, so that it can be repeated.
struct Check {
    access: Access,
    shown: Credentials,
    path: String,
}

impl Check {
    fn passes(&self) -> Result<Principal, Status> {
        let principal = self.access.identify(self.shown)?;
        methods::check(&principal, &self.path)?;
        Ok(principal)
    }
}

fn timer() -> Interval {
    let mut timer = tokio::time::interval_at(tokio::time::Instant::now() + RECHECK, RECHECK);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

/// A response body that ends as soon as the caller may no longer read it.
struct CheckedBody {
    inner: Body,
    check: Check,
    timer: Interval,
    ended: bool,
}

impl http_body::Body for CheckedBody {
    type Data = <Body as http_body::Body>::Data;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // Before the next piece: a stream that never pauses is checked as well.
        while self.timer.poll_tick(context).is_ready() {
            if let Err(status) = self.check.passes() {
                self.ended = true;
                let mut trailers = status.into_http::<()>().into_parts().0.headers;
                trailers.remove(http::header::CONTENT_TYPE);
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
        }
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.ended || http_body::Body::is_end_stream(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_header_with_its_scheme() {
        let headers = |values: &[&str]| -> HeaderMap {
            values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap())).collect()
        };
        assert_eq!(token(&headers(&[])).unwrap(), None);
        assert_eq!(token(&headers(&["Bearer t"])).unwrap(), Some(TokenDigest::of("t")));
        for wrong in [&["t"][..], &["bearer t"], &["Basic t"], &["Bearer a", "Bearer b"], &["Bearer"]] {
            assert!(token(&headers(wrong)).is_err(), "{wrong:?}");
        }
    }
}
