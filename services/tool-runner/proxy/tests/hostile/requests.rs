//! What hosts receive, and what is recorded.

use belay_proxy::Route;

use crate::{
    hello::hello,
    world::{BIG, ESTABLISHED, World, read_all, talk},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

#[tokio::test]
async fn a_request_is_written_anew_without_what_is_for_the_proxy() {
    let world = World::new().await;
    let request = "POST http://plain.example.com/a?b=c HTTP/1.1\r\nHost: PLAIN.example.com\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nConnection: x-hop, close\r\nX-Hop: 1\r\nTE: trailers\r\nX-End: 2\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n0\r\nX-Trailer: 3\r\n\r\n";
    let answer = String::from_utf8(talk(world.proxy, &[request.as_bytes()]).await).unwrap().to_ascii_lowercase();
    let received = String::from_utf8(world.received()).unwrap().to_ascii_lowercase();
    assert!(received.starts_with("post /a?b=c http/1.1\r\n"), "{received}");
    assert!(
        received.contains("\r\nhost: plain.example.com\r\n") && received.contains("\r\nx-end: 2\r\n"),
        "{received}"
    );
    assert!(received.ends_with("3\r\nabc\r\n0\r\n\r\n"), "{received}");
    for hidden in ["proxy-", "x-hop", "\r\nte:", "trailer", "ext=1"] {
        assert!(!received.contains(hidden), "{hidden}: {received}");
    }
    assert!(answer.contains("connection: close") && answer.contains("x-kept: yes"), "{answer}");
    assert!(!answer.contains("keep-alive") && answer.ends_with("\r\n\r\nok"), "{answer}");
}

#[tokio::test]
async fn a_refusal_says_what_to_add() {
    let world = World::new().await;
    let answer = talk(world.proxy, &[b"CONNECT evil.example.org:8080 HTTP/1.1\r\n\r\n"]).await;
    let answer = String::from_utf8(answer).unwrap();
    let sentence = "evil.example.org:8080 is not in the network profile `tests`; to allow it, the operator adds the rule `{host: evil.example.org, ports: [8080]}` to a profile that the step asks for";
    assert!(answer.starts_with(&format!("HTTP/1.1 403 Forbidden: {sentence}\r\n")), "{answer}");
    assert!(answer.ends_with(&format!("\r\n\r\n{sentence}\n")), "{answer}");
}

#[tokio::test]
async fn a_web_socket_passes_under_the_same_grant() {
    let mut world = World::new().await;
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    let request = "GET http://plain.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\nhi") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("\r\nupgrade: websocket\r\n"), "{head}");
    stream.write_all(b"frames").await.unwrap();
    let mut echoed = [0; 6];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"frames");
    let received = String::from_utf8(world.received()).unwrap().to_ascii_lowercase();
    assert!(received.contains("sec-websocket-key: a") && received.ends_with("frames"), "{received}");
    let report = world.close().await;
    let [one] = &report.connections[..] else { panic!("{report:?}") };
    assert!(one.is_allowed && one.rule == "http://plain.example.com:80" && one.sent_bytes > 60, "{one:?}");
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "the upgraded connection is closed");
}

#[tokio::test]
async fn a_call_is_accounted_for() {
    let mut world = World::new().await;
    let mut open = TcpStream::connect(world.proxy).await.unwrap();
    open.write_all(b"CONNECT tls.example.com:443 HTTP/1.1\r\n\r\n").await.unwrap();
    let sent = hello("tls.example.com");
    open.write_all(&sent).await.unwrap();
    let mut answer = vec![0; ESTABLISHED.len() + sent.len()];
    open.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[ESTABLISHED.len()..], sent);
    talk(world.proxy, &[b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n"]).await;
    for _ in 0..3 {
        crate::table::address_of(&world, "tls.example.com").await;
    }
    let report = world.close().await;
    assert_eq!(read_all(&mut open).await, b"", "closed with the call");
    let seen: Vec<_> =
        report.connections.iter().map(|one| (one.route, one.host.as_str(), one.port, one.is_allowed)).collect();
    assert_eq!(
        seen,
        [
            (Route::Proxy, "tls.example.com", 443, true),
            (Route::Proxy, "127.0.0.1", 22, false),
            (Route::NameServer, "tls.example.com", 0, true),
            (Route::NameServer, "marker.example.org", 0, false),
        ]
    );
    assert_eq!((report.questions, report.unlisted, report.is_over_budget, report.is_lost), (6, 0, false, false));
    let first = &report.connections[0];
    assert_eq!((first.sent_bytes, first.received_bytes), (sent.len() as u64, sent.len() as u64));
    assert_eq!(first.rule, "https://tls.example.com:443");
    assert!(report.connections[1].rule.contains("names are what certificates prove"));
}

#[tokio::test]
async fn half_closed_connections_pass_the_rest() {
    let mut world = World::new().await;
    let body = vec![7; 3 << 20];
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    stream.write_all(b"CONNECT raw.example.com:9000 HTTP/1.1\r\n\r\n").await.unwrap();
    let (mut reading, mut writing) = stream.split();
    let write = async {
        writing.write_all(&body).await.unwrap();
        writing.shutdown().await.unwrap();
    };
    let mut all = Vec::new();
    let (read, ()) = tokio::join!(reading.read_to_end(&mut all), write);
    read.unwrap();
    assert!(all[ESTABLISHED.len()..] == body, "{}", all.len());
    let report = world.close().await;
    assert_eq!(report.connections[0].sent_bytes, body.len() as u64);
    assert_eq!(report.connections[0].received_bytes, body.len() as u64);
}

/// A client that sends requests one behind the other, and reads late, gets the first answer whole.
#[tokio::test]
async fn requests_behind_a_request_do_not_cut_its_answer() {
    let world = World::new().await;
    let request = b"GET http://plain.example.com/big HTTP/1.1\r\nHost: plain.example.com\r\n\r\n".repeat(2_000);
    let socket = TcpSocket::new_v4().unwrap();
    // So the end of the answer waits at the proxy.
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(world.proxy).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(answer.len() - head, BIG);
    assert_eq!(world.received().windows(5).filter(|bytes| bytes == b"GET /").count(), 1);
}

#[tokio::test]
async fn bad_answers_of_a_host_are_failures() {
    let world = World::new().await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for (path, headers, status, end) in [
        ("/nothing", "", "502", "did not answer the request"),
        ("/no-http", "", "502", "did not answer the request"),
        ("/old", "", "502", "did not answer the request"),
        ("/unasked", "", "502", "changed to a protocol that was not asked for"),
        ("/other", upgrade, "502", "changed to a protocol that was not asked for"),
        ("/two-lengths", "", "502", "did not answer the request"),
        ("/second", "", "200", "\r\n\r\nok"),
        ("/early", "", "200", "\r\n\r\nok"),
        ("/until-end", "", "200", "all of it"),
    ] {
        let request =
            format!("GET http://plain.example.com{path} HTTP/1.1\r\nHost: plain.example.com\r\n{headers}\r\n");
        let answer = String::from_utf8(talk(world.proxy, &[request.as_bytes()]).await).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(end), "{path}: {answer}");
        assert!(!answer.contains("bad") || status == "502", "{path}: {answer}");
    }
}
