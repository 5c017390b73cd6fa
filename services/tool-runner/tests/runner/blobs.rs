//! Results that are too large for messages: what messages have instead, and who reads them until when.

use belay_grant::digest_of;
use belay_proto::{
    runner_v1::{self, attach_tool_call_response::Event},
    v1::{self, payload::Content, tool_call::State},
};
use belay_service_kit::status;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::support::*;

const SIZE: usize = 5 << 20;

fn fill(length: usize) -> Value {
    json!([["fill", length.to_string()]])
}

/// The reference that a call has in place of its result.
fn reference(call: &runner_v1::ToolCall) -> v1::BlobRef {
    assert_eq!(state(call), State::Completed, "{:?}", call.failure);
    match call.result.clone().unwrap().content.unwrap() {
        Content::Blob(blob) => blob,
        Content::Json(json) => panic!("{} bytes are inline", json.len()),
    }
}

fn refused(read: Result<Vec<u8>, Status>) -> (Code, String) {
    let status = read.unwrap_err();
    (status.code(), refusal(&status))
}

fn not_found(reason: &str) -> (Code, String) {
    (Code::NotFound, reason.to_owned())
}

/// B-09: whatever returns a call returns the reference, and ReadBlob returns every byte, from any offset.
#[tokio::test]
async fn a_large_result_is_a_reference_in_every_message() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let expected = json!(filled(SIZE)).to_string();
    for tool in [LOOK, KEEP, CHANGE, SEND] {
        let blob = reference(&runner.run(tool, tool, fill(SIZE)).await);
        let size = i64::try_from(expected.len()).unwrap();
        assert_eq!((blob.size_bytes, blob.media_type.as_str(), blob.redacted), (size, "application/json", false));
        assert_eq!(blob.digest, digest_of(expected.as_bytes()));
        assert_eq!(reference(&runner.get(tool).await.unwrap()), blob, "GetToolCall");
        assert_eq!(reference(&runner.cancel(tool).await.unwrap()), blob, "it has ended");
        let request = runner_v1::AttachToolCallRequest { name: name(tool), ..Default::default() };
        let mut attached = runner.client.clone().attach_tool_call(request).await.unwrap().into_inner();
        let Some(Event::Result(call)) = attached.message().await.unwrap().unwrap().event else {
            panic!("it has ended")
        };
        assert_eq!(reference(&call), blob, "AttachToolCall");
        for offset in [0, 1, 65_535, 65_536, 65_537, expected.len() - 1, expected.len()] {
            let read = runner.read_blob(tool, &blob.digest, offset).await.unwrap();
            assert!(read == expected.as_bytes()[offset..], "{tool} from {offset}");
        }
    }
    let runs = bench.signals.runs();
    assert_eq!(reference(&runner.run(LOOK, LOOK, fill(SIZE)).await).size_bytes as usize, expected.len());
    assert_eq!(bench.signals.runs(), runs, "a call that only reads is kept as well, for its result");

    let least = |length: usize| runner.run("limit", KEEP, fill(length));
    let inline = least((32 << 10) - 2).await.result.unwrap();
    assert!(matches!(inline.content, Some(Content::Json(json)) if json.len() == 32 << 10), "32 KiB are inline");
    assert_eq!(reference(&runner.run("above", KEEP, fill((32 << 10) - 1)).await).size_bytes, (32 << 10) + 1);
}

/// A missing blob is an error that says so, and never an empty value.
#[tokio::test]
async fn what_is_not_there_is_refused() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let blob = reference(&runner.run("a", LOOK, fill(100_000)).await);
    let status = runner.read_blob("never", &blob.digest, 0).await.unwrap_err();
    assert_eq!(status::fact(&status, "ledger_id").as_deref(), Some("a ledger"), "as of GetToolCall");
    assert_eq!(refused(Err(status)), not_found("CALL_NOT_FOUND"));
    for digest in ["", "sha256:", &digest_of(b"another")] {
        assert_eq!(refused(runner.read_blob("a", digest, 0).await), not_found("BLOB_NOT_FOUND"), "{digest}");
    }
    runner.run("small", KEEP, json!([])).await;
    let running = runner.spawn(runner.request("running", KEEP, json!([["wait"]])));
    bench.signals.has_run(3).await;
    for call in ["small", "running"] {
        assert_eq!(refused(runner.read_blob(call, &blob.digest, 0).await), not_found("BLOB_NOT_FOUND"), "{call}");
    }
    let after = usize::try_from(blob.size_bytes).unwrap() + 1;
    let expected = (Code::OutOfRange, "BLOB_OFFSET_OUT_OF_RANGE".to_owned());
    assert_eq!(refused(runner.read_blob("a", &blob.digest, after).await), expected);
    let expected = (Code::InvalidArgument, "INVALID_ARGUMENT".to_owned());
    for (name, offset) in [(name("a"), -1), ("a".to_owned(), 0)] {
        let request = runner_v1::ReadBlobRequest { name, digest: blob.digest.clone(), offset };
        let status = runner.client.clone().read_blob(request).await.unwrap_err();
        assert_eq!((status.code(), refusal(&status)), expected);
    }
    bench.signals.resume.add_permits(1);
    running.await.unwrap().unwrap();
}

