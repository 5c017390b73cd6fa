//! The table: what is tried, what is expected, what is seen.

use belay_proxy::Connection;
use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
};

use crate::{
    cases::{Attempt, Case, cases, question},
    world::{World, seen, talk},
};

/// The code of an answer, and how many records it has.
fn seen_answer(answer: Option<&[u8]>) -> String {
    match answer {
        Some(answer) => format!("code {}, {} answers", answer[3] & 0xf, answer[7]),
        None => "nothing".to_owned(),
    }
}

/// Asks a question. What gets no answer is followed by one that does.
pub(crate) async fn ask(world: &World, message: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(world.dns).await.unwrap();
    socket.send(message).await.unwrap();
    let mut marker = question(b"marker.example.org", 1);
    marker[0] = 0xee;
    socket.send(&marker).await.unwrap();
    let mut buffer = [0; 2000];
    let length = socket.recv(&mut buffer).await.unwrap();
    (buffer[0] != 0xee).then(|| buffer[..length].to_vec())
}

/// The address that the name server gives.
pub(crate) async fn address_of(world: &World, name: &str) -> [u8; 4] {
    let answer = ask(world, &question(name.as_bytes(), 1)).await.unwrap();
    *answer.last_chunk().unwrap()
}

/// Carries out an attempt, and returns what is seen.
async fn attempt(world: &World, attempt: &Attempt) -> String {
    match attempt {
        Attempt::Proxy(pieces) => {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            seen(&talk(world.proxy, &pieces).await)
        }
        Attempt::Address(name, port, bytes) => {
            let to = SocketAddr::from((address_of(world, name).await, world.ports[port]));
            seen(&talk(to, &[bytes]).await)
        }
        Attempt::UnknownAddress(port) => {
            let to = SocketAddr::from(([127, 79, 1, 1], world.ports[port]));
            seen(&talk(to, &[b"GET / HTTP/1.1\r\nHost: tls.example.com\r\n\r\n"]).await)
        }
        Attempt::Service(text) => seen(&talk(world.service, &[text.as_bytes()]).await),
        Attempt::Question(message) => seen_answer(ask(world, message).await.as_deref()),
        Attempt::QuestionTcp(message) => {
            let mut stream = TcpStream::connect(world.dns_tcp).await.unwrap();
            stream.write_u16(message.len() as u16).await.unwrap();
            stream.write_all(message).await.unwrap();
            let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut answer).await.unwrap();
            seen_answer(Some(&answer))
        }
    }
}

#[tokio::test]
async fn nothing_is_reached_that_the_profile_does_not_have() {
    let mut world = World::new().await;
    let (mut unexpected, mut count) = (0, 0);
    for Case { name, attempt: tried, expected, reaches } in cases() {
        let seen = attempt(&world, &tried).await;
        let received = world.received();
        let leaks = received.windows(16).any(|bytes| bytes == b"evil.example.org");
        let is_expected = seen == expected && received.is_empty() != reaches && !leaks;
        count += 1;
        unexpected += usize::from(!is_expected);
        let mark = if is_expected { "      " } else { "WRONG " };
        let reached = if received.is_empty() { "" } else { ", the host was reached" };
        println!("{mark}{name}: expected {expected}, seen {seen}{reached}");
    }
    let report = world.close().await;
    println!("{count} cases, {unexpected} unexpected");
    assert!(count >= 60 && unexpected == 0, "{unexpected} of {count}");
    let dialled = world.upstream.dialled.lock().unwrap().clone();
    let open = ["203.0.113.80", "127.0.0.1"];
    assert!(dialled.iter().all(|address| open.contains(&address.ip().to_string().as_str())), "{dialled:?}");
    let resolved = world.upstream.resolved.lock().unwrap().clone();
    assert!(!resolved.iter().any(|name| name.contains("6578666c") || name.contains("evil")), "{resolved:?}");
    let says_why = |one: &Connection| one.rule.is_empty() != one.failure.is_empty();
    assert!(report.connections.iter().all(says_why), "{report:?}");
}
