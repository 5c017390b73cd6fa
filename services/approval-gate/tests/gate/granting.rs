//! Grants: only for services, only for approved calls, always the same bytes.

use belay_grant::{Grant, GrantExpectation, Keys, SignedBytes};
use belay_proto::{
    gate_v1, runner_v1,
    v1::{self, Approval, Decision},
};
use tonic::{Code, Response, Status};

use crate::support::*;

async fn grant(client: &Client, approval: &Approval) -> Result<runner_v1::Grant, Status> {
    let request = gate_v1::GetGrantRequest { approval: approval.name.clone() };
    client.services().get_grant(request).await.map(Response::into_inner)
}

/// B-03, B-05: a grant is for one call and one digest, and the public key verifies it.
#[test]
fn a_grant_is_signed_for_one_call_and_one_digest() {
    world("", async |world| {
        let subject = effect("e");
        let asked = world.ask(&subject).await;
        let decided = decide(&world.person, &asked, Decision::Approve).await.unwrap();
        let given = grant(&world.executor, &asked).await.unwrap();
        let signed = SignedBytes { body: given.body, signature: given.signature, key_id: given.key_id };

        let published =
            world.executor.services().get_verification_keys(gate_v1::GetVerificationKeysRequest {}).await.unwrap();
        let key = published.into_inner().keys.remove(0);
        assert_eq!(key.key_id, signed.key_id);
        let pinned = std::fs::read_to_string(world.folder.join("gate.pub")).unwrap();
        let hex: String = key.public_key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(pinned, hex + "\n");

        let (keys, call, digest) = (Keys::from_bytes(&key.public_key).unwrap(), call_of(&subject), subject.digest());
        let expected =
            GrantExpectation { call: &call, subject_digest: &digest, policy_revision: 1, now: 1_700_000_000 };
        let grant = Grant::verify(&signed, &keys, expected).unwrap();
        assert_eq!((grant.approver, grant.approval), (decided.decided_by, decided.name));
        assert_eq!((grant.not_before, grant.expires), (1_700_000_000 - 24 * 3600, 1_700_000_000 + 24 * 3600));
        assert_eq!(grant.nonce.len(), 20);
        let later = GrantExpectation { now: 1_700_000_000 + 24 * 3600, ..expected };
        assert!(Grant::verify(&signed, &keys, later).is_err());
    });
}

#[test]
fn a_grant_does_not_change_with_use_and_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (asked, first) = life(folder.path(), "", async |world| {
        let asked = world.ask(&effect("e")).await;
        decide(&world.person, &asked, Decision::Approve).await.unwrap();
        let (a, b) = tokio::join!(grant(&world.executor, &asked), grant(&world.executor, &asked));
        assert_eq!(a.as_ref().unwrap(), &b.unwrap());
        (asked, a.unwrap())
    });
    life(folder.path(), "", async |world| {
        assert_eq!(grant(&world.executor, &asked).await.unwrap(), first);
        let used = gate_v1::AcknowledgeApprovalsRequest { consumed: vec![asked.name.clone()], ..Default::default() };
        world.executor.services().acknowledge_approvals(used).await.unwrap();
        assert_eq!(world.get(&asked.name).await.state(), v1::approval::State::Consumed);
        assert_eq!(grant(&world.executor, &asked).await.unwrap(), first, "a retry returns the same grant");
    });
}

/// B-05: a person gets no grant, and a service gets none for what was not approved.
#[test]
fn there_is_no_grant_without_an_approval() {
    world("approvals:\n  expire_after: 1h\n", async |world| {
        let refused = (Code::FailedPrecondition, "NOT_APPROVED".to_owned());
        let pending = world.ask(&effect("pending")).await;
        assert_eq!(refusal(grant(&world.executor, &pending).await), refused);
        for (execution, decision) in [("denied", Decision::Deny), ("skipped", Decision::Skip)] {
            let asked = world.ask(&effect(execution)).await;
            decide(&world.person, &asked, decision).await.unwrap();
            assert_eq!(refusal(grant(&world.executor, &asked).await), refused, "{execution}");
        }
        let approved = world.ask(&effect("approved")).await;
        decide(&world.person, &approved, Decision::Approve).await.unwrap();
        assert_eq!(refusal(grant(&world.person, &approved).await), (Code::PermissionDenied, "NOT_A_SERVICE".into()));
        let stale = gate_v1::AcknowledgeApprovalsRequest { stale: vec![approved.name.clone()], ..Default::default() };
        world.executor.services().acknowledge_approvals(stale).await.unwrap();
        assert_eq!(refusal(grant(&world.executor, &approved).await), refused, "stale");
        world.clock.advance(3600);
        assert_eq!(refusal(grant(&world.executor, &pending).await), refused, "expired");
    });
}

