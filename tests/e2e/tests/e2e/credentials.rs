//! B-33: no credential enters a sandbox. The proxy puts its value into requests to the hosts that it is bound to, and takes it out of what they answer.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path};

use belay_e2e::Home;
use rustix::process::Signal;
use serde_json::Value;

use crate::tls_host::{TlsHost, hex};

/// Values that are found nowhere by chance, and whose spellings differ in URLs and JSON.
const VALUE: &str = "s3cret/of+the-operator.0123456789";
const CHANGED: &str = "an0ther/value+of-the-operator.9876";

/// A home with the profiles `registry`, where requests inside of TLS carry the credential, and `model`, which has a URL.
fn home(registry: &TlsHost) -> Home {
    let home = Home::new();
    home.file("ca.pem", &registry.authority);
    secret(&home, VALUE);
    let (at, port) = (home.path("."), registry.address.port());
    let at = at.canonicalize().unwrap();
    let at = at.display();
    home.file(
        "config.yaml",
        format!(
            "
credentials:
  registry: {{file: {at}/secret, hosts: ['https://localhost:{port}'], variable: REGISTRY_TOKEN, placeholder: reg_}}
  model: {{file: {at}/secret, header: x-api-key, hosts: ['https://localhost:{port}'], variable: MODEL_KEY}}
network:
  authorities: [{at}/ca.pem]
  profiles:
    registry: {{rules: [{{host: localhost, ports: [{port}], private_addresses: true, credential: registry}}]}}
    model:
      rules:
      - {{host: localhost, ports: [{port}], private_addresses: true, credential: model, base_url: MODEL_URL, base_path: /v1}}
"
        ),
    );
    home.file("allows.yaml", "{network: auto, file_write: auto, file_delete: auto, terminal_commands: auto}");
    home
}

/// Writes the value as its operator would.
fn secret(home: &Home, value: &str) {
    home.file("secret", format!("{value}\n"));
    fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
}

fn plan(home: &Home, name: &str, network: &str, script: &str) -> String {
    // A plan has references of its own.
    let script = script.replace("${", "$${");
    let arguments = serde_json::json!({"command": ["bash", "-c", script]});
    home.file(
        name,
        format!("{{id: p, steps: [{{id: a, tool: run_terminal, network: {network}, arguments: {arguments}}}]}}"),
    )
}

fn run(home: &Home, plan: &str, id: &str) -> belay_e2e::belay::CommandEnd {
    home.run(["run", plan, "--config", "config.yaml", "--policy", "allows.yaml", "--id", id])
}

/// A request over the base URL, of which bash needs no TLS.
const ASK_MODEL: &str = r#"
    address=${MODEL_URL#http://}; path=/${address#*/}; address=${address%%/*}
    exec 3<>/dev/tcp/${address%:*}/${address#*:}
    printf 'POST %s/messages HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\nContent-Length: 4\r\n\r\nbody' "$path" "$address" "$MODEL_KEY" >&3
    cat <&3
"#;

/// Whether a file below a folder has this text.
fn files_with(folder: &Path, text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_with(&path, text)),
            Ok(kind) if kind.is_file() => {
                let content = fs::read(&path).unwrap_or_default();
                if content.windows(text.len()).any(|window| window == text) {
                    found.push(path.display().to_string());
                }
            }
            _ => {}
        }
    }
    found
}

fn network_of(home: &Home, id: &str) -> Value {
    let events = home.events(id);
    let receipt = events.iter().rev().find_map(|event| event["toolCallCompleted"]["receipt"].as_object());
    receipt.map(|receipt| receipt["network"].clone()).unwrap_or_default()
}

