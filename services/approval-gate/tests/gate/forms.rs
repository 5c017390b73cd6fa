//! Forms: asked in one inbox with approvals, answered once, and kept no longer than needed.

use std::fs;

use belay_defects::{Defect, assert_attack_needs};
use belay_grant::digest_of;
use belay_proto::{
    gate_v1::{self, watch_decisions_response::Content},
    v1::{self, Approval, Decision, approval::State, approval_need::Kind},
};
use belay_service_kit::{Principal, Role, Service};
use serde_json::{Value, json};
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

use crate::support::*;

/// The refusal of what an executor asks that another has replaced.
fn fenced() -> (Code, String) {
    (Code::FailedPrecondition, "FENCED".to_owned())
}

fn form_with(schema: Value) -> gate_v1::CreateApprovalRequest {
    // `serde_json` sorts the members, as canonical JSON does.
    let form = json!({"title": "Which version?", "description": "Say it.", "schema": schema}).to_string().into_bytes();
    gate_v1::CreateApprovalRequest {
        call: "namespaces/default/executions/e/steps/ask/calls/1.1".into(),
        subject_digest: digest_of(&form),
        requested_by: "person:planner".into(),
        approval_mode: v1::ApprovalMode::Wait.into(),
        form,
        ..Default::default()
    }
}

fn form() -> gate_v1::CreateApprovalRequest {
    form_with(json!({
        "type": "object",
        "required": ["version"],
        "additionalProperties": false,
        "properties": {"version": {"type": "string", "pattern": "^[0-9.]+$"}, "pin": {"type": "integer"}},
    }))
}

impl World {
    async fn create(&self, form: gate_v1::CreateApprovalRequest) -> Result<Approval, Status> {
        self.executor.services().create_approval(form).await.map(Response::into_inner)
    }

    /// The state and the answer of a form, as the executor receives them.
    async fn delivered(&self) -> Option<(State, Option<String>)> {
        let mut watch = self
            .executor
            .services()
            .watch_decisions(gate_v1::WatchDecisionsRequest::default())
            .await
            .unwrap()
            .into_inner();
        let message = watch.message().await.unwrap().unwrap();
        let answer = message.answer.and_then(|answer| match answer.content {
            Some(v1::payload::Content::Json(text)) => Some(text),
            _ => None,
        });
        match message.content.unwrap() {
            Content::Approval(approval) => Some((approval.state(), answer)),
            Content::Heartbeat(_) => None,
        }
    }

    async fn acknowledge(&self, approval: &Approval) {
        self.acknowledge_as(0, &[approval]).await.unwrap();
    }

    /// Creates the form for the executor with this fencing token.
    async fn create_as(&self, fencing_token: i64, form: gate_v1::CreateApprovalRequest) -> Result<Approval, Status> {
        self.create(gate_v1::CreateApprovalRequest { fencing_token, ..form }).await
    }

    /// Acknowledges the decisions of these approvals for the executor with this fencing token.
    async fn acknowledge_as(&self, fencing_token: i64, approvals: &[&Approval]) -> Result<(), Status> {
        let delivered = approvals.iter().map(|approval| approval.name.clone()).collect();
        let request = gate_v1::AcknowledgeApprovalsRequest { delivered, fencing_token, ..Default::default() };
        self.executor.services().acknowledge_approvals(request).await.map(drop)
    }

    /// How many answers the store has.
    fn answer_rows(&self) -> i64 {
        let store = rusqlite::Connection::open(self.folder.join("gate.db")).unwrap();
        store.query_row("SELECT count(*) FROM answer", [], |row| row.get(0)).unwrap()
    }

    /// Whether one of the store's files has these bytes.
    fn is_on_disk(&self, needle: &str) -> bool {
        fs::read_dir(&self.folder).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            let is_store = path.file_name().unwrap().to_string_lossy().starts_with("gate.db");
            is_store && fs::read(path).unwrap().windows(needle.len()).any(|bytes| bytes == needle.as_bytes())
        })
    }
}

