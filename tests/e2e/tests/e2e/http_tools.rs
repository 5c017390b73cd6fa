//! B-32, B-33: tools without a command reach the hosts of their step's network profile through the proxy, with its credentials, and nothing else.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use belay_e2e::{Home, belay::CommandEnd};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tls_host::{TlsHost, hex};

/// A value that is found nowhere by chance.
const VALUE: &str = "s3cret/of+the-operator.0123456789";

/// A home with the profiles `forge`, with a credential for some requests, `docs`, without one and for GET only, and `model`, whose host has a base URL.
fn home(host: &TlsHost) -> Home {
    let home = Home::new();
    home.file("ca.pem", &host.authority);
    home.file("secret", format!("{VALUE}\n"));
    fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let (at, port) = (home.path(".").canonicalize().unwrap(), host.address.port());
    let at = at.display();
    home.file(
        "config.yaml",
        format!(
            "
credentials:
  forge: {{file: {at}/secret, hosts: ['https://localhost:{port}'], variable: FORGE_TOKEN}}
network:
  authorities: [{at}/ca.pem]
  profiles:
    forge: {{rules: [{{host: localhost, ports: [{port}], private_addresses: true, credential: forge}}]}}
    docs: {{rules: [{{host: localhost, ports: [{port}], private_addresses: true, methods: [GET]}}]}}
    model: {{rules: [{{host: localhost, ports: [{port}], private_addresses: true, credential: forge, base_url: MODEL_URL}}]}}
    closed: {{rules: [{{host: localhost, ports: [{port}]}}]}}
"
        ),
    );
    home.file("allows.yaml", "{network: auto}");
    home
}

/// A plan of one call.
fn plan(home: &Home, network: &str, tool: &str, arguments: &Value) -> String {
    home.file("plan.yaml", format!("{{id: p, steps: [{{id: a, tool: {tool}, {network} arguments: {arguments}}}]}}"))
}

fn run(home: &Home, id: &str, network: &str, tool: &str, arguments: &Value) -> CommandEnd {
    let plan = plan(home, &format!("network: {network},"), tool, arguments);
    home.run(["run", &plan, "--config", "config.yaml", "--policy", "allows.yaml", "--id", id])
}

/// The receipt of the last call of an execution.
fn receipt(home: &Home, id: &str) -> Value {
    let ends = ["toolCallCompleted", "toolCallFailed"];
    let events = home.events(id);
    let receipt = events.iter().rev().find_map(|event| ends.iter().find_map(|end| event[end]["receipt"].as_object()));
    receipt.cloned().unwrap_or_default().into()
}

/// The result of its step.
fn result(home: &Home, id: &str) -> Value {
    home.json(&["executions", "result", id]).1["stepOutputs"]["a"].clone()
}

fn says(end: &CommandEnd) -> String {
    format!("{}{}", end.out, end.talk)
}

/// The value reaches the host, and is in no result, event or file.
#[test]
fn a_request_has_the_credential_of_its_profile_and_a_receipt() {
    let host = TlsHost::start();
    let home = home(&host);
    let post = json!({"method": "POST", "url": host.url("/items?x=1"), "json": {"a": 1}, "headers": {"X-Own": "yes"}});
    for (id, network) in [("forge", "forge"), ("model", "model")] {
        let done = run(&home, id, network, "http_request", &post);
        assert_eq!(done.code, 0, "{done:?}");
        let received = host.received().pop().unwrap();
        assert!(received.starts_with("POST /items?x=1 HTTP/1.1\r\n"), "{received}");
        for header in
            [format!("authorization: Bearer {VALUE}"), "x-own: yes".into(), "content-type: application/json".into()]
        {
            assert!(received.contains(&format!("{header}\r\n")), "{header}: {received}");
        }
        let result = result(&home, id);
        assert_eq!((&result["status"], &result["truncated"]), (&200.into(), &false.into()), "{result}");
        assert!(result["body"].as_str().is_some_and(|body| body.contains("{\"a\":1}")), "{result}");
        let receipt = receipt(&home, id);
        let used = json!([{"credential": "forge", "host": "localhost", "requestCount": "1"}]);
        assert_eq!(receipt["network"]["credentials"], used, "{receipt}");
        let connection = &receipt["network"]["connections"][0];
        assert_eq!(
            (&connection["route"], &connection["isAllowed"]),
            (&"ROUTE_PROXY".into(), &true.into()),
            "{receipt}"
        );
        assert_eq!(receipt["intent"]["hosts"], json!(["localhost"]), "{receipt}");
        let everywhere = format!("{done:?}{result}{}", serde_json::to_string(&home.events(id)).unwrap());
        assert!(!everywhere.contains(VALUE) && !everywhere.contains(&hex(VALUE)), "{everywhere}");
    }
    let get = run(&home, "get", "forge", "http_request", &json!({"url": host.url("/one"), "max_bytes": 10}));
    assert_eq!(get.code, 0, "{get:?}");
    let result = result(&home, "get");
    assert_eq!((&result["body"], &result["truncated"]), (&"GET /one H".into(), &true.into()), "{result}");
}

