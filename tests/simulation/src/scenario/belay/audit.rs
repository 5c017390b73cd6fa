//! Checks the final state: REQUIREMENTS section 4, compared with what clients observed and what the tools did.

mod calls;
mod deletions;
mod end;
mod events;
mod evidence;
mod execution;
mod forks;
mod looks;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};

use self::execution::ExecutionAudit;
use super::client::Order;
use super::records::{ObservedExecution, origin_of};
use super::{children, decisions, effects, promises, spending};
use crate::trace;

pub(super) use self::evidence::{Evidence, SKEW, Violations};
pub(super) use self::webhooks::audit as audit_webhooks;

/// Counters of executions, by how deep their plan is nested.
const DEPTHS: [&str; 6] = [
    "executions of a request",
    "executions of a step's plan",
    "executions 2 deep",
    "executions 3 deep",
    "executions 4 deep",
    "executions 5 deep",
];

/// Compares what is stored with what clients observed and what the tools did.
pub(super) fn audit(evidence: &Evidence<'_>) -> Violations {
    let (kept, observed, runs) = (&evidence.stored.executions, &evidence.observed.all(), &evidence.outside.runs()[..]);
    let plans: BTreeMap<&str, &Order> = evidence.orders.iter().map(|order| (&*order.request_id, order)).collect();
    let mut violations = Violations::new();
    // S2-NFR-005: no acknowledged start is lost. B-15: every execution was requested, and exists once.
    let gone = deletions::gone(evidence);
    for name in observed.keys().filter(|name| !kept.contains_key(*name) && !gone.contains_key(*name)) {
        violations.push(format!("{name} was acknowledged and is gone"));
    }
    let namespaces = evidence.stored.namespaces.iter();
    violations.extend(namespaces.filter_map(|one| spending::of_namespace(one, kept, !gone.is_empty())));
    let children = children::of(kept, &mut violations);
    let parents = children::parents(kept, &children, &gone);
    children::audit(kept, &children, evidence, &gone, &mut violations);
    children::no_late_runs(&children, &parents, evidence.owners, runs, &mut violations);
    children::one_folder(kept, &parents, runs, &mut violations);
    deletions::audit(evidence, &children, &mut violations);
    looks::audit(evidence, &mut violations);
    for name in kept.keys().filter(|name| !observed.contains_key(*name) && !parents.contains_key(name.as_str())) {
        violations.push(format!("{name} was not requested: a request made two executions"));
    }
    let requested = || observed.iter().filter(|(_, heard)| !heard.request_id.is_empty());
    let requests: BTreeSet<_> = requested().map(|(_, heard)| &heard.request_id).collect();
    if requests.len() != requested().count() {
        violations.push("a request made two executions".to_owned());
    }
    let of_children =
        parents.keys().filter_map(|name| Some((*name, children::heard(kept.get(*name)?, observed.get(*name)))));
    let of_children: BTreeMap<&str, ObservedExecution> = of_children.collect();
    let all_forks = evidence.observed.forks();
    let mut all_calls = BTreeMap::new();
    for (name, kept) in kept {
        let is_child = parents.contains_key(name.as_str());
        let Some(heard) = of_children.get(name.as_str()).or(observed.get(name)) else { continue };
        // The one that a request has started.
        let line = children::line(name, &parents);
        trace::count(DEPTHS[line.len().min(DEPTHS.len()) - 1]);
        let root = match line.last() {
            Some(root) if is_child => observed.get(*root),
            _ => Some(heard),
        };
        let order = root.and_then(|root| plans.get(origin_of(&root.request_id)));
        let mut one = ExecutionAudit {
            name,
            kept,
            heard,
            runs,
            owners: evidence.owners,
            healed_at: evidence.observed.healed_at(),
            drives_some: evidence.drives_some,
            damaged: evidence.damaged,
            violations: &mut violations,
        };
        let Some((fold, calls)) = one.replay() else { continue };
        one.totals(&fold);
        if let Some(fork) = all_forks.get(name) {
            if let Some(wrong) = forks::audit(fork, kept) {
                one.violation(wrong);
            }
        } else if !is_child {
            one.plan(&fold, order.map(|order| &order.plan));
            one.inputs(&fold, order.map(|order| &order.inputs));
        }
        one.observations();
        for (call, facts) in &calls {
            one.call(call, facts, &fold);
        }
        for broken in promises::of_runs(&fold, &calls, runs) {
            one.violation(broken);
        }
        let mode = order.map(|order| order.approval_mode).unwrap_or_default();
        all_calls.extend(calls.into_iter().map(|(name, call)| (name, (mode, call))));
    }
    // Stored before it is acted on.
    let of_gone = |call: &str| gone.contains_key(call.split("/steps/").next().unwrap_or_default());
    for run in runs.iter().filter(|run| !all_calls.contains_key(&run.call) && !of_gone(&run.call)) {
        violations.push(format!("{} ran, and its intent is gone", run.call));
    }
    violations.extend(decisions::audit(evidence, &gone, runs, &all_calls));
    violations.extend(effects::audit(evidence, runs, &all_calls));
    violations
}
