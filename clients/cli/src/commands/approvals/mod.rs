//! `belay approvals …`.

pub(crate) mod answer;
pub(crate) mod decide;
pub(crate) mod list;
pub(crate) mod show;

use belay_proto::v1::{Approval, ApprovalView, GetApprovalRequest, ListApprovalsRequest, approval::State};
use tonic::Code;

use super::listing::pages;
use crate::{
    connect::Gate,
    failure::Failure,
    lookup::{self, ResourceKind, ResourceText},
    names, next,
};

/// The approval a command is about.
#[derive(clap::Args, Debug)]
pub(crate) struct ApprovalArg {
    /// The approval: its id, the beginning of its id, its full name, or @last for the latest
    #[arg(value_name = "ID")]
    id: String,
}

impl ApprovalArg {
    /// The id as typed.
    fn id(&self) -> &str {
        &self.id
    }
}

/// The approval a person means, in FULL view.
async fn resolve(gate: &mut Gate, namespace: &str, which: &ApprovalArg) -> Result<Approval, Failure> {
    let name = match lookup::read(ResourceKind::Approval, &which.id)? {
        ResourceText::Full(name) => name.to_owned(),
        ResourceText::Last => last(gate, namespace).await?,
        ResourceText::Prefix(prefix) => {
            match full(gate, format!("{}/approvals/{prefix}", names::parent(namespace))).await {
                Err(Failure::Report(report)) if report.exit == crate::exit::Exit::REFUSED => {
                    begins_with(gate, namespace, prefix).await?
                }
                found => return found,
            }
        }
    };
    full(gate, name).await
}

async fn full(gate: &mut Gate, name: String) -> Result<Approval, Failure> {
    let request = GetApprovalRequest { name, view: ApprovalView::Full.into() };
    match gate.get_approval(request).await {
        Ok(approval) => Ok(approval.into_inner()),
        Err(status) => {
            let is_missing = status.code() == Code::NotFound;
            let mut report = crate::failure::Report::of_status(&status);
            if is_missing {
                report.next = Some(next::command(&["approvals", "list"]));
            }
            Err(report.into())
        }
    }
}

async fn begins_with(gate: &mut Gate, namespace: &str, prefix: &str) -> Result<String, Failure> {
    let request = ListApprovalsRequest {
        parent: names::parent(namespace),
        page_size: lookup::CANDIDATES + 1,
        id_prefix: prefix.to_owned(),
        ..Default::default()
    };
    let found = gate.list_approvals(request).await?.into_inner().approvals;
    lookup::choose(ResourceKind::Approval, namespace, prefix, found.into_iter().map(|approval| approval.name).collect())
}

/// The newest pending approval; the newest of all if none is pending.
async fn last(gate: &mut Gate, namespace: &str) -> Result<String, Failure> {
    let parent = names::parent(namespace);
    let pending = pages(usize::MAX, async |page_size, page_token| {
        let (parent, states) = (parent.clone(), vec![State::Pending.into()]);
        let request = ListApprovalsRequest { parent, states, page_size, page_token, ..Default::default() };
        let page = gate.list_approvals(request).await?.into_inner();
        Ok((page.approvals, page.next_page_token))
    });
    // They are listed with the oldest first.
    let mut newest = pending.await?.items.pop();
    if newest.is_none() {
        let request = ListApprovalsRequest { parent, page_size: 1, ..Default::default() };
        newest = gate.list_approvals(request).await?.into_inner().approvals.into_iter().next();
    }
    lookup::choose(ResourceKind::Approval, namespace, "", newest.into_iter().map(|approval| approval.name).collect())
}
