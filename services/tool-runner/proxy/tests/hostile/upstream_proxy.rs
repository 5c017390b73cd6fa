//! The operator's proxy, behind which hosts are reached: what it is asked, and what becomes of its answers.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
};

use belay_network::{DraftProfile, DraftRule, Host, HostPattern, Profiles, UpstreamProxy};
use belay_proxy::{Access, Authority, Budget, CommandSockets, Outside, Pending, Report, Upstream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::world::{ESTABLISHED, talk};

/// Resolves only the proxy and `direct.example.com`, and leads everything to one server.
struct TestUpstream {
    server: SocketAddr,
    resolved: Mutex<Vec<String>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl Upstream for TestUpstream {
    fn resolve<'a>(&'a self, host: &'a Host) -> Pending<'a, io::Result<Vec<IpAddr>>> {
        self.resolved.lock().unwrap().push(host.to_string());
        // A proxy of the operator's own network.
        let known = [("proxy.corp.example", "10.0.0.9"), ("direct.example.com", "203.0.113.80")];
        let found = known.iter().find(|(name, _)| *name == host.as_str());
        let found = found.map(|(_, address)| vec![address.parse().unwrap()]);
        Box::pin(async { found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such name")) })
    }

    fn dial(&self, address: SocketAddr) -> Pending<'_, io::Result<TcpStream>> {
        self.dialled.lock().unwrap().push(address);
        Box::pin(TcpStream::connect(self.server))
    }
}

/// A server that answers the head of a request with this text, and what follows with itself.
async fn server(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, received) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
    let all = Arc::clone(&received);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    head.push(byte);
                }
                all.lock().unwrap().extend(&head);
                stream.write_all(answer.as_bytes()).await.unwrap();
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    stream.write_all(&buffer[..length]).await.unwrap();
                }
            });
        }
    });
    (address, received)
}

/// Talks through the proxy of a call, whose hosts are behind that of the operator, which answers with this text.
async fn through(answer: &'static str, request: &[&[u8]]) -> (Vec<u8>, String, Report, Arc<TestUpstream>) {
    let (server, received) = server(answer).await;
    let upstream = Arc::new(TestUpstream { server, resolved: Mutex::default(), dialled: Mutex::default() });
    let rule = |host: &str, port: &str| DraftRule {
        host: host.to_owned(),
        ports: vec![port.to_owned()],
        protocol: "tcp".to_owned(),
        ..DraftRule::default()
    };
    let rules = vec![rule("far.example.com", "9000"), rule("direct.example.com", "9000")];
    let draft = DraftProfile { name: "tests".to_owned(), rules, ..DraftProfile::default() };
    let profile = Profiles::new(&[draft]).unwrap().find("tests").unwrap().clone();
    let direct = vec![HostPattern::parse("direct.example.com").unwrap()];
    let outside = Outside {
        upstream: Arc::clone(&upstream) as Arc<dyn Upstream>,
        own_addresses: Arc::new([]),
        proxy: Some(Arc::new(UpstreamProxy::parse("http://proxy.corp.example:3128", direct).unwrap())),
        authority: Arc::new(Authority::new(&[]).unwrap()),
    };
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = proxy.local_addr().unwrap();
    let sockets =
        CommandSockets { proxy, name_server: None, ports: Vec::new(), services: Vec::new(), base_urls: Vec::new() };
    let access = Access::open(profile, sockets, Vec::new(), Budget::default(), outside).unwrap();
    let answer = talk(at, request).await;
    let received = String::from_utf8(received.lock().unwrap().clone()).unwrap();
    (answer, received, access.close().await, upstream)
}

const CONNECT: &[u8] = b"CONNECT far.example.com:9000 HTTP/1.1\r\nHost: far.example.com:9000\r\n\r\n";

#[tokio::test]
async fn a_host_is_reached_behind_the_operators_proxy_which_resolves_it() {
    let (answer, received, report, upstream) =
        through("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n", &[CONNECT, b"hello"]).await;
    assert_eq!(answer, format!("{ESTABLISHED}hello").into_bytes());
    assert_eq!(received, "CONNECT far.example.com:9000 HTTP/1.1\r\nHost: far.example.com:9000\r\n\r\n");
    assert_eq!(*upstream.resolved.lock().unwrap(), ["proxy.corp.example"]);
    assert_eq!(*upstream.dialled.lock().unwrap(), ["10.0.0.9:3128".parse().unwrap()]);
    assert!(report.connections[0].is_allowed && report.connections[0].failure.is_empty(), "{report:?}");
}

#[tokio::test]
async fn an_answer_that_is_no_tunnel_is_a_failure_that_names_the_proxy() {
    for answer in [
        "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
        "HTTP/1.1 403 Forbidden\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "\r\n\r\n",
    ] {
        let (seen, _, report, _) = through(answer, &[CONNECT, b"hello"]).await;
        assert!(seen.starts_with(b"HTTP/1.1 502 "), "{answer}: {}", String::from_utf8_lossy(&seen));
        let failure = &report.connections[0].failure;
        assert!(failure.contains("by http://proxy.corp.example:3128: it answers"), "{answer}: {failure}");
    }
}

#[tokio::test]
async fn what_is_refused_is_not_asked_for_and_what_is_direct_is_not_asked_of_the_proxy() {
    let (seen, received, _, upstream) =
        through("HTTP/1.1 200 OK\r\n\r\n", &[b"CONNECT other.example.com:9000 HTTP/1.1\r\n\r\n"]).await;
    assert!(seen.starts_with(b"HTTP/1.1 403 ") && received.is_empty());
    assert!(upstream.dialled.lock().unwrap().is_empty());

    let request: &[&[u8]] = &[b"CONNECT direct.example.com:9000 HTTP/1.1\r\n\r\n", b"hi\r\n\r\n"];
    let (seen, received, _, upstream) = through("welcome", request).await;
    assert_eq!(seen, format!("{ESTABLISHED}welcome").into_bytes());
    assert_eq!(received, "hi\r\n\r\n");
    assert_eq!(*upstream.dialled.lock().unwrap(), ["203.0.113.80:9000".parse().unwrap()]);
}
