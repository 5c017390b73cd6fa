//! Steps that carry out a plan, as an execution of its own, with the real services.

use std::{fs, time::Duration};

use belay_e2e::{Client, Home, Service, Services, belay::repository, client::name};
use belay_proto::v1::{self, execution::State, execution_event::Kind, step::Detail, watch_execution_response::Content};

/// The ids of the executions that carry out the plans of an execution's steps.
async fn children(client: &Client, id: &str) -> Vec<String> {
    let steps = client.get(id).await.steps;
    let children = steps.into_iter().filter_map(|step| match step.detail? {
        Detail::Plan(plan) => plan.execution.rsplit('/').next().map(str::to_owned).filter(|id| !id.is_empty()),
        Detail::Tool(_) | Detail::Calls(_) | Detail::Agent(_) | Detail::Wait(_) => None,
    });
    children.collect()
}

/// Returns once an execution, which may not exist yet, has an event of this kind.
async fn until(client: &Client, id: &str, is: impl Fn(&Kind) -> bool) {
    let watched = async {
        loop {
            let Ok(mut stream) = client.watch(id, "").await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            while let Ok(Some(message)) = stream.message().await {
                if let Some(Content::Event(v1::ExecutionEvent { kind: Some(kind), .. })) = message.content
                    && is(&kind)
                {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), watched).await.expect("it happens within a minute");
}

#[test]
fn the_example_carries_out_the_plans_of_files() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let plan = repository().join("docs/examples/child-file/plan.yaml").display().to_string();
    let drawn = home.run(["plan", "graph", &plan]);
    assert!(drawn.code == 0 && drawn.out.contains("carry out the plan build-service"), "{drawn:?}");
    let ran = home.run(["run", &plan, "--workspace", "w", "--approve", "auto", "--id", "release"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(fs::read_to_string(home.path("w/dist/RELEASE.md")).unwrap(), "# Released\n\n1\n");
    let (_, execution) = home.json(&["executions", "get", "release"]);
    let steps = execution["steps"].as_array().unwrap();
    let children =
        steps.iter().filter(|step| step["plan"]["execution"].as_str().is_some_and(|child| !child.is_empty()));
    assert_eq!(children.count(), 3, "{execution}");
}

#[test]
fn what_is_wrong_in_the_file_of_a_plan_is_shown_there_by_every_command() {
    let home = Home::new();
    fs::create_dir_all(home.path("plans/parts")).unwrap();
    let plan = |name: &str, tool: &str, part: &str| {
        let text = format!(
            "id: p\nsteps:\n  - {{id: a, tool: {tool}, arguments: {{path: there}}}}\n  - {{id: b, plan: {part}}}\n"
        );
        home.file(&format!("plans/{name}"), text);
        format!("plans/{name}")
    };
    home.file("plans/parts/good.yaml", "id: good\nsteps: [{id: c, tool: noop}]\n");
    home.file("plans/parts/bad.yaml", "# no such tool\nid: bad\nsteps:\n  - {id: c, tool: nooop}\n");
    let (good, bad) =
        (plan("good.yaml", "read_file", "parts/good.yaml"), plan("bad.yaml", "read_file", "parts/bad.yaml"));
    let missing = plan("missing.yaml", "read_file", "parts/god.yaml");
    fs::create_dir(home.path("w")).unwrap();
    let failed = home.run(["run", &good, "--workspace", "w", "--id", "e"]);
    assert_ne!(failed.code, 0, "there is no file: {failed:?}");
    for command in [
        &["plan", "validate"][..],
        &["plan", "graph"],
        &["run"],
        &["executions", "edit-plan", "e"],
        &["executions", "retry", "e", "--plan"],
    ] {
        let (code, report) = home.json(&command.iter().copied().chain([&*bad]).collect::<Vec<_>>());
        let violations = serde_json::json!([{
            "file": "plans/parts/bad.yaml", "field": "steps[0].tool", "line": 4, "column": 19,
            "message": "Tool 'nooop' not found; did you mean `noop`?",
        }]);
        assert_eq!((code, &report["violations"]), (2, &violations), "{command:?}: {report}");
        let refused = home.run(command.iter().copied().chain([&*missing]));
        assert!(
            refused.code == 2 && refused.talk.contains("did you mean `parts/good.yaml`?"),
            "{command:?}: {refused:?}"
        );
    }
    home.file("w/there", "");
    let retried = home.run(["executions", "retry", "e", "--plan", &good]);
    assert_eq!(retried.code, 0, "{retried:?}");
}

/// A client that leaves the name of a file in the plan is told that the service reads none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_reads_no_files_of_plans() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let text = "id: p\nsteps:\n  - {id: a, plan: parts/build.yaml}\n".to_owned();
    let document = v1::PlanDocument { text, ..Default::default() };
    let source = Some(v1::validate_plan_request::Source::Document(document));
    let request = v1::ValidatePlanRequest { parent: "namespaces/default".to_owned(), source };
    let answer = Client::new(&services.socket()).raw().validate_plan(request).await.unwrap().into_inner();
    let [violation] = &answer.violations[..] else { panic!("{answer:?}") };
    assert_eq!((violation.field.as_str(), violation.line), ("steps[0].plan", 3));
    assert!(violation.message.contains("the client puts the plan in its place"), "{}", violation.message);
}

#[test]
fn the_example_carries_out_a_plan_for_each_service() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let plan = repository().join("docs/examples/child-plan.yaml");
    let ran = home.run(["run", plan.to_str().unwrap(), "--workspace", "w", "--approve", "auto", "--id", "release"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for service in ["api", "web"] {
        let built = fs::read_to_string(home.path(&format!("w/dist/{service}.txt"))).unwrap();
        assert_eq!(built, format!("the service {service}\n"));
    }
    let (_, execution) = home.json(&["executions", "get", "release"]);
    let steps = execution["steps"].as_array().unwrap();
    let child = steps.iter().find(|step| step["stepId"] == "service~0").unwrap()["plan"]["execution"].as_str().unwrap();
    let notes = fs::read_to_string(home.path("w/dist/RELEASE.md")).unwrap();
    assert_eq!(notes, format!("The first service was checked by {child}.\n"));

    let (_, child) = home.json(&["executions", "get", child.rsplit('/').next().unwrap()]);
    assert_eq!((&child["planId"], &child["state"]), (&"build-service".into(), &"STATE_COMPLETED".into()));
    assert_eq!(child["inputs"], serde_json::json!({"name": "api"}));
    assert_eq!(child["parentStep"], "namespaces/default/executions/release/steps/service~0");
    let trace = |execution: &serde_json::Value| execution["trace"]["traceparent"].as_str().unwrap()[3..35].to_owned();
    assert_eq!(trace(&child), trace(&execution), "a child is traced with its parent");
}

/// B-01: whichever process dies, each plan is carried out once, and each call of it completes once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_plan_is_carried_out_once_whatever_dies() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "
id: outer
parallelism: 2
steps:
- id: each
  for_each: [0, 1, 2, 3, 4, 5]
  inputs: {n: '${item.value}'}
  plan:
    id: inner
    inputs: {n: {}}
    steps:
    - {id: a, tool: noop, arguments: {sleep_ms: 60, output: '${inputs.n}'}}
    - id: deeper
      inputs: {n: '${a.result}'}
      plan: {id: deepest, inputs: {n: {}}, steps: [{id: b, tool: noop, arguments: {sleep_ms: 60, output: '${inputs.n}'}}]}
";
    client.start("outer", plan).await;
    let watcher = client.clone();
    let watch = tokio::spawn(async move { watcher.watch_to_the_end("outer").await });
    let mut kills = 0;
    while !watch.is_finished() && kills < 8 {
        tokio::time::sleep(Duration::from_millis(60 + 17 * (kills % 4))).await;
        services.restart(if kills % 3 == 0 { Service::Runner } else { Service::Executor }).await;
        kills += 1;
    }
    let picture = watch.await.unwrap();
    assert_eq!(picture.state(), Some(State::Completed));
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ChildStarted(_))), 6);
    let mut seen = Vec::new();
    for child in children(&client, "outer").await {
        let inner = client.watch_to_the_end(&child).await;
        assert_eq!(inner.count(|kind| matches!(kind, Kind::ToolCallCompleted(_))), 1);
        let [deepest] = &children(&client, &child).await[..] else { panic!("one step has a plan") };
        let deepest = client.watch_to_the_end(deepest).await;
        assert_eq!(deepest.count(|kind| matches!(kind, Kind::ToolCallCompleted(_))), 1);
        seen.push(child);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 6, "{seen:?}");
    let mut executor = client.raw();
    let all = executor.list_executions(v1::ListExecutionsRequest {
        parent: "namespaces/default".into(),
        include_children: true,
        ..Default::default()
    });
    assert_eq!(all.await.unwrap().into_inner().executions.len(), 13, "no plan was carried out twice");
    assert!(kills > 2, "the execution lived through {kills} kills only");
}

