//! Output of tools while they work.

use belay_proto::v1::{execution_event::Kind, watch_execution_response::Content};

use crate::support::{Executor, World, kinds};

/// Everything that a watch brings until the end: pieces of output as `>text`, other events by their kinds.
async fn watched(executor: &Executor, name: &str) -> Vec<String> {
    let mut stream = executor.watch(name, true).await;
    executor.resume(name).await;
    let mut heard = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        match message.content {
            Some(Content::Event(event)) if event.ephemeral => {
                assert_eq!((event.sequence, event.safe_to_skip, event.attempt), (0, true, 1));
                assert_eq!((event.step_id.as_str(), event.attempt, event.operation), ("a", 1, 1));
                let Some(Kind::ToolCallOutput(output)) = event.kind else { panic!("only output is transient") };
                heard.push(format!("{}>{}", output.offset, output.text));
            }
            Some(Content::Event(event)) => heard.extend(kinds(&[event])),
            _ => {}
        }
    }
    heard
}

async fn paused(executor: &Executor, steps: &str) -> String {
    let request = belay_proto::v1::StartExecutionRequest { start_paused: true, ..crate::support::plan(steps) };
    executor.client.clone().start_execution(request).await.unwrap().into_inner().name
}

// S1-25, S2-FR-069, X17: between the call's request and its end, in order, and never stored. A line that breaks loses nothing and repeats nothing.
#[tokio::test]
async fn watchers_hear_what_a_tool_says_once_and_in_its_place() {
    let world = World::new().await;
    let executor = world.executor().await;
    for breaks in [0, 3] {
        world.runner.set(|seen| seen.breaks_streams = breaks);
        let name = paused(&executor, "a: says").await;
        let heard = watched(&executor, &name).await;
        assert_eq!(
            heard[5..],
            ["toolCallRequested", "0>one\n", "4>two", "toolCallCompleted", "stepCompleted", "executionFinished"],
            "{heard:?}"
        );
        let stored = executor.events(&name).await;
        assert!(stored.iter().all(|event| !event.ephemeral), "output is not stored");
    }
    assert_eq!(world.runner.seen().breaks_streams, 0);
}
