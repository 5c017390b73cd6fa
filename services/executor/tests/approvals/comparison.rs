//! Comparison of the approvals that executions need with those that the gate asks people for: nothing is lost with a gate's store, and nobody is
//! asked what nobody needs.

use belay_proto::v1::{self, approval::State};

use crate::{
    forms::start,
    memory::{Inside, inside},
    support::{GateState, World},
};

/// An executor in this process that drives every execution.
async fn started(world: &World) -> Inside {
    let inside = inside(world).await;
    inside.executions.drive_all().await.unwrap();
    inside
}

// B-01: what the gate still has of an execution says nothing about the rest.
#[tokio::test]
async fn a_parked_execution_requests_again_what_the_gate_lost() {
    let mut world = World::new().await;
    let inside = started(&world).await;
    let executor = &inside.executor;
    let name = executor.run("a: effect; b: effect").await;
    let lost = world.gate.pending_approval("a").await;
    let kept = world.gate.pending_approval("b").await;
    inside.until_in_memory(0).await;
    world.stop_gate();
    world.gate.set(|seen| drop(seen.approvals.remove(&lost.name)));
    world.start_gate().await;
    assert_eq!(world.gate.pending_approval("a").await.name, lost.name);
    world.gate.approve(&lost.name);
    world.gate.approve(&kept.name);
    executor.assert_completes(&name).await;
}

// B-01: a gate that went back to an earlier state has one approval too few, and one that nobody needs any more. Their number is the same.
#[tokio::test]
async fn what_a_restored_gate_asks_although_nobody_needs_it_is_withdrawn() {
    let mut world = World::new().await;
    let inside = started(&world).await;
    let executor = &inside.executor;
    let name = executor.run("a: effect; b: effect after a").await;
    let first = world.gate.pending_approval("a").await;
    let before = world.gate.seen().approvals;
    world.gate.approve(&first.name);
    let second = world.gate.pending_approval("b").await;
    inside.until_in_memory(0).await;
    world.stop_gate();
    world.gate.set(|seen| seen.approvals = before);
    world.start_gate().await;
    world.gate.until("the withdrawal", |seen| seen.cancelled.contains(&first.name)).await;
    assert_eq!(world.gate.pending_approval("b").await.name, second.name);
    world.gate.approve(&second.name);
    executor.assert_completes(&name).await;
}

// Only what differs is loaded, however many executions wait.
#[tokio::test]
async fn executions_that_the_gate_asks_about_stay_out_of_memory() {
    let mut world = World::new().await;
    let inside = started(&world).await;
    let executor = &inside.executor;
    for step in ["a", "b", "c", "lost"] {
        executor.run(&format!("{step}: effect")).await;
        world.gate.pending_approval(step).await;
    }
    inside.until_in_memory(0).await;
    let lost = world.gate.pending_approval("lost").await;
    world.stop_gate();
    let created = world.gate.seen().created;
    world.gate.set(|seen| drop(seen.approvals.remove(&lost.name)));
    world.start_gate().await;
    world.gate.pending_approval("lost").await;
    inside.until_in_memory(0).await;
    assert_eq!(world.gate.seen().created, created + 1, "one was requested again");
}

// A form whose time ran out, and whose executor was killed before the gate heard of it, leaves the inbox although the execution goes on, and
// waits for another one.
#[tokio::test]
async fn a_form_whose_time_ran_out_is_withdrawn_after_a_kill() {
    const PLAN: &str = "
id: asks
steps:
  - {id: ask, timeout: 200ms, wait: {form: {title: One?, schema: {}}}}
  - {id: other, wait: {form: {title: Two?, schema: {}}}}
";
    let world = World::new().await;
    world.gate.set(|seen| seen.refuses_notices = true);
    let before = world.executor().await;
    let name = start(&before, PLAN, v1::ApprovalMode::Wait).await;
    let timed_out = world.gate.pending_approval("ask").await;
    let open = world.gate.pending_approval("other").await;
    let failed = |execution: &v1::Execution| execution.steps[0].state() == v1::step::State::Failed;
    before.until(&name, "the time limit", failed).await;
    before.kill().await;
    world.gate.set(|seen| seen.refuses_notices = false);
    assert!(world.gate.seen().cancelled.is_empty(), "no notice arrived");

    let executor = world.executor().await;
    let seen = world.gate.until("the withdrawal", |seen| seen.cancelled.contains(&timed_out.name)).await;
    assert_eq!(seen.cancelled.len(), 1);
    world.gate.answer(&open.name, "{}");
    executor.end(&name).await;
}

// B-01, S2-FR-053: every kind of notice that was lost with the executor, between the commit and the notice, reaches the gate by the next one.
#[tokio::test]
async fn what_the_gate_was_not_told_before_a_kill_it_is_told_after() {
    const FORM: &str = "id: asks\nsteps:\n  - {id: ask, wait: {form: {title: T, schema: {}}}}\n";
    let world = World::new().await;
    world.gate.set(|seen| seen.refuses_notices = true);
    let before = world.executor().await;
    let spent = before.run("spent: effect").await;
    let stale = before.run("conflict: effect").await;
    let denied = before.run("denied: effect").await;
    let cancelled = before.run("cancelled: effect").await;
    let answered = start(&before, FORM, v1::ApprovalMode::Wait).await;
    let asked = async |step| world.gate.pending_approval(step).await.name;
    let (of_spent, of_stale, of_denied, of_cancelled, of_answered) = (
        asked("spent").await,
        asked("conflict").await,
        asked("denied").await,
        asked("cancelled").await,
        asked("ask").await,
    );
    world.gate.approve(&of_spent);
    world.gate.approve(&of_stale);
    world.gate.decide(&of_denied, State::Denied, "no");
    world.gate.answer(&of_answered, "{}");
    before.until_awaiting_approval(&cancelled).await;
    before.cancel(&cancelled).await;
    for name in [&spent, &denied, &cancelled, &answered] {
        before.end(name).await;
    }
    // It runs again, and is held for something else.
    let again = asked("conflict").await;
    assert_ne!(again, of_stale);
    before.kill().await;
    let seen = world.gate.seen();
    let told = [&seen.delivered, &seen.consumed, &seen.stale, &seen.cancelled];
    assert!(told.iter().all(|names| names.is_empty()), "no notice arrived: {seen:?}");

    world.gate.set(|seen| seen.refuses_notices = false);
    let executor = world.executor().await;
    let is_told = |seen: &GateState| {
        seen.consumed.contains(&of_spent)
            && seen.stale.contains(&of_stale)
            && seen.delivered.contains(&of_denied)
            && seen.delivered.contains(&of_answered)
            && seen.cancelled.contains(&of_cancelled)
    };
    let seen = world.gate.until("all the notices", is_told).await;
    assert!(seen.answers.is_empty() && seen.cancelled.len() == 1, "{seen:?}");
    world.gate.approve(&again);
    executor.assert_completes(&stale).await;
}
