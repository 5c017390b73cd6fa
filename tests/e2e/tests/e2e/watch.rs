//! Watching.

use std::time::Duration;

use belay_e2e::{
    Client, Person, Services,
    client::{name, unread_channel},
    picture::Picture,
};
use belay_proto::v1::{
    self, Decision, executor_service_client::ExecutorServiceClient, watch_execution_response::Content,
};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use tonic::Code;

const PLAN: &str = "
id: long
parallelism: 4
steps:
";

/// Several thousand messages over all disconnects, and each snapshot no longer than it has to be.
const STEPS: usize = 150;

fn plan(steps: usize) -> String {
    let step = |n: usize| format!("  - {{id: s{n}, tool: noop, arguments: {{sleep_ms: {}, output: {n}}}}}\n", n % 7);
    PLAN.to_owned() + &(0..steps).map(step).collect::<String>()
}

/// B-02, S2-FR-068, S2-FR-069, S2-FR-070, S2-FR-071, S2-FR-072: snapshot first, then every event once, whatever the connection does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_disconnects_leave_no_gap() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("long", &plan(STEPS)).await;
    let mut random = SmallRng::seed_from_u64(3);
    let (mut picture, mut disconnects) = (Picture::default(), 0);
    while !picture.ended() || disconnects < 200 {
        if picture.ended() {
            // The rest of the disconnects happen to a replay.
            picture = Picture::default();
        }
        let mut stream = client.watch("long", Some(picture.last_sequence())).await.unwrap();
        let first = stream.message().await.unwrap().expect("there is a snapshot");
        let Some(Content::Snapshot(snapshot)) = first.content else { panic!("the snapshot comes first") };
        assert!(snapshot.last_sequence >= picture.last_sequence(), "a snapshot is never older than what was seen");
        for _ in 0..random.random_range(0..20) {
            match stream.message().await.unwrap().and_then(|message| message.content) {
                Some(Content::Event(event)) => picture.take(event),
                Some(Content::Heartbeat(beat)) => assert_eq!(beat.last_sequence, picture.last_sequence()),
                Some(Content::Snapshot(_) | Content::Reset(_)) => panic!("there is one snapshot"),
                None => break,
            }
        }
        disconnects += 1;
    }
    let picture = client.watch_to_the_end("long").await;
    picture.assert_equals(&client.get("long").await);
    let progress: Vec<i32> = picture.events().iter().filter_map(done).collect();
    assert_eq!(progress, (1..=STEPS as i32).collect::<Vec<_>>(), "progress counts every step");
}

/// Commands that write output and need no approval; every fifth step needs one.
fn talking(steps: usize) -> String {
    let step = |n: usize| {
        let more = if n % 5 == 4 { format!("mkdir -p asked; echo {n} > asked/{n}; ") } else { String::new() };
        let script = format!("{more}for i in 1 2 3 4 5 6 7 8; do echo {n}.$i; echo {n}.$i >&2; sleep 0.01; done");
        format!("  - {{id: s{n}, tool: run_terminal, arguments: {{command: [sh, -c, '{script}']}}}}\n")
    };
    "id: talking\nparallelism: 2\nsteps:\n".to_owned() + &(0..steps).map(step).collect::<String>()
}

