//! Values that are too large for events: where they are, who reads them, and what becomes of them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use belay_blobs::{BlobError, BlobFile, BlobStore, Folder, Owner};
use belay_executor::{Parts, Thresholds};
use belay_proto::v1::{
    self, execution::State, execution_event::Kind, payload::Content, start_execution_request::Source,
};
use belay_service_kit::{SystemClock, status};
use serde_json::{Value, json};
use tokio::{runtime::Handle, sync::Semaphore};
use tonic::Code;

use crate::{
    memory::inside_on,
    support::{Executor, TIMEOUT, World, plan},
};

const SECRET: &str = "hunter2-hunter2-hunter2";

/// Starts a plan in YAML.
async fn start(executor: &Executor, steps: &str) -> String {
    let text = format!("id: plan\nsteps:\n{steps}");
    let document = v1::PlanDocument { text, format: v1::PlanFormat::Yaml.into() };
    let request = v1::StartExecutionRequest { source: Some(Source::Document(document)), ..plan("a") };
    executor.client.clone().start_execution(request).await.unwrap().into_inner().name
}

/// The blob that is a step's output.
async fn blob(executor: &Executor, name: &str, step: &str) -> v1::BlobRef {
    let output = executor.step(name, step).await.unwrap().output.unwrap();
    let Some(Content::Blob(blob)) = output.content else { panic!("{step} has an output inline") };
    assert_eq!(blob.media_type, "application/json");
    blob
}

/// The folder of an execution's blobs.
fn folder(world: &World, name: &str) -> PathBuf {
    let [_, namespace, _, id] = name.split('/').collect::<Vec<_>>()[..] else { panic!("{name}") };
    world.folder.path().join("state/blobs").join(namespace).join(id)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Whether a file below this folder has these bytes.
fn is_found(path: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(path).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => is_found(&path, bytes),
            // A socket cannot be read.
            false => fs::read(&path).is_ok_and(|all| all.windows(bytes.len()).any(|window| window == bytes)),
        }
    })
}

/// B-09: a later step gets what it names out of a large output, whole, also when the executor is killed before it sends the call.
#[tokio::test]
async fn a_template_reads_out_of_a_large_output_also_after_a_crash() {
    let world = World::new().await;
    let text = "x".repeat(200_000);
    world.runner.set(|seen| drop(seen.results.insert("a".into(), json!({"text": text, "n": 7}))));
    let executor = world.executor().await;
    let steps = "  - {id: a, tool: work}
  - {id: b, tool: work, arguments: {prompt_call: true, all: '${a.result.text}', n: '${a.result.n}'}}";
    let name = start(&executor, steps).await;
    let approval = world.gate.pending_approval("b").await;
    executor.until_awaiting_approval(&name).await;
    assert_eq!(names(&folder(&world, &name)).len(), 2, "the output of a and the arguments of b");
    executor.kill().await;
    world.runner.set(|seen| seen.arguments.clear());

    let executor = world.executor().await;
    world.gate.approve(&approval.name);
    executor.assert_completes(&name).await;
    let sent = world.runner.seen().arguments[&format!("{name}/steps/b/calls/1.1")].clone();
    assert_eq!(sent, json!({"prompt_call": true, "all": text, "n": 7}));
    let events = executor.events(&name).await;
    let requested = events.iter().filter_map(|event| match event.kind.as_ref()? {
        Kind::ToolCallRequested(requested) => requested.arguments.clone()?.content,
        _ => None,
    });
    let [Content::Json(_), Content::Blob(arguments)] = &requested.collect::<Vec<_>>()[..] else {
        panic!("the arguments of b are a blob")
    };
    let shown = executor.read_blob(&name, arguments, 0).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&shown).unwrap()["n"], 7);
}

