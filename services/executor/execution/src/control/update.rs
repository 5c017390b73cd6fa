//! Applies a principal's change of the plan.

use super::NewPlan;
use crate::{Body, Execution, ExecutionEvent, PlanUpdated, Timestamp, ToolFacts};

impl Execution {
    /// The event with which the execution carries out this plan from now on.
    pub(super) fn updated(&self, now: Timestamp, new: NewPlan, reason: String) -> Body {
        let NewPlan { plan, tools } = new;
        // What was known about a tool when the execution began to use it holds until its end; but another network is for the tools that take one now.
        let is_other_network = plan.network() != self.plan().network();
        let known = |new: ToolFacts| {
            let Some(known) = self.tool(&new.used_as) else { return new };
            let mut known = known.clone();
            if is_other_network {
                known.takes_network = new.takes_network;
            }
            // A model may call it now.
            if known.description.is_empty() && known.parameters.is_empty() {
                (known.description, known.parameters) = (new.description, new.parameters);
            }
            known
        };
        let tools = tools.into_iter().map(known).collect();
        let deadline = match plan.timeout() {
            limit if limit == self.plan().timeout() => self.deadline,
            limit => limit.map(|limit| now.saturating_add(limit)),
        };
        let revision = self.revision + 1;
        ExecutionEvent::PlanUpdated(Box::new(PlanUpdated { plan: *plan, tools, revision, deadline, reason })).into()
    }
}
