//! Services that stop and come back, and stores that are lost.

use belay_proto::v1::{self, ErrorClass, waiting_reason::Kind};
use belay_service_kit::status;
use serde_json::json;
use tonic::{Code, Status};

use crate::support::{GateState, RunnerState, World, kinds};

// B-01: the executor receives a decision that was made while it was down.
#[tokio::test]
async fn a_decision_while_the_executor_is_down_is_not_lost() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect; b after a").await;
    let approval = world.gate.pending_approval("a").await;
    executor.until_awaiting_approval(&name).await;
    executor.kill().await;
    world.gate.approve(&approval.name);
    let executor = world.executor().await;
    let events = executor.events(&name).await;
    assert_eq!(world.runner.seen().committed, [approval.call.as_str()]);
    assert_eq!(world.runner.seen().worked.len(), 2, "nothing ran twice");
    let kinds = kinds(&events);
    assert_eq!(kinds.iter().filter(|kind| *kind == "approvalDecided").count(), 1);
    assert!(!kinds.contains(&"executionRecovered".to_owned()), "a call that waits for approval is not in doubt");
}

// B-01, S2-NFR-005, S2-NFR-006, S2-NFR-007: killed before the approval was recorded, the executor requests it again; there is one approval.
#[tokio::test]
async fn an_executor_killed_before_the_approval_was_recorded_requests_it_again() {
    let mut world = World::new().await;
    world.stop_gate();
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let away = |execution: &v1::Execution| {
        execution.waiting.iter().any(|waiting| waiting.kind() == Kind::Approval && waiting.who.contains("gate"))
    };
    executor.until(&name, "the unavailable gate", away).await;
    executor.kill().await;
    world.start_gate().await;
    let executor = world.executor().await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    executor.assert_completes(&name).await;
    assert_eq!(world.gate.seen().approvals.len(), 1);
    assert_eq!(world.runner.seen().worked.len(), 1);
}

// B-01: killed between decision and commit, the executor commits once.
#[tokio::test]
async fn an_executor_killed_between_decision_and_commit_commits_once() {
    let world = World::new().await;
    world.runner.set(|seen| seen.refuses_commits = true);
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    world.runner.until("an attempt to commit", |seen| seen.asked_to_commit > 0).await;
    executor.kill().await;
    world.runner.set(|seen| seen.refuses_commits = false);
    let executor = world.executor().await;
    let events = executor.events(&name).await;
    assert_eq!(world.runner.seen().committed.len(), 1);
    assert_eq!(world.runner.seen().worked.len(), 1);
    assert!(kinds(&events).contains(&"executionRecovered".to_owned()));
    world.gate.until("the spent grant", |seen| seen.consumed.contains(&approval.name)).await;
}

// S2-NFR-006: the gate is down for a while; meanwhile the execution's waiting reason names it.
#[tokio::test]
async fn an_approval_is_requested_when_the_gate_is_up_again() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let other = executor.run("other: effect").await;
    let approval = world.gate.pending_approval("other").await;
    executor.until_awaiting_approval(&other).await;
    world.stop_gate();
    let name = executor.run("a: effect").await;
    let away =
        |execution: &v1::Execution| execution.waiting.iter().any(|waiting| waiting.who.contains("the approval gate"));
    executor.until(&name, "the unavailable gate", away).await;
    world.gate.approve(&approval.name);
    world.start_gate().await;
    // Both the approval that could not be requested and the decision that could not be delivered.
    executor.assert_completes(&other).await;
    let approval = world.gate.pending_approval("a").await;
    executor.until(&name, "the gate that is up again", |execution| !away(execution)).await;
    world.gate.approve(&approval.name);
    let ended = executor.end(&name).await;
    assert_eq!(ended.state(), v1::execution::State::Completed);
    assert!(ended.waiting.is_empty());
}

#[tokio::test]
async fn an_effect_is_committed_when_the_runner_is_up_again() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    executor.until_awaiting_approval(&name).await;
    world.stop_runner();
    world.gate.approve(&approval.name);
    let away = |execution: &v1::Execution| execution.waiting.iter().any(|waiting| waiting.kind() == Kind::Runner);
    executor.until(&name, "the unavailable runner", away).await;
    world.start_runner().await;
    executor.assert_completes(&name).await;
    assert_eq!(world.runner.seen().committed.len(), 1);
}