/// B-09, S4-15: a condition reads out of a large output, and sees what readers do not.
#[tokio::test]
async fn a_condition_reads_out_of_a_large_output_and_the_original() {
    let world = World::new().await;
    let output = json!({"list": vec![1; 50_000], "password": SECRET, "n": 7});
    world.runner.set(|seen| drop(seen.results.insert("a".into(), output)));
    let executor = world.executor().await;
    let steps = format!(
        "  - {{id: a, tool: work}}
  - {{id: b, tool: work, condition: 'size(${{a.result.list}}) == 50000 && ${{a.result.list}}.all(x, x == 1)'}}
  - {{id: c, tool: work, condition: '${{a.result.password}} == \"{SECRET}\"'}}
  - {{id: d, tool: work, condition: '${{a.result.n}} < 7'}}
  - {{id: e, tool: work, condition: '${{a.result.list}}.all(x, !${{a.result.list}}.exists(y, x + y > 2))'}}
  - {{id: f, tool: work, run_when: failure, depends_on: [e], condition: '${{e.failure.code}} == \"CONDITION_FAILED\"'}}"
    );
    let name = start(&executor, &steps).await;
    assert_eq!(executor.end(&name).await.state(), State::Partial);
    let mut states = Vec::new();
    for step in ["a", "b", "c", "d", "e", "f"] {
        states.push(executor.step(&name, step).await.unwrap().state());
    }
    use v1::step::State as S;
    assert_eq!(states, [S::Completed, S::Completed, S::Completed, S::Skipped, S::Failed, S::Completed]);
    let too_much = executor.step(&name, "e").await.unwrap();
    let failure = too_much.failure.unwrap();
    assert!(failure.reason == "CONDITION_FAILED" && failure.message.contains("more than 1000000 steps"), "{failure:?}");
    assert_eq!((too_much.attempt, too_much.failed_attempts.len()), (0, 0));
    let skipped = executor.step(&name, "d").await.unwrap().skip_reason();
    assert_eq!(skipped, v1::SkipReason::ConditionFalse);
}

/// B-09: a value of 32 KiB is in its event, and one byte more makes it a blob.
#[tokio::test]
async fn a_value_of_more_than_32_kib_is_a_blob() {
    let world = World::new().await;
    let text = |bytes: usize| json!("x".repeat(bytes - 2));
    world.runner.set(|seen| {
        seen.results.insert("a".into(), text(32 * 1024));
        seen.results.insert("b".into(), text(32 * 1024 + 1));
    });
    let executor = world.executor().await;
    let name = start(&executor, "  - {id: a, tool: work}\n  - {id: b, tool: work}").await;
    executor.assert_completes(&name).await;
    let inline = executor.step(&name, "a").await.unwrap().output.unwrap();
    assert_eq!(inline.as_json().map(str::len), Some(32 * 1024));
    assert_eq!(blob(&executor, &name, "b").await.size_bytes, 32 * 1024 + 1);
}

/// B-09, C4: readers get a blob without its secrets, tools get the original, the disk has neither in clear, and after a restart the executor still
/// knows the secrets that only the blob tells it.
#[tokio::test]
async fn secrets_in_a_blob_are_hidden_and_stay_known() {
    let world = World::new().await;
    let filler = "filler ".repeat(10_000);
    world.runner.set(|seen| {
        seen.results.insert("a".into(), json!({"password": SECRET, "text": filler}));
        seen.results.insert("c".into(), json!({"text": format!("it was {SECRET}")}));
    });
    let executor = world.executor().await;
    let steps = "  - {id: a, tool: work}
  - {id: b, tool: work, arguments: {all: '${a.result}'}}
  - {id: c, tool: work, depends_on: [b], arguments: {prompt_call: true}}";
    let name = start(&executor, steps).await;
    let approval = world.gate.pending_approval("c").await;
    executor.until_awaiting_approval(&name).await;
    let sent = world.runner.seen().arguments[&format!("{name}/steps/b/calls/1.1")].clone();
    assert_eq!(sent["all"]["password"], SECRET);
    executor.kill().await;

    let executor = world.executor().await;
    world.gate.approve(&approval.name);
    executor.assert_completes(&name).await;
    assert_eq!(executor.output(&name, "c").await, json!({"text": "it was [REDACTED]"}));
    assert!(blob(&executor, &name, "a").await.redacted);
    assert_eq!(executor.output(&name, "a").await, json!({"password": "[REDACTED]", "text": filler}));
    executor.kill().await;
    let state = world.folder.path().join("state");
    for text in [SECRET, "filler filler filler"] {
        assert!(!is_found(&state, text.as_bytes()), "`{text}` is on the disk in clear");
    }
}

