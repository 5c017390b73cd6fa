//! Carries the positions of the services' stores in requests and responses: see [`belay_proto::stores`].

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use belay_proto::{
    contract,
    stores::{Behind, COMMITS, Report, STORES, Stores},
};
use belay_reasons as reasons;
use http::{HeaderMap, Request, Response};
use tonic::{Code, Status, body::Body, transport::Channel};
use tower::Service;

use crate::{
    middleware::{Middleware, ResponseFuture, respond},
    status,
};

/// The error when the store of this service or of its peer is behind.
pub fn refusal(behind: &Behind) -> Status {
    status::error(Code::Unavailable, reasons::STORE_BEHIND, format!("The request was rejected: {behind}.")).into()
}

fn observe(headers: &HeaderMap, stores: &Stores) -> Result<(), Behind> {
    let value = |key| headers.get(key).and_then(|value| value.to_str().ok()).unwrap_or_default();
    stores.observe(value(&STORES), value(&COMMITS))
}

fn report(headers: &mut HeaderMap, stores: &Stores) {
    let Report { stores, commits } = stores.report();
    headers.insert(&STORES, stores);
    headers.insert(&COMMITS, commits);
}

/// On the server: rejects requests while a store is behind, and reports the known positions with every response.
#[derive(Clone, Debug)]
pub(crate) struct StoreReports(pub(crate) Option<Arc<Stores>>);

impl Middleware for StoreReports {
    fn handle<F, E>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        let Some(stores) = self.0.clone() else { return Box::pin(next(request)) };
        if let Err(behind) = observe(request.headers(), &stores) {
            tracing::error!(%behind, "A store is behind");
            let mut response = refusal(&behind).into_http();
            report(response.headers_mut(), &stores);
            return respond(response);
        }
        let answer = next(request);
        Box::pin(async move {
            let mut response = answer.await?;
            report(response.headers_mut(), &stores);
            Ok(response)
        })
    }
}

/// On the client: a channel to another service that announces the contract's revision, sends the known positions, and reads those that the other
/// side reports.
#[derive(Clone, Debug)]
pub struct ServiceChannel {
    channel: Channel,
    stores: Option<Arc<Stores>>,
}

impl ServiceChannel {
    /// A channel of the service that has these stores.
    pub fn new(channel: Channel, stores: Arc<Stores>) -> Self {
        Self { channel, stores: Some(stores) }
    }

    /// The stores whose positions it reports.
    pub fn stores(&self) -> Option<&Arc<Stores>> {
        self.stores.as_ref()
    }
}

/// A channel that reports no positions.
impl From<Channel> for ServiceChannel {
    fn from(channel: Channel) -> Self {
        Self { channel, stores: None }
    }
}

impl Service<Request<Body>> for ServiceChannel {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, tonic::transport::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        contract::announce(request.headers_mut());
        let Some(stores) = self.stores.clone() else { return Box::pin(self.channel.call(request)) };
        report(request.headers_mut(), &stores);
        let answer = self.channel.call(request);
        Box::pin(async move {
            let response = answer.await?;
            match observe(response.headers(), &stores) {
                Ok(()) => Ok(response),
                Err(behind) => {
                    tracing::error!(%behind, "A store is behind");
                    Ok(refusal(&behind).into_http())
                }
            }
        })
    }
}
