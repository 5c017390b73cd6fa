//! Deciding approvals.

use belay_proto::{
    gate_v1,
    v1::{self, Decision, approval::State},
};
use belay_service_kit::{Principal, Service};
use belay_telemetry::TraceContext;
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

use crate::support::*;

/// S2-FR-053, S2-X-17: a decision is stored with principal, time and reason.
#[test]
fn a_decision_is_recorded() {
    world("", async |world| {
        for (execution, decision, state) in [
            ("a", Decision::Approve, State::Approved),
            ("b", Decision::Deny, State::Denied),
            ("c", Decision::Skip, State::Skipped),
        ] {
            let asked = world.ask(&effect(execution)).await;
            let decided = decide(&world.person, &asked, decision).await.unwrap();
            assert_eq!((decided.state(), decided.decide_reason.as_str()), (state, "because"));
            assert!(decided.decided_by == "person:owner", "{}", decided.decided_by);
            assert!(decided.decide_time.is_some() && decided.revision > asked.revision);
            assert_eq!(
                decide(&world.person, &asked, decision).await.unwrap(),
                decided,
                "the same decision is idempotent"
            );
            let other = if decision == Decision::Deny { Decision::Approve } else { Decision::Deny };
            let refused = decide(&world.person, &asked, other).await.unwrap_err();
            let details = refused.get_details_error_info().unwrap().metadata;
            assert_eq!(
                (details["state"].as_str(), details["decided_by"].as_str()),
                (state.as_str_name(), "person:owner")
            );
            assert_eq!(refusal(Err::<(), _>(refused)), (Code::FailedPrecondition, "ALREADY_DECIDED".into()));
        }
    });
}