const WAITS: &str = "
id: outer
steps:
- id: child
  plan: {id: inner, steps: [{id: call, tool: noop, arguments: {sleep_ms: 60000}}]}
";

/// S4-27: a plan is stopped with the execution that it belongs to, which ends after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_cancelled_with_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("outer", WAITS).await;
    until(&client, "outer", |kind| matches!(kind, Kind::ChildStarted(_))).await;
    let child = children(&client, "outer").await.remove(0);
    let call = |kind: &Kind| matches!(kind, Kind::ToolCallRequested(_));
    until(&client, &child, call).await;
    client
        .raw()
        .cancel_execution(v1::CancelExecutionRequest { name: name("outer"), ..Default::default() })
        .await
        .unwrap();
    services.restart(Service::Executor).await;
    let picture = client.watch_to_the_end("outer").await;
    assert_eq!(picture.state(), Some(State::Cancelled));
    let inner = client.watch_to_the_end(&child).await;
    assert_eq!(inner.state(), Some(State::Cancelled));
    let asked = inner.events().iter().find(|event| matches!(event.kind, Some(Kind::ExecutionCancelRequested(_))));
    assert_eq!(asked.unwrap().actor.as_ref().unwrap().principal, "namespaces/default/executions/outer/steps/child");
}

/// A child that a person has paused stays paused when its parent resumes; one that was paused with the parent resumes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_paused_and_resumed_with_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = WAITS.replace(
        "noop, arguments: {sleep_ms: 60000}}",
        "noop, arguments: {sleep_ms: 300}}, {id: last, tool: noop, depends_on: [call]}",
    );
    client.start("outer", &plan).await;
    client
        .raw()
        .pause_execution(v1::PauseExecutionRequest { name: name("outer"), ..Default::default() })
        .await
        .unwrap();
    until(&client, "outer", |kind| matches!(kind, Kind::ChildPaused(paused) if !paused.resumed)).await;
    services.restart(Service::Executor).await;
    let child = children(&client, "outer").await.remove(0);
    let paused = client.get(&child).await;
    assert_eq!(paused.state(), State::Paused, "{paused:?}");
    client
        .raw()
        .resume_execution(v1::ResumeExecutionRequest { name: name("outer"), ..Default::default() })
        .await
        .unwrap();
    let picture = client.watch_to_the_end("outer").await;
    assert_eq!(picture.state(), Some(State::Completed));
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ChildPaused(paused) if paused.resumed)), 1);
}