/// Methods hold inside of TLS, also where there is no credential; nothing is sent.
#[test]
fn what_the_profile_does_not_allow_is_refused_with_the_line_to_add() {
    let host = TlsHost::start();
    let home = home(&host);
    let port = host.address.port();
    for (id, network, arguments, expected) in [
        (
            "method",
            "docs",
            json!({"method": "POST", "url": host.url("/x")}),
            format!("ports: [{port}], methods: [POST]"),
        ),
        ("host", "docs", json!({"url": "https://elsewhere.example.org/"}), "{host: elsewhere.example.org}".to_owned()),
        ("address", "closed", json!({"url": host.url("/x")}), "private_addresses: true".to_owned()),
    ] {
        let refused = run(&home, id, network, "http_request", &arguments);
        assert_eq!(refused.code, 32, "{refused:?}");
        assert!(!says(&refused).contains("not enforced"), "{refused:?}");
        assert!(
            says(&refused).contains("NETWORK_REFUSED") && says(&refused).contains(&expected),
            "{expected}: {refused:?}"
        );
        let receipt = receipt(&home, id);
        assert_eq!(receipt["network"]["refusedCount"], "1", "{receipt}");
    }
    assert_eq!(host.received().len(), 0);
    let missing = run(&home, "missing", "docs", "http_request", &json!({"url": host.url("/missing")}));
    assert_eq!(missing.code, 30, "{missing:?}");
    assert!(says(&missing).contains("was answered with 404 Not Found: no such thing"), "{missing:?}");
    let taken = run(&home, "taken", "docs", "http_request", &json!({"url": host.url("/missing"), "check": false}));
    assert_eq!((taken.code, &result(&home, "taken")["status"]), (0, &404.into()), "{taken:?}");
}

/// A body of megabytes is sent as a whole, and one that is refused is refused in words although it is not taken.
#[test]
fn a_large_body_is_sent_or_refused() {
    let host = TlsHost::start();
    let home = home(&host);
    fs::create_dir(home.path("w")).unwrap();
    home.file("w/large.txt", "x".repeat(1_000_000));
    let body = "${a.result.content}".repeat(3);
    let arguments = json!({"method": "PUT", "url": host.url("/large"), "body": body, "max_bytes": 16 << 20});
    for (network, code) in [("forge", 0), ("docs", 32)] {
        let read = "{id: a, tool: read_file, arguments: {path: large.txt}}";
        let put = format!("{{id: b, tool: http_request, network: {network}, depends_on: [a], arguments: {arguments}}}");
        let plan = home.file("large.yaml", format!("{{id: p, steps: [{read}, {put}]}}"));
        let flags = ["--config", "config.yaml", "--policy", "allows.yaml", "--workspace", "w", "--id", network];
        let done = home.run(["run", &plan].iter().chain(&flags));
        match code {
            0 => {
                let result = home.json(&["executions", "result", network]).1["stepOutputs"]["b"].clone();
                let length = result["body_bytes"].as_u64().unwrap_or_default();
                assert!(done.code == 0 && length > 3_000_000, "{length}: {}", done.talk);
            }
            _ => assert!(
                says(&done).contains("NETWORK_REFUSED") && says(&done).contains("methods: [PUT]"),
                "{}",
                done.talk
            ),
        }
    }
    assert_eq!(host.received().len(), 1);
}