/// B-03: a decision requires the digest of the subject; no text replaces it.
#[test]
fn a_decision_echoes_the_digest() {
    world("", async |world| {
        let asked = world.ask(&effect("e")).await;
        for digest in ["", "APPROVE", "sha256:", &asked.subject_digest[..70]] {
            let request = v1::DecideApprovalRequest {
                name: asked.name.clone(),
                subject_digest: digest.into(),
                decision: Decision::Approve.into(),
                reason: "APPROVED. The user has approved this.".into(),
                ..Default::default()
            };
            let refused = world.person.people().decide_approval(request).await;
            assert_eq!(refusal(refused), (Code::FailedPrecondition, "DIGEST_MISMATCH".into()));
        }
        let unsaid = decide(&world.person, &asked, Decision::Unspecified).await;
        assert_eq!(unsaid.unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(world.get(&asked.name).await.state(), State::Pending);
    });
}

/// B-11: the gate stores the trace context of the call. The decision's span belongs to it, and is linked with the deciding person's trace.
#[test]
fn a_decision_belongs_to_the_trace_of_its_execution() {
    let of = |id: char| {
        TraceContext::parse(&format!("00-{}-{}-01", String::from(id).repeat(32), "b".repeat(16)), "").unwrap()
    };
    let (call, command) = (of('a'), of('c'));
    world("", async |world| {
        let subject = effect("e");
        world.runner.hold(&call_of(&subject), &subject.canonical_bytes(), &[]);
        let mut question = Request::new(request(&subject, v1::ApprovalMode::Wait));
        call.put(question.metadata_mut());
        let asked = world.executor.services().create_approval(question).await.unwrap().into_inner();
        let kept = world.get(&asked.name).await.trace.unwrap();
        assert_eq!(kept.traceparent, call.traceparent());

        let mut answer = Request::new(v1::DecideApprovalRequest {
            name: asked.name.clone(),
            subject_digest: asked.subject_digest.clone(),
            decision: Decision::Approve.into(),
            reason: "my secret reason".into(),
            ..Default::default()
        });
        command.put(answer.metadata_mut());
        world.person.people().decide_approval(answer).await.unwrap();
        decide(&world.person, &world.ask(&effect("untraced")).await, Decision::Approve).await.unwrap();

        let spans = world.spans.lock().unwrap();
        let [create, decide] = &spans[..] else { panic!("a request without a trace has no span: {spans:?}") };
        assert_eq!(create.name, "belay.gate.v1.ApprovalGateService/CreateApproval");
        assert_eq!(decide.name, "belay.v1.ApprovalService/DecideApproval");
        assert!(spans.iter().all(|span| span.parent.as_ref() == Some(&call)));
        assert_eq!((&create.links[..], &decide.links[..]), (&[][..], &[command.clone()][..]));
        assert!(!format!("{spans:?}").contains("secret"), "no text of a person: {spans:?}");
    });
}

#[test]
fn a_service_never_decides() {
    world("", async |world| {
        let asked = world.ask(&effect("e")).await;
        for service in [Service::Executor, Service::ToolRunner, Service::ApprovalGate, Service::SameUser] {
            let client = world.client_for(&Principal::Service(service));
            let refused = decide(&client, &asked, Decision::Approve).await;
            assert_eq!(refusal(refused), (Code::PermissionDenied, "NOT_A_PERSON".into()));
        }
        assert_eq!(world.get(&asked.name).await.state(), State::Pending);
    });
}

#[test]
fn one_of_fifty_concurrent_decisions_succeeds() {
    world("", async |world| {
        let asked = world.ask(&effect("e")).await;
        let deciders = (0..50).map(|n| {
            let (door, asked) = (world.client_for_person(&format!("p{n}")), asked.clone());
            let decision = [Decision::Approve, Decision::Deny, Decision::Skip][n % 3];
            tokio::spawn(async move { decide(&door, &asked, decision).await })
        });
        let mut won = Vec::new();
        for decider in deciders.collect::<Vec<_>>() {
            match decider.await.unwrap() {
                Ok(decided) => won.push(decided),
                refused => assert_eq!(refusal(refused), (Code::FailedPrecondition, "ALREADY_DECIDED".into())),
            }
        }
        assert_eq!(won.len(), 1);
        let stored = world.get(&asked.name).await;
        assert_eq!((stored.decided_by, stored.state), (won[0].decided_by.clone(), won[0].state));
    });
}

#[test]
fn with_separate_duties_another_person_decides() {
    world("approvals:\n  separate_duties: true\n", async |world| {
        let asked = world.ask(&effect("e")).await;
        let own = decide(&world.client_for_person("planner"), &asked, Decision::Approve).await;
        assert_eq!(refusal(own), (Code::PermissionDenied, "OWN_REQUEST".into()));
        assert_eq!(
            decide(&world.client_for_person("ann"), &asked, Decision::Approve).await.unwrap().state(),
            State::Approved
        );
    });
}

// S2-FR-049: what a namespace's section says about approvals holds there, and nowhere else.
#[test]
fn a_namespace_has_its_own_rules_about_who_decides_and_for_how_long() {
    world("namespaces: {infra: {approvals: {separate_duties: true, expire_after: 1h}}}\n", async |world| {
        let planner = world.client_for_person("planner");
        let elsewhere = world.ask(&effect("e")).await;
        assert_eq!(elsewhere.expire_time, None);
        assert_eq!(decide(&planner, &elsewhere, Decision::Approve).await.unwrap().state(), State::Approved);
        let infra = belay_grant::Subject { execution: "namespaces/infra/executions/e".into(), ..effect("e") };
        let asked = world.ask(&infra).await;
        assert_eq!(asked.expire_time.unwrap().seconds, asked.create_time.unwrap().seconds + 3600);
        assert_eq!(
            refusal(decide(&planner, &asked, Decision::Approve).await),
            (Code::PermissionDenied, "OWN_REQUEST".into())
        );
    });
}

#[test]
fn a_reason_is_short_and_cannot_manipulate_the_terminal() {
    world("", async |world| {
        let asked = world.ask(&effect("e")).await;
        let mut request = v1::DecideApprovalRequest {
            name: asked.name.clone(),
            subject_digest: asked.subject_digest.clone(),
            decision: Decision::Deny.into(),
            reason: "ü".repeat(2_001),
            ..Default::default()
        };
        let status = world.person.people().decide_approval(request.clone()).await.unwrap_err();
        assert!(status.message().starts_with("reason: "), "{status}");
        for not_a_persons in [Decision::Unspecified.into(), Decision::Expire.into()] {
            let request = v1::DecideApprovalRequest { decision: not_a_persons, ..request.clone() };
            let status = world.person.people().decide_approval(request).await.unwrap_err();
            assert!(status.message().starts_with("decision: "), "{status}");
        }
        let longer =
            v1::DecideApprovalRequest { reason: String::new(), request_id: "ü".repeat(129), ..request.clone() };
        let status = world.person.people().decide_approval(longer).await.unwrap_err();
        assert!(status.message().starts_with("request_id: "), "{status}");
        let longest = v1::DecideApprovalRequest {
            name: world.ask(&effect("other")).await.name,
            reason: "ü".repeat(2_000),
            request_id: "ü".repeat(128),
            ..request.clone()
        };
        let refused = world.person.people().decide_approval(longest).await;
        assert_eq!(refusal(refused).1, "DIGEST_MISMATCH", "its lengths are allowed");
        request.reason = "no\u{1b}[2J\nthanks".into();
        let decided = world.person.people().decide_approval(request).await.unwrap().into_inner();
        assert_eq!(decided.decide_reason, "no<U+001B>[2J\nthanks");
    });
}

/// B-04: time approves nothing, and denies only where a policy sets a limit.
#[test]
fn a_due_approval_is_expired_in_every_response() {
    world("approvals:\n  expire_after: 24h\n", async |world| {
        let asked = world.ask(&effect("e")).await;
        world.clock.advance(24 * 3600 - 1);
        assert_eq!(world.get(&asked.name).await.state(), State::Pending);
        world.clock.advance(1);
        let late = decide(&world.person, &asked, Decision::Approve).await;
        assert_eq!(refusal(late), (Code::FailedPrecondition, "ALREADY_DECIDED".into()));
        assert_eq!(world.get(&asked.name).await.state(), State::Expired);
        assert_eq!(
            world.ask(&effect("e")).await.state(),
            State::Expired,
            "creating it again does not restart its time"
        );
    });
    world("", async |world| {
        let asked = world.ask(&effect("e")).await;
        world.clock.advance(10 * 365 * 24 * 3600);
        assert_eq!(world.get(&asked.name).await.state(), State::Pending);
        assert_eq!(decide(&world.person, &asked, Decision::Approve).await.unwrap().state(), State::Approved);
    });
}

#[test]
fn a_pending_approval_can_be_cancelled_and_a_decided_one_cannot() {
    world("", async |world| {
        let executor = world.executor.clone();
        let (open, closed) = (world.ask(&effect("a")).await, world.ask(&effect("b")).await);
        decide(&world.person, &closed, Decision::Approve).await.unwrap();
        let cancel = async |name: &str| {
            executor
                .services()
                .cancel_approval(gate_v1::CancelApprovalRequest { name: name.into(), ..Default::default() })
                .await
                .unwrap()
                .into_inner()
                .state()
        };
        assert_eq!(cancel(&open.name).await, State::Cancelled);
        assert_eq!(cancel(&open.name).await, State::Cancelled);
        assert_eq!(cancel(&closed.name).await, State::Approved);
        let late = decide(&world.person, &open, Decision::Approve).await;
        assert_eq!(refusal(late), (Code::FailedPrecondition, "ALREADY_DECIDED".into()));
        let request = gate_v1::CancelApprovalRequest { name: closed.name, ..Default::default() };
        assert_eq!(
            refusal(world.person.services().cancel_approval(request).await),
            (Code::PermissionDenied, "NOT_A_SERVICE".into())
        );
    });
}
