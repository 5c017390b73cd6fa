//! Names that change, and calls beside each other.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    cases::question,
    table::{address_of, ask},
    world::{World, seen, talk},
};

fn get(host: &str) -> Vec<u8> {
    format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

/// DNS rebinding: each connection asks once, and judges the answer that it dials.
#[tokio::test]
async fn a_name_that_changes_is_judged_each_time() {
    let world = World::new().await;
    assert_eq!(seen(&talk(world.proxy, &[&get("rebinding.example.com")]).await), "200");
    assert_eq!(seen(&talk(world.proxy, &[&get("rebinding.example.com")]).await), "403");
    assert_eq!(*world.upstream.dialled.lock().unwrap(), ["203.0.113.82:80".parse::<SocketAddr>().unwrap()]);
    assert_eq!(world.upstream.resolved.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn of_mixed_addresses_only_open_ones_are_dialled() {
    let world = World::new().await;
    assert_eq!(seen(&talk(world.proxy, &[&get("mixed.closed.example.com")]).await), "200");
    assert_eq!(*world.upstream.dialled.lock().unwrap(), ["203.0.113.81:80".parse::<SocketAddr>().unwrap()]);
}

#[tokio::test]
async fn a_rule_may_have_private_addresses() {
    let world = World::new().await;
    assert_eq!(seen(&talk(world.proxy, &[&get("private.example.com")]).await), "200");
    assert_eq!(*world.upstream.dialled.lock().unwrap(), ["10.0.0.1:80".parse::<SocketAddr>().unwrap()]);
}

/// Another call's address stands for nothing here, and its end closes nothing here.
#[tokio::test]
async fn calls_do_not_reach_each_other() {
    let (mut one, other) = (World::new().await, World::new().await);
    let address = address_of(&one, "raw.example.com").await;
    assert_eq!(address, address_of(&one, "raw.example.com").await, "stable");
    let to = SocketAddr::from((address, other.ports[&9000]));
    assert_eq!(seen(&talk(to, &[b"\0any"]).await), "closed");
    assert!(other.received().is_empty());
    let mut held = TcpStream::connect(other.proxy).await.unwrap();
    held.write_all(b"CONNECT raw.example.com:9000 HTTP/1.1\r\n\r\n").await.unwrap();
    let report = one.close().await;
    assert!(report.connections.iter().all(|connection| connection.port != 9000), "{report:?}");
    held.write_all(b"\0").await.unwrap();
    let mut answer = vec![0; crate::world::ESTABLISHED.len() + 1];
    held.read_exact(&mut answer).await.unwrap();
    assert!(TcpStream::connect(one.proxy).await.is_err(), "the sockets of the call are closed");
    assert!(TcpStream::connect(other.proxy).await.is_ok());
}

#[tokio::test]
async fn names_keep_their_spelling_in_answers() {
    let world = World::new().await;
    let asked = question(b"TLS.eXample.com", 1);
    let answer = ask(&world, &asked).await.unwrap();
    assert_eq!(answer[12..12 + asked.len() - 12], asked[12..]);
    assert_eq!(answer.last_chunk(), Some(&address_of(&world, "tls.example.com").await));
}
