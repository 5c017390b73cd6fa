//! External agents: what plans, people and operators see of them, and what becomes of those that misbehave.

use std::{fs, os::unix::fs::PermissionsExt as _};

use belay_e2e::{
    Home,
    belay::{CommandEnd, has_python, repository},
};
use serde_json::{Value, json};

use crate::tls_host::TlsHost;

/// A home whose settings have the scripted agent as `a`; `None` where there is no Python that its sandbox shows.
fn home(test: &str) -> Option<Home> {
    if !has_python(test) {
        return None;
    }
    let home = Home::new();
    for folder in ["w", "opt", "config"] {
        fs::create_dir(home.path(folder)).unwrap();
    }
    fs::copy(repository().join("tests/e2e/tests/e2e/external_agents/agent.py"), home.path("opt/agent.py")).unwrap();
    home.file("config/config.toml", "as configured");
    let (opt, config) = (home.path("opt"), home.path("config"));
    let settings = format!(
        "commands: {{read_only: [{{from: {}, at: /opt/agent}}]}}\nagents:\n  a:\n    reader: codex\n    command: [/usr/bin/python3, /opt/agent/agent.py]\n    \
         config_dir: {}\n    env: {{OWN: ' and by variable'}}\n    linger: 1s\n  b:\n    reader: text\n    command: sh -c 'cat > by-b; printf \"b has\\n\\ndone it\"'\n  \
         c:\n    reader: text\n    command: sh -c 'cat > /dev/null; cat /opt/agent/words >&2; exit 1'\n    rate_limit_phrases: [\"seats are taken\"]\n",
        opt.display(),
        config.display()
    );
    home.file("config.yaml", settings);
    Some(home)
}

fn run(home: &Home, agent: &str, task: &str, more: &[&str]) -> CommandEnd {
    let plan = json!({"id": "p", "steps": [{"id": "a", "tool": agent, "arguments": {"task": task}, "retry": {"max_attempts": 1}}]});
    let plan = home.file("plan.json", plan.to_string());
    let fixed = ["run", &plan, "--config", "config.yaml", "--workspace", "w"];
    home.run(fixed.iter().chain(more))
}

fn step(home: &Home, id: &str) -> Value {
    home.json(&["executions", "get", id, "--config", "config.yaml"]).1["steps"][0].clone()
}