/// B-09: a stream that broke continues where it was. What does not exist is an error, and never an empty value.
#[tokio::test]
async fn a_blob_is_read_on_from_where_a_stream_broke() {
    let world = World::new().await;
    world.runner.set(|seen| drop(seen.results.insert("a".into(), json!("0123456789".repeat(30_000)))));
    let executor = world.executor().await;
    let name = executor.run("a; b").await;
    executor.assert_completes(&name).await;
    let of_a = blob(&executor, &name, "a").await;
    let all = executor.read_blob(&name, &of_a, 0).await.unwrap();
    assert_eq!((all.len(), of_a.size_bytes, of_a.redacted), (300_002, 300_002, false));
    for offset in [1, 65_536, 65_537, 300_001, 300_002] {
        let rest = executor.read_blob(&name, &of_a, offset).await.unwrap();
        assert_eq!(rest, all[usize::try_from(offset).unwrap()..], "from {offset}");
    }
    let refusal = |read: Result<Vec<u8>, tonic::Status>| {
        let status = read.unwrap_err();
        (status.code(), status::reason(&status).unwrap_or_else(|| panic!("{status:?}")))
    };
    let refused = |code, reason: &str| (code, reason.to_owned());
    let wrong = refused(Code::OutOfRange, "BLOB_OFFSET_OUT_OF_RANGE");
    assert_eq!(refusal(executor.read_blob(&name, &of_a, 300_003).await), wrong);
    let wrong = refused(Code::InvalidArgument, "INVALID_ARGUMENT");
    assert_eq!(refusal(executor.read_blob(&name, &of_a, -1).await), wrong);
    let missing = refused(Code::NotFound, "BLOB_NOT_FOUND");
    for digits in ["ab".repeat(32), "ab".to_owned()] {
        let other = v1::BlobRef { digest: format!("hmac-sha256:{digits}"), ..of_a.clone() };
        assert_eq!(refusal(executor.read_blob(&name, &other, 0).await), missing);
    }
    // A blob belongs to one execution.
    let second = executor.run("a").await;
    executor.assert_completes(&second).await;
    assert_ne!(blob(&executor, &second, "a").await.digest, of_a.digest, "the same content under another key");
    assert_eq!(refusal(executor.read_blob(&second, &of_a, 0).await), missing);
    let third = executor.run("b").await;
    executor.assert_completes(&third).await;
    assert_eq!(refusal(executor.read_blob(&third, &of_a, 0).await), missing, "it has no blob at all");
}

/// B-09, B-21: a blob that is missing or was changed is named; a step that reads it fails, and nothing stands in for it.
#[tokio::test]
async fn a_damaged_blob_is_named() {
    let world = World::new().await;
    world.runner.set(|seen| {
        for step in ["a", "b"] {
            seen.results.insert(step.into(), json!({"text": step.repeat(100_000), "n": 1}));
        }
    });
    let executor = world.executor().await;
    let steps = "  - {id: a, tool: work}
  - {id: b, tool: work}
  - {id: wait, tool: work, arguments: {prompt_call: true}, depends_on: [a, b]}
  - {id: c, tool: work, arguments: {n: '${a.result.n}'}, depends_on: [wait]}
  - {id: d, tool: work, arguments: {n: '${b.result.n}'}, depends_on: [wait]}";
    let name = start(&executor, steps).await;
    let approval = world.gate.pending_approval("wait").await;
    executor.until_awaiting_approval(&name).await;
    let (of_a, of_b) = (blob(&executor, &name, "a").await, blob(&executor, &name, "b").await);
    let path = |blob: &v1::BlobRef| folder(&world, &name).join(blob.digest.rsplit(':').next().unwrap());
    fs::remove_file(path(&of_a)).unwrap();
    let mut bytes = fs::read(path(&of_b)).unwrap();
    bytes[70_000] ^= 1;
    fs::write(path(&of_b), bytes).unwrap();
    for blob in [&of_a, &of_b] {
        let status = executor.read_blob(&name, blob, 65_536).await.unwrap_err();
        assert_eq!((status.code(), status::reason(&status).as_deref()), (Code::DataLoss, Some("BLOB_DAMAGED")));
        assert!(status.message().contains(&blob.digest), "{status}");
    }
    world.gate.approve(&approval.name);
    let ended = executor.end(&name).await;
    assert_eq!(ended.state(), State::Partial);
    for (step, blob) in [("c", &of_a), ("d", &of_b)] {
        let failure = executor.step(&name, step).await.unwrap().failure.unwrap();
        assert_eq!(failure.reason, "BLOB_DAMAGED", "{failure:?}");
        assert!(failure.message.contains(&blob.digest), "{failure:?}");
    }
    let worked = world.runner.seen().worked;
    assert!(!worked.iter().any(|call| call.contains("/steps/c/") || call.contains("/steps/d/")), "{worked:?}");
}