/// B-28: a child ends while its parent is paused. The parent records the end at once, so that the child can be deleted, and does not carry its plan out
/// again when it continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_ends_during_a_pause_is_recorded_and_can_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "
id: outer
steps:
  - id: child
    plan: {id: inner, steps: [{id: call, tool: noop, arguments: {sleep_ms: 700}}]}
  - {id: after, tool: noop, depends_on: [child]}
";
    client.start("outer", plan).await;
    until(&client, "outer", |kind| matches!(kind, Kind::ChildCreated(_))).await;
    let child = children(&client, "outer").await.remove(0);
    until(&client, &child, |kind| matches!(kind, Kind::ToolCallRequested(_))).await;
    let pause = v1::PauseExecutionRequest { name: name("outer"), ..Default::default() };
    client.raw().pause_execution(pause).await.unwrap();
    until(&client, "outer", |kind| matches!(kind, Kind::ChildEnded(_))).await;
    assert_eq!(client.get("outer").await.state(), State::Paused);
    let delete = v1::DeleteExecutionRequest { name: name(&child), ..Default::default() };
    client.raw().delete_execution(delete).await.unwrap();
    services.restart(Service::Executor).await;
    assert_eq!(client.get("outer").await.state(), State::Paused);
    let resume = v1::ResumeExecutionRequest { name: name("outer"), ..Default::default() };
    client.raw().resume_execution(resume).await.unwrap();
    let picture = client.watch_to_the_end("outer").await;
    assert_eq!(picture.state(), Some(State::Completed));
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ChildStarted(_))), 1);
}

