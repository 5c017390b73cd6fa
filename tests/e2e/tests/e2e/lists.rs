//! Steps that run for each entry of a list, with the real services: processes that die, results that are large, people who retry.

use std::{fs, time::Duration};

use belay_e2e::{Client, Home, Service, Services, belay::repository};
use belay_proto::v1::{execution::State, execution_event::Kind};

/// The example that fans out over the files of a folder: 200 of them, each counted by a step of its own.
#[test]
fn the_fan_out_counts_two_hundred_files() {
    let home = Home::new();
    fs::create_dir_all(home.path("w/texts")).unwrap();
    for number in 0..200 {
        home.file(&format!("w/texts/{number:03}.txt"), "line\n".repeat(number));
    }
    let plan = repository().join("docs/examples/fan-out.yaml");
    let arguments = ["run", plan.to_str().unwrap(), "--workspace", "w", "--input", "folder=texts", "--id", "fan"];
    let ended = home.run(arguments);
    assert_eq!(ended.code, 0, "{ended:?}");
    let (_, step) = home.json(&["executions", "get", "fan", "--step", "count"]);
    let counted = step["output"].as_array().unwrap_or_else(|| panic!("{step}"));
    let lines: Vec<usize> = counted.iter().map(|one| one["stdout"].as_str().unwrap().trim().parse().unwrap()).collect();
    assert_eq!(lines, (0..200).collect::<Vec<_>>(), "the results stand in the order of the entries");
    let (_, execution) = home.json(&["executions", "get", "fan"]);
    assert_eq!(execution["totals"]["total"], 202);
}

