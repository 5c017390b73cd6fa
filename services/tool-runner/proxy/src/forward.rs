//! Passes on one request in clear text: what was judged is written anew, and nothing of the client's bytes reaches the host as it was sent.

use std::{
    io,
    os::fd::AsFd as _,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use belay_network::Host;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::{Either, Full};
use hyper::{
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    client::conn::http1 as client,
    server::conn::http1 as server,
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    task::JoinHandle,
};

use crate::{
    inbound::Inbound,
    splice::{Direction, Meter, splice},
};

/// The most bytes that wait in one direction of a connection.
const BUFFER: usize = 64 << 10;
/// The most headers of a response.
const MAX_RESPONSE_HEADERS: usize = 200;
/// The headers between a client and its proxy, which are not passed on (RFC 9110, section 7.6.1), and those that are written anew.
const NOT_PASSED_ON: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];
const WEB_SOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// A request that was judged.
#[derive(Clone)]
pub(crate) struct JudgedRequest {
    pub(crate) method: String,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// The path with its query.
    pub(crate) path: String,
    pub(crate) is_web_socket: bool,
}

type Answer = Response<Either<DataOnly, Full<Bytes>>>;
/// Both sides of an upgraded connection.
type Upgrade = Arc<Mutex<Option<(OnUpgrade, OnUpgrade)>>>;

/// Passes on the request at the beginning of `inbound`, and the response. After an upgrade to a WebSocket, passes bytes until both sides have closed. Returns
/// the client's connection if it has to linger: a client that sends requests one behind the other reads the end of the answer first.
pub(crate) async fn forward(
    inbound: Inbound,
    host: TcpStream,
    request: JudgedRequest,
    meter: &Meter,
) -> Option<Inbound> {
    let passing = async {
        // Another descriptor of the connection, which stays when the first one is closed.
        let lingering = inbound.stream.as_fd().try_clone_to_owned().map(std::net::TcpStream::from);
        let upgraded = exchange(inbound, host, request, meter).await;
        match (upgraded, lingering.and_then(TcpStream::from_std)) {
            (Some((client, host, rest)), lingering) => {
                drop(lingering);
                // How it ends is recorded by the counters.
                let _ = splice(&client, &host, rest.0, rest.1, meter).await;
                None
            }
            (None, lingering) => lingering.ok().map(Inbound::new),
        }
    };
    tokio::select! {
        lingering = passing => lingering,
        () = meter.idle() => None,
    }
}

/// A request and its response. Returns both connections with their unread bytes after an upgrade.
async fn exchange(
    inbound: Inbound,
    host: TcpStream,
    request: JudgedRequest,
    meter: &Meter,
) -> Option<(TcpStream, TcpStream, (Vec<u8>, Vec<u8>))> {
    let io = TokioIo::new(MeteredStream { stream: host, meter: meter.clone() });
    let mut builder = client::Builder::new();
    builder.max_buf_size(BUFFER).max_headers(MAX_RESPONSE_HEADERS);
    let (sender, connection) = builder.handshake(io).await.ok()?;
    let driver = AbortOnDrop(tokio::spawn(connection.with_upgrades()));
    let upgrade = Upgrade::default();
    let sender = Arc::new(Mutex::new(Some(sender)));
    let service = {
        let upgrade = Arc::clone(&upgrade);
        service_fn(move |incoming: Request<Incoming>| {
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (request, upgrade) = (request.clone(), Arc::clone(&upgrade));
            async move {
                let Some(sender) = sender else {
                    return Ok(failure(StatusCode::BAD_REQUEST, "each connection takes one request"));
                };
                Ok::<_, hyper::Error>(pass_on(incoming, request, sender, upgrade).await)
            }
        })
    };
    let replayed = TokioIo::new(ReplayedStream { bytes: inbound.bytes, at: 0, stream: inbound.stream });
    let mut builder = server::Builder::new();
    // One request for each connection: what follows it is never read as another one.
    builder.keep_alive(false).half_close(true).auto_date_header(false).header_read_timeout(None);
    builder.max_headers(meter.network.budget.headers).max_buf_size(meter.network.budget.header_bytes + BUFFER);
    let _ = builder.serve_connection(replayed, service).with_upgrades().await;
    let (client, host) = upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let (client, host) = tokio::try_join!(client, host).ok()?;
    drop(driver);
    let client = client.downcast::<TokioIo<ReplayedStream>>().ok()?;
    let host = host.downcast::<TokioIo<MeteredStream>>().ok()?;
    let ReplayedStream { bytes, at, stream } = client.io.into_inner();
    let to_host = [&client.read_buf, bytes.get(at..).unwrap_or_default()].concat();
    Some((stream, host.io.into_inner().stream, (to_host, host.read_buf.to_vec())))
}

