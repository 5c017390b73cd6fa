//! Restarts of the gate, and stores that were changed from outside.

use belay_policy::{Policies, RevisedPolicies};
use belay_proto::{
    gate_v1,
    v1::{self, Decision, approval::State},
};
use belay_sqlite::{Location, Threads};
use rusqlite::Connection;
use tonic::Code;

use crate::support::*;

/// B-01, S2-FR-052: an approval waits for its decision through any number of restarts.
#[test]
fn a_restart_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (pending, decided) = life(folder.path(), "", async |world| {
        let (pending, other) = (world.ask(&effect("a")).await, world.ask(&effect("b")).await);
        let decided = decide(&world.person, &other, Decision::Deny).await.unwrap();
        (world.get(&pending.name).await, decided)
    });
    life(folder.path(), "", async |world| {
        assert_eq!(world.get(&pending.name).await, pending, "with its subject and its preview");
        assert_eq!(world.get(&decided.name).await.state(), State::Denied);
        let approved = decide(&world.person, &pending, Decision::Approve).await.unwrap();
        assert!(approved.revision > decided.revision, "revisions continue");
    });
}

/// A request that is made again is answered, also by another life of the gate; another request with its id is refused, instead of being taken for
/// the first.
#[test]
fn a_request_id_decides_once() {
    let folder = tempfile::tempdir().unwrap();
    let request = |approval: &v1::Approval, decision: Decision, reason: &str| v1::DecideApprovalRequest {
        name: approval.name.clone(),
        subject_digest: approval.subject_digest.clone(),
        decision: decision.into(),
        reason: reason.into(),
        request_id: "once".into(),
    };
    let (first, second, decided) = life(folder.path(), "", async |world| {
        let (first, second) = (world.ask(&effect("a")).await, world.ask(&effect("b")).await);
        let mut people = world.person.people();
        let long = v1::DecideApprovalRequest { request_id: "x".repeat(129), ..request(&first, Decision::Deny, "") };
        let status = people.decide_approval(long).await.unwrap_err();
        assert!(status.message().starts_with("request_id: "), "{status}");
        let wrong =
            v1::DecideApprovalRequest { subject_digest: "other".into(), ..request(&first, Decision::Deny, "no") };
        assert_eq!(refusal(people.decide_approval(wrong).await).1, "DIGEST_MISMATCH", "which uses up no id");
        let decided = people.decide_approval(request(&first, Decision::Deny, "no")).await.unwrap().into_inner();
        (first, second, decided)
    });
    life(folder.path(), "", async |world| {
        let mut people = world.person.people();
        let again = people.decide_approval(request(&first, Decision::Deny, "no")).await.unwrap().into_inner();
        assert_eq!(again, decided);
        let reused = (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned());
        for other in [
            request(&first, Decision::Approve, "no"),
            request(&first, Decision::Deny, "another reason"),
            request(&second, Decision::Deny, "no"),
        ] {
            assert_eq!(refusal(people.decide_approval(other).await), reused);
        }
        assert_eq!(world.get(&second.name).await.state(), State::Pending);
        let new = v1::DecideApprovalRequest { request_id: "new".into(), ..request(&second, Decision::Approve, "") };
        assert_eq!(people.decide_approval(new).await.unwrap().into_inner().state(), State::Approved);
    });
}

#[test]
fn a_changed_policy_gets_a_new_revision() {
    let folder = tempfile::tempdir().unwrap();
    let revision = |policy: &str| life(folder.path(), policy, async |world| world.gate.policy().signed.revision);
    let strict = "file_write: prompt\n";
    assert_eq!([revision(""), revision(""), revision(strict), revision(strict), revision("")], [1, 1, 2, 2, 3]);
    life(folder.path(), "", async |world| {
        let mut policies =
            world.executor.services().watch_policy(gate_v1::WatchPolicyRequest {}).await.unwrap().into_inner();
        let now = world.person.policy().get_policy(v1::GetPolicyRequest {}).await.unwrap().into_inner();
        assert_eq!(policies.message().await.unwrap().unwrap().policy.as_ref(), Some(&now));
        world.gate.set_policy(&Policies::preset()).await.unwrap();
        world.gate.set_policy(&Policies::from_yaml(strict).unwrap()).await.unwrap();
        let next = policies.message().await.unwrap().unwrap().policy.unwrap();
        assert_eq!(next.revision, 4, "an equal policy keeps its revision");
        assert_eq!(RevisedPolicies::from_bytes(&next.body).unwrap().policies, Policies::from_yaml(strict).unwrap());
    });
}

