//! Requests while a call waits for approval.

use belay_proto::v1::{self, ApprovalMode, approval::State, step};
use tonic::Code;

use crate::support::World;

// B-04, S2-FR-052: a decision during a pause is stored, and carried out after it.
#[tokio::test]
async fn a_decision_during_a_pause_is_carried_out_after_it() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    executor.until_awaiting_approval(&name).await;
    executor.pause(&name).await;
    world.gate.approve(&approval.name);
    let decided = |execution: &v1::Execution| execution.steps[0].state() != step::State::AwaitingApproval;
    let paused = executor.until(&name, "the stored decision", decided).await;
    assert_eq!(paused.state(), v1::execution::State::Paused);
    assert_eq!(world.runner.seen().asked_to_commit, 0);
    executor.resume(&name).await;
    executor.assert_completes(&name).await;
    assert_eq!(world.runner.seen().asked_to_commit, 1);
}

#[tokio::test]
async fn cancelling_an_execution_cancels_its_approval() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    executor.until(&name, "the wait", |execution| !execution.steps[0].approvals.is_empty()).await;
    executor.cancel(&name).await;
    assert_eq!(executor.end(&name).await.state(), v1::execution::State::Cancelled);
    world.gate.until("the cancellation", |seen| seen.cancelled.contains(&approval.name)).await;
}

/// A request that the gate will refuse again ends its step with the gate's words, and nothing is committed; what may pass is waited for.
#[tokio::test]
async fn an_approval_that_the_gate_refuses_to_ask_for_fails_its_step() {
    let world = World::new().await;
    let executor = world.executor().await;
    let large =
        (Code::FailedPrecondition, "SUBJECT_TOO_LARGE", "The list of what the call changed is longer than 8 MiB.");
    world.gate.set(|seen| seen.refuses_approvals = Some(large));
    let ended = executor.end(&executor.run("a: effect").await).await;
    let failure = ended.steps[0].failure.as_ref().unwrap();
    assert_eq!((ended.state(), failure.reason.as_str()), (v1::execution::State::Failed, "APPROVAL_REFUSED"));
    let words = "The approval gate cannot ask a person about this call: The list of what the call changed is longer than 8 MiB.";
    assert_eq!(failure.message, words);
    assert_eq!(world.runner.seen().asked_to_commit, 0);

    for (code, reason) in [(Code::FailedPrecondition, "CALL_NOT_HELD"), (Code::PermissionDenied, "NOT_A_SERVICE")] {
        world.gate.set(|seen| seen.refuses_approvals = Some((code, reason, "Not now.")));
        let name = executor.run("a: effect").await;
        let waits = |execution: &v1::Execution| execution.waiting.iter().any(|wait| wait.who.contains("approval gate"));
        executor.until(&name, "the wait for the gate", waits).await;
        world.gate.set(|seen| seen.refuses_approvals = None);
        let approval = world.gate.pending_approval("a").await;
        world.gate.approve(&approval.name);
        executor.assert_completes(&name).await;
    }
}

// A late decision is acknowledged, so that the gate does not send it forever.
#[tokio::test]
async fn a_decision_that_no_call_waits_for_is_acknowledged_and_dropped() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a").await;
    let ended = executor.end(&name).await;
    for (id, execution) in [("late", name.as_str()), ("lost", "namespaces/default/executions/nowhere"), ("odd", "odd")]
    {
        let name = format!("namespaces/default/approvals/{id}");
        let (call, state) = (format!("{execution}/steps/a/calls/1.1"), State::Approved.into());
        let execution = execution.to_owned();
        let approval = v1::Approval { name: name.clone(), state, execution, call, ..v1::Approval::default() };
        world.gate.set(|seen| drop(seen.approvals.insert(name.clone(), approval)));
        world.gate.until("the acknowledgement", |seen| seen.delivered.contains(&name)).await;
    }
    assert_eq!(executor.get(&name).await.unwrap().last_sequence, ended.last_sequence);
}

// FAIL and SKIP never create an approval.
#[tokio::test]
async fn an_execution_can_run_without_approvals() {
    let world = World::new().await;
    let executor = world.executor().await;
    let failed = executor.run_in(ApprovalMode::Fail, "a: effect").await;
    let failure = executor.end(&failed).await.failure.unwrap();
    assert_eq!(failure.reason, "NON_INTERACTIVE");
    assert_eq!(failure.error_class(), v1::ErrorClass::ApprovalDenied);
    let skipped = executor.run_in(ApprovalMode::Skip, "a: prompt_call").await;
    let skipped = executor.end(&skipped).await;
    assert_eq!(skipped.steps[0].skip_reason(), v1::SkipReason::NonInteractive);
    assert_eq!(skipped.approval_mode(), ApprovalMode::Skip);
    assert!(world.gate.seen().approvals.is_empty());
    assert_eq!(world.runner.seen().discarded.len(), 2);
}

// AUTO: the gate decides by its policy, at once.
#[tokio::test]
async fn the_policy_can_decide_for_the_person() {
    let world = World::new().await;
    let executor = world.executor().await;
    for (policy, ends) in [
        (State::Approved, v1::execution::State::Completed),
        (State::Denied, v1::execution::State::Failed),
        (State::Skipped, v1::execution::State::Partial),
    ] {
        world.gate.set(|seen| seen.policy = Some(policy));
        let name = executor.run_in(ApprovalMode::Auto, "a: effect").await;
        let ended = executor.end(&name).await;
        assert_eq!(ended.state(), ends);
        if let Some(failure) = ended.failure {
            assert_eq!(failure.reason, "NON_INTERACTIVE");
        }
    }
    assert_eq!(world.runner.seen().committed.len(), 1);
    assert_eq!(Vec::from_iter(world.gate.seen().modes), [i32::from(ApprovalMode::Auto)]);
}

// A pending approval blocks only the steps that depend on it.
#[tokio::test]
async fn independent_steps_continue() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect; b; c after b; d after a").await;
    let waits = executor.until_awaiting_approval(&name).await;
    let states: Vec<step::State> = waits.steps.iter().map(v1::Step::state).collect();
    use step::State as S;
    assert_eq!(states, [S::AwaitingApproval, S::Completed, S::Completed, S::Pending]);
}
