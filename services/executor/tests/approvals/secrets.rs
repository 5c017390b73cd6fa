//! Secrets reach the tools that need them, and nothing that is stored or shown.

use std::{fs, path::Path};

use aho_corasick::AhoCorasick;
use belay_proto::v1::{self, approval::State, start_execution_request::Source, watch_execution_response::Content};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::{Executor, World};

/// A secret in each of some formats, in pieces so that no scanner takes this file for a leak. The last three are secrets only by what they
/// are called where they stand first.
fn planted() -> Vec<String> {
    [
        ["AKIA", "FAKE0FAKE1BELAY2"],
        ["ghp_", "FAKE0fake1Belay2Not3Real4FAKE0fake1B"],
        ["glpat-", "FAKE0fake1Belay2Not3"],
        ["AIza", "FAKE0fake1Belay2Not3Real4FAKE0fake1"],
        ["hvs.", "FAKE0fake1Belay2Not3Real4FAKE0fake1Belay2"],
        ["dapi", "3456789abcdef0123456789abcdef012"],
        ["npm_", "FAKE0fake1Belay2Not3Real4FAKE0fake1B"],
        ["correct ", "horse battery"],
        ["zebra-", "umbrella"],
        ["plain", "looking"],
    ]
    .map(|parts| parts.concat())
    .to_vec()
}

/// A secret as programs spell it.
fn spellings(secret: &str) -> Vec<Vec<u8>> {
    let hex = |format: fn(u8) -> String| secret.bytes().map(format).collect::<String>();
    let url: String =
        secret
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "-_.~".contains(c) {
                    c.to_string()
                } else {
                    format!("%{:02X}", c as u32)
                }
            })
            .collect();
    // Of base64 only what does not depend on its neighbours.
    let base64 = (0..3).map(|offset| {
        let bits: Vec<u8> = secret.bytes().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let whole = bits[(6 - offset * 8 % 6) % 6..].chunks_exact(6);
        whole.map(|six| alphabet[six.iter().fold(0, |sum, bit| sum << 1 | usize::from(*bit))] as char).collect()
    });
    let mut all: Vec<String> =
        vec![secret.to_owned(), hex(|byte| format!("{byte:02x}")), hex(|byte| format!("{byte:02X}")), url];
    all.extend(base64);
    all.into_iter().map(String::into_bytes).collect()
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn assert_clean(what: &str, bytes: &[u8], secrets: &[String]) {
    // All in one pass: a store's files have megabytes.
    let spelled: Vec<(&str, Vec<u8>)> = secrets
        .iter()
        .flat_map(|secret| spellings(secret).into_iter().map(move |spelling| (&**secret, spelling)))
        .collect();
    let search = AhoCorasick::new(spelled.iter().map(|(_, spelling)| spelling)).unwrap();
    if let Some(found) = search.find(bytes) {
        let (secret, spelling) = &spelled[found.pattern().as_usize()];
        panic!("{what} holds {secret} as {}", String::from_utf8_lossy(spelling));
    }
}

/// Every byte of every file in the folder of the journal.
fn assert_stored_clean(state: &Path, secrets: &[String]) {
    let mut seen = 0;
    for file in fs::read_dir(state).unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        seen += bytes.len();
        assert_clean(&path.display().to_string(), &bytes, secrets);
    }
    assert!(seen > 10_000, "the journal was looked at");
}

/// The step whose arguments, title and result hold all the secrets, one that fails with them, one that says them, and one that needs them.
fn plan(secrets: &[String]) -> v1::Plan {
    let all = secrets.join(" ");
    let step = |id: &str, depends_on: &[&str], arguments: Value| v1::StepSpec {
        id: id.to_owned(),
        title: format!("{id} with {all}"),
        depends_on: depends_on.iter().map(|&id| id.to_owned()).collect(),
        kind: Some(v1::step_spec::Kind::Tool(v1::ToolStep {
            tool: "work".into(),
            arguments: Some(v1::Payload::of_json(arguments.to_string())),
            ..Default::default()
        })),
        ..v1::StepSpec::default()
    };
    let named = json!({"password": secrets[7], "env": [{"name": "DB_PASSWORD", "value": secrets[8]}], "list": ["--api-key", secrets[9]]});
    v1::Plan {
        id: "plan".into(),
        description: format!("uses {all}"),
        parallelism: 1,
        steps: vec![
            step(
                "give",
                &[],
                json!({"text": all, "named": named, (secrets[1].as_str()): "a member's name", "says": true}),
            ),
            step(
                "need",
                &["give"],
                json!({"token": "${give.result.key}", "copy": "${give.result.named.password}", "log": "got ${give.result.log}"}),
            ),
            step("held", &["need"], json!({"effect": true, "text": all})),
            step("fail", &["held"], json!({"text": secrets[0]})),
        ],
        ..v1::Plan::default()
    }
}

