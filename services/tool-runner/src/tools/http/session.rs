//! The network of one call: the proxy that makes its requests, and the account of them.

use std::{
    os::unix::net::UnixStream,
    sync::{Arc, OnceLock},
    time::Duration,
};

use belay_network::Profile;
use belay_proto::v1::{ErrorClass, NetworkUse};
use belay_proxy::{CallCredential, OWN_ANSWER, Report};
use belay_reasons as reasons;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::{task::JoinHandle, time::timeout};

use super::{host::HttpHost, url::HttpUrl};
use crate::{
    Invocation, StopRequest, ToolFailure, ToolResult,
    calls::timed_out,
    proxy::{CommandAccess, CommandProxy},
    tools::{
        files::{invalid, stopped},
        run_terminal::{ACCOUNT_TIMEOUT, account},
    },
};

/// The most headers of an answer, and the most bytes of them: a little more than the proxy passes on.
const MAX_HEADERS: usize = 256;
const BUFFER: usize = 128 << 10;
/// The most bytes of a refusal.
const MAX_SENTENCE: usize = 16 << 10;
/// The part of a call's time in which it closes its connection, so that what it did is recorded before its time is over.
const CLOSING_SHARE: u32 = 20;
const MAX_CLOSING: Duration = Duration::from_millis(500);

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) url: HttpUrl,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The most bytes of the answer's body.
    pub(crate) max_bytes: usize,
}

/// What a host has answered.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Whether the body has more.
    pub(crate) truncated: bool,
}

/// Why there is no answer of the host.
#[derive(Debug)]
enum Unanswered {
    /// The profile does not allow the request. Nothing was sent.
    Refused(String),
    /// The host was not reached. Nothing was sent.
    Unreached(String),
    /// The host may have got the request.
    Lost(String),
}

/// Why the work of a call has not ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interruption {
    TimedOut,
    Stopped,
}

/// The network of one call.
pub(crate) struct Session {
    host: HttpHost,
    profile: Arc<Profile>,
    network_use: Arc<OnceLock<NetworkUse>>,
    enforced: Arc<OnceLock<Vec<String>>>,
    stop: StopRequest,
    limit: Duration,
    /// Whether a request that was lost may be made again.
    repeats: bool,
    /// The proxy and the credentials, once the first request needs them.
    ready: Option<(Arc<CommandProxy>, Arc<[CallCredential]>)>,
    /// The request that is being made.
    access: Option<CommandAccess>,
    /// Whether a host may have got a request.
    is_sent: bool,
    report: Report,
}

impl Session {
    /// The network of a call, which opens nothing before its first request. `limit`: its own time limit, if that is shorter than that of the call.
    ///
    /// # Errors
    /// When the call has no network.
    pub(crate) fn new(
        host: HttpHost,
        invocation: &Invocation,
        limit: Option<Duration>,
        repeats: bool,
    ) -> Result<Self, ToolFailure> {
        let profile = invocation.network.clone().ok_or_else(|| invalid(crate::NetworkProblem::NoNetwork.in_words()))?;
        let closing = (invocation.limit / CLOSING_SHARE).min(MAX_CLOSING);
        let of_call = invocation.limit.saturating_sub(closing);
        Ok(Self {
            host,
            profile,
            network_use: Arc::clone(&invocation.network_use),
            enforced: Arc::clone(&invocation.enforced),
            stop: invocation.stop.clone(),
            limit: limit.map_or(of_call, |limit| limit.min(of_call)),
            repeats,
            ready: None,
            access: None,
            is_sent: false,
            report: Report::default(),
        })
    }

    /// Does the work of the call, until its time is over or it is asked to stop, and leaves the account of its network.
    pub(crate) async fn run(mut self, work: impl SessionWork) -> ToolResult {
        let (mut stop, limit) = (self.stop.clone(), self.limit);
        let ended = tokio::select! {
            ended = timeout(limit, work.work(&mut self)) => ended.map_err(|_| Interruption::TimedOut),
            () = stop.requested() => Err(Interruption::Stopped),
        };
        self.close().await;
        // Set only here.
        let _ = self.network_use.set(account(&self.profile, &self.report));
        match ended {
            Ok(ended) => ended,
            Err(Interruption::TimedOut) if self.is_sent && !self.repeats => {
                Err(unknown(&format!("The request was not answered within {limit:?}")))
            }
            Err(Interruption::TimedOut) => Err(timed_out(limit)),
            Err(Interruption::Stopped) => Err(stopped()),
        }
    }

    /// Has the proxy make a request, and returns what the host has answered, up to as many bytes as were asked for.
    ///
    /// # Errors
    /// NETWORK_REFUSED, HOST_UNREACHABLE, NETWORK_UNAVAILABLE, CREDENTIAL_UNAVAILABLE; OUTCOME_UNKNOWN if the host may have got a request that must not be made
    /// again.
    pub(crate) async fn ask(&mut self, asked: Asked) -> Result<Answered, ToolFailure> {
        let what = format!("`{} {}`", asked.method, asked.url);
        let client = self.open().await?;
        self.is_sent = true;
        let answered = exchange(client, asked).await;
        self.close().await;
        answered.map_err(|problem| match problem {
            Unanswered::Refused(why) => {
                self.is_sent = false;
                let message = format!("{what} was refused: {why}.");
                ToolFailure::new(ErrorClass::SandboxViolation, reasons::NETWORK_REFUSED, message)
            }
            Unanswered::Unreached(why) => {
                self.is_sent = false;
                unreachable(&format!("{what} was not sent: {why}."))
            }
            Unanswered::Lost(why) if self.repeats => unreachable(&format!("{what} was not answered: {why}.")),
            Unanswered::Lost(why) => unknown(&format!("{what} was not answered: {why}")),
        })
    }