/// B-09, B-21: an execution that cannot be loaded without a blob that is gone, because its secrets would be shown, refuses every request at once and says
/// which blob it is.
#[tokio::test]
async fn an_execution_whose_secrets_are_gone_is_named() {
    let world = World::new().await;
    let output = json!({"password": SECRET, "text": "x".repeat(100_000)});
    world.runner.set(|seen| drop(seen.results.insert("a".into(), output)));
    let executor = world.executor().await;
    let name = executor.run("a; b: prompt_call after a").await;
    executor.until_awaiting_approval(&name).await;
    let of_a = blob(&executor, &name, "a").await;
    executor.kill().await;
    let folder = folder(&world, &name);
    let original = names(&folder).into_iter().find(|file| file.ends_with(".original")).unwrap();
    fs::remove_file(folder.join(original)).unwrap();

    let executor = world.executor().await;
    let cancel = v1::CancelExecutionRequest { name: name.clone(), ..Default::default() };
    let refused = tokio::time::timeout(TIMEOUT, async { executor.client.clone().cancel_execution(cancel).await });
    let status = refused.await.expect("it is refused at once").unwrap_err();
    assert!(status.message().contains(&of_a.digest), "{status}");
    let other = executor.run("a").await;
    executor.assert_completes(&other).await;
}

/// B-09: what is over every limit is refused once, with the field's name.
#[tokio::test]
async fn a_result_that_no_message_can_have_fails_the_step_once() {
    let world = World::new().await;
    world.runner.set(|seen| {
        seen.results.insert("a".into(), json!("x".repeat(16 << 20)));
        seen.results.insert("b".into(), json!("x".repeat((16 << 20) - 4_096)));
    });
    let executor = world.executor().await;
    let name = executor.run("a; b").await;
    assert_eq!(executor.end(&name).await.state(), State::Partial);
    let failure = executor.step(&name, "a").await.unwrap().failure.unwrap();
    assert_eq!((failure.reason.as_str(), failure.retryable), ("TOO_LARGE", false));
    assert_eq!(
        failure.message,
        "result: is larger than a message may be (16777216 bytes), and the runner has not returned a reference to it"
    );
    assert_eq!(world.runner.seen().worked.len(), 2, "neither ran again");
    assert_eq!(executor.step(&name, "b").await.unwrap().output_bytes, (16 << 20) - 4_094);
}

/// A crash between a blob and its event leaves a file that no event names. It goes when the execution is loaded; the others stay.
#[tokio::test]
async fn what_a_crash_left_is_removed() {
    let world = World::new().await;
    world.runner.set(|seen| drop(seen.results.insert("a".into(), json!("x".repeat(100_000)))));
    let executor = world.executor().await;
    let name = executor.run("a; b: prompt_call after a").await;
    let approval = world.gate.pending_approval("b").await;
    executor.until_awaiting_approval(&name).await;
    executor.kill().await;
    let folder = folder(&world, &name);
    let before = names(&folder);
    assert_eq!(before.len(), 1);
    for orphan in ["ab".repeat(32), format!("{}.original", "ab".repeat(32)), format!("{}.new", before[0])] {
        fs::write(folder.join(orphan), "left over").unwrap();
    }
    let executor = world.executor().await;
    world.gate.approve(&approval.name);
    executor.assert_completes(&name).await;
    assert_eq!(names(&folder), before);
    assert_eq!(executor.output(&name, "a").await, json!("x".repeat(100_000)));
}