fn request(secrets: &[String]) -> v1::StartExecutionRequest {
    v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        source: Some(Source::Plan(plan(secrets))),
        labels: [("token".to_owned(), secrets[9].clone()), (secrets[1].clone(), "as a key".to_owned())].into(),
        start_paused: true,
        ..v1::StartExecutionRequest::default()
    }
}

fn play(world: &World, secrets: &[String]) {
    let all = secrets.join(" ");
    world.runner.set(|seen| {
        let result =
            json!({"key": secrets[2], "named": {"password": secrets[7]}, "log": format!("logged in with {all}")});
        seen.results.insert("give".into(), result);
        seen.failures.insert("fail".into(), format!("could not log in with {all}"));
        // Cut in the middle of secrets, and without an end of line.
        let (one, two) = all.split_at(30);
        seen.words.insert("give".into(), vec![format!("saying {one}"), format!("{two}\n"), all.clone()]);
        seen.reason = format!(" because of {all}");
    });
}

/// Everything that a watch brings to the end.
async fn watched(executor: &Executor, name: &str) -> Vec<u8> {
    let mut stream = executor.watch(name, true).await;
    let mut bytes = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        bytes.extend(message.encode_to_vec());
    }
    bytes
}

/// Views derived from events have no more than the events have. A secret that is hidden in the plan hides nothing of what a step derives from
/// (S3-14).
async fn assert_derived_clean(executor: &Executor, name: &str, secrets: &[String]) {
    let mut client = executor.client.clone();
    let request = v1::ListArtifactsRequest { parent: name.to_owned(), ..Default::default() };
    let artifacts = client.list_artifacts(request).await.unwrap().into_inner().artifacts;
    let named = |step: &str| artifacts.iter().find(|artifact| artifact.step_id == step).unwrap();
    assert_eq!(named("need").derives_from, [named("give").name.clone()]);
    for artifact in &artifacts {
        assert_clean("an artifact", &artifact.encode_to_vec(), secrets);
        let request = v1::GetArtifactRequest { name: artifact.name.clone(), offset: 0 };
        let mut pieces = client.get_artifact(request).await.unwrap().into_inner();
        let mut content = Vec::new();
        while let Some(piece) = pieces.message().await.unwrap() {
            content.extend(piece.data);
        }
        assert_clean("the content of an artifact", &content, secrets);
        assert_eq!(belay_execution::digest(&content), artifact.digest);
        let request = v1::GetProvenanceRequest { name: artifact.name.clone(), max_artifacts: 0 };
        let lineage = client.get_provenance(request).await.unwrap().into_inner();
        assert_clean("a lineage", &lineage.encode_to_vec(), secrets);
    }
    let level = v1::AuditLevel::Verbose.into();
    let request =
        v1::ListAuditEntriesRequest { parent: name.to_owned(), level, page_size: 1_000, ..Default::default() };
    let log = client.list_audit_entries(request).await.unwrap().into_inner();
    assert!(log.entries.len() > 20, "{log:?}");
    assert_clean("an audit log", &log.encode_to_vec(), secrets);
    let request = v1::ExplainExecutionRequest { name: name.to_owned() };
    let explained = client.explain_execution(request).await.unwrap().into_inner();
    assert_clean("an explanation", &explained.encode_to_vec(), secrets);
    let request = v1::GetTimelineRequest { name: name.to_owned(), ..Default::default() };
    let timeline = client.get_timeline(request).await.unwrap().into_inner();
    assert!(timeline.rows.len() > 2, "{timeline:?}");
    assert_clean("a timeline", &timeline.encode_to_vec(), secrets);
    let request = v1::CompareExecutionsRequest { before: name.to_owned(), after: name.to_owned() };
    let compared = client.compare_executions(request).await.unwrap().into_inner();
    assert!(compared.equal_steps > 2 && compared.step_changes.is_empty(), "{compared:?}");
    assert_clean("a comparison", &compared.encode_to_vec(), secrets);
}

