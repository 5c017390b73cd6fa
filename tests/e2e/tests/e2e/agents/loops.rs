//! The loop of a model: it calls tools, is told what came of them, and completes the step.

use std::{fs, path::Path};

use belay_e2e::belay::{RunningCommand, repository};
use belay_model_server::Reply;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::script::{APIS, Ask, Scene, goal, held};
use crate::collector::{Collector, Span, tree};

/// A step that is refused by its schema and by a check, and then done.
fn checked() -> (Value, Value) {
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]});
    let more = json!({"output_schema": schema, "postconditions": [{"command": ["test", "-s", "other.md"]}]});
    (goal(&["list_directory", "write_file", "read_file"]), more)
}

/// What a model does that makes every mistake once.
fn clumsy(ask: &Ask) -> Reply {
    match ask.turn {
        1 => ask.says("I look.", &[("list_directory", json!({"path": "."}))]),
        2 => ask.calls("write_file", json!({"path": "notes.md", "content": "one\n"})),
        3 => ask.says("", &[("read_file", json!({"path": "gone.md"})), ("read_file", json!({"path": "notes.md"}))]),
        4 => ask.completes(json!({"done": "yes"})),
        5 => ask.completes(json!({"count": 1})),
        6 => ask.calls("write_file", json!({"path": "other.md", "content": "two\n"})),
        _ => ask.completes(json!({"count": 2})),
    }
}

/// Each prompt begins with the one before it, and has the same tools and instructions.
fn assert_grow(asks: &[Ask]) {
    for pair in asks.windows(2) {
        let (before, after) = (pair[0].messages(), pair[1].messages());
        assert_eq!(before, after[..before.len()], "turn {}", pair[1].turn);
        assert_eq!(pair[0].frame(), pair[1].frame(), "turn {}", pair[1].turn);
    }
}

/// S2-FR-011, S2-FR-013, S2-FR-019: whatever the API, the model is told of each call, in the order in which it asked for them, until what it claims holds.
#[test]
fn a_model_works_until_what_it_claims_holds() {
    for api in APIS {
        let scene = Scene::with(api, "", "", clumsy);
        let (agent, more) = checked();
        let ended = scene.run(&agent, &more, &["-o", "text"]);
        assert_eq!(ended.code, 0, "{api}: {ended:?}");
        assert_eq!((scene.file("notes.md"), scene.file("other.md")), ("one\n".to_owned(), "two\n".to_owned()));
        let asks = scene.asks();
        assert_eq!(asks.len(), 7, "{api}");
        assert_grow(&asks);
        let told: Vec<String> = asks.iter().map(|ask| ask.told().join(" | ")).collect();
        assert_eq!(told[0], "Do it.");
        let words =
            ["\"entries\"", "notes.md", "FILE_NOT_FOUND", "INVALID_OUTPUT: ", "POSTCONDITION_FAILED: ", "other.md"];
        for (told, words) in told[1..].iter().zip(words) {
            assert!(told.contains(words), "{api}: {words:?} is not in {told}");
        }
        assert!(told[3].find("FILE_NOT_FOUND") < told[3].find("one\\n"), "in the order of the calls: {}", told[3]);
        let step = scene.step("a");
        assert_eq!(step["output"], json!({"count": 2}), "{step}");
    }
}

/// What a check or a command has printed is for the model to read.
#[test]
fn a_model_reads_what_failed() {
    let scene = Scene::new(|ask| match ask.turn {
        1 => ask.completes(json!("early")),
        2 => ask.runs("echo 'expected 7 but found 8' >&2; echo seen; exit 3"),
        3 => ask.runs("touch once"),
        _ => ask.completes(json!("done")),
    });
    let check = "test -e once || { echo the-third-test-fails; echo 'in line 3' >&2; exit 1; }";
    let more = json!({"postconditions": [{"command": ["sh", "-c", check]}]});
    assert_eq!(scene.run(&goal(&["run_terminal"]), &more, &[]).code, 0);
    let told: Vec<String> = scene.asks().iter().map(|ask| ask.told().join(" | ")).collect();
    let expected = [["the-third-test-fails", "in line 3"], ["seen", "expected 7 but found 8"]];
    for (told, words) in told[1..].iter().zip(expected) {
        assert!(words.iter().all(|words| told.contains(words)), "{words:?} is not in {told}");
    }
}