// An execution whose calls all wait names unavailable services as well, in FULL and BASIC view.
#[tokio::test]
async fn unavailable_services_are_named_while_an_approval_is_pending() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    executor.until_awaiting_approval(&name).await;
    world.stop_runner();
    world.stop_gate();
    let says = |what: &str| {
        let what = what.to_owned();
        move |execution: &v1::Execution| execution.waiting.iter().any(|waiting| waiting.who.contains(&what))
    };
    executor.until(&name, "the unavailable runner", says("the tool runner, which does not answer")).await;
    let shown = executor.until(&name, "the unavailable gate", says("the approval gate, which does not answer")).await;
    let short = executor.summary(&name).await;
    assert_eq!((&short.waiting, short.last_sequence), (&shown.waiting, shown.last_sequence));
    assert!(short.steps.is_empty() && short.plan.is_none(), "and no more than that: {short:?}");

    world.start_gate().await;
    world.start_runner().await;
    world.gate.approve(&approval.name);
    assert!(executor.end(&name).await.waiting.is_empty());
}

fn acknowledged() -> Status {
    status::error(Code::FailedPrecondition, "CALL_ACKNOWLEDGED", "The call has ended and was acknowledged.").into()
}

fn newer() -> Status {
    status::error(Code::FailedPrecondition, "A_NEWER_REASON", "The moon is full.").into()
}

/// B-26: an id that is used again completes, also when the runner remembers a call of its earlier execution for longer than the executor has
/// reserved the id. Meanwhile readers see what the runner answers.
#[tokio::test]
async fn a_call_waits_until_the_runner_has_forgotten_an_earlier_one_of_its_name() {
    for (refuses, says) in [
        (acknowledged as fn() -> Status, "the tool runner, which answers CALL_ACKNOWLEDGED: The call has ended"),
        (newer, "the tool runner, which answers A_NEWER_REASON: The moon is full"),
    ] {
        let world = World::new().await;
        let executor = world.executor().await;
        world.runner.set(|seen| seen.refuses_calls = (usize::MAX, Some(refuses)));
        let name = executor.run("a").await;
        let waits = |execution: &v1::Execution| execution.waiting.iter().any(|waiting| waiting.who.starts_with(says));
        executor.until(&name, "the runner's answer", waits).await;
        world.runner.set(|seen| seen.refuses_calls = (0, None));
        executor.assert_completes(&name).await;
        assert_eq!(world.runner.seen().worked.len(), 1);
        assert!(executor.get(&name).await.unwrap().waiting.is_empty());
    }
}

/// B-26: a call that may have been sent does not run again when the runner has the outcome as acknowledged. Nobody has the outcome then.
#[tokio::test]
async fn a_call_that_the_runner_has_as_acknowledged_has_an_unknown_outcome() {
    let world = World::new().await;
    world.runner.set(|seen| seen.stuck.extend(["a".to_owned()]));
    let executor = world.executor().await;
    let name = executor.run("a").await;
    world.runner.until("the call", |seen| !seen.worked.is_empty()).await;
    executor.kill().await;
    world.runner.set(|seen| seen.refuses_calls = (usize::MAX, Some(acknowledged)));
    let executor = world.executor().await;
    let unknown = |execution: &v1::Execution| execution.steps[0].state() == v1::step::State::OutcomeUnknown;
    let found = executor.until(&name, "the unknown outcome", unknown).await;
    assert_eq!(found.steps[0].failure.as_ref().unwrap().reason, "CALL_ACKNOWLEDGED");
    assert_eq!(world.runner.seen().worked.len(), 1);
}