// S2-FR-077, S2-FR-077a, S2-X-16; REQUIREMENTS section 4, number 10.
#[tokio::test]
async fn secrets_reach_the_tools_and_nothing_else() {
    let secrets = planted();
    let world = World::new().await;
    play(&world, &secrets);
    let executor = world.executor().await;
    let mut client = executor.client.clone();
    let started = client.start_execution(request(&secrets)).await.unwrap().into_inner();
    let name = started.name.clone();
    assert_clean("the answer to a start", &started.encode_to_vec(), &secrets);

    let live = tokio::spawn({
        let (name, executor) = (name.clone(), Executor { child: None, client: executor.client.clone() });
        async move { watched(&executor, &name).await }
    });
    let until_watched = async { executor.watch(&name, true).await.message().await.unwrap() };
    until_watched.await;
    executor.resume(&name).await;
    let approval = world.gate.pending_approval("held").await;
    let waiting = executor.until(&name, "the wait", |execution| !execution.waiting.is_empty()).await;
    assert_clean("an execution that waits", &waiting.encode_to_vec(), &secrets);
    world.gate.decide(&approval.name, State::Approved, &format!("yes, with {}", secrets[1]));
    let ended = executor.end(&name).await;
    assert_eq!(ended.state(), v1::execution::State::Partial, "the last step fails: {ended:?}");

    // The tools had the real values, also the step that has them from another one's result.
    let arguments = world.runner.seen().arguments;
    let of = |step: &str| &arguments[&format!("{name}/steps/{step}/calls/1.1")];
    assert_eq!(of("give")["text"], json!(secrets.join(" ")));
    assert_eq!((&of("need")["token"], &of("need")["copy"]), (&json!(secrets[2]), &json!(secrets[7])));

    let live = live.await.unwrap();
    assert!(holds(&live, b"saying ") && holds(&live, b"[REDACTED]"), "the output was heard");
    assert_clean("a live watch", &live, &secrets);
    assert_clean("a watch afterwards", &watched(&executor, &name).await, &secrets);
    assert_clean("an execution", &ended.encode_to_vec(), &secrets);
    for step in executor.steps(&name, 2).await {
        assert_clean("a step", &step.encode_to_vec(), &secrets);
        assert_eq!(executor.step(&name, &step.step_id).await.unwrap(), step);
    }
    assert_derived_clean(&executor, &name, &secrets).await;
    let waited = v1::WaitExecutionRequest { name: name.clone(), longest_wait: None };
    assert_clean("a wait", &client.wait_execution(waited).await.unwrap().into_inner().encode_to_vec(), &secrets);
    let list = v1::ListExecutionsRequest {
        filter: format!("labels.token = \"{}\"", secrets[9]),
        parent: "namespaces/default".to_owned(),
        ..Default::default()
    };
    let list = client.list_executions(list).await.unwrap().into_inner();
    assert_eq!(list.executions.len(), 1, "a label is found by what it was");
    assert_clean("a list", &list.encode_to_vec(), &secrets);
    assert_stored_clean(&world.folder.path().join("state"), &secrets);
}

