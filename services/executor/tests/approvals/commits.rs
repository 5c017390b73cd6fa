//! The consequences of decisions.

use belay_proto::v1::{self, approval::State, step, waiting_reason};

use crate::support::{World, kinds};

// S2-FR-049, S2-FR-052, S2-FR-053, S2-FR-069, S2-FR-070, S2-X-19: requested, waited for, approved, committed once, and all of it in events.
#[tokio::test]
async fn an_approved_effect_is_committed_and_the_plan_goes_on() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect; b after a").await;
    let approval = world.gate.pending_approval("a").await;
    assert_eq!(approval.requested_by, "person:owner", "the person, not the endpoint");

    let waits = executor.until_awaiting_approval(&name).await;
    let waiting = &waits.waiting[0];
    assert_eq!(waiting.kind(), waiting_reason::Kind::Approval);
    assert_eq!(waiting.who, "a person (rule writes: files change)");
    let id = approval.name.rsplit('/').next().unwrap();
    assert_eq!(waiting.next_command, format!("belay approvals show {id}"));
    assert_eq!(waits.steps[0].state(), step::State::AwaitingApproval);
    assert_eq!(waits.steps[0].approvals, [approval.name.as_str()]);
    assert_eq!(world.runner.seen().committed, Vec::<String>::new());

    world.gate.decide(&approval.name, State::Approved, "fine");
    let events = executor.events(&name).await;
    assert_eq!(
        kinds(&events),
        [
            "executionCreated",
            "executionStarted",
            "stepStarted",
            "toolCallRequested",
            "toolCallEffectProposed",
            "approvalRequested",
            "executionAwaitingApproval",
            "approvalDecided",
            "toolCallCompleted",
            "stepCompleted",
            "stepStarted",
            "toolCallRequested",
            "toolCallCompleted",
            "stepCompleted",
            "executionFinished",
        ]
    );
    assert_eq!(world.runner.seen().committed, [approval.call.as_str()]);
    let seen = world.gate.until("the report to the gate", |seen| seen.consumed.contains(&approval.name)).await;
    assert!(seen.delivered.contains(&approval.name) && seen.stale.is_empty());
    let Some(v1::execution_event::Kind::ApprovalDecided(decided)) = &events[7].kind else { panic!("{events:?}") };
    let by = events[7].actor.as_ref().map(|actor| actor.principal.as_str());
    assert_eq!((by, decided.reason.as_str()), (Some("ann"), "fine"));
    let Some(v1::execution_event::Kind::ToolCallCompleted(completed)) = &events[8].kind else { panic!("{events:?}") };
    let receipt = completed.receipt.as_ref().unwrap();
    assert_eq!((receipt.grant_nonce.as_str(), receipt.effect_digest.as_str()), ("nonce", "sha256:effect"));
}

// S2-X-07, S2-X-19: a denial leaves no changes, and its reason goes to the plan's author.
#[tokio::test]
async fn a_denied_effect_is_discarded_and_the_step_fails_with_the_reason() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.decide(&approval.name, State::Denied, "not this file");
    let ended = executor.end(&name).await;
    let failure = ended.failure.unwrap();
    assert_eq!(failure.error_class(), v1::ErrorClass::ApprovalDenied);
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("APPROVAL_DENIED", "denied by ann: not this file")
    );
    assert_eq!(world.runner.seen().discarded, [approval.call.as_str()]);
    assert_eq!(world.runner.seen().committed, Vec::<String>::new());
    world.gate.until("the report to the gate", |seen| seen.delivered.contains(&approval.name)).await;
}

// S0-14: what a runner knows about a failure comes to the planner, in events and in the execution, also after a restart.
#[tokio::test]
async fn a_failure_arrives_with_everything_that_the_runner_knows() {
    let world = World::new().await;
    let executor = world.executor().await;
    world.runner.set(|seen| drop(seen.failures.insert("a".into(), "no more".into())));
    let name = executor.run("a").await;
    let failed = executor.end(&name).await.failure.unwrap();
    assert_eq!(failed.metadata, [("detail".to_owned(), "no more".to_owned())].into());
    assert_eq!(failed.retry_after, Some(pbjson_types::Duration { seconds: 30, nanos: 0 }));
    let quota = failed.quota.clone().unwrap();
    assert_eq!((quota.name.as_str(), quota.limit, quota.remaining), ("no more", 60, 0));
    let causes = std::iter::successors(failed.cause.as_deref(), |cause| cause.cause.as_deref());
    assert_eq!(causes.count(), 4, "the runner sent six");
    let of_event = |event: &v1::ExecutionEvent| match &event.kind {
        Some(v1::execution_event::Kind::ToolCallFailed(event)) => event.failure.clone(),
        _ => None,
    };
    assert_eq!(executor.events(&name).await.iter().find_map(of_event), Some(failed.clone()));
    executor.kill().await;
    let executor = world.executor().await;
    assert_eq!(executor.get(&name).await.unwrap().failure, Some(failed));
}