// B-01, S2-FR-053: killed between the end of a call and reporting the use of its approval, the executor reports it later; whether the execution
// has ended by then or not, and whether the call had a result or not.
#[tokio::test]
async fn the_use_of_an_approval_is_reported_after_a_kill() {
    let world = World::new().await;
    world.gate.set(|seen| seen.loses_outcomes = true);
    let executor = world.executor().await;
    let over = executor.run("a: effect").await;
    let goes_on = executor.run("b: effect; conflict: effect after b").await;
    let cancelled = executor.run("c: prompt_call effect").await;

    let mut spent = Vec::new();
    for step in ["a", "b", "c"] {
        let approval = world.gate.pending_approval(step).await;
        world.gate.approve(&approval.name);
        spent.push(approval.name);
    }
    let conflict = world.gate.pending_approval("conflict").await;
    world.gate.approve(&conflict.name);
    let again = world.gate.pending_approval("conflict").await;
    world.gate.pending_approval("c").await;
    executor.end(&over).await;
    executor.cancel(&cancelled).await;
    executor.end(&cancelled).await;
    executor.kill().await;
    let seen = world.gate.seen();
    assert!(seen.consumed.is_empty() && seen.stale.is_empty(), "no report arrived: {seen:?}");

    world.gate.set(|seen| seen.loses_outcomes = false);
    let executor = world.executor().await;
    let all = |seen: &GateState| seen.consumed.len() + seen.stale.len() == 4;
    let seen = world.gate.until("four reports", all).await;
    assert!(spent.iter().all(|name| seen.consumed.contains(name)), "{seen:?}");
    assert!(seen.stale.contains(&conflict.name), "{seen:?}");

    world.gate.approve(&again.name);
    executor.assert_completes(&goes_on).await;
    let seen = world.gate.until("the last spent grant", |seen| seen.consumed.contains(&again.name)).await;
    assert_eq!((seen.consumed.len(), seen.stale.len()), (4, 1));
}

/// S2-NFR-005: an acknowledgement that was lost with the runner, with the executor, or on the way is sent again, and only for calls whose
/// ends the journal has.
#[tokio::test]
async fn lost_acknowledgements_are_sent_again() {
    let mut world = World::new().await;
    world.runner.set(|seen| seen.loses_acknowledgements = true);
    let executor = world.executor().await;
    let over = executor.run("a").await;
    executor.end(&over).await;
    let goes_on = executor.run("b; c: effect after b").await;
    world.gate.pending_approval("c").await;
    let unacknowledged = |name: &str, step: &str| format!("{name}/steps/{step}/calls/1.1");
    let lost = [unacknowledged(&over, "a"), unacknowledged(&goes_on, "b")];
    assert_eq!(world.runner.seen().unacknowledged().len(), 2);

    // The runner is killed with the acknowledgements; one execution has ended, and the other has left memory.
    world.stop_runner();
    world.runner.set(|seen| (seen.loses_acknowledgements, seen.refuses_acknowledgements) = (false, 3));
    world.start_runner().await;
    let all = |seen: &RunnerState| lost.iter().all(|call| seen.acknowledged.contains(call));
    world.runner.until("the acknowledgements", all).await;
    assert_eq!(world.runner.seen().refuses_acknowledgements, 0, "a refused acknowledgement is sent again");

    // The executor is killed before it could acknowledge.
    world.runner.set(|seen| seen.acknowledged.clear());
    executor.kill().await;
    let executor = world.executor().await;
    let seen = world.runner.until("the new executor's acknowledgements", all).await;
    assert_eq!(seen.acknowledged.len(), 2, "a held call has not ended: {:?}", seen.acknowledged);
    executor.cancel(&goes_on).await;
    executor.end(&goes_on).await;
    world.runner.until("all acknowledgements", |seen| seen.unacknowledged().is_empty()).await;
}

/// The approval of an execution that ended while the gate was down is cancelled when the gate is up again, although the executor was restarted in
/// between; an approval that an execution still waits for is not.
#[tokio::test]
async fn approvals_of_ended_executions_are_cancelled() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let (over, waits) = (executor.run("over: effect").await, executor.run("waits: effect").await);
    let (zombie, open) = (world.gate.pending_approval("over").await, world.gate.pending_approval("waits").await);
    for name in [&over, &waits] {
        executor.until_awaiting_approval(name).await;
    }
    world.stop_gate();
    executor.cancel(&over).await;
    executor.end(&over).await;
    executor.kill().await;
    world.start_gate().await;
    let executor = world.executor().await;
    let seen = world.gate.until("the cancellation", |seen| seen.cancelled.contains(&zombie.name)).await;
    assert_eq!(seen.cancelled.len(), 1, "{:?}", seen.cancelled);
    world.gate.approve(&open.name);
    executor.assert_completes(&waits).await;
}