/// S2-X-18: the grant of a call that the policy approved names the policy.
#[test]
fn a_grant_names_the_policy_as_approver() {
    world("non_interactive_policy: auto\n", async |world| {
        let approved = world.try_ask(&effect("e"), v1::ApprovalMode::Auto).await.unwrap();
        let body = grant(&world.executor, &approved).await.unwrap().body;
        assert!(String::from_utf8(body).unwrap().contains(r#""approver":"policy""#));
    });
}

/// A decision remains valid when its grant expires: the gate renews the grant, which can still be spent only once. It is also valid for a runner
/// whose clock is behind.
#[test]
fn an_expired_grant_is_renewed() {
    world("", async |world| {
        let subject = effect("e");
        let asked = world.ask(&subject).await;
        decide(&world.person, &asked, Decision::Approve).await.unwrap();
        let first = grant(&world.executor, &asked).await.unwrap();
        world.clock.advance(25 * 3600);
        let second = grant(&world.executor, &asked).await.unwrap();
        assert_ne!(first, second);
        assert_eq!(grant(&world.executor, &asked).await.unwrap(), second, "the renewed grant does not change");
        let pinned = std::fs::read_to_string(world.folder.join("gate.pub")).unwrap();
        let key: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&pinned[2 * at..2 * at + 2], 16).unwrap()).collect();
        let (keys, call, digest) = (Keys::from_bytes(&key).unwrap(), call_of(&subject), subject.digest());
        let verify = |given: &runner_v1::Grant, now: i64| {
            let given = given.clone();
            let signed = SignedBytes { body: given.body, signature: given.signature, key_id: given.key_id };
            Grant::verify(
                &signed,
                &keys,
                GrantExpectation { call: &call, subject_digest: &digest, policy_revision: 1, now },
            )
        };
        let now = 1_700_000_000 + 25 * 3600;
        assert!(verify(&first, now).is_err());
        for runner_is_behind in [0, 600, 23 * 3600] {
            verify(&second, now - runner_is_behind).unwrap();
        }
        assert_eq!(verify(&first, 1_700_000_000).unwrap().nonce, verify(&second, now).unwrap().nonce);
        let used = gate_v1::AcknowledgeApprovalsRequest { consumed: vec![asked.name.clone()], ..Default::default() };
        world.executor.services().acknowledge_approvals(used).await.unwrap();
        world.clock.advance(48 * 3600);
        assert_eq!(grant(&world.executor, &asked).await.unwrap(), second, "a used grant is not renewed");
    });
}

/// A grant is given while it holds for an hour more, and a decision can be used for a year.
#[test]
fn a_grant_is_renewed_when_it_ends_soon_and_not_for_ever() {
    const HOUR: i64 = 60 * 60;
    world("", async |world| {
        let asked = world.ask(&effect("e")).await;
        decide(&world.person, &asked, Decision::Approve).await.unwrap();
        let first = grant(&world.executor, &asked).await.unwrap();
        world.clock.advance(23 * HOUR - 1);
        assert_eq!(grant(&world.executor, &asked).await.unwrap(), first, "it holds for more than an hour");
        world.clock.advance(1);
        let second = grant(&world.executor, &asked).await.unwrap();
        assert_ne!(second, first, "it holds for no more than an hour");
        // The clock was a day ahead: a grant that begins in the future is of no use now.
        world.clock.advance(-25 * HOUR);
        let third = grant(&world.executor, &asked).await.unwrap();
        assert_ne!(third, second);
        world.clock.advance(2 * HOUR + 365 * 24 * HOUR);
        let last = grant(&world.executor, &asked).await.unwrap();
        assert_ne!(last, third, "a year after the decision");
        world.clock.advance(24 * HOUR);
        assert_eq!(grant(&world.executor, &asked).await.unwrap(), last, "the decision is too old");
    });
}
