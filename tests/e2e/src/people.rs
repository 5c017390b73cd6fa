//! A person who uses the gate's endpoint for people.

use std::{path::Path, time::Duration};

use belay_proto::{
    gate_v1::approval_gate_service_client::ApprovalGateServiceClient,
    v1::{
        self, Approval, Decision, approval::State, approval_service_client::ApprovalServiceClient,
        watch_approvals_response::Content,
    },
};
use tonic::{Status, transport::Channel};

use crate::client::{channel, retry};

/// A person who decides.
#[derive(Clone, Debug)]
pub struct Person {
    channel: Channel,
}

impl Person {
    /// A person who connects to this socket.
    pub fn at(socket: &Path) -> Self {
        Self { channel: channel(socket) }
    }

    /// The bare client.
    pub fn raw(&self) -> ApprovalServiceClient<Channel> {
        ApprovalServiceClient::new(self.channel.clone())
    }

    /// The client that only a service should use.
    pub fn as_service(&self) -> ApprovalGateServiceClient<Channel> {
        ApprovalGateServiceClient::new(self.channel.clone())
    }

    /// The oldest pending approval of an execution (its full name; empty means any), as soon as there is one.
    ///
    /// # Panics
    /// When none comes within a minute.
    pub async fn question(&self, execution: &str) -> Approval {
        self.approval_in(execution, State::Pending).await
    }

    /// An approval of an execution that is in this state, as soon as there is one; in FULL view.
    ///
    /// # Panics
    /// When none comes within a minute.
    pub async fn approval_in(&self, execution: &str, state: State) -> Approval {
        let found = async {
            loop {
                if let Some(name) = self.watch_for(execution, state).await {
                    let request = v1::GetApprovalRequest { name, ..Default::default() };
                    return retry(|| async { self.raw().get_approval(request.clone()).await }).await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(60), found).await;
        found.unwrap_or_else(|_| panic!("no approval of `{execution}` is {state:?}")).expect("it was there just now")
    }

    /// `None` when the connection is lost first.
    async fn watch_for(&self, execution: &str, state: State) -> Option<String> {
        let request = v1::WatchApprovalsRequest {
            parent: "namespaces/-".into(),
            execution: execution.into(),
            ..Default::default()
        };
        let mut stream = self.raw().watch_approvals(request).await.ok()?.into_inner();
        while let Ok(Some(message)) = stream.message().await {
            match message.content {
                Some(Content::Approval(approval)) if approval.state() == state => return Some(approval.name),
                _ => {}
            }
        }
        None
    }

    /// Decides an approval, and retries until the gate responds.
    ///
    /// # Errors
    /// The gate's error.
    pub async fn decide(&self, approval: &Approval, decision: Decision) -> Result<Approval, Status> {
        let request = v1::DecideApprovalRequest {
            name: approval.name.clone(),
            subject_digest: approval.subject_digest.clone(),
            decision: decision.into(),
            reason: "decided by the test".into(),
            ..Default::default()
        };
        retry(|| async { self.raw().decide_approval(request.clone()).await }).await
    }

    /// All approvals.
    ///
    /// # Panics
    /// When the gate returns an error.
    pub async fn list(&self) -> Vec<Approval> {
        let request = v1::ListApprovalsRequest { parent: "namespaces/-".into(), page_size: 1000, ..Default::default() };
        let page = retry(|| async { self.raw().list_approvals(request.clone()).await }).await;
        page.expect("approvals are listed").approvals
    }
}
