//! Models and servers that do not do what they should.

use std::{
    fs,
    sync::{Arc, OnceLock},
};

use belay_e2e::belay::{CommandEnd, count};
use belay_model_server::{Piece, Reply};
use serde_json::{Value, json};

use super::script::{APIS, Ask, FOREVER, Scene, goal, held, until_asked};

/// The failure of the step.
fn failure(scene: &Scene) -> String {
    let step = scene.step("a");
    let failure = &step["failure"];
    format!("{}: {}", failure["code"].as_str().unwrap_or_default(), failure["message"].as_str().unwrap_or_default())
}

/// Runs one step whose model has these tools.
fn run(scene: &Scene, tools: &[&str]) -> CommandEnd {
    scene.run(&goal(tools), &json!({}), &["-o", "text"])
}

fn told(scene: &Scene) -> Vec<String> {
    scene.asks().iter().map(|ask| ask.told().join(" | ")).collect()
}

/// S2-FR-030, S2-X-05: whatever is wrong with a call goes back to the model in every API, and the conversation stays one that servers take.
#[test]
fn calls_that_cannot_be_made_go_back() {
    for api in APIS {
        let scene = Scene::with(api, "", "", |ask| match ask.turn {
            1 => ask.writes(
                "",
                &[("delete all!", "{}".to_owned()), ("", "{}".to_owned()), ("write_file", "{\"path\":\"a".to_owned())],
            ),
            2 => ask.writes(
                " \n",
                &[
                    ("write_file", "[1]".to_owned()),
                    ("write_file", "{\"path\":\"a\",\"path\":\"b\",\"content\":\"\"}".to_owned()),
                ],
            ),
            3 => ask.says(
                "Both.",
                &[
                    ("write_file", json!({"path": "${a}.txt", "content": "${STEP.result} $${x}"})),
                    ("complete_step", json!({"result": 1})),
                ],
            ),
            4 => ask.calls("write_file", json!({"path": "../out", "content": ""})),
            5 => ask.calls("complete_step", json!({})),
            6 => ask.says("", &[("read_result", json!({"id": "nothing"})), ("read_result", json!({}))]),
            _ => ask.completes(json!("${a}")),
        });
        let ended = run(&scene, &["write_file"]);
        assert_eq!(ended.code, 0, "{api}: {ended:?}");
        let told = told(&scene);
        assert!(
            told[1].contains("Tool 'delete all!' not found. There are: write_file, complete_step, read_result."),
            "{}",
            told[1]
        );
        assert_eq!(told[1].matches("not found").count(), 2, "{}", told[1]);
        assert!(told[1].contains("Nothing was called: "), "{}", told[1]);
        assert_eq!(told[2].matches("Nothing was called: ").count(), 2, "{}", told[2]);
        assert!(told[3].contains("call complete_step alone"), "{}", told[3]);
        assert_eq!(scene.file("${a}.txt"), "${STEP.result} $${x}", "templates mean nothing in what a model writes");
        assert!(!scene.home.path("out").exists());
        assert!(told[5].contains("`result` is required"), "{}", told[5]);
        assert_eq!(told[6].matches("There is no result with the id").count(), 2, "{}", told[6]);
        assert_eq!(scene.step("a")["output"], "${a}");
        for ask in scene.asks() {
            assert_takes(api, &ask.body);
        }
    }
}

