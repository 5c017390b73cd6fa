//! Passes on one request: what was judged is written anew, and nothing of the client's bytes reaches the host as it was sent.
//!
//! A request that carries a credential gets its value here, and the answer loses every value of the call.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use belay_network::{Credential, Host};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::{Either, Full};
use hyper::{
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    client::conn::http1 as client,
    server::conn::http1 as server,
    service::service_fn,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_rustls::client::TlsStream;

use crate::{
    filter::FilteredBody,
    foreign::{Foreign, foreign_placeholder},
    frames::FrameScrubber,
    inbound::{ClientStream, Inbound, OWN_ANSWER},
    replayed::{MeteredStream, ReplayedStream},
    report::Route,
    scrub::Scrubber,
    splice::{Meter, splice},
    usage::{Tokens, UsageScanner},
};

/// How many bytes are taken for a token where an answer does not say it, of all that passed, heads and TLS included: text has about as many, and frames of a
/// stream have far more, so that the estimate is high.
const BYTES_PER_TOKEN: u64 = 4;
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

/// The headers of requests to hosts with a credential that are not passed on: what they ask for would hide a value in the answer. A coding and a WebSocket extension compress
/// it, and a range has a part of it.
const HIDES_VALUES: [HeaderName; 4] =
    [header::ACCEPT_ENCODING, header::SEC_WEBSOCKET_EXTENSIONS, header::RANGE, header::IF_RANGE];

/// Headers by which some servers take another method or path than those that were judged.
const OVERRIDES: [HeaderName; 5] = [
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
];

/// A request that was judged.
#[derive(Clone)]
pub(crate) struct JudgedRequest {
    pub(crate) method: String,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// The path with its query.
    pub(crate) path: String,
    pub(crate) is_web_socket: bool,
    /// Whether it reaches the host inside of TLS.
    pub(crate) is_tls: bool,
}

/// A request on its way: what it carries, and where it is recorded.
#[derive(Clone)]
pub(crate) struct PassedRequest {
    pub(crate) request: JudgedRequest,
    pub(crate) route: Route,
    /// The credential of the rule that allowed it.
    pub(crate) credential: Option<Box<Credential>>,
    /// Whether the rule, or its credential, is for some methods or paths only.
    pub(crate) limits_requests: bool,
    pub(crate) meter: Meter,
}

/// The connection to a host.
pub(crate) enum HostStream {
    /// In clear text.
    Plain(TcpStream),
    /// Inside of TLS.
    Tls(Box<TlsStream<MeteredStream>>),
}

type Sent = Either<DataOnly, FilteredBody<DataOnly, Foreign>>;
type Received = Either<AnswerBody, FilteredBody<AnswerBody, Scrubber>>;
type Answer = Response<Either<Received, Full<Bytes>>>;
/// Both sides of an upgraded connection.
type Upgrade = Arc<Mutex<Option<(OnUpgrade, OnUpgrade)>>>;

/// Passes on the request at the beginning of `inbound`, and the response. After an upgrade to a WebSocket, passes bytes until both sides have closed. Returns
/// `lingering`, another descriptor of the client's connection, if that has to linger: a client that sends requests one behind the other reads the end of the
/// answer first.
pub(crate) async fn forward<C: ClientStream, L: ClientStream>(
    inbound: Inbound<C>,
    lingering: Option<L>,
    host: HostStream,
    passed: PassedRequest,
) -> Option<Inbound<L>> {
    let meter = passed.meter.clone();
    let passing = async {
        let upgraded = match host {
            HostStream::Plain(stream) => {
                let metered = MeteredStream { stream, meter: passed.meter.clone() };
                exchange(inbound, metered, &passed).await
            }
            HostStream::Tls(stream) => exchange(inbound, *stream, &passed).await,
        };
        match upgraded {
            Some((client, host, driver)) => {
                drop(lingering);
                pass_upgraded(client, host, &passed).await;
                drop(driver);
                None
            }
            None => lingering.map(Inbound::new),
        }
    };
    tokio::select! {
        lingering = passing => lingering,
        () = meter.idle() => None,
    }
}

/// A request and its response. Returns both sides after an upgrade, with the task that drives the connection to the host.
async fn exchange<C, H>(
    inbound: Inbound<C>,
    host: H,
    passed: &PassedRequest,
) -> Option<(Upgraded, Upgraded, AbortOnDrop<Result<(), hyper::Error>>)>
where
    C: ClientStream,
    H: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = client::Builder::new();
    builder.max_buf_size(BUFFER).max_headers(MAX_RESPONSE_HEADERS);
    let (sender, connection) = builder.handshake(TokioIo::new(host)).await.ok()?;
    let driver = AbortOnDrop(tokio::spawn(connection.with_upgrades()));
    let upgrade = Upgrade::default();
    let sender = Arc::new(Mutex::new(Some(sender)));
    let service = {
        let upgrade = Arc::clone(&upgrade);
        service_fn(move |incoming: Request<Incoming>| {
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (passed, upgrade) = (passed.clone(), Arc::clone(&upgrade));
            async move {
                let Some(sender) = sender else {
                    return Ok(failure(StatusCode::BAD_REQUEST, "each connection takes one request"));
                };
                Ok::<_, hyper::Error>(pass_on(incoming, passed, sender, upgrade).await)
            }
        })
    };
    let replayed = TokioIo::new(ReplayedStream::new(inbound.bytes, inbound.stream));
    let mut builder = server::Builder::new();
    let budget = &passed.meter.network.budget;
    // One request for each connection: what follows it is never read as another one.
    builder.keep_alive(false).half_close(true).auto_date_header(false).header_read_timeout(None);
    builder.max_headers(budget.headers).max_buf_size(budget.header_bytes + BUFFER);
    let _ = builder.serve_connection(replayed, service).with_upgrades().await;
    let (client, host) = upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let (client, host) = tokio::try_join!(client, host).ok()?;
    Some((client, host, driver))
}

