//! Effects of steps are undone when an execution does not complete, with the real services.

use std::{fs, time::Duration};

use belay_e2e::{Client, Home, Service, Services, belay::repository};
use belay_proto::v1::{execution::State, execution_event::Kind, step};

/// S4-29: the example leaves nothing of a release whose publication fails, says what was undone, and is mended by a retry.
#[test]
fn a_release_that_fails_leaves_nothing() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let plan = repository().join("docs/examples/compensation.yaml");
    let run = |publish: &str, id: &str| {
        let publish = format!("publish={publish}");
        let plan = plan.to_str().unwrap();
        home.run(["run", plan, "--workspace", "w", "--approve", "auto", "--id", id, "--input", &publish])
    };
    let failed = run("./publish.sh", "failed");
    assert_eq!(failed.code, 30, "{failed:?}");
    let left: Vec<_> =
        fs::read_dir(home.path("w/releases")).map(|entries| entries.flatten().collect()).unwrap_or_default();
    assert!(left.is_empty(), "{left:?}");
    let (_, execution) = home.json(&["executions", "get", "failed"]);
    assert_eq!(execution["state"], "STATE_FAILED", "nothing of it is left");
    let state = |id: &str| {
        let steps = execution["steps"].as_array().unwrap();
        steps.iter().find(|step| step["stepId"] == id).unwrap_or_else(|| panic!("{id}: {execution}"))["state"].clone()
    };
    for (id, expected) in [
        ("reserve", "STATE_COMPENSATED"),
        ("notes", "STATE_COMPENSATED"),
        ("publish", "STATE_FAILED"),
        ("notes~compensate", "STATE_COMPLETED"),
    ] {
        assert_eq!(state(id), expected, "{id}");
    }
    assert_eq!(execution["totals"]["total"], 3, "what undoes a step was not to be done");
    assert!(failed.out.contains("undoes what 2 steps did"), "{failed:?}");

    home.file("w/publish.sh", "#!/bin/sh\ntrue\n");
    let status = std::process::Command::new("chmod").arg("+x").arg(home.path("w/publish.sh")).status().unwrap();
    assert!(status.success());
    let ended = home.run(["executions", "retry", "failed"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(home.path("w/releases/1.4.md").exists() && home.path("w/releases/1.4.lock").exists());
    let (_, execution) = home.json(&["executions", "get", "failed"]);
    assert_eq!(execution["state"], "STATE_COMPLETED");

    fs::remove_dir_all(home.path("w/releases")).unwrap();
    assert_eq!(run("true", "good").code, 0);
    assert!(home.path("w/releases/1.4.md").exists(), "what completes stays");
}

/// B-01: whichever process dies, everything is undone once, in reverse order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_undone_once_whatever_dies() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let mut plan = "id: undone\nsteps:\n".to_owned();
    for step in 0..10 {
        let compensate = format!("{{tool: noop, arguments: {{sleep_ms: 60, output: '${{s{step}.result}}'}}}}");
        plan += &format!("- {{id: s{step}, tool: noop, arguments: {{output: {step}}}, compensate: {compensate}}}\n");
    }
    plan += "- {id: last, tool: noop, depends_on: [s9], arguments: {fail: at the end}}\n";
    client.start("undone", &plan).await;
    let watcher = client.clone();
    let watch = tokio::spawn(async move { watcher.watch_to_the_end("undone").await });
    let mut kills = 0;
    while !watch.is_finished() && kills < 10 {
        tokio::time::sleep(Duration::from_millis(50 + 13 * (kills % 4))).await;
        services.restart(if kills % 3 == 0 { Service::Runner } else { Service::Executor }).await;
        kills += 1;
    }
    let picture = watch.await.unwrap();
    assert_eq!(picture.state(), Some(State::Failed), "nothing is left of what was done");
    let undone: Vec<String> = picture
        .events()
        .iter()
        .filter(|event| matches!(event.kind, Some(Kind::StepCompleted(_))) && event.step_id.ends_with("~compensate"))
        .map(|event| event.step_id.clone())
        .collect();
    let expected: Vec<String> = (0..10).rev().map(|step| format!("s{step}~compensate")).collect();
    assert_eq!(undone, expected);
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ToolCallCompleted(_))), 20, "each call completes once");
    let steps = client.get("undone").await.steps;
    let compensated = steps.iter().filter(|step| step.state() == step::State::Compensated).count();
    assert_eq!(compensated, 10);
    assert!(kills > 2, "the execution lived through {kills} kills only");
}