/// A model whose calls are answers that follow a schema works in the same loop.
#[test]
fn a_model_works_whose_calls_are_constrained() {
    let scene = Scene::with("chat", "tool_calls: constrained", "", |ask| {
        let call =
            |tool: &str, arguments: Value| ask.says(&json!({"tool": tool, "arguments": arguments}).to_string(), &[]);
        match ask.turn {
            1 => call("write_file", json!({"path": "a", "content": "x"})),
            2 => call("nope", json!({})),
            3 => ask.says("{\"tool\": \"nope\"", &[]),
            4 => call("read_result", json!({"id": "t0001c001"})),
            _ => call("complete_step", json!({"result": 7})),
        }
    });
    let more = json!({"output_schema": {"type": "integer"}});
    let ended = scene.run(&goal(&["write_file"]), &more, &["-o", "text"]);
    assert_eq!((ended.code, scene.file("a").as_str()), (0, "x"), "{ended:?}");
    let asks = scene.asks();
    assert_grow(&asks);
    let told: Vec<String> = asks.iter().map(|ask| ask.told().join(" | ")).collect();
    let words = ["\"created\":true", "Tool 'nope' not found", "Nothing was called: ", "\"created\":true"];
    for (told, words) in told[1..].iter().zip(words) {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
}

/// What a model was told is no reason for how the execution ended, and every turn can be read.
#[test]
fn people_see_how_an_execution_ended() {
    let scene = Scene::new(clumsy);
    let (agent, more) = checked();
    assert_eq!(scene.run(&agent, &more, &[]).code, 0);
    let why = scene.home.run(["why", "x"]);
    assert!(why.code == 0 && !format!("{}{}", why.out, why.talk).contains("FILE_NOT_FOUND"), "{why:?}");
    let logs = scene.home.run(["logs", "x"]);
    assert!(logs.code == 0 && logs.out.contains("==> a~14") && !logs.out.contains("null of"), "{}", logs.out);
}

/// S2-FR-018, S2-X-31: the files that the plan names are read before the first turn, as the policy lets it, and are what the model is shown.
#[test]
fn a_model_is_shown_files_with_its_task() {
    let scene = Scene::new(|ask| ask.completes(json!(ask.task)));
    scene.home.file("w/notes.md", "# Notes\n");
    scene.home.file(
        "policy.yaml",
        "terminal_commands: auto\nrules: [{id: kept, on: intent, tools: [read_file], paths: ['kept/**'], decide: deny, reason: not for models}]\n",
    );
    std::fs::create_dir(scene.home.path("w/kept")).unwrap();
    scene.home.file("w/kept/a.md", "never shown");
    // Where the path is known from is too long for an event.
    let files = json!(["${inputs.file}", "kept/a.md", "gone.md", "${look.result.content.result.path}"]);
    let agent = json!({"model": "m", "task": "Sum it up.", "files": files});
    let code = json!({"code": "result = {'path': 'found.md', 'beside': 'x' * 300000}"});
    scene.home.file("w/found.md", "found");
    let steps = json!([{"id": "look", "tool": "code_exec", "arguments": code}, {"id": "a", "agent": agent}]);
    let inputs = json!({"file": {"schema": {"type": "string"}}});
    let plan = scene.home.file("plan.json", json!({"id": "p", "inputs": inputs, "steps": steps}).to_string());
    let ended = scene.home.run(scene.words(&plan, &["--input", "file=notes.md"]));
    assert_eq!(ended.code, 0, "{ended:?}");
    let shown = scene.step("a")["output"].as_str().unwrap().to_owned();
    assert!(shown.starts_with("Sum it up.\n\n<file path=\"notes.md\">\n# Notes\n\n</file>\n\n"), "{shown}");
    assert!(shown.contains("<file path=\"kept/a.md\" not_read=\"true\">\nPOLICY_DENIED: "), "{shown}");
    assert!(shown.contains("not for models") && !shown.contains("never shown"), "{shown}");
    assert!(shown.contains("<file path=\"found.md\">\nfound\n</file>"), "{shown}");
    assert!(shown.contains("<file path=\"gone.md\" not_read=\"true\">\nFILE_NOT_FOUND: "), "{shown}");

    let outside = scene.plan(&json!({"model": "m", "task": "x", "files": ["../secret"]}), &json!({}));
    let refused = scene.home.run(["plan", "validate", &outside, "--config", "config.yaml"]);
    assert!(refused.talk.contains("steps[0].agent.files[0]: `../secret`"), "{refused:?}");
}

/// What a model answers is shown while it comes, line by line and without secrets, to those who ask for all. None of it is recorded: the answer may break off.
#[test]
fn an_answer_is_shown_while_it_comes() {
    let secret = "ghp_FAKE0fake1Belay2Not3Real4FAKE0fake1B";
    let (seen, looks) = std::sync::mpsc::channel::<()>();
    let looks = std::sync::Mutex::new(looks);
    let scene = Scene::with("messages", "", "", move |ask| {
        // Output without a watcher is dropped.
        looks.lock().unwrap().recv().unwrap();
        let said = format!("I look at the key {secret} first.\nThen I go on.\nAnd then {}", "x".repeat(2_000));
        held(ask.says(&said, &[]), 60)
    });
    let plan = scene.plan(&goal(&[]), &json!({}));
    let mut run = scene.home.start(scene.words(&plan, &["-o", "text", "--verbose"]));
    run.wait_for("asks m: turn 1");
    seen.send(()).unwrap();
    run.wait_for("a~0 │ I look at the key [REDACTED] first.");
    run.wait_for("a~0 │ Then I go on.");
    run.signal(Signal::INT);
    let rest = run.end();
    assert_eq!(rest.code, 130, "{rest:?}");
    let (timeline, execution) = (scene.home.json(&["executions", "timeline", "x"]).1, scene.execution());
    let recorded = format!("{timeline}{execution}");
    assert!(recorded.contains("ask_model") && !recorded.contains("Then I go on."), "{recorded}");
}

/// The instructions and the tools of a task are at most 2,000 tokens: 8,100 bytes were 1,990 of the tokenizer tekken, of which other models' differ by a tenth.
#[test]
fn the_fixed_part_of_a_prompt_is_small() {
    let scene = Scene::new(|ask| ask.completes(json!(1)));
    let ended =
        scene.home.run(["run", "--task", "Do it.", "--model", "m", "--workspace", "w", "--config", "config.yaml"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let body = &scene.asks()[0].body;
    let (tools, instructions) = (body["tools"].to_string(), body["messages"][0]["content"].to_string());
    let bytes = tools.len() + instructions.len();
    assert!(tools.contains("modify_file") && bytes <= 8_100, "{bytes} bytes: {tools}");
}

/// S2-X-25: the log has the turn of each call of a model, and the tokens that its server has counted.
#[test]
fn the_log_has_turns_and_tokens() {
    let scene = Scene::new(|ask| match ask.turn {
        1 => ask.counts("", &[("list_directory", json!({"path": "."}).to_string())], Some(1_000)),
        _ => ask.counts("", &[("complete_step", json!({"result": 1}).to_string())], Some(1_100)),
    });
    let plan = scene.plan(&goal(&["list_directory"]), &json!({}));
    let mut command = scene.home.belay(scene.words(&plan, &[]));
    command.env("BELAY_LOG", "belay_executor=debug").env("BELAY_LOG_FORMAT", "json");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = String::from_utf8(output.stderr).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let calls: Vec<(Value, Value, Value)> = lines
        .filter(|line| line["event"] == "call_ended")
        .map(|line| (line["tool"].clone(), line["turn"].clone(), line["tokens_used"].clone()))
        .collect();
    let call = |tool: &str, turn: u32, tokens: Value| (json!(tool), json!(turn), tokens);
    assert_eq!(
        calls,
        [
            call("ask_model", 1, json!(1_009)),
            call("list_directory", 1, Value::Null),
            call("ask_model", 2, json!(1_109)),
            call("complete_step", 2, Value::Null),
        ],
        "{log}"
    );
}

/// What a check writes is no part of the one effect of a goal: what the model has changed is committed, and the files of the check are dropped.
#[test]
fn what_a_check_writes_is_not_committed_with_a_goal() {
    let scene = Scene::new(|ask| match ask.turn {
        1 => ask.calls("write_file", json!({"path": "kept.md", "content": "one\n"})),
        _ => ask.completes(json!(1)),
    });
    let check = json!(["sh", "-c", "test -f kept.md && touch made-by-check"]);
    let more = json!({"effects": "per_step", "postconditions": [{"command": check}]});
    let ended = scene.run(&goal(&["write_file"]), &more, &["--approve", "auto"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(scene.file("kept.md"), "one\n");
    assert!(!scene.home.path("w/made-by-check").exists(), "the check has seen the changes, and left none");
}

/// B-11: a turn is a span as those who read traces of models expect it, with the tokens that its server has counted, and nothing of what was said.
#[test]
fn a_turn_is_a_span_with_its_model_and_its_tokens() {
    let scene = Scene::new(|ask| match ask.turn {
        1 => ask.counts("a-private-word", &[("list_directory", json!({"path": "."}).to_string())], Some(1_000)),
        _ => ask.counts("", &[("complete_step", json!({"result": 1}).to_string())], Some(1_100)),
    });
    let plan = scene.plan(&goal(&["list_directory"]), &json!({}));
    let collector = Collector::start();
    let ended = RunningCommand::start(collector.watch(scene.home.belay(scene.words(&plan, &[])))).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let spans = collector.all();
    let tree = tree(&spans);
    let turns: Vec<&Span> = spans.iter().filter(|span| span.span.name == "chat m").collect();
    assert_eq!(turns.len(), 2, "{tree}");
    for (place, turn) in turns.iter().enumerate() {
        assert_eq!(
            (turn.text("gen_ai.operation.name"), turn.text("gen_ai.request.model")),
            ("chat".into(), "m".into())
        );
        let number = |key: &str| turn.number(key);
        let seen = ["belay.turn", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"].map(number);
        assert_eq!(seen, [place as i64 + 1, 1_000 + 100 * place as i64, 9].map(Some), "{turn:?}");
    }
    assert!(!format!("{spans:?}").contains("a-private-word"), "{tree}");
}

/// B-11: what was said is in the spans where the operator asks for it, in the words of OpenTelemetry's conventions, with its secrets hidden; and what is asked wrongly stops the start.
#[test]
fn what_was_said_is_in_spans_where_it_is_asked_for() {
    const SECRET: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEF";
    let scene = Scene::new(|ask| match ask.turn {
        1 => ask.says("a-private-word", &[("noop", json!({"output": format!("seen {SECRET}")}))]),
        _ => ask.completes(json!(1)),
    });
    let plan = scene.plan(&goal(&["noop"]), &json!({}));
    let collector = Collector::start();
    let command = |value: &str| {
        let mut command = collector.watch(scene.home.belay(scene.words(&plan, &[])));
        command.env("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value);
        RunningCommand::start(command).end()
    };
    let refused = command("perhaps");
    assert!(refused.code == 2 && refused.talk.contains("TELEMETRY_UNUSABLE"), "{refused:?}");
    assert_eq!(command("true").code, 0);
    let spans = collector.all();
    let turns: Vec<&Span> = spans.iter().filter(|span| span.span.name == "chat m").collect();
    let part = |turn: usize, key: &str| turns[turn].text(&format!("gen_ai.{key}"));
    assert!(part(0, "system_instructions").contains("complete_step") && part(0, "input.messages").contains("Do it."));
    assert!(part(0, "output.messages").contains("a-private-word"), "{}", part(0, "output.messages"));
    assert!(part(1, "input.messages").contains("tool_call_response"), "{}", part(1, "input.messages"));
    assert_eq!(part(1, "system_instructions"), "", "what turns have in common is in the span of the first");
    let all = format!("{spans:?}");
    assert!(all.contains("seen [REDACTED]") && !all.contains(SECRET));
}

/// Turns and calls are steps, of which an execution has only so many: what says so names them, and not a list that the plan does not have.
#[test]
fn turns_and_calls_that_are_more_steps_than_an_execution_may_have_are_named() {
    let script = |ask: &Ask| ask.calls("noop", json!({"output": ask.turn}));
    let scene = Scene::with("chat", "", "services: {executor: {steps: 60}}", script);
    let ended = scene.run(&goal(&["noop"]), &json!({}), &[]);
    assert_eq!(ended.code, 30, "{ended:?}");
    for word in ["turns and calls of the model", "more than 15 steps", "services.executor.steps"] {
        assert!(ended.out.contains(word), "{word}: {ended:?}");
    }
}

/// S2-X-33: a model calls the tools of an MCP server by the names that its API takes; with `effects: per_step`, what the server writes in one call it finds in the
/// next, and all of it is one effect.
#[test]
fn a_model_calls_the_tools_of_a_server() {
    if !Path::new("/usr/bin/python3").exists() {
        return eprintln!("a_model_calls_the_tools_of_a_server: skipped, since there is no /usr/bin/python3 here");
    }
    let settings = fs::read_to_string(repository().join("docs/examples/mcp/settings.yaml")).unwrap();
    let scene = Scene::with("chat", "", &settings, |ask| match ask.turn {
        1 => ask.calls("notes_add_note", json!({"text": "one"})),
        2 => ask.calls("notes_add_note", json!({"note": "misnamed"})),
        3 => ask.calls("notes_list_notes", json!({})),
        _ => ask.completes(json!("done")),
    });
    let agent = goal(&["notes.add_note", "notes.list_notes"]);
    let ended = scene.run(&agent, &json!({"effects": "per_step"}), &["-o", "text", "--approve", "auto"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let told: Vec<String> = scene.asks().iter().map(|ask| ask.told().join(" | ")).collect();
    for (told, words) in told[1..].iter().zip(["note 1 is kept", "INVALID_ARGUMENTS", r#""count":1"#]) {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    assert_eq!(scene.file("notes.json"), r#"["one"]"#);
}

/// A model has an agent of others do a part of its task, and reads what came of it.
#[test]
fn a_model_has_an_external_agent_work() {
    let agents = "agents: {helper: {reader: text, command: \"sh -c 'cat > notes.md; echo I wrote it down'\"}}\n";
    let scene = Scene::with("chat", "", agents, |ask| match ask.turn {
        1 => ask.calls("helper", json!({"task": "Write this down."})),
        _ => ask.completes(json!("done")),
    });
    let ended = scene.run(&goal(&["helper"]), &json!({}), &[]);
    assert_eq!((ended.code, scene.file("notes.md").as_str()), (0, "Write this down."), "{ended:?}");
    assert!(scene.asks()[1].told().join(" ").contains("I wrote it down"));
}
