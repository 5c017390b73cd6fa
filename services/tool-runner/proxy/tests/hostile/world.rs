//! The proxy in this process, with hosts that are servers on loopback.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use belay_network::{DraftProfile, DraftRule, Host, Profile, Profiles};
use belay_proxy::{Access, Authority, Budget, CommandSockets, Outside, Pending, Report, Upstream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// The answer to CONNECT.
pub(crate) const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// A name that the name server never answers.
pub(crate) const UNRESOLVED: &str = "unresolved.wild.example.com";
/// An address that does not answer.
const SILENT: &str = "203.0.113.99";

/// The name server and the network of the tests.
#[derive(Default)]
pub(crate) struct TestUpstream {
    /// The answers for a name, in turn; the last one stays.
    names: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    /// The server that stands for all addresses.
    server: Mutex<Option<SocketAddr>>,
    pub(crate) resolved: Mutex<Vec<String>>,
    pub(crate) dialled: Mutex<Vec<SocketAddr>>,
}

impl TestUpstream {
    pub(crate) fn add(&self, name: &str, answers: &[&[&str]]) {
        let answers = answers.iter().map(|answer| answer.iter().map(|ip| ip.parse().unwrap()).collect()).collect();
        self.names.lock().unwrap().insert(name.to_owned(), answers);
    }
}

impl Upstream for TestUpstream {
    fn resolve<'a>(&'a self, host: &'a Host) -> Pending<'a, io::Result<Vec<IpAddr>>> {
        self.resolved.lock().unwrap().push(host.to_string());
        if host.as_str() == UNRESOLVED {
            return Box::pin(std::future::pending());
        }
        let mut names = self.names.lock().unwrap();
        let answer = match names.get_mut(host.as_str()) {
            Some(answers) if answers.len() > 1 => Ok(answers.remove(0)),
            Some(answers) => Ok(answers[0].clone()),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "there is no such name")),
        };
        Box::pin(async { answer })
    }

    fn dial(&self, address: SocketAddr) -> Pending<'_, io::Result<TcpStream>> {
        self.dialled.lock().unwrap().push(address);
        if address.ip().to_string() == SILENT {
            return Box::pin(std::future::pending());
        }
        let server = *self.server.lock().unwrap();
        Box::pin(async move { TcpStream::connect(server.unwrap()).await })
    }
}

/// The proxy of one call, and the server behind it.
pub(crate) struct World {
    pub(crate) access: Option<Access>,
    pub(crate) upstream: Arc<TestUpstream>,
    pub(crate) proxy: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) dns_tcp: SocketAddr,
    /// The sockets of the ports 80, 443, 8443 and 9000.
    pub(crate) ports: HashMap<u16, u16>,
    pub(crate) service: SocketAddr,
    /// What the server received over each connection.
    pub(crate) received: Arc<Mutex<Vec<Vec<u8>>>>,
}

fn rule(host: &str, ports: &[&str], protocol: &str) -> DraftRule {
    let ports = ports.iter().map(|port| (*port).to_owned()).collect();
    DraftRule { host: host.to_owned(), ports, protocol: protocol.to_owned(), ..DraftRule::default() }
}

/// The profile of the tests.
pub(crate) fn profile(service: SocketAddr) -> Profile {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    let rules = vec![
        rule("tls.example.com", &[], ""),
        rule("*.wild.example.com", &[], ""),
        rule("plain.example.com", &["80"], "http"),
        DraftRule { methods: words(&["GET"]), paths: words(&["/v1"]), ..rule("api.example.com", &["80"], "http") },
        rule("both.example.com", &["8443"], "http"),
        rule("both.example.com", &["8443"], "https"),
        rule("raw.example.com", &["9000"], "tcp"),
        DraftRule { private_addresses: true, ..rule("private.example.com", &["80"], "http") },
        rule("*.closed.example.com", &["80"], "http"),
        rule("rebinding.example.com", &["80"], "http"),
    ];
    let host_services = vec![service.to_string()];
    let draft = DraftProfile { name: "tests".to_owned(), rules, host_services, ..DraftProfile::default() };
    Profiles::new(&[draft]).unwrap().find("tests").unwrap().clone()
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Budget::default()).await
    }

    pub(crate) async fn with(budget: Budget) -> Self {
        let received = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Arc::clone(&received)));
        let upstream = Arc::new(TestUpstream { server: Mutex::new(Some(server)), ..TestUpstream::default() });
        for name in ["tls", "a.wild", "plain", "api", "both", "raw"] {
            upstream.add(&format!("{name}.example.com"), &[&["203.0.113.80"]]);
        }
        for (name, addresses) in CLOSED {
            upstream.add(&format!("{name}.closed.example.com"), &[addresses]);
        }
        upstream.add("mixed.closed.example.com", &[&["10.0.0.1", "203.0.113.81", "::1"]]);
        upstream.add("silent.wild.example.com", &[&[SILENT]]);
        upstream.add("half.wild.example.com", &[&[SILENT, "203.0.113.80"]]);
        upstream.add("private.example.com", &[&["10.0.0.1"]]);
        upstream.add("rebinding.example.com", &[&["203.0.113.82"], &["169.254.169.254"]]);
        let std = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let any = || std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let (proxy, dns_tcp, service) = (std(), std(), std());
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let listeners: Vec<_> = [80, 443, 8443, 9000].map(|port| (port, any())).into();
        let ports = listeners.iter().map(|(port, listener)| (*port, listener.local_addr().unwrap().port())).collect();
        let known = |listener: &std::net::TcpListener| listener.local_addr().unwrap();
        let (proxy_at, dns_tcp_at, service_at) = (known(&proxy), known(&dns_tcp), known(&service));
        let dns = datagrams.local_addr().unwrap();
        let sockets = CommandSockets {
            proxy,
            name_server: Some((datagrams, dns_tcp)),
            ports: listeners,
            services: vec![("127.0.0.1:5432".parse().unwrap(), service)],
            base_urls: Vec::new(),
        };
        // An address of this machine that no range closes.
        let own: Arc<[IpAddr]> = Arc::new(["198.51.100.7".parse().unwrap()]);
        let profile = profile("127.0.0.1:5432".parse().unwrap());
        let outside = Outside {
            upstream: Arc::clone(&upstream) as Arc<dyn Upstream>,
            own_addresses: own,
            proxy: None,
            authority: Arc::new(Authority::new(&[]).unwrap()),
        };
        let access = Access::open(profile, sockets, Vec::new(), budget, outside).unwrap();
        let (access, service) = (Some(access), service_at);
        World { access, upstream, proxy: proxy_at, dns, dns_tcp: dns_tcp_at, ports, service, received }
    }

    /// Closes it, and returns the account.
    pub(crate) async fn close(&mut self) -> Report {
        self.access.take().unwrap().close().await
    }

    /// Takes what the server has received over all connections.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.received.lock().unwrap().iter_mut().flat_map(std::mem::take).collect()
    }
}

