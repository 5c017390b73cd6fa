//! Whoever goes away, and comes back.

use belay_proto::v1::{self, approval::State, waiting_reason::Kind};

use crate::support::{RunnerSeen, Seen, World, kinds};

// B-01: a decision that falls while the executor is down is heard when it is back.
#[tokio::test]
async fn a_decision_while_the_executor_is_down_is_not_lost() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect; b after a").await;
    let approval = world.gate.asked_about("a").await;
    executor.until(&name, "the wait", |execution| execution.state() == v1::execution::State::AwaitingApproval).await;
    executor.kill().await;
    world.gate.decide(&approval.name, State::Approved, "");
    let executor = world.executor().await;
    let events = executor.events(&name).await;
    assert_eq!(world.runner.seen().committed, [approval.call.as_str()]);
    assert_eq!(world.runner.seen().worked.len(), 2, "nothing ran twice");
    let kinds = kinds(&events);
    assert_eq!(kinds.iter().filter(|kind| *kind == "approvalDecided").count(), 1);
    assert!(!kinds.contains(&"executionRecovered".to_owned()), "what waits for a person is not in doubt");
}

// B-01, S2-NFR-005, S2-NFR-006, S2-NFR-007: killed before the question was on record, it asks again and is asked once.
#[tokio::test]
async fn an_executor_killed_between_hold_and_question_asks_again() {
    let mut world = World::new().await;
    world.stop_gate();
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let away = |execution: &v1::Execution| {
        execution.waiting.iter().any(|waiting| waiting.kind() == Kind::Approval && waiting.who.contains("gate"))
    };
    executor.until(&name, "its saying that the gate is away", away).await;
    executor.kill().await;
    world.start_gate().await;
    let executor = world.executor().await;
    let approval = world.gate.asked_about("a").await;
    world.gate.decide(&approval.name, State::Approved, "");
    assert_eq!(executor.end(&name).await.state(), v1::execution::State::Completed);
    assert_eq!(world.gate.seen().approvals.len(), 1);
    assert_eq!(world.runner.seen().worked.len(), 1);
}

// B-01: killed between decision and commit, it commits, once.
#[tokio::test]
async fn an_executor_killed_between_decision_and_commit_commits_once() {
    let world = World::new().await;
    world.runner.set(|seen| seen.refuses_commits = true);
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.asked_about("a").await;
    world.gate.decide(&approval.name, State::Approved, "");
    world.runner.until("an attempt to commit", |seen| seen.asked_to_commit > 0).await;
    executor.kill().await;
    world.runner.set(|seen| seen.refuses_commits = false);
    let executor = world.executor().await;
    let events = executor.events(&name).await;
    assert_eq!(world.runner.seen().committed.len(), 1);
    assert_eq!(world.runner.seen().worked.len(), 1);
    assert!(kinds(&events).contains(&"executionRecovered".to_owned()));
    world.gate.until("the grant's being spent", |seen| seen.consumed.contains(&approval.name)).await;
}

// S2-NFR-006: the gate goes away and comes back; the execution says what it waits for meanwhile.
#[tokio::test]
async fn a_gate_that_was_away_is_asked_when_it_is_back() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let other = executor.run("other: effect").await;
    let approval = world.gate.asked_about("other").await;
    executor.until(&other, "the wait", |execution| execution.state() == v1::execution::State::AwaitingApproval).await;
    world.stop_gate();
    let name = executor.run("a: effect").await;
    let away =
        |execution: &v1::Execution| execution.waiting.iter().any(|waiting| waiting.who.contains("the approval gate"));
    executor.until(&name, "its saying that the gate is away", away).await;
    world.gate.decide(&approval.name, State::Approved, "");
    world.start_gate().await;
    // Both the question that could not be asked and the decision that could not be told.
    assert_eq!(executor.end(&other).await.state(), v1::execution::State::Completed);
    let approval = world.gate.asked_about("a").await;
    world.gate.decide(&approval.name, State::Approved, "");
    let ended = executor.end(&name).await;
    assert_eq!(ended.state(), v1::execution::State::Completed);
    assert!(ended.waiting.is_empty());
}

