//! tonic on the simulated network: connections to serve, and a connector for channels.
//!
//! ```text
//! Server::builder().add_service(service).serve_with_incoming_shutdown(net::listen(PORT).await?, stopped).await?;
//! let channel = Endpoint::from_static("http://store:7000").connect_with_connector_lazy(net::Connector);
//! ```
//!
//! Messages that a machine sends after its power failed are dropped: see [`crate::machine::fail_power_after`].

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{self, Stream};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;
use tower::Service;
use turmoil::net::{TcpListener, TcpStream};

use crate::machine;

/// The port when a URI names none.
const DEFAULT_PORT: u16 = 80;

/// Listens on `port` of the executing host; returns the stream of accepted connections.
///
/// # Errors
/// When the port is taken.
pub async fn listen(port: u16) -> io::Result<impl Stream<Item = io::Result<Connection>> + Send> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
    Ok(stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, peer)| Connection { stream, peer });
        Some((accepted, listener))
    }))
}

/// A connection over the simulated network.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
}

/// The peer's address, as a request extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

impl Connected for Connection {
    type ConnectInfo = PeerAddress;

    fn connect_info(&self) -> PeerAddress {
        PeerAddress(self.peer)
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if !machine::is_powered() {
            return Poll::Ready(Ok(data.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !machine::is_powered() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Connects to a port of a host.
///
/// # Errors
/// When the host cannot be reached or does not listen there.
pub async fn connect(host: &str, port: u16) -> io::Result<Connection> {
    let stream = TcpStream::connect((host, port)).await?;
    let peer = stream.peer_addr()?;
    Ok(Connection { stream, peer })
}

/// Connects a channel to the host and port that its URI names.
#[derive(Debug, Clone, Copy, Default)]
pub struct Connector;

impl Service<Uri> for Connector {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(async move {
            let host =
                uri.host().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the URI names no host"))?;
            Ok(TokioIo::new(connect(host, uri.port_u16().unwrap_or(DEFAULT_PORT)).await?))
        })
    }
}
