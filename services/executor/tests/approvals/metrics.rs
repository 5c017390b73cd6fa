//! Metrics that an operator's monitoring reads of the executor.

use std::path::Path;

use belay_proto::v1::{self, waiting_reason::Kind};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use crate::support::{TIMEOUT, World};

/// A gauge, as a scraper gets it.
async fn scraped(folder: &Path, name: &str) -> f64 {
    let mut stream = UnixStream::connect(folder.join("executor")).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {answer}")).parse().unwrap()
}

/// Scrapes until a gauge has this value: an execution is loaded, and leaves memory, some time after the executor answers.
async fn until(folder: &Path, name: &str, value: f64) {
    let scraping = async {
        while scraped(folder, name).await != value {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, scraping).await.unwrap_or_else(|_| panic!("{name} does not become {value}"));
}

/// B-14: calls in doubt are exported: those that an executor may have sent before it was killed, as long as the runner has not told how they ended.
#[tokio::test]
async fn a_scraper_reads_how_many_calls_are_in_doubt() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect; b: effect; c").await;
    executor.until_awaiting_approval(&name).await;
    let (in_doubt, in_memory) = ("belay_executor_calls_in_doubt", "executor_execution_active");
    let folder = world.folder.path().to_owned();
    assert_eq!(scraped(&folder, in_doubt).await, 0.0);
    // The commit of an approved effect is sent, and nobody answers.
    world.stop_runner();
    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    // That the runner is away is noticed at once, and says nothing about the commit.
    let is_sent = |execution: &v1::Execution| {
        let waits = |kind| execution.waiting.iter().filter(|waiting| waiting.kind() == kind).count();
        (waits(Kind::Approval), waits(Kind::Runner)) == (1, 1)
    };
    executor.until(&name, "a commit to the unavailable runner", is_sent).await;
    executor.kill().await;
    let executor = world.executor().await;
    until(&folder, in_doubt, 1.0).await;
    assert_eq!(scraped(&folder, in_memory).await, 1.0);
    assert_eq!(scraped(&folder, "belay_executor_executions_awaiting_outcome").await, 0.0);

    world.start_runner().await;
    let approval = world.gate.pending_approval("b").await;
    world.gate.approve(&approval.name);
    executor.assert_completes(&name).await;
    until(&folder, in_doubt, 0.0).await;
    until(&folder, in_memory, 0.0).await;
}
