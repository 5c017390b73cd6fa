//! A connection to one host, through CONNECT or through the address that stands for the host: its first bytes are judged, then it is passed on.

use std::{os::fd::AsFd as _, sync::Arc};

use belay_network::{AccessDecision, AccessRequest, Host, Protocol, Refusal, Rule, Traffic};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::{
    call_network::CallNetwork,
    denial::Denial,
    foreign::{Foreign, foreign_placeholder},
    forward::{HostStream, JudgedRequest, PassedRequest, forward},
    head::{Head, HeadProblem, Target},
    hello::HelloProblem,
    inbound::{ClientStream, FirstMessage, Inbound},
    log::OpenEntry,
    reach::reach,
    replayed::{MeteredStream, ReplayedStream},
    report::Route,
    splice::{Meter, splice, splice_watched, write_all},
};

/// The answer to a CONNECT that is allowed.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// The first byte of TLS: the type of a record with handshake messages.
const TLS: u8 = 22;

/// A connection to one host.
pub(crate) struct Tunnel {
    pub(crate) network: Arc<CallNetwork>,
    pub(crate) inbound: Inbound,
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) route: Route,
}

/// Asks the profile, and returns the rule that allows it, or the refusal.
pub(crate) fn decide<'a>(
    network: &'a CallNetwork,
    host: &Host,
    port: u16,
    traffic: Traffic<'_>,
) -> Result<&'a Rule, Box<Refusal>> {
    match network.profile.decide(AccessRequest { host, port, traffic }) {
        AccessDecision::Allowed(rule) => Ok(rule),
        AccessDecision::Refused(refusal) => Err(Box::new(refusal)),
    }
}

impl Tunnel {
    fn decide(&self, traffic: Traffic<'_>) -> Result<&Rule, Box<Refusal>> {
        decide(&self.network, &self.host, self.port, traffic)
    }

    /// Whether requests in clear text may pass under some rule.
    fn may_be_http(&self) -> bool {
        self.network.profile.rules.iter().any(|rule| {
            rule.protocol == Protocol::Http
                && rule.host.matches(&self.host)
                && rule.ports.iter().any(|ports| ports.contains(self.port))
        })
    }

    fn record_refusal(&self, message: &str) {
        self.network.log.refuse(self.route, self.host.as_str(), self.port, message);
    }

    fn open(&self, rule: &Rule) -> OpenEntry {
        self.network.log.open(self.route, self.host.as_str(), self.port, &rule.to_string())
    }

    /// Refuses in the way of the route: a client of the proxy reads an answer, others read the end.
    async fn refuse(self, denial: Denial) {
        match denial.status {
            500.. => self.network.log.fail(self.route, self.host.as_str(), self.port, &denial.message),
            _ => self.record_refusal(&denial.message),
        }
        if self.route == Route::Proxy {
            self.inbound.refuse(&denial).await;
        }
    }

    /// Judges the connection, and passes it on until it ends. What reads requests is in memory of its own: of a connection that only passes bytes, little is kept.
    pub(crate) async fn run(self) {
        if let Err(refusal) = self.decide(Traffic::Nothing) {
            return self.refuse(Denial { status: 403, message: refusal.to_string() }).await;
        }
        if self.network.profile.reads_tls_of(&self.host, self.port) {
            return Box::pin(self.run_read()).await;
        }
        let (raw, tls) = (self.decide(Traffic::Other), self.decide(Traffic::Tls));
        match (raw, tls) {
            (Ok(rule), _) => {
                let rule = rule.clone();
                self.run_raw(&rule).await;
            }
            (Err(_), Ok(rule)) if !self.may_be_http() => {
                let rule = rule.clone();
                self.run_tls(&rule).await;
            }
            (Err(_), tls) => {
                let tls = tls.ok().cloned();
                Box::pin(self.run_either(tls.as_ref())).await;
            }
        }
    }

    /// Answers a CONNECT. `false`: the client is gone.
    async fn greet(&self) -> bool {
        self.route != Route::Proxy || write_all(&self.inbound.stream, ESTABLISHED).await.is_ok()
    }

