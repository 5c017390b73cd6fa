//! Results that the runner refers to: the executor copies them before it acknowledges, and takes nothing in place of them.

use std::sync::Arc;

use belay_executor::Thresholds;
use belay_proto::v1::{self, execution::State, execution_event::Kind, payload::Content};
use belay_service_kit::SystemClock;
use serde_json::{Value, json};

use crate::{
    memory::inside_with,
    support::{Executor, TIMEOUT, World},
};

/// A result of 300,002 bytes, in five pieces.
fn large() -> Value {
    let letters = (0..300_000_u32).map(|at| char::from_digit((at + at / 65_536) % 36, 36).expect("a digit"));
    json!(letters.collect::<String>())
}

/// A world whose runner returns references, and a large result of the step `a`.
async fn world() -> World {
    let world = World::new().await;
    world.runner.set(|seen| {
        seen.references = true;
        seen.results.insert("a".into(), large());
    });
    world
}

fn offsets(world: &World) -> Vec<i64> {
    world.runner.seen().copies.into_iter().map(|(_, offset)| offset).collect()
}

async fn failure(executor: &Executor, name: &str) -> v1::Failure {
    let step = executor.step(name, "a").await.unwrap();
    assert_eq!(step.output, None, "nothing stands in for the result");
    step.failure.unwrap()
}

/// B-09, C1: what is acknowledged is stored. A copy that a killed executor had not stored is made again, and the call does not run again.
#[tokio::test]
async fn a_result_is_copied_before_it_is_acknowledged() {
    for has_no_sessions in [false, true] {
        let world = world().await;
        world.runner.set(|seen| {
            seen.has_no_sessions = has_no_sessions;
            seen.holds_copies = true;
        });
        let executor = world.executor().await;
        let name = executor.run("a; b after a").await;
        world.runner.until("a copy", |seen| !seen.copies.is_empty()).await;
        assert!(world.runner.seen().acknowledged.is_empty());
        executor.kill().await;
        world.runner.set(|seen| seen.holds_copies = false);
        let executor = world.executor().await;
        executor.assert_completes(&name).await;
        assert_eq!(executor.output(&name, "a").await, large());
        let output = executor.step(&name, "a").await.unwrap().output.unwrap();
        let Some(Content::Blob(blob)) = output.content else { panic!("it is inline") };
        assert!(blob.digest.starts_with("hmac-sha256:"), "the reference is to the executor's own copy: {blob:?}");
        let of_a = format!("{name}/steps/a/calls/1.1");
        let seen = world.runner.until("the acknowledgement", |seen| seen.acknowledged.contains(&of_a)).await;
        assert_eq!((seen.worked.len(), seen.late_copies), (2, 0), "{:?}", seen.worked);
        assert_eq!(offsets(&world), [0, 0]);
    }
}

/// A stream that breaks is continued, as often as it brings something.
#[tokio::test]
async fn a_copy_goes_on_where_its_stream_broke() {
    let world = world().await;
    world.runner.set(|seen| seen.breaks_copies = 3);
    let executor = world.executor().await;
    let name = executor.run("a").await;
    executor.assert_completes(&name).await;
    assert_eq!(executor.output(&name, "a").await, large());
    assert_eq!(offsets(&world), [0, 65_536, 131_072, 196_608]);
    assert_eq!(world.runner.seen().worked.len(), 1);
}

/// B-09: what the runner returns has to be what it promised. If it never is, the step fails, and says why; nothing is `null`.
#[tokio::test]
async fn a_copy_with_another_digest_is_not_taken() {
    let world = world().await;
    world.runner.set(|seen| seen.spoils_copies = 2);
    let executor = world.executor().await;
    let name = executor.run("a").await;
    executor.assert_completes(&name).await;
    assert_eq!(executor.output(&name, "a").await, large());
    assert_eq!(offsets(&world), [0, 0, 0]);

    world.runner.set(|seen| seen.spoils_copies = usize::MAX);
    let name = executor.run("a; b after a").await;
    assert_eq!(executor.end(&name).await.state(), State::Failed);
    let failure = failure(&executor, &name).await;
    assert_eq!((failure.reason.as_str(), failure.retryable), ("RESULT_LOST", false));
    assert!(failure.message.contains("its result of 300002 bytes is lost: its digest is sha256:"), "{failure:?}");
    assert_eq!(world.runner.seen().worked.len(), 2, "a ran once in each execution");
    let of_a = format!("{name}/steps/a/calls/1.1");
    world.runner.until("the acknowledgement", |seen| seen.acknowledged.contains(&of_a)).await;
}

/// A call that changed nothing is sent again when the runner has lost its result. One whose changes are in place is not: its step fails.
#[tokio::test]
async fn a_lost_result_fails_the_step_unless_the_call_may_run_again() {
    let world = world().await;
    world.runner.set(|seen| seen.loses_results = 2);
    let executor = world.executor().await;
    let name = executor.run("a").await;
    executor.assert_completes(&name).await;
    assert_eq!(executor.output(&name, "a").await, large());
    assert_eq!(world.runner.seen().asked_to_run, 3, "each time it attached to the call");

    world.runner.set(|seen| seen.loses_results = usize::MAX);
    let name = executor.run("a").await;
    assert_eq!(executor.end(&name).await.state(), State::Failed);
    assert_eq!(failure(&executor, &name).await.reason, "RESULT_LOST", "it does not go on forever");

    let copies = world.runner.seen().copies.len();
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    assert_eq!(executor.end(&name).await.state(), State::Failed);
    let failure = failure(&executor, &name).await;
    assert_eq!(failure.reason, "RESULT_LOST");
    assert!(failure.message.starts_with("The call completed and what it changed is in place"), "{failure:?}");
    let seen = world.runner.seen();
    assert_eq!((seen.committed.len(), seen.copies.len() - copies), (1, 1), "nothing is tried again");
    let events = executor.events(&name).await;
    let failed = events.iter().find_map(|event| match event.kind.as_ref()? {
        Kind::ToolCallFailed(failed) => failed.receipt.clone(),
        _ => None,
    });
    assert_eq!(failed.unwrap().effect_digest, "sha256:effect", "its changes stay on record");
}

