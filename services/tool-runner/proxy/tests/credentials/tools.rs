//! Requests of tools: one over a connected pair of sockets, judged and made by the proxy, inside of TLS too.

use std::time::Duration;

use belay_proxy::Budget;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::world::{CLEAR_VALUE, HOST, OTHER_PLACEHOLDER, PLACEHOLDER, VALUE, World, talk};

/// The header by which the proxy's own answers are known.
fn own(answer: &str) -> Option<&str> {
    answer.split("\r\n\r\n").next()?.lines().find_map(|line| line.strip_prefix("belay-proxy: "))
}

fn get(url: &str) -> String {
    let host = url.split("://").nth(1).unwrap().split(['/', '?']).next().unwrap();
    format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[tokio::test]
async fn what_the_profile_allows_is_asked_for_inside_of_tls_and_in_clear_text() {
    let mut world = World::new().await;
    for (url, first_line) in [
        ("https://unread.example.com/a?b=c", "GET /a?b=c HTTP/1.1\r\n"),
        ("https://unread.example.com:443/", "GET / HTTP/1.1\r\n"),
        ("https://limited.example.com/docs/x", "GET /docs/x HTTP/1.1\r\n"),
        ("http://plain.example.com/", "GET / HTTP/1.1\r\n"),
        ("https://raw.example.com:9000/", ""),
        // A host with a base URL is reached by its name.
        ("https://model.example.com/v1/messages", "GET /v1/messages HTTP/1.1\r\n"),
    ] {
        world.received.lock().unwrap().clear();
        let (answer, report) = world.ask_for_tool(&get(url)).await;
        if first_line.is_empty() {
            // It speaks no TLS, which is the tool's to ask for.
            assert_eq!(own(&answer), Some("unreached"), "{url}: {answer}");
            continue;
        }
        assert!(answer.starts_with("HTTP/1.1 200") && own(&answer).is_none(), "{url}: {answer}");
        assert!(world.received().starts_with(first_line), "{url}: {}", world.received());
        let [connection] = &report.connections[..] else { panic!("{report:?}") };
        assert!(connection.is_allowed && connection.failure.is_empty() && connection.received_bytes > 0, "{report:?}");
    }
    world.close().await;
}

/// Methods and paths hold inside of TLS for hosts without a credential too.
#[tokio::test]
async fn what_the_profile_does_not_allow_is_refused_before_anything_is_sent() {
    let mut world = World::new().await;
    let post =
        "POST https://limited.example.com/docs HTTP/1.1\r\nHost: limited.example.com\r\nContent-Length: 2\r\n\r\nab";
    for (request, status, sentence) in [
        (get("https://elsewhere.example.org/"), 403, "{host: elsewhere.example.org}"),
        (get("https://unread.example.com:8443/"), 403, "has other ports"),
        (get("http://unread.example.com/"), 403, "has other ports"),
        (get("https://limited.example.com/other"), 403, "with this path"),
        (get("https://limited.example.com/docs/../other"), 403, "with this path"),
        (post.to_owned(), 403, "with this method"),
        (get("https://model.example.com/v2"), 403, "with this path"),
        (get("https://closed.example.com/"), 403, "which is link-local"),
        (get("https://127.0.0.1/"), 403, "not an address"),
        (get("https://user@unread.example.com/"), 400, "has a user before the host"),
        (
            "GET https://unread.example.com/ HTTP/1.1\r\nHost: other.example.com\r\n\r\n".to_owned(),
            400,
            "`Host` header",
        ),
        ("GET / HTTP/1.1\r\nHost: unread.example.com\r\n\r\n".to_owned(), 400, "a tool asks for"),
        (
            "CONNECT unread.example.com:443 HTTP/1.1\r\nHost: unread.example.com:443\r\n\r\n".to_owned(),
            400,
            "a tool asks for",
        ),
        (
            format!(
                "GET https://unread.example.com/ HTTP/1.1\r\nHost: unread.example.com\r\nX-Sent: {PLACEHOLDER}\r\n\r\n"
            ),
            403,
            "placeholder",
        ),
        (
            format!("GET https://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\nX-Sent: {OTHER_PLACEHOLDER}\r\n\r\n"),
            403,
            "placeholder",
        ),
        ("garbage\r\n\r\n".to_owned(), 400, "not a request"),
    ] {
        let (answer, report) = world.ask_for_tool(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        assert!(answer.contains(sentence) && own(&answer) == Some("refused"), "{request}: {answer}");
        let [connection] = &report.connections[..] else { panic!("{request}: {report:?}") };
        assert!(!connection.is_allowed && report.refusals == 1, "{report:?}");
    }
    assert_eq!(world.received(), "");
    world.close().await;
}

/// A command's proxy still speaks no TLS for it.
#[tokio::test]
async fn a_command_cannot_ask_as_a_tool_does() {
    let mut world = World::new().await;
    let mut stream = tokio::net::TcpStream::connect(world.proxy).await.unwrap();
    let answer = talk(&mut stream, get("https://unread.example.com/").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("use CONNECT"), "{answer}");
    world.close().await;
}

#[tokio::test]
async fn a_credential_is_put_in_and_taken_out() {
    let mut world = World::new().await;
    let urls = [(format!("https://{HOST}/echo"), VALUE), ("http://clear.example.com/echo".to_owned(), CLEAR_VALUE)];
    for (url, value) in urls {
        world.received.lock().unwrap().clear();
        let (answer, report) = world.ask_for_tool(&get(&url)).await;
        assert!(world.received().contains(&format!("authorization: Bearer {value}\r\n")), "{}", world.received());
        assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains(value), "{answer}");
        assert_eq!(report.credentials.len(), 1, "{report:?}");
    }
    world.close().await;
}

/// A host's 403 is the host's, and only the proxy says what the proxy did.
#[tokio::test]
async fn answers_of_hosts_are_told_from_those_of_the_proxy() {
    let mut world = World::new().await;
    let (answer, _) = world.ask_for_tool(&get("https://unread.example.com/own")).await;
    assert!(answer.ends_with("of the host") && own(&answer).is_none(), "{answer}");
    for (url, kind) in [
        ("https://nowhere.example.com/", "unreached"),
        // Its certificate is not trusted.
        ("https://untrusted.example.com/", "unreached"),
        ("https://unread.example.com/many-headers", "unanswered"),
        ("https://unread.example.com/long-header", "unanswered"),
    ] {
        let (answer, _) = world.ask_for_tool(&get(url)).await;
        assert!(answer.starts_with("HTTP/1.1 502") && own(&answer) == Some(kind), "{url}: {answer}");
    }
    let (answer, _) = world.ask_for_tool(&get(&format!("https://{HOST}/gzip"))).await;
    assert_eq!(own(&answer), Some("unanswered"), "{answer}");
    world.close().await;
}

#[tokio::test]
async fn bodies_of_any_length_pass_and_a_cut_one_is_seen() {
    let mut world = World::new().await;
    let body = "y".repeat(1 << 20);
    let (answer, report) = world
        .ask_for_tool(&format!(
            "POST https://unread.example.com/echo HTTP/1.1\r\nHost: unread.example.com\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    assert!(answer.ends_with(&body) && report.connections[0].sent_bytes > 1 << 20);
    let (answer, _) = world.ask_for_tool(&get("https://unread.example.com/large")).await;
    assert!(answer.len() > 4 << 20);
    let (answer, _) = world.ask_for_tool(&get("https://unread.example.com/cut")).await;
    assert!(answer.contains("content-length: 100\r\n") && answer.ends_with("short"), "{answer}");
    // The tool takes no more than it wants.
    let (mut client, access) = world.tool(Budget::default());
    client.write_all(get("https://unread.example.com/large").as_bytes()).await.unwrap();
    let mut some = vec![0; 1000];
    client.read_exact(&mut some).await.unwrap();
    drop(client);
    let report = access.close().await;
    assert!(report.connections[0].is_allowed && report.connections[0].received_bytes < 4 << 20, "{report:?}");
    world.close().await;
}

/// Closing the access ends a request whose host does not answer, and a budget ends it by itself.
#[tokio::test]
async fn a_host_that_does_not_answer_holds_nothing() {
    let mut world = World::new().await;
    let (mut client, access) = world.tool(Budget::default());
    client.write_all(get("https://unread.example.com/never").as_bytes()).await.unwrap();
    while world.received().is_empty() {
        tokio::task::yield_now().await;
    }
    let report = access.close().await;
    assert!(report.connections[0].is_allowed, "{report:?}");
    assert_eq!(client.read(&mut [0; 10]).await.unwrap_or(0), 0, "the connection is closed");

    let (mut client, access) = world.tool(Budget { idle_time: Duration::from_millis(300), ..Budget::default() });
    let never = get("https://unread.example.com/never");
    assert_eq!(timeout(Duration::from_secs(30), talk(&mut client, never.as_bytes())).await.unwrap(), "");
    drop(access);
    let (mut client, access) = world.tool(Budget { connections: 0, ..Budget::default() });
    let answer = talk(&mut client, get("https://unread.example.com/").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 503") && own(&answer) == Some("unreached"), "{answer}");
    drop(access);
    world.close().await;
}

/// One connection takes one request.
#[tokio::test]
async fn what_follows_a_request_is_not_another_one() {
    let mut world = World::new().await;
    let two = format!("{}{}", get("https://unread.example.com/one"), get("https://elsewhere.example.org/two"));
    let (answer, report) = world.ask_for_tool(&two).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count() - answer.matches("GET /one HTTP/1.1 ").count(), 1, "{answer}");
    assert!(!world.received().contains("two") && report.connections.len() == 1, "{report:?}");
    world.close().await;
}