async fn answer(client: &Client, form: &Approval, answer: Value, request_id: &str) -> Result<Approval, Status> {
    let request = v1::AnswerFormRequest {
        name: form.name.clone(),
        subject_digest: form.subject_digest.clone(),
        answer: Some(v1::Payload::of_json(answer.to_string())),
        request_id: request_id.into(),
    };
    client.people().answer_form(request).await.map(Response::into_inner)
}

#[test]
fn a_form_is_asked_in_one_inbox_with_approvals() {
    world("", async |world| {
        let approval = world.ask(&effect("a")).await;
        let asked = world.create(form()).await.unwrap();
        assert_eq!(world.create(form()).await.unwrap(), asked, "creating it is idempotent");
        assert_eq!((asked.kind(), asked.operation.as_str()), (Kind::Form, "Which version?"));
        assert!(asked.form.is_none() && asked.subject.is_empty(), "a list does not carry it");
        let request = v1::ListApprovalsRequest { parent: "namespaces/default".into(), ..Default::default() };
        let listed = world.person.people().list_approvals(request).await.unwrap().into_inner().approvals;
        let names: Vec<&str> = listed.iter().map(|approval| approval.name.as_str()).collect();
        assert_eq!(names, [approval.name.as_str(), asked.name.as_str()]);
        let shown = world.get(&asked.name).await;
        assert_eq!(digest_of(&shown.subject), shown.subject_digest);
        let shown = shown.form.unwrap();
        assert_eq!((shown.title.as_str(), shown.description.as_str()), ("Which version?", "Say it."));
        let changes = v1::ListApprovalChangesRequest { name: asked.name.clone(), ..Default::default() };
        assert_eq!(refusal(world.person.people().list_approval_changes(changes).await).1, "CHANGE_NOT_FOUND");
        let grant = gate_v1::GetGrantRequest { approval: asked.name.clone() };
        assert_eq!(refusal(world.executor.services().get_grant(grant).await).1, "NOT_APPROVED");
    });
}

#[test]
fn a_form_that_is_none_is_refused() {
    world("", async |world| {
        let other = gate_v1::CreateApprovalRequest { subject_digest: digest_of(b"other"), ..form() };
        assert_eq!(world.create(other).await.unwrap_err().code(), Code::InvalidArgument);
        for schema in [json!({"type": 7}), json!({"$ref": "#"})] {
            let refused = world.create(form_with(schema)).await.unwrap_err();
            assert!(refused.message().starts_with("form: its schema is not a JSON Schema"), "{refused}");
        }
    });
}

