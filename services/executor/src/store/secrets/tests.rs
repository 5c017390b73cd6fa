use belay_proto::v1::execution_event::Kind;
use belay_proto::v1::payload::Content;
use serde_json::{Value, json};

use super::{hide::hide, *};

const UID: &str = "0123456789abcdefghjk";

fn sealer(master_key: u8) -> Sealer {
    Sealer { redactor: Redactor::new(), master_key: MasterKey::new([master_key; 32]) }
}

fn message(sequence: i64, kind: Kind) -> v1::ExecutionEvent {
    v1::ExecutionEvent { sequence, step_id: "token-refresh".to_owned(), kind: Some(kind), ..Default::default() }
}

fn payload(value: &Value) -> Option<v1::Payload> {
    Some(v1::Payload { content: Some(Content::Json(value.to_string())) })
}

fn created() -> v1::ExecutionEvent {
    let tool = v1::ToolStep {
        tool: "read_file".into(),
        arguments: Some(v1::Payload::of_json(json!({"path": "src/main.rs"}).to_string())),
        ..Default::default()
    };
    let step = v1::StepSpec {
        id: "a".into(),
        title: "Read it".into(),
        kind: Some(v1::step_spec::Kind::Tool(tool)),
        ..Default::default()
    };
    let plan = v1::Plan { id: "p".into(), description: "Reads a file".into(), steps: vec![step], ..Default::default() };
    let created = v1::ExecutionCreated { uid: UID.into(), plan: Some(plan), ..Default::default() };
    message(1, Kind::ExecutionCreated(Box::new(created)))
}

fn requested(sequence: i64, arguments: &Value) -> v1::ExecutionEvent {
    let arguments = payload(arguments);
    message(sequence, Kind::ToolCallRequested(v1::ToolCallRequested { arguments, ..Default::default() }))
}

fn completed(sequence: i64, result: &Value) -> v1::ExecutionEvent {
    let result = payload(result);
    message(sequence, Kind::ToolCallCompleted(v1::ToolCallCompleted { result, ..Default::default() }))
}

fn sealed(sealer: &Sealer, secrets: &mut Secrets, messages: &mut [v1::ExecutionEvent]) -> SealedEvents {
    sealer.seal(secrets, UID, messages, &|| [9; 32])
}

fn content(message: &v1::ExecutionEvent) -> &str {
    let payload = match message.kind.as_ref().unwrap() {
        Kind::ToolCallRequested(requested) => &requested.arguments,
        Kind::ToolCallCompleted(completed) => &completed.result,
        other => panic!("{other:?} has no payload"),
    };
    let Some(Content::Json(text)) = payload.as_ref().unwrap().content.as_ref() else { panic!("it is JSON") };
    text
}

/// The common case is one scan of each text: nothing is parsed, copied or sealed.
#[test]
fn a_message_without_secrets_is_scanned_once_in_place() {
    let sealer = sealer(1);
    let before = vec![
        created(),
        message(2, Kind::ExecutionStarted(v1::ExecutionStarted {})),
        message(3, Kind::StepStarted(v1::StepStarted {})),
        requested(4, &json!({"path": "src/main.rs", "start_line": 1})),
        completed(5, &json!({"content": "fn main() {\n\tprintln!(\"hello\");\n}\n", "lines": 3})),
        message(6, Kind::StepCompleted(v1::StepCompleted::default())),
    ];
    let (mut texts, mut looked_at_closely) = (0, 0);
    for message in &mut before.clone() {
        message.texts(&mut |text| {
            texts += 1;
            looked_at_closely += match text {
                Text::Words(words) | Text::Schema(words) => usize::from(sealer.redactor.may_hide(words)),
                Text::Value(value) => usize::from(sealer.redactor.may_hide_value(value)),
                Text::Json(json) => usize::from(sealer.redactor.may_hide_json(json)),
                Text::Labels(labels) => labels.len(),
            };
        });
    }
    assert_eq!((texts, looked_at_closely), (10, 0));

    let mut after = before.clone();
    let places = [content(&after[3]).as_ptr(), content(&after[4]).as_ptr()];
    let mut secrets = sealer.secrets();
    let SealedEvents { transition, new_key } = sealed(&sealer, &mut secrets, &mut after);
    assert_eq!([content(&after[3]).as_ptr(), content(&after[4]).as_ptr()], places);
    assert_eq!((after, transition.sealed, new_key), (before.clone(), None, None));
    assert_eq!(wire::decode_bytes(&transition.shown).unwrap(), before);
}

