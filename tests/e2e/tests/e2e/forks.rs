//! An execution that begins with what another has completed.

use std::fs;

use belay_e2e::{Client, Home, Service, Services, belay::count, client::name};
use belay_proto::v1::{self, execution::State, step};
use tonic::Code;

/// An agent tries two ways on from the same point: each has the outputs of the steps before, no step runs twice, and the first execution stays as it is.
#[test]
fn two_ways_on_from_the_same_step() {
    let home = Home::new();
    for folder in ["w", "other"] {
        fs::create_dir(home.path(folder)).unwrap();
    }
    let plan = "
id: report
inputs: {place: {default: report.txt}}
steps:
  - {id: gather, tool: run_terminal, arguments: {command: [sh, -c, 'echo x >> gathered; cat gathered']}}
  - {id: each, for_each: [1, 2], tool: noop, arguments: {output: '${item.value}'}}
  - {id: decide, wait: {signal: go}, depends_on: [gather, each]}
  - {id: write, tool: write_file, arguments: {path: '${inputs.place}', content: '${gather.result.stdout}${each.result} ${decide.result}'}}
  - {id: check, tool: run_terminal, arguments: {command: [grep, '${decide.result}', '${write.result.path}']}}
";
    let plan = home.file("plan.yaml", plan);
    let server = home.serve();
    let run = home.start(["run", &plan, "--workspace", "w", "--approve", "auto", "--id", "first"]);
    while home.json(&["executions", "get", "first"]).1["steps"][2]["state"] != "STATE_WAITING" {}
    let forked = home.run([
        "executions",
        "fork",
        "first",
        "--id",
        "second",
        "--workspace",
        "other",
        "--detach",
        "--reason",
        "another way",
    ]);
    assert_eq!(forked.code, 0, "{forked:?}");
    for (id, payload) in [("first", "\"one\""), ("second", "\"two\"")] {
        let sent = home.run(["executions", "signal", id, "go", "--payload", payload]);
        assert_eq!(sent.code, 0, "{sent:?}");
        assert_eq!(home.run(["executions", "watch", id]).code, 0);
    }
    assert_eq!(run.end().code, 0);
    assert_eq!(fs::read_to_string(home.path("w/report.txt")).unwrap(), "x\n[1,2] one");
    assert_eq!(fs::read_to_string(home.path("other/report.txt")).unwrap(), "x\n[1,2] two");
    assert!(!home.path("other/gathered").exists(), "what is taken over did not run again");
    let (_, second) = home.json(&["executions", "get", "second"]);
    assert_eq!(second["forkedFrom"], "namespaces/default/executions/first");
    let events = home.events("second");
    assert_eq!(count(&events, "stepOutputSet", ""), 2);
    let why = &events.iter().find(|event| event.get("stepOutputSet").is_some()).unwrap()["stepOutputSet"]["reason"];
    assert_eq!(why, "taken over from `namespaces/default/executions/first`: another way");

    let nothing = home.run(["executions", "fork", "first"]);
    assert_eq!(nothing.code, 2, "{nothing:?}");
    assert!(nothing.talk.contains("name the step from which to run"), "{nothing:?}");
    let unknown = home.run(["executions", "fork", "first", "--from", "nowhere"]);
    assert!(unknown.code == 2 && unknown.talk.contains("no step `nowhere`"), "{unknown:?}");
    let again = home.run(["executions", "fork", "second", "--from", "write", "--id", "third"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.talk.contains("third begins with what second has completed"), "{again:?}");
    server.signal(rustix::process::Signal::TERM);
    server.end();
}

/// The same request twice is one execution, and what is taken over survives the loss of the executor like any step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_is_made_once_and_survives() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "{id: p, steps: [{id: a, tool: noop, arguments: {output: [1]}}, {id: b, tool: noop, depends_on: [a], arguments: {fail: no}}, \
                {id: c, wait: {signal: go}, depends_on: [a]}, {id: d, tool: noop, arguments: {output: '${a.result} ${c.result}'}}]}";
    client.start("first", plan).await;
    let signal = |id: &str| v1::SignalExecutionRequest { name: name(id), signal: "go".into(), ..Default::default() };
    client.raw().signal_execution(signal("first")).await.unwrap();
    client.watch_to_the_end("first").await;
    let fork = |from: &str, request_id: &str| v1::ForkExecutionRequest {
        name: name("first"),
        from_step: from.into(),
        request_id: request_id.into(),
        ..Default::default()
    };
    let forked = client.raw().fork_execution(fork("c", "r")).await.unwrap().into_inner();
    services.restart(Service::Executor).await;
    let again = async || client.raw().fork_execution(fork("c", "r")).await;
    let again = belay_e2e::client::retry(again).await.unwrap();
    assert_eq!(again.name, forked.name);
    let other = client.raw().fork_execution(fork("d", "r")).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    let id = forked.name.rsplit('/').next().unwrap().to_owned();
    client.raw().signal_execution(signal(&id)).await.unwrap();
    let picture = client.watch_to_the_end(&id).await;
    let ended = client.get(&id).await;
    picture.assert_equals(&ended);
    assert_eq!(ended.state(), State::Partial, "what failed there runs here, and fails as well");
    let states: Vec<_> = ended.steps.iter().map(v1::Step::state).collect();
    assert_eq!(states, [step::State::Completed, step::State::Failed, step::State::Completed, step::State::Completed]);
    assert_eq!(
        picture.count(|kind| matches!(kind, v1::execution_event::Kind::ToolCallCompleted(_))),
        1,
        "only d was called with success"
    );

    // What is too large to be taken over is refused by field, and nothing is started.
    let large = "x".repeat(20_000);
    let plan = format!(
        "{{id: p, steps: [{{id: a, tool: noop, arguments: {{output: {large}}}}}, {{id: b, tool: noop, arguments: {{output: '${{a.result}}${{a.result}}'}}}}, \
         {{id: c, tool: noop, depends_on: [b]}}]}}"
    );
    client.start("large", &plan).await;
    client.watch_to_the_end("large").await;
    let fork =
        |from: &str| v1::ForkExecutionRequest { name: name("large"), from_step: from.into(), ..Default::default() };
    let refused = client.raw().fork_execution(fork("c")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("the output of step `b` cannot be taken over"), "{refused:?}");
    client.raw().fork_execution(fork("b")).await.expect("it runs again");
    let nothing = v1::ForkExecutionRequest { name: name("nothing"), ..Default::default() };
    assert_eq!(client.raw().fork_execution(nothing).await.unwrap_err().code(), Code::NotFound);
}

