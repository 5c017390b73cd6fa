//! `belay api`: every method of the contract from a shell, and the page that describes them.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

use belay_e2e::{Home, belay::repository};
use serde_json::{Value, json};

use crate::{principals::Server, roles::ALLOWED};

const PAGE: &str = "docs/api.md";

/// Runs a command with this standard input; returns its exit code, and both outputs.
fn with_input(mut command: Command, input: &str) -> (i32, String, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("belay starts");
    // A command that refuses its arguments does not read this.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let ended = child.wait_with_output().expect("belay ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (ended.status.code().expect("it was not killed"), text(ended.stdout), text(ended.stderr))
}

fn call(home: &Home, method: &str, request: &Value) -> (i32, Value) {
    let (code, out, talk) = with_input(home.belay(["api", method, "-o", "json"]), &request.to_string());
    assert_eq!(talk, "");
    (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{method}: {error}: {out}")))
}

/// S2-FR-004: a shell starts an execution, follows it and reads what it returned, with nothing but JSON.
#[test]
fn a_shell_starts_and_reads_an_execution() {
    let home = Home::new();
    let _server = home.serve();
    let name = "namespaces/default/executions/shell";
    let step =
        json!({"id": "a", "tool": {"tool": "noop", "arguments": {"json": r#"{"output":{"n":9007199254740993}}"#}}});
    let start = json!({
        "parent": "namespaces/default", "executionId": "shell", "requestId": "once", "labels": {"team": "zürich"},
        "plan": {"id": "p", "steps": [step]},
    });
    let (code, started) = call(&home, "StartExecution", &start);
    assert_eq!((code, &started["name"]), (0, &json!(name)), "{started}");
    let (code, again) = call(&home, "ExecutorService.StartExecution", &start);
    assert_eq!((code, &again["uid"]), (0, &started["uid"]), "the same request id starts nothing");

    let (code, ended) = call(&home, "belay.v1.ExecutorService/WaitExecution", &json!({"name": name}));
    assert_eq!(
        (code, &ended["state"], &ended["labels"]["team"]),
        (0, &json!("STATE_COMPLETED"), &json!("zürich")),
        "{ended}"
    );
    let (_, step) = call(&home, "GetStep", &json!({"name": format!("{name}/steps/a")}));
    assert_eq!(step["output"]["json"], r#"{"n":9007199254740993}"#, "{step}");

    // One message a line, and the stream ends with the execution.
    let watch = json!({"name": name, "includeEarlierEvents": true}).to_string();
    let ended = home.run(["api", "WatchExecution", "--data", &watch]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let lines: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 1 && ended.out.contains("executionFinished"), "{}", ended.out);
    let one = home.run(["api", "GetExecution", "--data", &json!({"name": name}).to_string(), "-o", "jsonl"]);
    assert_eq!((one.code, one.out.lines().count()), (0, 1), "{one:?}");
}

/// Each refusal names what is wrong with what was given, and nothing is sent that is not understood.
#[test]
fn what_is_no_request_is_refused_with_its_field() {
    let home = Home::new();
    let (code, refused) = call(&home, "GetExecution", &json!({}));
    assert_eq!((code, &refused["code"]), (1, &json!("SERVER_UNREACHABLE")), "{refused}");
    assert_eq!(refused["nextCommand"], "belay serve");
    assert!(!home.state().exists(), "asking for a server makes no state directory");

    let _server = home.serve();
    let plan = |step: Value| json!({"parent": "namespaces/default", "plan": {"id": "p", "steps": [step]}}).to_string();
    let table = [
        ("StartExecution", plan(json!({"id": 7})), "plan.steps[0].id", "--describe"),
        ("StartExecution", plan(json!({"id": "a", "tol": {}})), "plan.steps[0]", "'tol'"),
        (
            "StartExecution",
            plan(json!({"id": "a", "wait": {"signal": "x"}, "tool": {"tool": "noop"}})),
            "plan.steps[0]",
            "one",
        ),
        ("GetExecution", r#"{"name":"a","name":"b"}"#.to_owned(), "name", "twice"),
        ("GetExecution", "[]".to_owned(), "GetExecutionRequest", ""),
        ("GetExecution", "{\"name\":".to_owned(), "not JSON", ""),
        ("GetExecution", " ".to_owned(), "written {}", ""),
        ("GetExecution", r#"{"name":"x","view":"EXECUTION_VIEW_ALL"}"#.to_owned(), "view", ""),
        ("GetExecutio", "{}".to_owned(), "no method `GetExecutio`", "ExecutorService.GetExecution --describe"),
        ("CallTool", "{}".to_owned(), "no method `CallTool`", "belay api"),
    ];
    for (method, request, place, words) in table {
        let (code, out, talk) = with_input(home.belay(["api", method]), &request);
        assert_eq!((code, out.as_str()), (2, ""), "{method} {request}: {talk}");
        assert!(
            talk.contains(place) && talk.contains(words) && talk.contains("code: INVALID_USAGE"),
            "{request}: {talk}"
        );
    }
    // What the server refuses has the server's reason and field.
    let (code, refused) = call(&home, "StartExecution", &json!({"parent": "namespaces/default", "plan": {"id": "p"}}));
    assert_eq!((code, &refused["code"]), (2, &json!("PLAN_REFUSED")), "{refused}");
    assert_eq!(refused["field"], "steps", "{refused}");
    let unread = home.run(["api", "GetExecution"]);
    assert_eq!(unread.code, 2, "standard input without a request is none: {unread:?}");
}

/// Over TCP the token decides, and the approval gate's methods reach the approval gate.
#[test]
fn a_token_calls_what_its_role_may() {
    let server = Server::start("");
    let token = server.add("pat", "viewer");
    let as_pat = |method: &str, request: Value, token: &str| {
        let mut command = server.home.belay(["api", method, "-o", "json", "--server", server.url()]);
        command.env("BELAY_TOKEN", token);
        let (code, out, _) = with_input(command, &request.to_string());
        (code, serde_json::from_str::<Value>(&out).unwrap_or_else(|error| panic!("{error}: {out}")))
    };
    let parent = json!({"parent": "namespaces/default"});
    assert_eq!(as_pat("ListApprovals", parent.clone(), &token).0, 0);
    assert_eq!(as_pat("ListExecutions", parent.clone(), &token).0, 0);
    let start =
        json!({"parent": "namespaces/default", "plan": {"id": "p", "steps": [{"id": "a", "tool": {"tool": "noop"}}]}});
    let (code, refused) = as_pat("StartExecution", start, &token);
    assert_eq!(refused["code"], "ROLE_MISSING", "{code} {refused}");
    let (code, refused) = as_pat("ListExecutions", parent, "not-a-token");
    assert_eq!(refused["code"], "UNAUTHENTICATED", "{code} {refused}");
}

/// The `methods` or `messages` as `belay api` describes them.
fn described(what: &str) -> Vec<Value> {
    let (code, described) = Home::new().json(&["api"]);
    assert_eq!(code, 0);
    described[what].as_array().expect("a list").clone()
}

/// Every method with the least that a request has: what it takes is understood by the service, whatever becomes of it.
#[test]
fn every_method_understands_its_skeleton() {
    let home = Home::new();
    let _server = home.serve();
    let mut called = 0;
    for method in described("methods").iter().filter(|method| method["streams"] == false) {
        let name = method["method"].as_str().unwrap();
        let (code, answer) = call(&home, name, &method["skeleton"]);
        let reason = answer["code"].as_str().unwrap_or_default();
        let misunderstood =
            ["INTERNAL", "INVALID_USAGE", "UNKNOWN_FIELD", "MESSAGE_MALFORMED", "UNIMPLEMENTED", "UNKNOWN"];
        assert!(!misunderstood.contains(&reason), "{name} {}: {code} {answer}", method["skeleton"]);
        called += 1;
    }
    assert!(called > 40, "{called}");
}

/// What the page says of one method.
fn section(method: &Value, roles: &str) -> String {
    let text = |field: &str| method[field].as_str().unwrap_or_default();
    let mut page = String::new();
    writeln!(page, "### {}\n", text("method").split_once('.').expect("with its service").1).unwrap();
    page.push_str(&paragraphs(text("description")));
    let names: Vec<_> = [('p', "planners"), ('v', "viewers"), ('a', "approvers"), ('o', "operators")]
        .into_iter()
        .filter(|(letter, _)| roles.contains(*letter))
        .map(|(_, name)| name)
        .collect();
    let changes = if method["changes"] == true { "May change something" } else { "Changes nothing" };
    let returns = if method["streams"] == true { "a stream of " } else { "" };
    let (request, answer) = (link(text("request")), link(text("answer")));
    writeln!(page, "{changes}. For {}. Takes {request}, returns {returns}{answer}.\n", names.join(", ")).unwrap();
    writeln!(page, "```console\n$ belay api {} --data '{}'\n```\n", text("method"), method["skeleton"]).unwrap();
    page
}

fn paragraphs(text: &str) -> String {
    text.lines().map(|paragraph| format!("{paragraph}\n\n")).collect()
}

/// A link to what the page says of a message.
fn link(message: &str) -> String {
    format!("[{message}](#{})", message.to_lowercase().replace('.', ""))
}

/// What the page says of one message.
fn table(message: &Value, known: &BTreeSet<&str>) -> String {
    let mut page = format!("### {}\n\n", message["name"].as_str().unwrap());
    page.push_str(&paragraphs(message["description"].as_str().unwrap()));
    let fields = message["fields"].as_array().expect("a list");
    if fields.is_empty() {
        page.push_str("It has no fields.\n\n");
        return page;
    }
    writeln!(page, "| field | type | what it is |\n|---|---|---|").unwrap();
    for field in fields {
        let cell = |name: &str| field[name].as_str().unwrap_or_default().replace('|', "\\|").replace('\n', "<br>");
        let kind = cell("type");
        let inner = kind.trim_start_matches("{string: ").trim_matches(['[', ']', '}']);
        let kind = match known.contains(inner) {
            true => kind.replace(inner, &link(inner)).replace("[[", "\\[[").replace(")]", ")\\]"),
            false => format!("`{kind}`"),
        };
        let required = if field["required"] == true { ", required" } else { "" };
        writeln!(page, "| `{}` | {kind}{required} | {} |", cell("name"), cell("description")).unwrap();
    }
    page.push('\n');
    page
}

fn page() -> String {
    let mut page = "# API\n\nThe methods that clients call, made from the contract in [proto/belay/v1](../proto/belay/v1). Requests and answers are shown in \
        protobuf's JSON form: `belay api METHOD < request.json` sends one to a server, with the token and the address that every command uses, and prints the answer; a \
        stream prints one message a line. `belay api StartExecution --describe` prints what stands here of one method, and `belay api Plan --describe` of one message.\n\n\
        Under each method stands the least that a request has: what is required, and the first of each group of fields of which one may be set. Errors have a reason, and \
        [its page](errors.md) says what to do. Roles are those of [principals](user-guide/principals.md): a planner may control its own executions only.\n\n"
        .to_owned();
    let mut service = String::new();
    for method in described("methods") {
        let name = method["method"].as_str().unwrap();
        let (of, _) = name.split_once('.').unwrap();
        if of != service {
            writeln!(page, "## {of}\n").unwrap();
            of.clone_into(&mut service);
        }
        let path = method["path"].as_str().unwrap().trim_start_matches('/');
        let roles = ALLOWED.iter().find(|(known, _)| *known == path).unwrap_or_else(|| panic!("no roles of {path}")).1;
        page.push_str(&section(&method, roles));
    }
    writeln!(page, "## Messages\n").unwrap();
    let messages = described("messages");
    let known = messages.iter().filter_map(|message| message["name"].as_str()).collect();
    messages.iter().for_each(|message| page.push_str(&table(message, &known)));
    format!("{}\n", page.trim_end())
}

#[test]
fn the_page_says_what_the_contract_says() {
    let path = repository().join(PAGE);
    let page = page();
    if std::env::var_os("BELAY_UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == page, "{PAGE} differs: BELAY_UPDATE=1 cargo test -p belay-e2e api::the_page");
}
