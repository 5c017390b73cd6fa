//! The cases: what was tried, and what has to be seen.

use belay_network::DraftCredential;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{CLEAR_VALUE, HOST, OTHER_PLACEHOLDER, OTHER_VALUE, PLACEHOLDER, URL_VALUE, VALUE, World, talk};

/// Spellings of the value, none of which a command may see.
fn has_value(text: &str) -> bool {
    let base64 = "dG9rX3MzY3IzdC9WYWx1ZSswMTIzNDU2Nzg5";
    let spellings =
        [VALUE, "s3cr3t%2FValue%2B", r"s3cr3t\/Value", &base64[4..], "b2tfczNjcjN0L1ZhbHVl", "a19zM2NyM3QvVmFsdWUr"];
    spellings.iter().any(|spelling| text.contains(spelling)) || text.contains("746f6b5f733363723374")
}

#[tokio::test]
async fn a_request_carries_the_value_in_each_place_and_nothing_of_what_the_client_has_sent_there() {
    let header = DraftCredential { header: Some("X-Api-Key".to_owned()), ..DraftCredential::default() };
    let basic = DraftCredential { basic: Some("user".to_owned()), ..DraftCredential::default() };
    let query = DraftCredential { query: Some("key".to_owned()), ..DraftCredential::default() };
    for (draft, expected) in [
        (DraftCredential::default(), format!("authorization: Bearer {VALUE}\r\n")),
        (header, format!("x-api-key: {VALUE}\r\n")),
        (basic, "authorization: Basic dXNlcjp0b2tfczNjcjN0L1ZhbHVlKzAxMjM0NTY3ODk=\r\n".to_owned()),
        (query, "GET /echo?a=1&key=tok_s3cr3t%2FValue%2B0123456789 HTTP/1.1\r\n".to_owned()),
    ] {
        let mut world = World::with(draft).await;
        let request = format!(
            "GET /echo?a=1&key={PLACEHOLDER} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {PLACEHOLDER}\r\nX-Api-Key: {PLACEHOLDER}\r\n\r\n"
        );
        let answer = world.ask(HOST, &request).await;
        let received = world.received();
        assert!(received.contains(&expected), "{expected}: {received}");
        let carried = received.matches(VALUE).count()
            + received.matches("tok_s3cr3t%2F").count()
            + received.matches("Basic ").count();
        assert_eq!(carried, 1, "{received}");
        assert!(answer.starts_with("HTTP/1.1 200") && !has_value(&answer), "{answer}");
        let report = world.close().await;
        let uses: Vec<_> =
            report.credentials.iter().map(|used| (used.name.as_str(), used.host.as_str(), used.count)).collect();
        assert_eq!(uses, [("token", HOST, 1)]);
        let connection = &report.connections[0];
        assert!(
            connection.is_allowed
                && connection.failure.is_empty()
                && connection.rule.contains("with the credential token"),
            "{connection:?}"
        );
    }
}

#[tokio::test]
async fn no_value_comes_back_in_any_form() {
    for path in [
        "/echo",
        "/base64",
        "/hex",
        "/url",
        "/json",
        "/other",
        "/cookie",
        "/error",
        "/until-end",
        "/chunks",
        "/html",
        "/unicode",
        "/twice",
        "/upper",
        "/lines",
    ] {
        let mut world = World::new().await;
        let answer = world.get(path).await;
        assert!(answer.starts_with("HTTP/1.1 200") || path == "/error", "{path}: {answer}");
        assert!(!has_value(&answer) && !answer.contains(OTHER_VALUE), "{path}: {answer}");
        let left = answer.to_ascii_lowercase();
        assert!(!left.contains("s3cr3t") && !left.contains("value"), "{path}: {answer}");
        let shown = ["*****", "BBBBCCCC"].iter().any(|text| answer.contains(text)) || path == "/other";
        assert!(shown, "{path}: the value was there: {answer}");
        world.close().await;
    }
}

/// An answer has its length, and what is not a value stays.
#[tokio::test]
async fn an_answer_without_values_is_as_it_was() {
    let mut world = World::new().await;
    let body = "x".repeat(100_000);
    let request = format!("POST /echo HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = world.ask(HOST, &request).await;
    let (head, echoed) = answer.split_once("\r\n\r\n").unwrap();
    let length: usize = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    assert!(echoed.len() == length && echoed.ends_with(&body), "{head}");
    world.close().await;
}

#[tokio::test]
async fn what_would_hide_a_value_in_an_answer_is_not_asked_for_and_not_passed_on() {
    let mut world = World::new().await;
    let request = format!(
        "GET /echo HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: gzip, br\r\nRange: bytes=0-9\r\nIf-Range: x\r\n\r\n"
    );
    world.ask(HOST, &request).await;
    let received = world.received().to_ascii_lowercase();
    assert!(received.contains("accept-encoding: identity\r\n"), "{received}");
    assert!(!received.contains("gzip") && !received.contains("range"), "{received}");
    for (path, why) in [
        ("/gzip", "in a coding that was not asked for"),
        ("/gzip-hop", "in a coding that was not asked for"),
        ("/gzip-transfer", "in a coding that was not asked for"),
        ("/part", "with a part that was not asked for"),
        ("/parts", "with a part that was not asked for"),
    ] {
        let answer = world.get(path).await;
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains(why), "{path}: {answer}");
    }
    world.close().await;
}