/// B-28: a child that ended while nobody drove its parent cannot be deleted before its parent has recorded that; and whoever drives an execution drives
/// the executions of its steps, however deep, also without a server and after a kill.
#[test]
fn without_a_server_a_killed_run_goes_on_with_the_plans_of_its_steps() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let command = "[sh, -c, 'echo began >> began; while ! test -e go; do sleep 0.05; done; echo did >> did']";
    let plan = format!(
        "
id: outer
steps:
  - id: a
    plan:
      id: middle
      steps:
        - id: b
          plan:
            id: inner
            steps: [{{id: c, tool: run_terminal, arguments: {{command: {command}}}}}, {{id: d, tool: noop, depends_on: [c]}}]
"
    )
    .replace("test -e go", "test -e /workspace/go");
    home.file("p.yaml", plan);
    let mut run =
        home.start(["run", "p.yaml", "--id", "outer", "--workspace", "w", "--approve", "auto", "-o", "jsonl"]);
    run.wait_for("childCreated");
    run.kill();
    fs::write(home.path("w/go"), "").unwrap();
    let inner = |home: &Home| {
        let listed = home.json(&["executions", "list", "--children", "--filter", "plan_id = inner"]).1;
        listed["executions"][0]["name"].as_str().map(|name| name.rsplit('/').next().unwrap().to_owned())
    };
    let middle = home.json(&["executions", "list", "--filter", "parent = outer"]).1;
    let middle = middle["executions"][0]["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    // Alone: the execution of the step that it carries out is driven by nobody.
    let alone = home.run(["executions", "resume", &middle]);
    assert_eq!(alone.code, 0, "{alone:?}");
    let deleted = home.run(["executions", "delete", &middle, "--yes"]);
    assert!(deleted.talk.contains("END_NOT_RECORDED"), "{deleted:?}");
    let resumed = home.run(["executions", "resume", "outer"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    assert_eq!(fs::read_to_string(home.path("w/did")).unwrap(), "did\n", "once");
    assert!(inner(&home).is_some());
    let deleted = home.run(["executions", "delete", &middle, "--yes"]);
    assert_eq!(deleted.code, 0, "{deleted:?}");
}

/// The failure of a plan is that of its step, says which execution failed and why, and is what a retry tries again.
#[test]
fn a_plan_that_fails_says_where_and_is_retried() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file(
        "p.yaml",
        "
id: outer
steps:
- id: child
  plan: {id: inner, steps: [{id: look, tool: read_file, arguments: {path: there.txt}}]}
",
    );
    let failed = home.run(["run", "p.yaml", "--workspace", "w", "--id", "outer"]);
    assert_eq!(failed.code, 30, "{failed:?}");
    let why = home.run(["why", "outer"]);
    assert!(why.out.contains("which carried out the step's plan, failed: "), "{why:?}");
    let (_, execution) = home.json(&["executions", "get", "outer"]);
    let step = &execution["steps"][0];
    assert_eq!(step["failure"]["code"], "CHILD_FAILED", "{step}");
    let child = step["plan"]["execution"].as_str().unwrap().rsplit('/').next().unwrap();
    let why = home.run(["why", child]);
    assert!(why.out.contains("there.txt"), "{why:?}");
    assert!(why.out.contains("\nnext: belay executions retry outer\n"), "{why:?}");
    let refused = home.run(["executions", "retry", child]);
    assert!(refused.code == 2 && refused.talk.contains("belay executions retry outer"), "{refused:?}");
    home.file("w/there.txt", "x");
    let again = home.run(["executions", "retry", "outer"]);
    assert_eq!(again.code, 0, "{again:?}");
    let (_, execution) = home.json(&["executions", "get", "outer"]);
    let second = execution["steps"][0]["plan"]["execution"].as_str().unwrap();
    assert!(!second.ends_with(child), "another attempt is another execution");
}

/// A command shows the failure in the plan of a step, with the last lines that its program wrote, however deep; and what it waits for.
#[test]
fn one_command_says_why_the_plan_of_a_step_failed_and_what_it_waits_for() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    fs::write(home.path("w/notes.txt"), "x").unwrap();
    let policy = home.file("policy.yaml", "terminal_commands: auto\n");
    let server = home.serve_with(&["--policy", &policy]);
    let nested = |step: &str| {
        format!(
            "id: p\nsteps:\n- {{id: build, plan: {{id: middle, steps: [{{id: deep, plan: {{id: inner, steps: [{step}]}}}}]}}}}\n"
        )
    };
    let compiles = "{id: cc, tool: run_terminal, arguments: {command: [sh, -c, 'echo x.c:3 is wrong >&2; exit 2']}}";
    home.file("fails.yaml", nested(compiles));
    assert_eq!(home.run(["run", "fails.yaml", "--workspace", "w", "--id", "fails"]).code, 30);
    let why = home.run(["why", "fails"]);
    let expected = [
        "✗ build failed: ",
        "\n  ✗ deep failed: ",
        "\n  ✗ cc failed: `sh` exited with code 2. (COMMAND_FAILED)\n",
        "x.c:3 is wrong",
    ];
    assert!(expected.iter().all(|words| why.out.contains(words)), "{why:?}");
    assert!(why.out.contains("\nnext: belay executions retry fails\n      belay logs deep-"), "{why:?}");
    let (_, value) = home.json(&["why", "fails"]);
    let last = &value["children"][1]["causes"][0]["failure"]["lastOutput"]["stderr"];
    assert_eq!((value["children"].as_array().map(Vec::len), last.as_str()), (Some(2), Some("x.c:3 is wrong\n")));

    home.file("asks.yaml", nested("{id: gone, tool: delete_file, arguments: {path: notes.txt}}"));
    let started = ["run", "asks.yaml", "--workspace", "w", "--id", "asks", "--detach", "--approve", "prompt"];
    assert_eq!(home.run(started).code, 0);
    // The execution of each step's plan says which one carries out the next.
    let mut innermost = "asks".to_owned();
    for _ in 0..2 {
        let mut watch = home.start(["executions", "watch", &innermost]);
        let line = watch.wait_for("carries out its plan as the execution ");
        innermost = line.trim_end().rsplit(' ').next().unwrap().to_owned();
    }
    let mut watch = home.start(["executions", "watch", &innermost]);
    let line = watch.wait_for("waiting for approval; next: belay approvals show ");
    let approval = line.trim_end().rsplit(' ').next().unwrap();
    let why = home.run(["why", "asks"]);
    assert!(why.out.contains("delete notes.txt"), "{why:?}");
    let next = format!("\nnext: belay approvals show {approval}\n");
    assert!(why.out.ends_with(&next), "{why:?}");
    drop(server);
}