/// A runner keeps a call that only reads for its result: it is acknowledged, and runs again when the result is lost.
#[tokio::test]
async fn a_call_that_only_reads_is_acknowledged_for_its_result() {
    let world = world().await;
    world.runner.set(|seen| {
        seen.only_reads = true;
        seen.breaks_copies = usize::MAX;
    });
    let executor = world.executor().await;
    let name = executor.run("b; a after b").await;
    world.runner.until("a copy", |seen| !seen.copies.is_empty()).await;
    world.runner.replace_ledger();
    world.runner.set(|seen| seen.breaks_copies = 0);
    executor.assert_completes(&name).await;
    assert_eq!(executor.output(&name, "a").await, large());
    let of_a = format!("{name}/steps/a/calls/1.1");
    let seen = world.runner.until("the acknowledgement", |seen| !seen.acknowledged.is_empty()).await;
    assert_eq!(seen.acknowledged.iter().collect::<Vec<_>>(), [&of_a], "a small result needs none");
    assert_eq!(seen.sessions, 1, "it was not only sent again because another session began");
    assert_eq!(seen.worked.iter().filter(|call| **call == of_a).count(), 2, "{:?}", seen.worked);
}

/// A runner that lost its ledger while a result was copied has lost the result, and not the outcome.
#[tokio::test]
async fn a_ledger_that_is_replaced_during_a_copy_loses_the_result_alone() {
    let world = world().await;
    world.runner.set(|seen| seen.breaks_copies = usize::MAX);
    let executor = world.executor().await;
    let name = executor.run("a").await;
    world.runner.until("a copy", |seen| !seen.copies.is_empty()).await;
    world.runner.replace_ledger();
    assert_eq!(executor.end(&name).await.state(), State::Failed);
    assert_eq!(failure(&executor, &name).await.reason, "RESULT_LOST");
    assert_eq!(world.runner.seen().worked.len(), 1);
}

/// A result above the limit is not read at all.
#[tokio::test]
async fn a_reference_above_the_limit_fails_the_step_once() {
    let world = world().await;
    world.runner.set(|seen| {
        seen.newer_reply = Some(|call| {
            if let Some(Content::Blob(blob)) = call.result.as_mut().and_then(|result| result.content.as_mut()) {
                blob.size_bytes = (64 << 20) + 1;
            }
        });
    });
    let executor = world.executor().await;
    let name = executor.run("a").await;
    assert_eq!(executor.end(&name).await.state(), State::Failed);
    let failure = failure(&executor, &name).await;
    assert_eq!((failure.reason.as_str(), failure.retryable), ("TOO_LARGE", false));
    assert_eq!(failure.message, "result: has 67108865 bytes and the limit is 67108864");
    assert!(offsets(&world).is_empty());
}

/// C4: a copied result is hidden and sealed as one that came inline.
#[tokio::test]
async fn secrets_in_a_copied_result_are_hidden() {
    const SECRET: &str = "hunter2-hunter2-hunter2";
    let world = world().await;
    let filler = "filler ".repeat(10_000);
    let result = json!({"password": SECRET, "text": filler});
    world.runner.set(|seen| drop(seen.results.insert("a".into(), result)));
    let executor = world.executor().await;
    let name = executor.run("a").await;
    executor.assert_completes(&name).await;
    assert_eq!(offsets(&world), [0]);
    assert_eq!(executor.output(&name, "a").await, json!({"password": "[REDACTED]", "text": filler}));
}

/// While a result is copied, the driver does what people ask of it, other executions continue, and the service stops.
#[tokio::test]
async fn a_copy_holds_up_nothing_else() {
    let world = world().await;
    world.runner.set(|seen| seen.holds_copies = true);
    let inside = inside_with(&world, Arc::new(SystemClock), Thresholds::default()).await;
    inside.executions.drive_all().await.unwrap();
    let name = inside.executor.run("a; d after a").await;
    world.runner.until("a copy", |seen| !seen.copies.is_empty()).await;
    let other = inside.executor.run("b; c after b").await;
    inside.executor.assert_completes(&other).await;
    let pause = v1::PauseExecutionRequest { name: name.clone(), ..Default::default() };
    let paused = tokio::time::timeout(TIMEOUT, inside.executor.client.clone().pause_execution(pause)).await;
    paused.expect("it is answered at once").unwrap();
    let cancel = v1::CancelExecutionRequest { name: name.clone(), ..Default::default() };
    let cancelled = tokio::time::timeout(TIMEOUT, inside.executor.client.clone().cancel_execution(cancel)).await;
    cancelled.expect("it is answered at once").unwrap();
    // The request to cancel the call finds that it has completed, and copies its result.
    world.runner.until("another copy", |seen| seen.copies.len() > 1).await;
    inside.stop();

    world.runner.set(|seen| seen.holds_copies = false);
    let next = inside_with(&world, Arc::new(SystemClock), Thresholds::default());
    let inside = tokio::time::timeout(TIMEOUT, next).await.expect("the first has stopped and closed its journal");
    inside.executions.drive_all().await.unwrap();
    assert_eq!(inside.executor.end(&name).await.state(), State::Cancelled);
    assert_eq!(world.runner.seen().worked.len(), 3);
    assert_eq!(inside.executor.output(&name, "a").await, large(), "what the call did is on record");
    inside.stop();
}