// When the gate's store is lost while an execution waits, the executor creates the approval again, with the same subject and name.
#[tokio::test]
async fn a_lost_approval_is_created_again() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let first = world.gate.pending_approval("a").await;
    executor.until_awaiting_approval(&name).await;
    world.stop_gate();
    world.gate.lose_store();
    world.start_gate().await;
    let again = world.gate.pending_approval("a").await;
    assert_eq!((&again.name, &again.subject_digest), (&first.name, &first.subject_digest));
    world.gate.approve(&again.name);
    executor.assert_completes(&name).await;
    assert_eq!(world.runner.seen().worked.len(), 1);
}

// The same after a restart of the executor, when the execution is not in memory.
#[tokio::test]
async fn a_lost_approval_is_created_again_by_the_next_executor() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    world.gate.pending_approval("a").await;
    executor.until_awaiting_approval(&name).await;
    executor.kill().await;
    world.gate.lose_store();
    let executor = world.executor().await;
    let again = world.gate.pending_approval("a").await;
    world.gate.approve(&again.name);
    executor.assert_completes(&name).await;
    assert_eq!(world.runner.seen().worked.len(), 1);
}

// The executor has stored the decision, and the gate has lost it before the grant was used: a person has to approve again, and the effect is kept.
#[tokio::test]
async fn a_lost_decision_is_requested_again() {
    let mut world = World::new().await;
    world.runner.set(|seen| seen.refuses_commits = true);
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let first = world.gate.pending_approval("a").await;
    world.gate.approve(&first.name);
    world.runner.until("an attempt to commit", |seen| seen.asked_to_commit > 0).await;
    executor.kill().await;
    world.stop_gate();
    world.gate.lose_store();
    world.runner.set(|seen| seen.refuses_commits = false);
    world.start_gate().await;
    let executor = world.executor().await;
    let again = world.gate.pending_approval("a").await;
    assert_eq!(again.name, first.name);
    world.gate.approve(&again.name);
    executor.assert_completes(&name).await;
    assert_eq!((world.runner.seen().worked.len(), world.runner.seen().discarded.len()), (1, 0));
}

// The executor has stored the decision, the gate has lost it, and a person has meanwhile denied what was requested again: the denial counts, the effect is
// discarded, and the failure says so.
#[tokio::test]
async fn a_denial_replaces_an_approval_that_the_gate_lost() {
    let mut world = World::new().await;
    world.runner.set(|seen| seen.refuses_commits = true);
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    world.runner.until("an attempt to commit", |seen| seen.asked_to_commit > 0).await;
    executor.kill().await;
    world.stop_gate();
    world.gate.set(|seen| {
        let approval = seen.approvals.get_mut(&approval.name).expect("it was approved");
        approval.set_state(v1::approval::State::Pending);
    });
    world.gate.decide(&approval.name, v1::approval::State::Denied, "not this file");
    world.runner.set(|seen| seen.refuses_commits = false);
    world.start_gate().await;
    let executor = world.executor().await;
    let is_over = |execution: &v1::Execution| execution.state() == v1::execution::State::Failed;
    let execution = executor.until(&name, "the denial", is_over).await;
    let failure = execution.steps[0].failure.as_ref().expect("the step has failed");
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("APPROVAL_DENIED", "denied by ann: not this file")
    );
    assert_eq!((world.runner.seen().worked.len(), world.runner.seen().discarded.len()), (1, 1));
}

