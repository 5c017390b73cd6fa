//! Secrets that only the operator can name: by rules of one's own, and by marks in the schemas of declared tools.

use std::{fs, path::Path};

use belay_e2e::Home;
use serde_json::json;

/// Every file below a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .flat_map(|entry| match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&entry.path()),
            kind if kind.is_file() => vec![(entry.path().display().to_string(), fs::read(entry.path()).unwrap())],
            _ => Vec::new(),
        })
        .collect()
}

/// The stored files, and the commands that show an execution, that have one of the texts, each with the text. `with` are arguments of each command.
fn places(home: &Home, id: &str, texts: &[&str], with: &[&str]) -> Vec<String> {
    let commands = [
        &["executions", "get", id][..],
        &["executions", "get", id, "-o", "json"],
        &["executions", "watch", id, "-o", "jsonl"],
        &["executions", "watch", id],
        &["executions", "list", "-o", "json"],
        &["audit", id, "-o", "json"],
        &["why", id],
        &["why", id, "-o", "json"],
        &["executions", "timeline", id, "-o", "json"],
        &["logs", id],
        &["logs", id, "-o", "jsonl"],
        &["artifacts", "list", id, "-o", "json"],
        &["approvals", "list", "-o", "json"],
    ];
    let printed = commands.iter().map(|command| {
        let ended = home.run(command.iter().chain(with));
        assert!(ended.code != 2, "{command:?}: {ended:?}");
        (command.join(" "), format!("{}{}", ended.out, ended.talk).into_bytes())
    });
    let all: Vec<(String, Vec<u8>)> = printed.chain(files(&home.state())).collect();
    let has = |content: &[u8], text: &str| content.windows(text.len()).any(|window| window == text.as_bytes());
    let found = all.iter().flat_map(|(name, content)| {
        texts.iter().filter(|text| has(content, text)).map(move |text| format!("{name}: {text}"))
    });
    found.collect()
}

/// S2-X-16: what an operator's rule matches is hidden like what a built-in rule does: in output, events, previews and what is stored. A group of the
/// pattern is hidden alone.
#[test]
fn what_a_rule_of_the_operator_matches_is_hidden_everywhere() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let rules = home.file(
        "rules.yaml",
        "rules:\n- {name: acme-token, pattern: 'acme_[a-z]{8}'}\n- {name: acme-ticket, pattern: 'ticket (\\w{6,})'}\n",
    );
    let config = home.file("config.yaml", format!("secrets:\n  rules_file: {rules}\n"));
    let with = ["--config", config.as_str()];
    let script = "echo first acme_abcdefgh; echo ticket waldfee here >&2; printf 'x acme_mnopqrst\\n' > made";
    let plan = json!({"id": "p", "steps": [
        {"id": "s", "tool": "run_terminal", "arguments": {"command": ["sh", "-c", script]}},
        {"id": "fails", "depends_on": ["s"], "tool": "run_terminal", "arguments": {"command": ["sh", "-c", "echo acme_zyxwvuts >&2; exit 3"]}},
    ]});
    let plan = home.file("plan.json", plan.to_string());
    let arguments = ["run", &plan, "--workspace", "w", "--approve", "prompt", "--id", "e"];
    let mut run = home.start(arguments.iter().chain(&with));
    let line = run.wait_for("waiting for approval; next: belay approvals show ");
    let (_, named) = line.split_once("approvals show ").unwrap();
    let approval = named.split_whitespace().next().unwrap().to_owned();
    let preview = home.run(["approvals", "show", &approval, "--all"]);
    assert!(preview.out.contains("+ x [REDACTED]") && preview.out.contains("acme-token"), "{preview:?}");
    assert!(!format!("{preview:?}").contains("acme_abc"), "{preview:?}");
    assert_eq!(home.run(["approve", &approval, "--yes"]).code, 0);
    let ended = run.end();
    assert_eq!(ended.code, 30, "{ended:?}");
    assert_eq!(fs::read_to_string(home.path("w/made")).unwrap(), "x acme_mnopqrst\n", "tools have the real value");
    let logs = home.run(["logs", "e"].iter().chain(&with)).out;
    assert!(logs.contains("first [REDACTED]") && logs.contains("ticket [REDACTED] here"), "{logs}");
    let secrets = ["acme_abcdefgh", "waldfee", "acme_mnopqrst", "acme_zyxwvuts"];
    assert!(!secrets.iter().any(|secret| format!("{ended:?}").contains(secret)), "{ended:?}");
    assert_eq!(places(&home, "e", &secrets, &with), Vec::<String>::new());

    let settings = home.run(["config", "show"].iter().chain(&with)).out;
    assert!(settings.contains("rules.yaml (2 rules: acme-token, acme-ticket)"), "{settings}");
    home.file("rules.yaml", "rules:\n- {name: acme-token, pattern: 'acme_[a-z'}\n");
    let refused = home.run(["run", &plan, "--workspace", "w"].iter().chain(&with));
    assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{refused:?}");
    for words in ["CONFIG_INVALID", "rules.yaml:2:", "rules[0].pattern", "unclosed character class (rule `acme-token`)"]
    {
        assert!(refused.talk.contains(words), "{words}: {}", refused.talk);
    }
}