/// Passes bytes between the sides of an upgraded connection until both have closed. How it ends is recorded by the counters.
async fn pass_upgraded(client: Upgraded, host: Upgraded, passed: &PassedRequest) {
    let values = passed.meter.network.credentials.values();
    let (client, host) = match (client.downcast::<TokioIo<ReplayedStream<TcpStream>>>(), values) {
        (Ok(client), None) => match host.downcast::<TokioIo<MeteredStream>>() {
            Ok(host) => {
                let (bytes, stream) = client.io.into_inner().into_parts();
                let to_host = [&client.read_buf, bytes.as_slice()].concat();
                let host_stream = host.io.into_inner().stream;
                let _ = splice(&stream, &host_stream, to_host, host.read_buf.to_vec(), &passed.meter).await;
                return;
            }
            // A stream in clear text to a host inside of TLS has a credential.
            Err(_) => return,
        },
        (Ok(client), Some(_)) => {
            let rest = client.read_buf.to_vec();
            (Either::Left(ReplayedStream::new(rest, client.io.into_inner())), host)
        }
        (Err(client), _) => (Either::Right(TokioIo::new(client)), host),
    };
    let scrubber = values.map(|values| FrameScrubber::new(Scrubber::new(Arc::clone(values))));
    let _ = match client {
        Either::Left(client) => relay(client, TokioIo::new(host), scrubber).await,
        Either::Right(client) => relay(client, TokioIo::new(host), scrubber).await,
    };
}

/// Passes bytes in both directions, without the values of credentials towards the client.
async fn relay<C, H>(client: C, host: H, mut scrubber: Option<FrameScrubber>) -> std::io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    H: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_host, mut to_host) = tokio::io::split(host);
    let sent = async {
        tokio::io::copy(&mut from_client, &mut to_host).await?;
        to_host.shutdown().await
    };
    let received = async {
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = from_host.read(&mut buffer).await?;
            let piece = buffer.get(..length).unwrap_or_default();
            let shown = match &mut scrubber {
                Some(scrubber) if length == 0 => scrubber.finish(),
                Some(scrubber) => scrubber.push(piece)?,
                None => piece.to_vec(),
            };
            to_client.write_all(&shown).await?;
            to_client.flush().await?;
            if length == 0 {
                return to_client.shutdown().await;
            }
        }
    };
    tokio::try_join!(sent, received).map(|_| ())
}

