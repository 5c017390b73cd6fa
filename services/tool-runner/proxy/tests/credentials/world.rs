//! The proxy of one call with credentials, and hosts that answer with what they receive, inside of TLS and in clear text.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use belay_network::{Credential, DraftCredential, DraftProfile, DraftRule, Host, Profile, Profiles, Secret};
use belay_proxy::{Access, Authority, Budget, CallCredential, CommandSockets, Outside, Pending, Report, Upstream};
use data_encoding::{BASE64, HEXLOWER};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

/// The value of the credential `token`, whose spellings differ in JSON and URLs.
pub(crate) const VALUE: &str = "tok_s3cr3t/Value+0123456789";
/// What the command has instead, of the same length.
pub(crate) const PLACEHOLDER: &str = "tok_AAAABBBBCCCCDDDDEEEEFFF";
/// The value of the credential `other`, which goes to another host.
pub(crate) const OTHER_VALUE: &str = "other-value-9876543210";
/// Its placeholder.
pub(crate) const OTHER_PLACEHOLDER: &str = "other-placeholder-000000000";
/// The values of the credentials `url` and `clear`.
pub(crate) const URL_VALUE: &str = "url-value-5647382910";
pub(crate) const CLEAR_VALUE: &str = "clear-value-5647382910";
/// The host with the credential `token`.
pub(crate) const HOST: &str = "api.example.com";

/// Everything that a test needs.
pub(crate) struct World {
    access: Option<Access>,
    /// What a call of a tool is served with.
    of_tool: (Profile, Vec<CallCredential>, Outside),
    pub(crate) proxy: SocketAddr,
    pub(crate) base_url: SocketAddr,
    authority: String,
    /// What the hosts have received, by connection.
    pub(crate) received: Arc<Mutex<Vec<Vec<u8>>>>,
}

struct TestUpstream {
    tls: SocketAddr,
    clear: SocketAddr,
}

impl Upstream for TestUpstream {
    fn resolve<'a>(&'a self, host: &'a Host) -> Pending<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async {
            match host.as_str() {
                "closed.example.com" => Ok(vec!["169.254.169.254".parse().unwrap()]),
                "nowhere.example.com" => Err(io::Error::new(io::ErrorKind::NotFound, "there is no such name")),
                _ => Ok(vec!["203.0.113.80".parse().unwrap()]),
            }
        })
    }

    fn dial(&self, address: SocketAddr) -> Pending<'_, io::Result<TcpStream>> {
        let to = if matches!(address.port(), 80 | 9000) { self.clear } else { self.tls };
        Box::pin(TcpStream::connect(to))
    }
}

fn credential(name: &str, host: &str, draft: DraftCredential) -> Credential {
    let hosts = vec![host.to_owned()];
    Credential::new(&DraftCredential { name: name.to_owned(), hosts, clear_text: true, ..draft }).unwrap()
}

fn rule(host: &str, credential: &str) -> DraftRule {
    let credential = (!credential.is_empty()).then(|| credential.to_owned());
    DraftRule { host: host.to_owned(), credential, ..DraftRule::default() }
}

impl World {
    /// With the credential `token` in this place of requests.
    pub(crate) async fn with(draft: DraftCredential) -> Self {
        let credentials = [
            credential("token", &format!("https://{HOST}"), draft),
            credential("other", "https://other.example.com", DraftCredential::default()),
            credential("url", "https://model.example.com", DraftCredential::default()),
            credential("clear", "http://clear.example.com", DraftCredential::default()),
        ];
        let url = DraftRule {
            base_url: Some("MODEL_URL".to_owned()),
            paths: vec!["/v1".to_owned()],
            ..rule("model.example.com", "url")
        };
        let raw =
            DraftRule { protocol: "tcp".to_owned(), ports: vec!["9000".to_owned()], ..rule("raw.example.com", "") };
        let rules = vec![
            DraftRule { paths: vec!["/open".to_owned()], ..rule(HOST, "") },
            DraftRule { methods: vec!["GET".to_owned(), "POST".to_owned()], ..rule(HOST, "token") },
            rule("other.example.com", "other"),
            rule("untrusted.example.com", "untrusted"),
            DraftRule { protocol: "http".to_owned(), ..rule("plain.example.com", "") },
            DraftRule { protocol: "http".to_owned(), ..rule("clear.example.com", "clear") },
            rule("unread.example.com", ""),
            DraftRule {
                methods: vec!["GET".to_owned()],
                paths: vec!["/docs".to_owned()],
                ..rule("limited.example.com", "")
            },
            rule("closed.example.com", ""),
            rule("nowhere.example.com", ""),
            raw,
            url,
        ];
        let untrusted = credential("untrusted", "https://untrusted.example.com", DraftCredential::default());
        let credentials = [credentials.to_vec(), vec![untrusted]].concat();
        let draft = DraftProfile { name: "tests".to_owned(), rules, ..DraftProfile::default() };
        let profile = Profiles::with_credentials(&[draft], &credentials).unwrap().find("tests").unwrap().clone();

        let issuer = issuer();
        let received = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let tls = serve(Some(acceptor(&issuer)), Arc::clone(&received)).await;
        let clear = serve(None, Arc::clone(&received)).await;
        let authority = Arc::new(Authority::new(&[issuer.pem()]).unwrap());
        let certificate = authority.certificate();
        let outside = Outside {
            upstream: Arc::new(TestUpstream { tls, clear }),
            own_addresses: Arc::new([]),
            proxy: None,
            authority,
        };
        let std = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (proxy, url) = (std(), std());
        let (proxy_at, base_url) = (proxy.local_addr().unwrap(), url.local_addr().unwrap());
        let sockets =
            CommandSockets { proxy, name_server: None, ports: Vec::new(), services: Vec::new(), base_urls: vec![url] };
        let of = |name: &str, value: &str, placeholder: &str| CallCredential {
            name: name.to_owned(),
            placeholder: placeholder.to_owned(),
            secret: Secret::new(value.as_bytes().to_vec()).unwrap(),
        };
        let credentials = vec![
            of("token", VALUE, PLACEHOLDER),
            of("other", OTHER_VALUE, OTHER_PLACEHOLDER),
            of("url", URL_VALUE, "placeholder-of-the-url"),
            of("clear", CLEAR_VALUE, "placeholder-in-clear"),
            of("untrusted", "untrusted-value-1234", "placeholder-of-untrusted"),
        ];
        let of_tool = (profile.for_tools(), credentials.clone(), outside.clone());
        let access = Access::open(profile, sockets, credentials, Budget::default(), outside).unwrap();
        Self { access: Some(access), of_tool, proxy: proxy_at, base_url, authority: certificate, received }
    }