/// B-26: a deleted execution leaves no blob.
#[tokio::test]
async fn the_blobs_of_a_deleted_execution_are_removed() {
    let world = World::new().await;
    world
        .runner
        .set(|seen| drop(seen.results.insert("a".into(), json!({"password": SECRET, "t": "x".repeat(100_000)}))));
    let executor = world.executor().await;
    let (name, other) = (executor.run("a").await, executor.run("a").await);
    executor.assert_completes(&name).await;
    executor.assert_completes(&other).await;
    let of_a = blob(&executor, &name, "a").await;
    let request = v1::DeleteExecutionRequest { name: name.clone(), ..Default::default() };
    assert!(executor.client.clone().delete_execution(request).await.unwrap().into_inner().complete);
    assert!(!folder(&world, &name).exists());
    assert_eq!(executor.read_blob(&name, &of_a, 0).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(executor.output(&other, "a").await["password"], "[REDACTED]", "others keep theirs");
}

/// An access that a store of blobs is about to make.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// A store of blobs that asks before it reads or writes.
struct Asks<F>(Folder, F);

impl<F: Fn(Access) -> Result<(), BlobError> + Send + Sync> BlobStore for Asks<F> {
    fn write(&self, owner: &Owner, files: &[BlobFile]) -> Result<(), BlobError> {
        self.1(Access::Write)?;
        self.0.write(owner, files)
    }

    fn read(&self, owner: &Owner, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, BlobError> {
        self.1(Access::Read)?;
        self.0.read(owner, name, offset, length)
    }

    fn length(&self, owner: &Owner, name: &str) -> Result<u64, BlobError> {
        self.0.length(owner, name)
    }

    fn names(&self, owner: &Owner) -> Result<Vec<String>, BlobError> {
        self.0.names(owner)
    }

    fn remove_files(&self, owner: &Owner, names: &[String]) -> Result<(), BlobError> {
        self.0.remove_files(owner, names)
    }

    fn remove(&self, owner: &Owner) -> Result<(), BlobError> {
        self.0.remove(owner)
    }
}

/// The parts of an executor whose store of blobs asks.
fn asking<F: Fn(Access) -> Result<(), BlobError> + Send + Sync + 'static>(
    world: &World,
    ask: F,
) -> impl FnOnce(Parts) -> Parts {
    let store = Asks(Folder::new(world.folder.path().join("blobs")), ask);
    |parts| Parts { blobs: Arc::new(store), ..parts }
}

/// While a large result waits to be hidden and sealed, here because the threads for that are busy, the other steps of its execution continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_result_holds_up_no_other_step() {
    /// As many as read and write at a time.
    const BUSY: usize = 8;
    let world = World::new().await;
    world.runner.set(|seen| drop(seen.results.insert("a".into(), json!({"text": "x".repeat(100_000)}))));
    // A read takes one permit for a moment.
    let (disk, reading) = (Arc::new(Semaphore::new(BUSY)), Arc::new(Semaphore::new(0)));
    let ask = {
        let (disk, reading, runtime) = (Arc::clone(&disk), Arc::clone(&reading), Handle::current());
        move |access| {
            if access == Access::Read {
                reading.add_permits(1);
                drop(runtime.block_on(disk.acquire()).unwrap());
            }
            Ok(())
        }
    };
    let thresholds = Thresholds { park_after: Duration::ZERO, ..Thresholds::default() };
    let inside = inside_on(&world, Arc::new(SystemClock), thresholds, asking(&world, ask)).await;
    let steps = "  - {id: a, tool: work}
  - {id: c, tool: work, depends_on: [a], arguments: {effect: true}}
  - {id: b, tool: work, depends_on: [c], arguments: {all: '${a.result.text}'}}";
    let mut readers = Vec::new();
    for _ in 0..BUSY {
        let name = start(&inside.executor, steps).await;
        inside.executor.until_awaiting_approval(&name).await;
        readers.push(name);
    }
    let stopped = disk.acquire_many(BUSY as u32).await.unwrap();
    reading.forget_permits(usize::MAX >> 4);
    for approval in world.gate.seen().approvals.values() {
        world.gate.approve(&approval.name);
    }
    drop(reading.acquire_many(BUSY as u32).await.unwrap());

    let steps = "  - {id: a, tool: work}\n  - {id: d, tool: work}\nparallelism: 2";
    let name = start(&inside.executor, steps).await;
    let is_done = |execution: &v1::Execution, id: &str| {
        execution.steps.iter().any(|step| step.step_id == id && step.state() == v1::step::State::Completed)
    };
    let seen = inside.executor.until(&name, "the step beside it", |execution| is_done(execution, "d")).await;
    assert!(!is_done(&seen, "a"), "its result cannot be sealed yet");
    drop(stopped);
    for name in readers.iter().chain([&name]) {
        inside.executor.assert_completes(name).await;
    }
    inside.stop();
}