#[tokio::test]
async fn a_web_socket_carries_the_value_and_loses_it_in_what_comes_back() {
    let mut world = World::new().await;
    let mut stream = world.tls(HOST).await;
    let request = format!(
        "GET /socket HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Key: x\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("hello") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let (one, two) = PLACEHOLDER.split_at(11);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 101") && !answer.contains("s3cr3t") && answer.contains(one), "{answer}");
    assert!(answer.ends_with(&format!("{two} hello")), "{answer}");
    let frame = b"\x81\x04ping";
    assert_eq!(talk(&mut stream, frame).await.as_bytes(), b"\xef\xbf\xbd\x04ping");
    let received = world.received();
    assert!(received.contains(&format!("Bearer {VALUE}")) && !received.contains("permessage-deflate"), "{received}");
    world.close().await;
}

/// A placeholder in the request to another host, as it is and in base64, in each part of the request.
#[tokio::test]
async fn a_placeholder_on_its_way_to_another_host_is_refused_and_nothing_is_sent() {
    let base64 = data_encoding::BASE64.encode(format!("user:{OTHER_PLACEHOLDER}").as_bytes());
    let long = "x".repeat(50_000);
    let requests = [
        format!("GET /?t={OTHER_PLACEHOLDER} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Token: {OTHER_PLACEHOLDER}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Basic {base64}\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 27\r\n\r\n{OTHER_PLACEHOLDER}"),
        format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 50027\r\n\r\n{long}{OTHER_PLACEHOLDER}"),
    ];
    for request in requests {
        let mut world = World::new().await;
        let answer = world.ask(HOST, &request).await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("placeholder of a credential"), "{answer}");
        assert!(!world.received().contains("other-placeholder"), "{}", world.received());
        let report = world.close().await;
        assert_eq!(report.refusals, 1, "{report:?}");
        assert!(
            report.connections.iter().any(|refused| !refused.is_allowed && refused.rule.contains("placeholder")),
            "{report:?}"
        );
    }
}

