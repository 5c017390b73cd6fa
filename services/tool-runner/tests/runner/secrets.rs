//! Secrets in arguments, files, output and results: the ledger and every display hide them, and the executor gets them unredacted.

use belay_reasons::StoreFault;
use std::fs;

use belay_grant::Kind;
use belay_proto::{
    runner_v1::{self, call_tool_response::Event},
    v1::{self, payload::Content, tool_call::State},
};
use belay_redaction::{MasterKey, Redactor};
use belay_sqlite::{Location, SqliteError, Threads};
use belay_tool_runner::{Ledger, LedgerError, Registry, Secrets};
use serde_json::{Value, json};

use super::support::{ASK, Bench, CHANGE, COMMAND, FREE, KEEP, Runner, SEND, name, state};

/// Found by its shape.
const TOKEN: &str = concat!("ghp_", "Zx81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk");
/// Marked by the schema of the tool.
const PIN: &str = "zebra-umbrella-7";

fn assert_hidden(what: &str, bytes: &[u8]) {
    for secret in [TOKEN, PIN] {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{what} has {secret}: {}", String::from_utf8_lossy(bytes));
    }
}

fn assert_ledger_hides(bench: &Bench) {
    for entry in fs::read_dir(bench.path().join("state")).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            assert_hidden(&entry.file_name().display().to_string(), &fs::read(entry.path()).unwrap());
        }
    }
}

/// A call with a secret argument and scripted steps.
fn request(runner: &Runner, call: &str, tool: &str, todo: Value) -> runner_v1::CallToolRequest {
    let mut request = runner.request(call, tool, json!([]));
    let arguments = json!({"do": todo, "pin": PIN}).to_string();
    request.arguments = Some(v1::Payload { content: Some(Content::Json(arguments)) });
    request
}

pub(crate) fn result(call: &runner_v1::ToolCall) -> String {
    match call.result.as_ref().and_then(|payload| payload.content.as_ref()) {
        Some(Content::Json(json)) => json.clone(),
        other => panic!("{other:?} is not a result"),
    }
}

/// S2-FR-037, S2-FR-077a, S2-X-16: a result is stored sealed, and returned unchanged after a crash.
#[tokio::test]
async fn the_executor_gets_the_result_that_the_ledger_seals() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let request = request(&runner, "s", KEEP, json!([["answer", format!("{TOKEN} and {PIN}")]]));
    let ended = runner.call(request.clone()).await.unwrap();
    assert_eq!(result(&ended), json!(format!("{TOKEN} and {PIN}")).to_string());
    assert_ledger_hides(&bench);
    runner.lose().await;

    let runner = bench.start(FREE).await;
    assert_eq!(runner.get("s").await.unwrap(), ended, "unchanged");
    assert_eq!(runner.call(request).await.unwrap(), ended);
}

/// B-03, S2-FR-077a: an approval hides secrets in arguments and names; the contents are unredacted, so that their digests match.
#[tokio::test]
async fn a_waiting_call_keeps_its_secrets_sealed() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let path = format!("{TOKEN}.txt");
    let todo = json!([["write", path, format!("token = {TOKEN}\n")], ["answer", TOKEN]]);
    let held = runner.call(request(&runner, "s", CHANGE, todo)).await.unwrap();
    assert_eq!(state(&held), State::AwaitingApproval);
    assert_ledger_hides(&bench);
    runner.lose().await;

    let runner = bench.start(ASK).await;
    let (subject, bytes, contents) = runner.effect("s").await.unwrap();
    assert_hidden("the subject", &bytes);
    assert_eq!((subject.kind, subject.changes[0].path.as_str()), (Kind::Effect, "[REDACTED].txt"));
    assert_eq!(contents[&subject.changes[0].after], format!("token = {TOKEN}\n").as_bytes());

    let ended = runner.commit("s", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!((state(&ended), result(&ended)), (State::Completed, json!(TOKEN).to_string()));
    let receipt = ended.receipt.unwrap();
    assert_eq!((&receipt.effect.unwrap().changes[0].path, &receipt.files[0].path), (&path, &path));
    assert_eq!(receipt.files[0].digest, belay_grant::digest_of(bench.text(&path).as_bytes()));
    assert_eq!(bench.text(&path), format!("token = {TOKEN}\n"));
    assert_ledger_hides(&bench);
}