/// B-15, S2-NFR-007: a caller whose reply was lost asks again and gets what it has started, also when the request would be refused by now: the origin is
/// deleted, the workspace is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_gets_what_it_has_started_whatever_is_gone_since() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let workspace = services.workspace("gone");
    let text = "{id: p, steps: [{id: a, tool: noop}, {id: b, tool: noop, depends_on: [a]}]}";
    let source = v1::start_execution_request::Source::Document(v1::PlanDocument {
        text: text.into(),
        format: v1::PlanFormat::Yaml.into(),
    });
    let start = |request_id: &str| v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        source: Some(source.clone()),
        workspace: workspace.to_str().unwrap().into(),
        request_id: request_id.into(),
        ..Default::default()
    };
    let id_of = |name: &str| name.rsplit('/').next().unwrap().to_owned();
    let first = client.raw().start_execution(start("start")).await.unwrap().into_inner();
    client.watch_to_the_end(&id_of(&first.name)).await;
    let fork = |from: &str, request_id: &str| v1::ForkExecutionRequest {
        name: first.name.clone(),
        from_step: from.into(),
        request_id: request_id.into(),
        ..Default::default()
    };
    let forked = client.raw().fork_execution(fork("b", "fork")).await.unwrap().into_inner();
    client.watch_to_the_end(&id_of(&forked.name)).await;

    std::fs::remove_dir_all(&workspace).unwrap();
    let again = client.raw().start_execution(start("start")).await.unwrap().into_inner();
    assert_eq!((again.name, again.create_time), (first.name.clone(), first.create_time));
    let refused = client.raw().start_execution(start("another")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");

    let delete = |name: &str| v1::DeleteExecutionRequest { name: name.into(), ..Default::default() };
    client.raw().delete_execution(delete(&first.name)).await.unwrap();
    let again = client.raw().fork_execution(fork("b", "fork")).await.unwrap().into_inner();
    assert_eq!((again.name, again.create_time), (forked.name.clone(), forked.create_time));
    for other in [fork("b", "another"), fork("b", ""), fork("a", "fork")] {
        let refused = client.raw().fork_execution(other).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
        assert!(refused.message().contains(&id_of(&first.name)), "{refused:?}");
    }
    // That it was deleted is the reply then, and not what is wrong with the request by now.
    let refused = client.raw().start_execution(start("start")).await.unwrap_err();
    assert!(refused.message().contains("which this request has started, was deleted"), "{refused:?}");
    client.raw().delete_execution(delete(&forked.name)).await.unwrap();
    let refused = client.raw().fork_execution(fork("b", "fork")).await.unwrap_err();
    assert!(refused.message().contains("which this request has started, was deleted"), "{refused:?}");
}