    /// Anything may be spoken, and the host may speak first.
    async fn run_raw(self, rule: &Rule) {
        let host = match reach(&self.network, &self.host, self.port, rule).await {
            Ok(host) => host,
            Err(denial) => return self.refuse(denial).await,
        };
        let entry = self.open(rule);
        if !self.greet().await {
            return;
        }
        if self.network.credentials.foreign_to(None).is_none() {
            return self.pass(host, &entry).await;
        }
        let Self { network, inbound, host: name, port, route } = self;
        let meter = Meter { network: Arc::clone(&network), counters: Arc::clone(&entry.counters) };
        let watch = Foreign::new(network, None, (route, name, port), Arc::default());
        // How it ends is recorded by the counters, and a refusal by itself.
        let _ = splice_watched(&inbound.stream, &host, inbound.bytes, &meter, watch).await;
    }

    /// Only TLS with the name of the host may be spoken. The host is reached first, so that a client of the proxy learns when it cannot be.
    async fn run_tls(mut self, rule: &Rule) {
        let host = match reach(&self.network, &self.host, self.port, rule).await {
            Ok(host) => host,
            Err(denial) => return self.refuse(denial).await,
        };
        let entry = self.open(rule);
        if !self.greet().await {
            return;
        }
        match self.judge_hello().await {
            Some(Ok(())) => self.pass(host, &entry).await,
            Some(Err(message)) => {
                drop(host);
                entry.refuse(&message);
                self.refuse_first_bytes(message).await;
            }
            None => {}
        }
    }

    /// Requests in clear text may pass, and TLS if there is a rule for it: the first byte says which it is.
    async fn run_either(mut self, tls: Option<&Rule>) {
        if !self.greet().await {
            return;
        }
        match (self.inbound.first_byte(&self.network.budget).await, tls) {
            (None, _) => {}
            (Some(TLS), Some(rule)) => match self.judge_hello().await {
                Some(Ok(())) => match reach(&self.network, &self.host, self.port, rule).await {
                    Ok(host) => {
                        let entry = self.open(rule);
                        self.pass(host, &entry).await;
                    }
                    Err(denial) => self.record_refusal(&denial.message),
                },
                Some(Err(message)) => {
                    self.record_refusal(&message);
                    self.refuse_first_bytes(message).await;
                }
                None => {}
            },
            (Some(TLS), None) => {
                let refused = self.decide(Traffic::Tls).err().map(|refusal| refusal.to_string());
                self.record_refusal(&refused.unwrap_or_default());
                self.inbound.refuse_tls().await;
            }
            (Some(_), _) => self.run_request().await,
        }
    }

    /// Requests are read, inside of TLS as well, because some of them carry a credential.
    async fn run_read(mut self) {
        if !self.greet().await {
            return;
        }
        match self.inbound.first_byte(&self.network.budget).await {
            None => {}
            Some(TLS) => match self.judge_hello().await {
                Some(Ok(())) => self.run_read_tls().await,
                Some(Err(message)) => {
                    self.record_refusal(&message);
                    self.refuse_first_bytes(message).await;
                }
                None => {}
            },
            Some(_) if self.may_be_http() => self.run_request().await,
            Some(_) => {
                let refused = self.decide(Traffic::Other).err().map(|refusal| refusal.to_string());
                let message = refused.unwrap_or_else(|| format!("{}:{} is spoken with in TLS", self.host, self.port));
                self.record_refusal(&message);
                self.refuse_first_bytes(message).await;
            }
        }
    }

    /// Answers the TLS client in the name of the host, and serves one request.
    async fn run_read_tls(self) {
        let Self { network, inbound, host, port, route } = self;
        let lingering = lingering(&inbound.stream);
        let failed = |why: &str| network.log.fail(route, host.as_str(), port, why);
        let acceptor = match network.outside.authority.acceptor(&host) {
            Ok(acceptor) => acceptor,
            Err(error) => return failed(&format!("the proxy cannot certify {host}: {error}")),
        };
        let accepting = acceptor.accept(ReplayedStream::new(inbound.bytes, inbound.stream));
        let tls = match timeout(network.budget.head_time, accepting).await {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => {
                return failed(&format!(
                    "{host} has a credential, so that the proxy answers for it, and the program has ended TLS with `{error}`: it has to trust the certificates in $SSL_CERT_FILE, and to offer HTTP/1.1"
                ));
            }
            Err(_) => return failed(&format!("the TLS handshake of the program with {host} was not complete in time")),
        };
        let mut inbound = Inbound::new(tls);
        match inbound.head(&network.budget).await {
            FirstMessage::Complete((head, _)) => match self::path(&head, &host, port, 443) {
                Ok(path) => {
                    let Head { method, is_web_socket, .. } = head;
                    let request = JudgedRequest { method, host, port, path, is_web_socket, is_tls: true };
                    pass_request(&network, inbound, lingering, request, route).await;
                }
                Err(message) => {
                    network.log.refuse(route, host.as_str(), port, &message);
                    inbound.refuse(&Denial { status: 403, message }).await;
                }
            },
            FirstMessage::Problem(HeadProblem { status, message, .. }) => {
                network.log.refuse(route, host.as_str(), port, &message);
                inbound.refuse(&Denial { status, message }).await;
            }
            FirstMessage::Closed => {}
        }
    }