#[tokio::test]
async fn a_placeholder_in_clear_text_is_refused() {
    let mut world = World::new().await;
    let mut stream = tokio::net::TcpStream::connect(world.proxy).await.unwrap();
    let request = format!("GET http://plain.example.com/{PLACEHOLDER} HTTP/1.1\r\nHost: plain.example.com\r\n\r\n");
    let answer = talk(&mut stream, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    // What is spoken over a raw connection is not known, but a placeholder is.
    let mut stream = world.tunnel("raw.example.com", 9000).await;
    let answer = talk(&mut stream, format!("\0hello {PLACEHOLDER}\n").as_bytes()).await;
    assert_eq!(answer, "");
    assert!(!world.received().contains(PLACEHOLDER), "{}", world.received());
    let report = world.close().await;
    assert_eq!(report.refusals, 2, "{report:?}");
}

/// The operator has said that it may go there in clear text.
#[tokio::test]
async fn a_credential_goes_to_a_host_in_clear_text_where_its_operator_says_so() {
    let mut world = World::new().await;
    let mut stream = tokio::net::TcpStream::connect(world.proxy).await.unwrap();
    let request = "GET http://clear.example.com/echo HTTP/1.1\r\nHost: clear.example.com\r\n\r\n";
    let answer = talk(&mut stream, request.as_bytes()).await;
    assert!(world.received().contains(&format!("Bearer {CLEAR_VALUE}")) && !answer.contains(CLEAR_VALUE), "{answer}");
    world.close().await;
}

#[tokio::test]
async fn methods_and_paths_are_enforced_inside_of_tls() {
    let mut world = World::new().await;
    let answer = world.ask(HOST, &format!("DELETE /x HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("methods: [DELETE]"), "{answer}");
    assert_eq!(world.received(), "");
    // A rule without a credential allows other methods on one path, and no value goes along.
    let answer = world.ask(HOST, &format!("DELETE /open HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200") && !has_value(&world.received()), "{answer}");
    world.close().await;
}

#[tokio::test]
async fn a_request_for_another_host_inside_of_the_tls_of_one_is_refused() {
    let mut world = World::new().await;
    for request in [
        "GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n".to_owned(),
        format!("GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {HOST}:8443\r\n\r\n"),
        format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"),
        format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nHost: other.example.com\r\n\r\n"),
    ] {
        let answer = world.ask(HOST, &request).await;
        assert!(answer.starts_with("HTTP/1.1 40"), "{request}: {answer}");
    }
    assert_eq!(world.received(), "");
    world.close().await;
}

/// A host answers under another rule what it was sent under one with a credential.
#[tokio::test]
async fn a_value_does_not_come_back_by_a_rule_without_the_credential() {
    let mut world = World::new().await;
    let request = format!(
        "DELETE /open HTTP/1.1\r\nHost: {HOST}\r\nRange: bytes=0-4\r\nAccept-Encoding: gzip\r\nX-Echo: x\r\n\r\n{VALUE}"
    );
    let answer = world.ask(HOST, &request.replace("X-Echo: x", &format!("X-Echo: {VALUE}"))).await;
    assert!(answer.starts_with("HTTP/1.1 200") && !has_value(&answer) && answer.contains("BBBBCCCC"), "{answer}");
    let received = world.received().to_ascii_lowercase();
    assert!(!received.contains("range") && !received.contains("gzip") && !received.contains("bearer"), "{received}");
    world.close().await;
}

/// By these headers some servers take another method or path than the ones that were judged.
#[tokio::test]
async fn headers_that_override_method_and_path_do_not_pass() {
    let mut world = World::new().await;
    let request = format!(
        "POST /x HTTP/1.1\r\nHost: {HOST}\r\nX-HTTP-Method-Override: DELETE\r\nX-Original-URL: /evil\r\nX-Rewrite-Url: /evil\r\nContent-Length: 0\r\n\r\n"
    );
    world.ask(HOST, &request).await;
    let received = world.received().to_ascii_lowercase();
    assert!(!received.contains("override") && !received.contains("/evil"), "{received}");
    world.close().await;
}

/// A second request on the same connection would be one that was not judged.
#[tokio::test]
async fn a_connection_takes_one_request() {
    let mut world = World::new().await;
    let one = format!("GET /echo HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let answer = world.ask(HOST, &format!("{one}DELETE /second HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    assert!(!world.received().contains("/second"), "{}", world.received());
    world.close().await;
}

#[tokio::test]
async fn a_host_that_is_not_certified_gets_nothing() {
    let mut world = World::new().await;
    let host = "untrusted.example.com";
    let answer = world.ask(host, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("its TLS was not accepted"), "{answer}");
    assert_eq!(world.received(), "");
    let report = world.close().await;
    assert!(
        report.connections[0].failure.contains("TLS was not accepted") && report.credentials.is_empty(),
        "{report:?}"
    );
}

/// A program that does not trust the proxy's authority is told in the account.
#[tokio::test]
async fn a_program_that_does_not_trust_the_authority_fails_with_a_reason() {
    let mut world = World::new().await;
    let stream = world.tunnel(HOST, 443).await;
    let foreign = belay_proxy::Authority::new(&[]).unwrap().certificate();
    let name = tokio_rustls::rustls::pki_types::ServerName::try_from(HOST).unwrap();
    assert!(crate::world::connector(&foreign).connect(name, stream).await.is_err());
    // The proxy reads the alert on a connection that the client has closed.
    tokio::task::yield_now().await;
    let report = loop {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let report = world.report();
        if !report.connections.is_empty() {
            break report;
        }
    };
    assert!(report.connections[0].failure.contains("$SSL_CERT_FILE"), "{report:?}");
    world.close().await;
}

/// What has no credential is passed on unread: the certificate is the host's own.
#[tokio::test]
async fn other_hosts_are_passed_on_unread() {
    let mut world = World::new().await;
    let stream = world.tunnel("unread.example.com", 443).await;
    let name = tokio_rustls::rustls::pki_types::ServerName::try_from("unread.example.com").unwrap();
    // The proxy's authority has not certified it.
    assert!(world.connector().connect(name, stream).await.is_err());
    world.close().await;
}

#[tokio::test]
async fn a_base_url_reaches_its_host_in_clear_text_of_the_command_and_with_the_value() {
    let mut world = World::new().await;
    let ask = async |request: &str| {
        let mut stream = tokio::net::TcpStream::connect(world.base_url).await.unwrap();
        talk(&mut stream, request.as_bytes()).await
    };
    let answer = ask("POST /v1/messages HTTP/1.1\r\nHost: 127.77.0.1:21081\r\nContent-Length: 2\r\n\r\n{}").await;
    let received = world.received();
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains(URL_VALUE), "{answer}");
    assert!(
        received.contains("host: model.example.com\r\n") && received.contains(&format!("Bearer {URL_VALUE}")),
        "{received}"
    );
    for (request, status) in [
        ("GET /other HTTP/1.1\r\nHost: x\r\n\r\n", "403"),
        ("GET http://model.example.com/v1 HTTP/1.1\r\nHost: model.example.com\r\n\r\n", "400"),
        ("CONNECT model.example.com:443 HTTP/1.1\r\nHost: model.example.com:443\r\n\r\n", "400"),
        ("garbage\r\n\r\n", "400"),
    ] {
        let answer = ask(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
    }
    // Directly, the host is refused with what to do.
    let mut stream = tokio::net::TcpStream::connect(world.proxy).await.unwrap();
    let answer =
        talk(&mut stream, b"CONNECT model.example.com:443 HTTP/1.1\r\nHost: model.example.com:443\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("the URL in $MODEL_URL"), "{answer}");
    let report = world.close().await;
    assert_eq!(report.credentials.len(), 1, "{report:?}");
}