// B-33: the value reaches the host that it is bound to, and is in no sandbox, store, event, file or output.
#[test]
fn a_command_uses_a_credential_that_it_never_has() {
    let registry = TlsHost::start();
    let home = home(&registry);
    // Everything that a command can look at, besides what the host answers.
    let script = format!(
        "{ASK_MODEL} > answer; cat answer; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls -laR /run /tmp; cat /run/belay/* | head -c 100"
    );
    let asks = plan(&home, "asks.yaml", "model", &script);
    let done = run(&home, &asks, "asks");
    assert_eq!(done.code, 0, "{done:?}");
    let received = registry.received();
    assert_eq!(received.len(), 1, "{received:?}");
    assert!(received[0].starts_with("POST /v1/messages HTTP/1.1\r\n"), "{received:?}");
    assert!(received[0].contains(&format!("\r\nx-api-key: {VALUE}\r\n")), "{received:?}");
    assert_eq!(received[0].matches("x-api-key").count(), 1, "{received:?}");

    let account = network_of(&home, "asks");
    let used = serde_json::json!([{"credential": "model", "host": "localhost", "requestCount": "1"}]);
    assert_eq!(account["credentials"], used, "{account}");
    assert_eq!(account["connections"][0]["route"], "ROUTE_BASE_URL", "{account}");
    assert!(done.out.contains("credential model to localhost in 1 request"), "{done:?}");

    let (_, execution) = home.json(&["executions", "get", "asks"]);
    let events = serde_json::to_string(&home.events("asks")).unwrap();
    let everywhere = format!("{done:?}{execution}{events}");
    let workspace = execution["workspace"].as_str().unwrap_or_default().to_owned();
    for text in [VALUE.to_owned(), hex(VALUE), VALUE.replace('/', "\\/"), VALUE.replace('/', "%2F").replace('+', "%2B")]
    {
        assert!(!everywhere.contains(&text), "{text}");
        // The operator's own file is the only one.
        let found = files_with(&home.path("."), text.as_bytes());
        assert!(found.iter().all(|file| file.ends_with("/secret")), "{text}: {found:?}");
        assert!(files_with(Path::new(&workspace), text.as_bytes()).is_empty(), "{text}: {workspace}");
    }

    // A value that was changed holds from the next call on.
    secret(&home, CHANGED);
    assert_eq!(run(&home, &asks, "again").code, 0);
    assert!(registry.received()[1].contains(&format!("\r\nx-api-key: {CHANGED}\r\n")));
    // One that cannot be read refuses the call, and says what to do.
    fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = run(&home, &asks, "refused");
    assert_eq!(refused.code, 30, "{refused:?}");
    let says = format!("{}{}", refused.out, refused.talk);
    assert!(says.contains("CREDENTIAL_UNAVAILABLE") && says.contains("run `chmod g-w,o=` on it"), "{says}");
    assert_eq!(registry.received().len(), 2);
}

/// A client that speaks TLS trusts the proxy's authority, and gets a placeholder back.
#[test]
fn a_client_inside_of_tls_reaches_a_private_registry() {
    let curl = std::process::Command::new("curl").arg("--version").output();
    if !curl.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "curl is not installed, and CI skips nothing");
        eprintln!("skipped: curl is not installed");
        return;
    }
    let registry = TlsHost::start();
    let home = home(&registry);
    // Programs connect to `localhost` directly, unless they are told otherwise.
    let url = format!("https://localhost:{}", registry.address.port());
    let script = format!(
        "case $REGISTRY_TOKEN in reg_?*) ;; *) exit 9;; esac; curl -sSi --noproxy '' -H \"Authorization: Bearer $REGISTRY_TOKEN\" {url}/one && curl -sS --noproxy '' {url}/two"
    );
    let asks = plan(&home, "asks.yaml", "registry", &script);
    let done = run(&home, &asks, "asks");
    assert_eq!(done.code, 0, "{done:?}");
    let received = registry.received();
    let carried = received.iter().filter(|head| head.contains(&format!("authorization: Bearer {VALUE}\r\n"))).count();
    assert_eq!((received.len(), carried), (2, 2), "{received:?}");
    assert!(!format!("{done:?}").contains(VALUE), "{done:?}");
    let account = network_of(&home, "asks");
    assert_eq!(account["credentials"][0]["requestCount"], "2", "{account}");
    // Without the profile it is not there, and neither is the placeholder.
    let without = plan(&home, "without.yaml", "none", &format!("test -z \"$REGISTRY_TOKEN\" && ! curl -sS {url}/"));
    assert_eq!(run(&home, &without, "without").code, 0);
    assert_eq!(registry.received().len(), 2);
}

/// A placeholder that is sent elsewhere is refused, and the person is told.
#[test]
fn a_placeholder_that_leaves_for_another_host_is_refused_in_words() {
    let registry = TlsHost::start();
    let home = home(&registry);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let settings = fs::read_to_string(home.path("config.yaml")).unwrap();
    let other = format!("      - {{host: localhost, ports: [{port}], protocol: http, private_addresses: true}}\n");
    home.file("config.yaml", settings + &other);
    let script = format!(
        "exec 3<>/dev/tcp/127.77.0.1/21080; printf 'GET http://localhost:{port}/?k=%s HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n' \"$MODEL_KEY\" >&3; cat <&3; exit 7"
    );
    let asks = plan(&home, "asks.yaml", "model", &script);
    let failed = run(&home, &asks, "asks");
    assert_eq!(failed.code, 30, "{failed:?}");
    let says = format!("{}{}", failed.out, failed.talk);
    assert!(
        says.contains("403 Forbidden") && says.contains("placeholder of a credential that does not go there"),
        "{says}"
    );
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nothing was sent");
}