    /// Reads the ClientHello, whose server name has to be that of the host. `None`: the client is gone.
    async fn judge_hello(&mut self) -> Option<Result<(), String>> {
        let Self { inbound, network, host, port, .. } = self;
        Some(match inbound.client_hello(&network.budget).await? {
            Ok(name) if name == *host => Ok(()),
            Ok(name) => {
                Err(format!("{host}:{port} was asked for, but the TLS client names {name}: both have to be the same"))
            }
            Err(problem @ HelloProblem::NotTls) => {
                let refusal = decide(network, host, *port, Traffic::Other).err();
                let rule = refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
                Err(format!("{problem}: {rule}"))
            }
            Err(problem) => Err(format!("{host}:{port} was asked for, but {problem}")),
        })
    }

    /// Answers in the language of the first bytes: an alert to TLS, a response to a request.
    async fn refuse_first_bytes(self, message: String) {
        match self.inbound.bytes.first() {
            Some(byte) if byte.is_ascii_uppercase() => self.inbound.refuse(&Denial { status: 403, message }).await,
            _ => self.inbound.refuse_tls().await,
        }
    }

    /// Serves one request in clear text.
    async fn run_request(mut self) {
        let head = match self.inbound.head(&self.network.budget).await {
            FirstMessage::Complete((head, _)) => head,
            FirstMessage::Problem(HeadProblem { status, message, .. }) => {
                self.record_refusal(&message);
                return self.inbound.refuse(&Denial { status, message }).await;
            }
            FirstMessage::Closed => return,
        };
        let Self { network, inbound, host, port, route } = self;
        match self::path(&head, &host, port, 80) {
            Ok(path) => {
                let Head { method, is_web_socket, .. } = head;
                let request = JudgedRequest { method, host, port, path, is_web_socket, is_tls: false };
                let lingering = lingering(&inbound.stream);
                pass_request(&network, inbound, lingering, request, route).await;
            }
            Err(message) => {
                network.log.refuse(route, host.as_str(), port, &message);
                inbound.refuse(&Denial { status: 403, message }).await;
            }
        }
    }

    async fn pass(self, host: TcpStream, entry: &OpenEntry) {
        let Self { network, inbound, .. } = self;
        let meter = Meter { network, counters: Arc::clone(&entry.counters) };
        // How it ends is recorded by the counters.
        let _ = splice(&inbound.stream, &host, inbound.bytes, Vec::new(), &meter).await;
    }
}

/// The path of a request, which has to be for the host to which the connection is. `default`: the port of its `Host` header when that has none.
fn path(head: &Head, host: &Host, port: u16, default: u16) -> Result<String, String> {
    let (name, name_port) = match &head.host {
        Some((name, port)) => (name, port.unwrap_or(default)),
        None => return Err(format!("the connection is to {host}:{port}, but the request has no `Host` header")),
    };
    if (name, name_port) != (host, port) {
        return Err(format!(
            "the connection is to {host}:{port}, but the `Host` header says {name}:{name_port}: both have to be the same"
        ));
    }
    match &head.target {
        Target::Path(path) => Ok(path.clone()),
        Target::Absolute(name, name_port, path) if (name, *name_port) == (host, port) => Ok(path.clone()),
        Target::Absolute(..) | Target::AbsoluteTls(..) | Target::Tunnel(..) => {
            Err(format!("the connection is to {host}:{port}, but the request asks for another host"))
        }
    }
}

/// Another descriptor of a connection, which stays when the first one is closed.
pub(crate) fn lingering(stream: &TcpStream) -> Option<TcpStream> {
    let other = stream.as_fd().try_clone_to_owned().map(std::net::TcpStream::from);
    other.and_then(TcpStream::from_std).ok()
}

