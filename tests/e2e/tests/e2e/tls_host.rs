//! A host inside of TLS that has an authority of the operator's: a private registry, a forge or a model.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto::ring, pki_types::PrivateKeyDer};

/// The host. It answers each request with what it has received, or as the path says.
pub(crate) struct TlsHost {
    pub(crate) address: SocketAddr,
    /// The certificate of its authority.
    pub(crate) authority: String,
    /// Has an entry for each request.
    pub(crate) heard: mpsc::Receiver<()>,
    /// The heads of the requests.
    received: Arc<Mutex<Vec<String>>>,
}

impl TlsHost {
    pub(crate) fn start() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, received) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let (all, (hears, heard)) = (Arc::clone(&received), mpsc::channel());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, all, hears) = (Arc::clone(&config), Arc::clone(&all), hears.clone());
                thread::spawn(move || {
                    let connection = ServerConnection::new(config).unwrap();
                    // A client that does not trust the certificate ends here.
                    let _ = answer(StreamOwned::new(connection, stream), &all, &hears);
                });
            }
        });
        Self { address, authority: issuer.pem(), heard, received }
    }

    pub(crate) fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }
}

/// Answers one request as its path says; with its head and its body, as they are, in hexadecimal digits, and in a cookie, if it says nothing.
fn answer(
    stream: impl std::io::Read + Write,
    received: &Mutex<Vec<String>>,
    hears: &mpsc::Sender<()>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::new());
    while stream.read_line(&mut line)? > 2 {
        head += &line;
        line.clear();
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let is_first = {
        let mut received = received.lock().unwrap();
        received.push(head.clone());
        received.iter().filter(|head| head.split(' ').nth(1) == Some(&path)).count() == 1
    };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    // A test that has ended does not hear it.
    let _ = hears.send(());
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
    let token = format!("{}{}", header("authorization: "), header("x-api-key: "));
    let (status, more, body) = match path.as_str() {
        "/silent-once" if is_first => {
            thread::sleep(Duration::from_secs(600));
            return Ok(());
        }
        "/missing" => ("404 Not Found", String::new(), "no such thing".to_owned()),
        "/page" => (
            "200 OK",
            "Content-Type: text/html; charset=utf-8\r\n".to_owned(),
            "<html><head><title>Guide</title><script>x()</script></head><body><p>One &amp; <b>two</b></p></body></html>".to_owned(),
        ),
        // As SearXNG answers.
        path if path.starts_with("/search?") => {
            let at = header("host: ");
            let result = |path: &str, title: &str, content: &str| {
                format!(r#"{{"url": "https://{at}{path}", "title": "{title}", "content": "{content}", "engine": "e"}}"#)
            };
            let results = [
                result("/moved#top", "Guide", "a page"),
                result("/picture", "Picture", "two of them"),
                r#"{"url": "https://elsewhere.example.org/", "title": "Elsewhere", "content": "not read"}"#.to_owned(),
            ];
            ("200 OK", "Content-Type: application/json\r\n".to_owned(), format!("{{\"results\": [{}]}}", results.join(",")))
        }
        // As a model answers, in one piece; and one that does not say what it has used.
        "/v1/chat/completions" => (
            "200 OK",
            "Content-Type: application/json\r\n".to_owned(),
            r#"{"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}}"#.to_owned(),
        ),
        "/v1/unsaid" => ("200 OK", "Content-Type: application/json\r\n".to_owned(), format!("{{\"text\": \"{}\"}}", "x".repeat(4_000))),
        "/picture" => ("200 OK", "Content-Type: image/png\r\n".to_owned(), "not really".to_owned()),
        "/moved" => ("302 Found", "Location: /page\r\n".to_owned(), String::new()),
        "/moved-away" => ("302 Found", "Location: https://elsewhere.example.org/\r\n".to_owned(), String::new()),
        "/moved-to-clear" => ("302 Found", "Location: http://localhost/\r\n".to_owned(), String::new()),
        "/moved-in-circles" => ("302 Found", "Location: /moved-in-circles\r\n".to_owned(), String::new()),
        _ => (
            "200 OK",
            format!("Set-Cookie: token={token}\r\n"),
            format!("{head}{}\ntoken: {token}\nhex: {}\n", String::from_utf8_lossy(&body), hex(&token)),
        ),
    };
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{more}Connection: close\r\n\r\n{body}", body.len());
    stream.get_mut().write_all(answer.as_bytes())?;
    stream.get_mut().flush()
}

/// The bytes of a text in hexadecimal digits.
pub(crate) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
