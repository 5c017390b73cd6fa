//! S2-X-28: in air-gapped mode nothing beyond this machine is reached, and the tools that would need it are not offered.

use std::{io::Write as _, net::TcpListener, thread};

use belay_e2e::Home;

/// A service of this machine that greets once.
fn service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"hello\n");
        }
    });
    port
}

fn home(air_gapped: bool) -> Home {
    let home = Home::new();
    std::fs::create_dir(home.path("w")).unwrap();
    let port = service();
    home.file(
        "config.yaml",
        format!(
            "
air_gapped: {air_gapped}
models:
  far: {{api: chat, base_url: 'https://models.example.com/v1', model: large, window: 200000}}
network:
  profiles:
    own: {{host_services: ['127.0.0.1:{port}']}}
tools:
  fetch: {{command: [cargo, fetch], network: registries}}
  greet: {{command: [bash, -c, 'read line < /dev/tcp/127.0.0.1/{port}; echo $line'], network: own, output: text}}
"
        ),
    );
    home.file("policy.yaml", "{network: auto, terminal_commands: auto}");
    home
}

fn plan(home: &Home, tool: &str, network: &str) -> String {
    let arguments = if tool == "run_terminal" { "{command: ['true']}" } else { "{}" };
    let network = if network.is_empty() { String::new() } else { format!("network: {network}, ") };
    home.file("plan.yaml", format!("{{id: p, steps: [{{id: a, tool: {tool}, {network}arguments: {arguments}}}]}}"))
}

#[test]
fn tools_and_profiles_that_reach_other_machines_are_gone() {
    for air_gapped in [false, true] {
        let home = home(air_gapped);
        let config = ["--config", "config.yaml"];
        let run = |words: &[&str]| home.run(words.iter().chain(&config));
        let tools = run(&["tools", "list"]).out;
        let offers = |name: &str| tools.lines().any(|line| line.trim_start().starts_with(&format!("{name} ")));
        for (name, is_local) in [
            ("http_request", false),
            ("fetch_url", false),
            ("fetch", false),
            ("greet", true),
            ("run_terminal", true),
            ("research", true),
        ] {
            assert_eq!(offers(name), is_local || !air_gapped, "{name}: {tools}");
        }

        let refused = run(&["plan", "validate", &plan(&home, "run_terminal", "registries")]);
        assert_eq!(refused.code, if air_gapped { 2 } else { 0 }, "{}", refused.talk);
        let checked = run(&["network", "check", "registries", "https://pypi.org/simple/"]);
        assert_eq!(checked.code, if air_gapped { 33 } else { 0 }, "{}", checked.out);
        let shown = run(&["config", "show", "air_gapped"]).out;
        assert!(shown.contains(&air_gapped.to_string()), "{shown}");
        if !air_gapped {
            continue;
        }
        assert!(
            refused.talk.contains("steps[0].network: `registries` has hosts on other machines"),
            "{}",
            refused.talk
        );
        assert!(checked.out.contains("`air_gapped: true`"), "{}", checked.out);
        let model = run(&["models", "check", "far"]);
        assert!(model.code == 2 && model.talk.contains("MODEL_NOT_LOCAL"), "{}", model.talk);
        // A service of this machine is reached as ever.
        let greeted =
            run(&["run", &plan(&home, "greet", ""), "--workspace", "w", "--policy", "policy.yaml", "--id", "g"]);
        assert_eq!(greeted.code, 0, "{}", greeted.talk);
        assert_eq!(home.json(&["executions", "result", "g"]).1["stepOutputs"]["a"], "hello");
    }
}

// What was accepted before the settings changed is refused when it comes to its call.
#[test]
fn an_execution_that_was_accepted_before_is_refused_at_its_call() {
    let home = home(false);
    let steps = "{id: p, steps: [{id: wait, wait: {signal: go}}, {id: a, tool: run_terminal, network: registries, arguments: {command: ['true']}, depends_on: [wait]}]}";
    let plan = home.file("later.yaml", steps);
    let start = [
        "run",
        &plan,
        "--workspace",
        "w",
        "--policy",
        "policy.yaml",
        "--config",
        "config.yaml",
        "--id",
        "later",
        "--detach",
    ];
    let server = home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
    assert_eq!(home.run(start).code, 0);
    server.kill();
    let settings = std::fs::read_to_string(home.path("config.yaml")).unwrap();
    home.file("config.yaml", settings.replace("air_gapped: false", "air_gapped: true"));
    let _server = home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
    assert_eq!(home.run(["executions", "signal", "later", "go"]).code, 0);
    let ended = home.run(["executions", "watch", "later"]);
    assert_ne!(ended.code, 0, "{}", ended.talk);
    let (_, execution) = home.json(&["executions", "get", "later"]);
    let failure = execution["steps"][1]["failure"].to_string();
    assert!(failure.contains("air_gapped: true"), "{failure}");
}