#[tokio::test]
async fn a_check_and_a_refusal_show_no_secret() {
    let secrets = planted();
    let world = World::new().await;
    let executor = world.executor().await;
    let mut client = executor.client.clone();
    let check = |plan| v1::ValidatePlanRequest {
        parent: "namespaces/default".into(),
        source: Some(v1::validate_plan_request::Source::Plan(plan)),
    };
    let checked = client.validate_plan(check(plan(&secrets[..]))).await.unwrap().into_inner();
    assert!(checked.violations.is_empty());
    let found_by_shape = &secrets[..7];
    assert_clean("a checked plan", &checked.encode_to_vec(), found_by_shape);

    let mut wrong = plan(&secrets);
    wrong.steps[0].id = secrets[1].clone();
    wrong.steps[1].kind = Some(v1::step_spec::Kind::Tool(v1::ToolStep {
        tool: secrets[2].clone(),
        arguments: Some(v1::Payload::of_json("{}")),
        ..Default::default()
    }));
    let checked = client.validate_plan(check(wrong.clone())).await.unwrap().into_inner();
    assert!(!checked.violations.is_empty());
    assert_clean("violations", &checked.encode_to_vec(), found_by_shape);
    let refused = v1::StartExecutionRequest { source: Some(Source::Plan(wrong)), ..request(&secrets) };
    let refused = client.start_execution(refused).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_clean("a refusal", &[refused.message().as_bytes(), refused.details()].concat(), found_by_shape);
    let label = [(format!("{} {}", secrets[1], "x".repeat(64)), String::new())].into();
    let refused =
        client.start_execution(v1::StartExecutionRequest { labels: label, ..request(&secrets) }).await.unwrap_err();
    assert_clean("a refused label", &[refused.message().as_bytes(), refused.details()].concat(), found_by_shape);
}

// S2-FR-077a: what was sealed is there for the steps that come after a restart, and hidden as before.
#[tokio::test]
async fn an_execution_with_secrets_goes_on_after_a_kill() {
    let secrets = planted();
    let world = World::new().await;
    play(&world, &secrets);
    let executor = world.executor().await;
    let mut request = request(&secrets);
    if let Some(Source::Plan(plan)) = &mut request.source {
        let Some(v1::step_spec::Kind::Tool(give)) = &mut plan.steps[0].kind else { unreachable!("steps call tools") };
        // The question comes before the step that gives what another one needs.
        let mut arguments = give.arguments.as_ref().and_then(v1::Payload::as_json).unwrap().to_owned();
        arguments.insert_str(1, "\"prompt_call\":true,");
        give.arguments = Some(v1::Payload::of_json(arguments));
    }
    let name = executor.client.clone().start_execution(request).await.unwrap().into_inner().name;
    executor.resume(&name).await;
    let approval = world.gate.pending_approval("give").await;
    executor.until_awaiting_approval(&name).await;
    executor.kill().await;
    world.gate.approve(&approval.name);
    let executor = world.executor().await;
    let held = world.gate.pending_approval("held").await;
    world.gate.decide(&held.name, State::Denied, &secrets[8]);
    let ended = executor.end(&name).await;
    let arguments = world.runner.seen().arguments;
    assert_eq!(arguments[&format!("{name}/steps/give/calls/1.1")]["named"]["password"], json!(secrets[7]));
    assert_eq!(arguments[&format!("{name}/steps/need/calls/1.1")]["copy"], json!(secrets[7]));
    assert_clean("an execution", &ended.encode_to_vec(), &secrets);
    for step in executor.steps(&name, 2).await {
        assert_clean("a step", &step.encode_to_vec(), &secrets);
        assert_eq!(executor.step(&name, &step.step_id).await.unwrap(), step);
    }
    assert_clean("its events", &watched(&executor, &name).await, &secrets);
    assert_stored_clean(&world.folder.path().join("state"), &secrets);
}

/// An execution with sealed secrets and one without secrets, both waiting for approval, with the executor killed.
async fn two_that_wait(world: &World) -> (String, String) {
    let executor = world.executor().await;
    let mut sealed = crate::support::plan("a: effect; b after a");
    sealed.labels = [("password".to_owned(), "zebra-umbrella".to_owned())].into();
    let sealed = executor.client.clone().start_execution(sealed).await.unwrap().into_inner().name;
    let open = executor.run("c: effect").await;
    for name in [&sealed, &open] {
        executor.until_awaiting_approval(name).await;
    }
    executor.kill().await;
    (sealed, open)
}

async fn refused(executor: &Executor, name: &str) -> (Code, String) {
    let status = executor.get(name).await.unwrap_err();
    (status.code(), belay_service_kit::status::reason(&status).unwrap_or_default())
}

/// The text that the executor's program writes when it cannot start.
async fn start_error(world: &World) -> String {
    let output = Executor::program(world.folder.path()).output().await.unwrap();
    String::from_utf8(output.stderr).unwrap()
}