/// The code that visits an event's texts is generated from the marks in the contract. The list that was kept by hand lacked these paths.
#[test]
fn secrets_in_the_paths_that_a_commit_left_out_are_hidden() {
    let sealer = sealer(1);
    let secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let receipt = v1::Receipt { left_out: vec!["pipe".into(), format!("{secret} (a socket)")], ..Default::default() };
    let call = v1::ToolCallCompleted { receipt: Some(Box::new(receipt)), ..Default::default() };
    let mut messages = vec![message(1, Kind::ToolCallCompleted(call))];
    let shown = sealed(&sealer, &mut sealer.secrets(), &mut messages).transition.shown;
    assert!(!String::from_utf8_lossy(&shown).contains(secret), "{messages:?}");
    assert!(String::from_utf8_lossy(&shown).contains("[REDACTED] (a socket)"), "{messages:?}");
}

#[test]
fn sealed_secrets_are_restored_and_stay_hidden() {
    let sealer = sealer(1);
    let (mut secrets, mut first) =
        (sealer.secrets(), vec![created(), requested(2, &json!({"password": "zebra-umbrella"}))]);
    let mut second = vec![completed(3, &json!({"done": true})), completed(4, &json!({"said": "hello zebra-umbrella"}))];
    let originals = [first.clone(), second.clone()].concat();
    let one = sealed(&sealer, &mut secrets, &mut first);
    let two = sealed(&sealer, &mut secrets, &mut second);
    assert_eq!(content(&first[1]), r#"{"password":"[REDACTED]"}"#);
    assert_eq!(content(&second[1]), r#"{"said":"hello [REDACTED]"}"#, "a known secret is hidden everywhere");
    assert!(one.new_key.is_some() && two.new_key.is_none(), "an execution has one key");

    let transitions = [one.transition, two.transition];
    let (opened, mut secrets) = sealer.open(&transitions, one.new_key.as_deref()).unwrap();
    assert_eq!(opened, originals);
    let mut third = vec![completed(5, &json!(["zebra-umbrella"]))];
    let three = sealed(&sealer, &mut secrets, &mut third);
    assert_eq!(
        (content(&third[0]), three.new_key),
        (r#"["[REDACTED]"]"#, None),
        "also after a replay, with the same key"
    );

    let refusal = |sealer: &Sealer, transitions: &[Transition], key: Option<Vec<u8>>| {
        sealer.open(transitions, key.as_deref()).err().expect("it is refused")
    };
    let key = one.new_key.clone();
    assert!(matches!(refusal(&self::sealer(2), &transitions, key.clone()), SecretsError::KeyLost));
    assert!(matches!(refusal(&sealer, &transitions, None), SecretsError::KeyLost));
    let [mut one, two] = transitions;
    one.sealed = two.sealed.clone();
    assert!(matches!(refusal(&sealer, &[one], key), SecretsError::Changed(1, NotOpened::NotAuthentic)));
}

#[test]
fn a_secret_is_hidden_in_earlier_text_of_the_same_event() {
    let (sealer, mut secrets) = (sealer(1), sealer(1).secrets());
    let mut messages = [completed(1, &json!({"log": "logged in with zebra-umbrella", "password": "zebra-umbrella"}))];
    sealed(&sealer, &mut secrets, &mut messages);
    assert_eq!(content(&messages[0]), r#"{"log":"logged in with [REDACTED]","password":"[REDACTED]"}"#);
}

#[test]
fn any_number_of_secrets_stays_known() {
    let (sealer, mut secrets) = (sealer(1), sealer(1).secrets());
    let many: Vec<Value> = (0..600).map(|n| json!({"password": format!("secret number {n:03}")})).collect();
    let mut messages = [
        completed(1, &json!(many)),
        completed(2, &json!({"password": "short"})),
        completed(3, &json!("short")),
        completed(4, &json!("secret number 000, secret number 599")),
    ];
    sealed(&sealer, &mut secrets, &mut messages);
    assert!(!content(&messages[0]).contains("secret number"), "each is hidden where its name tells");
    assert_eq!(content(&messages[2]), r#""short""#);
    assert_eq!(content(&messages[3]), r#""[REDACTED], [REDACTED]""#);
}

#[test]
fn the_working_directory_is_not_a_secret() {
    let (sealer, mut secrets) = (sealer(1), sealer(1).secrets());
    let mut messages = [
        completed(1, &json!({"stdout": "HOME=/tmp/home\nPWD=/workspace\nSHLVL=1\n"})),
        completed(2, &json!({"stdout": "PWD='/workspace'\ndeclare -x PWD=\"/workspace\"\n"})),
        completed(3, &json!({"stdout": "/workspace/src/main.c:3: error\n/workspace\n"})),
    ];
    let before = messages.clone();
    sealed(&sealer, &mut secrets, &mut messages);
    assert_eq!(messages, before);
}

// A value that is hidden apart from its driver: what it tells is hidden from then on, and what was learned meanwhile may stand in it.
#[test]
fn a_fork_tells_what_it_has_learned_and_is_outdated_by_what_it_has_not() {
    let sealer = sealer(1);
    let mut secrets = sealer.secrets();
    let mut fork = secrets.fork();
    let value = Json::from_text(r#"{"password": "zebra-umbrella-7"}"#);
    assert!(fork.blob("uid", &value, &|| [2; 32]).reference.redacted);
    assert!(secrets.own_key().is_none(), "nothing that is stored was sealed with it");
    assert!(secrets.agrees(&fork));
    secrets.join(fork);
    assert!(secrets.own_key().is_some());
    assert_eq!(secrets.shown("it was zebra-umbrella-7".into()), "it was [REDACTED]");

    let fork = secrets.fork();
    secrets.learn(vec!["giraffe-teapot-9".into()]);
    assert!(!secrets.agrees(&fork), "its value may have giraffe-teapot-9");

    let (mut secrets, plain) = (sealer.secrets(), Json::from_text("[1, 2]"));
    let mut forks = [secrets.fork(), secrets.fork()];
    forks.iter_mut().for_each(|fork| drop(fork.blob("uid", &plain, &|| [2; 32])));
    let [first, second] = forks;
    secrets.join(first);
    assert!(!secrets.agrees(&second), "it was sealed with a key of its own");
    assert!(secrets.agrees(&secrets.fork()));
}

#[test]
fn text_that_is_not_json_is_redacted_as_text() {
    let mut text = "{\"password\": \"zebra-umbrella-7\"".to_owned();
    let mut found = Vec::new();
    assert!(hide(&Redactor::new(), Text::Json(&mut text), &mut found));
    assert_eq!((text.as_str(), found), ("{\"password\": \"[REDACTED]\"", vec!["zebra-umbrella-7".to_owned()]));
}

/// Length-delimited events, the first of them with these bytes at its end.
fn with_more(shown: &[u8], more: &[u8]) -> Vec<u8> {
    let mut rest = shown;
    let length = prost::decode_length_delimiter(&mut rest).unwrap();
    let (first, others) = rest.split_at(length);
    let mut bytes = Vec::new();
    prost::encode_length_delimiter(length + more.len(), &mut bytes).unwrap();
    [&bytes, first, more, others].concat()
}

/// B-21: a newer version's execution was carried out without what this version does not know, or called corrupt, with the advice to put a backup
/// in the place of good data.
#[test]
fn what_a_newer_version_stored_is_not_read_and_not_called_corrupt() {
    let sealer = sealer(1);
    let status = |transition: Transition| {
        let opened = sealer.open(&[transition], None).map(drop);
        let status = tonic::Status::from(opened.unwrap_err());
        (belay_service_kit::status::reason(&status).unwrap(), status.message().to_owned())
    };
    let stored = sealed(&sealer, &mut sealer.secrets(), &mut [created()]).transition;
    assert!(sealer.open(std::slice::from_ref(&stored), None).is_ok());

    // The plan's first step with a condition in field 500; field 20 of an event is its creation, whose field 2 is the plan.
    let condition = [0xa2, 0x1f, 5, b'f', b'a', b'l', b's', b'e'];
    let within = |number: u8, bytes: &[u8]| [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let kind = [0x52, 0];
    let created_again = within(2, &within(3, &[&kind[..], &condition].concat()));
    let field_20 = [&[0xa2, 0x01, u8::try_from(created_again.len()).unwrap()], created_again.as_slice()].concat();
    let newer = Transition { shown: with_more(&stored.shown, &field_20), ..stored.clone() };
    let (reason, message) = status(newer);
    assert_eq!(reason, "STORE_NEWER", "{message}");
    assert!(message.contains("event 1: `execution_created.plan.steps[0]`: field 500 of "), "{message}");

    // An event of a kind that is not known.
    let kind_2000 = [0x82, 0x7d, 0];
    let (reason, message) = status(Transition { shown: with_more(&stored.shown, &kind_2000), ..stored.clone() });
    assert_eq!(reason, "STORE_NEWER", "{message}");
    let (reason, message) = status(Transition { version: wire::VERSION + 1, ..stored.clone() });
    assert_eq!(reason, "STORE_NEWER", "{message}");

    let (reason, message) = status(Transition { version: wire::OLDEST_VERSION - 1, ..stored.clone() });
    assert_eq!(reason, "STORE_OLDER", "{message}");

    let cut = stored.shown[..stored.shown.len() - 1].to_vec();
    let (reason, message) = status(Transition { shown: cut, ..stored.clone() });
    assert_eq!(reason, "STORE_CORRUPT", "{message}");
    let (reason, message) = status(Transition { shown: with_more(&stored.shown, &[0x0b]), ..stored });
    assert_eq!(reason, "STORE_CORRUPT", "{message}");
}

/// Values that a schema marks have no form of their own: they are stored sealed with the events that they were learned with, in no other place, and
/// known again when those are read.
#[test]
fn marked_values_are_hidden_and_known_again_after_they_are_read() {
    let sealer = sealer(1);
    let mut secrets = sealer.secrets();
    secrets.mark(vec!["4711".into(), "Waldfee7".into(), String::new()]);
    let mut first = [created(), requested(2, &json!({"pin": "4711", "text": "the word Waldfee7, and 4711"}))];
    let SealedEvents { transition, new_key } = sealed(&sealer, &mut secrets, &mut first);
    assert_eq!(content(&first[1]), json!({"pin": "[REDACTED]", "text": "the word [REDACTED], and 4711"}).to_string());
    assert!(!transition.shown.windows(8).any(|bytes| bytes == b"Waldfee7"));

    let (opened, mut again) = sealer.open(std::slice::from_ref(&transition), new_key.as_deref()).unwrap();
    assert_eq!(content(&opened[1]), json!({"pin": "4711", "text": "the word Waldfee7, and 4711"}).to_string());
    assert!(first.iter().chain(&opened).all(|message| message.secrets.is_empty()), "no reader gets them");
    for secrets in [&mut secrets, &mut again] {
        let mut next = [completed(3, &json!(["4711", "Waldfee7", "47110"]))];
        let SealedEvents { transition, .. } = sealed(&sealer, secrets, &mut next);
        assert_eq!(content(&next[0]), json!(["[REDACTED]", "[REDACTED]", "47110"]).to_string());
        assert!(transition.sealed.is_some());
    }
    // A value that is known already adds nothing.
    secrets.mark(vec!["4711".into()]);
    let mut plain = [message(4, Kind::StepStarted(v1::StepStarted {}))];
    assert!(sealed(&sealer, &mut secrets, &mut plain).transition.sealed.is_none());
}