    /// Opens a connection to the proxy for one request.
    async fn open(&mut self) -> Result<UnixStream, ToolFailure> {
        let (host, profile, ready) = (self.host.clone(), Arc::clone(&self.profile), self.ready.clone());
        let opened = self.host.lane.run(move || {
            let (proxy, credentials) = match ready {
                Some(ready) => ready,
                None => {
                    let proxy = host.proxy.running()?;
                    let random = |bytes: &mut [u8]| {
                        getrandom::fill(bytes).map_err(|error| format!("there is no randomness: {error}"))
                    };
                    let credentials = host.settings.credentials().of_call(&profile, random)?;
                    (proxy, credentials.into())
                }
            };
            let (client, access) = CommandAccess::of_tool(Arc::clone(&proxy), &profile, &credentials)?;
            Ok::<_, ToolFailure>(((proxy, credentials), client, access))
        });
        let (ready, client, access) = opened.await?;
        // The same for each of its requests.
        let _ = self.enforced.set(ready.0.enforced());
        (self.ready, self.access) = (Some(ready), Some(access));
        Ok(client)
    }

    /// Closes the connection to the proxy, and adds what it has recorded.
    async fn close(&mut self) {
        let Some(access) = self.access.take() else { return };
        let report = self.host.lane.run(move || access.close(ACCOUNT_TIMEOUT)).await;
        add(&mut self.report, report);
    }
}

/// The work of a call, which makes requests.
pub(crate) trait SessionWork {
    /// Does it.
    fn work(self, session: &mut Session) -> impl Future<Output = ToolResult> + Send;
}

/// Adds the account of another request of the call.
fn add(report: &mut Report, other: Report) {
    let Report { connections, unlisted, questions, refusals, is_over_budget, credentials, models: _, is_lost } = other;
    report.connections.extend(connections);
    report.unlisted += unlisted;
    report.questions += questions;
    report.refusals += refusals;
    report.is_over_budget |= is_over_budget;
    report.is_lost |= is_lost;
    for used in credentials {
        match report.credentials.iter_mut().find(|known| (&known.name, &known.host) == (&used.name, &used.host)) {
            Some(known) => known.count += used.count,
            None => report.credentials.push(used),
        }
    }
}

fn unreachable(message: &str) -> ToolFailure {
    ToolFailure::new(ErrorClass::Transient, reasons::HOST_UNREACHABLE, message)
}

/// The failure of a call whose request may have had an effect, and must not be made again.
fn unknown(why: &str) -> ToolFailure {
    let message = format!("{why}. The host may have carried out the request, so it is not made again automatically.");
    ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message)
}

/// Sends a request to the proxy, and reads the answer.
async fn exchange(client: UnixStream, asked: Asked) -> Result<Answered, Unanswered> {
    let lost = |error: &dyn std::fmt::Display| Unanswered::Lost(error.to_string());
    let local = |error: &dyn std::fmt::Display| Unanswered::Unreached(error.to_string());
    client.set_nonblocking(true).map_err(|error| local(&error))?;
    let client = tokio::net::UnixStream::from_std(client).map_err(|error| local(&error))?;
    let mut builder = http1::Builder::new();
    builder.max_headers(MAX_HEADERS).max_buf_size(BUFFER);
    let (mut sender, connection) = builder.handshake(TokioIo::new(client)).await.map_err(|error| local(&error))?;
    let _driver = AbortOnDrop(tokio::spawn(async {
        // How it ends is what the sender reports.
        let _ = connection.await;
    }));
    let Asked { method, url, headers, body, max_bytes } = asked;
    let request = Request::builder().method(method).uri(url.to_string()).header(header::HOST, url.authority());
    let mut request = request.body(Full::new(body)).map_err(|error| local(&error))?;
    request.headers_mut().extend(headers);
    let response = sender.send_request(request).await.map_err(|error| lost(&error))?;
    let (parts, body) = response.into_parts();
    if let Some(own) = parts.headers.get(OWN_ANSWER) {
        let sentence = read(body, MAX_SENTENCE).await.map(|(bytes, _)| bytes).unwrap_or_default();
        let sentence = String::from_utf8_lossy(&sentence).trim().to_owned();
        return Err(match own.as_bytes() {
            b"refused" => Unanswered::Refused(sentence),
            b"unreached" => Unanswered::Unreached(sentence),
            _ => Unanswered::Lost(sentence),
        });
    }
    let (body, truncated) = read(body, max_bytes).await.map_err(|error| lost(&error))?;
    Ok(Answered { status: parts.status, headers: parts.headers, body, truncated })
}

/// Reads at most so many bytes of a body. Returns whether there are more.
async fn read(mut body: Incoming, max: usize) -> Result<(Vec<u8>, bool), hyper::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let left = max - bytes.len();
        bytes.extend_from_slice(data.get(..left).unwrap_or(&data));
        if data.len() > left {
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}

/// A task that ends with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use belay_proxy::CredentialUse;

    use super::*;

    #[test]
    fn the_account_of_a_call_has_all_its_requests() {
        let used = |host: &str, count| CredentialUse { name: "forge".to_owned(), host: host.to_owned(), count };
        let mut report = Report { refusals: 1, credentials: vec![used("a", 1)], ..Report::default() };
        let other =
            Report { refusals: 2, credentials: vec![used("a", 2), used("b", 1)], is_lost: true, ..Report::default() };
        add(&mut report, other);
        assert_eq!((report.refusals, report.is_lost), (3, true));
        assert_eq!(report.credentials, [used("a", 3), used("b", 1)]);
    }
}
