//! Listeners and channels: unix sockets on one host, TCP between hosts.

use std::{
    io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use futures::{Stream, StreamExt as _, future::Either};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::{Channel, Endpoint, Uri};

pub use crate::address::{Address, InvalidAddress};
use crate::{Access, Connection, authority::NormalizedStream, users::Group};

/// The longest path that fits `sockaddr_un`, its ending NUL aside.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Why a service cannot listen.
#[derive(Debug, Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{0} is in use")]
    InUse(Address),
    /// The socket's path is longer than the operating system takes.
    #[error("the path of the socket {0} is longer than {MAX_SOCKET_PATH_BYTES} bytes")]
    PathTooLong(Address),
    /// Other machines could reach the address, and there is no TLS.
    #[error(
        "{0} can be reached from other machines, and the connection is not encrypted: every machine on the way can read tokens and plans. \
         Listen on loopback behind a proxy that ends TLS, or give --insecure-listen-beyond-loopback"
    )]
    BeyondLoopback(SocketAddr),
    /// The operating system refused.
    #[error("cannot listen on {address}")]
    Refused {
        /// Where.
        address: Address,
        /// Why.
        source: io::Error,
    },
}

/// The users that can connect to a listener, besides this process's own. [`Access`] decides what they may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reach {
    /// The group that may connect to a unix socket.
    pub group: Option<Group>,
    /// Whether a TCP address beyond loopback is allowed although connections are not encrypted.
    pub insecure_beyond_loopback: bool,
}

/// A listener on a unix socket. Only its owner and the named group may connect. Dropping it removes the socket.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    /// Binds a socket; replaces a stale one that no process listens on.
    ///
    /// # Errors
    /// [`BindError::InUse`] when another process listens there.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        Self::bind_for(path, None)
    }

    fn bind_for(path: &Path, group: Option<Group>) -> Result<Self, BindError> {
        let address = || Address::Unix(path.to_owned());
        let refused = |source| BindError::Refused { address: address(), source };
        if path.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
            return Err(BindError::PathTooLong(address()));
        }
        if path.exists() {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(BindError::InUse(address()));
            }
            match std::fs::remove_file(path) {
                // The process that listened there has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(refused)?,
            }
        }
        let listener = UnixListener::bind(path).map_err(refused)?;
        let mode = match group {
            Some(Group(group)) => {
                std::os::unix::fs::chown(path, None, Some(group)).map_err(refused)?;
                0o660
            }
            None => 0o600,
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(refused)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// The incoming connections; [`NormalizedStream`] normalizes their requests.
    pub fn incoming(self) -> impl Stream<Item = io::Result<NormalizedStream>> {
        let remove = RemoveOnDrop(self.path);
        UnixListenerStream::new(self.listener).map(move |accepted| {
            let _held = &remove;
            accepted.map(NormalizedStream::new)
        })
    }
}

struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        // Best effort: the next start replaces a stale socket.
        drop(std::fs::remove_file(&self.0));
    }
}

/// Binds a TCP address.
///
/// # Errors
/// [`BindError::InUse`] when another process listens there.
pub async fn bind_tcp(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(Address::Tcp(address)),
        _ => BindError::Refused { address: Address::Tcp(address), source },
    })
}

/// The incoming TCP connections.
pub fn tcp_incoming(listener: TcpListener) -> impl Stream<Item = io::Result<TcpStream>> {
    TcpListenerStream::new(listener).inspect(|stream| {
        if let Ok(stream) = stream {
            // A connection that is already closed fails when it is read.
            drop(stream.set_nodelay(true));
        }
    })
}

/// Binds an address of either kind, for a service that takes it from settings.
///
/// # Errors
/// [`BindError`] when it cannot listen there.
pub async fn bind(address: &Address) -> Result<Bound, BindError> {
    bind_for(address, Reach::default()).await
}

/// The same, reachable for others as well.
///
/// # Errors
/// [`BindError`]; [`BindError::BeyondLoopback`] for a TCP address that other machines can reach, unless `reach` allows it.
pub async fn bind_for(address: &Address, reach: Reach) -> Result<Bound, BindError> {
    Ok(match address {
        Address::Unix(path) => Bound(Either::Left(UnixSocket::bind_for(path, reach.group)?)),
        Address::Tcp(address) if !address.ip().to_canonical().is_loopback() && !reach.insecure_beyond_loopback => {
            return Err(BindError::BeyondLoopback(*address));
        }
        Address::Tcp(address) => Bound(Either::Right(bind_tcp(*address).await?)),
    })
}

