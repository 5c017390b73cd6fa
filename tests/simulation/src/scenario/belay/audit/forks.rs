//! Audits what forks take over: what has completed and does not depend on what runs again, with its outputs.

use std::collections::BTreeMap;

use belay_proto::v1::execution_event::Kind;

use super::super::hosts;
use super::super::records::{Begin, ExecutionEvidence, Fork};
use crate::trace;

/// The problem with a fork; `None` when there is none.
pub(super) fn audit(fork: &Fork, kept: &ExecutionEvidence) -> Option<String> {
    let (forked, origin) = (&kept.execution, &fork.origin);
    // People only change the plan of a fork as that of any execution.
    let has_its_plan = forked.plan_revision > 0 || forked.plan == origin.plan;
    if forked.forked_from != origin.name || !has_its_plan || forked.inputs != origin.inputs {
        let (name, found) = (&origin.name, &forked.plan);
        return Some(format!("it is a fork of {}, and not of {name} as that was: {found:?}", forked.forked_from));
    }
    if (&forked.workspace, &forked.made_folder) != (&origin.workspace, &origin.made_folder) {
        let (name, workspace) = (&origin.name, hosts::workspace(forked));
        return Some(format!("it works in {}, and {name} elsewhere", workspace.display()));
    }
    let mut found = BTreeMap::new();
    for event in &kept.events[1..] {
        let begin = match &event.kind {
            Some(Kind::StepOutputSet(set)) => Begin::Output(set.output.clone()),
            Some(Kind::StepSkipRequested(_)) => Begin::Skipped,
            _ => break,
        };
        found.insert(event.step_id.as_str(), begin);
    }
    let expected = fork.taken_over();
    if !expected.is_empty() {
        trace::count("outputs taken over");
    }
    (found != expected).then(|| format!("it has taken over {found:?}, and was to take over {expected:?}"))
}
