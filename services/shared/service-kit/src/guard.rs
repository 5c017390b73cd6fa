//! The layer before every service: who is calling, and may they call this? Only health is open to everybody.
//!
//! What takes long, streams and waits, is asked again while it goes on: whoever is revoked hears no more after [`RECHECK`].

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use belay_proto::stores::HEADER;
use futures::future::{Either, select};
use http::{HeaderMap, Request, Response, header::AUTHORIZATION};
use http_body::Frame;
use tokio::time::{Interval, MissedTickBehavior};
use tonic::{Status, body::Body, transport::server::UdsConnectInfo};
use tower::{Layer, Service};

use crate::{
    Access,
    auth::{Credentials, Unknown},
    methods,
    principal::Principal,
    register::TokenDigest,
};

/// How long somebody who was revoked may still be served by a request that was let in before.
pub const RECHECK: Duration = Duration::from_secs(1);

/// Puts the guard before a service.
#[derive(Clone, Debug)]
pub(crate) struct GuardLayer(pub(crate) Access);

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { access: self.0.clone(), inner }
    }
}

/// A service with the guard before it.
#[derive(Clone, Debug)]
pub(crate) struct Guard<S> {
    access: Access,
    inner: S,
}

impl<S, B> Service<Request<B>> for Guard<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let path = request.uri().path().to_owned();
        if methods::is_open(&path) {
            request.headers_mut().remove(HEADER);
            return Box::pin(self.inner.call(request));
        }
        let shown = match shown(&request) {
            Ok(shown) => shown,
            Err(unknown) => return refused(unknown.into()),
        };
        let check = Check { access: self.access.clone(), shown, path };
        let principal = match check.passes() {
            Ok(principal) => principal,
            Err(status) => return refused(status),
        };
        // How far the services' stores have come is for services alone to say.
        if !matches!(principal, Principal::Service(_)) {
            request.headers_mut().remove(HEADER);
        }
        request.extensions_mut().insert(principal);
        let answer = self.inner.call(request);
        if !self.access.can_change() {
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

fn refused<E: Send + 'static>(status: Status) -> Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>> {
    Box::pin(std::future::ready(Ok(status.into_http())))
}

/// What the caller shows with this request, and by this connection.
fn shown<B>(request: &Request<B>) -> Result<Credentials, Unknown> {
    let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    Ok(Credentials { uid: peer.map(|peer| peer.uid()), token: token(request.headers())? })
}

fn token(headers: &HeaderMap) -> Result<Option<TokenDigest>, Unknown> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Unknown::Malformed),
        (Some(value), None) => {
            let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
            token.map(|token| Some(TokenDigest::of(token))).ok_or(Unknown::Malformed)
        }
    }
}

/// What was asked, so that it can be asked again.
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

/// An answer that ends as soon as the caller may no longer have it.
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
