//! The network of commands: what a profile opens and what it does not, who decides about it, and what becomes of a command that is lost with one.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use belay_e2e::{Home, belay::repository};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A service of this machine that answers each line with `hello` and the line.
struct Service {
    address: SocketAddr,
    lines: Arc<AtomicUsize>,
    /// Has an entry for each line.
    heard: Receiver<()>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, lines) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let (counted, (hears, heard)) = (Arc::clone(&lines), mpsc::channel());
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (counted, hears) = (Arc::clone(&counted), hears.clone());
                thread::spawn(move || {
                    let mut line = String::new();
                    while BufReader::new(&stream).read_line(&mut line).is_ok_and(|read| read > 0) {
                        counted.fetch_add(1, Ordering::SeqCst);
                        // A test that has ended does not hear it.
                        let _ = hears.send(());
                        if write!(stream, "hello {line}").is_err() {
                            break;
                        }
                        line.clear();
                    }
                });
            }
        });
        Self { address, lines, heard }
    }

    fn lines(&self) -> usize {
        self.lines.load(Ordering::SeqCst)
    }

    /// A shell script that sends it a line over the descriptor 3, and prints its answer.
    fn say(&self, word: &str) -> String {
        self.say_over(3, word)
    }

    /// The same over another descriptor.
    fn say_over(&self, descriptor: u8, word: &str) -> String {
        let (host, port, fd) = (self.address.ip(), self.address.port(), descriptor);
        format!("exec {fd}<>/dev/tcp/{host}/{port} && echo {word} >&{fd} && read -r answer <&{fd} && echo \"$answer\"")
    }

    /// The same by the proxy of the command, as programs do that use proxies; it prints the proxy's answer first.
    fn say_by_proxy(&self, word: &str) -> String {
        let port = self.address.port();
        format!(
            "exec 3<>/dev/tcp/127.77.0.1/21080 && printf 'CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\n' >&3 && read -r status <&3 && echo \"$status\" && read -r empty <&3 && echo {word} >&3 && read -r answer <&3 && echo \"$answer\""
        )
    }
}

const ALLOWS: &str = "{network: auto, file_write: auto, file_delete: auto, terminal_commands: auto}";

/// A home with a profile `local` that has the service, and a policy that allows it.
fn home(service: &Service, fetch_only: bool) -> Home {
    let home = Home::new();
    // A profile that does more than fetch has a rule for the same port, too.
    let rules = match fetch_only {
        true => String::new(),
        false => format!(", rules: [{{host: unused.example.com, ports: [{}], protocol: tcp}}]", service.address.port()),
    };
    home.file(
        "config.yaml",
        format!(
            "network: {{profiles: {{local: {{host_services: ['{}'], fetch_only: {fetch_only}{rules}}}}}}}",
            service.address
        ),
    );
    home.file("allows.yaml", ALLOWS);
    home
}

/// A home with a profile `local` under which a person is asked about the service.
fn asking_home(service: &Service) -> Home {
    let home = home(service, false);
    let port = service.address.port();
    home.file(
        "config.yaml",
        format!(
            "network: {{profiles: {{local: {{rules: [{{host: localhost, ports: [{port}], protocol: tcp, private_addresses: true, ask: true}}]}}}}}}"
        ),
    );
    home
}

/// A plan of one command.
fn plan(home: &Home, name: &str, network: &str, script: &str) -> String {
    let arguments = serde_json::json!({"command": ["bash", "-c", script]});
    home.file(name, format!("{{id: p, steps: [{{id: a, tool: run_terminal, {network} arguments: {arguments}}}]}}"))
}

/// The account of the network in the last receipt of an execution.
fn account(home: &Home, id: &str) -> Value {
    let ends = ["toolCallCompleted", "toolCallFailed"];
    let events = home.events(id);
    let receipt = events.iter().rev().find_map(|event| ends.iter().find_map(|end| event[end]["receipt"].as_object()));
    receipt.map(|receipt| receipt["network"].clone()).unwrap_or_default()
}