/// An attacker who can write the store, but not the key, cannot have anything signed or shown that was not approved here.
#[test]
fn a_store_that_was_changed_from_outside_is_rejected() {
    let corrupt = (Code::DataLoss, "STORE_CORRUPT".to_owned());
    let tampered = |statement: &str, approve: bool| {
        let folder = tempfile::tempdir().unwrap();
        let asked = life(folder.path(), "", async |world| {
            let asked = world.ask(&effect("e")).await;
            if approve {
                decide(&world.person, &asked, Decision::Approve).await.unwrap();
                let request = gate_v1::GetGrantRequest { approval: asked.name.clone() };
                world.executor.services().get_grant(request).await.unwrap();
            }
            asked
        });
        let store = Connection::open(folder.path().join("gate.db")).unwrap();
        assert_eq!(store.execute(statement, []).unwrap(), 1, "{statement}");
        drop(store);
        life(folder.path(), "", async |world| {
            let get = v1::GetApprovalRequest { name: asked.name.clone(), ..Default::default() };
            let shown = world.person.people().get_approval(get).await;
            let request = gate_v1::GetGrantRequest { approval: asked.name.clone() };
            (shown, world.executor.services().get_grant(request).await)
        })
    };
    for statement in [
        "UPDATE body SET subject = CAST(replace(subject, 'make', 'fake') AS BLOB)",
        "UPDATE approval SET state = 2",
        "UPDATE approval SET revision = 99",
        "UPDATE approval SET basic = x'ff'",
        "DELETE FROM body",
    ] {
        let (shown, granted) = tampered(statement, false);
        assert_eq!(refusal(shown), corrupt, "{statement}");
        assert_eq!(refusal(granted), corrupt, "{statement}");
    }
    for statement in [
        "UPDATE grant SET signature = zeroblob(64)",
        "UPDATE grant SET body = CAST(replace(body, '1.1', '1.2') AS BLOB)",
    ] {
        let (_, granted) = tampered(statement, true);
        assert_eq!(refusal(granted), corrupt, "{statement}");
    }
}

#[test]
fn a_stored_policy_that_was_changed_refuses_the_start() {
    let folder = tempfile::tempdir().unwrap();
    life(folder.path(), "", async |_| ());
    let store = Connection::open(folder.path().join("gate.db")).unwrap();
    belay_sqlite::add_row_sum(&store).unwrap();
    let refused = || {
        let refused = std::panic::catch_unwind(|| life(folder.path(), "", async |_| ()));
        *refused.unwrap_err().downcast::<String>().unwrap()
    };
    // By the disk, or by somebody who knows how the checksum is made.
    store.execute("UPDATE policy SET signature = zeroblob(64)", []).unwrap();
    let message = refused();
    assert!(message.contains("table: \"policy\", key: \"1\""), "{message}");
    let stamp = "UPDATE policy SET sum = row_sum('policy.sum', revision, body, signature, key_id)";
    store.execute(stamp, []).unwrap();
    drop(store);
    let message = refused();
    assert!(message.contains("Tampered(1)"), "{message}");
}

#[test]
fn two_gates_do_not_share_a_store() {
    let folder = tempfile::tempdir().unwrap();
    life(folder.path(), "", async |world| {
        let location = Location::file(world.folder.join("gate.db"));
        assert!(belay_approval_gate::Store::open(&location, Threads::Inline, || "other".into()).is_err());
    });
}