/// What named servers refuse: Anthropic an id or a name with other characters, and text without a letter; Mistral's an id that has not nine characters; all of them a call without its result.
fn assert_takes(api: &str, body: &Value) {
    let is_name = |name: &str| {
        (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let (mut open, mut ids) = (Vec::new(), Vec::new());
    let mut call = |id: &Value, name: &Value| {
        let (id, name) = (id.as_str().unwrap().to_owned(), name.as_str().unwrap());
        assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id:?}");
        assert!(is_name(name), "{name:?}");
        assert!(!ids.contains(&id), "{id} is the id of two calls");
        ids.push(id.clone());
        id
    };
    match api {
        "chat" => {
            for message in body["messages"].as_array().unwrap() {
                for of in message["tool_calls"].as_array().into_iter().flatten() {
                    open.push(call(&of["id"], &of["function"]["name"]));
                }
                if message["role"] == "tool" {
                    assert_eq!(message["tool_call_id"], open.remove(0), "{body}");
                }
            }
        }
        "responses" => {
            for item in body["input"].as_array().unwrap() {
                match item["type"].as_str().unwrap() {
                    "function_call" => open.push(call(&item["call_id"], &item["name"])),
                    "function_call_output" => assert_eq!(item["call_id"], open.remove(0), "{body}"),
                    _ => {}
                }
            }
        }
        _ => {
            for message in body["messages"].as_array().unwrap() {
                let blocks = message["content"].as_array().unwrap();
                assert!(!blocks.is_empty(), "a message with nothing is refused: {body}");
                for block in blocks {
                    match block["type"].as_str().unwrap() {
                        "text" => assert!(!block["text"].as_str().unwrap().trim().is_empty(), "{body}"),
                        "tool_use" => open.push(call(&block["id"], &block["name"])),
                        "tool_result" => assert_eq!(block["tool_use_id"], open.remove(0), "{body}"),
                        other => panic!("{other}"),
                    }
                }
            }
        }
    }
    assert!(open.is_empty(), "{open:?} have no result: {body}");
    let tools = body["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().or_else(|| tool["function"]["name"].as_str()).unwrap());
    let names: Vec<&str> = names.collect();
    assert!(names.iter().all(|name| is_name(name)), "{names:?}");
    assert!(names.iter().enumerate().all(|(place, name)| !names[..place].contains(name)), "{names:?}");
}

/// S2-X-04: a model that says nothing at all is asked on, is told, and ends; the conversation is one that every API takes.
#[test]
fn a_model_that_says_nothing_is_stuck() {
    for api in APIS {
        let scene = Scene::with(api, "", "", |ask| ask.says(["", " \n", ""][ask.turn % 3], &[]));
        let ended = run(&scene, &["write_file"]);
        assert_ne!(ended.code, 0, "{api}: {ended:?}");
        assert!(failure(&scene).starts_with("AGENT_STUCK: "), "{api}: {}", failure(&scene));
        let asks = scene.asks();
        assert_eq!(asks.len(), 4, "{api}");
        assert!(told(&scene).last().unwrap().contains("the same 3 times"), "{api}: {:?}", told(&scene));
        asks.iter().for_each(|ask| assert_takes(api, &ask.body));
    }
}

/// S2, X30: one that does the same again and again is told after three times, and ends after four; one that goes on has its turns.
#[test]
fn a_model_that_gets_nowhere_ends() {
    let scene = Scene::new(|ask| ask.calls("list_directory", json!({"path": "."})));
    assert_ne!(run(&scene, &["list_directory"]).code, 0);
    assert!(failure(&scene).starts_with("AGENT_STUCK: "), "{}", failure(&scene));
    assert_eq!(scene.asks().len(), 4);

    let scene = Scene::new(|ask| ask.runs(&format!("echo {} >> lines", ask.turn)));
    let agent = json!({"model": "m", "task": "Do it.", "tools": ["run_terminal"], "max_turns": 3});
    assert_ne!(scene.run(&agent, &json!({}), &[]).code, 0);
    assert!(failure(&scene).starts_with("TURN_LIMIT: Turn limit reached (3 turns)"), "{}", failure(&scene));
    assert_eq!((scene.asks().len(), scene.file("lines").as_str()), (3, "1\n2\n3\n"));
}

/// What looks like a secret is hidden wherever it is shown, and the tool gets what the model wrote.
#[test]
fn a_secret_that_a_model_writes_reaches_the_tool_alone() {
    // Put together here, so that no file of this repository has it.
    let key = format!("AKIA{}", "QXOSLB2JMC4XZP7T");
    let secret = key.clone();
    let scene = Scene::new(move |ask| match ask.turn {
        1 => ask.says(
            &format!("I write {secret}."),
            &[("write_file", json!({"path": "k", "content": format!("key={secret}\n")}))],
        ),
        2 => ask.calls("read_file", json!({"path": "k"})),
        _ => ask.completes(json!({"key": secret})),
    });
    let ended = run(&scene, &["write_file", "read_file"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(scene.file("k"), format!("key={key}\n"));
    let mut shown = format!("{}{}", ended.out, ended.talk);
    for words in [
        &["executions", "watch", "x", "-o", "jsonl"][..],
        &["executions", "get", "x", "-o", "json"],
        &["executions", "get", "x", "--step", "a~0", "--calls"],
        &["executions", "get", "x", "--step", "a~1", "-o", "json"],
        &["executions", "timeline", "x"],
        &["executions", "result", "x"],
        &["logs", "x"],
    ] {
        let read = scene.home.run(words);
        shown.push_str(&read.out);
        shown.push_str(&read.talk);
    }
    assert!(!shown.contains(&key), "{shown}");
    let asks = scene.asks();
    assert!(asks[2].body.to_string().contains(&key), "the model is told what it wrote and read itself");
}

/// Arguments of megabytes are not repaired and break nothing.
#[test]
fn arguments_of_megabytes_are_a_failure_of_the_call_or_of_the_window() {
    let scene = Scene::with("chat", "window: 9000000", "", |ask| match ask.turn {
        1 => ask.calls("write_file", json!({"path": "a", "content": "x".repeat(5 << 20)})),
        2 => ask.writes("", &[("write_file", format!("{{\"path\":\"a\",\"content\":\"{}", "y".repeat(5 << 20)))]),
        3 => ask.calls(&"z".repeat(1 << 20), json!({})),
        _ => ask.completes(json!(1)),
    });
    let ended = run(&scene, &["write_file"]);
    assert_eq!(ended.code, 0, "{} {}", ended.talk.len(), &ended.talk[..ended.talk.len().min(2000)]);
    let asks = scene.asks();
    assert_eq!(asks.len(), 4);
    for (ask, words) in
        asks[1..].iter().zip(["INVALID_ARGUMENTS: The arguments have ", "Nothing was called: ", "not found"])
    {
        let told = ask.told().join(" ");
        assert!(told.contains(words) && told.len() < 100_000, "{} bytes: {}", told.len(), &told[..told.len().min(300)]);
    }
    assert!(!scene.home.path("w/a").exists());

    let scene = Scene::new(|ask| ask.calls("write_file", json!({"path": "a", "content": "x".repeat(5 << 20)})));
    assert_ne!(run(&scene, &["write_file"]).code, 0);
    assert!(failure(&scene).starts_with("CONTEXT_EXHAUSTED: "), "{}", failure(&scene));
    assert_eq!(scene.asks().len(), 1);
}

/// A server that passes is asked again, as it wishes; one that does not, fails the step with what it said.
#[test]
fn servers_that_fail() {
    // What the server does the first times, how often it is asked, and the failure; none means that the step completes.
    type Row = (&'static str, fn(&Ask) -> Reply, usize, Option<&'static str>);
    let rows: [Row; 5] = [
        ("", |ask| error(ask, 1, "429 Too Many Requests", "retry-after-ms: 50"), 2, None),
        (
            "",
            |ask| if ask.times == 1 { held(ask.completes(json!(1)), 60).broken_off() } else { ask.completes(json!(1)) },
            2,
            None,
        ),
        ("", |ask| error(ask, 99, "401 Unauthorized", "x: y"), 1, Some("MODEL_REFUSED: ")),
        ("", |ask| error(ask, 99, "404 Not Found", "x: y"), 1, Some("MODEL_REFUSED: ")),
        ("limits: {first_byte: 1s, between_bytes: 1s, answer: 3s}", endless, 4, Some("MODEL_UNAVAILABLE: ")),
    ];
    std::thread::scope(|scope| {
        for (place, (keys, script, times, fails)) in rows.into_iter().enumerate() {
            scope.spawn(move || {
                let scene = Scene::with("chat", keys, "", script);
                let ended = run(&scene, &["write_file"]);
                assert_eq!(ended.code == 0, fails.is_none(), "{place}: {ended:?}");
                if let Some(fails) = fails {
                    assert!(failure(&scene).starts_with(fails), "{place}: {}", failure(&scene));
                }
                assert_eq!(scene.asks().len(), times, "{place}: {ended:?}");
            });
        }
    });
}

/// An error the first times, then the end.
fn error(ask: &Ask, times: usize, status: &str, header: &str) -> Reply {
    if ask.times > times {
        return ask.completes(json!(1));
    }
    Reply::json(status, json!({"error": {"message": "Not now, or not so."}}).to_string()).with(header)
}

/// An answer that goes on and on.
fn endless(ask: &Ask) -> Reply {
    let reply = ask.says("again and again", &[]);
    let piece = reply.pieces[1].clone();
    let pause = Piece::Pause(std::time::Duration::from_millis(100));
    Reply { pieces: (0..36_000).flat_map(|_| [piece.clone(), pause.clone()]).collect(), ..reply }
}

trait BrokenOff {
    fn broken_off(self) -> Self;
}

impl BrokenOff for Reply {
    /// The connection ends where the answer would wait.
    fn broken_off(mut self) -> Self {
        self.pieces.retain(|piece| *piece != Piece::Pause(FOREVER));
        self.broken()
    }
}

/// S2-X-13: of a result the model reads 10,000 tokens at once, and the rest when it asks for it, byte by byte.
#[test]
fn the_rest_of_a_long_result_can_be_read() {
    let text: String = (0..12_000).map(|n| format!("line {n:05}é\n")).collect();
    let scene = Scene::with("chat", "window: 900000", "", |ask| {
        let last = ask.results().last().map(|result| (*result).to_owned()).unwrap_or_default();
        let next = last.rsplit_once("[The rest: read_result with id ").map(|(_, rest)| rest.to_owned());
        match (ask.turn, next) {
            (1, _) => ask.calls("read_file", json!({"path": "long.txt"})),
            (_, Some(rest)) => {
                let (id, offset) = rest.trim_end_matches(".]").split_once(" and offset ").unwrap();
                ask.calls("read_result", json!({"id": id, "offset": offset.parse::<usize>().unwrap()}))
            }
            _ => ask.completes(json!(1)),
        }
    });
    fs::write(scene.home.path("w/long.txt"), &text).unwrap();
    let ended = run(&scene, &["read_file"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let asks = scene.asks();
    let results = asks.last().unwrap().results();
    assert!(results.len() > 3 && results.iter().all(|part| part.len() <= 40_200), "{}", results.len());
    let parts = results.iter().map(|part| part.split_once("\n[Truncated: ").map_or(*part, |(part, _)| part));
    let whole: String = parts.collect();
    let whole: Value = serde_json::from_str(&whole).expect("the parts are the whole result");
    assert_eq!(whole["content"], text);
    // The whole is an artifact as well.
    let artifact = scene.home.json(&["artifacts", "get", "x", "a~1"]).1;
    assert_eq!(artifact["output"], whole);
}

/// S2-X-15: a model that reads a file again reads what it holds then: nothing is cached, and what it was told before stays as it was.
#[test]
fn a_file_that_has_changed_is_read_anew() {
    let folder = Arc::new(OnceLock::<std::path::PathBuf>::new());
    let path = Arc::clone(&folder);
    let scene = Scene::new(move |ask| match ask.turn {
        1 | 2 => ask.calls("read_file", json!({"path": "f"})),
        3 => {
            fs::write(path.get().unwrap(), "two").unwrap();
            ask.calls("read_file", json!({"path": "f"}))
        }
        _ => ask.completes(json!(1)),
    });
    let file = scene.home.path("w/f");
    fs::write(&file, "one").unwrap();
    folder.set(file).unwrap();
    assert_eq!(run(&scene, &["read_file"]).code, 0);
    let asks = scene.asks();
    let results = asks[3].results();
    let contents = results.iter().map(|result| serde_json::from_str::<Value>(result).unwrap()["content"].clone());
    assert_eq!(contents.collect::<Vec<_>>(), ["one", "one", "two"]);
}

/// S2-X-14: beyond 25 results the older ones are archived, at least ten stay, and what is archived can be read again.
#[test]
fn older_results_are_archived() {
    const STUB: &str = "[Archived: read_result returns it.]";
    let scene = Scene::new(|ask| match ask.turn {
        1..=26 => ask.calls("read_file", json!({"path": format!("f{}", ask.turn)})),
        27 => ask.calls("read_result", json!({"id": "t0001c001"})),
        _ => ask.completes(json!(1)),
    });
    for n in 1..=26 {
        fs::write(scene.home.path("w").join(format!("f{n}")), format!("content {n}.")).unwrap();
    }
    let agent = json!({"model": "m", "task": "Do it.", "tools": ["read_file"], "max_turns": 35});
    assert_eq!(scene.run(&agent, &json!({}), &[]).code, 0);
    let asks = scene.asks();
    let archived = |ask: &Ask| ask.results().iter().filter(|result| **result == STUB).count();
    assert_eq!(asks[..26].iter().map(archived).max(), Some(0));
    assert_eq!((archived(&asks[26]), archived(&asks[27])), (16, 16), "they stay archived, and no others are");
    let results = asks[26].results();
    assert!(results[..16].iter().all(|result| *result == STUB) && results[16].contains("content 17."), "{results:?}");
    assert!(asks[27].results()[26].contains("content 1."), "{:?}", asks[27].results());
}

/// Where few results are too long for the window, the older ones are archived before there are 25.
#[test]
fn long_results_are_archived_where_the_window_wants_it() {
    let scene = Scene::with("chat", "window: 40000", "", |ask| match ask.turn {
        1..=14 => ask.calls("read_file", json!({"path": "long", "offset": ask.turn, "length": 10_000})),
        _ => ask.completes(json!(1)),
    });
    fs::write(scene.home.path("w/long"), "word ".repeat(4000)).unwrap();
    let ended = run(&scene, &["read_file"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let archived = |ask: &Ask| ask.results().iter().filter(|result| result.starts_with("[Archived: ")).count();
    let asks = scene.asks();
    let most = asks.iter().map(archived).max().unwrap();
    assert!((1..=4).contains(&most), "{most}");
    assert!(asks.iter().all(|ask| ask.results().len() - archived(ask) >= ask.results().len().min(10)));
}

/// A window that is too small, and one that the server makes smaller without saying so.
#[test]
fn windows_that_are_too_small() {
    let scene = Scene::with("chat", "window: 6000", "", |ask| match ask.turn {
        1..=9 => ask.calls("read_file", json!({"path": "long", "offset": ask.turn, "length": 8000})),
        _ => ask.completes(json!(1)),
    });
    fs::write(scene.home.path("w/long"), "word ".repeat(4000)).unwrap();
    assert_ne!(run(&scene, &["read_file"]).code, 0);
    assert!(failure(&scene).starts_with("CONTEXT_EXHAUSTED: "), "{}", failure(&scene));
    assert!((1..4).contains(&scene.asks().len()), "{}", scene.asks().len());

    let scene = Scene::new(|ask| {
        let tokens = [0, 1000, 2000, 3000, 1500][ask.turn.min(4)];
        ask.counts(
            "",
            &[("read_file", json!({"path": "long", "offset": ask.turn, "length": 100}).to_string())],
            Some(tokens),
        )
    });
    fs::write(scene.home.path("w/long"), "word ".repeat(4000)).unwrap();
    assert_ne!(run(&scene, &["read_file"]).code, 0);
    assert!(failure(&scene).starts_with("CONTEXT_TRUNCATED_BY_SERVER: "), "{}", failure(&scene));
    assert_eq!(scene.asks().len(), 4);

    // A server that counts nothing, or nothing now and then, has shortened nothing.
    let scene = Scene::new(|ask| {
        let tokens = [None, Some(1000), Some(0), None, Some(4000)][ask.turn.min(4)];
        match ask.turn {
            1..=4 => ask.counts(
                "",
                &[("read_file", json!({"path": "long", "offset": ask.turn, "length": 100}).to_string())],
                tokens,
            ),
            _ => ask.completes(json!(1)),
        }
    });
    fs::write(scene.home.path("w/long"), "word ".repeat(4000)).unwrap();
    assert_eq!(run(&scene, &["read_file"]).code, 0, "{}", failure(&scene));
}

/// A plan with a model that cannot be asked is refused before anything happens, with the field.
#[test]
fn plans_are_refused_whose_model_or_tools_cannot_be() {
    let declared = |name: &str| format!("  {name}: {{description: x, command: [cat], parameters: {{type: object}}}}\n");
    let declared: String = ["read_result", "a.b", "a_b"].map(declared).concat();
    let settings = format!("local_only: true\ntools:\n{declared}");
    let scene = Scene::with("chat", "", &settings, |ask| ask.completes(json!(1)));
    let config = fs::read_to_string(scene.home.path("config.yaml")).unwrap();
    let far = "  far: {api: messages, base_url: 'https://models.example.com/v1', model: l, window: 200000}\n";
    scene.home.file("config.yaml", config.replacen("models:\n", &format!("models:\n{far}"), 1));
    for (model, tools, words) in [
        ("n", &["read_file"][..], "agent.model: there is no model `n`"),
        ("far", &["read_file"], "agent.model: the model `far` is not on this machine"),
        ("m", &["read_file", "READ_FILE"], "agent.tools[1]: the model would know `READ_FILE` as `read_file`"),
        ("m", &["a.b", "a_b"], "agent.tools[1]: the model would know `a_b` as `a_b`, and it knows `a.b` by that name"),
        (
            "m",
            &["read_result"],
            "agent.tools[0]: the model would know `read_result` as `read_result`, which it has anyway",
        ),
        ("m", &["read_flie"], "agent.tools[0]: Tool 'read_flie' not found; did you mean `read_file`?"),
    ] {
        let agent = json!({"model": model, "task": "x", "tools": tools});
        let refused = scene.run(&agent, &json!({}), &[]);
        assert_eq!(refused.code, 2, "{words}: {refused:?}");
        assert!(format!("{}{}", refused.out, refused.talk).contains(words), "{words}: {refused:?}");
    }
    assert!(scene.asks().is_empty());
    assert_eq!(run(&scene, &["read_file"]).code, 0, "the model on this machine is asked");
}

/// A turn whose server fails for good is what the step fails with, and `retry` of a person begins with the first turn.
#[test]
fn a_model_that_stays_away_fails_the_step() {
    let scene = Scene::new(|ask| error(ask, 4, "500 Internal Server Error", "x: y"));
    let ended = run(&scene, &["write_file"]);
    assert_ne!(ended.code, 0);
    assert!(failure(&scene).starts_with("MODEL_UNAVAILABLE: "), "{}", failure(&scene));
    let events = scene.home.events("x");
    assert_eq!(
        (scene.asks().len(), count(&events, "stepRetryScheduled", "a~0")),
        (4, 3),
        "asked again after 1, 2 and 4 s"
    );
}

/// S2-X-20: a model that cannot be asked any more gives way to the next one, of another API, which goes on with the same conversation.
#[test]
fn the_next_model_takes_over() {
    let other = "  other: {api: messages, base_url: '{url}', model: other, window: 50000}";
    let scene = Scene::with("chat", "", other, |ask| match (ask.body["model"].as_str(), ask.turn) {
        (Some("m"), 1) => ask.calls("write_file", json!({"path": "a", "content": "one"})),
        (Some("m"), _) => error(ask, usize::MAX, "401 Unauthorized", "x: y"),
        (_, 2) => ask.calls("write_file", json!({"path": "b", "content": "two"})),
        _ => ask.completes(json!("done")),
    });
    let mut agent = goal(&["write_file"]);
    agent["fallback"] = json!(["other"]);
    let ended = scene.run(&agent, &json!({}), &["-o", "text"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("turn 2, of the next model") && ended.out.contains("asks other: turn 2"), "{ended:?}");
    assert_eq!((scene.file("a"), scene.file("b")), ("one".to_owned(), "two".to_owned()));
    let asks = scene.asks();
    let by: Vec<_> = asks.iter().map(|ask| (ask.body["model"].as_str().unwrap_or_default(), ask.turn)).collect();
    assert_eq!(by, [("m", 1), ("m", 2), ("other", 2), ("other", 3)]);
    assert_eq!(asks[1].parts, asks[2].parts, "it is asked the same, in its own API");
    assert_eq!(scene.step("a")["agent"]["model"], "other", "{}", scene.step("a"));
}

/// A model that refuses gives way as well, in each API; without another one its words are the failure of the step, and it is not asked again.
#[test]
fn a_refusal_gives_way_to_the_next_model() {
    let other = "  other: {api: chat, base_url: '{url}', model: other, window: 50000}";
    let asked = |scene: &Scene| scene.asks().iter().map(|ask| ask.body["model"].to_string()).collect::<Vec<_>>();
    for api in APIS {
        let scene = || {
            Scene::with(api, "", other, |ask| match ask.body["model"].as_str() {
                Some("m") => ask.refuses("I will not write that."),
                _ => ask.completes(json!("done")),
            })
        };
        let mut agent = goal(&["write_file"]);
        let alone = scene();
        assert_eq!(run(&alone, &["write_file"]).code, 30, "{api}");
        assert_eq!(
            failure(&alone),
            "MODEL_REFUSED: The model `m`, or the filter of its server, refuses. It says: I will not write that.",
            "{api}"
        );
        assert_eq!(asked(&alone), [r#""m""#], "{api}: it is asked once");
        assert_eq!(alone.file("a"), "", "{api}: nothing that it wants is done");
        agent["fallback"] = json!(["other"]);
        let with_another = scene();
        assert_eq!(with_another.run(&agent, &json!({}), &[]).code, 0, "{api}");
        assert_eq!(asked(&with_another), [r#""m""#, r#""other""#], "{api}");
    }
}

/// B-35: where a model may cost more than is left, the next one is asked; and a model of which nothing is known is refused with its place.
#[test]
fn a_cheaper_model_takes_over_where_the_budget_ends() {
    let other = "  other: {api: chat, base_url: '{url}', model: other, window: 50000, price: {input: 0, output: 0}}";
    let price = "price: {input: 1000, output: 1000}, ";
    let scene = Scene::with("chat", price, other, |ask| match ask.turn {
        1 => ask.calls("write_file", json!({"path": "a", "content": "one"})),
        _ => ask.completes(json!("done")),
    });
    let mut agent = goal(&["write_file"]);
    agent["fallback"] = json!(["other"]);
    let more = |follows: &str| json!({"budget": {"cost": 1.0, "on_exhausted": follows}});
    let ended = scene.run(&agent, &more("next_fallback"), &["-o", "text"]);
    assert_eq!((ended.code, scene.file("a")), (0, "one".to_owned()), "{ended:?}");
    assert!(scene.asks().iter().all(|ask| ask.body["model"] == "other"), "m may cost more than a dollar");
    let failed = Scene::with("chat", price, other, |ask| ask.completes(json!(1)));
    assert_eq!(failed.run(&agent, &more("fail"), &[]).code, 30);
    assert!(failed.asks().is_empty());
    agent["fallback"] = json!(["othre"]);
    let refused = failed.home.run(["plan", "validate", &failed.plan(&agent, &json!({})), "--config", "config.yaml"]);
    let talk = format!("{}{}", refused.out, refused.talk);
    assert!(talk.contains("agent.fallback[0]") && talk.contains("did you mean `other`?"), "{talk}");
}

/// B-35: a budget in money needs the price of every model that may be asked: one that is missing is named before anything runs.
#[test]
fn a_price_that_is_missing_is_named() {
    let scene = Scene::new(|ask| ask.completes(json!(1)));
    let plan = scene.plan(&goal(&[]), &json!({"budget": {"cost": 1.0}}));
    let refused = scene.home.run(["plan", "validate", &plan, "--config", "config.yaml"]);
    let talk = format!("{}{}", refused.out, refused.talk);
    assert!(talk.contains("steps[0].agent.model") && talk.contains("add `models.m.price`"), "{talk}");
    assert_ne!(refused.code, 0);
    let ended = scene.run(&goal(&[]), &json!({"budget": {"cost": 1.0}}), &[]);
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(scene.asks().is_empty(), "the model is asked nothing");
}

/// Arguments that are nested as deep as they may be are those of a call; deeper ones go back, and take no other call with them.
#[test]
fn arguments_are_nested_as_deep_as_can_be_read_again() {
    let scene = Scene::new(|ask| {
        let nested = |levels: usize| format!("{{\"output\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        match ask.turn {
            1 => ask.writes(
                "",
                &[("noop", nested(123)), ("noop", nested(124)), ("noop", nested(126)), ("noop", nested(99_999))],
            ),
            _ => ask.completes(json!(1)),
        }
    });
    let agent = json!({"model": "m", "task": "Do it.", "tools": ["noop"]});
    let config = fs::read_to_string(scene.home.path("config.yaml")).unwrap();
    scene.home.file("config.yaml", config.replace("window: 100000", "window: 1000000"));
    assert_eq!(scene.run(&agent, &json!({}), &[]).code, 0);
    let asks = scene.asks();
    let told = asks[1].told();
    assert!(told[0].starts_with("[[[") && told.len() == 4, "{told:?}");
    assert!(
        told[1..].iter().all(|told| told.starts_with("Nothing was called: ") && told.contains("nested")),
        "{told:?}"
    );
}

/// A task that says nothing once it is known is no task.
#[test]
fn a_task_that_turns_out_to_be_empty_is_not_asked() {
    let scene = Scene::new(|ask| ask.completes(json!(1)));
    let steps = json!([
        {"id": "l", "tool": "noop", "arguments": {"output": " \n"}},
        {"id": "a", "agent": {"model": "m", "task": "${l.result}"}, "depends_on": ["l"]},
    ]);
    let plan = scene.home.file("plan.json", json!({"id": "p", "steps": steps}).to_string());
    assert_eq!(scene.home.run(scene.words(&plan, &[])).code, 30);
    assert!(failure(&scene).starts_with("INVALID_ARGUMENTS: `agent.task`"), "{}", failure(&scene));
    assert!(scene.asks().is_empty());
}

/// A precondition is asked once, before the model is.
#[test]
fn a_model_is_not_asked_before_the_preconditions_hold() {
    let scene = Scene::new(|ask| if ask.turn == 1 { ask.runs("rm ready") } else { ask.completes(json!(1)) });
    let more = json!({"preconditions": [{"command": ["test", "-e", "ready"]}]});
    scene.home.file("policy.yaml", "terminal_commands: auto\nfile_delete: auto\n");
    assert_eq!(scene.run(&goal(&["run_terminal"]), &more, &[]).code, 30);
    assert!(failure(&scene).starts_with("PRECONDITION_FAILED: ") && scene.asks().is_empty(), "{}", failure(&scene));
    fs::write(scene.home.path("w/ready"), "").unwrap();
    let retried = scene.home.run(["executions", "retry", "x", "--config", "config.yaml"]);
    assert_eq!((retried.code, scene.asks().len()), (0, 2), "{retried:?}");
}

/// A model that the settings do not have any more fails the step, and nothing that was done is lost.
#[test]
fn a_model_that_is_gone_from_the_settings_fails_the_step() {
    let scene = Scene::new(|ask| match ask.turn {
        1 => ask.runs("echo 1 >> log"),
        _ => held(ask.completes(json!(1)), 50),
    });
    let home = &scene.home;
    let serve = || home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
    let server = serve();
    let plan = scene.plan(&goal(&["run_terminal"]), &json!({}));
    assert_eq!(home.run(["run", &plan, "--workspace", "w", "--id", "x", "--detach"]).code, 0);
    until_asked(&scene.server, 2);
    server.kill();
    fs::write(home.path("config.yaml"), "{}").unwrap();
    let _server = serve();
    assert_eq!(home.run(["executions", "watch", "x"]).code, 30);
    assert!(failure(&scene).starts_with("MODEL_NOT_FOUND: "), "{}", failure(&scene));
    assert_eq!((scene.file("log").as_str(), scene.asks().len()), ("1\n", 2));
}

/// A command that has no end is one whose time is over: the model hears of that at once, and may give it more time, or do something else.
#[test]
fn a_command_whose_time_is_over_is_not_run_again() {
    let scene = Scene::new(|ask| match ask.turn {
        1 => ask.calls("run_terminal", json!({"command": ["sleep", "60"], "timeout_ms": 100})),
        _ => ask.completes(json!(1)),
    });
    assert_eq!(run(&scene, &["run_terminal"]).code, 0);
    let told = told(&scene);
    assert!(told[1].starts_with("TIMEOUT: "), "{}", told[1]);
    assert_eq!(count(&scene.home.events("x"), "toolCallRequested", "a~1"), 1);
}
