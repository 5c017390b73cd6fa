//! Audits deletions: what was deleted is gone, and nothing else is.

use std::collections::BTreeMap;

use belay_proto::v1;

use super::super::children::Children;
use super::super::hosts;
use super::super::records::Deletion;
use super::evidence::{Evidence, SKEW, Violations};

/// The executions that may be gone since they were deleted.
pub(super) fn gone(evidence: &Evidence<'_>) -> BTreeMap<String, Deletion> {
    let mut deletions = evidence.observed.deletions();
    deletions.retain(|name, _| !evidence.stored.executions.contains_key(name));
    deletions
}

/// B-28: what was deleted is gone, everywhere, after its end was recorded where it belongs.
pub(super) fn audit(evidence: &Evidence<'_>, children: &Children<'_>, violations: &mut Violations) {
    let kept = &evidence.stored.executions;
    for (name, deletion) in evidence.observed.deletions() {
        let Some(acknowledged_at) = deletion.acknowledged_at else { continue };
        if kept.contains_key(&name) {
            violations.push(format!("{name} was deleted, and is there again"));
        }
        if let Some((parent, recorded)) = children.get(&name).and_then(|child| child.recorded())
            && evidence.owners.stored_at(parent, recorded).is_some_and(|recorded| recorded > acknowledged_at + SKEW)
        {
            violations.push(format!("{name} was deleted before {parent} had recorded its end"));
        }
        let of_it = |approval: &&v1::Approval| approval.execution == name;
        if deletion.is_complete
            && let Some(approval) = evidence.stored.approvals.values().find(of_it)
        {
            violations.push(format!("{name} was deleted, and the gate has {}", approval.name));
        }
        if deletion.is_complete
            && let Some(folder) = hosts::own_workspace(&name)
            // Its forks and the executions of its steps work there.
            && !kept.values().any(|kept| hosts::workspace(&kept.execution) == folder)
            && evidence.workspaces.get(&folder).is_some_and(|changes| !changes.is_empty())
        {
            violations.push(format!("{name} was deleted, and its workspace is there"));
        }
    }
}