#[tokio::test]
async fn a_runner_that_is_away_at_the_commit_commits_when_it_is_back() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.asked_about("a").await;
    executor.until(&name, "the wait", |execution| execution.state() == v1::execution::State::AwaitingApproval).await;
    world.stop_runner();
    world.gate.decide(&approval.name, State::Approved, "");
    let away = |execution: &v1::Execution| execution.waiting.iter().any(|waiting| waiting.kind() == Kind::Runner);
    executor.until(&name, "its saying that the runner is away", away).await;
    world.start_runner().await;
    assert_eq!(executor.end(&name).await.state(), v1::execution::State::Completed);
    assert_eq!(world.runner.seen().committed.len(), 1);
}

// An execution that rests, so that none of its calls meets a service, says all the same which of them are away: in full and in short.
#[tokio::test]
async fn services_that_are_away_are_said_while_a_person_is_asked() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.asked_about("a").await;
    executor.until(&name, "the wait", |execution| execution.state() == v1::execution::State::AwaitingApproval).await;
    world.stop_runner();
    world.stop_gate();
    let says = |what: &str| {
        let what = what.to_owned();
        move |execution: &v1::Execution| execution.waiting.iter().any(|waiting| waiting.who.contains(&what))
    };
    executor.until(&name, "its saying that the runner is away", says("the tool runner, which does not answer")).await;
    let told = executor.until(&name, "and the gate", says("the approval gate, which does not answer")).await;
    let short = executor.summary(&name).await;
    assert_eq!((&short.waiting, short.last_sequence), (&told.waiting, told.last_sequence));
    assert!(short.steps.is_empty() && short.plan.is_none(), "and no more than that: {short:?}");

    world.start_gate().await;
    world.start_runner().await;
    world.gate.decide(&approval.name, State::Approved, "");
    assert!(executor.end(&name).await.waiting.is_empty());
}

// B-01, S2-FR-053: killed between the end of a call and telling the gate what became of its approval, it tells the gate later; whether
// the execution has ended by then or goes on, and whether the call's end tells of a result or not.
#[tokio::test]
async fn an_executor_killed_before_it_told_the_gate_what_became_of_an_approval_tells_it_later() {
    let world = World::new().await;
    world.gate.set(|seen| seen.loses_outcomes = true);
    let executor = world.executor().await;
    let over = executor.run("a: effect").await;
    let goes_on = executor.run("b: effect; conflict: effect after b").await;
    let cancelled = executor.run("c: prompt_call effect").await;

    let mut spent = Vec::new();
    for step in ["a", "b", "c"] {
        let approval = world.gate.asked_about(step).await;
        world.gate.decide(&approval.name, State::Approved, "");
        spent.push(approval.name);
    }
    let conflict = world.gate.asked_about("conflict").await;
    world.gate.decide(&conflict.name, State::Approved, "");
    let again = world.gate.asked_about("conflict").await;
    world.gate.asked_about("c").await;
    executor.end(&over).await;
    executor.cancel(&cancelled).await;
    executor.end(&cancelled).await;
    executor.kill().await;
    let seen = world.gate.seen();
    assert!(seen.consumed.is_empty() && seen.stale.is_empty(), "nothing of it arrived: {seen:?}");

    world.gate.set(|seen| seen.loses_outcomes = false);
    let executor = world.executor().await;
    let all = |seen: &Seen| seen.consumed.len() + seen.stale.len() == 4;
    let seen = world.gate.until("what became of all four", all).await;
    assert!(spent.iter().all(|name| seen.consumed.contains(name)), "{seen:?}");
    assert!(seen.stale.contains(&conflict.name), "{seen:?}");

    world.gate.decide(&again.name, State::Approved, "");
    assert_eq!(executor.end(&goes_on).await.state(), v1::execution::State::Completed);
    let seen = world.gate.until("the last one's being spent", |seen| seen.consumed.contains(&again.name)).await;
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
    world.gate.asked_about("c").await;
    let unacknowledged = |name: &str, step: &str| format!("{name}/steps/{step}/calls/1.1");
    let lost = [unacknowledged(&over, "a"), unacknowledged(&goes_on, "b")];
    assert_eq!(world.runner.seen().unacknowledged().len(), 2);

    // The runner dies with what it was told; one execution has ended, and the other has left memory.
    world.stop_runner();
    world.runner.set(|seen| (seen.loses_acknowledgements, seen.refuses_acknowledgements) = (false, 3));
    world.start_runner().await;
    let all = |seen: &RunnerSeen| lost.iter().all(|call| seen.acknowledged.contains(call));
    world.runner.until("the runner's being told again", all).await;
    assert_eq!(
        world.runner.seen().refuses_acknowledgements,
        0,
        "an acknowledgement that is refused for now is sent again"
    );

    // The executor dies before it could say so.
    world.runner.set(|seen| seen.acknowledged.clear());
    executor.kill().await;
    let executor = world.executor().await;
    let seen = world.runner.until("the new executor's telling the runner", all).await;
    assert_eq!(seen.acknowledged.len(), 2, "what is held has not ended: {:?}", seen.acknowledged);
    executor.cancel(&goes_on).await;
    executor.end(&goes_on).await;
    world.runner.until("all being acknowledged", |seen| seen.unacknowledged().is_empty()).await;
}