// B-32: a command reaches what its profile names and nothing else; each connection is recorded; a refusal says why.
#[test]
fn a_service_of_the_machine_is_reached_under_its_profile_and_nothing_else_is() {
    let service = Service::start();
    let home = home(&service, false);
    // It listens until the command has ended.
    let another = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!(
        "{}; (exec 4<>/dev/tcp/127.0.0.1/{}) 2>/dev/null && echo LEAK; (exec 4<>/dev/tcp/example.com/443) 2>/dev/null && echo LEAK; true",
        service.say("one"),
        another.local_addr().unwrap().port(),
    );
    let asks = plan(&home, "asks.yaml", "network: local,", &script);
    let done = home.run(["run", &asks, "--config", "config.yaml", "--policy", "allows.yaml", "--id", "asks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("hello one") && !done.out.contains("LEAK"), "{done:?}");
    assert!(done.out.contains("network local: 1 connection"), "{done:?}");
    let account = account(&home, "asks");
    assert_eq!((&account["profile"], &account["isLost"]), (&"local".into(), &Value::Null), "{account}");
    let first = &account["connections"][0];
    assert_eq!((&first["route"], &first["isAllowed"]), (&"ROUTE_SERVICE".into(), &true.into()), "{account}");

    // Without the profile the same command reaches nothing, and the failure says what to write.
    let asks_not = plan(
        &home,
        "asks-not.yaml",
        "",
        &format!("{} || {{ echo Could not resolve host; exit 7; }}", service.say("two")),
    );
    let failed = home.run(["run", &asks_not, "--config", "config.yaml", "--policy", "allows.yaml"]);
    assert_eq!(failed.code, 30, "{failed:?}");
    assert!(format!("{}{}", failed.out, failed.talk).contains("add `network: PROFILE` to the step"), "{failed:?}");
    assert_eq!(service.lines(), 1);
}

/// A tool's own profile holds for a step that names none; what a step names holds instead, `none` too.
#[test]
fn a_step_takes_the_network_of_its_tool_away() {
    let service = Service::start();
    let home = home(&service, false);
    let config = fs::read_to_string(home.path("config.yaml")).unwrap();
    let command = serde_json::json!(["bash", "-c", service.say("tool")]);
    home.file(
        "config.yaml",
        format!(
            "{config}\ntools: {{says: {{network: local, command: {command}, output: text}}, closed: {{network: none, command: {command}}}}}\n"
        ),
    );
    let run = |network: &str| {
        let plan =
            home.file("says.yaml", format!("{{id: p, steps: [{{id: a, tool: says, {network} arguments: {{}}}}]}}"));
        home.run(["run", &plan, "--config", "config.yaml", "--approve", "auto"])
    };
    let reached = run("");
    assert_eq!((reached.code, service.lines()), (0, 1), "{reached:?}");
    for closed in ["none", "loopback"] {
        let kept = run(&format!("network: {closed},"));
        assert_eq!((kept.code, service.lines()), (30, 1), "{closed}: {kept:?}");
    }
    // What the operator has said of a tool comes before what a plan says of all its steps.
    for (of_plan, tool, code, lines) in [("none", "says", 0, 2), ("local", "closed", 30, 2)] {
        let text = format!("{{id: p, network: {of_plan}, steps: [{{id: a, tool: {tool}, arguments: {{}}}}]}}");
        let plan = home.file("of-plan.yaml", text);
        let ended = home.run(["run", &plan, "--config", "config.yaml", "--approve", "auto"]);
        assert_eq!((ended.code, service.lines()), (code, lines), "{of_plan} {tool}: {ended:?}");
    }
}

#[test]
fn a_person_is_asked_before_a_command_has_a_network_and_sees_what_it_reaches() {
    let service = Service::start();
    let home = home(&service, false);
    let asks = plan(&home, "asks.yaml", "network: local,", &service.say("one"));
    let refused = home.run(["run", &asks, "--config", "config.yaml", "--approve", "fail"]);
    assert_eq!(refused.code, 33, "{refused:?}");
    let rule = "{id: allow-a, on: intent, tools: [\"run_terminal\"], programs: [\"bash\"], networks: [\"local\"], decide: auto}";
    assert!(format!("{}{}", refused.out, refused.talk).contains(rule), "{refused:?}");
    assert_eq!(service.lines(), 0, "it has not run");
    // The rule that is printed is enough.
    home.file("ruled.yaml", format!("rules:\n  - {rule}\n"));
    let done = home.run(["run", &asks, "--config", "config.yaml", "--policy", "ruled.yaml", "--approve", "fail"]);
    assert_eq!((done.code, service.lines()), (0, 1), "{done:?}");

    let server = home.serve_with(&["--config", "config.yaml"]);
    let started = home.run(["run", &asks, "--detach", "--id", "asked", "--approve", "prompt"]);
    assert_eq!(started.code, 0, "{started:?}");
    let waits = home.json_until(&["approvals", "list"], |all| all["approvals"][0]["name"].is_string());
    let approval = waits["approvals"][0]["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let shown = home.run(["approvals", "show", &approval]);
    let reach = format!("this machine's {}", service.address);
    let profile = "network profile local: tcp://unused.example.com";
    let is_shown = [profile, &reach, "Has not run yet"].iter().all(|words| shown.out.contains(words));
    assert!(is_shown, "{shown:?}");
    assert_eq!(home.run(["approve", &approval, "--yes"]).code, 0);
    home.json_until(&["executions", "get", "asked"], |execution| execution["state"] == "STATE_COMPLETED");
    assert_eq!(service.lines(), 2);
    server.signal(Signal::TERM);
    server.end();
}

/// An approval is for the hosts that the person has seen: when the operator changes the profile before the call runs, the approval is requested again.
#[test]
fn an_approval_does_not_hold_for_another_profile_of_the_same_name() {
    let service = Service::start();
    let home = home(&service, false);
    let asks = plan(&home, "asks.yaml", "network: local,", &service.say("one"));
    let server = home.serve_with(&["--config", "config.yaml"]);
    let started = home.run(["run", &asks, "--detach", "--id", "asked", "--approve", "prompt"]);
    assert_eq!(started.code, 0, "{started:?}");
    let pending = |all: &Value| all["approvals"][0]["name"].as_str().map(str::to_owned);
    let first = pending(&home.json_until(&["approvals", "list"], |all| pending(all).is_some())).unwrap();
    server.signal(Signal::TERM);
    server.end();
    let wider = format!(
        "network: {{profiles: {{local: {{host_services: ['{}'], rules: [{{host: another.example.com}}]}}}}}}",
        service.address
    );
    home.file("config.yaml", wider);
    let server = home.serve_with(&["--config", "config.yaml"]);
    let id = |name: &str| name.rsplit('/').next().unwrap().to_owned();
    assert_eq!(home.run(["approve", &id(&first), "--yes"]).code, 0);
    let second = home.json_until(&["approvals", "list"], |all| pending(all).is_some_and(|name| name != first));
    assert_eq!(service.lines(), 0, "it has not run");
    let shown = home.run(["approvals", "show", &id(&pending(&second).unwrap())]);
    assert!(shown.out.contains("another.example.com"), "{shown:?}");
    assert_eq!(home.run(["approve", &id(&pending(&second).unwrap()), "--yes"]).code, 0);
    home.json_until(&["executions", "get", "asked"], |execution| execution["state"] == "STATE_COMPLETED");
    assert_eq!(service.lines(), 1);
    server.signal(Signal::TERM);
    server.end();
}

// A call that had a network is never run again automatically, unless its profile only fetches.
#[test]
fn a_lost_command_with_a_network_waits_for_a_person_unless_its_profile_only_fetches() {
    for fetch_only in [false, true] {
        let service = Service::start();
        let home = home(&service, fetch_only);
        // The file is looked for in the workspace, which the command sees as it is.
        let script = format!("{} && test -e again || sleep 600", service.say("one"));
        let asks = plan(&home, "asks.yaml", "network: local,", &script);
        fs::create_dir(home.path("w")).unwrap();
        let server = home.serve_with(&["--config", "config.yaml", "--policy", "allows.yaml"]);
        let started = home.run(["run", &asks, "--detach", "--id", "lost", "--workspace", "w"]);
        assert_eq!(started.code, 0, "{started:?}");
        service.heard.recv_timeout(Duration::from_secs(60)).expect("the command speaks");
        server.kill();
        fs::write(home.path("w/again"), "").unwrap();
        let server = home.serve_with(&["--config", "config.yaml", "--policy", "allows.yaml"]);
        match fetch_only {
            true => {
                home.json_until(&["executions", "get", "lost"], |execution| execution["state"] == "STATE_COMPLETED");
                assert_eq!(service.lines(), 2);
            }
            false => {
                let is_unknown = |listed: &Value| listed.to_string().contains("OUTCOME_UNKNOWN");
                home.json_until(&["why", "lost"], is_unknown);
                assert_eq!(service.lines(), 1, "it did not run again");
            }
        }
        server.signal(Signal::TERM);
        server.end();
    }
}

/// The proxy is killed while a command runs: what it had open is closed, nothing else opens, and the next command has another proxy.
#[test]
fn nothing_opens_when_the_proxy_is_killed() {
    let service = Service::start();
    let home = home(&service, false);
    let again = service.say_over(4, "two");
    let script = format!(
        "{} && echo READY && read -r answer <&3; ({again}) 2>/dev/null && echo LEAK; (exec 5<>/dev/tcp/example.com/443) 2>/dev/null && echo LEAK; echo END",
        service.say("one")
    );
    let asks = plan(&home, "asks.yaml", "network: local,", &script);
    let mut running =
        home.start(["run", &asks, "--config", "config.yaml", "--policy", "allows.yaml", "--id", "killed"]);
    running.wait_for("READY");
    let proxies = proxies_of(&home);
    assert_eq!(proxies.len(), 1, "{proxies:?}");
    kill_process(Pid::from_raw(proxies[0]).unwrap(), Signal::KILL).unwrap();
    let done = running.end();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("END") && !done.out.contains("LEAK"), "{done:?}");
    assert_eq!(account(&home, "killed")["isLost"], true, "{done:?}");
    assert_eq!(service.lines(), 1);
    let next = home.run([
        "run",
        &plan(&home, "next.yaml", "network: local,", &service.say("three")),
        "--config",
        "config.yaml",
        "--policy",
        "allows.yaml",
    ]);
    assert_eq!((next.code, service.lines()), (0, 2), "{next:?}");
}

/// B-32: a plan names the network of its commands once. Steps and the plans of steps have it unless they name another, and what runs no command does not.
#[test]
fn the_network_of_a_plan_is_that_of_its_commands() {
    let service = Service::start();
    let home = home(&service, false);
    let command = |id: &str, network: Option<&str>, script: String| {
        let arguments = serde_json::json!({"command": ["bash", "-c", script]});
        let mut step = serde_json::json!({"id": id, "tool": "run_terminal", "arguments": arguments});
        if let Some(network) = network {
            step["network"] = network.into();
        }
        step
    };
    let tries_not = format!("({}) 2>/dev/null && echo LEAK || true", service.say("closed"));
    let check = serde_json::json!([{"command": ["bash", "-c", tries_not]}]);
    let mut own = command("own", None, service.say("own"));
    own["preconditions"] = check;
    let inner = serde_json::json!({"id": "i", "steps": [command("inner", None, service.say("inner"))]});
    let steps = serde_json::json!([
        own,
        {"id": "file", "tool": "write_file", "arguments": {"path": "kept", "content": "x"}},
        command("closed", Some("none"), tries_not),
        {"id": "plan", "plan": inner},
    ]);
    let plan = serde_json::json!({"id": "p", "network": "local", "steps": steps});
    let plan = home.file("plan.json", plan.to_string());
    let run = |more: &[&str]| {
        let all = [&["run", plan.as_str(), "--config", "config.yaml", "--policy", "allows.yaml"], more].concat();
        home.run(all)
    };
    let planned = run(&["--dry-run", "-o", "json"]);
    let planned: Value = serde_json::from_str(&planned.out).unwrap();
    let networks =
        planned["plannedCalls"].as_array().unwrap().iter().map(|call| call["network"].as_str().unwrap_or_default());
    assert_eq!(networks.filter(|network| *network == "local").count(), 2, "{planned}");
    let done = run(&["--id", "once"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(service.lines(), 2, "{done:?}");
    assert!(!format!("{done:?}").contains("LEAK"), "{done:?}");
    let events = home.events("once");
    let of = |step: &str| {
        let is_end = |event: &&Value| event["stepId"] == step && event["toolCallCompleted"].is_object();
        events.iter().rev().find(is_end).unwrap()["toolCallCompleted"]["receipt"]["network"]["profile"].clone()
    };
    assert_eq!((of("own"), of("file"), of("closed")), ("local".into(), Value::Null, Value::Null));
    let two = serde_json::json!([command("a", None, "true".into()), command("b", None, "true".into())]);
    let unknown = serde_json::json!({"id": "p", "network": "locl", "steps": two});
    let refused = home.run(["run", &home.file("unknown.json", unknown.to_string()), "--config", "config.yaml"]);
    let why = "`locl` is not a network profile of the runner's settings";
    assert_eq!((refused.code == 0, refused.talk.matches(why).count()), (false, 1), "{refused:?}");
    assert!(refused.talk.contains("(the plan's `network`)"), "{refused:?}");
    let bad = home.file("bad.json", r#"{"id": "p", "network": "not a name", "steps": [{"id": "a", "tool": "noop"}]}"#);
    let refused = home.run(["plan", "validate", &bad]);
    assert!(
        refused.code != 0 && refused.talk.contains("network: must be the name of a network profile"),
        "{refused:?}"
    );
}

/// A host about which a person is asked is reached while the command waits, or is not.
#[test]
fn a_person_is_asked_about_a_host_while_the_command_waits() {
    let service = Service::start();
    let home = asking_home(&service);
    let asks = plan(&home, "asks.yaml", "network: local,", &service.say_by_proxy("one"));
    let server = home.serve_with(&["--config", "config.yaml", "--policy", "allows.yaml"]);
    let asked = |id: &str| {
        let started = home.run(["run", &asks, "--detach", "--id", id, "--approve", "prompt"]);
        assert_eq!(started.code, 0, "{started:?}");
        // An earlier one may still be listed for a moment.
        let of_this = |all: &Value| {
            let all = all["approvals"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|one| one["execution"].as_str().is_some_and(|of| of.ends_with(&format!("/{id}"))))
        };
        let question = of_this(&home.json_until(&["approvals", "list"], |all| of_this(all).is_some())).unwrap();
        let title = format!("May the command reach localhost:{}?", service.address.port());
        assert_eq!(question["operation"], title, "{question}");
        question["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
    };
    let question = asked("allowed");
    let shown = home.run(["approvals", "show", &question]);
    assert!(shown.out.contains("as often as it likes, and no other call does"), "{shown:?}");
    assert_eq!(service.lines(), 0, "it waits");
    let answered = home.run(["approvals", "answer", &question, "--value", r#"{"approve": true}"#]);
    assert_eq!(answered.code, 0, "{answered:?}");
    home.json_until(&["executions", "get", "allowed"], |execution| execution["state"] == "STATE_COMPLETED");
    assert_eq!(service.lines(), 1);

    let question = asked("denied");
    assert_eq!(home.run(["approvals", "answer", &question, "--value", r#"{"approve": false}"#]).code, 0);
    let is_over = |execution: &Value| execution["state"] == "STATE_COMPLETED";
    let denied = home.json_until(&["executions", "get", "denied"], is_over);
    assert_eq!(service.lines(), 1);
    let status = denied["steps"][0]["output"]["stdout"].as_str().unwrap();
    assert!(status.starts_with("HTTP/1.1 403 ") && status.contains("a person has refused it"), "{denied}");
    server.signal(Signal::TERM);
    server.end();
}

/// A person who allows a host for the whole execution is asked once, also where an executor is killed in between; another execution asks anew.
#[test]
fn a_host_that_is_allowed_for_the_execution_is_asked_about_once() {
    let service = Service::start();
    let home = asking_home(&service);
    let says = |what: &str, after: Option<&str>| {
        let command = ["bash", "-c", &service.say_by_proxy(what)];
        serde_json::json!({"id": what, "tool": "run_terminal", "network": "local", "depends_on": Vec::from_iter(after), "arguments": {"command": command}})
    };
    let wait = serde_json::json!({"id": "wait", "depends_on": ["two"], "wait": {"signal": "go"}});
    let plan = serde_json::json!({"id": "p", "steps": [says("one", None), says("two", Some("one")), wait, says("three", Some("wait"))]});
    let plan = home.file("asks.json", plan.to_string());
    let mut server = home.serve_with(&["--config", "config.yaml", "--policy", "allows.yaml"]);
    let start = |id: &str, plan: &str| {
        let started = home.run(["run", plan, "--detach", "--id", id, "--approve", "prompt"]);
        assert_eq!(started.code, 0, "{started:?}");
    };
    let pending = |all: &Value| {
        let all = all["approvals"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["state"] == "STATE_PENDING")
    };
    let first = || {
        let listed = home.json_until(&["approvals", "list"], |all| pending(all).is_some());
        pending(&listed).unwrap()["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
    };
    start("once", &plan);
    let question = first();
    let shown = home.run(["approvals", "show", &question]);
    assert!(shown.out.contains("to every later call of this execution"), "{shown:?}");
    let answer = r#"{"approve": true, "for": "execution"}"#;
    let answered = home.run(["approvals", "answer", &question, "--value", answer]);
    assert_eq!(answered.code, 0, "{answered:?}");
    home.json_until(&["executions", "get", "once"], |execution| execution["steps"][1]["state"] == "STATE_COMPLETED");
    assert_eq!((service.lines(), pending(&home.json(&["approvals", "list"]).1)), (2, None));

    server.signal(Signal::KILL);
    server.end();
    server = home.serve_with(&["--config", "config.yaml", "--policy", "allows.yaml"]);
    assert_eq!(home.run(["executions", "signal", "once", "go"]).code, 0);
    home.json_until(&["executions", "get", "once"], |execution| execution["state"] == "STATE_COMPLETED");
    assert_eq!(service.lines(), 3);
    let events = home.events("once");
    let answers: Vec<_> = events.iter().filter(|event| event["waitEnded"]["cause"] == "CAUSE_ANSWERED").collect();
    let held: Vec<_> = events.iter().filter(|event| event["waitEnded"]["cause"] == "CAUSE_HELD").collect();
    assert_eq!((answers.len(), held.len()), (1, 2), "{events:?}");
    for held in held {
        assert_eq!(held["waitEnded"]["answerSequence"], answers[0]["sequence"], "{held}");
    }
    let listed = home.run(["executions", "events", "once"]);
    assert!(listed.out.contains("answered for the execution before"), "{listed:?}");

    start("another", &plan);
    assert_ne!(first(), question, "it asks anew");
    assert_eq!(service.lines(), 3);
    assert_eq!(home.run(["executions", "cancel", "another", "--kill"]).code, 0);

    // What two calls ask at once has one answer.
    let both = serde_json::json!({"id": "p", "parallelism": 2, "steps": [says("four", None), says("five", None)]});
    start("both", &home.file("both.json", both.to_string()));
    let of_both = |all: &Value, state: &str| {
        let all = all["approvals"].as_array().cloned().unwrap_or_default();
        let is_one = |one: &&Value| one["execution"].as_str().unwrap().ends_with("/both") && one["state"] == state;
        all.iter().filter(is_one).count()
    };
    home.json_until(&["approvals", "list"], |all| of_both(all, "STATE_PENDING") == 2);
    assert_eq!(home.run(["approvals", "answer", &first(), "--value", answer]).code, 0);
    home.json_until(&["executions", "get", "both"], |execution| execution["state"] == "STATE_COMPLETED");
    assert_eq!(service.lines(), 5);
    let withdrawn = |all: &Value| (of_both(all, "STATE_ANSWERED"), of_both(all, "STATE_CANCELLED")) == (1, 1);
    home.json_until(&["approvals", "list"], withdrawn);
    server.signal(Signal::TERM);
    server.end();
}

/// The operator bounds what one command opens, and a refusal names the setting.
#[test]
fn a_command_beyond_its_limits_is_refused_with_the_setting() {
    let service = Service::start();
    let home = home(&service, false);
    let settings = fs::read_to_string(home.path("config.yaml")).unwrap();
    home.file("config.yaml", settings.replace("network: {", "network: {limits: {open_connections: 1}, "));
    // The second connection is closed, while the first one stays.
    let script = format!(
        "{}; {} || echo CLOSED; {}",
        service.say("one"),
        service.say_over(4, "two"),
        "echo three >&3 && read -r answer <&3 && echo \"$answer\""
    );
    let asks = plan(&home, "asks.yaml", "network: local,", &script);
    let done = home.run(["run", &asks, "--config", "config.yaml", "--policy", "allows.yaml", "--id", "asks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.out.contains("hello one") && done.out.contains("CLOSED") && done.out.contains("hello three"),
        "{done:?}"
    );
    let account = account(&home, "asks");
    let refused = account["connections"].as_array().unwrap().iter().find(|connection| connection["isAllowed"] != true);
    let rule = refused.unwrap()["rule"].as_str().unwrap();
    assert!(rule.contains("1 open connections, which is the limit (`network.limits.open_connections`)"), "{account}");
}

// B-32: a refusal says why: to the program, in the failure, in the events and in the audit log.
#[test]
fn a_refusal_names_the_host_the_profile_and_the_line_to_add() {
    let service = Service::start();
    let home = home(&service, false);
    // As programs do that use proxies.
    let script = "exec 3<>/dev/tcp/127.77.0.1/21080 && printf 'CONNECT other.example.com:443 HTTP/1.1\\r\\nHost: other.example.com:443\\r\\n\\r\\n' >&3 && cat <&3; exit 4";
    let asks = plan(&home, "asks.yaml", "network: local,", script);
    let failed = home.run(["run", &asks, "--config", "config.yaml", "--policy", "allows.yaml", "--id", "refused"]);
    assert_eq!(failed.code, 30, "{failed:?}");
    let said = format!("{}{}", failed.out, failed.talk);
    let reason = "other.example.com:443 is not in the network profile `local`; to allow it, the operator adds the rule `{host: other.example.com}`";
    assert!(said.contains("HTTP/1.1 403") && said.matches(reason).count() >= 2, "{said}");
    let account = account(&home, "refused");
    assert_eq!(
        (&account["refusedCount"], &account["connections"][0]["isAllowed"]),
        (&"1".into(), &Value::Null),
        "{account}"
    );
    assert!(account["connections"][0]["rule"].as_str().is_some_and(|rule| rule.contains(reason)), "{account}");
    let audit = home.run(["audit", "refused", "--level", "verbose", "-o", "json"]);
    assert!(audit.out.contains("other.example.com"), "{audit:?}");
    let why = home.run(["why", "refused"]);
    assert!(why.out.contains(reason), "{why:?}");
}

/// A command whose outcome is not known has an account of its network: a person has to find out what it did.
#[test]
fn a_command_that_is_stopped_has_an_account_of_its_network() {
    let service = Service::start();
    let home = home(&service, false);
    let arguments = serde_json::json!({"command": ["bash", "-c", format!("{} && sleep 600", service.say("one"))]});
    let asks = home.file(
        "asks.yaml",
        format!(
            "{{id: p, steps: [{{id: a, tool: run_terminal, network: local, attempt_timeout: 2s, arguments: {arguments}}}]}}"
        ),
    );
    let server = home.serve_with(&["--config", "config.yaml", "--policy", "allows.yaml"]);
    let started = home.run(["run", &asks, "--detach", "--id", "stopped"]);
    assert_eq!(started.code, 0, "{started:?}");
    home.json_until(&["why", "stopped"], |why| why.to_string().contains("OUTCOME_UNKNOWN"));
    assert_eq!(home.run(["executions", "cancel", "stopped"]).code, 0);
    let events = home.events("stopped");
    let account = events.iter().find_map(|event| event["toolCallOutcomeUnknown"].as_object()).unwrap();
    let first = &account["network"]["connections"][0];
    assert_eq!((&first["route"], &first["isAllowed"]), (&"ROUTE_SERVICE".into(), &true.into()), "{account:?}");
    assert_eq!(service.lines(), 1);
    server.signal(Signal::TERM);
    server.end();
}

#[test]
fn a_network_that_cannot_be_is_refused_before_anything_runs() {
    let home = Home::new();
    for (step, expected) in [
        (
            "tool: run_terminal, network: ci, arguments: {command: ['true']}",
            "steps[0].network: `ci` is not a network profile of the runner's settings: use one of git-https, loopback, none, registries",
        ),
        (
            "tool: write_file, network: registries, arguments: {path: a, content: b}",
            "steps[0].network: is for calls that run a command or make requests, and this one does neither",
        ),
        (
            "network: registries, calls: [{tool: run_terminal, arguments: {command: ['true']}}, {tool: noop}]",
            "steps[0].network: is for calls that run a command or make requests, and this one does neither",
        ),
    ] {
        let plan = home.file("plan.yaml", format!("{{id: p, steps: [{{id: a, {step}}}]}}"));
        let refused = home.run(["run", &plan]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.talk.contains(expected), "{expected}: {refused:?}");
    }
    // What takes the place of the command may be another tool; it has no network.
    let fallback = "tool: run_terminal, network: none, arguments: {command: ['false']}, fallback: [{tool: write_file, arguments: {path: a, content: b}}]";
    let plan = home.file("plan.yaml", format!("{{id: p, steps: [{{id: a, {fallback}}}]}}"));
    let done = home.run(["run", &plan]);
    assert_eq!(done.code, 0, "{done:?}");
}

/// The usual package managers, each installing what a project in `tests/fixtures/dependencies` names, with an empty cache of its own.
const CLIENTS: [(&str, &str); 6] = [
    ("cargo", "export CARGO_HOME=/tmp/cargo; cargo init -q --name x c && cd c && cargo add -q itoa && cargo fetch"),
    ("npm", "cd npm && npm ci --cache /tmp/npm && test -f node_modules/is-odd/index.js"),
    // Not by `python3` itself, which may be pyenv's script: that writes into its own folder after each installation.
    (
        "python3",
        "\"$(python3 -c 'import sys; print(sys.executable)')\" -m pip install --no-cache-dir --target p six && test -f p/six.py",
    ),
    ("go", "cd go && GOMODCACHE=/tmp/go go mod download && test -d /tmp/go/golang.org/x/text@v0.14.0"),
    (
        "mvn",
        "cd maven && mvn -q -Dmaven.repo.local=/tmp/m2 dependency:go-offline && test -d /tmp/m2/org/slf4j/slf4j-api",
    ),
    (
        "apt-get",
        "mkdir -p /tmp/a/lists/partial /tmp/a/cache/archives/partial && echo 'deb [trusted=yes] http://deb.debian.org/debian bookworm-updates main' >/tmp/a/list && \
         options='-o Dir::Etc::sourcelist=/tmp/a/list -o Dir::Etc::sourceparts=- -o Dir::State=/tmp/a -o Dir::State::lists=/tmp/a/lists -o Dir::Cache=/tmp/a/cache \
         -o Dir::State::status=/dev/null -o APT::Sandbox::User= -o APT::Update::Error-Mode=any' && apt-get $options update && apt-get $options download tzdata && test -f tzdata_*.deb",
    ),
];

/// A workspace with the projects of [`CLIENTS`], without anything that was installed.
fn with_dependencies(home: &Home, name: &str) -> String {
    let (from, workspace) = (repository().join("tests/fixtures/dependencies"), home.path(name));
    for file in ["npm/package.json", "npm/package-lock.json", "go/go.mod", "go/go.sum", "maven/pom.xml"] {
        fs::create_dir_all(workspace.join(file).parent().unwrap()).unwrap();
        fs::copy(from.join(file), workspace.join(file)).unwrap();
    }
    workspace.into_os_string().into_string().unwrap()
}

// B-32
/// Real package managers install from the registries, under the built-in profile alone.
#[test]
fn package_managers_reach_their_registries_under_the_built_in_profile() {
    let is_reached = ("index.crates.io", 443)
        .to_socket_addrs()
        .is_ok_and(|mut found| found.any(|at| TcpStream::connect_timeout(&at, Duration::from_secs(10)).is_ok()));
    if !is_reached {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "the registries cannot be reached, and CI skips nothing");
        eprintln!("skipped: the registries cannot be reached");
        return;
    }
    let home = Home::new();
    home.file("allows.yaml", format!("{{protect: false, {}", ALLOWS.trim_start_matches('{')));
    for (program, script) in CLIENTS {
        let is_there = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|folder| folder.join(program).is_file());
        if !is_there {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{program} is not installed, and CI skips nothing");
            eprintln!("skipped: {program} is not installed");
            continue;
        }
        let with = plan(&home, "with.yaml", "network: registries,", script);
        let workspace = with_dependencies(&home, &format!("with-{program}"));
        let done = home.run(["run", &with, "--policy", "allows.yaml", "--id", program, "--workspace", &workspace]);
        assert_eq!(done.code, 0, "{program}: {done:?}");
        let account = account(&home, program);
        let connections = account["connections"].as_array().map(Vec::len).unwrap_or_default();
        assert!(connections > 0 && account["refusedCount"].is_null(), "{program}: {account}");
        let without = plan(&home, "without.yaml", "network: none,", script);
        let workspace = with_dependencies(&home, &format!("without-{program}"));
        let failed = home.run(["run", &without, "--policy", "allows.yaml", "--workspace", &workspace]);
        assert_eq!(failed.code, 30, "{program}: {failed:?}");
        assert!(failed.talk.contains("add `network: PROFILE` to the step"), "{program}: {failed:?}");
    }
}

/// The proxies of this home's runners.
fn proxies_of(home: &Home) -> Vec<i32> {
    let state = home.state();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).unwrap_or_default().to_owned();
        let environment = fs::read(format!("/proc/{parent}/environ")).unwrap_or_default();
        let is_own = String::from_utf8_lossy(&environment).contains(&*state.to_string_lossy());
        if read("cmdline").starts_with(b"belay-network-proxy") && is_own {
            found.extend(entry.file_name().to_string_lossy().parse::<i32>());
        }
    }
    found
}
