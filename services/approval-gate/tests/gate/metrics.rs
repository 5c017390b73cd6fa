//! The metrics of the gate as an operator's monitoring reads them.

use belay_proto::v1::Decision;
use belay_service_kit::metrics::MetricsSource as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use crate::support::*;

/// The lines of the metrics without comments, as a scraper gets them.
async fn scraped(world: &World) -> Vec<String> {
    let mut stream = UnixStream::connect(world.folder.join("gate.sock")).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{answer}");
    body.lines().filter(|line| line.starts_with("belay_")).map(str::to_owned).collect()
}

/// B-14: the age of the oldest pending approval is exported.
#[test]
fn a_scraper_reads_how_long_the_oldest_approval_has_waited() {
    world("", async |world| {
        let lines = |pending: usize, age: &str| {
            vec![
                format!("belay_gate_pending_approvals {pending}.0"),
                format!("belay_gate_oldest_pending_approval_seconds {age}"),
            ]
        };
        assert_eq!(scraped(&world).await, lines(0, "0.0"));
        let first = world.ask(&effect("a")).await;
        world.clock.advance(90);
        let second = world.ask(&effect("b")).await;
        world.clock.advance(10);
        assert_eq!(scraped(&world).await, lines(2, "100.0"));
        decide(&world.person, &first, Decision::Deny).await.unwrap();
        assert_eq!(scraped(&world).await, lines(1, "10.0"));
        decide(&world.person, &second, Decision::Approve).await.unwrap();
        assert_eq!(scraped(&world).await, lines(0, "0.0"));
        assert_eq!(world.gate.metrics().await.len(), 2);
    });
}
