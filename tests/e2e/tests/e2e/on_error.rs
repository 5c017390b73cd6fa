//! Reactions to failures by their class, with the real services.

use std::{fs, os::unix::fs::PermissionsExt as _};

use belay_e2e::{Home, belay::CommandEnd};
use serde_json::Value;

/// A program that prints a forecast and a large report, and takes long once there is a file `slow`.
const WEATHER: &str = "#!/bin/sh
if [ -e slow ]; then sleep 60; fi
if [ \"$1\" = report ]; then head -c 100000 /dev/zero | tr '\\0' r; else echo sunny in \"$1\"; fi
";

const PLAN: &str = "
id: forecast
on_error: {TIMEOUT: use_cache}
steps:
  - {id: weather, tool: forecast, arguments: {city: Bern}, attempt_timeout: 1s}
  - {id: report, tool: forecast, arguments: {city: report}, attempt_timeout: 1s}
  - {id: told, tool: noop, arguments: {output: '${weather.result}'}}
";

/// The program as a tool that changes nothing.
const TOOLS: &str = "
tools:
  forecast:
    command: [./weather.sh, '${city}']
    parameters: {required: [city], properties: {city: {type: string}}}
    output: text
    recovery: read_only
";

struct World(Home);

impl World {
    fn new() -> Self {
        let home = Home::new();
        for folder in ["w", "other"] {
            fs::create_dir(home.path(folder)).unwrap();
            let program = home.file(&format!("{folder}/weather.sh"), WEATHER);
            fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        home.file("plan.yaml", PLAN);
        home.file("config.yaml", TOOLS);
        Self(home)
    }

    fn run(&self, id: &str, workspace: &str) -> CommandEnd {
        let with = ["--workspace", workspace, "--approve", "auto", "--id", id, "--config", "config.yaml"];
        self.0.run(["run", "plan.yaml"].iter().chain(&with))
    }

    fn step(&self, id: &str, step: &str) -> Value {
        let (_, execution) = self.0.json(&["executions", "get", id]);
        let steps = execution["steps"].as_array().unwrap();
        steps.iter().find(|known| known["stepId"] == step).unwrap_or_else(|| panic!("{step}: {execution:#}")).clone()
    }
}

/// S4-29: TIMEOUT is retryable and uses the cache: the last result of the same call, marked with its age, in the same directory alone, and gone with its execution.
#[test]
fn the_last_result_takes_the_place_of_one_that_takes_too_long() {
    let world = World::new();
    let ran = world.run("first", "w");
    assert_eq!(ran.code, 0, "{ran:?}");
    fs::write(world.0.path("w/slow"), "").unwrap();
    fs::write(world.0.path("other/slow"), "").unwrap();

    let ran = world.run("second", "w");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("an earlier result, ") && ran.out.contains(" old, of first"), "{}", ran.out);
    for step in ["weather", "report"] {
        let cached = world.step("second", step);
        assert_eq!(cached["state"], "STATE_COMPLETED", "{cached:#}");
        assert_eq!(cached["cachedResult"]["execution"], "namespaces/default/executions/first", "{cached:#}");
        let age = cached["cachedResult"]["age"].as_str().unwrap().trim_end_matches('s');
        assert!(age.parse::<f64>().unwrap() > 0.0, "{cached:#}");
        assert_eq!(cached["failedAttempts"][0]["failure"]["errorClass"], "ERROR_CLASS_TIMEOUT", "{cached:#}");
        assert_eq!(cached["outputBytes"], world.step("first", step)["outputBytes"]);
    }
    assert_eq!(world.step("second", "told")["output"], "sunny in Bern");
    let (_, result) = world.0.json(&["executions", "result", "second", "--as", "skills"]);
    let weather = &result["stepResults"]["weather"];
    assert!(weather["cached"] == true && weather["cacheAge"].as_u64().unwrap() > 0, "{weather:#}");
    let shown = world.0.run(["executions", "get", "second"]);
    assert!(shown.out.contains("an earlier result, "), "{shown:?}");
    let report = world.0.run(["logs", "second", "report"]);
    assert_eq!((report.code, report.out.trim().len()), (0, 100_000));

    // What a directory has is of no use in another one.
    let ran = world.run("elsewhere", "other");
    assert_eq!(ran.code, 34, "{ran:?}");
    let failed = world.step("elsewhere", "weather");
    let message = failed["failure"]["message"].as_str().unwrap();
    assert!(message.ends_with("There is no earlier result of the same call to use instead."), "{message}");

    let deleted = world.0.run(["executions", "delete", "first", "--yes"]);
    assert_eq!(deleted.code, 0, "{deleted:?}");
    assert_eq!(world.run("third", "w").code, 34, "a deleted execution has no results");
}