/// A listener of either kind.
#[derive(Debug)]
pub struct Bound(Either<UnixSocket, TcpListener>);

impl Bound {
    /// The address it listens on, with the real port when the requested one was 0.
    pub fn address(&self) -> Address {
        match &self.0 {
            Either::Left(socket) => Address::Unix(socket.path.clone()),
            Either::Right(listener) => match listener.local_addr() {
                Ok(address) => Address::Tcp(address),
                Err(_) => Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
            },
        }
    }

    /// Serves on it; see [`crate::host::serve`].
    ///
    /// # Errors
    /// [`crate::ServeError`] when the transport fails.
    pub async fn serve(
        self,
        service: crate::host::HostedServices,
        access: Access,
        shutdown: crate::Shutdown,
    ) -> Result<(), crate::ServeError> {
        match self.0 {
            Either::Left(socket) => serve(socket.incoming(), service, access, shutdown).await,
            Either::Right(listener) => serve(tcp_incoming(listener), service, access, shutdown).await,
        }
    }
}

async fn serve<C: Connection>(
    incoming: impl Stream<Item = io::Result<C>>,
    service: crate::host::HostedServices,
    access: Access,
    shutdown: crate::Shutdown,
) -> Result<(), crate::ServeError> {
    crate::host::serve(incoming, service, access, shutdown).await
}

/// A channel that connects on first use, and reconnects when the connection is lost.
pub fn connect_lazy(address: &Address) -> Channel {
    let tuned = |endpoint: Endpoint| {
        endpoint
            .http2_keep_alive_interval(std::time::Duration::from_secs(20))
            .keep_alive_while_idle(true)
            .connect_timeout(std::time::Duration::from_secs(5))
            .tcp_nodelay(true)
    };
    match address {
        Address::Tcp(tcp) => {
            let uri = format!("http://{tcp}").parse::<Uri>().expect("a socket address makes a URI");
            tuned(Endpoint::from(uri)).connect_lazy()
        }
        Address::Unix(path) => {
            let path = path.clone();
            let connect = tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(hyper_util::rt::TokioIo::new) }
            });
            tuned(Endpoint::from_static("http://localhost")).connect_with_connector_lazy(connect)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        assert_eq!("unix:/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        let tcp = Ok(Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 80))));
        assert_eq!("127.0.0.1:80".parse(), tcp);
        assert_eq!("http://127.0.0.1:80/".parse(), tcp);
        for bad in ["", "unix:", "127.0.0.1", "nonsense", "http://"] {
            assert!(bad.parse::<Address>().is_err(), "{bad:?}");
        }
    }

    /// Connections are not encrypted yet, so listening beyond loopback needs explicit consent.
    #[tokio::test]
    async fn listening_beyond_loopback_requires_consent() {
        for inside in ["127.0.0.1:0", "127.8.9.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let address = Address::Tcp(inside.parse().unwrap());
            // Some machines have no IPv6; that is another refusal.
            assert!(!matches!(bind(&address).await, Err(BindError::BeyondLoopback(_))), "{inside}");
        }
        for outside in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
            let address = Address::Tcp(outside.parse().unwrap());
            let refused = bind(&address).await.unwrap_err();
            assert!(matches!(refused, BindError::BeyondLoopback(_)), "{outside}: {refused}");
            assert!(refused.to_string().contains("--insecure-listen-beyond-loopback"), "{refused}");
        }
        let meant = Reach { insecure_beyond_loopback: true, ..Reach::default() };
        bind_for(&Address::Tcp("0.0.0.0:0".parse().unwrap()), meant).await.expect("it was said in words");
    }

    #[tokio::test]
    async fn a_socket_is_for_its_owner_or_for_a_group_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let own = rustix::process::getegid().as_raw();
        let _bound =
            bind_for(&Address::Unix(path.clone()), Reach { group: Some(Group(own)), ..Reach::default() }).await;
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(
            (metadata.permissions().mode() & 0o777, std::os::unix::fs::MetadataExt::gid(&metadata)),
            (0o660, own)
        );
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_refused() {
        let path = std::env::temp_dir().join("x".repeat(120));
        assert!(matches!(UnixSocket::bind(&path), Err(BindError::PathTooLong(_))));
    }

    #[tokio::test]
    async fn a_socket_in_use_is_refused_and_a_left_over_one_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = UnixSocket::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(UnixSocket::bind(&path), Err(BindError::InUse(_))));
        drop(socket);
        assert!(path.exists(), "a listener that was killed leaves its socket behind");
        let incoming = UnixSocket::bind(&path).unwrap().incoming();
        drop(incoming);
        assert!(!path.exists());
    }
}
