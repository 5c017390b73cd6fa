//! Artifacts and the audit log of an execution, with a scripted runner.

use belay_proto::v1::{self, AuditLevel, artifact::Kind};
use serde_json::json;
use tonic::Code;

use crate::support::*;

async fn list(executor: &Executor, parent: &str, page_size: i32) -> Vec<v1::Artifact> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let request =
            v1::ListArtifactsRequest { parent: parent.to_owned(), page_size, page_token, ..Default::default() };
        let page = executor.client.clone().list_artifacts(request).await.unwrap().into_inner();
        all.extend(page.artifacts);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

async fn audit(executor: &Executor, parent: &str, level: AuditLevel, page_size: i32) -> Vec<v1::AuditEntry> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListAuditEntriesRequest {
            parent: parent.to_owned(),
            page_size,
            page_token,
            level: level.into(),
            ..Default::default()
        };
        let page = executor.client.clone().list_audit_entries(request).await.unwrap().into_inner();
        all.extend(page.entries);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

/// S3-14, S3-15: pages of every size are the same list, also from the journal alone; failures and discarded calls are in the log, and made nothing.
#[tokio::test]
async fn artifacts_and_entries_are_the_same_on_pages_of_every_size() {
    let world = World::new().await;
    let executor = world.executor().await;
    world.runner.set(|seen| {
        seen.conflicts.insert("b".into(), 2);
        seen.results.insert("c".into(), json!({"text": "x".repeat(40_000)}));
    });
    let name = executor.run("a: fails_once; b after a; c after b").await;
    executor.end(&name).await;
    let all = list(&executor, &name, 0).await;
    let brief: Vec<_> = all.iter().map(|found| (found.step_id.as_str(), found.attempt, found.kind())).collect();
    assert_eq!(brief, [("a", 2, Kind::Output), ("b", 1, Kind::Output), ("c", 1, Kind::Output)]);
    assert_eq!(all[1].tool_call, format!("{name}/steps/b/calls/1.3"), "the call that was not discarded");
    assert_eq!(all[2].derives_from, [all[1].name.clone()]);
    assert!(all[2].digest.starts_with("hmac-sha256:") && all[2].size_bytes > 40_000, "{:?}", all[2]);
    let log = audit(&executor, &name, AuditLevel::Verbose, 0).await;
    let warned = |log: &[v1::AuditEntry], word: &str| log.iter().any(|entry| entry.message.contains(word));
    assert!(warned(&log, "is tried again after") && warned(&log, "was discarded"), "{log:?}");
    for page_size in [1, 2, 7] {
        assert_eq!(list(&executor, &name, page_size).await, all, "{page_size}");
        assert_eq!(audit(&executor, &name, AuditLevel::Verbose, page_size).await, log, "{page_size}");
    }
    assert_eq!(list(&executor, &format!("{name}/steps/b"), 1).await, all[1..2]);
    let of_b = audit(&executor, &format!("{name}/steps/b"), AuditLevel::Verbose, 0).await;
    assert!(!of_b.is_empty() && of_b.iter().all(|entry| entry.step_id == "b" && log.contains(entry)));

    executor.kill().await;
    let executor = world.executor().await;
    assert_eq!(list(&executor, &name, 0).await, all);
    assert_eq!(audit(&executor, &name, AuditLevel::Verbose, 0).await, log);
}

/// S4-31: a decision names the person who made it; it is in the shortest log.
#[tokio::test]
async fn a_decision_is_in_the_audit_log_with_its_principal() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.decide(&approval.name, v1::approval::State::Denied, "not now");
    executor.end(&name).await;
    let log = audit(&executor, &name, AuditLevel::Minimal, 0).await;
    let decided = log.iter().find(|entry| entry.message == "Step `a` denied: not now").expect("it is there");
    assert!(!decided.principal.is_empty(), "{decided:?}");
    assert!(decided.details.contains(&approval.name), "{decided:?}");
    assert!(audit(&executor, &name, AuditLevel::Standard, 0).await.len() > log.len());
    assert_eq!(list(&executor, &name, 0).await, [], "what was denied has made nothing");
}

#[tokio::test]
async fn requests_that_are_wrong_are_refused_by_field() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a").await;
    executor.end(&name).await;
    for (parent, page_size, page_token, field) in [
        ("", 0, "", "parent: "),
        ("namespaces/default/executions/x/steps/", 0, "", "parent: "),
        (&name, -1, "", "page_size: "),
        (&name, 0, "soon", "page_token: "),
    ] {
        let (parent, page_token) = (parent.to_owned(), page_token.to_owned());
        let of = v1::ListArtifactsRequest { parent, page_size, page_token, ..Default::default() };
        let entries = v1::ListAuditEntriesRequest {
            parent: of.parent.clone(),
            page_size,
            page_token: of.page_token.clone(),
            ..Default::default()
        };
        let refused = executor.client.clone().list_artifacts(of).await.unwrap_err();
        let log_refused = executor.client.clone().list_audit_entries(entries).await.unwrap_err();
        for refused in [refused, log_refused] {
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
            assert!(refused.message().starts_with(field), "{refused}");
        }
    }
    let of_none = v1::ListArtifactsRequest { parent: format!("{name}/steps/b"), ..Default::default() };
    assert_eq!(executor.client.clone().list_artifacts(of_none).await.unwrap_err().code(), Code::NotFound);
    for (artifact, offset, max, code) in [
        (name.clone(), 0, 0, Code::InvalidArgument),
        (format!("{name}/artifacts/"), 0, 0, Code::InvalidArgument),
        (format!("{name}/artifacts/1/2"), 0, 0, Code::InvalidArgument),
        (format!("{name}/artifacts/4x"), 0, 0, Code::NotFound),
        (format!("{name}/artifacts/5"), -1, -1, Code::InvalidArgument),
    ] {
        let get = v1::GetArtifactRequest { name: artifact.clone(), offset };
        assert_eq!(executor.client.clone().get_artifact(get).await.err().map(|status| status.code()), Some(code));
        let provenance = v1::GetProvenanceRequest { name: artifact, max_artifacts: max };
        let refused = executor.client.clone().get_provenance(provenance).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
}
