//! Artifacts of executions, their origins, and the audit logs, also after losses and retries.

use std::fs;

use belay_e2e::{
    Client, Service, Services,
    client::{name, retry},
};
use belay_grant::digest_of;
use belay_proto::v1::{
    self, Artifact, AuditLevel, artifact::Kind, audit_entry::Severity, committed_file::Type, execution::State,
    path_change,
};
use tonic::Code;

const POLICY: &str = "{terminal_commands: auto, file_write: auto, file_delete: auto}";

/// A step writes files, another uses its output by a template, a third is skipped.
const PLAN: &str = "
id: three
audit_level: standard
steps:
  - id: write
    tool: run_terminal
    arguments: {command: [sh, -c, 'mkdir out && printf one > out/a.txt && printf two > out/b.txt && echo made']}
  - {id: read, tool: write_file, arguments: {path: out/a.txt, content: 'it was ${write.result.stdout}'}}
  - {id: never, tool: noop, depends_on: [read], condition: '${read.state} == \"FAILED\"'}
";

async fn artifacts(client: &Client, request: v1::ListArtifactsRequest) -> Vec<Artifact> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListArtifactsRequest { page_token, ..request.clone() };
        let page = retry(|| async { client.raw().list_artifacts(request.clone()).await }).await.unwrap();
        all.extend(page.artifacts);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

async fn all_of(client: &Client, id: &str) -> Vec<Artifact> {
    artifacts(client, v1::ListArtifactsRequest { parent: name(id), page_size: 2, ..Default::default() }).await
}

async fn audit(client: &Client, id: &str, level: AuditLevel) -> Vec<v1::AuditEntry> {
    let request = v1::ListAuditEntriesRequest { parent: name(id), level: level.into(), ..Default::default() };
    let page = retry(|| async { client.raw().list_audit_entries(request.clone()).await }).await.unwrap();
    assert_eq!(page.next_page_token, "", "all of it");
    page.entries
}

async fn lineage(client: &Client, of: &Artifact) -> v1::GetProvenanceResponse {
    let request = v1::GetProvenanceRequest { name: of.name.clone(), ..Default::default() };
    retry(|| async { client.raw().get_provenance(request.clone()).await }).await.unwrap()
}

async fn content(client: &Client, of: &str, offset: i64) -> Result<(Option<Artifact>, Vec<u8>), tonic::Status> {
    let request = v1::GetArtifactRequest { name: of.to_owned(), offset };
    let mut pieces = client.raw().get_artifact(request).await?.into_inner();
    let (mut artifact, mut bytes) = (None, Vec::new());
    while let Some(piece) = pieces.message().await? {
        artifact = artifact.or(piece.artifact);
        bytes.extend(piece.data);
    }
    Ok((artifact, bytes))
}

fn named<'a>(artifacts: &'a [Artifact], step: &str, path: &str) -> &'a Artifact {
    artifacts.iter().rfind(|found| found.step_id == step && found.path == path).expect("there is one")
}

fn names(artifacts: &[Artifact]) -> Vec<&str> {
    artifacts.iter().map(|artifact| artifact.name.as_str()).collect()
}