/// Judges a request, and passes it on.
pub(crate) async fn pass_request<C: ClientStream, L: ClientStream>(
    network: &Arc<CallNetwork>,
    inbound: Inbound<C>,
    lingering: Option<L>,
    request: JudgedRequest,
    route: Route,
) {
    Box::pin(pass_request_by(network, inbound, lingering, request, (route, None))).await;
}

/// The same for a request that came by the base URL of a rule, which alone decides then.
pub(crate) async fn pass_request_by<C: ClientStream, L: ClientStream>(
    network: &Arc<CallNetwork>,
    inbound: Inbound<C>,
    lingering: Option<L>,
    request: JudgedRequest,
    (route, by_url): (Route, Option<&Rule>),
) {
    let JudgedRequest { method, host, port, path, is_tls, .. } = &request;
    let path = path.split('?').next().unwrap_or(path);
    let traffic = if *is_tls { Traffic::TlsRequest { method, path } } else { Traffic::Request { method, path } };
    let asked = AccessRequest { host, port: *port, traffic };
    let decision = match by_url {
        Some(rule) => network.profile.decide_by_url(rule, asked),
        None => network.profile.decide(asked),
    };
    let rule = match decision {
        AccessDecision::Allowed(rule) => rule,
        AccessDecision::Refused(refusal) => {
            let message = refusal.to_string();
            network.log.refuse(route, host.as_str(), *port, &message);
            return inbound.refuse(&Denial { status: 403, message }).await;
        }
    };
    if let Some(limit) = network.budget.tokens.filter(|_| route == Route::BaseUrl)
        && network.log.model_tokens() >= limit
    {
        let message = format!(
            "the tokens of this call are used up: its models have used {} of {limit}",
            network.log.model_tokens()
        );
        network.log.refuse_model();
        network.log.refuse(route, host.as_str(), *port, &message);
        return inbound.refuse(&Denial { status: 403, message }).await;
    }
    // The head, and as much of the body as came with it: nothing of it has been sent.
    let of_rule = rule.credential.as_ref().map(|credential| credential.name.as_str());
    let foreign = network.credentials.foreign_to(of_rule);
    if foreign.is_some_and(|finder| finder.is_in(&inbound.bytes)) {
        let message = foreign_placeholder(host, *port);
        network.log.refuse(route, host.as_str(), *port, &message);
        return inbound.refuse(&Denial { status: 403, message }).await;
    }
    let stream = match reach(network, host, *port, rule).await {
        Ok(stream) => stream,
        Err(denial) => {
            match denial.status {
                500.. => network.log.fail(route, host.as_str(), *port, &denial.message),
                _ => network.log.refuse(route, host.as_str(), *port, &denial.message),
            }
            return inbound.refuse(&denial).await;
        }
    };
    let entry = network.log.open(route, host.as_str(), *port, &rule.to_string());
    let meter = Meter { network: Arc::clone(network), counters: Arc::clone(&entry.counters) };
    let stream = match is_tls {
        false => HostStream::Plain(stream),
        true => match connect_tls(network, host, *port, stream, &meter).await {
            Ok(stream) => stream,
            Err(denial) => {
                entry.fail(&denial.message);
                return inbound.refuse(&denial).await;
            }
        },
    };
    let passed = PassedRequest {
        request,
        route,
        credential: rule.credential.clone(),
        limits_requests: rule.limits_requests(),
        meter,
    };
    let lingering = forward(inbound, lingering, stream, passed).await;
    drop(entry);
    if let Some(lingering) = lingering {
        lingering.linger().await;
    }
}

/// Speaks TLS with a host that was reached, whose certificate has to be trusted.
async fn connect_tls(
    network: &CallNetwork,
    host: &Host,
    port: u16,
    stream: TcpStream,
    meter: &Meter,
) -> Result<HostStream, Denial> {
    let failed = |why: String| Denial { status: 502, message: format!("{host}:{port} cannot be reached: {why}") };
    let name = ServerName::try_from(host.to_string()).map_err(|error| failed(error.to_string()))?;
    let metered = MeteredStream { stream, meter: meter.clone() };
    let connecting = network.outside.authority.connector().connect(name, metered);
    match timeout_at(Instant::now() + network.budget.connect_time, connecting).await {
        Ok(Ok(stream)) => Ok(HostStream::Tls(Box::new(stream))),
        Ok(Err(error)) => Err(failed(format!("its TLS was not accepted: {error}"))),
        Err(_) => Err(failed("TLS was not complete in time".to_owned())),
    }
}