fn write_key(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// S2-FR-077a: the executor does not start with another key than the one that sealed its journal, and creates none in its place; so nothing
/// is ever sealed with a key that is lost when the right one is put back.
#[tokio::test]
async fn without_the_key_of_its_journal_the_executor_does_not_start() {
    let world = World::new().await;
    world.executor().await.kill().await;
    let key = world.folder.path().join("state/seal.key");
    fs::remove_file(&key).unwrap();
    world.executor().await.kill().await;
    assert!(key.exists(), "nothing is sealed yet, so a new key is as good");
    let (sealed, open) = two_that_wait(&world).await;
    let kept = fs::read_to_string(&key).unwrap();

    fs::remove_file(&key).unwrap();
    let said = start_error(&world).await;
    for part in ["SEAL_KEY_LOST", "seal.key is missing", &sealed, "Put back the seal.key", "--accept-older-store"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!key.exists(), "no new key takes its place");

    // One digit of 64 is another one.
    let other = match kept.strip_suffix("0\n") {
        Some(start) => format!("{start}1\n"),
        None => format!("{}0\n", &kept[..kept.len() - 2]),
    };
    write_key(&key, &other);
    let said = start_error(&world).await;
    assert!(said.contains("SEAL_KEY_LOST") && said.contains("seal.key is not the key of this journal"), "{said}");
    assert_eq!(fs::read_to_string(&key).unwrap(), other);

    write_key(&key, &kept);
    let executor = world.executor().await;
    for (step, name) in [("c", &open), ("a", &sealed)] {
        let approval = world.gate.pending_approval(step).await;
        world.gate.approve(&approval.name);
        executor.assert_completes(name).await;
    }
}

/// B-20: a damaged row says nothing about the key; the next one that is intact does.
#[tokio::test]
async fn a_damaged_key_of_one_execution_does_not_decide_which_key_is_right() {
    let world = World::new().await;
    let (damaged, _) = two_that_wait(&world).await;
    let (sealed, _) = two_that_wait(&world).await;
    let journal = rusqlite::Connection::open(world.folder.path().join("state/journal.db")).unwrap();
    let first = "UPDATE seal_key SET sum = sum + 1 WHERE exec = (SELECT min(exec) FROM seal_key)";
    assert_eq!(journal.execute(first, []).unwrap(), 1);
    drop(journal);
    let executor = world.executor().await;
    assert_eq!(refused(&executor, &damaged).await, (Code::DataLoss, "STORE_CORRUPT".to_owned()));
    assert!(executor.get(&sealed).await.is_ok());
    executor.kill().await;
    fs::remove_file(world.folder.path().join("state/seal.key")).unwrap();
    let said = start_error(&world).await;
    assert!(said.contains("SEAL_KEY_LOST") && said.contains(&sealed), "{said}");
}

#[tokio::test]
async fn what_was_changed_in_a_sealed_part_is_refused() {
    let world = World::new().await;
    let (sealed, open) = two_that_wait(&world).await;
    let journal = rusqlite::Connection::open(world.folder.path().join("state/journal.db")).unwrap();
    // What is sealed is random, so its last byte can be any: the one in its place is always another.
    let changed = "UPDATE log SET sealed = CAST(substr(sealed, 1, length(sealed) - 1)
        || CASE substr(sealed, -1) WHEN x'00' THEN x'01' ELSE x'00' END AS BLOB) WHERE sealed IS NOT NULL";
    assert!(journal.execute(changed, []).unwrap() > 0);
    drop(journal);
    let executor = world.executor().await;
    assert_eq!(refused(&executor, &sealed).await, (Code::DataLoss, "STORE_CORRUPT".to_owned()));
    assert!(executor.get(&open).await.is_ok());
    let mut stream = executor.watch(&open, true).await;
    assert!(matches!(stream.message().await.unwrap().unwrap().content, Some(Content::Snapshot(_))));
}

#[tokio::test]
async fn a_key_that_others_can_read_or_that_is_damaged_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new().await;
    world.executor().await.kill().await;
    let key = world.folder.path().join("state/seal.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let said = start_error(&world).await;
    assert!(said.contains("seal.key has mode 0644, so others may have read it"), "{said}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "0707\n").unwrap();
    let said = start_error(&world).await;
    assert!(said.contains("seal.key is damaged"), "{said}");
}