/// S2-FR-077a: what the schemas of a declared tool mark is hidden as a whole, however short it is: written in the plan, given as an input, handed from step to
/// step, and returned. The tools have the real values.
#[test]
fn what_a_tools_schema_marks_is_hidden_everywhere() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let config = home.file(
        "config.yaml",
        "
tools:
  login:
    command: [sh, -c, 'printf \"%s %s\" \"$1\" \"$2\" | tr a-z A-Z > \"$3\"; printf \"{\\\"session\\\": \\\"%s-tail\\\", \\\"user\\\": \\\"bob\\\"}\" \"$1\"', sh, '${pin}', '${phrase}', '${to}']
    parameters:
      required: [pin, phrase, to]
      properties:
        pin: {type: string, writeOnly: true}
        phrase: {type: string, x-secret: true}
        to: {type: string}
    output: json
    result: {type: object, properties: {session: {type: string, x-secret: true}}}
    recovery: idempotent
  use:
    command: [sh, -c, 'test \"$1\" = 4711-tail && echo fine', sh, '${session}']
    parameters: {required: [session], properties: {session: {type: string}}}
    output: text
    recovery: read_only
",
    );
    let with = ["--config", config.as_str()];
    let plan = json!({"id": "p", "inputs": {"phrase": {}}, "steps": [
        {"id": "login", "tool": "login", "arguments": {"pin": "4711", "phrase": "${inputs.phrase}", "to": "a"}},
        {"id": "use", "depends_on": ["login"], "tool": "use", "arguments": {"session": "${login.result.session}"}},
        {"id": "again", "depends_on": ["use"], "tool": "login", "arguments": {"pin": "${login.result.session}", "phrase": "hush", "to": "b"}},
        {"id": "inner", "depends_on": ["again"], "inputs": {"word": "kaffee"}, "plan": {
            "id": "child", "inputs": {"word": {}},
            "steps": [{"id": "deep", "tool": "login", "arguments": {"pin": "0815x", "phrase": "${inputs.word}", "to": "c"}}],
        }},
    ]});
    let plan = home.file("plan.json", plan.to_string());
    let arguments =
        ["run", &plan, "--workspace", "w", "--approve", "auto", "--id", "e", "--input", "phrase=lieb", "-o", "json"];
    let ended = home.run(arguments.iter().chain(&with));
    assert_eq!(ended.code, 0, "{ended:?}");
    let seen = ["a", "b", "c"].map(|name| fs::read_to_string(home.path("w").join(name)).unwrap());
    assert_eq!(seen, ["4711 LIEB", "4711-TAIL HUSH", "0815X KAFFEE"], "tools have the real values");
    // In quotes, because ids and times may have four digits, too.
    let secrets = ["\"4711\"", "\"lieb\"", "4711-tail", "\"hush\"", "\"0815x\"", "\"kaffee\"", "0815x-tail"];
    assert!(!secrets.iter().any(|secret| ended.out.contains(secret) || ended.talk.contains(secret)), "{ended:?}");
    assert!(ended.out.contains("bob"), "what is not marked stays: {ended:?}");
    assert_eq!(places(&home, "e", &secrets, &with), Vec::<String>::new());
}

/// S2-FR-077: what live output of a call without a result has shown as a secret is hidden in the failure that follows, and from then on.
#[test]
fn what_live_output_recognizes_is_hidden_in_what_follows() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let value = ["wald", "fee7", "moos"].concat();
    // The value stands in the message without the name that it is recognized by.
    let check = "echo \"API_TOKEN=$(cat value)\"; echo \"the value is $(cat value)\" >&2; exit 1";
    home.file("w/value", &value);
    let plan = json!({"id": "p", "steps": [
        {"id": "s", "tool": "run_terminal", "arguments": {"command": ["true"]},
         "postconditions": [{"command": ["sh", "-c", check]}]},
    ]});
    let plan = home.file("plan.json", plan.to_string());
    let ended = home.run(["run", &plan, "--workspace", "w", "--approve", "auto", "--id", "e", "-o", "json"]);
    assert_eq!(ended.code, 30, "{ended:?}");
    assert!(ended.out.contains("POSTCONDITION_FAILED") && ended.out.contains("the value is"), "{ended:?}");
    assert!(!format!("{ended:?}").contains(&value), "{ended:?}");
    assert_eq!(places(&home, "e", &[&value], &[]), Vec::<String>::new());
}

/// S2-X-16, S4-03: a secret in the context of a plan is hidden where a program prints it, also by the tool runner, which has it from nothing else.
#[test]
fn a_secret_of_the_context_is_hidden_everywhere() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let script = r#"echo "$BELAY_CONTEXT" | grep -o 'horse[^"]*' >&2; exit 3"#;
    let plan = json!({
        "plan": {"id": "p", "steps": [
            {"stepId": "s", "skillId": "run_terminal", "params": {"command": ["sh", "-c", script]}},
        ]},
        "context": {"traceId": "t", "environment": "staging", "apiKey": "horse-battery-99"},
    });
    let plan = home.file("plan.json", plan.to_string());
    let ended = home.run(["run", &plan, "--workspace", "w", "--approve", "auto", "--id", "e"]);
    assert_eq!(ended.code, 30, "{ended:?}");
    assert!(ended.out.contains("s │ [REDACTED]"), "it has printed it: {ended:?}");
    assert_eq!(places(&home, "e", &["horse-battery-99"], &[]), Vec::<String>::new());
}