/// Names that lead to closed addresses only.
pub(crate) const CLOSED: &[(&str, &[&str])] = &[
    ("metadata", &["169.254.169.254"]),
    ("loopback", &["127.0.0.1", "::1"]),
    ("lan", &["192.168.1.1"]),
    ("ula", &["fd00:ec2::254"]),
    ("nat64", &["64:ff9b::a9fe:a9fe"]),
    ("mapped", &["::ffff:127.0.0.1"]),
    ("cgnat", &["100.64.0.1"]),
    ("own", &["198.51.100.7"]),
    ("unspecified", &["0.0.0.0"]),
    ("sixtofour", &["2002:7f00:1::"]),
];

/// The length of the content at `/big`: more than the buffers of sockets take.
pub(crate) const BIG: usize = 8 << 20;
/// Paths, and what the server answers before it closes.
const BAD_ANSWERS: &[(&str, &[u8])] = &[
    ("/nothing", b""),
    ("/no-http", b"SSH-2.0-OpenSSH_9.9\r\n"),
    ("/old", b"<html>no head</html>"),
    ("/unasked", b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi"),
    ("/other", b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nhi"),
    ("/two-lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc"),
    ("/second", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"),
    ("/early", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    ("/until-end", b"HTTP/1.0 200 OK\r\n\r\nall of it"),
];

/// A server that answers requests like HTTP, WebSockets and everything else with what it receives.
async fn serve(listener: TcpListener, received: Arc<Mutex<Vec<Vec<u8>>>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(answer(stream, Arc::clone(&received)));
    }
}

async fn answer(mut stream: TcpStream, received: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut buffer = vec![0; 65536];
    let mut all: Vec<u8> = Vec::new();
    let mut is_echo = false;
    let place = {
        let mut received = received.lock().unwrap();
        received.push(Vec::new());
        received.len() - 1
    };
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        received.lock().unwrap()[place].extend(&buffer[..length]);
        all.extend(&buffer[..length]);
        if is_echo || !all[0].is_ascii_uppercase() {
            stream.write_all(&buffer[..length]).await.unwrap();
        } else if let Some(at) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&all[..at]).to_ascii_lowercase();
            let path = head.split(' ').nth(1).unwrap_or_default();
            if let Some((_, answer)) = BAD_ANSWERS.iter().find(|(known, _)| *known == path) {
                stream.write_all(answer).await.unwrap();
                break;
            } else if path == "/big" {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n");
                stream.write_all(&[head.as_bytes(), &vec![b'x'; BIG]].concat()).await.unwrap();
            } else if head.contains("upgrade: websocket") {
                let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi";
                stream.write_all(answer).await.unwrap();
                is_echo = true;
            } else if all.ends_with(b"0\r\n\r\n") || !head.contains("\r\ntransfer-encoding: chunked") {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nX-Kept: yes\r\n\r\nok";
                stream.write_all(answer).await.unwrap();
            }
        }
    }
}

/// Sends pieces, closes its half, and returns everything that was answered.
pub(crate) async fn talk(to: SocketAddr, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        // The other side may have closed already.
        let _ = stream.write_all(piece).await;
        tokio::task::yield_now().await;
    }
    let _ = stream.shutdown().await;
    read_all(&mut stream).await
}

/// Everything up to the end, which may be a reset.
pub(crate) async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    let read = async {
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            all.extend(&buffer[..length]);
        }
    };
    timeout(Duration::from_secs(30), read).await.expect("the connection is closed");
    all
}

/// What an answer is, in a few words.
pub(crate) fn seen(answer: &[u8]) -> String {
    if let Some(rest) = answer.strip_prefix(ESTABLISHED.as_bytes()) {
        return format!("established, {}", seen(rest));
    }
    match answer {
        [] => "closed".to_owned(),
        [21, 3, 3, 0, 2, 2, 49] => "alert".to_owned(),
        _ => match answer.strip_prefix(b"HTTP/1.1 ") {
            Some(rest) => String::from_utf8_lossy(&rest[..3]).into_owned(),
            None => "data".to_owned(),
        },
    }
}