/// A result lives as long as its call: until that is acknowledged or its execution is forgotten, and no longer.
#[tokio::test]
async fn a_result_goes_with_its_call() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    for tool in [LOOK, KEEP] {
        let blob = reference(&runner.run(tool, tool, fill(100_000)).await);
        assert_eq!(runner.unacknowledged().await, [name(tool)]);
        runner.acknowledge(tool).await;
        assert_eq!(refused(runner.read_blob(tool, &blob.digest, 0).await), not_found("CALL_NOT_FOUND"), "{tool}");
        assert_eq!(runner.get(tool).await.unwrap_err().code(), Code::NotFound);
    }
    let blob = reference(&runner.run("b", LOOK, fill(100_000)).await);
    let execution = name("b").split("/steps/").next().unwrap().to_owned();
    let executions = vec![runner_v1::DeletedExecution { name: execution, ..Default::default() }];
    runner.client.clone().forget_executions(runner_v1::ForgetExecutionsRequest { executions }).await.unwrap();
    assert_eq!(refused(runner.read_blob("b", &blob.digest, 0).await), not_found("CALL_NOT_FOUND"));
}

/// C1: what the ledger has of a call includes its result. A call without a row runs again when it is sent again.
#[tokio::test]
async fn a_result_in_the_ledger_outlives_the_runner() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let todo = |tool| match tool {
        CHANGE => json!([["write", "file", "new"], ["fill", "300000"]]),
        _ => fill(300_000),
    };
    let mut before = Vec::new();
    for tool in [KEEP, SEND, CHANGE, LOOK] {
        before.push(reference(&runner.run(tool, tool, todo(tool)).await));
    }
    runner.lose().await;
    let runner = bench.start(FREE).await;
    let expected = json!(filled(300_000)).to_string();
    for (tool, blob) in [KEEP, SEND, CHANGE].into_iter().zip(&before) {
        assert_eq!(reference(&runner.get(tool).await.unwrap()), *blob, "{tool}");
        assert!(runner.read_blob(tool, &blob.digest, 0).await.unwrap() == expected.as_bytes(), "{tool}");
    }
    assert_eq!(refused(runner.read_blob(LOOK, &before[3].digest, 0).await), not_found("CALL_NOT_FOUND"));
    assert_eq!(bench.signals.runs(), 4);
    assert_eq!(reference(&runner.run(LOOK, LOOK, todo(LOOK)).await), before[3]);
    assert_eq!(bench.signals.runs(), 5);
}

/// The result of a call that waits for approval is not served before that.
#[tokio::test]
async fn an_effect_that_is_approved_has_its_result_in_a_blob() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let held = runner.run("a", CHANGE, json!([["write", "file", "new"], ["fill", "100000"]])).await;
    assert_eq!((state(&held), held.result.clone()), (State::AwaitingApproval, None));
    let digest = digest_of(json!(filled(100_000)).to_string().as_bytes());
    assert_eq!(refused(runner.read_blob("a", &digest, 0).await), not_found("BLOB_NOT_FOUND"));
    let ended = runner.commit("a", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!(reference(&ended).digest, digest);
    assert_eq!(runner.read_blob("a", &digest, 0).await.unwrap().len(), 100_002);
}

/// A result above the limit is refused before anything is committed, once, with the field's name.
#[tokio::test]
async fn a_result_above_the_limit_fails_its_call() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let length = (64 << 20) - 1;
    let todo = json!([["write", "file", "new"], ["fill", length.to_string()]]);
    let failed = runner.run("a", CHANGE, todo).await;
    assert_eq!((state(&failed), reason(&failed)), (State::Failed, "TOO_LARGE"));
    assert_eq!(failed.failure.unwrap().message, "result: has 67108865 bytes and the limit is 67108864");
    assert!(bench.tree().is_empty(), "nothing was committed");
}

/// A result that readers of JSON would refuse is refused before anything is committed.
#[tokio::test]
async fn a_result_that_is_nested_too_deep_fails_its_call() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let todo = |levels: usize| json!([["write", format!("file-{levels}"), "new"], ["nest", levels.to_string()]]);
    let taken = runner.run("a", CHANGE, todo(127)).await;
    assert_eq!(state(&taken), State::Completed);
    let failed = runner.run("b", CHANGE, todo(128)).await;
    assert_eq!((state(&failed), reason(&failed)), (State::Failed, "INVALID_RESULT"));
    assert_eq!(failed.failure.unwrap().message, "result: is nested deeper than 127 levels: flatten it");
    assert_eq!(bench.tree().len(), 1, "nothing more was committed");
}
