//! A connection to one host, through CONNECT or through the address that stands for the host: its first bytes are judged, then it is passed on.

use std::sync::Arc;

use belay_network::{AccessDecision, AccessRequest, Host, Protocol, Refusal, Rule, Traffic};
use tokio::net::TcpStream;

use crate::{
    call_network::CallNetwork,
    forward::{JudgedRequest, forward},
    head::{Head, HeadProblem, Target},
    hello::HelloProblem,
    inbound::{FirstMessage, Inbound},
    log::OpenEntry,
    reach::{Denial, reach},
    report::Route,
    splice::{Meter, splice, write_all},
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

    /// Judges the connection, and passes it on until it ends.
    pub(crate) async fn run(self) {
        if let Err(refusal) = self.decide(Traffic::Nothing) {
            return self.refuse(Denial { status: 403, message: refusal.to_string() }).await;
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
                self.run_either(tls.as_ref()).await;
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
        if self.greet().await {
            self.pass(host, &entry).await;
        }
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
        match self::path(&head, &host, port) {
            Ok(path) => {
                let request =
                    JudgedRequest { method: head.method, host, port, path, is_web_socket: head.is_web_socket };
                pass_request(&network, inbound, request, route).await;
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

/// The path of a request, which has to be for the host to which the connection is.
fn path(head: &Head, host: &Host, port: u16) -> Result<String, String> {
    let (name, name_port) = match &head.host {
        Some((name, port)) => (name, port.unwrap_or(80)),
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
        Target::Absolute(..) | Target::Tunnel(..) => {
            Err(format!("the connection is to {host}:{port}, but the request asks for another host"))
        }
    }
}

/// Judges a request, and passes it on.
pub(crate) async fn pass_request(network: &Arc<CallNetwork>, inbound: Inbound, request: JudgedRequest, route: Route) {
    let JudgedRequest { method, host, port, path, .. } = &request;
    let path = path.split('?').next().unwrap_or(path);
    let reached = match decide(network, host, *port, Traffic::Request { method, path }) {
        Ok(rule) => reach(network, host, *port, rule).await.map(|stream| (stream, rule)),
        Err(refusal) => Err(Denial { status: 403, message: refusal.to_string() }),
    };
    match reached {
        Ok((stream, rule)) => {
            let entry = network.log.open(route, host.as_str(), *port, &rule.to_string());
            let meter = Meter { network: Arc::clone(network), counters: Arc::clone(&entry.counters) };
            let lingering = forward(inbound, stream, request, &meter).await;
            drop(entry);
            if let Some(lingering) = lingering {
                lingering.linger().await;
            }
        }
        Err(denial) => {
            network.log.refuse(route, host.as_str(), *port, &denial.message);
            inbound.refuse(&denial).await;
        }
    }
}