/// B-09: on a full disk nothing is acknowledged of a result that cannot be stored, the executor says why, and the next one continues.
#[tokio::test]
async fn a_full_disk_loses_no_result() {
    let world = World::new().await;
    world.runner.set(|seen| drop(seen.results.insert("a".into(), json!("x".repeat(100_000)))));
    let is_full = Arc::new(AtomicBool::new(true));
    let on = || {
        let is_full = Arc::clone(&is_full);
        asking(&world, move |access| match access {
            Access::Write if is_full.load(Ordering::SeqCst) => Err(BlobError::Full),
            Access::Write | Access::Read => Ok(()),
        })
    };
    let inside = inside_on(&world, Arc::new(SystemClock), Thresholds::default(), on()).await;
    inside.executions.drive_all().await.unwrap();
    let name = inside.executor.run("a; b after a").await;
    assert_eq!(inside.executions.broken().await.to_string(), "the disk is full");
    let seen = world.runner.seen();
    assert!(seen.acknowledged.is_empty() && seen.worked.len() == 1, "{:?}", seen.worked);
    inside.stop();

    is_full.store(false, Ordering::SeqCst);
    let inside = inside_on(&world, Arc::new(SystemClock), Thresholds::default(), on()).await;
    inside.executions.drive_all().await.unwrap();
    inside.executor.assert_completes(&name).await;
    assert_eq!(inside.executor.output(&name, "a").await, json!("x".repeat(100_000)));
    assert_eq!(world.runner.seen().worked.len(), 2, "each ran once");
    inside.stop();
}

/// B-09: a disk that cannot be read for a moment fails no step and stops no execution, wherever a blob is needed: when it is loaded, for a template, and for
/// the arguments of a call that continues.
#[tokio::test]
async fn a_disk_that_fails_for_a_moment_fails_no_step() {
    fails_for_a_moment(json!({"text": "x".repeat(200_000)})).await;
}

/// The same where the execution cannot be loaded without the blob, which has a secret.
#[tokio::test]
async fn a_disk_that_fails_while_an_execution_is_loaded_fails_no_step() {
    fails_for_a_moment(json!({"text": "x".repeat(200_000), "password": SECRET})).await;
}