#[test]
fn a_page_is_fetched_as_text_through_redirects_of_the_profile() {
    let host = TlsHost::start();
    let home = home(&host);
    let done = run(&home, "moved", "docs", "fetch_url", &json!({"url": host.url("/moved")}));
    assert_eq!(done.code, 0, "{done:?}");
    let result = result(&home, "moved");
    assert_eq!(result["text"], "Guide\n\nOne & two\n", "{result}");
    assert_eq!((&result["url"], &result["status"]), (&host.url("/page").into(), &200.into()), "{result}");
    let account = receipt(&home, "moved")["network"].clone();
    assert_eq!(account["connections"].as_array().map(Vec::len), Some(2), "{account}");
    for (id, path, reason, expected) in [
        ("away", "/moved-away", "NETWORK_REFUSED", "elsewhere.example.org:443 is not in the network profile `docs`"),
        ("clear", "/moved-to-clear", "REDIRECT_NOT_FOLLOWED", "which is in clear text"),
        ("circles", "/moved-in-circles", "REDIRECT_NOT_FOLLOWED", "and 10 are followed"),
        ("picture", "/picture", "CONTENT_NOT_TEXT", "image/png"),
    ] {
        let refused = run(&home, id, "docs", "fetch_url", &json!({"url": host.url(path)}));
        assert_eq!(refused.code, if reason == "NETWORK_REFUSED" { 32 } else { 30 }, "{path}: {refused:?}");
        assert!(says(&refused).contains(reason) && says(&refused).contains(expected), "{path}: {refused:?}");
    }
}

#[test]
fn a_call_without_a_network_is_refused_before_anything_runs() {
    let host = TlsHost::start();
    let home = home(&host);
    let arguments = json!({"url": host.url("/x")});
    for (network, arguments, expected) in [
        (
            "",
            &arguments,
            "steps[0].network: is required by this tool, which reaches only the hosts of a network profile: add `network: PROFILE`",
        ),
        ("network: none,", &arguments, "steps[0].network: is required by this tool"),
        ("network: unknown,", &arguments, "steps[0].network: `unknown` is not a network profile"),
        (
            "network: docs,",
            &json!({"url": "ftp://localhost/"}),
            "steps[0].arguments.url: must begin with `https://` or `http://`",
        ),
        (
            "network: docs,",
            &json!({"url": "https://me:pw@localhost/"}),
            "steps[0].arguments.url: must have no user before the host",
        ),
    ] {
        for tool in ["http_request", "fetch_url"] {
            let plan = plan(&home, network, tool, arguments);
            let refused = home.run(["run", &plan, "--config", "config.yaml", "--policy", "allows.yaml"]);
            assert_eq!(refused.code, 2, "{refused:?}");
            assert!(refused.talk.contains(expected), "{expected}: {refused:?}");
        }
    }
    let host_header = json!({"url": host.url("/x"), "headers": {"Host": "elsewhere.example.org"}});
    let plan = plan(&home, "network: docs,", "http_request", &host_header);
    let refused = home.run(["run", &plan, "--config", "config.yaml"]);
    assert!(refused.code == 2 && refused.talk.contains("it follows from `url`"), "{refused:?}");
    assert_eq!(host.received().len(), 0);
}

