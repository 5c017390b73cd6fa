//! Tools that the operator declares in the settings, as plans and people use them.

use std::fs;

use belay_e2e::{
    Home,
    belay::{has_python, repository},
};
use serde_json::{Value, json};

/// S4-01, S4-02, S4-03, S4-04, S4-06, S4-35: the example of another planner runs as it stands, with its three skills declared as tools: typed references
/// keep their types, the two steps that follow the first run side by side, and without the declarations nothing starts.
#[test]
fn the_plan_of_another_planner_runs_as_it_stands() {
    if !has_python("the_plan_of_another_planner_runs_as_it_stands") {
        return;
    }
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let example = |name: &str| repository().join("docs/examples/blog-post").join(name).display().to_string();
    let (plan, tools) = (example("plan.json"), example("tools.yaml"));
    let refused = home.run(["run", &plan, "--workspace", "w"]);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{refused:?}");
    for skill in ["generate_content", "moderate_content", "analyze_seo"] {
        assert!(refused.talk.contains(&format!("Tool '{skill}' not found")), "{}", refused.talk);
    }

    let ended = home.run(["run", &plan, "--config", &tools, "--workspace", "w", "--id", "post", "-o", "json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let execution: Value = serde_json::from_str(&ended.out).unwrap();
    let steps = execution["steps"].as_array().unwrap();
    let states: Vec<_> =
        steps.iter().map(|step| (step["stepId"].as_str().unwrap(), step["state"].as_str().unwrap())).collect();
    assert_eq!(states, ["step-1", "step-2", "step-3"].map(|id| (id, "STATE_COMPLETED")), "{execution:#}");
    let generated = &steps[0]["output"];
    assert_eq!(generated["tags"], json!(["GraphQL", "Best", "Practices"]));
    assert!(generated["content"].as_str().unwrap().contains("a professional paragraph"), "{generated:#}");
    assert_eq!(steps[1]["output"], json!({"approved": true, "flagged": false}));
    assert_eq!(steps[2]["output"], json!({"score": 85, "suggestions": ["Add internal links"]}));
    assert_eq!(
        fs::read_dir(home.path("w")).unwrap().filter(|entry| entry.as_ref().unwrap().file_name() != ".belay").count(),
        0
    );
}

/// S2-FR-023, S2-FR-029, S2-FR-036, S2-X-33: a declared tool is listed, described and checked like any other; its changes are judged, approved and committed like those of a command.
#[test]
fn a_declared_tool_is_a_tool_like_any_other() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let settings = "
tools:
  stamp:
    aliases: [mark]
    description: Writes a word to a file.
    command: [sh, -c, 'printf %s \"$1\" > \"$2\"; echo \"$1\" done', sh, '${word}', '${path}']
    parameters:
      required: [word, path]
      properties:
        word: {type: string, maxLength: 9}
        path: {type: string, format: workspace-path}
    output: text
  liar:
    command: [echo, not json]
    result: {type: object}
  failing:
    command: [sh, -c, 'echo some words; echo the reason >&2; exit 3']
  writes:
    command: [sh, -c, 'echo x > left; echo 1']
    recovery: read_only
    output: json
";
    home.file("config.yaml", settings);
    let with = ["--config", "config.yaml"];
    let (code, tools) = home.json(&["tools", "list", "--config", "config.yaml"]);
    let listed: Vec<_> = tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(
        code == 0 && ["stamp", "liar", "failing", "run_terminal"].iter().all(|name| listed.contains(name)),
        "{listed:?}"
    );
    let described = home.run(["tools", "describe", "mark"].iter().chain(&with));
    assert!(described.code == 0 && described.out.contains("Writes a word to a file."), "{described:?}");

    let step =
        |tool: &str, arguments: &str| format!("id: p\nsteps:\n  - {{id: s, tool: {tool}, arguments: {arguments}}}\n");
    for (arguments, problem) in [
        ("{word: hello}", "path"),
        ("{word: hello-hello, path: a}", "word"),
        ("{word: hello, path: a, x: 1}", "x"),
        ("{word: hello, path: ../a}", "outside workspace"),
    ] {
        home.file("plan.yaml", step("stamp", arguments));
        let refused = home.run(["plan", "validate", "plan.yaml"].iter().chain(&with));
        assert!(
            refused.code == 2 && refused.talk.contains("steps[0].arguments") && refused.talk.contains(problem),
            "{refused:?}"
        );
    }
    let run = |tool: &str, arguments: &str, approve: &str| {
        home.file("plan.yaml", step(tool, arguments));
        let ended =
            home.run(["run", "plan.yaml", "--workspace", "w", "--approve", approve, "-o", "json"].iter().chain(&with));
        let execution: Value = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        (ended.code, execution["steps"][0].clone())
    };
    let (code, refused) = run("stamp", "{word: hello, path: sub/../a}", "fail");
    assert_eq!(
        (code, &refused["failure"]["code"]),
        (33, &json!("NON_INTERACTIVE")),
        "a change by a command is asked for: {refused:#}"
    );
    assert!(!home.path("w/a").exists());
    let (code, done) = run("mark", "{word: \"it's $x\", path: a}", "auto");
    assert_eq!((code, &done["output"]), (0, &json!("it's $x done")), "{done:#}");
    assert_eq!(fs::read_to_string(home.path("w/a")).unwrap(), "it's $x");
    let (code, failed) = run("liar", "{}", "auto");
    assert_eq!((code, &failed["failure"]["code"]), (30, &json!("INVALID_RESULT")), "{failed:#}");
    let (code, failed) = run("failing", "{}", "auto");
    assert_eq!((code, &failed["failure"]["code"]), (30, &json!("COMMAND_FAILED")), "{failed:#}");
    assert!(failed["failure"]["lastOutput"].to_string().contains("the reason"), "{failed:#}");
    let (code, done) = run("writes", "{}", "fail");
    assert_eq!((code, &done["output"]), (0, &json!(1)), "{done:#}");
    assert!(!home.path("w/left").exists(), "what a read_only tool writes is discarded");

    // What only the runner can judge names the field, too, and starts nothing.
    for (tool, field) in [
        ("{command: [x], parameters: {properties: {a: {type: strin}}}}", "tools.bad.parameters"),
        ("{command: [x], result: {type: 3}}", "tools.bad.result"),
        ("{command: [x], aliases: [write_file]}", "tools.bad: a built-in tool has the name `write_file`"),
    ] {
        home.file("bad.yaml", format!("tools:\n  bad: {tool}\n"));
        let refused = home.run(["run", "plan.yaml", "--workspace", "w", "--config", "bad.yaml"]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.talk.contains("bad.yaml:2:") && refused.talk.contains(field), "{refused:?}");
    }
}

/// Values that a tool prints, and those given as inputs and signals, are taken exactly or refused by the place in them: no digit, key or byte is lost
/// in silence.
#[test]
fn json_from_outside_is_taken_exactly_or_refused() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("w/big", "{\"a\":123456789012345678901234567890}");
    home.file("w/dup", "{\"a\":1,\"a\":2}");
    home.file("w/bad", b"{\"a\":\"\xff\"}");
    home.file("w/bom", "\u{feff}{\"a\":0.5}");
    let mut settings = "tools:\n".to_owned();
    for name in ["big", "dup", "bad", "bom"] {
        settings += &format!("  {name}: {{command: [cat, {name}], output: json, recovery: read_only}}\n");
    }
    home.file("config.yaml", settings);
    let run = |arguments: &[&str]| {
        let ended = home.run(
            ["run", "plan.yaml", "--workspace", "w", "--config", "config.yaml", "-o", "json"].iter().chain(arguments),
        );
        (ended.code, serde_json::from_str::<Value>(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}")))
    };
    for (tool, says) in [
        ("big", "/a: is a whole number beyond 64 bits, whose digits would be lost: give it as text"),
        ("dup", "/a: is given twice in one object"),
        ("bad", "printed bytes that are not UTF-8"),
    ] {
        home.file("plan.yaml", format!("id: p\nsteps: [{{id: s, tool: {tool}}}]\n"));
        let (code, ended) = run(&[]);
        let failure = &ended["steps"][0]["failure"];
        assert_eq!((code, &failure["code"]), (30, &json!("INVALID_RESULT")), "{ended:#}");
        assert!(failure["message"].as_str().unwrap().contains(says), "{failure:#}");
    }
    home.file("plan.yaml", "id: p\nsteps: [{id: s, tool: bom}]\n");
    assert_eq!(run(&[]).1["steps"][0]["output"], json!({"a": 0.5}));

    home.file("plan.yaml", "id: p\ninputs: {i: {}}\nsteps: [{id: s, wait: {for: 1ms}}]\n");
    for (content, says) in [
        (&b"{\"i\": 1, \"i\": 2}"[..], "/i: is given twice"),
        (b"{\"i\": 1e-400}", "/i: is a number whose digits would be lost"),
        (b"{\"i\": \"\xff\"}", "not UTF-8 (0xff)"),
    ] {
        home.file("in.json", content);
        let (code, refused) = run(&["--input-file", "in.json"]);
        assert_eq!((code, &refused["code"]), (2, &json!("INVALID_ARGUMENT")), "{refused:#}");
        assert!(refused["message"].as_str().unwrap().contains(says), "{refused:#}");
    }
    home.file("in.json", "\u{feff}{\"i\": 1}");
    let (code, ended) = run(&["--input-file", "in.json"]);
    assert_eq!((code, &ended["inputs"]), (0, &json!({"i": 1})), "{ended:#}");
}

/// S2-FR-061: the services are killed while a call runs that must not be made twice. A person finds out what it did, and the plan continues from there.
#[test]
fn a_lost_call_of_a_manual_tool_is_resolved_by_a_person() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("policy.yaml", "rules: [{id: pay, on: intent, tools: [pay], decide: auto}]\n");
    home.file(
        "config.yaml",
        "tools: {pay: {command: [sh, -c, 'echo begun; sleep 60'], recovery: manual, output: text}}\n",
    );
    home.file(
        "plan.yaml",
        "id: p\nsteps:\n  - {id: pay, tool: pay}\n  - {id: note, tool: noop, arguments: {output: 'paid ${pay.result.amount}'}}\n",
    );
    let serve = || home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
    let server = serve();
    let mut run = home.start(["run", "plan.yaml", "--workspace", "w", "--id", "x"]);
    run.wait_for("begun");
    server.kill();
    run.kill();

    let _server = serve();
    let mut watch = home.start(["executions", "watch", "x"]);
    watch.wait_for("outcome unknown");
    let shown = home.run(["executions", "get", "x"]);
    assert!(shown.out.contains("belay executions resolve x pay"), "{shown:?}");
    let refused = home.run(["executions", "resolve", "x", "pay"]);
    assert!(refused.code == 2 && refused.talk.contains("--completed"), "{refused:?}");
    let refused = home.run(["executions", "resolve", "x", "note", "--again"]);
    assert!(refused.code == 2 && refused.talk.contains("The step is PENDING"), "{refused:?}");
    let refused = home.run(["executions", "resolve", "x", "pay", "--again", "--result", "1"]);
    assert!(refused.code == 2 && refused.talk.contains("is for COMPLETED"), "{refused:?}");
    let resolved = home.run([
        "executions",
        "resolve",
        "x",
        "pay",
        "--completed",
        "--result",
        r#"{"amount": 7}"#,
        "--reason",
        "the bank says so",
    ]);
    assert_eq!(resolved.code, 0, "{resolved:?}");
    let events = watch.end();
    assert!(events.code == 0 && events.out.contains("resolved: the call had completed by"), "{events:?}");
    assert!(events.out.contains("the bank says so"), "{events:?}");
    assert_eq!(home.json(&["executions", "get", "x"]).1["steps"][1]["output"], "paid 7");
    let late = home.run(["executions", "resolve", "x", "pay", "--failed"]);
    assert_eq!(late.code, 2, "{late:?}");
}

