//! Where a service lives: connections in, layers around, health and reflection beside it.

use std::{io, sync::Arc, time::Duration};

use futures::Stream;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::{
    service::{InterceptorLayer, Routes},
    transport::{Server, server::Connected},
};
use tower::ServiceBuilder;

use crate::{Access, Shutdown, deadline::DeadlineLayer};

/// The largest message that is decoded: above every limit of ours, so that the error is ours and names the field.
pub const LARGEST_MESSAGE: usize = 16 * 1024 * 1024;

/// How long open requests have to end once a stop is asked for.
const GRACE: Duration = Duration::from_secs(5);

/// What a listener yields: TCP, unix sockets, a simulated network.
pub trait Connection:
    AsyncRead + AsyncWrite + Connected<ConnectInfo: Clone + Send + Sync> + Unpin + Send + 'static
{
}

impl<T: AsyncRead + AsyncWrite + Connected<ConnectInfo: Clone + Send + Sync> + Unpin + Send + 'static> Connection
    for T
{
}

/// A service, ready to be served.
pub struct Hosted {
    /// Its methods.
    pub routes: Routes,
    /// Its full name, under which its health is asked for.
    pub name: &'static str,
    /// The contract, for reflection.
    pub descriptors: &'static [u8],
}

/// Why a service stopped serving.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The transport failed.
    #[error("the listener failed")]
    Transport(#[from] tonic::transport::Error),
    /// The contract could not be offered for reflection.
    #[error("the contract cannot be reflected")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves until told to stop, with health (under the service's name and as a whole) and reflection beside it.
///
/// # Errors
/// [`ServeError`] when the transport fails.
pub async fn serve<C: Connection>(
    incoming: impl Stream<Item = io::Result<C>>,
    service: Hosted,
    access: Access,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let Hosted { routes, name, descriptors } = service;
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status(name, tonic_health::ServingStatus::Serving).await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(descriptors)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let access = Arc::new(access);
    let layers = ServiceBuilder::new()
        .layer(InterceptorLayer::new(move |request| access.check(request)))
        .layer(DeadlineLayer)
        .into_inner();
    let stop = {
        let shutdown = shutdown.clone();
        async move {
            shutdown.requested().await;
            reporter.set_service_status(name, tonic_health::ServingStatus::NotServing).await;
        }
    };
    let serving = Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .tcp_nodelay(true)
        .layer(layers)
        .add_routes(routes.add_service(health).add_service(reflection))
        .serve_with_incoming_shutdown(incoming, stop);
    let patience = async {
        shutdown.requested().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        served = serving => served.map_err(ServeError::from),
        () = patience => Ok(()),
    }
}