/// S3-04, S3-14, S3-16, S2-X-29, S2-NFR-014, S4-10, S4-13, S4-22, S4-31: every output and every file is an artifact with its step, call, digest and what it derives from;
/// the lineage both ways is one query; the audit log has the start, the end and every step; and all of it is the same after every service was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifacts_lineage_and_audit_log_are_whole_and_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::under(folder.path(), POLICY).await;
    let client = Client::new(&services.socket());
    let workspace = services.workspace("three");
    client.start_in("three", PLAN, &workspace).await;
    assert_eq!(client.watch_to_the_end("three").await.state(), Some(State::Completed));

    let all = all_of(&client, "three").await;
    let brief = |found: &Artifact| (found.step_id.clone(), found.path.clone(), found.change());
    let expected = [
        ("write", "out", path_change::Kind::Created),
        ("write", "out/a.txt", path_change::Kind::Created),
        ("write", "out/b.txt", path_change::Kind::Created),
        ("write", "", path_change::Kind::Unspecified),
        ("read", "out/a.txt", path_change::Kind::Modified),
        ("read", "", path_change::Kind::Unspecified),
    ]
    .map(|(step, path, change)| (step.to_owned(), path.to_owned(), change));
    assert_eq!(all.iter().map(brief).collect::<Vec<_>>(), expected, "the step that was skipped has made nothing");
    let (first, second) = (named(&all, "write", "out/a.txt"), named(&all, "read", "out/a.txt"));
    assert_eq!((first.digest.clone(), first.size_bytes, first.file_type()), (digest_of(b"one"), 3, Type::File));
    assert_eq!(named(&all, "write", "out").file_type(), Type::Directory);
    let on_disk = fs::read(workspace.join("out/a.txt")).unwrap();
    assert_eq!(String::from_utf8_lossy(&on_disk), "it was made\n");
    assert_eq!((second.digest.clone(), second.size_bytes), (digest_of(&on_disk), 12));
    assert_eq!(second.tool_call, format!("{}/steps/read/calls/1.1", name("three")));

    // What is returned is what the digest is over, from any offset on.
    let (write, read) = (named(&all, "write", ""), named(&all, "read", ""));
    for output in [write, read] {
        let (artifact, bytes) = content(&client, &output.name, 0).await.unwrap();
        assert_eq!((artifact.as_ref(), bytes.len() as i64), (Some(output), output.size_bytes));
        assert_eq!((digest_of(&bytes), output.media_type.as_str()), (output.digest.clone(), "application/json"));
        let (_, rest) = content(&client, &output.name, 3).await.unwrap();
        assert_eq!(rest, bytes[3..]);
        let (artifact, nothing) = content(&client, &output.name, output.size_bytes).await.unwrap();
        assert_eq!((artifact.as_ref(), nothing.len()), (Some(output), 0));
        let beyond = content(&client, &output.name, output.size_bytes + 1).await.unwrap_err();
        assert_eq!(beyond.code(), Code::OutOfRange);
    }
    let not_kept = content(&client, &first.name, 0).await.unwrap_err();
    assert_eq!(not_kept.code(), Code::FailedPrecondition);
    assert!(not_kept.message().contains("out/a.txt") && not_kept.message().contains(&first.digest), "{not_kept}");
    for missing in ["999", "1", "x", "007", &format!("{}.9", first.sequence)] {
        let missing = format!("{}/artifacts/{missing}", name("three"));
        assert_eq!(content(&client, &missing, 0).await.unwrap_err().code(), Code::NotFound, "{missing}");
        let request = v1::GetProvenanceRequest { name: missing, ..Default::default() };
        assert_eq!(client.raw().get_provenance(request).await.unwrap_err().code(), Code::NotFound);
    }

    // The output of `read` and its file derive from the output of `write`, and its file from the one that it replaced.
    let of_write = lineage(&client, write).await;
    assert_eq!((of_write.artifact.as_ref(), of_write.ancestors.len()), (Some(write), 0));
    assert_eq!(names(&of_write.descendants), [second.name.as_str(), &read.name]);
    let of_second = lineage(&client, second).await;
    assert_eq!(names(&of_second.ancestors), [first.name.as_str(), &write.name]);
    assert_eq!(names(&lineage(&client, first).await.descendants), [second.name.as_str()]);
    assert_eq!(second.derives_from, [write.name.clone(), first.name.clone()]);

    let entries = audit(&client, "three", AuditLevel::Unspecified).await;
    let minimal = audit(&client, "three", AuditLevel::Minimal).await;
    let verbose = audit(&client, "three", AuditLevel::Verbose).await;
    assert_eq!(entries, audit(&client, "three", AuditLevel::Standard).await, "the plan says so");
    let messages = |entries: &[v1::AuditEntry]| entries.iter().map(|entry| entry.message.clone()).collect::<Vec<_>>();
    assert!(minimal.len() < entries.len() && entries.len() < verbose.len(), "{:?}", messages(&verbose));
    assert!(minimal.iter().all(|entry| entries.contains(entry)) && entries.iter().all(|entry| verbose.contains(entry)));
    assert_eq!(verbose.len() as i64, verbose.last().unwrap().sequence, "an entry for each event");
    for log in [&minimal, &entries] {
        assert_eq!(log.iter().filter(|entry| entry.message == "Execution started").count(), 1);
        assert!(log.last().unwrap().message.starts_with("Execution completed after "), "{:?}", messages(log));
        for step in ["write", "read", "never"] {
            let end = log.iter().rfind(|entry| entry.step_id == step).expect("every step has an entry");
            assert_eq!(end.level(), AuditLevel::Minimal, "{}", end.message);
        }
    }
    assert!(messages(&entries).iter().any(|message| message == "Step `write` started"));
    let skipped = entries.iter().find(|entry| entry.step_id == "never").unwrap();
    assert!(skipped.message.starts_with("Step `never` skipped: its condition does not hold"), "{}", skipped.message);
    assert_eq!(entries[0].principal, "person:owner", "who started it");

    for service in Service::ALL {
        services.kill(service).await;
    }
    for service in Service::ALL {
        services.restart(service).await;
    }
    services.ready().await;
    assert_eq!(all_of(&client, "three").await, all);
    assert_eq!(lineage(&client, second).await, of_second);
    assert_eq!(lineage(&client, write).await, of_write);
    assert_eq!(audit(&client, "three", AuditLevel::Verbose).await, verbose);
    let request = v1::ListArtifactsRequest {
        parent: format!("{}/steps/write", name("three")),
        kind: Kind::File.into(),
        path_prefix: "out/".into(),
        ..Default::default()
    };
    assert_eq!(artifacts(&client, request).await, all[1..3]);
}