/// S4-03, S4-20: a declared tool gets the context in which the plan was asked for, and has conditions of its own about its arguments, the context and its output; what its program
/// changed is not kept when they do not hold.
#[test]
fn a_declared_tool_has_conditions_and_gets_the_context() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let settings = "
tools:
  deploy:
    command: [sh, -c, 'echo \"$1\" > deployed; printf \"{\\\"score\\\": %s, \\\"of\\\": %s}\" \"$1\" \"$BELAY_CONTEXT\"', sh, '${score}']
    parameters: {required: [score], properties: {score: {type: integer}, most: {type: integer, default: 9}}}
    output: json
    preconditions: ['context.environment != \"production\" || arguments.score > 3']
    postconditions: ['output.score <= arguments.most']
";
    home.file("config.yaml", settings);
    let run = |environment: &str, score: u32| {
        let plan = json!({
            "plan": {"id": "p", "steps": [{"stepId": "s", "skillId": "deploy", "params": {"score": score}}]},
            "context": {"traceId": "t-1", "environment": environment},
        });
        home.file("plan.json", plan.to_string());
        let with = ["--workspace", "w", "--approve", "auto", "-o", "json", "--config", "config.yaml"];
        let ended = home.run(["run", "plan.json"].iter().chain(&with));
        let execution: Value = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        execution["steps"][0].clone()
    };
    let done = run("staging", 2);
    let context = json!({"traceId": "t-1", "environment": "staging"});
    assert_eq!(done["output"], json!({"score": 2, "of": context}), "{done:#}");
    assert_eq!(fs::read_to_string(home.path("w/deployed")).unwrap(), "2\n");

    let refused = run("production", 3);
    assert_eq!(refused["failure"]["code"], "PRECONDITION_FAILED", "{refused:#}");
    let message = refused["failure"]["message"].as_str().unwrap();
    assert!(
        message.contains("A precondition of the tool `deploy` does not hold")
            && message.contains("arguments.score > 3"),
        "{message}"
    );
    let refused = run("production", 10);
    assert_eq!(refused["failure"]["code"], "POSTCONDITION_FAILED", "{refused:#}");
    assert_eq!(fs::read_to_string(home.path("w/deployed")).unwrap(), "2\n", "nothing else was kept");
}