    pub(crate) async fn new() -> Self {
        Self::with(DraftCredential::default()).await
    }

    /// The account so far, once nothing runs.
    pub(crate) async fn close(&mut self) -> Report {
        self.access.take().unwrap().close().await
    }

    /// The account so far.
    pub(crate) fn report(&self) -> Report {
        self.access.as_ref().unwrap().report()
    }

    /// The connection of a tool, and what serves one request on it.
    pub(crate) fn tool(&self, budget: Budget) -> (UnixStream, Access) {
        let (profile, credentials, outside) = self.of_tool.clone();
        let (client, served) = std::os::unix::net::UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        let access = Access::of_tool(profile, served, credentials, budget, outside).unwrap();
        (UnixStream::from_std(client).unwrap(), access)
    }

    /// The answer to a request of a tool, and its account.
    pub(crate) async fn ask_for_tool(&self, request: &str) -> (String, Report) {
        let (mut client, access) = self.tool(Budget::default());
        let answer = talk(&mut client, request.as_bytes()).await;
        (answer, access.close().await)
    }

    /// Trusts the proxy's authority alone.
    pub(crate) fn connector(&self) -> TlsConnector {
        connector(&self.authority)
    }

    /// All that hosts have received.
    pub(crate) fn received(&self) -> String {
        String::from_utf8_lossy(&self.received.lock().unwrap().concat()).into_owned()
    }

    /// Opens a tunnel to a host.
    pub(crate) async fn tunnel(&self, host: &str, port: u16) -> TcpStream {
        let mut stream = TcpStream::connect(self.proxy).await.unwrap();
        let connect = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        stream.write_all(connect.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        stream
    }

    /// The TLS of a program that trusts the proxy's authority alone.
    pub(crate) async fn tls(&self, host: &str) -> tokio_rustls::client::TlsStream<TcpStream> {
        let stream = self.tunnel(host, 443).await;
        let name = ServerName::try_from(host.to_owned()).unwrap();
        self.connector().connect(name, stream).await.unwrap()
    }

    /// The answer to a request inside of TLS.
    pub(crate) async fn ask(&self, host: &str, request: &str) -> String {
        talk(&mut self.tls(host).await, request.as_bytes()).await
    }

    /// The answer to `GET path` of the host with the credential.
    pub(crate) async fn get(&self, path: &str) -> String {
        self.ask(HOST, &format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nX-Sent: {PLACEHOLDER}\r\n\r\n")).await
    }
}

/// Trusts one authority.
pub(crate) fn connector(pem: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Sends a request, and reads up to the end.
pub(crate) async fn talk<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, request: &[u8]) -> String {
    // The other side may have closed already.
    let _ = stream.write_all(request).await;
    let _ = stream.flush().await;
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    let read = async {
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            all.extend(&buffer[..length]);
        }
    };
    timeout(Duration::from_secs(30), read).await.expect("the connection is closed");
    String::from_utf8_lossy(&all).into_owned()
}

fn issuer() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Answers in the names of the hosts. The one of `untrusted.example.com` is not certified.
fn acceptor(issuer: &CertifiedIssuer<'static, KeyPair>) -> TlsAcceptor {
    let names = [HOST, "other.example.com", "unread.example.com", "model.example.com", "limited.example.com"];
    let names = names.map(str::to_owned);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, issuer).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(tls: Option<TlsAcceptor>, received: Arc<Mutex<Vec<Vec<u8>>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (tls, received) = (tls.clone(), Arc::clone(&received));
            tokio::spawn(async move {
                match tls {
                    // A client that does not trust the certificate ends here.
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            answer(stream, received).await;
                        }
                    }
                    None => answer(stream, received).await,
                }
            });
        }
    });
    address
}

