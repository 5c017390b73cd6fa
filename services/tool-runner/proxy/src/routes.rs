//! The handling of an accepted connection, by the socket on which it arrived.

use std::{net::SocketAddr, os::fd::AsFd as _, sync::Arc};

use belay_network::{HostPattern, Protocol};
use tokio::{
    net::{TcpStream, UnixStream},
    time::timeout,
};

use crate::{
    call_network::{CallNetwork, ReachedLimit},
    denial::Denial,
    forward::JudgedRequest,
    head::{HeadProblem, HostHeader, Target},
    inbound::{FirstMessage, Inbound, refusal},
    report::Route,
    splice::{Meter, splice},
    tunnel::{Tunnel, lingering, pass_request, pass_request_by},
};

/// The socket on which a connection arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// The HTTP proxy.
    Proxy,
    /// A port of the profile.
    Port(u16),
    /// A service of this machine.
    Service(SocketAddr),
    /// A base URL of the profile, by its place.
    BaseUrl(usize),
    /// The name server.
    NameServer,
}

/// Refuses a connection beyond a bound, without waiting for anything.
pub(crate) fn refuse_at_once(network: &CallNetwork, entrance: Entrance, stream: &TcpStream, exhausted: ReachedLimit) {
    let message = network.sentence(exhausted);
    let (route, port) = match entrance {
        Entrance::Proxy => (Route::Proxy, 0),
        Entrance::Port(port) => (Route::Address, port),
        Entrance::Service(address) => (Route::Service, address.port()),
        Entrance::BaseUrl(_) => (Route::BaseUrl, 0),
        Entrance::NameServer => (Route::NameServer, 0),
    };
    network.log.refuse(route, "", port, &message);
    if matches!(entrance, Entrance::Proxy | Entrance::BaseUrl(_)) {
        let answer = refusal(&Denial { status: 503, message });
        // The buffer of a new connection has space for it; a client that is gone does not need it.
        let _ = stream.try_write(answer.as_bytes());
    }
}

/// Refuses the request of a tool beyond a bound. It has one connection, which cannot use up anything.
pub(crate) async fn refuse_tool(network: &CallNetwork, stream: UnixStream, exhausted: ReachedLimit) {
    let message = network.sentence(exhausted);
    network.log.refuse(Route::Proxy, "", 0, &message);
    Inbound::new(stream).refuse(&Denial { status: 503, message }).await;
}

/// Serves a connection to the HTTP proxy.
pub(crate) async fn serve_proxy(network: Arc<CallNetwork>, stream: TcpStream) {
    let mut inbound = Inbound::new(stream);
    let (head, length) = match inbound.head(&network.budget).await {
        FirstMessage::Complete(complete) => complete,
        FirstMessage::Problem(HeadProblem { status, message, host }) => {
            let (host, port) = host.unwrap_or_default();
            network.log.refuse(Route::Proxy, &host, port, &message);
            return inbound.refuse(&Denial { status, message }).await;
        }
        FirstMessage::Closed => return,
    };
    match head.target {
        Target::Tunnel(host, port) => {
            inbound.bytes.drain(..length);
            Tunnel { network, inbound, host, port, route: Route::Proxy }.run().await;
        }
        Target::Absolute(host, port, path) => {
            let request = JudgedRequest {
                method: head.method,
                host,
                port,
                path,
                is_web_socket: head.is_web_socket,
                is_tls: false,
            };
            let lingering = lingering(&inbound.stream);
            pass_request(&network, inbound, lingering, request, Route::Proxy).await;
        }
        Target::AbsoluteTls(..) | Target::Path(_) => {
            let message = "this is an HTTP proxy: ask for `http://host/path`, or use CONNECT".to_owned();
            network.log.refuse(Route::Proxy, "", 0, &message);
            inbound.refuse(&Denial { status: 400, message }).await;
        }
    }
}

/// Serves a connection to a port of the profile, whose host is that of its local address.
pub(crate) async fn serve_port(network: Arc<CallNetwork>, port: u16, stream: TcpStream) {
    let Ok(local) = stream.local_addr() else { return };
    // A service on a port of the profile has no socket of its own.
    let asked = SocketAddr::new(local.ip().to_canonical(), port);
    if network.profile.host_services.iter().any(|(service, _)| *service == asked) {
        return serve_service(network, asked, stream).await;
    }
    let Some(host) = network.host_at(local.ip().to_canonical()) else {
        let message = format!("{} stands for no host: the name server gives addresses for names", local.ip());
        network.log.refuse(Route::Address, &local.ip().to_string(), port, &message);
        return;
    };
    Tunnel { network, inbound: Inbound::new(stream), host, port, route: Route::Address }.run().await;
}