#[test]
fn an_answer_matches_the_schema() {
    world("", async |world| {
        let asked = world.create(form()).await.unwrap();
        let refused =
            answer(&world.person, &asked, json!({"version": "one", "pin": "x", "more": 1}), "").await.unwrap_err();
        assert_eq!(refusal(Err::<(), _>(refused.clone())), (Code::InvalidArgument, "ANSWER_INVALID".into()));
        let mut fields: Vec<_> =
            refused.get_details_bad_request().unwrap().field_violations.into_iter().map(|it| it.field).collect();
        fields.sort();
        assert_eq!(fields, ["answer", "answer/pin", "answer/version"]);
        let long = json!({"version": "1".repeat(40_000)});
        assert!(answer(&world.person, &asked, long, "").await.unwrap_err().message().starts_with("answer.json: has "));
        let refused = answer(&world.person, &asked, json!({"version": "1"}), &"ü".repeat(129)).await.unwrap_err();
        assert!(refused.message().starts_with("request_id: has more than 128 characters"), "{refused}");
        let unsaid = v1::AnswerFormRequest { name: asked.name.clone(), ..Default::default() };
        assert!(
            world.person.people().answer_form(unsaid).await.unwrap_err().message().starts_with("answer: is required")
        );
        assert_eq!(world.get(&asked.name).await.state(), State::Pending);
        let seen = Approval { subject_digest: digest_of(b"other"), ..asked.clone() };
        let refused = answer(&world.person, &seen, json!({"version": "1"}), "").await;
        assert_eq!(refusal(refused), (Code::FailedPrecondition, "DIGEST_MISMATCH".into()));
        let longest = json!({"version": "1".repeat(32 * 1024 - r#"{"version":""}"#.len())});
        let answered = answer(&world.person, &asked, longest, &"ü".repeat(128)).await.unwrap();
        assert_eq!((answered.state(), answered.decided_by.as_str()), (State::Answered, "person:owner"));
    });
}

/// Once: a repetition is told by its request id alone, before and after a restart.
#[test]
fn a_form_is_answered_once() {
    let folder = tempfile::tempdir().unwrap();
    let value = || json!({"version": "1.2"});
    let (asked, answered) = life(folder.path(), "", async |world| {
        let asked = world.create(form()).await.unwrap();
        let answered = answer(&world.person, &asked, value(), "once").await.unwrap();
        (asked, answered)
    });
    life(folder.path(), "", async |world| {
        assert_eq!(answer(&world.person, &asked, value(), "once").await.unwrap(), answered);
        let reused = answer(&world.person, &asked, json!({"version": "1.3"}), "once").await;
        assert_eq!(refusal(reused), (Code::AlreadyExists, "REQUEST_ID_REUSED".into()));
        for id in ["", "twice"] {
            let again = answer(&world.person, &asked, value(), id).await;
            assert_eq!(refusal(again), (Code::FailedPrecondition, "ALREADY_DECIDED".into()));
        }
        assert_eq!(world.delivered().await, Some((State::Answered, Some(value().to_string()))));
    });
}

#[test]
fn who_may_decide_may_answer_also_what_they_started() {
    world("approvals: {separate_duties: true}", async |world| {
        let asked = world.create(form()).await.unwrap();
        let value = || json!({"version": "1"});
        let viewer = world.client_for(&Principal::person("viewer", [Role::Viewer, Role::Planner]));
        assert_eq!(answer(&viewer, &asked, value(), "").await.unwrap_err().code(), Code::PermissionDenied);
        let service = world.client_for(&Principal::Service(Service::Executor));
        assert!(answer(&service, &asked, value(), "").await.is_err(), "a service answers nothing");
        let approve = decide(&world.person, &asked, Decision::Approve).await;
        assert_eq!(refusal(approve), (Code::FailedPrecondition, "FORM_NEEDS_ANSWER".into()));
        let planner = world.client_for_person("planner");
        assert_eq!(answer(&planner, &asked, value(), "").await.unwrap().decided_by, "person:planner");
        let approval = world.ask(&effect("a")).await;
        let answered = answer(&world.person, &approval, value(), "").await;
        assert_eq!(refusal(answered), (Code::FailedPrecondition, "NO_FORM".into()));
        let cancelled = world.create(form_with(json!({}))).await.unwrap();
        let cancel = gate_v1::CancelApprovalRequest { name: cancelled.name.clone(), ..Default::default() };
        world.executor.services().cancel_approval(cancel).await.unwrap();
        assert_eq!(refusal(answer(&world.person, &cancelled, value(), "").await).1, "ALREADY_DECIDED");
    });
}

/// S2-FR-077a: an answer may be a secret. It lies sealed in the store, and only until the executor has stored it.
#[test]
fn an_answer_is_kept_sealed_until_it_is_acknowledged() {
    world("", async |world| {
        let asked = world.create(form()).await.unwrap();
        answer(&world.person, &asked, json!({"version": "7.7.7777777"}), "a").await.unwrap();
        assert!(!world.is_on_disk("7.7.7777777"));
        let shown = world.get(&asked.name).await;
        assert!(!format!("{shown:?}").contains("7.7.7777777"), "people see who answered, not what");
        assert!(world.delivered().await.is_some(), "until it is acknowledged");
        world.acknowledge(&asked).await;
        assert_eq!(world.delivered().await, None);
        assert_eq!(world.answer_rows(), 0);
        let same = answer(&world.person, &asked, json!({"version": "7.7.7777777"}), "a").await.unwrap();
        assert_eq!(same.state(), State::Answered, "the repetition of the request changes nothing");
    });
}

/// B-08: an executor that another has replaced does not have a person asked again for the answer that the other has stored.
#[test]
fn an_executor_that_was_replaced_asks_nobody_again() {
    assert_attack_needs(Defect::GateTakesReplaced, "a person is asked again", || {
        world("", async |world| {
            let asked = world.create_as(7, form()).await.unwrap();
            answer(&world.person, &asked, json!({"version": "1"}), "a").await.unwrap();
            world.acknowledge_as(8, &[&asked]).await.unwrap();
            let again = world.create_as(7, form()).await;
            if world.get(&asked.name).await.state() == State::Pending {
                return Err("a person is asked again".to_owned());
            }
            assert_eq!(
                again.as_ref().unwrap_err().message(),
                "Another executor owns the execution now: fencing token 7 is older than 8. Nothing was changed."
            );
            assert_eq!(refusal(again), fenced());
            Ok(())
        })
    });
}

/// B-08: nor does it withdraw what the other waits for, or take for stored what the other has not.
#[test]
fn an_executor_that_was_replaced_changes_nothing() {
    world("", async |world| {
        let cancel = async |approval: &Approval, fencing_token| {
            let request = gate_v1::CancelApprovalRequest { name: approval.name.clone(), fencing_token };
            world.executor.services().cancel_approval(request).await
        };
        let asked = world.create_as(7, form()).await.unwrap();
        assert_eq!(world.create_as(8, form()).await.unwrap(), asked, "the other needs it");
        assert_eq!(refusal(cancel(&asked, 7).await), fenced());
        assert_eq!(refusal(cancel(&asked, 0).await), fenced(), "one without a token is older than all");
        assert_eq!(world.get(&asked.name).await.state(), State::Pending);

        answer(&world.person, &asked, json!({"version": "1"}), "a").await.unwrap();
        let only_its_own = world.create_as(7, form_with(json!({"type": "integer"}))).await.unwrap();
        answer(&world.person, &only_its_own, json!(3), "b").await.unwrap();
        assert_eq!(refusal(world.acknowledge_as(7, &[&only_its_own, &asked]).await), fenced());
        assert_eq!(world.answer_rows(), 2, "all or none");
        world.acknowledge_as(7, &[&only_its_own]).await.unwrap();
        world.acknowledge_as(9, &[&only_its_own, &asked]).await.unwrap();
        assert_eq!(world.answer_rows(), 0);
        assert_eq!(refusal(world.acknowledge_as(8, &[&asked]).await), fenced());
    });
}

/// An executor that asks for an answer that it has acknowledged has lost it with its journal: a person is asked again.
#[test]
fn a_form_whose_answer_was_lost_is_asked_again() {
    world("", async |world| {
        let asked = world.create(form()).await.unwrap();
        let value = || json!({"version": "1"});
        answer(&world.person, &asked, value(), "a").await.unwrap();
        assert_eq!(world.create(form()).await.unwrap().state(), State::Answered, "the watch delivers it");
        world.acknowledge(&asked).await;
        let again = world.create(form()).await.unwrap();
        assert_eq!((again.state(), again.decided_by.as_str()), (State::Pending, ""));
        assert_eq!(world.delivered().await, None);
        let answered = answer(&world.person, &asked, value(), "a").await.unwrap();
        assert_eq!(answered.state(), State::Answered, "the id of the lost answer is free again");
        assert_eq!(world.delivered().await, Some((State::Answered, Some(value().to_string()))));
    });
}

/// B-26: a deleted execution takes the answers to its forms with it.
#[test]
fn a_forgotten_execution_leaves_no_answer() {
    world("", async |world| {
        let asked = world.create(form()).await.unwrap();
        answer(&world.person, &asked, json!({"version": "1"}), "").await.unwrap();
        let request = gate_v1::ForgetExecutionsRequest { executions: vec![asked.execution.clone()] };
        world.executor.services().forget_executions(request).await.unwrap();
        assert_eq!(world.answer_rows(), 0);
        assert_eq!(refusal(answer(&world.person, &asked, json!({"version": "1"}), "").await).1, "APPROVAL_NOT_FOUND");
    });
}