/// Sends the request that was judged, with the headers and the body of the incoming one.
async fn pass_on(
    mut incoming: Request<Incoming>,
    passed: PassedRequest,
    mut sender: client::SendRequest<Sent>,
    upgrade: Upgrade,
) -> Answer {
    let PassedRequest { request, route, credential, limits_requests, meter } = passed;
    // Both read the same bytes; a difference would be a fault of one of them.
    if incoming.method().as_str() != request.method {
        return failure(StatusCode::BAD_REQUEST, "the request has more than one reading");
    }
    let of_client = request.is_web_socket.then(|| hyper::upgrade::on(&mut incoming));
    let (parts, body) = incoming.into_parts();
    let JudgedRequest { host, port, mut path, is_web_socket, is_tls, .. } = request;
    let generates = may_generate(&parts.method, &path);
    let mut headers = without_hops(&parts.headers);
    headers.remove(header::EXPECT);
    let default = if is_tls { 443 } else { 80 };
    let name = if port == default { host.to_string() } else { format!("{host}:{port}") };
    let Ok(name) = HeaderValue::from_str(&name) else {
        return failure(StatusCode::BAD_REQUEST, "the host cannot be sent");
    };
    headers.insert(header::HOST, name);
    let credentials = &meter.network.credentials;
    let has_values = meter.network.profile.has_credential_for(&host);
    if has_values {
        HIDES_VALUES.iter().for_each(|name| drop(headers.remove(name)));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    if limits_requests {
        OVERRIDES.iter().for_each(|name| drop(headers.remove(name)));
    }
    if let Some(credential) = &credential {
        if credentials.place(credential, &mut path, &mut headers).is_err() {
            return failure(StatusCode::BAD_GATEWAY, "the credential of the host cannot be sent");
        }
        meter.network.log.use_credential(&credential.name, host.as_str());
    }
    if is_web_socket {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, WEB_SOCKET);
    }
    let is_refused = Arc::new(AtomicBool::new(false));
    let body = match credentials.foreign_to(credential.as_ref().map(|credential| credential.name.as_str())) {
        None => Either::Left(DataOnly(body)),
        Some(_) => {
            let of_rule = credential.as_ref().map(|credential| credential.name.clone());
            let to = (route, host.clone(), port);
            let foreign = Foreign::new(Arc::clone(&meter.network), of_rule, to, Arc::clone(&is_refused));
            Either::Right(FilteredBody::new(DataOnly(body), foreign))
        }
    };
    let Ok(mut outgoing) = Request::builder().method(parts.method).uri(path).version(Version::HTTP_11).body(body)
    else {
        return failure(StatusCode::BAD_REQUEST, "the path cannot be sent");
    };
    *outgoing.headers_mut() = headers;
    let mut response = match sender.send_request(outgoing).await {
        Ok(response) => response,
        Err(_) if is_refused.load(Ordering::Relaxed) => {
            // It is recorded already.
            return failure(StatusCode::FORBIDDEN, &foreign_placeholder(&host, port));
        }
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
    headers.remove(OWN_ANSWER);
    let values = credentials.values();
    if let Some(why) = hidden(&response).filter(|_| has_values) {
        let message =
            format!("{host}:{port} has answered {why}, from which the values of credentials cannot be removed");
        return failure(StatusCode::BAD_GATEWAY, &message);
    }
    if let Some(values) = values {
        headers.values_mut().for_each(|value| *value = values.header(value));
    }
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
    let is_of_model = route == Route::BaseUrl && generates && parts.status.is_success();
    let body = AnswerBody { inner: DataOnly(body), model: is_of_model.then(|| ModelAnswer::new(meter.clone())) };
    let body = match values {
        Some(values) => Either::Right(FilteredBody::new(body, Scrubber::new(Arc::clone(values)))),
        None => Either::Left(body),
    };
    let mut answer = Response::new(Either::Left(body));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = headers;
    answer
}

/// The way in which an answer hides what it has: a coding, or a part of it, of which none was asked for.
fn hidden<B>(response: &Response<B>) -> Option<&'static str> {
    // As the host has sent them: a coding that `Connection` names is one as well.
    let headers = response.headers();
    let is_other = |name: HeaderName, plain: &str| {
        headers.get_all(name).iter().any(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(plain.as_bytes()))
    };
    let is_in_parts = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"multipart/byteranges"));
    if is_other(header::CONTENT_ENCODING, "identity") || is_other(header::TRANSFER_ENCODING, "chunked") {
        Some("in a coding that was not asked for")
    } else if response.status() == StatusCode::PARTIAL_CONTENT || is_in_parts {
        Some("with a part that was not asked for")
    } else {
        None
    }
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
    // The host may have got the request, or a part of it.
    answer.headers_mut().insert(OWN_ANSWER, HeaderValue::from_static("unanswered"));
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

/// Whether a request to a model may make it generate: it may not where it only counts tokens.
fn may_generate(method: &http::Method, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    method == http::Method::POST && !path.ends_with("/count_tokens") && !path.ends_with(":countTokens")
}

/// The body of an answer without its trailers, of which the tokens are counted where a model gives it.
pub(crate) struct AnswerBody {
    inner: DataOnly,
    model: Option<ModelAnswer>,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match (&frame, &mut self.model) {
            (Some(Ok(frame)), Some(model)) => {
                if let Some(piece) = frame.data_ref() {
                    model.scanner.push(piece);
                }
            }
            (None, Some(model)) => model.has_ended = true,
            (Some(Err(_)) | None, _) | (_, None) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The tokens of a model's answer.
struct ModelAnswer {
    scanner: UsageScanner,
    meter: Meter,
    has_ended: bool,
}

impl ModelAnswer {
    fn new(meter: Meter) -> Self {
        Self { scanner: UsageScanner::default(), meter, has_ended: false }
    }
}

impl Drop for AnswerBody {
    /// Records the tokens. A client that does not wait for the end gets no tokens for nothing: what was sent counts.
    fn drop(&mut self) {
        let is_whole = self.inner.is_end_stream();
        let Some(ModelAnswer { scanner, meter, has_ended }) = self.model.take() else { return };
        let reported = scanner.tokens();
        let whole = reported.filter(|tokens| (is_whole || has_ended) && tokens.output > 0);
        let bytes = |counter: &AtomicU64| counter.load(Ordering::Relaxed).div_ceil(BYTES_PER_TOKEN);
        let tokens = whole.unwrap_or_else(|| {
            let known = reported.unwrap_or_default();
            let input = if known.input > 0 { known.input } else { bytes(&meter.counters.sent) };
            Tokens { input, cached: known.cached, output: known.output.max(bytes(&meter.counters.received)) }
        });
        meter.network.log.use_model(tokens, whole.is_none());
    }
}

/// A task that ends with its owner.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