// B-01: a gate that has lost one of two approvals of an execution in memory gets it again: that the other is pending says nothing about it.
#[tokio::test]
async fn an_approval_that_the_gate_lost_is_requested_again_beside_one_that_it_kept() {
    let mut world = World::new().await;
    // The third step keeps the execution in memory.
    world.runner.set(|seen| {
        seen.newer_reply = Some(|call| call.state = if call.name.contains("/c/") { 99 } else { call.state })
    });
    let executor = world.executor().await;
    let name = executor.run("a: effect; b: effect; c").await;
    let lost = world.gate.pending_approval("a").await;
    let kept = world.gate.pending_approval("b").await;
    world.runner.until("the third step", |seen| seen.asked_to_run > 3).await;
    world.stop_gate();
    world.gate.set(|seen| drop(seen.approvals.remove(&lost.name)));
    world.start_gate().await;
    assert_eq!(world.gate.pending_approval("a").await.name, lost.name);
    world.runner.set(|seen| seen.newer_reply = None);
    world.gate.approve(&lost.name);
    world.gate.approve(&kept.name);
    executor.assert_completes(&name).await;
}

// An execution in memory uses the runner's new ledger with the first call that is refused, and not for each of its calls anew.
#[tokio::test]
async fn a_live_execution_uses_the_new_ledger_at_once() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: fails_once; b after a; c after b; d after c").await;
    world.runner.until("the first attempt", |seen| seen.asked_to_run > 0).await;
    world.runner.replace_ledger();
    executor.assert_completes(&name).await;
    assert_eq!(world.runner.seen().meant_for_another, 1);
}

// B-01: the intent names the ledger before, and the call was sent to the new one. An executor that is killed meanwhile is told how it ended.
#[tokio::test]
async fn a_call_that_the_new_ledger_has_is_not_of_unknown_outcome() {
    let world = World::new().await;
    world.runner.set(|seen| seen.stuck.extend(["b".to_owned()]));
    let executor = world.executor().await;
    // The session with the runner, which is open once the first has completed, makes the list of tools old: the second lists them again.
    for _ in 0..2 {
        let name = executor.run("a").await;
        executor.assert_completes(&name).await;
    }
    // It knows the ledger before.
    world.runner.replace_ledger();
    let name = executor.run("b").await;
    world.runner.until("the call", |seen| seen.worked.iter().any(|call| call.contains("/b/"))).await;
    assert_eq!(world.runner.seen().meant_for_another, 1);
    executor.kill().await;
    world.runner.set(|seen| seen.stuck.clear());
    let executor = world.executor().await;
    executor.assert_completes(&name).await;
    assert_eq!(world.runner.seen().worked.len(), 3, "nothing ran twice");
}

// B-01: the call may have done its work with the ledger that is gone. The next executor, which did not send it, knows that too.
#[tokio::test]
async fn a_call_of_a_ledger_that_is_lost_while_the_executor_is_down_does_not_run_again() {
    let world = World::new().await;
    world.runner.set(|seen| seen.stuck.extend(["a".to_owned()]));
    let executor = world.executor().await;
    let name = executor.run("a").await;
    world.runner.until("the call", |seen| !seen.worked.is_empty()).await;
    executor.kill().await;
    world.runner.replace_ledger();
    world.runner.set(|seen| seen.stuck.clear());
    let executor = world.executor().await;
    let is_unknown = |execution: &v1::Execution| execution.steps[0].state() == v1::step::State::OutcomeUnknown;
    let execution = executor.until(&name, "the unknown outcome", is_unknown).await;
    let failure = execution.steps[0].failure.as_ref().unwrap();
    assert_eq!((failure.error_class(), failure.reason.as_str()), (ErrorClass::OutcomeUnknown, "LEDGER_CHANGED"));
    assert_eq!(world.runner.seen().worked.len(), 1, "nothing ran twice");
}

