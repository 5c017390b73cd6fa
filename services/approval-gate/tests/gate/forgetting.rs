//! Forgetting executions that were deleted.

use belay_proto::{
    gate_v1,
    v1::{self, Decision, approval::State, watch_approvals_response::Content},
};
use tonic::Code;

use crate::support::*;

async fn forget(world: &World, executions: &[&str]) -> Result<(), tonic::Status> {
    let executions = executions.iter().map(|execution| (*execution).to_owned()).collect();
    let request = gate_v1::ForgetExecutionsRequest { executions };
    world.executor.services().forget_executions(request).await.map(drop)
}

fn contains(world: &World, text: &str) -> bool {
    ["gate.db", "gate.db-wal"].iter().any(|file| {
        let bytes = std::fs::read(world.folder.join(file)).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

/// B-26: the approvals of a deleted execution go with everything they show, decided or not, and their revisions are not given again.
#[test]
fn a_forgotten_execution_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (execution, last) = life(folder.path(), "", async |world| {
        let other_step = belay_grant::Subject { step: "test".into(), ..effect("a") };
        let (pending, approved) = (world.ask(&effect("a")).await, world.ask(&other_step).await);
        let execution = pending.execution.clone();
        assert_eq!(approved.execution, execution);
        let approved = decide(&world.person, &approved, Decision::Approve).await.unwrap();
        let grant = gate_v1::GetGrantRequest { approval: approved.name.clone() };
        world.executor.services().get_grant(grant.clone()).await.unwrap();
        assert!(contains(&world, &execution), "they are there before");
        let watch = v1::WatchApprovalsRequest { parent: "namespaces/-".into(), ..Default::default() };
        let mut watch = world.person.people().watch_approvals(watch).await.unwrap().into_inner();
        let is_listed = |message: &v1::WatchApprovalsResponse| matches!(message.content, Some(Content::Listed(_)));
        while !is_listed(&watch.message().await.unwrap().unwrap()) {}

        forget(&world, &["namespaces/default/executions/another"]).await.unwrap();
        assert_eq!(world.get(&pending.name).await.state(), State::Pending, "another execution is another one");
        forget(&world, &[&execution]).await.unwrap();
        let cancelled = loop {
            if let Some(Content::Approval(approval)) = watch.message().await.unwrap().unwrap().content {
                break approval;
            }
        };
        assert_eq!((&cancelled.name, cancelled.state()), (&pending.name, State::Cancelled), "who watches it is told");
        for name in [&pending.name, &approved.name] {
            let request = v1::GetApprovalRequest { name: name.clone(), ..Default::default() };
            let refused = world.person.people().get_approval(request).await;
            assert_eq!(refusal(refused), (Code::NotFound, "APPROVAL_NOT_FOUND".to_owned()));
        }
        assert_eq!(refusal(world.executor.services().get_grant(grant).await).1, "APPROVAL_NOT_FOUND");
        assert!(!contains(&world, &execution), "neither the database nor its log has a byte of them");
        forget(&world, &[&execution]).await.expect("again");
        (execution, cancelled.revision)
    });
    life(folder.path(), "", async |world| {
        let next = world.ask(&effect("a")).await;
        assert!(next.revision > last, "{} follows {last}, although that approval is deleted", next.revision);
        assert_eq!(next.execution, execution);
    });
}

#[test]
fn what_is_not_an_execution_is_refused() {
    world("", async |world| {
        for bad in ["", "namespaces/default", "namespaces/-/executions/a", "namespaces/default/executions/a/steps/b"] {
            let refused = forget(&world, &[bad]).await.unwrap_err();
            assert!(refused.message().starts_with("executions: "), "{refused}");
        }
        let many = vec!["namespaces/default/executions/a"; 101];
        assert_eq!(forget(&world, &many).await.unwrap_err().code(), Code::InvalidArgument);
    });
}