/// Sends the request that was judged, with the headers and the body of the incoming one.
async fn pass_on(
    mut incoming: Request<Incoming>,
    request: JudgedRequest,
    mut sender: client::SendRequest<DataOnly>,
    upgrade: Upgrade,
) -> Answer {
    // Both read the same bytes; a difference would be a fault of one of them.
    if incoming.method().as_str() != request.method {
        return failure(StatusCode::BAD_REQUEST, "the request has more than one reading");
    }
    let of_client = request.is_web_socket.then(|| hyper::upgrade::on(&mut incoming));
    let (parts, body) = incoming.into_parts();
    let JudgedRequest { host, port, path, is_web_socket, .. } = request;
    let mut headers = without_hops(&parts.headers);
    headers.remove(header::EXPECT);
    let name = if port == 80 { host.to_string() } else { format!("{host}:{port}") };
    let Ok(name) = HeaderValue::from_str(&name) else {
        return failure(StatusCode::BAD_REQUEST, "the host cannot be sent");
    };
    headers.insert(header::HOST, name);
    if is_web_socket {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, WEB_SOCKET);
    }
    let Ok(mut outgoing) =
        Request::builder().method(parts.method).uri(path).version(Version::HTTP_11).body(DataOnly(body))
    else {
        return failure(StatusCode::BAD_REQUEST, "the path cannot be sent");
    };
    *outgoing.headers_mut() = headers;
    let mut response = match sender.send_request(outgoing).await {
        Ok(response) => response,
        Err(error) => {
            return failure(StatusCode::BAD_GATEWAY, &format!("{host}:{port} did not answer the request: {error}"));
        }
    };
    let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let is_web_socket = response
        .headers()
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let mut headers = without_hops(response.headers());
    match (is_upgraded, of_client) {
        (true, Some(of_client)) if is_web_socket => {
            let both = (of_client, hyper::upgrade::on(&mut response));
            *upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(both);
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, WEB_SOCKET);
        }
        (true, _) => {
            return failure(
                StatusCode::BAD_GATEWAY,
                &format!("{host}:{port} changed to a protocol that was not asked for"),
            );
        }
        (false, _) => {}
    }
    let (parts, body) = response.into_parts();
    let mut answer = Response::new(Either::Left(DataOnly(body)));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = headers;
    answer
}

/// The headers without those between two neighbours, and without those that `Connection` names.
fn without_hops(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        named.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let passes = |name: &HeaderName| !NOT_PASSED_ON.contains(name) && !named.iter().any(|known| known == name.as_str());
    headers.iter().filter(|(name, _)| passes(name)).map(|(name, value)| (name.clone(), value.clone())).fold(
        HeaderMap::new(),
        |mut kept, (name, value)| {
            kept.append(name, value);
            kept
        },
    )
}

fn failure(status: StatusCode, message: &str) -> Answer {
    let mut answer = Response::new(Either::Right(Full::new(Bytes::from(format!("{message}\n")))));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// A body without its trailers.
pub(crate) struct DataOnly(Incoming);

impl Body for DataOnly {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match ready!(Pin::new(&mut self.0).poll_frame(cx)) {
            Some(Ok(frame)) if frame.is_trailers() => Poll::Ready(None),
            other => Poll::Ready(other),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A task that ends with its owner.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection whose first bytes were read already.
struct ReplayedStream {
    bytes: Vec<u8>,
    at: usize,
    stream: TcpStream,
}

impl AsyncRead for ReplayedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let rest = this.bytes.get(this.at..).unwrap_or_default();
        if rest.is_empty() {
            this.bytes = Vec::new();
            this.at = 0;
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let (now, _) = rest.split_at(rest.len().min(buffer.remaining()));
        buffer.put_slice(now);
        this.at += now.len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReplayedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The connection to the host, whose bytes are counted.
struct MeteredStream {
    stream: TcpStream,
    meter: Meter,
}

impl AsyncRead for MeteredStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        Poll::Ready(self.meter.count(Direction::Received, buffer.filled().len() - before))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        Poll::Ready(self.meter.count(Direction::Sent, written).map(|()| written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
