//! Kills processes in the middle of requests: a layer around the methods of a server.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use tonic::service::Routes;
use tower::{Layer, Service};

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

impl<S, B> Service<Request<B>> for WithKillPoints<S>
where
    S: Service<Request<B>, Error = Infallible>,
    S::Response: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        if machine::reach(&method, Moment::Arrived) {
            return Box::pin(pending());
        }
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await;
            match machine::reach(&method, Moment::Answered) {
                true => pending().await,
                false => answer,
            }
        })
    }
}