/// S2-FR-077a: what the policy judged is recorded as it is, and hidden where the ledger shows it.
#[tokio::test]
async fn the_recorded_intent_of_a_call_is_sealed_where_it_has_secrets() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let paths = vec![format!("./sub//{TOKEN}"), "other".to_owned()];
    let arguments = json!({"do": [["write", "f", "x"]], "paths": paths}).to_string();
    let mut call = request(&runner, "s", COMMAND, json!([]));
    call.arguments = Some(v1::Payload::of_json(arguments));
    let ended = runner.call(call).await.unwrap();
    let intent = ended.receipt.unwrap().intent.unwrap();
    assert_eq!((intent.command, intent.program), (vec!["do".to_owned()], "do".to_owned()));
    assert_eq!((intent.paths, intent.is_cut), (vec![format!("sub/{TOKEN}"), "other".to_owned()], false));
    assert_ledger_hides(&bench);
}

/// Opens the ledger of the bench, with its key or another.
fn open_ledger(bench: &Bench, key: u8) -> Result<Ledger, LedgerError> {
    let location = Location::file(bench.path().join("state/ledger.db"));
    let registry = Registry::new(Vec::new()).unwrap();
    let secrets = Secrets::new(Redactor::new(), MasterKey::new([key; 32]), registry, || [1; 32]);
    loop {
        match Ledger::open(&location, Threads::Real, secrets.clone(), || "another".into()) {
            // The previous holder has not released the lock yet.
            Err(LedgerError::Store(SqliteError::Fault(StoreFault::Locked))) => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

/// S2-FR-077a: without the key nothing sealed can be opened, and no new key replaces it; with the key restored the runner continues.
#[tokio::test]
async fn a_ledger_with_a_lost_key_says_what_to_restore() {
    let bench = Bench::new();
    drop(open_ledger(&bench, 7).unwrap());
    drop(open_ledger(&bench, 8).expect("nothing in it is sealed, so the old key is not needed"));
    let runner = bench.start(ASK).await;
    let todo = json!([["write", "a", TOKEN], ["answer", TOKEN]]);
    let held = runner.call(request(&runner, "s", CHANGE, todo)).await.unwrap();
    assert_eq!(state(&held), State::AwaitingApproval);
    runner.lose().await;

    let refused = open_ledger(&bench, 9).unwrap_err();
    assert!(matches!(refused, LedgerError::KeyLost), "{refused:?}");
    let message = refused.to_string();
    for part in ["ledger.db were sealed", "seal.key: restore that file from a backup", "move ledger.db away"] {
        assert!(message.contains(part), "{message}");
    }

    let runner = bench.start(ASK).await;
    let ended = runner.commit("s", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!((state(&ended), result(&ended)), (State::Completed, json!(TOKEN).to_string()));
}

#[tokio::test]
async fn the_approval_of_a_call_shows_no_secrets() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    runner.call(request(&runner, "s", SEND, json!([["say", TOKEN]]))).await.unwrap();
    let (subject, bytes, _) = runner.effect("s").await.unwrap();
    assert_eq!(subject.kind, Kind::Call);
    assert_hidden("the subject", &bytes);
    assert_ledger_hides(&bench);
}

/// S2-FR-077a: also for a secret that is written in parts.
#[tokio::test]
async fn output_and_failures_show_no_secrets() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let (first, second) = TOKEN.split_at(20);
    let todo = json!([["say", format!("a {first}")], ["say", format!("{second} b {PIN}")], ["fail", TOKEN]]);
    let mut events = runner.client.clone().call_tool(request(&runner, "s", KEEP, todo)).await.unwrap().into_inner();
    let (mut output, mut ended) = (String::new(), None);
    while let Some(message) = events.message().await.unwrap() {
        match message.event.unwrap() {
            Event::Output(chunk) => output += &chunk.text,
            Event::Result(call) => ended = Some(call),
            Event::Started(_) | Event::Held(_) | Event::Waiting(_) | Event::Asking(_) => {}
        }
    }
    assert_eq!(output, "a [REDACTED] b [REDACTED]");
    assert_eq!(ended.unwrap().failure.unwrap().message, "failed as scripted: [REDACTED]");
    assert_eq!(runner.get("s").await.unwrap().name, name("s"));
    assert_ledger_hides(&bench);
}
