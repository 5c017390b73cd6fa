//! The network beyond the proxy, as an argument.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
};

use belay_network::Host;
use tokio::net::TcpStream;

/// A future of a trait's method.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The network beyond the proxy: its name server, and connections.
pub trait Upstream: Send + Sync + 'static {
    /// Returns all addresses of a host, in the order in which they are tried.
    fn resolve<'a>(&'a self, host: &'a Host) -> Pending<'a, io::Result<Vec<IpAddr>>>;

    /// Connects to an address.
    fn dial(&self, address: SocketAddr) -> Pending<'_, io::Result<TcpStream>>;
}
