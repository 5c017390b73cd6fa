//! The bounds of a call.

use std::time::Duration;

use belay_proxy::Budget;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    cases::question,
    hello::hello,
    table::ask,
    world::{ESTABLISHED, UNRESOLVED, World, read_all, seen, talk},
};

const CONNECT: &[u8] = b"CONNECT raw.example.com:9000 HTTP/1.1\r\n\r\n";

/// A tunnel that is established.
async fn tunnel(world: &World) -> TcpStream {
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    stream.write_all(CONNECT).await.unwrap();
    let mut answer = vec![0; ESTABLISHED.len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, ESTABLISHED.as_bytes());
    stream
}

#[tokio::test]
async fn connections_beyond_the_bound_are_refused_until_others_end() {
    let mut world = World::with(Budget { open_connections: 3, ..Budget::default() }).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(tunnel(&world).await);
    }
    for _ in 0..5 {
        let mut stream = TcpStream::connect(world.proxy).await.unwrap();
        assert_eq!(seen(&read_all(&mut stream).await), "503");
    }
    let mut freed = held.pop().unwrap();
    freed.shutdown().await.unwrap();
    assert_eq!(read_all(&mut freed).await, b"");
    // Its place is free once the proxy has seen its end as well.
    loop {
        let answer = talk(world.proxy, &[CONNECT, b"\0"]).await;
        match seen(&answer).as_str() {
            "established, data" => break,
            "503" => tokio::task::yield_now().await,
            other => panic!("{other}"),
        }
    }
    let report = world.close().await;
    assert!(report.connections.iter().filter(|one| one.rule.contains("has 3 open connections")).count() >= 5);
}

#[tokio::test]
async fn connections_of_a_call_are_counted() {
    let world = World::with(Budget { connections: 2, ..Budget::default() }).await;
    for expected in ["established, data", "established, data", "503"] {
        assert_eq!(seen(&talk(world.proxy, &[CONNECT, b"\0"]).await), expected);
    }
}

#[tokio::test]
async fn bytes_of_a_call_are_counted() {
    let mut world = World::with(Budget { bytes: 100_000, ..Budget::default() }).await;
    let answer = talk(world.proxy, &[CONNECT, &[0; 200_000]]).await;
    assert!(answer.len() <= ESTABLISHED.len() + 100_000, "{}", answer.len());
    assert_eq!(seen(&talk(world.proxy, &[CONNECT]).await), "503");
    let report = world.close().await;
    assert!(report.is_over_budget && report.connections[1].rule.contains("100000 bytes"), "{report:?}");
}

#[tokio::test]
async fn a_report_lists_a_part_and_counts_the_rest() {
    let mut world = World::with(Budget { listed: 10, ..Budget::default() }).await;
    for at in 0..20 {
        ask(&world, &question(format!("n{at}.example.org").as_bytes(), 1)).await;
    }
    // What is refused leaves space for what is reached.
    talk(world.proxy, &[CONNECT, b"\0"]).await;
    let report = world.close().await;
    assert_eq!((report.connections.len(), report.questions), (6, 40));
    assert!(report.unlisted > 0 && report.connections[5].is_allowed, "{report:?}");
}

#[tokio::test]
async fn names_beyond_the_bound_have_no_address() {
    let world = World::with(Budget { names: 2, ..Budget::default() }).await;
    for (name, code) in [("a", 0), ("b", 0), ("c", 2), ("a", 0)] {
        let answer = ask(&world, &question(format!("{name}.wild.example.com").as_bytes(), 1)).await.unwrap();
        assert_eq!(answer[3] & 0xf, code, "{name}");
    }
}

/// The clock of these tests goes on when nothing else does.
#[tokio::test(start_paused = true)]
async fn a_slow_head_is_refused() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    let begun = tokio::time::Instant::now();
    let slow = async {
        let (mut reading, mut writing) = stream.split();
        let write = async {
            writing.write_all(b"GET http://plain.example.com/ HTTP/1.1\r\n").await.unwrap();
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if writing.write_all(b"X-A: b\r\n").await.is_err() {
                    break;
                }
            }
        };
        let mut answer = Vec::new();
        tokio::select! {
            _ = reading.read_to_end(&mut answer) => {}
            () = write => {}
        }
        answer
    };
    assert_eq!(seen(&slow.await), "408");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_hello_that_does_not_come_ends_the_tunnel() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    stream.write_all(b"CONNECT tls.example.com:443 HTTP/1.1\r\n\r\n\x16\x03\x01").await.unwrap();
    assert_eq!(read_all(&mut stream).await, ESTABLISHED.as_bytes());
    assert!(world.received().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_idle_tunnel_is_closed() {
    let mut world = World::with(Budget { idle_time: Duration::from_secs(20), ..Budget::default() }).await;
    let mut stream = tunnel(&world).await;
    let begun = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(15)).await;
    stream.write_all(b"\0").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 0);
    assert_eq!(read_all(&mut stream).await, b"");
    assert!(begun.elapsed() >= Duration::from_secs(34), "{:?}", begun.elapsed());
    let report = world.close().await;
    assert!(report.connections[0].duration >= Duration::from_secs(34), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_byte_is_closed() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    assert_eq!(seen(&read_all(&mut stream).await), "408");
}

#[tokio::test(start_paused = true)]
async fn hosts_that_do_not_answer_are_failures() {
    let world = World::new().await;
    for (host, expected) in [
        (UNRESOLVED, "504"),
        ("silent.wild.example.com", "504"),
        ("nowhere.wild.example.com", "502"),
        // The time is divided among the addresses.
        ("half.wild.example.com", "established, data"),
    ] {
        let begun = tokio::time::Instant::now();
        let connect = format!("CONNECT {host}:443 HTTP/1.1\r\n\r\n");
        assert_eq!(seen(&talk(world.proxy, &[connect.as_bytes(), &hello(host)]).await), expected, "{host}");
        assert!(begun.elapsed() <= Duration::from_secs(11), "{host}: {:?}", begun.elapsed());
    }
}