/// S2-FR-061: a person finds out what a call did whose outcome was unknown. The step continues from there, also in an executor that was started since, and the
/// request can be repeated.
#[tokio::test]
async fn a_person_resolves_unknown_outcomes() {
    let world = World::new().await;
    world.runner.set(|seen| seen.stuck.extend(["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    let executor = world.executor().await;
    let mut names = Vec::new();
    for step in ["a", "b", "c"] {
        names.push(executor.run(&format!("{step}; next after {step}")).await);
    }
    world.runner.until("the calls", |seen| seen.worked.len() == 3).await;
    executor.kill().await;
    world.runner.replace_ledger();
    world.runner.set(|seen| seen.stuck.clear());
    let executor = world.executor().await;
    for (name, step) in names.iter().zip(["a", "b", "c"]) {
        let is_unknown = |execution: &v1::Execution| execution.steps[0].state() == v1::step::State::OutcomeUnknown;
        let execution = executor.until(name, "the unknown outcome", is_unknown).await;
        let id = name.rsplit('/').next().unwrap();
        assert_eq!(execution.waiting[0].next_command, format!("belay executions resolve {id} {step}"));
    }
    executor.kill().await;

    let executor = world.executor().await;
    let ask = |name: &str, step: &str, resolution: v1::StepResolution, result: Option<&str>, id: &str| {
        let request = v1::ResolveStepRequest {
            name: format!("{name}/steps/{step}"),
            resolution: resolution.into(),
            result: result.map(v1::Payload::of_json),
            reason: "looked".into(),
            request_id: id.into(),
            ..Default::default()
        };
        let mut client = executor.client.clone();
        async move { client.resolve_step(request).await.map(tonic::Response::into_inner) }
    };
    let refusal = |answer: Result<v1::Execution, tonic::Status>| {
        let status = answer.unwrap_err();
        (status::reason(&status).unwrap_or_default(), status.message().to_owned())
    };
    use v1::StepResolution::{Again, Completed, Failed, Unspecified};
    for (step, resolution, result, reason, said) in [
        ("a", Unspecified, None, "INVALID_ARGUMENT", "resolution: must be COMPLETED, FAILED or AGAIN"),
        ("a", Again, Some("1"), "INVALID_ARGUMENT", "result: is for COMPLETED"),
        ("a", Completed, Some("{"), "INVALID_ARGUMENT", "result.json: is not JSON"),
        ("nobody", Again, None, "STEP_NOT_FOUND", "has no step `nobody`"),
        ("next", Again, None, "WRONG_STATE", "The step is PENDING"),
        ("", Again, None, "INVALID_ARGUMENT", "is not the name of a step"),
    ] {
        let (found, message) = refusal(ask(&names[0], step, resolution, result, "").await);
        assert!(found == reason && message.contains(said), "{step}: {found} {message}");
    }
    ask(&names[0], "a", Completed, Some(r#"{"n": 7}"#), "r").await.unwrap();
    ask(&names[0], "a", Completed, Some(r#"{"n": 7}"#), "r").await.unwrap();
    assert_eq!(refusal(ask(&names[0], "a", Failed, None, "r").await).0, "REQUEST_ID_REUSED");
    ask(&names[1], "b", Failed, None, "").await.unwrap();
    ask(&names[2], "c", Again, None, "").await.unwrap();
    executor.assert_completes(&names[0]).await;
    assert_eq!(executor.output(&names[0], "a").await, json!({"n": 7}));
    assert_eq!(executor.end(&names[1]).await.state(), v1::execution::State::Failed);
    let failure = executor.step(&names[1], "b").await.unwrap().failure.unwrap();
    assert!(failure.reason == "RESOLVED_AS_FAILED" && failure.message.ends_with("failure: looked."), "{failure:?}");
    executor.assert_completes(&names[2]).await;
    let worked = world.runner.seen().worked;
    let of = |step: &str| worked.iter().filter(|call| call.contains(&format!("/steps/{step}/"))).count();
    assert_eq!((of("a"), of("b"), of("c"), of("next")), (1, 1, 2, 2), "{worked:?}");
    assert!(
        worked.iter().any(|call| call.ends_with("/steps/c/calls/1.2")),
        "another call of the same attempt: {worked:?}"
    );
    let resolved = executor.events(&names[0]).await;
    let resolved =
        resolved.iter().find(|event| matches!(event.kind, Some(v1::execution_event::Kind::StepResolved(_)))).unwrap();
    assert!(resolved.actor.as_ref().is_some_and(|actor| !actor.principal.is_empty()), "{resolved:?}");
}