/// S3-14, S3-15, S4-22: an execution that is retried keeps the artifacts of both attempts, and its log has the failure of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_keeps_the_artifacts_of_both_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::under(folder.path(), POLICY).await;
    let client = Client::new(&services.socket());
    let workspace = services.workspace("twice");
    let plan = "
id: twice
steps:
  - {id: first, tool: run_terminal, arguments: {command: [sh, -c, 'echo x >> log.txt; wc -l < log.txt']}}
  - id: second
    tool: run_terminal
    arguments: {command: [sh, -c, 'test -e allowed && echo ${first.result.stdout}']}
    retry: {max_attempts: 2, backoff: [10ms]}
";
    client.start_in("twice", plan, &workspace).await;
    assert_eq!(client.watch_to_the_end("twice").await.state(), Some(State::Partial));
    let before = all_of(&client, "twice").await;
    let log = audit(&client, "twice", AuditLevel::Standard).await;
    let of_second: Vec<_> = log.iter().filter(|entry| entry.step_id == "second").collect();
    let severities: Vec<_> = of_second.iter().map(|entry| (entry.severity(), entry.attempt)).collect();
    assert_eq!(
        severities,
        [(Severity::Info, 1), (Severity::Warn, 1), (Severity::Info, 2), (Severity::Error, 2)],
        "{of_second:?}"
    );
    assert!(of_second[1].details.contains(r#""delayMs":10"#), "{}", of_second[1].details);
    assert!(of_second[3].message.starts_with("Step `second` failed after 2 attempts: "), "{}", of_second[3].message);
    let last = log.last().unwrap();
    assert_eq!((last.severity(), last.message.starts_with("Execution ended in part after ")), (Severity::Warn, true));

    fs::write(workspace.join("allowed"), "").unwrap();
    let request = v1::RetryExecutionRequest { name: name("twice"), from_step: "first".into(), ..Default::default() };
    client.raw().retry_execution(request).await.unwrap();
    let wait = v1::WaitExecutionRequest { name: name("twice"), ..Default::default() };
    let ended = client.raw().wait_execution(wait).await.unwrap().into_inner();
    assert_eq!(ended.state(), State::Completed);

    let after = all_of(&client, "twice").await;
    assert_eq!(after[..before.len()], before, "what was made stays");
    let outputs = |step: &str| -> Vec<&Artifact> {
        after.iter().filter(|found| found.step_id == step && found.kind() == Kind::Output).collect()
    };
    let (first, second) = (outputs("first"), outputs("second"));
    assert_eq!(first.iter().map(|output| output.attempt).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(second.iter().map(|output| output.attempt).collect::<Vec<_>>(), [3]);
    assert_eq!(second[0].derives_from, [first[1].name.clone()], "of the attempt that it has read");
    let files: Vec<&Artifact> = after.iter().filter(|found| found.path == "log.txt").collect();
    assert_eq!(
        files.iter().map(|file| file.digest.clone()).collect::<Vec<_>>(),
        [digest_of(b"x\n"), digest_of(b"x\nx\n")]
    );
    assert_eq!(files[1].derives_from, [files[0].name.clone()], "it appends to what the first attempt wrote");
    let asked = audit(&client, "twice", AuditLevel::Minimal).await;
    assert!(asked.iter().any(|entry| entry.message.ends_with("to run again") && !entry.principal.is_empty()));
}

/// An output of more than 32 KiB is streamed in pieces; its digest is that of its blob.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_output_is_streamed() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "{id: large, steps: [{id: a, tool: noop, arguments: {output: {x: OUTPUT}}}, {id: b, tool: noop, arguments: {output: ['${a.result.x}', '${a.result.x}', '${a.result.x}', '${a.result.x}', '${a.result.x}', '${a.result.x}', '${a.result.x}', '${a.result.x}']}}]}";
    client.start("large", &plan.replace("OUTPUT", &"y".repeat(30_000))).await;
    assert_eq!(client.watch_to_the_end("large").await.state(), Some(State::Completed));
    let all = all_of(&client, "large").await;
    let large = named(&all, "b", "");
    assert!(large.digest.starts_with("hmac-sha256:") && large.size_bytes > 240_000, "{large:?}");
    let (artifact, bytes) = content(&client, &large.name, 0).await.unwrap();
    assert_eq!((artifact.as_ref(), bytes.len() as i64), (Some(large), large.size_bytes));
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(value[7].as_str().map(str::len), Some(30_000));
    assert_eq!(content(&client, &large.name, 200_001).await.unwrap().1, bytes[200_001..]);
}