/// Answers with everything that was received, in the way that the path says.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, received: Arc<Mutex<Vec<Vec<u8>>>>) {
    let place = {
        let mut received = received.lock().unwrap();
        received.push(Vec::new());
        received.len() - 1
    };
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    let head = loop {
        let Ok(length @ 1..) = stream.read(&mut buffer).await else { return };
        received.lock().unwrap()[place].extend(&buffer[..length]);
        all.extend(&buffer[..length]);
        if let Some(at) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            break String::from_utf8_lossy(&all[..at + 4]).into_owned();
        }
        if !all[0].is_ascii_uppercase() {
            return;
        }
    };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    while all.len() < head.len() + length.unwrap_or(0) {
        let Ok(length @ 1..) = stream.read(&mut buffer).await else { return };
        received.lock().unwrap()[place].extend(&buffer[..length]);
        all.extend(&buffer[..length]);
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let path = path.split('?').next().unwrap_or_default();
    let with = |headers: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    let answer = match path {
        "/base64" => with("", BASE64.encode(format!("user:{VALUE}").as_bytes()).as_bytes()),
        "/hex" => with("", HEXLOWER.encode(VALUE.as_bytes()).as_bytes()),
        "/url" => with("", b"token=tok_s3cr3t%2FValue%2B0123456789&x=1"),
        "/json" => with("Content-Type: application/json\r\n", br#"{"token":"tok_s3cr3t\/Value+0123456789"}"#),
        "/other" => with("", OTHER_VALUE.as_bytes()),
        "/cookie" => with(
            &format!("Set-Cookie: session={VALUE}; Path=/\r\nX-Echo: Bearer {VALUE}\r\nLocation: /?t={VALUE}\r\n"),
            b"",
        ),
        "/error" => format!("HTTP/1.1 500 {VALUE}\r\nContent-Length: {}\r\n\r\n{VALUE}", VALUE.len()).into_bytes(),
        "/gzip" => with("Content-Encoding: gzip\r\n", b"\x1f\x8b not really"),
        "/own" => with("Belay-Proxy: refused\r\n", b"of the host"),
        "/many-headers" => with(&"X-A: b\r\n".repeat(300), b""),
        "/long-header" => with(&format!("X-A: {}\r\n", "b".repeat(1 << 20)), b""),
        "/large" => with("", &vec![b'x'; 4 << 20]),
        "/never" => return tokio::time::sleep(Duration::from_secs(600)).await,
        "/cut" => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".to_vec(),
        "/gzip-hop" => with("Content-Encoding: gzip\r\nConnection: content-encoding\r\n", b"\x1f\x8b not really"),
        "/gzip-transfer" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".to_vec(),
        "/part" => format!("HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\n{}", &VALUE[..5]).into_bytes(),
        "/parts" => with("Content-Type: multipart/byteranges; boundary=x\r\n", b"--x--"),
        "/html" => with("", b"<p>tok_s3cr3t&#x2F;Value&#43;0123456789</p>"),
        "/unicode" => with("", br#"{"t":"tok_s3cr3t\u002fValue\u002B0123456789"}"#),
        "/twice" => with("", b"/login?next=%2Fx%3Fkey%3Dtok_s3cr3t%252FValue%252B0123456789"),
        "/upper" => with("", VALUE.to_uppercase().as_bytes()),
        "/lines" => {
            let base64 = BASE64.encode(format!("some longer text before it: {VALUE}").as_bytes());
            with("", base64.as_bytes().chunks(20).collect::<Vec<_>>().join(&b"\r\n"[..]).as_slice())
        }
        "/until-end" => format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{VALUE}").into_bytes(),
        "/chunks" => {
            // A chunk, and a segment, for each byte.
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
            for byte in VALUE.bytes() {
                stream.write_all(&[b"1\r\n", [byte].as_slice(), b"\r\n"].concat()).await.unwrap();
                stream.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
            stream.write_all(b"0\r\n\r\n").await.unwrap();
            stream.flush().await.unwrap();
            return;
        }
        "/socket" => {
            let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
            // The value in two frames of one message.
            let (one, two) = VALUE.split_at(11);
            let frame = |first: u8, text: &str| [&[first, text.len() as u8][..], text.as_bytes()].concat();
            let frames = [frame(0x01, one), frame(0x80, &format!("{two} hello"))].concat();
            stream.write_all(&[answer.as_slice(), &frames].concat()).await.unwrap();
            stream.flush().await.unwrap();
            let Ok(length @ 1..) = stream.read(&mut buffer).await else { return };
            stream.write_all(&buffer[..length]).await.unwrap();
            stream.shutdown().await.unwrap();
            return;
        }
        _ => with("", &all),
    };
    // The client may be gone.
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}
