//! Kills processes in the middle of requests: a layer around the methods of a server. The operations of a session are requests as well.

mod session;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::service::Routes;
use tower::{Layer, Service};

use self::session::WatchedBody;
use crate::machine::{self, Moment};

/// Adds the [`crate::machine::KillPoint`]s of this simulation to the methods.
pub fn around(routes: Routes) -> Routes {
    routes.into_axum_router().layer(KillPoints).into()
}

#[derive(Debug, Clone, Copy)]
struct KillPoints;

impl<S> Layer<S> for KillPoints {
    type Service = WithKillPoints<S>;

    fn layer(&self, inner: S) -> Self::Service {
        WithKillPoints(inner)
    }
}

#[derive(Debug, Clone)]
struct WithKillPoints<S>(S);

impl<S, B, R> Service<Request<B>> for WithKillPoints<S>
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<tonic::codegen::StdError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<tonic::codegen::StdError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        if machine::reach(&method, Moment::Arrived) {
            return Box::pin(pending());
        }
        if method == "Session" {
            let operations = session::Operations::default();
            let watched = operations.clone();
            let answer = self.0.call(request.map(|body| Body::new(WatchedBody::requests(Body::new(body), watched))));
            return Box::pin(async move {
                let answer = answer.await?;
                Ok(answer.map(|body| Body::new(WatchedBody::responses(Body::new(body), operations))))
            });
        }
        let answer = self.0.call(request.map(Body::new));
        Box::pin(async move {
            let answer = answer.await;
            match machine::reach(&method, Moment::Answered) {
                true => pending().await,
                false => answer.map(|answer| answer.map(Body::new)),
            }
        })
    }
}