/// B-02, S1-25, S2-FR-046, S2-FR-069, S2-FR-070, S2-X-33: command output arrives live and moves no cursor; a watcher that loses its connection 200 times sees the
/// same execution as a later one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_output_and_approvals_leave_no_gap_either() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "{terminal_commands: auto, rules: [{id: show-me, on: effect, paths: ['asked/**'], decide: prompt, reason: Look.}]}";
    let services = Services::under(folder.path(), policy).await;
    let (client, person) = (Client::new(&services.socket()), Person::at(&services.people()));
    client.start_in("talking", &talking(20), &services.workspace("w")).await;
    let answers = tokio::spawn(async move {
        loop {
            let question = person.question("").await;
            person.decide(&question, Decision::Approve).await.unwrap();
        }
    });
    let mut random = SmallRng::seed_from_u64(4);
    let mut picture = Picture::default();
    let mut seen = 0;
    while !picture.ended() {
        let mut stream = client.watch("talking", Some(picture.last_sequence())).await.unwrap();
        // A new watcher gets recent output again, so each watch has to last longer than that.
        for _ in 0..random.random_range(1..150) {
            match stream.message().await.unwrap().and_then(|message| message.content) {
                Some(Content::Event(event)) => picture.take(event),
                Some(_) => {}
                None => break,
            }
        }
        seen += 1;
    }
    answers.abort();
    assert!(picture.said() > 0, "something was said while somebody listened");
    let mut replayed = Picture::default();
    for _ in seen..200 {
        if replayed.ended() {
            replayed = Picture::default();
        }
        let mut stream = client.watch("talking", Some(replayed.last_sequence())).await.unwrap();
        for _ in 0..random.random_range(1..40) {
            match stream.message().await.unwrap().and_then(|message| message.content) {
                Some(Content::Event(event)) => replayed.take(event),
                Some(_) => {}
                None => break,
            }
        }
    }
    let later = client.watch_to_the_end("talking").await;
    assert_eq!(later.said(), 0, "live output is not kept");
    assert_eq!(later.events(), picture.events(), "live and later, the same events");
    let execution = client.get("talking").await;
    picture.assert_equals(&execution);
    let output = client.steps("talking").await[0].output.clone().and_then(|payload| payload.content);
    let Some(v1::payload::Content::Json(output)) = output else { panic!("inline") };
    assert!(output.contains(r#""stdout":"0.1\n0.2\n0.3\n"#), "what was said is in the result: {output}");
    let asked = |kind: &v1::execution_event::Kind| matches!(kind, v1::execution_event::Kind::ApprovalDecided(_));
    assert_eq!(later.count(asked), 4);
}

fn done(event: &v1::ExecutionEvent) -> Option<i32> {
    match event.kind.as_ref()? {
        v1::execution_event::Kind::StepCompleted(completed) => completed.progress.map(|progress| progress.done),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_that_cannot_be_is_refused_with_the_oldest_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("short", &plan(1)).await;
    client.watch_to_the_end("short").await;
    let status = client.watch("short", Some(-1)).await.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    let info = tonic_types::StatusExt::get_details_error_info(&status).unwrap();
    assert_eq!(info.metadata["oldest_sequence"], "1");
    assert_eq!(info.reason, "SEQUENCE_OUT_OF_RANGE");

    // Ahead of the journal: the events seen are gone, and the watch restarts with a reset instead of failing forever.
    let mut stream = client.watch("short", Some(999)).await.unwrap();
    let Some(Content::Reset(reset)) = stream.message().await.unwrap().unwrap().content else {
        panic!("a reset comes first")
    };
    let Some(Content::Snapshot(snapshot)) = stream.message().await.unwrap().unwrap().content else {
        panic!("a snapshot follows")
    };
    assert_eq!(reset.last_sequence, snapshot.last_sequence);
    assert!(stream.message().await.unwrap().is_none(), "nothing follows the last event");

    // A cursor from another journal, which this one may have passed since: the events seen may be gone as well.
    let first = async |journal: &str| {
        let request = v1::WatchExecutionRequest {
            name: belay_e2e::client::name("short"),
            after_sequence: Some(1),
            journal: journal.into(),
            ..Default::default()
        };
        let mut stream = client.raw().watch_execution(request).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap()
    };
    let here = first("").await;
    assert!(matches!(here.content, Some(Content::Snapshot(_))), "a watcher that does not know its journal is believed");
    assert!(matches!(first(&here.journal).await.content, Some(Content::Snapshot(_))));
    let elsewhere = first("another").await;
    assert!(matches!(elsewhere.content, Some(Content::Reset(_))), "{elsewhere:?}");
    assert_eq!(elsewhere.journal, here.journal);

    let mut stream = client.watch("short", None).await.unwrap();
    assert!(matches!(stream.message().await.unwrap().unwrap().content, Some(Content::Snapshot(_))));
    assert!(stream.message().await.unwrap().is_none(), "nothing follows the last event");
}

/// The watch of an idle execution sends heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_carry_the_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("quiet", "{id: quiet, steps: [{id: a, tool: noop, arguments: {sleep_ms: 600000}}]}").await;
    let mut stream = client.watch("quiet", Some(0)).await.unwrap();
    let mut last = 0;
    loop {
        match stream.message().await.unwrap().unwrap().content {
            Some(Content::Event(event)) => last = event.sequence,
            Some(Content::Heartbeat(beat)) => {
                assert!(last > 0);
                assert_eq!(beat.last_sequence, last);
                break;
            }
            _ => {}
        }
    }
}

/// B-31: streams that are not read delay no other client. A client that takes nothing of a stream has it stop in the middle of a read of the journal, since its
/// transport asks for no more; that read must not keep its place from those of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_not_read_delay_no_other_client() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    // More than the memory keeps for watchers: the beginning is read from the journal.
    let output = "x".repeat(20_000);
    let step = |n: usize| format!("  - {{id: s{n}, tool: noop, arguments: {{output: {output}}}}}\n");
    client.start("long", &format!("id: long\nsteps:\n{}", (0..100).map(step).collect::<String>())).await;
    client.watch_to_the_end("long").await;
    // All at once, so that some of their reads wait for others.
    let executor = ExecutorServiceClient::new(unread_channel(&services.socket()));
    let mut watches = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let request = v1::WatchExecutionRequest { name: name("long"), after_sequence: Some(0), ..Default::default() };
        let mut executor = executor.clone();
        watches.spawn(async move { executor.watch_execution(request).await.unwrap().into_inner() });
    }
    let streams = watches.join_all().await;
    let read = async {
        for _ in 0..5 {
            client.watch_to_the_end("long").await;
        }
    };
    tokio::time::timeout(Duration::from_secs(100), read).await.expect("others read meanwhile");
    drop(streams);
}