#[tokio::test]
async fn a_skipped_effect_leaves_its_step_out() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect; b").await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.decide(&approval.name, State::Skipped, "");
    let ended = executor.end(&name).await;
    assert_eq!(ended.state(), v1::execution::State::Completed);
    assert_eq!(ended.steps[0].skip_reason(), v1::SkipReason::ApprovalSkipped);
}

// A call that is approved before it runs is sent again with its grant; its effect may need another approval.
#[tokio::test]
async fn an_approved_call_runs_with_its_grant() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: prompt_call effect").await;
    let first = world.gate.pending_approval("a").await;
    assert_eq!(world.runner.seen().worked, Vec::<String>::new());
    world.gate.approve(&first.name);
    let second = world.gate.pending_approval("a").await;
    assert_ne!(first.name, second.name);
    world.gate.approve(&second.name);
    executor.assert_completes(&name).await;
    assert_eq!(world.runner.seen().worked.len(), 1);
    world.gate.until("two spent grants", |seen| seen.consumed.len() == 2).await;
}

// The commit finds the workspace changed: the call runs again in the same attempt, and needs a new approval.
#[tokio::test]
async fn a_conflict_runs_again_and_makes_the_approval_stale() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("conflict: effect").await;
    let first = world.gate.pending_approval("conflict").await;
    world.gate.approve(&first.name);
    let second = world.gate.pending_approval("conflict").await;
    assert!(second.call.ends_with("/calls/1.2"), "{}", second.call);
    world.gate.until("the stale approval", |seen| seen.stale.contains(&first.name)).await;
    world.gate.approve(&second.name);
    assert_eq!(executor.end(&name).await.steps[0].attempt, 1);
    assert_eq!(world.runner.seen().committed, [second.call.as_str()]);
}

// A grant that the runner rejects is an internal error, and the effect is discarded.
#[tokio::test]
async fn a_refused_grant_fails_the_step_and_discards_the_effect() {
    let world = World::new().await;
    world.runner.set(|seen| seen.refuses_grants = true);
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    let failure = executor.end(&name).await.failure.unwrap();
    assert_eq!((failure.error_class(), failure.reason.as_str()), (v1::ErrorClass::Internal, "GRANT_REFUSED"));
    assert_eq!(failure.message, "The approval of this call could not be used: the grant has expired.");
    assert_eq!(world.runner.seen().discarded, [approval.call.as_str()]);
    world.gate.until("the stale approval", |seen| seen.stale.contains(&approval.name)).await;
}

#[tokio::test]
async fn what_the_policy_denies_fails_the_step() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: deny").await;
    let failure = executor.end(&name).await.failure.unwrap();
    assert_eq!((failure.error_class(), failure.reason.as_str()), (v1::ErrorClass::PolicyDenied, "POLICY_DENIED"));
}

// The gate reports that the runner holds another subject: the executor sends the call again, and uses the new subject.
#[tokio::test]
async fn a_subject_that_changed_is_asked_about_as_it_is_now() {
    let world = World::new().await;
    world.gate.checks(&world.runner);
    let executor = world.executor().await;
    executor.run("other: effect").await;
    world.gate.pending_approval("other").await;

    let mut world = world;
    world.stop_gate();
    let name = executor.run("a: effect").await;
    let call = format!("{name}/steps/a/calls/1.1");
    executor.until(&name, "the hold", |execution| execution.steps[0].state() == step::State::AwaitingApproval).await;
    world.runner.change_subject(&call);
    world.start_gate().await;
    let approval = world.gate.pending_approval("a").await;
    assert!(approval.subject_digest.ends_with("-changed"));
    world.gate.approve(&approval.name);
    executor.assert_completes(&name).await;
}

// B-05, from the executor's side: a result without an approval is not trusted.
#[tokio::test]
async fn a_result_without_an_approval_is_an_unknown_outcome() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("rogue: effect; b after rogue").await;
    let approval = world.gate.pending_approval("rogue").await;
    world.gate.decide(&approval.name, State::Denied, "");
    let unknown = |execution: &v1::Execution| execution.steps[0].state() == step::State::OutcomeUnknown;
    let found = executor.until(&name, "the unknown outcome", unknown).await;
    assert_eq!(found.steps[0].failure.as_ref().unwrap().reason, "UNAPPROVED_RESULT");
    assert_eq!(found.steps[1].state(), step::State::Pending);
}

// A clock that moved must not discard an approved effect: the executor requests another grant from the gate.
#[tokio::test]
async fn a_grant_that_is_out_of_time_is_replaced_and_the_effect_committed() {
    let world = World::new().await;
    world.runner.set(|seen| seen.clock_is_wrong = 3);
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    executor.assert_completes(&name).await;
    assert_eq!(world.runner.seen().committed, [approval.call.as_str()]);
    assert_eq!((world.gate.seen().grants, world.runner.seen().discarded.len()), (4, 0));
}