async fn fails_for_a_moment(output: Value) {
    let world = World::new().await;
    let text = output["text"].clone();
    world.runner.set(|seen| drop(seen.results.insert("a".into(), output)));
    let failures = Arc::new(AtomicUsize::new(0));
    let on = || {
        let failures = Arc::clone(&failures);
        let fails = |left: usize| left.checked_sub(1);
        asking(&world, move |access| match access {
            Access::Read if failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails).is_ok() => {
                Err(BlobError::Failed(std::io::Error::other("the disk is away")))
            }
            Access::Read | Access::Write => Ok(()),
        })
    };
    let steps = "  - {id: a, tool: work}
  - {id: w, wait: {signal: go}, depends_on: [a]}
  - {id: b, tool: work, arguments: {all: '${a.result.text}'}, depends_on: [w]}";
    let started = async || {
        let inside = inside_on(&world, Arc::new(SystemClock), Thresholds::default(), on()).await;
        failures.store(5, Ordering::SeqCst);
        inside.executions.drive_all().await.unwrap();
        inside
    };
    let inside = started().await;
    failures.store(0, Ordering::SeqCst);
    let name = start(&inside.executor, steps).await;
    let is_waiting = |execution: &v1::Execution| execution.steps[1].state() == v1::step::State::Waiting;
    inside.executor.until(&name, "the wait", is_waiting).await;
    inside.stop();

    // It is parked: the signal loads it, and the template needs the output of a.
    world.runner.set(|seen| seen.stuck.extend(["b".to_owned()]));
    let inside = started().await;
    let signal = v1::SignalExecutionRequest { name: name.clone(), signal: "go".into(), ..Default::default() };
    while let Err(status) = inside.executor.client.clone().signal_execution(signal.clone()).await {
        // The executor before may still answer, and a request is not kept while the execution cannot be read.
        assert!(matches!(status::reason(&status).as_deref(), Some("STOPPING" | "STORE_FAILED")), "{status}");
    }
    world.runner.until("the call of b", |seen| seen.arguments.contains_key(&b(&name))).await;
    assert_eq!(failures.load(Ordering::SeqCst), 0, "the disk has failed");
    inside.stop();

    // The call is in doubt: it is sent again, with the arguments that it had.
    world.runner.set(|seen| {
        seen.stuck.clear();
        seen.arguments.clear();
    });
    let inside = started().await;
    let has_failed = async {
        while failures.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, has_failed).await.expect("the driver reads until the disk answers");
    inside.executor.assert_completes(&name).await;
    assert_eq!(world.runner.seen().arguments[&b(&name)], json!({"all": text}));
    inside.stop();
}

fn b(execution: &str) -> String {
    format!("{execution}/steps/b/calls/1.1")
}

/// B-09: arguments that are gone cannot be sent, and the call may be running, so that nothing can be said of it. The execution can be cancelled, which
/// needs no arguments.
#[tokio::test]
async fn a_call_whose_arguments_are_gone_is_not_sent_and_can_be_cancelled() {
    let world = World::new().await;
    let text = "x".repeat(200_000);
    world.runner.set(|seen| {
        seen.results.insert("a".into(), json!({"text": text}));
        seen.stuck.extend(["b".to_owned()]);
    });
    let on = |parts: Parts| parts;
    let started = async || inside_on(&world, Arc::new(SystemClock), Thresholds::default(), on).await;
    let inside = started().await;
    let steps = "  - {id: a, tool: work}
  - {id: w, wait: {signal: go}, depends_on: [a]}
  - {id: b, tool: work, arguments: {all: '${a.result.text}'}, depends_on: [w]}";
    let name = start(&inside.executor, steps).await;
    let is_waiting = |execution: &v1::Execution| execution.steps[1].state() == v1::step::State::Waiting;
    inside.executor.until(&name, "the wait", is_waiting).await;
    let [_, namespace, _, id] = name.split('/').collect::<Vec<_>>()[..] else { panic!("{name}") };
    let folder = world.folder.path().join("blobs").join(namespace).join(id);
    let output = names(&folder);
    let signal = v1::SignalExecutionRequest { name: name.clone(), signal: "go".into(), ..Default::default() };
    inside.executor.client.clone().signal_execution(signal).await.unwrap();
    world.runner.until("the call of b", |seen| seen.arguments.contains_key(&b(&name))).await;
    inside.stop();

    let file = names(&folder).into_iter().find(|file| !output.contains(file)).unwrap();
    fs::remove_file(folder.join(&file)).unwrap();
    let inside = started().await;
    inside.executions.drive_all().await.unwrap();
    let cancel = v1::CancelExecutionRequest { name: name.clone(), ..Default::default() };
    // While its driver ends because of the blob, a request is told about that.
    while let Err(status) = inside.executor.client.clone().cancel_execution(cancel.clone()).await {
        assert_eq!(status::reason(&status).as_deref(), Some("BLOB_DAMAGED"), "{status}");
    }
    // The runner, which is asked to cancel the call, says how it has ended.
    assert_eq!(inside.executor.end(&name).await.state(), State::Completed);
    assert_eq!(world.runner.seen().worked.iter().filter(|call| call.contains("/b/")).count(), 1);
    inside.stop();
}