/// The approval names the credential and where its value goes, and holds for that only.
#[test]
fn an_approval_is_for_the_credential_that_the_person_has_seen() {
    let registry = TlsHost::start();
    let home = home(&registry);
    let asks = plan(&home, "asks.yaml", "model", ASK_MODEL);
    let server = home.serve_with(&["--config", "config.yaml"]);
    assert_eq!(home.run(["run", &asks, "--detach", "--id", "asked", "--approve", "prompt"]).code, 0);
    let pending = |all: &Value| all["approvals"][0]["name"].as_str().map(str::to_owned);
    let first = pending(&home.json_until(&["approvals", "list"], |all| pending(all).is_some())).unwrap();
    let id = |name: &str| name.rsplit('/').next().unwrap().to_owned();
    let shown = home.run(["approvals", "show", &id(&first)]);
    assert!(shown.out.contains("with the credential model in the header x-api-key"), "{shown:?}");
    assert!(!format!("{shown:?}").contains(VALUE), "{shown:?}");
    server.signal(Signal::TERM);
    server.end();
    // The operator has the value sent in another way.
    let settings = fs::read_to_string(home.path("config.yaml")).unwrap();
    home.file("config.yaml", settings.replace("header: x-api-key", "header: x-other-key"));
    let server = home.serve_with(&["--config", "config.yaml"]);
    assert_eq!(home.run(["approve", &id(&first), "--yes"]).code, 0);
    let second = home.json_until(&["approvals", "list"], |all| pending(all).is_some_and(|name| name != first));
    assert!(registry.received().is_empty(), "it has not run");
    assert_eq!(home.run(["approve", &id(&pending(&second).unwrap()), "--yes"]).code, 0);
    home.json_until(&["executions", "get", "asked"], |execution| execution["state"] == "STATE_COMPLETED");
    assert!(registry.received()[0].contains(&format!("\r\nx-other-key: {VALUE}\r\n")), "{:?}", registry.received());
    server.signal(Signal::TERM);
    server.end();
}

/// B-33: the policy decides who may use a credential, apart from the hosts that are reached: a call under a profile that has it, and a tool that gets its value.
#[test]
fn the_policy_decides_about_a_credential() {
    let registry = TlsHost::start();
    let home = home(&registry);
    let settings = fs::read_to_string(home.path("config.yaml")).unwrap();
    let tool = "tools: {sign: {command: [env], recovery: manual, reveals: [model]}}";
    home.file("config.yaml", format!("{settings}{tool}\n"));
    let allows = fs::read_to_string(home.path("allows.yaml")).unwrap();
    let with_rules = |rules: &str| home.file("rules.yaml", allows.replace('}', &format!(", rules: [{rules}]}}")));
    let run = |plan: &str, id: &str, denied: bool| {
        let ended = home.run([
            "run",
            plan,
            "--config",
            "config.yaml",
            "--policy",
            "rules.yaml",
            "--id",
            id,
            "--approve",
            "fail",
        ]);
        assert_eq!(ended.code == 0, !denied, "{ended:?}");
        if denied {
            let shown = format!("{}{}", ended.out, ended.talk);
            assert!(shown.contains("not-as-model") && !shown.contains(VALUE), "{ended:?}");
        }
    };
    let asks = plan(&home, "asks.yaml", "model", ASK_MODEL);
    let signs = home.file("signs.yaml", "{id: p, steps: [{id: a, tool: sign}]}");
    let other = plan(&home, "other.yaml", "registry", "true");
    with_rules("{id: not-as-model, on: intent, credentials: [model], decide: deny}");
    run(&asks, "denied", true);
    run(&signs, "unsigned", true);
    assert!(registry.received().is_empty(), "nothing was sent");
    run(&other, "other", false);
    with_rules("{id: as-model, on: intent, networks: [model], credentials: [model], decide: auto}");
    run(&asks, "allowed", false);
    assert_eq!(registry.received().len(), 1);
    let events = home.events("allowed");
    let intent = events.iter().find_map(|event| event["toolCallCompleted"]["receipt"]["intent"].as_object()).unwrap();
    assert_eq!((&intent["network"], &intent["credentials"]), (&"model".into(), &serde_json::json!(["model"])));
}

