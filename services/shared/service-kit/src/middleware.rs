//! A tower layer for everything around a request: a [`Middleware`] responds itself, or passes the request on and may change the response.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use tonic::{Status, body::Body};
use tower::{Layer, Service};

/// The response of a middleware, or of what it wraps.
pub(crate) type ResponseFuture<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

/// Code that runs around each request.
pub(crate) trait Middleware {
    /// Handles a request. `next` passes it on to the wrapped service; a middleware that responds itself drops `next`.
    fn handle<F, E>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static;
}

/// Responds with a status.
pub(crate) fn refuse<E: Send + 'static>(status: Status) -> ResponseFuture<E> {
    respond(status.into_http())
}

/// Responds at once.
pub(crate) fn respond<E: Send + 'static>(response: Response<Body>) -> ResponseFuture<E> {
    Box::pin(std::future::ready(Ok(response)))
}

/// Puts a middleware in front of a service.
#[derive(Clone, Debug)]
pub(crate) struct MiddlewareLayer<M>(pub(crate) M);

impl<S, M: Clone> Layer<S> for MiddlewareLayer<M> {
    type Service = MiddlewareService<S, M>;

    fn layer(&self, inner: S) -> Self::Service {
        MiddlewareService { inner, middleware: self.0.clone() }
    }
}

/// A service behind a middleware.
#[derive(Clone, Debug)]
pub(crate) struct MiddlewareService<S, M> {
    inner: S,
    middleware: M,
}

impl<S, M> Service<Request<Body>> for MiddlewareService<S, M>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    M: Middleware,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = &mut self.inner;
        self.middleware.handle(request, |request| inner.call(request))
    }
}