/// A question about an execution that ended while the gate was away is withdrawn when the gate is back, though the executor was restarted in
/// between; one that somebody still waits for is not.
#[tokio::test]
async fn questions_about_what_has_ended_are_withdrawn() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let (over, waits) = (executor.run("over: effect").await, executor.run("waits: effect").await);
    let (zombie, open) = (world.gate.asked_about("over").await, world.gate.asked_about("waits").await);
    for name in [&over, &waits] {
        executor.until(name, "the wait", |execution| execution.state() == v1::execution::State::AwaitingApproval).await;
    }
    world.stop_gate();
    executor.cancel(&over).await;
    executor.end(&over).await;
    executor.kill().await;
    world.start_gate().await;
    let executor = world.executor().await;
    let seen = world.gate.until("the question's being withdrawn", |seen| seen.cancelled.contains(&zombie.name)).await;
    assert_eq!(seen.cancelled.len(), 1, "{:?}", seen.cancelled);
    world.gate.decide(&open.name, State::Approved, "");
    assert_eq!(executor.end(&waits).await.state(), v1::execution::State::Completed);
}

// A gate whose store was lost while an execution waits is asked again, under the same subject and so under the same name.
#[tokio::test]
async fn a_gate_that_lost_its_store_is_asked_again() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let first = world.gate.asked_about("a").await;
    executor.until(&name, "the wait", |execution| execution.state() == v1::execution::State::AwaitingApproval).await;
    world.stop_gate();
    world.gate.set(|seen| seen.approvals.clear());
    world.start_gate().await;
    let again = world.gate.asked_about("a").await;
    assert_eq!((&again.name, &again.subject_digest), (&first.name, &first.subject_digest));
    world.gate.decide(&again.name, State::Approved, "");
    assert_eq!(executor.end(&name).await.state(), v1::execution::State::Completed);
    assert_eq!(world.runner.seen().worked.len(), 1);
}

// And when the executor was restarted too, so that nobody has the execution in memory.
#[tokio::test]
async fn a_gate_that_lost_its_store_is_asked_again_by_the_next_executor() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    world.gate.asked_about("a").await;
    executor.until(&name, "the wait", |execution| execution.state() == v1::execution::State::AwaitingApproval).await;
    executor.kill().await;
    world.gate.set(|seen| seen.approvals.clear());
    let executor = world.executor().await;
    let again = world.gate.asked_about("a").await;
    world.gate.decide(&again.name, State::Approved, "");
    assert_eq!(executor.end(&name).await.state(), v1::execution::State::Completed);
    assert_eq!(world.runner.seen().worked.len(), 1);
}

// The yes was stored here, and the gate lost it before its grant was used: a person is asked once more, and nothing is thrown away.
#[tokio::test]
async fn a_yes_that_the_gate_lost_is_asked_for_again() {
    let mut world = World::new().await;
    world.runner.set(|seen| seen.refuses_commits = true);
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let first = world.gate.asked_about("a").await;
    world.gate.decide(&first.name, State::Approved, "");
    world.runner.until("an attempt to commit", |seen| seen.asked_to_commit > 0).await;
    executor.kill().await;
    world.stop_gate();
    world.gate.set(|seen| seen.approvals.clear());
    world.runner.set(|seen| seen.refuses_commits = false);
    world.start_gate().await;
    let executor = world.executor().await;
    let again = world.gate.asked_about("a").await;
    assert_eq!(again.name, first.name);
    world.gate.decide(&again.name, State::Approved, "");
    assert_eq!(executor.end(&name).await.state(), v1::execution::State::Completed);
    assert_eq!((world.runner.seen().worked.len(), world.runner.seen().discarded.len()), (1, 0));
}