/// B-01: whichever process dies, also while a round waits for its delay, each round is made once, and the last gives the result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_round_is_made_once_whatever_dies() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "
        id: rounds
        steps:
          - id: poll
            repeat: {until: '${poll.result.n} == 8', max: 20, delay: 60ms}
            tool: noop
            arguments: {sleep_ms: 30, output: {n: '${item.value.round}', before: '${poll.result.n ?? 0}'}}
          - {id: after, tool: noop, arguments: {output: ['${poll.result}', '${poll.results[6].value.before}']}}
    ";
    client.start("rounds", plan).await;
    let watcher = client.clone();
    let watch = tokio::spawn(async move { watcher.watch_to_the_end("rounds").await });
    let mut kills = 0;
    while !watch.is_finished() && kills < 10 {
        tokio::time::sleep(Duration::from_millis(40 + 17 * (kills % 5))).await;
        services.restart(if kills % 3 == 0 { Service::Runner } else { Service::Executor }).await;
        kills += 1;
    }
    let picture = watch.await.unwrap();
    assert_eq!(picture.state(), Some(State::Completed), "after {kills} kills");
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ToolCallCompleted(_))), 9, "each call completes once");
    assert_eq!(picture.count(|kind| matches!(kind, Kind::StepItemsListed(_))), 8);
    let last = picture.events().iter().rev().find_map(|event| match &event.kind {
        Some(Kind::ToolCallCompleted(completed)) => completed.result.as_ref()?.as_json().map(str::to_owned),
        _ => None,
    });
    assert_eq!(last.as_deref(), Some(r#"[{"before":7,"n":8},6]"#));
}

/// B-01: whichever process dies, each entry is done once, and the results are collected in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_entry_is_done_once_whatever_dies() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "
        id: lists
        parallelism: 4
        steps:
          - {id: list, tool: noop, arguments: {output: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]}}
          - id: each
            for_each: ${list.result}
            tool: noop
            arguments: {sleep_ms: 60, output: {n: '${item.value}', at: '${item.index}'}}
          - {id: after, tool: noop, arguments: {output: '${each.result[23].n}'}}
    ";
    client.start("lists", plan).await;
    let watcher = client.clone();
    let watch = tokio::spawn(async move { watcher.watch_to_the_end("lists").await });
    let mut kills = 0;
    while !watch.is_finished() && kills < 12 {
        tokio::time::sleep(Duration::from_millis(40 + 17 * (kills % 5))).await;
        services.restart(if kills % 3 == 0 { Service::Runner } else { Service::Executor }).await;
        kills += 1;
    }
    let picture = watch.await.unwrap();
    assert_eq!(picture.state(), Some(State::Completed), "after {kills} kills");
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ToolCallCompleted(_))), 26, "each call completes once");
    assert_eq!(picture.count(|kind| matches!(kind, Kind::StepItemsListed(_))), 1);
    let collected = picture.events().iter().find_map(|event| match &event.kind {
        Some(Kind::StepItemsCollected(collected)) => collected.output.as_ref()?.as_json().map(str::to_owned),
        _ => None,
    });
    let expected: Vec<String> = (0..24).map(|n| format!(r#"{{"at":{n},"n":{n}}}"#)).collect();
    assert_eq!(collected.unwrap(), format!("[{}]", expected.join(",")));
    assert!(kills > 2, "the execution lived through {kills} kills only");
}

/// Results that are too large for an event are collected as well; what fails is run again alone.
#[test]
fn large_results_are_collected_and_what_failed_runs_again() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let policy = home.file("policy.yaml", "terminal_commands: auto\n");
    let server = home.serve_with(&["--policy", &policy]);
    home.file(
        "plan.yaml",
        "id: p
parallelism: 4
steps:
- id: each
  for_each: [a, b, c]
  tool: run_terminal
  arguments: {command: [sh, -c, 'if [ $0 = b ]; then test -f there || exit 3; fi; echo $0 >> ran-$0; head -c 60000 /dev/zero | tr \"\\0\" $0', '${item.value}']}
- {id: after, tool: noop, arguments: {output: '${each.result[1].exit_code}${each.result[2].exit_code}'}}
",
    );
    let failed = home.run(["run", "plan.yaml", "--workspace", "w", "--id", "p"]);
    assert_eq!(failed.code, 30, "{failed:?}");
    let why = home.run(["why", "p"]);
    let said = format!("{}{}", why.out, why.talk);
    assert!(said.contains("each~1") && said.contains("belay executions retry p"), "{said}");
    home.file("w/there", "");
    let ended = home.run(["executions", "retry", "p"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for name in ["a", "b", "c"] {
        let ran = fs::read_to_string(home.path(&format!("w/ran-{name}"))).unwrap();
        assert_eq!(ran, format!("{name}\n"), "each entry took effect once");
    }
    let (_, step) = home.json(&["executions", "get", "p", "--step", "each"]);
    assert!(step["outputBytes"].as_str().unwrap().parse::<u64>().unwrap() > 150_000, "{step}");
    let (_, after) = home.json(&["executions", "get", "p", "--step", "after"]);
    assert_eq!(after["output"], "00", "{after}");
    drop(server);
}

/// A list that is no list, a tool of a fallback that does not exist, arguments of one that do not fit: named before, or where that cannot be, in the failure.
#[test]
fn what_cannot_be_a_list_or_a_fallback_is_named() {
    let home = Home::new();
    let refused = |text: &str, said: &[&str]| {
        home.file("bad.yaml", text);
        let ended = home.run(["run", "bad.yaml"]);
        assert_eq!(ended.code, 2, "{ended:?}");
        for expected in said {
            assert!(ended.talk.contains(expected), "{expected}: {}", ended.talk);
        }
    };
    refused(
        "id: p\nsteps:\n- {id: a, tool: noop, fallback: [{tool: noop}, {tool: nop}]}\n",
        &["steps[0].fallback[1].tool: Tool 'nop' not found; did you mean `noop`?"],
    );
    refused(
        "id: p\nsteps:\n- {id: a, tool: noop, fallback: [{tool: read_file, arguments: {pat: x}}]}\n",
        &["steps[0].fallback[0].arguments", "read_file takes no `pat` here; did you mean `path`?"],
    );
    home.file("plan.yaml", "id: p\ninputs: {files: {}}\nsteps: [{id: a, tool: noop, for_each: '${inputs.files}'}]\n");
    let ended = home.run(["run", "plan.yaml", "--input", "files=a.txt"]);
    assert!(ended.code == 30 && ended.talk.contains("`${inputs.files}` is text, and must be a list"), "{ended:?}");
}

/// B-31: a small plan whose lists and nested plans become many steps takes no more memory than the operator allows: what does not fit waits for others to end,
/// also where executions wait for the executions of their own steps, and what never fits is refused by its setting.
#[test]
fn lists_in_the_plans_of_lists_wait_for_room_in_memory_and_all_of_them_end() {
    let home = Home::new();
    // An execution with those of its steps' plans has room for 15 steps.
    home.file("config.yaml", "services: {executor: {steps: 60}}");
    let with = ["--config", "config.yaml", "-o", "json"];
    let six = "[0, 1, 2, 3, 4, 5]";
    let inner = format!("{{id: inner, steps: [{{id: n, tool: noop, for_each: {six}, arguments: {{}}}}]}}");
    let middle = format!("{{id: middle, steps: [{{id: m, for_each: {six}, plan: {inner}}}]}}");
    home.file("nested.yaml", format!("id: outer\nsteps: [{{id: o, for_each: {six}, plan: {middle}}}]"));
    let run = |plan: &str| home.run(["run", plan, "--id", plan.split('.').next().unwrap()].iter().chain(&with));
    let ended = run("nested.yaml");
    assert_eq!(ended.code, 0, "{ended:?}");
    let (_, executions) = home.json(&["executions", "list", "--children", "--limit", "100"]);
    let executions = executions["executions"].as_array().unwrap_or_else(|| panic!("{executions}"));
    let count = |state: &str| executions.iter().filter(|one| one["state"] == state).count();
    assert_eq!(count("STATE_COMPLETED"), executions.len(), "{executions:?}");
    assert_eq!(executions.iter().map(|one| one["totals"]["total"].as_u64().unwrap()).sum::<u64>(), 7 + 6 * 7 + 36 * 7);

    let twenty: Vec<usize> = (0..20).collect();
    home.file("long.yaml", format!("id: p\nsteps: [{{id: n, tool: noop, for_each: {twenty:?}, arguments: {{}}}}]"));
    let refused = run("long.yaml");
    assert_eq!(refused.code, 30, "{refused:?}");
    for word in ["LIST_REFUSED", "more than 15 steps", "services.executor.steps"] {
        assert!(refused.out.contains(word), "{word}: {refused:?}");
    }
    let steps: String = (0..16).map(|n| format!("  - {{id: s{n}, tool: noop, arguments: {{}}}}\n")).collect();
    home.file("many.yaml", format!("id: p\nsteps:\n{steps}"));
    let refused = home.run(["run", "many.yaml", "--config", "config.yaml"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.talk.contains("has 16 steps, and an execution may have 15"), "{refused:?}");
}
