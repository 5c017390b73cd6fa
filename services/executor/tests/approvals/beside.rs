//! Concurrent calls in one workspace: conflicts, failures that others may have caused, and exclusive calls.

use belay_proto::v1::{self, execution::State};

use crate::support::*;

fn reasons(events: &[v1::ExecutionEvent]) -> Vec<(String, String)> {
    let reason = |event: &v1::ExecutionEvent| match &event.kind {
        Some(v1::execution_event::Kind::ToolCallCancelled(cancelled)) => {
            let failure = cancelled.failure.clone().unwrap_or_default();
            Some((failure.reason, failure.message))
        }
        _ => None,
    };
    events.iter().filter_map(reason).collect()
}

// B-17: a call in conflict runs again without using up an attempt, three times; then it fails, and names the other call.
#[tokio::test]
async fn a_call_that_is_always_in_conflict_fails_in_the_end() {
    let world = World::new().await;
    let executor = world.executor().await;
    for (conflicts, state) in [(3, State::Completed), (4, State::Failed)] {
        world.runner.set(|seen| seen.conflicts.extend([("a".into(), conflicts)]));
        let name = executor.run("a").await;
        let ended = executor.end(&name).await;
        assert_eq!((ended.state(), ended.steps[0].attempt), (state, 1), "{conflicts}");
        let reruns = reasons(&executor.events(&name).await);
        assert_eq!(reruns.iter().map(|(reason, _)| reason.as_str()).collect::<Vec<_>>(), ["CONFLICT"; 3]);
        if state == State::Failed {
            let failure = ended.failure.unwrap();
            assert_eq!((failure.reason.as_str(), failure.error_class()), ("CONFLICT", v1::ErrorClass::Transient));
            assert_eq!(
                failure.message,
                "`f` was committed meanwhile by another. This happened to 4 calls of this attempt."
            );
        }
    }
}

// A call that failed while others committed may have read a mixture of files: it runs again once, and then its failure counts.
#[tokio::test]
async fn a_failure_beside_commits_counts_the_second_time() {
    let world = World::new().await;
    let executor = world.executor().await;
    for (fails, state) in [(1, State::Completed), (2, State::Failed)] {
        world.runner.set(|seen| seen.fail_beside.extend([("a".into(), fails)]));
        let name = executor.run("a").await;
        let ended = executor.end(&name).await;
        assert_eq!((ended.state(), ended.steps[0].attempt), (state, 1), "{fails}");
        let reruns = reasons(&executor.events(&name).await);
        assert_eq!(reruns.len(), 1, "{reruns:?}");
        assert_eq!(reruns[0].0, "FAILED_BESIDE_COMMITS");
        assert!(reruns[0].1.contains("another and 2 more"), "{}", reruns[0].1);
        if state == State::Failed {
            assert_eq!(ended.failure.unwrap().reason, "TOOL_FAILED");
        }
    }
}

// An exclusive step has the workspace to itself; a call that waits for it names it.
#[tokio::test]
async fn a_call_that_waits_for_an_exclusive_call_names_it() {
    let world = World::new().await;
    let executor = world.executor().await;
    world.runner.set(|seen| seen.exclusive_call = Some("the-build".into()));
    let text = "id: plan\nsteps:\n  - {id: a, tool: work, exclusive: true}\n".to_owned();
    let document = v1::PlanDocument { text, format: v1::PlanFormat::Yaml.into() };
    let request = v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        source: Some(v1::start_execution_request::Source::Document(document)),
        ..v1::StartExecutionRequest::default()
    };
    let name = executor.client.clone().start_execution(request).await.unwrap().into_inner().name;
    let who = |waiting: Option<&v1::WaitingReason>| waiting.map(|waiting| waiting.who.clone()).unwrap_or_default();
    let expected = "the-build, which has the workspace to itself";
    let waits =
        executor.until(&name, "the wait", |execution| who(execution.steps[0].waiting.as_ref()) == expected).await;
    assert!(waits.waiting.iter().any(|waiting| waiting.who == expected));
    assert_eq!(world.runner.seen().exclusive.len(), 1);
    world.runner.set(|seen| seen.exclusive_call = None);
    let ended = executor.end(&name).await;
    assert_eq!((ended.state(), ended.waiting.len()), (State::Completed, 0));
}
