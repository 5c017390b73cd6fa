//! Reads of dashboards and bots: all executions at once, and the calls of one.

use std::collections::BTreeMap;

use belay_e2e::{
    Client, Service, Services,
    client::{name, retry},
};
use belay_proto::v1::{self, execution::State, tool_call, watch_executions_response::Content};
use tonic::Streaming;

const PLAN: &str = "
id: short
steps:
  - {id: a, tool: noop, arguments: {sleep_ms: 30}}
  - {id: b, tool: noop, dependencies: [a]}
";

/// B-02: a watch of all executions that is resumed from its cursor over ten losses of the executor misses no end of an execution, and begins
/// anew for none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_all_executions_misses_no_end_while_the_executor_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let (mut cursor, mut seen) = (String::new(), BTreeMap::new());
    for round in 0..10 {
        client.start(&format!("e{round}"), PLAN).await;
        let new = name(&format!("e{round}"));
        let mut watch = resumed(&client, &cursor).await;
        // In every other round the executor is killed as soon as the execution is known, in the others after its end.
        let is_enough = |state: &State| round % 2 == 0 || *state == State::Completed;
        while !seen.get(&new).is_some_and(is_enough) {
            cursor = next(&mut watch, &mut seen).await.unwrap_or(cursor);
        }
        services.restart(Service::Executor).await;
    }
    let mut watch = resumed(&client, &cursor).await;
    while seen.len() < 10 || seen.values().any(|state| *state != State::Completed) {
        next(&mut watch, &mut seen).await;
    }
}

async fn resumed(client: &Client, cursor: &str) -> Streaming<v1::WatchExecutionsResponse> {
    let request = v1::WatchExecutionsRequest {
        parent: "namespaces/default".to_owned(),
        cursor: cursor.to_owned(),
        ..v1::WatchExecutionsRequest::default()
    };
    retry(async || client.raw().watch_executions(request.clone()).await).await.unwrap()
}

/// Takes the next message. Returns the cursor after it, if it has one.
async fn next(
    watch: &mut Streaming<v1::WatchExecutionsResponse>,
    seen: &mut BTreeMap<String, State>,
) -> Option<String> {
    let message = watch.message().await.unwrap().expect("a watch of all has no end");
    match message.content.expect("a message has content") {
        Content::Execution(execution) => drop(seen.insert(execution.name.clone(), execution.state())),
        Content::Listed(_) | Content::Heartbeat(_) => {}
        Content::Removed(removed) => panic!("nothing was deleted: {removed:?}"),
        Content::Reset(_) => panic!("the cursor was good"),
    }
    Some(message.cursor).filter(|cursor| !cursor.is_empty())
}

/// The events of an execution, page by page, are those that a watcher got.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_events_of_an_execution_are_listed_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("watched", PLAN).await;
    let watched = client.watch_to_the_end("watched").await;
    let (mut events, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListEventsRequest { parent: name("watched"), page_size: 3, page_token, ..Default::default() };
        let page = client.raw().list_events(request).await.unwrap().into_inner();
        events.extend(page.events);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(events, watched.events());
    let request = v1::ListEventsRequest {
        parent: format!("{}/steps/b", name("watched")),
        kinds: vec!["step_completed".into()],
        ..Default::default()
    };
    let of_b = client.raw().list_events(request).await.unwrap().into_inner().events;
    assert_eq!(of_b.iter().map(|event| event.step_id.as_str()).collect::<Vec<_>>(), ["b"]);
}

/// The calls of an execution, page by page, are those of its steps, each with how it ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_of_an_execution_are_listed_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let step = |n: usize| format!("  - {{id: s{n}, tool: noop, arguments: {{output: {n}}}}}\n");
    client.start("many", &format!("id: many\nsteps:\n{}", (0..7).map(step).collect::<String>())).await;
    client.watch_to_the_end("many").await;
    let (mut calls, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListToolCallsRequest { parent: name("many"), page_size: 3, page_token };
        let page = client.raw().list_tool_calls(request).await.unwrap().into_inner();
        assert!(page.tool_calls.len() <= 3);
        calls.extend(page.tool_calls);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let expected: Vec<String> = (0..7).map(|n| format!("{}/steps/s{n}/calls/1.1", name("many"))).collect();
    assert_eq!(calls.iter().map(|call| call.name.clone()).collect::<Vec<_>>(), expected);
    assert!(calls.iter().all(|call| call.state() == tool_call::State::Completed), "{calls:?}");
    let of_step = v1::ListToolCallsRequest { parent: format!("{}/steps/s4", name("many")), ..Default::default() };
    let of_step = client.raw().list_tool_calls(of_step).await.unwrap().into_inner().tool_calls;
    assert_eq!(of_step, calls[4..5]);
}