/// B-34, S0-05, S0-06, S1-24, S1-30, S1-36: the whole run of an agent is one effect: seen, approved, and dropped when it is denied. It has a home of its own with a copy of its
/// configuration, and its task over its standard input and in a file.
#[test]
fn the_run_of_an_agent_is_one_effect() {
    let Some(home) = home("the_run_of_an_agent_is_one_effect") else { return };
    let denied = run(&home, "a", "write made", &["--approve", "fail"]);
    assert!(denied.code == 33 && !home.path("w/made").exists(), "{denied:?}");
    let done = run(&home, "a", "write made", &["--approve", "auto", "--id", "made"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(fs::read_to_string(home.path("w/made")).unwrap(), "as configured and by variable");
    assert_eq!(fs::read_to_string(home.path("config/config.toml")).unwrap(), "as configured");
    let output = step(&home, "made")["output"].clone();
    assert_eq!(
        (&output["text"], &output["exit_code"], &output["session"]),
        (&json!("I wrote made"), &json!(0), &json!("t-1"))
    );
    assert_eq!(
        output["usage"],
        json!({"input_tokens": 100, "cached_tokens": 40, "output_tokens": 10, "measured": false})
    );
    let logs = home.run(["logs", "made", "a", "--config", "config.yaml"]);
    assert!(logs.out.contains("[shell] touch made") && logs.out.contains("I wrote made"), "{logs:?}");
    // Nothing of it stays with the runner.
    let left: Vec<_> = fs::read_dir(home.path("w")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.len() == 2 && left.contains(&".belay".into()), "{left:?}");

    let plan =
        home.file("model.yaml", "{id: p, steps: [{id: a, tool: a, arguments: {task: write other, model: big-one}}]}");
    let with = ["--config", "config.yaml", "--workspace", "w", "--approve", "auto"];
    assert_eq!(home.run(["run", &plan].iter().chain(&with)).code, 0);
    assert_eq!(fs::read_to_string(home.path("w/model")).unwrap(), "big-one");
    let flag = home.file("flag.yaml", "{id: p, steps: [{id: a, tool: a, arguments: {task: write x, model: --yolo}}]}");
    let refused = home.run(["run", &flag].iter().chain(&with));
    assert!(refused.code == 2 && refused.talk.contains("steps[0].arguments"), "{refused:?}");

    // Without a plan.
    let task = "write by-task";
    let by_task = ["run", "--task", task, "--agent", "a", "--model", "small", "--id", "by-task"];
    assert_eq!(home.run(by_task.iter().chain(&with)).code, 0);
    assert!(home.path("w/by-task").exists() && fs::read_to_string(home.path("w/model")).unwrap() == "small");
    let neither = home.run(["run", "--task", task]);
    assert!(neither.code == 2 && neither.talk.contains("--agent"), "{neither:?}");
    let both = home.run(["run", "--task", task, "--agent", "a", "--tool", "read_file"]);
    assert_eq!(both.code, 2, "{both:?}");

    let (_, listed) = home.json(&["tools", "list", "--config", "config.yaml"]);
    let tools = listed["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == "a").expect("it is listed");
    assert_eq!(tool["annotations"]["readOnly"], false);
    // It may take as long as a plan may.
    assert_eq!(tool["defaultTimeout"], "31536000s", "{tool:#}");
}

/// S1-02, S1-08, S1-20, S1-21, S0-14: each way in which an agent fails ends in its class, with its words, and with nothing changed.
#[test]
fn an_agent_that_misbehaves_fails_its_call_and_changes_nothing() {
    let Some(home) = home("an_agent_that_misbehaves_fails_its_call_and_changes_nothing") else { return };
    home.file("opt/words", "429");
    for (id, task, class, by, words) in [
        ("limited", "status 429 Too Many Requests", "RATE_LIMIT", "event", "failed: exceeded retry limit"),
        ("key", "status 401 Unauthorized", "FATAL", "event", "status 401 of its model's server"),
        ("missing", "status 404 Not Found", "AGENT_UNAVAILABLE", "event", "failed: exceeded"),
        ("server", "status 500 Oh", "TRANSIENT", "event", "failed: exceeded"),
        ("lie", "lie", "TRANSIENT", "output", "reported success, and exited with code 3"),
        ("silent", "silent", "TRANSIENT", "output", "ended without its final event (exited with code 0)"),
        ("tool", "tool", "TRANSIENT", "output", "failed: stream disconnected"),
        ("e126", "exit 126", "AGENT_UNAVAILABLE", "output", "exited with code 126"),
        ("e127", "exit 127", "AGENT_UNAVAILABLE", "output", "exited with code 127"),
        ("e137", "exit 137", "CRASH", "output", "exited with code 137"),
        ("e145", "exit 145", "TRANSIENT", "output", "reported success, and exited with code 145"),
    ] {
        let failed = run(&home, "a", task, &["--approve", "auto", "--id", id]);
        let failure = step(&home, id)["failure"].clone();
        let class = format!("ERROR_CLASS_{class}");
        assert_eq!(
            (&failure["errorClass"], &failure["code"]),
            (&json!(class), &json!("AGENT_FAILED")),
            "{task}: {failed:?}"
        );
        assert_eq!(failure["metadata"]["classified_by"], by, "{failure:#}");
        let message = failure["message"].as_str().unwrap();
        assert!(message.starts_with("The agent `a` ") && message.contains(words), "{message}");
        assert!(!home.path("w/half").exists(), "{task}: half of what it did is there");
    }
    assert_eq!(step(&home, "limited")["failure"]["quota"]["name"], "the model of a");
    // The phrases of the operator count as well.
    home.file("opt/words", "all Seats Are Taken");
    let seats = run(&home, "c", "x", &["--approve", "auto", "--id", "seats"]);
    assert_eq!(step(&home, "seats")["failure"]["errorClass"], "ERROR_CLASS_RATE_LIMIT", "{seats:?}");
}

/// An agent that goes on after its final event is ended, and what it has done counts; words around an event do not hide it.
#[test]
fn an_agent_is_done_with_its_final_event() {
    let Some(home) = home("an_agent_is_done_with_its_final_event") else { return };
    for (task, code) in [("linger", Value::Null), ("closes", Value::Null), ("glued", json!(0)), ("child", json!(0))] {
        let done = run(&home, "a", task, &["--approve", "auto", "--id", task]);
        assert_eq!((done.code, &step(&home, task)["output"]["exit_code"]), (0, &code), "{task}: {done:?}");
        assert!(home.path("w/done").exists(), "{task}");
        fs::remove_file(home.path("w/done")).unwrap();
    }
    // Its output is bounded, whatever it is.
    let flood = run(&home, "a", "flood 100", &["--approve", "auto", "--id", "flood"]);
    assert_eq!((flood.code, &step(&home, "flood")["output"]["text"]), (0, &json!("done")), "{flood:?}");
}

/// S0-15, S1-16, S1-19, S1-21, S1-23, S1-32, S1-35: an agent whose quota is used up gives way to the next one, for this step alone.
#[test]
fn another_agent_takes_over() {
    let Some(home) = home("another_agent_takes_over") else { return };
    home.file("opt/words", "You've hit your weekly limit");
    let plan = json!({"id": "p", "steps": [{
        "id": "a", "tool": "c", "arguments": {"task": "x"}, "retry": {"max_attempts": 1},
        "fallback": [{"tool": "a", "arguments": {"task": "status 404"}}, {"tool": "b", "arguments": {"task": "by the third"}}],
    }]});
    let plan = home.file("plan.json", plan.to_string());
    let done =
        home.run(["run", &plan, "--config", "config.yaml", "--workspace", "w", "--approve", "auto", "--id", "f"]);
    assert_eq!((done.code, &step(&home, "f")["output"]["text"]), (0, &json!("b has\n\ndone it\n")), "{done:?}");
    assert_eq!(fs::read_to_string(home.path("w/by-b")).unwrap(), "by the third");
    let got = home.run(["executions", "get", "f", "--config", "config.yaml"]);
    for words in ["The agent `c` exited with code 1; by its last lines, a rate limit.", "weekly limit", "status 404"] {
        assert!(got.out.contains(words), "{got:?}");
    }
    let logs = home.run(["logs", "f", "--config", "config.yaml"]);
    assert!(logs.out.starts_with("==> a  completed") && logs.out.contains("b {\"task\":\"by the third\"}"), "{logs:?}");
    assert!(logs.out.ends_with("  done it\n"), "{logs:?}");
}

/// S1-26, S1-27, S1-28, S1-29: an agent that does not end when it is asked is killed, and has changed nothing.
#[test]
fn an_agent_is_stopped() {
    let Some(home) = home("an_agent_is_stopped") else { return };
    let _server = home.serve_with(&["--config", "config.yaml"]);
    let plan = json!({"id": "p", "steps": [{"id": "a", "tool": "a", "arguments": {"task": "stubborn"}}]});
    let plan = home.file("plan.json", plan.to_string());
    let start = home.run(["run", &plan, "--workspace", "w", "--id", "s", "--approve", "auto", "--detach"]);
    assert_eq!(start.code, 0, "{start:?}");
    home.start(["executions", "watch", "s", "--verbose"]).wait_for("it works on it");
    let cancelled = home.run(["executions", "cancel", "s"]);
    let ended = home.json_until(&["executions", "get", "s"], |it| it["state"] == "STATE_CANCELLED");
    assert_eq!(ended["steps"][0]["state"], "STATE_CANCELLED", "{cancelled:?}");
    assert!(!home.path("w/half").exists());
}

/// S1-01: an agent whose configuration is not there is known before anything runs.
#[test]
fn an_agent_without_its_configuration_does_not_start() {
    let Some(home) = home("an_agent_without_its_configuration_does_not_start") else { return };
    fs::remove_file(home.path("config/config.toml")).unwrap();
    fs::remove_dir(home.path("config")).unwrap();
    let plan = home
        .file("plan.yaml", "{id: p, steps: [{id: a, tool: a, arguments: {task: write x}, retry: {max_attempts: 1}}]}");
    let checked = home.run(["plan", "validate", &plan, "--config", "config.yaml"]);
    assert!(format!("{checked:?}").contains("agents.a.config_dir"), "{checked:?}");
    let ran = run(&home, "a", "write x", &["--approve", "auto", "--id", "x"]);
    assert_eq!((ran.code, &step(&home, "x")["failure"]["code"]), (30, &json!("AGENT_FAILED")), "{ran:?}");
}

/// A home whose settings have the scripted agent as `a`, with a model behind a base URL, and 300 tokens for each run.
fn home_with_model(test: &str, host: &TlsHost) -> Option<Home> {
    let home = home(test)?;
    home.file("ca.pem", &host.authority);
    home.file("secret", "s3cret/of+the-operator.0123456789\n");
    fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let at = home.path(".").canonicalize().unwrap();
    let (at, port, opt) = (at.display(), host.address.port(), home.path("opt"));
    let settings = format!(
        "commands: {{read_only: [{{from: {}, at: /opt/agent}}]}}
credentials:
  model: {{file: {at}/secret, header: x-api-key, hosts: ['https://localhost:{port}'], variable: MODEL_KEY}}
network:
  authorities: [{at}/ca.pem]
  profiles:
    model:
      rules:
      - {{host: localhost, ports: [{port}], private_addresses: true, credential: model, base_url: MODEL_URL, base_path: /v1}}
agents:
  a: {{reader: codex, command: [/usr/bin/python3, /opt/agent/agent.py], network: model, max_tokens: 300, linger: 1s}}
",
        opt.display()
    );
    home.file("config.yaml", settings);
    Some(home)
}

/// B-33, B-35: an agent never has its credential, and what it spends is counted and bounded from outside, whatever it says.
#[test]
fn the_tokens_of_an_agent_are_counted_and_bounded_from_outside() {
    let host = TlsHost::start();
    let Some(home) = home_with_model("the_tokens_of_an_agent_are_counted_and_bounded_from_outside", &host) else {
        return;
    };
    let asked = run(&home, "a", "ask /chat/completions 2", &["--approve", "auto", "--id", "two"]);
    assert_eq!(asked.code, 0, "{asked:?}");
    let usage = json!({"input_tokens": 200, "cached_tokens": 80, "output_tokens": 20, "measured": true});
    assert_eq!(step(&home, "two")["output"]["usage"], usage);
    let heads = host.received();
    assert!(heads.iter().all(|head| head.contains("s3cret/of+the-operator")), "the proxy puts it in: {heads:?}");

    // The fourth request comes when 330 of 300 tokens are used.
    let spent = run(&home, "a", "ask /chat/completions 9", &["--approve", "auto", "--id", "spent"]);
    let failure = step(&home, "spent")["failure"].clone();
    assert_eq!(
        (&failure["code"], &failure["errorClass"]),
        (&json!("AGENT_TOKENS"), &json!("ERROR_CLASS_BUDGET_EXHAUSTED")),
        "{spent:?}"
    );
    assert_eq!((&failure["metadata"]["found"], &failure["metadata"]["limit"]), (&json!("330"), &json!("300")));
    assert_eq!(host.received().len(), 2 + 3);
    assert!(!home.path("w/half").exists());

    // An answer that does not say what it has used counts by its length.
    let unsaid = run(&home, "a", "ask /unsaid 2", &["--approve", "auto", "--id", "unsaid"]);
    assert_eq!(step(&home, "unsaid")["failure"]["code"], "AGENT_TOKENS", "{unsaid:?}");
    assert_eq!(host.received().len(), 2 + 3 + 1);
}

/// A wrong agent is refused by its field.
#[test]
fn wrong_settings_are_refused_by_their_field() {
    let home = Home::new();
    for (agents, field, words) in [
        ("{x: {reader: text}}", "agents.x", "has no `command`"),
        ("{x: {command: \"sh -c 'oh\"}}", "agents.x.command", "a quote that is not closed"),
        ("{codex: {reader: codx}}", "agents.codex.reader", "codex"),
        ("{codex: {timeout: 0s}}", "agents.codex.timeout", "or `none`"),
        ("{codex: {linger: 2d}}", "agents.codex.linger", "at most 1h"),
        ("{codex: {network: nowhere}}", "agents.codex.network", "nowhere"),
        ("{codex: {reveals: [nothing]}}", "agents.codex.reveals", "nothing"),
        ("{codex: {cwd: ../other}}", "agents.codex.cwd", "without `..`"),
        ("{codex: {cwd: /tmp}}", "agents.codex.cwd", "relative to its root"),
        ("{codex: {config_dir: relative}}", "agents.codex.config_dir", "absolute path"),
        ("{codex: {fatal_phrases: [' ']}}", "agents.codex.fatal_phrases[0]", "at most 200 bytes"),
        ("{'a b': {reader: codex}}", "agents.a b", "is not an agent's name"),
        ("{codex: {model: m}}", "agents.codex.model", "config_dir"),
        ("{codex: {max_tokens: 1k}}", "agents.codex.max_tokens", "without a unit"),
        ("{codex: {max_tokens: 1000}}", "agents.codex.max_tokens", "`base_url`"),
        ("{noop: {reader: codex}}", "agents.noop", "a built-in tool has the name `noop`"),
    ] {
        home.file("config.yaml", format!("agents: {agents}\n"));
        let refused = home.run(["tools", "list", "--config", "config.yaml"]);
        assert!(
            refused.code != 0 && refused.talk.contains(field) && refused.talk.contains(words),
            "{agents}: {refused:?}"
        );
    }
}

/// S1-21: the example of the page runs with its command, and the second agent does the task.
#[test]
fn the_example_has_the_second_agent_do_it() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let example = |name: &str| repository().join("docs/examples/external-agents").join(name).display().to_string();
    let (plan, settings) = (example("plan.yaml"), example("settings.yaml"));
    let ended = home.run(["run", &plan, "--config", &settings, "--workspace", "w", "--approve", "auto", "-o", "json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let execution: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(execution["outputs"]["words"], "I wrote NOTES.md.\n", "{execution:#}");
    let notes = fs::read_to_string(home.path("w/NOTES.md")).unwrap();
    assert_eq!(notes, "The task was:\nWrite down in NOTES.md what you were asked.");
}
