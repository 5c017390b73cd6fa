//! Watching.

use std::time::Duration;

use belay_e2e::{
    Client, Person, Services,
    client::{name, unread_channel},
    folded_execution::FoldedExecution,
};
use belay_proto::v1::{
    self, Decision, executor_service_client::ExecutorServiceClient, watch_execution_response::Content,
    watch_reset::Reason,
};
use belay_service_kit::cursor::{Cursor, Source, WatchIdentity};
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
    let (mut picture, mut disconnects) = (FoldedExecution::default(), 0);
    while !picture.ended() || disconnects < 200 {
        if picture.ended() {
            // The rest of the disconnects happen to a replay.
            picture = FoldedExecution::default();
        }
        let mut stream = client.watch("long", picture.cursor()).await.unwrap();
        let first = stream.message().await.unwrap().expect("there is a snapshot");
        let Some(Content::Snapshot(snapshot)) = &first.content else { panic!("the snapshot comes first") };
        assert!(snapshot.last_sequence >= picture.last_sequence(), "a snapshot is never older than what was seen");
        assert!(picture.cursor().is_empty() || picture.cursor() == first.cursor, "a snapshot moves no cursor");
        picture.read(first);
        for _ in 0..random.random_range(0..20) {
            match stream.message().await.unwrap() {
                Some(v1::WatchExecutionResponse {
                    content: Some(Content::Snapshot(_) | Content::Reset(_)), ..
                }) => {
                    panic!("there is one snapshot")
                }
                Some(message) => picture.read(message),
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
    let mut picture = FoldedExecution::default();
    let mut seen = 0;
    while !picture.ended() {
        let mut stream = client.watch("talking", picture.cursor()).await.unwrap();
        // A new watcher gets recent output again, so each watch has to last longer than that.
        for _ in 0..random.random_range(1..150) {
            match stream.message().await.unwrap() {
                Some(message) => picture.read(message),
                None => break,
            }
        }
        seen += 1;
    }
    answers.abort();
    assert!(picture.output_chunks() > 0, "something was said while somebody listened");
    let mut replayed = FoldedExecution::default();
    for _ in seen..200 {
        if replayed.ended() {
            replayed = FoldedExecution::default();
        }
        let mut stream = client.watch("talking", replayed.cursor()).await.unwrap();
        for _ in 0..random.random_range(1..40) {
            match stream.message().await.unwrap() {
                Some(message) => replayed.read(message),
                None => break,
            }
        }
    }
    let later = client.watch_to_the_end("talking").await;
    assert_eq!(later.output_chunks(), 0, "live output is not kept");
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

/// Its cursors are of one execution and one journal. One that is of another execution, or none at all, is refused; after one whose place the journal does not have
/// the watch begins anew, with a reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_is_of_one_execution_and_one_journal() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("short", &plan(1)).await;
    let picture = client.watch_to_the_end("short").await;
    client.start("other", &plan(1)).await;
    let other = client.watch_to_the_end("other").await;
    for wrong in ["17", other.cursor(), &picture.cursor()[1..]] {
        let status = client.watch("short", wrong).await.map(drop).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let message =
            "cursor: is not of this watch: use the last `cursor` of a watch with the same `name`, or leave it empty";
        assert_eq!(status.message(), message);
        let violations = tonic_types::StatusExt::get_details_bad_request(&status).unwrap().field_violations;
        assert_eq!(violations[0].field, "cursor");
    }

    let messages = async |cursor: &str, include_earlier_events| {
        let request = v1::WatchExecutionRequest {
            name: name("short"),
            cursor: cursor.into(),
            include_earlier_events,
            ..Default::default()
        };
        let mut stream = client.raw().watch_execution(request).await.unwrap().into_inner();
        let mut messages = Vec::new();
        while let Some(message) = stream.message().await.unwrap() {
            messages.push(message);
        }
        messages
    };
    let is_snapshot = |message: &v1::WatchExecutionResponse| matches!(message.content, Some(Content::Snapshot(_)));
    let all = messages("", true).await;
    assert!(is_snapshot(&all[0]));
    assert_eq!(all.len(), 1 + picture.events().len());
    for (place, message) in all.iter().enumerate() {
        let rest = messages(&message.cursor, place % 2 == 0).await;
        assert!(is_snapshot(&rest[0]));
        assert_eq!(
            &rest[1..],
            &all[place + 1..],
            "after message {place}, whatever is asked for where there is no cursor"
        );
    }
    let new = messages("", false).await;
    assert!(is_snapshot(&new[0]));
    assert_eq!((new.len(), new[0].cursor.as_str()), (1, picture.cursor()), "nothing follows the last event");

    // The events seen are gone: those after the end of the journal, and all of another journal, which this one may have passed since.
    let watched = WatchIdentity::execution(&name("short"));
    let last: Cursor<1> = watched.read(picture.cursor()).unwrap().unwrap();
    for lost in [Cursor { place: [999], ..last }, Cursor { source: Source::new(&["another"]), place: [1] }] {
        for include_earlier_events in [true, false] {
            let anew = messages(&watched.write(&lost), include_earlier_events).await;
            let expected = Content::Reset(v1::WatchReset { reason: Reason::Lost.into() });
            assert_eq!(anew[0].content, Some(expected));
            let without = if include_earlier_events { &all } else { &new };
            assert_eq!((&anew[0].cursor, &anew[1..]), (&without[0].cursor, &without[..]), "as without a cursor");
        }
    }
}

/// The watch of an idle execution sends heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_carry_the_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("quiet", "{id: quiet, steps: [{id: a, tool: noop, arguments: {sleep_ms: 600000}}]}").await;
    let mut stream = client.watch("quiet", "").await.unwrap();
    let mut picture = FoldedExecution::default();
    loop {
        let message = stream.message().await.unwrap().unwrap();
        let is_heartbeat = matches!(message.content, Some(Content::Heartbeat(_)));
        picture.read(message);
        if is_heartbeat && picture.last_sequence() > 0 {
            break;
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
        let request =
            v1::WatchExecutionRequest { name: name("long"), include_earlier_events: true, ..Default::default() };
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
