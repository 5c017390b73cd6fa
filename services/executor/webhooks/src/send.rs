//! A single attempt to send a message.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

use crate::Secret;

/// A connection to a receiver.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

/// A way to connect to a host and a port.
pub type Connect = Arc<dyn Fn(&str, u16) -> Connecting + Send + Sync>;

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send>>;

/// A receiver of messages.
pub struct Receiver {
    /// Host and port to connect to; an IPv6 address has no brackets.
    address: (String, u16),
    /// The header `host`.
    host: HeaderValue,
    /// Path and query: they may be a secret.
    target: Uri,
    /// `None` for plain HTTP.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    secret: Secret,
    timeout: Duration,
    connect: Connect,
}

/// A receiver cannot be used.
#[derive(Debug, Error)]
pub enum InvalidReceiver {
    /// The URL is not valid.
    #[error("is not an http or https URL with a host")]
    Url,
    /// The machine has no certificate authorities.
    #[error(
        "is an https URL, and no certificate authority was found on this machine: install them (ca-certificates), or name a file in SSL_CERT_FILE{0}"
    )]
    NoAuthorities(String),
    /// TLS cannot be set up.
    #[error("is an https URL, and TLS cannot be set up: {0}")]
    Tls(String),
}

/// A message was not accepted.
#[derive(Debug, Error)]
pub enum SendError {
    /// The receiver cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// TLS failed.
    #[error("cannot connect with TLS: {0}")]
    Tls(#[source] io::Error),
    /// The connection broke, or what came is not HTTP.
    #[error("the request failed: {0}")]
    Http(#[from] hyper::Error),
    /// The answer is not a success. Redirects are not followed.
    #[error("the receiver answered {0}")]
    Status(StatusCode),
    /// There was no answer in time.
    #[error("the receiver did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
}

impl Receiver {
    /// A receiver at a URL, which has `timeout` to answer.
    ///
    /// # Errors
    /// [`InvalidReceiver`] when the URL cannot be used. Nothing is connected.
    pub fn new(url: &str, secret: Secret, timeout: Duration) -> Result<Self, InvalidReceiver> {
        let url: Uri = url.parse().map_err(|_| InvalidReceiver::Url)?;
        let host = url.host().filter(|host| !host.is_empty()).ok_or(InvalidReceiver::Url)?;
        let authority = url.authority().ok_or(InvalidReceiver::Url)?;
        let has_port = authority.as_str().rsplit('@').next().is_some_and(|address| address.len() > host.len());
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (tls, port) = match url.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                let name = ServerName::try_from(host.clone()).map_err(|_| InvalidReceiver::Url)?;
                (Some((connector()?, name)), 443)
            }
            _ => return Err(InvalidReceiver::Url),
        };
        let port = match authority.port_u16() {
            Some(port) => port,
            None if has_port => return Err(InvalidReceiver::Url),
            None => port,
        };
        let target = url.path_and_query().map_or("/", |target| target.as_str());
        Ok(Self {
            host: HeaderValue::from_str(authority.as_str()).map_err(|_| InvalidReceiver::Url)?,
            address: (host, port),
            target: target.parse().map_err(|_| InvalidReceiver::Url)?,
            tls,
            secret,
            timeout,
            connect: Arc::new(over_tcp),
        })
    }

    /// The same, on connections that are made by `connect`.
    #[must_use]
    pub fn on(self, connect: Connect) -> Self {
        Self { connect, ..self }
    }

    /// The address, for logs: without the path, which may be a secret.
    pub fn address(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.host.to_str().unwrap_or_default())
    }

    /// Sends a message once. `id` is the same however often it is sent; `timestamp` is now, in seconds since the Unix epoch.
    ///
    /// # Errors
    /// [`SendError`] unless the receiver accepts it with a status from 200 to 299.
    pub async fn send(&self, id: &str, timestamp: i64, body: &str) -> Result<(), SendError> {
        let sending = tokio::time::timeout(self.timeout, self.connect_and_send(id, timestamp, body));
        sending.await.unwrap_or(Err(SendError::Timeout(self.timeout)))
    }

    async fn connect_and_send(&self, id: &str, timestamp: i64, body: &str) -> Result<(), SendError> {
        let (host, port) = &self.address;
        let stream = (self.connect)(host, *port).await.map_err(SendError::Connect)?;
        let request = self.request(id, timestamp, body);
        match &self.tls {
            None => exchange(stream, request).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(SendError::Tls)?;
                exchange(stream, request).await
            }
        }
    }

    fn request(&self, id: &str, timestamp: i64, body: &str) -> Request<Full<Bytes>> {
        let signature = self.secret.sign(id, timestamp, body);
        let mut request = Request::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.target.clone();
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("belay/", env!("CARGO_PKG_VERSION"))));
        headers.insert("webhook-timestamp", timestamp.into());
        for (name, value) in [("webhook-id", id), ("webhook-signature", &signature)] {
            // Both are ASCII.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        request
    }
}

/// Connects over the machine's network.
fn over_tcp(host: &str, port: u16) -> Connecting {
    let host = host.to_owned();
    Box::pin(async move {
        let here = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
        // Whatever a name server or the hosts file make of the name.
        let stream = match host.eq_ignore_ascii_case("localhost") {
            true => TcpStream::connect(&here[..]).await?,
            false => TcpStream::connect((host.as_str(), port)).await?,
        };
        Ok(Box::new(stream) as Box<dyn Connection>)
    })
}

/// Sends a request on a connection, and reads the head of the answer.
async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, request: Request<Full<Bytes>>) -> Result<(), SendError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let (mut answer, mut connection) = (std::pin::pin!(sender.send_request(request)), std::pin::pin!(connection));
    let answer = tokio::select! {
        biased;
        answer = answer.as_mut() => answer?,
        // A receiver that closes the connection with its answer has answered.
        ended = connection.as_mut() => { ended?; answer.await? }
    };
    if answer.status().is_success() { Ok(()) } else { Err(SendError::Status(answer.status())) }
}

/// TLS with the certificate authorities of the machine, or those of `SSL_CERT_FILE`.
fn connector() -> Result<TlsConnector, InvalidReceiver> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Machines have certificates that are not valid among the others.
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let why = loaded.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(InvalidReceiver::NoAuthorities(why));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| InvalidReceiver::Tls(error.to_string()))?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}
