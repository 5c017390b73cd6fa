//! Carries how far the services' stores have come from one service to the other: see [`belay_proto::stores`].

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use belay_proto::stores::{Behind, HEADER, Stores};
use belay_reasons as reasons;
use http::{HeaderMap, HeaderValue, Request, Response};
use tonic::{Code, Status, body::Body, transport::Channel};
use tower::{Layer, Service};

use crate::status;

/// The refusal of whoever has a store that is behind, or talks to one.
fn refusal(behind: &Behind) -> Status {
    status::error(Code::Unavailable, reasons::STORE_BEHIND, format!("Nothing is done: {behind}.")).into()
}

fn told(headers: &HeaderMap) -> &str {
    headers.get(HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn tell(headers: &mut HeaderMap, stores: &Stores) {
    if let Ok(mut value) = HeaderValue::from_str(&stores.header()) {
        // Nearly every message has another one: in the connection's header table it would only push out what repeats.
        value.set_sensitive(true);
        headers.insert(HEADER, value);
    }
}

/// On the serving side: refuses requests when a store is behind, and answers with what is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoresLayer(pub(crate) Option<Arc<Stores>>);

impl<S> Layer<S> for StoresLayer {
    type Service = Telling<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Telling { inner, stores: self.0.clone() }
    }
}

/// A service that tells.
#[derive(Clone, Debug)]
pub(crate) struct Telling<S> {
    inner: S,
    stores: Option<Arc<Stores>>,
}

impl<S, B, Answer> Service<Request<B>> for Telling<S>
where
    S: Service<Request<B>, Response = Response<Answer>>,
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some(stores) = self.stores.clone() else { return Box::pin(self.inner.call(request)) };
        if let Err(behind) = stores.hear(told(request.headers())) {
            tracing::error!(%behind, "A store is behind");
            let mut response = refusal(&behind).into_http();
            tell(response.headers_mut(), &stores);
            return Box::pin(async move { Ok(response) });
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            tell(response.headers_mut(), &stores);
            Ok(response)
        })
    }
}

/// On the asking side: a channel to another service, which is told what is known and answers with what it knows.
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
}

/// One that tells nothing.
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
        let Some(stores) = self.stores.clone() else { return Box::pin(self.channel.call(request)) };
        tell(request.headers_mut(), &stores);
        let answer = self.channel.call(request);
        Box::pin(async move {
            let response = answer.await?;
            match stores.hear(told(response.headers())) {
                Ok(()) => Ok(response),
                Err(behind) => {
                    tracing::error!(%behind, "A store is behind");
                    Ok(refusal(&behind).into_http())
                }
            }
        })
    }
}
