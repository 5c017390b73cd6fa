//! B-35: budgets of namespaces, as the clock advances.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use belay_executor::{Parts, Thresholds};
use belay_proto::v1::{self, execution::State, waiting_reason::Kind};
use belay_service_kit::Clock;
use belay_settings::{BudgetWindow, NamespaceBudget, NamespaceBudgets, ValueWithOrigin};

use crate::{
    memory::{Inside, inside_on},
    support::World,
};

/// A wall clock that the test sets.
#[derive(Debug)]
struct Manual(AtomicI64);

impl Clock for Manual {
    fn now_micros(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// 2023-11-14 22:13:20 UTC, in seconds.
const EVENING: i64 = 1_700_000_000;
/// From then to midnight.
const TO_MIDNIGHT: i64 = 6_400;

/// An executor whose namespaces may make two calls in a day.
async fn two_calls_a_day(world: &World, clock: &Arc<Manual>) -> Inside {
    let budget = NamespaceBudget {
        namespace: ValueWithOrigin::default_of("*".to_owned()),
        window: ValueWithOrigin::default_of(BudgetWindow::Day),
        calls: Some(ValueWithOrigin::default_of(2)),
        output_bytes: None,
        tokens: None,
        cost_micros: None,
    };
    let change = |parts: Parts| Parts { budgets: NamespaceBudgets(vec![budget]), ..parts };
    let thresholds = Thresholds { longest_sleep: Duration::from_millis(20), ..Thresholds::default() };
    let inside = inside_on(world, Arc::<Manual>::clone(clock), thresholds, change).await;
    inside.executions.drive_all().await.unwrap();
    inside
}

fn waits_for_limit(execution: &v1::Execution, words: &str) -> bool {
    execution.waiting.iter().any(|wait| wait.kind() == Kind::Limit && wait.who.contains(words))
}

/// The calls that are used and held, and the second at which the window ends.
async fn usage(inside: &Inside) -> (i64, i64, i64) {
    let request = v1::ListNamespacesRequest::default();
    let listed = inside.executor.client.clone().list_namespaces(request).await.unwrap().into_inner();
    let usage = listed.namespaces[0].usage.expect("it has a budget");
    (usage.used.unwrap().calls, usage.held.unwrap().calls, usage.window_end_time.unwrap().seconds)
}

/// An execution that finds nothing left leaves memory, and resumes when the day ends, also after a restart.
#[tokio::test]
async fn what_has_used_its_budget_of_the_day_goes_on_the_next_day() {
    let world = World::new().await;
    let clock = Arc::new(Manual(AtomicI64::new(EVENING * 1_000_000)));
    let inside = two_calls_a_day(&world, &clock).await;
    let name = inside.executor.run("a; b; c").await;
    let paused = inside.executor.until(&name, "a pause", |execution| execution.state() == State::Paused).await;
    assert!(waits_for_limit(&paused, "has used its budget of the day: 2 of 2 calls"), "{paused:#?}");
    assert_eq!(paused.waiting[0].until_time.as_ref().unwrap().seconds, EVENING + TO_MIDNIGHT);
    inside.until_in_memory(0).await;
    assert_eq!(usage(&inside).await, (2, 0, EVENING + TO_MIDNIGHT));

    inside.stop();
    let inside = two_calls_a_day(&world, &clock).await;
    clock.0.fetch_add((TO_MIDNIGHT - 1) * 1_000_000, Ordering::SeqCst);
    assert_eq!(inside.executor.summary(&name).await.state(), State::Paused, "the day has not ended");
    clock.0.fetch_add(1_000_000, Ordering::SeqCst);
    inside.executor.assert_completes(&name).await;
    assert_eq!(usage(&inside).await, (1, 0, EVENING + TO_MIDNIGHT + 86_400));
    inside.stop();
}

/// A call for which calls of other executions hold what is left waits for their end, and not for that of the day.
#[tokio::test]
async fn a_call_waits_for_what_others_hold() {
    let world = World::new().await;
    let clock = Arc::new(Manual(AtomicI64::new(EVENING * 1_000_000)));
    let inside = two_calls_a_day(&world, &clock).await;
    let holds = inside.executor.run("p: effect").await;
    world.gate.pending_approval("p").await;
    let first = inside.executor.run("a").await;
    inside.executor.assert_completes(&first).await;
    assert_eq!(usage(&inside).await, (1, 1, EVENING + TO_MIDNIGHT));
    let second = inside.executor.run("b").await;
    let waits = |execution: &v1::Execution| waits_for_limit(execution, "in flight, which hold what is left");
    let waiting = inside.executor.until(&second, "a wait", waits).await;
    assert_eq!(waiting.state(), State::Running, "{waiting:#?}");
    inside.executor.cancel(&holds).await;
    // The call has run.
    inside.executor.until(&second, "a pause", |execution| execution.state() == State::Paused).await;
    assert_eq!(usage(&inside).await, (2, 0, EVENING + TO_MIDNIGHT));
    inside.stop();
}
