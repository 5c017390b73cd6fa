//! Processes are killed with SIGKILL at random moments, and nothing is lost or done twice.

use std::time::Duration;

use belay_e2e::{Client, Person, Service, Services, client::name};
use belay_proto::v1::{Decision, execution::State, execution_event::Kind};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

/// B-01, S2-FR-057, S2-NFR-005, S2-NFR-006: whichever process dies, and whenever, the execution continues, every result is kept, and no
/// finished call runs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_survive_the_loss_of_any_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let seed = 20;
    let mut random = SmallRng::seed_from_u64(seed);

    let mut watches = Vec::new();
    for n in 0..6 {
        let mut plan = format!("id: survive\nparallelism: {}\nsteps:\n", 1 + n % 3);
        for step in 0..40 {
            let output = if step == 0 { "{n: 0}".to_owned() } else { format!("{{n: '${{s{}.result.n}}'}}", step - 1) };
            plan += &format!("  - {{id: s{step}, tool: noop, arguments: {{sleep_ms: 20, output: {output}}}}}\n");
        }
        let id = format!("survive-{n}");
        client.start(&id, &plan).await;
        let client = client.clone();
        watches.push(tokio::spawn(async move {
            let picture = client.watch_to_the_end(&id).await;
            (id, picture)
        }));
    }
    let mut kills = 0;
    while !watches.iter().all(tokio::task::JoinHandle::is_finished) && kills < 40 {
        tokio::time::sleep(Duration::from_millis(random.random_range(5..120))).await;
        match random.random_range(0..5) {
            0 => services.restart(Service::Runner).await,
            1 => {
                services.restart(Service::Runner).await;
                services.restart(Service::Executor).await;
            }
            _ => services.restart(Service::Executor).await,
        }
        kills += 1;
    }
    for watch in watches {
        let (id, picture) = watch.await.unwrap();
        assert_eq!(picture.state(), Some(State::Completed), "{id} (seed {seed})");
        assert_eq!(
            picture.count(|kind| matches!(kind, Kind::ToolCallCompleted(_))),
            40,
            "{id}: each call completes once"
        );
        assert_eq!(picture.count(|kind| matches!(kind, Kind::ToolCallRequested(_))), 40, "{id}: no call is repeated");
        picture.assert_equals(&client.get(&id).await);
    }
    assert!(kills > 10, "the executions lived through {kills} kills only");
}

/// S2-X-01: what has completed is not run again after a restart, and a parked execution waits without a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_and_a_backoff_outlive_the_executor() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "
        id: patience
        parallelism: 2
        steps:
          - {id: quick, tool: noop}
          - {id: flaky, tool: noop, arguments: {fail: no, fail_attempts: 1}, retry: {max_attempts: 2, backoff: [6s]}}
    ";
    client.start("patient", plan).await;
    let mut stream = client.watch("patient", "").await.unwrap();
    let mut retry_seen = false;
    let mut completed = false;
    while !(retry_seen && completed) {
        let message = stream.message().await.unwrap().expect("the stream goes on");
        if let Some(belay_proto::v1::watch_execution_response::Content::Event(event)) = message.content {
            retry_seen |= matches!(event.kind, Some(Kind::StepRetryScheduled(_)));
            completed |= matches!(event.kind, Some(Kind::StepCompleted(_)));
        }
    }
    services.restart(Service::Executor).await;
    services.ready().await;
    let picture = client.watch_to_the_end("patient").await;
    assert_eq!(picture.state(), Some(State::Completed));
    assert_eq!(picture.count(|kind| matches!(kind, Kind::StepStarted(_))), 3, "quick once, flaky twice");
    picture.assert_equals(&client.get("patient").await);
}

/// S2-NFR-006: a gate whose store was lost, or restored from before the question, is asked again while the execution waits. Nothing runs
/// twice, and nothing waits for an approval that does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_lost_its_store_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let workspace = services.workspace("w");
    std::fs::write(workspace.join("old.txt"), "old").unwrap();
    let plan = "{id: delete, steps: [{id: gone, tool: delete_file, arguments: {path: old.txt}}]}";
    client.start_in("waits", plan, &workspace).await;
    let person = Person::at(&services.people());
    let first = person.question(&name("waits")).await;

    services.kill(Service::Gate).await;
    for entry in std::fs::read_dir(folder.path().join("gate")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("gate.db") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    // The others remember it, so it has to be said that the loss is known.
    services.launch(Service::Gate);
    assert_eq!(services.ended(Service::Gate).await, Some(1));
    assert!(services.log(Service::Gate).contains("STORE_BEHIND"), "{}", services.log(Service::Gate));
    services.launch_with(Service::Gate, &["--accept-older-store"]);
    services.ready().await;
    let again = person.question(&name("waits")).await;
    assert_eq!(
        (again.name.as_str(), again.subject_digest.as_str()),
        (first.name.as_str(), first.subject_digest.as_str())
    );
    assert!(workspace.join("old.txt").exists());
    person.decide(&again, Decision::Approve).await.unwrap();
    let picture = client.watch_to_the_end("waits").await;
    assert_eq!(picture.state(), Some(State::Completed));
    assert!(!workspace.join("old.txt").exists());
}