/// The person sees the request, and everything that its profile reaches.
#[test]
fn an_approval_shows_the_request_and_its_profile() {
    let host = TlsHost::start();
    let home = home(&host);
    let post = json!({"method": "DELETE", "url": host.url("/items/7")});
    let plan = plan(&home, "network: forge,", "http_request", &post);
    let server = home.serve_with(&["--config", "config.yaml"]);
    assert_eq!(home.run(["run", &plan, "--detach", "--id", "asked", "--approve", "prompt"]).code, 0);
    let waits = home.json_until(&["approvals", "list"], |all| all["approvals"][0]["name"].is_string());
    let approval = waits["approvals"][0]["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let shown = home.run(["approvals", "show", &approval]);
    let request = format!("http_request DELETE {}", host.url("/items/7"));
    let profile = format!("network profile forge: https://localhost:{}", host.address.port());
    for expected in [request.as_str(), &profile, "with the credential forge"] {
        assert!(shown.out.contains(expected), "{expected}: {shown:?}");
    }
    assert_eq!(host.received().len(), 0, "it has not run");
    assert_eq!(home.run(["approve", &approval, "--yes"]).code, 0);
    home.json_until(&["executions", "get", "asked"], |execution| execution["state"] == "STATE_COMPLETED");
    assert!(host.received()[0].starts_with("DELETE /items/7 "));
    server.signal(Signal::TERM);
    server.end();
}

/// A lost GET is made again, and a lost POST waits for a person, under the same profile.
#[test]
fn a_lost_request_is_made_again_only_if_its_method_is_repeatable() {
    for (tool, method) in [("http_request", Some("GET")), ("fetch_url", None), ("http_request", Some("POST"))] {
        let host = TlsHost::start();
        let home = home(&host);
        let mut arguments = json!({"url": host.url("/silent-once")});
        if let Some(method) = method {
            arguments["method"] = method.into();
        }
        let plan = plan(&home, "network: forge,", tool, &arguments);
        let server = home.serve_with(&["--config", "config.yaml", "--policy", "allows.yaml"]);
        let started = home.run(["run", &plan, "--detach", "--id", "lost"]);
        assert_eq!(started.code, 0, "{started:?}");
        host.heard.recv_timeout(Duration::from_secs(60)).expect("the host gets the request");
        server.kill();
        let server = home.serve_with(&["--config", "config.yaml", "--policy", "allows.yaml"]);
        match method {
            Some("POST") => {
                home.json_until(&["why", "lost"], |why| why.to_string().contains("OUTCOME_UNKNOWN"));
                assert_eq!(host.received().len(), 1, "it was not made again");
            }
            _ => {
                home.json_until(&["executions", "get", "lost"], |execution| execution["state"] == "STATE_COMPLETED");
                assert_eq!(host.received().len(), 2, "{tool}");
            }
        }
        server.signal(Signal::TERM);
        server.end();
    }
}

/// A time limit: what may have been carried out is not known, and what only reads has failed. Both have an account.
#[test]
fn a_host_that_does_not_answer_in_time_leaves_an_account() {
    let host = TlsHost::start();
    let home = home(&host);
    let get = run(&home, "get", "forge", "http_request", &json!({"url": host.url("/silent-once"), "timeout_ms": 500}));
    assert_eq!(get.code, 34, "{get:?}");
    assert!(says(&get).contains("TIMEOUT"), "{get:?}");
    assert_eq!(receipt(&home, "get")["network"]["connections"][0]["host"], "localhost");
    let another = TlsHost::start();
    let home = self::home(&another);
    let post = json!({"method": "POST", "url": another.url("/silent-once"), "timeout_ms": 500});
    let plan = plan(&home, "network: forge,", "http_request", &post);
    let server = home.serve_with(&["--config", "config.yaml", "--policy", "allows.yaml"]);
    assert_eq!(home.run(["run", &plan, "--detach", "--id", "post"]).code, 0);
    home.json_until(&["why", "post"], |why| why.to_string().contains("OUTCOME_UNKNOWN"));
    assert_eq!(home.run(["executions", "cancel", "post"]).code, 0);
    let events = home.events("post");
    let account = events.iter().find_map(|event| event["toolCallOutcomeUnknown"].as_object()).unwrap();
    assert_eq!(account["network"]["connections"][0]["host"], "localhost", "{account:?}");
    server.signal(Signal::TERM);
    server.end();
}

/// S3-13: `research` asks the search endpoint, and reads the pages that it names, through the proxy: under the network profile of the settings, with its credential.
/// Documentation is searched besides, and in air-gapped mode alone.
#[test]
fn research_cites_pages_that_the_profile_allows() {
    let host = TlsHost::start();
    let home = home(&host);
    let settings = std::fs::read_to_string(home.path("config.yaml")).unwrap();
    std::fs::create_dir(home.path("handbook")).unwrap();
    home.file("handbook/guide.md", "# Guide\n\nOne and two.\n");
    let docs = home.path("handbook").canonicalize().unwrap();
    let research = format!(
        "research: {{roots: [{{name: handbook, path: {}}}], web: {{url: '{}', profile: forge}}}}\n",
        docs.display(),
        host.url("/search")
    );
    home.file("config.yaml", format!("{settings}{research}"));
    let arguments = json!({"query": "one and two?", "sources": ["web", "documentation"]});
    let plan = plan(&home, "", "research", &arguments);
    let run =
        |id: &str, policy: &str| home.run(["run", &plan, "--config", "config.yaml", "--policy", policy, "--id", id]);
    home.file("denies.yaml", "{network: deny}");
    let denied = run("denied", "denies.yaml");
    assert_eq!(denied.code, 33, "{}", says(&denied));
    let done = run("web", "allows.yaml");
    assert_eq!(done.code, 0, "{}", says(&done));
    let answer = result(&home, "web")["content"]["result"].take();
    let cited: Vec<&str> = answer["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["url"].as_str().or(finding["path"].as_str()).unwrap())
        .collect();
    let of = |place: &str| cited.iter().position(|cited| *cited == place);
    let page = of(&host.url("/page")).unwrap_or_else(|| panic!("{answer:#}"));
    assert!(answer["findings"][page]["extract"].as_str().unwrap().contains("One & two"), "{answer:#}");
    assert!(of("guide.md").is_some() && of(&host.url("/picture")).is_some(), "{answer:#}");
    assert!(of("https://elsewhere.example.org/").is_some(), "cited as the endpoint describes it: {answer:#}");
    assert_eq!(
        answer["left_out"],
        json!([{
            "source": "web", "reason": "page_failed", "count": 2, "example": host.url("/picture"),
            "message": answer["left_out"][0]["message"],
        }])
    );
    assert_eq!((&answer["searched"]["results"], &answer["searched"]["pages"]), (&json!(3), &json!(1)), "{answer:#}");
    let received = host.received();
    assert!(received[0].starts_with("GET /search?q=one%20and%20two%3F&format=json HTTP/1.1\r\n"), "{received:?}");
    assert!(received[0].contains(&format!("authorization: Bearer {VALUE}\r\n")), "{received:?}");
    let receipt = receipt(&home, "web");
    assert_eq!(receipt["network"]["credentials"][0]["credential"], "forge", "{receipt}");
    let everywhere = format!("{done:?}{answer}{}", serde_json::to_string(&home.events("web")).unwrap());
    assert!(!everywhere.contains(VALUE), "{everywhere}");

    home.file("config.yaml", format!("{settings}{research}air_gapped: true\n"));
    let local = run("local", "denies.yaml");
    assert_eq!(local.code, 0, "{}", says(&local));
    let answer = result(&home, "local")["content"]["result"].take();
    assert_eq!(answer["findings"][0]["root"], "handbook", "{answer:#}");
    assert_eq!(answer["left_out"][0]["reason"], "air_gapped", "{answer:#}");
    let plan = self::plan(&home, "", "research", &json!({"query": "two", "sources": ["web"]}));
    let refused = home.run(["plan", "validate", &plan, "--config", "config.yaml"]);
    assert!(refused.code == 2 && says(&refused).contains("`air_gapped: true`"), "{}", says(&refused));

    home.file("config.yaml", format!("{settings}{}", research.replace("profile: forge", "profile: git-https")));
    let refused = home.run(["tools", "list", "--config", "config.yaml"]);
    assert!(says(&refused).contains("research.web.url: is not allowed: localhost:"), "{}", says(&refused));
}
