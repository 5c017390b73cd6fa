//! Messages as a receiver gets them, and receivers that do not accept them.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use belay_webhooks::{Receiver, Secret, SendError};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn receiver(url: &str, timeout: Duration) -> Receiver {
    Receiver::new(url, Secret::parse(SECRET).unwrap(), timeout).unwrap()
}

/// Reads a request with this body, and gives the answer.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, body: &str, answer: &str) -> String {
    let mut request = Vec::new();
    while !String::from_utf8_lossy(&request).ends_with(body) {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the whole request comes");
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    String::from_utf8(request).unwrap()
}

#[tokio::test]
async fn a_message_is_posted_with_the_headers_of_standard_webhooks() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}/hooks/one?key=2");
    let receiver = receiver(&url, Duration::from_secs(30));
    assert_eq!(receiver.address(), format!("http://{address}"), "no path in logs");
    let body = r#"{"test": 2432232314}"#;
    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        answer(stream, body, "HTTP/1.1 204 No Content\r\n\r\n").await
    };
    let (sent, request) = tokio::join!(receiver.send("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body), serving);
    sent.unwrap();
    assert!(request.starts_with("POST /hooks/one?key=2 HTTP/1.1\r\n"), "{request}");
    for header in [
        &format!("host: {address}"),
        "content-type: application/json",
        "content-length: 20",
        "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp: 1614265330",
        "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ] {
        assert!(request.contains(&format!("\r\n{header}\r\n")), "{header}: {request}");
    }
}

#[tokio::test]
async fn only_a_success_is_a_delivery() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let receiver = receiver(&url, Duration::from_secs(30));
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", None),
        ("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", Some("302 Found")),
        ("HTTP/1.1 410 Gone\r\n\r\n", Some("410 Gone")),
        ("HTTP/1.1 500 Internal Server Error\r\n\r\n", Some("500 Internal Server Error")),
        ("not HTTP at all\r\n\r\n", Some("the request failed")),
        ("", Some("the request failed")),
    ];
    for (reply, says) in cases {
        let serving = async {
            let (stream, _) = listener.accept().await.unwrap();
            answer(stream, "body", reply).await
        };
        let (sent, _) = tokio::join!(receiver.send("id", 1, "body"), serving);
        match (sent, says) {
            (Ok(()), None) => {}
            (Err(error), Some(says)) => assert!(error.to_string().contains(says), "{reply}: {error}"),
            (sent, _) => panic!("{reply}: {sent:?}"),
        }
    }
    // Bound, so that no other test gets the port, and not listening.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    let refused = self::receiver(&url, Duration::from_secs(30)).send("id", 1, "body").await;
    assert!(matches!(refused, Err(SendError::Connect(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_is_given_up_at_its_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let receiver = receiver(&url, Duration::from_secs(30));
    let error = receiver.send("id", 1, "body").await.unwrap_err();
    assert_eq!(error.to_string(), "the receiver did not answer within 30 s");
}

/// A certificate for localhost in `folder`; `None` without openssl.
fn certificate(folder: &Path) -> Option<ServerConfig> {
    let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "9"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    // An authority is refused as a server.
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    if !openssl.output().ok()?.status.success() {
        return None;
    }
    let chain = vec![CertificateDer::from_pem_file(&certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Some(config.with_single_cert(chain, key).unwrap())
}

/// The program of the test below, with its certificate in `SSL_CERT_FILE`.
#[tokio::test]
#[ignore = "started by another test"]
async fn tls_child() {
    let folder = std::env::var_os("BELAY_TEST_CERTIFICATES").unwrap();
    let config = certificate(Path::new(&folder)).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = async || {
        let (stream, _) = listener.accept().await.unwrap();
        match acceptor.accept(stream).await {
            Ok(stream) => drop(answer(stream, "body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await),
            Err(error) => eprintln!("the client ended the connection: {error}"),
        }
    };
    let time = Duration::from_secs(30);
    let trusting = receiver(&format!("https://localhost:{port}/"), time);
    let (sent, ()) = tokio::join!(trusting.send("id", 1, "body"), serving());
    sent.unwrap();
    // The certificate is for another name.
    let other = receiver(&format!("https://127.0.0.1:{port}/"), time);
    let (sent, ()) = tokio::join!(other.send("id", 1, "body"), serving());
    assert!(matches!(sent, Err(SendError::Tls(_))), "{sent:?}");
}

/// The certificate of an `https` receiver has to be valid and trusted; `SSL_CERT_FILE` names authorities of one's own.
#[test]
fn a_receiver_over_tls_is_who_it_says() {
    let folder = tempfile::tempdir().unwrap();
    if certificate(folder.path()).is_none() {
        eprintln!("skipped: a_receiver_over_tls_is_who_it_says needs openssl");
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "tls_child", "--ignored", "--nocapture"]);
    child.env("BELAY_TEST_CERTIFICATES", folder.path());
    let ended = child.env("SSL_CERT_FILE", folder.path().join("certificate.pem")).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && text.contains("1 passed"), "{text}");
}