/// A tool that its operator trusts with the value gets it, in its variable alone, and a person is told before.
#[test]
fn a_tool_that_its_operator_names_gets_the_value_and_nobody_else_sees_it() {
    let home = Home::new();
    secret(&home, VALUE);
    let at = home.path(".").canonicalize().unwrap();
    let settings = |reveals: &str| {
        format!(
            "
credentials:
  signing: {{file: {}/secret, variable: SIGNING_KEY}}
tools:
  sign:
    command: [bash, -c, 'env && echo $SIGNING_KEY >&2 && echo $SIGNING_KEY > kept']
    recovery: manual
{reveals}
",
            at.display()
        )
    };
    home.file("config.yaml", settings("    reveals: [signing]"));
    home.file(
        "allows.yaml",
        "{file_write: auto, terminal_commands: auto, rules: [{id: sign, on: intent, tools: [sign], decide: auto}]}",
    );
    let asks = home.file("asks.yaml", "{id: p, steps: [{id: a, tool: sign}]}");
    let done = run(&home, &asks, "asks");
    assert_eq!(done.code, 0, "{done:?}");
    let events = home.events("asks");
    let receipt = events.iter().find_map(|event| event["toolCallCompleted"]["receipt"]["enforced"].as_array());
    assert!(receipt.unwrap().contains(&"credential signing revealed".into()), "{receipt:?}");
    let (_, execution) = home.json(&["executions", "get", "asks"]);
    assert!(done.out.contains("SIGNING_KEY=[REDACTED]"), "{done:?}");
    let everywhere = format!("{done:?}{execution}{}", serde_json::to_string(&events).unwrap());
    assert!(!everywhere.contains(VALUE), "{everywhere}");
    let found = files_with(&home.path("."), VALUE.as_bytes());
    // What the program has written is the program's.
    assert!(found.iter().all(|file| file.ends_with("/secret") || file.ends_with("/kept")), "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");

    // A command of the plan has nothing of it.
    let other = plan(&home, "other.yaml", "none", "test -z \"$SIGNING_KEY\"");
    assert_eq!(run(&home, &other, "other").code, 0);

    // The approval says it, and holds for the tool as the person has seen it.
    let server = home.serve_with(&["--config", "config.yaml"]);
    assert_eq!(home.run(["run", &asks, "--detach", "--id", "asked", "--approve", "prompt"]).code, 0);
    let pending = |all: &Value| all["approvals"][0]["name"].as_str().map(str::to_owned);
    let first = pending(&home.json_until(&["approvals", "list"], |all| pending(all).is_some())).unwrap();
    let shown = home.run(["approvals", "show", first.rsplit('/').next().unwrap()]);
    assert!(shown.out.contains("the value of the credential signing in $SIGNING_KEY"), "{shown:?}");
    server.signal(Signal::TERM);
    server.end();
    home.file("config.yaml", settings(""));
    let server = home.serve_with(&["--config", "config.yaml"]);
    assert_eq!(home.run(["approve", first.rsplit('/').next().unwrap(), "--yes"]).code, 0);
    home.json_until(&["approvals", "list"], |all| pending(all).is_some_and(|name| name != first));
    server.signal(Signal::TERM);
    server.end();
}

/// A command that was stopped while its credential was read has had no effect, and nobody has to look.
#[test]
fn a_command_that_waits_for_its_credential_has_not_begun() {
    let home = Home::new();
    let program = home.path("slow").display().to_string();
    home.file("slow", "#!/bin/sh\nexec sleep 600\n");
    fs::set_permissions(home.path("slow"), fs::Permissions::from_mode(0o700)).unwrap();
    home.file(
        "config.yaml",
        format!(
            "
credentials:
  slow: {{command: ['{program}'], hosts: ['https://api.example.com']}}
network:
  profiles:
    slow: {{rules: [{{host: api.example.com, credential: slow}}]}}
"
        ),
    );
    home.file("allows.yaml", "{network: auto, file_write: auto, terminal_commands: auto}");
    let asks = home.file(
        "asks.yaml",
        "{id: p, steps: [{id: a, tool: run_terminal, network: slow, timeout: 1s, arguments: {command: ['true']}}, {id: other, tool: run_terminal, arguments: {command: ['true']}}]}",
    );
    let failed = run(&home, &asks, "asks");
    let (_, execution) = home.json(&["executions", "get", "asks"]);
    let state = |step: &str| {
        let steps = execution["steps"].as_array().unwrap();
        steps.iter().find(|one| one["stepId"] == step).unwrap()["state"].clone()
    };
    assert_eq!(state("a"), "STATE_FAILED", "{failed:?}");
    assert!(failed.out.contains("(TIMEOUT)") && !failed.out.contains("OUTCOME_UNKNOWN"), "{failed:?}");
    assert_eq!(state("other"), "STATE_COMPLETED", "{failed:?}");
}