/// Serves a connection to a base URL of the profile: one request, whose host is that of the rule, whatever the request says.
pub(crate) async fn serve_base_url(network: Arc<CallNetwork>, place: usize, stream: TcpStream) {
    let Some((rule, _)) = network.profile.base_urls().nth(place) else { return };
    let (HostPattern::Exact(host), Some(ports)) = (&rule.host, rule.ports.first()) else { return };
    let (host, port, rule) = (host.clone(), ports.first, rule.clone());
    let mut inbound = Inbound::new(stream);
    let head = match inbound.head_with(&network.budget, HostHeader::Ignored).await {
        FirstMessage::Complete((head, _)) => head,
        FirstMessage::Problem(HeadProblem { status, message, .. }) => {
            network.log.refuse(Route::BaseUrl, host.as_str(), port, &message);
            return inbound.refuse(&Denial { status, message }).await;
        }
        FirstMessage::Closed => return,
    };
    let Target::Path(path) = head.target else {
        let message = format!("this URL is that of {host}: ask for a path, and not through a proxy");
        network.log.refuse(Route::BaseUrl, host.as_str(), port, &message);
        return inbound.refuse(&Denial { status: 400, message }).await;
    };
    let is_tls = rule.protocol == Protocol::Https;
    let request = JudgedRequest { method: head.method, host, port, path, is_web_socket: head.is_web_socket, is_tls };
    let lingering = lingering(&inbound.stream);
    Box::pin(pass_request_by(&network, inbound, lingering, request, (Route::BaseUrl, Some(&rule)))).await;
}

/// Serves the connection of a tool: one request in absolute form, also of `https://…`.
pub(crate) async fn serve_tool(network: Arc<CallNetwork>, stream: UnixStream) {
    let mut inbound = Inbound::new(stream);
    let refuse = |host: &str, port, message: &str| network.log.refuse(Route::Proxy, host, port, message);
    let head = match inbound.tool_head(&network.budget).await {
        FirstMessage::Complete((head, _)) => head,
        FirstMessage::Problem(HeadProblem { status, message, host }) => {
            let (host, port) = host.unwrap_or_default();
            refuse(&host, port, &message);
            return inbound.refuse(&Denial { status, message }).await;
        }
        FirstMessage::Closed => return,
    };
    let (host, port, path, is_tls) = match head.target {
        Target::Absolute(host, port, path) => (host, port, path, false),
        Target::AbsoluteTls(host, port, path) => (host, port, path, true),
        Target::Tunnel(..) | Target::Path(_) => {
            let message = "a tool asks for `http://host/path` or `https://host/path`".to_owned();
            refuse("", 0, &message);
            return inbound.refuse(&Denial { status: 400, message }).await;
        }
    };
    let request = JudgedRequest { method: head.method, host, port, path, is_web_socket: false, is_tls };
    let other = inbound.stream.as_fd().try_clone_to_owned().map(std::os::unix::net::UnixStream::from);
    let lingering = other.and_then(UnixStream::from_std).ok();
    pass_request(&network, inbound, lingering, request, Route::Proxy).await;
}

/// Serves a connection to a service of this machine.
pub(crate) async fn serve_service(network: Arc<CallNetwork>, address: SocketAddr, stream: TcpStream) {
    let host = address.ip().to_string();
    let dialled = timeout(network.budget.connect_time, network.outside.upstream.dial(address)).await;
    let service = match dialled {
        Ok(Ok(service)) => service,
        failed => {
            let why = failed.err().map_or("it refused the connection", |_| "it did not answer in time");
            let message = format!("this machine's {address} cannot be reached: {why}");
            return network.log.fail(Route::Service, &host, address.port(), &message);
        }
    };
    let entry = network.log.open(Route::Service, &host, address.port(), &format!("this machine's {address}"));
    let meter = Meter { network, counters: Arc::clone(&entry.counters) };
    // How it ends is recorded by the counters.
    let _ = splice(&stream, &service, Vec::new(), Vec::new(), &meter).await;
}
