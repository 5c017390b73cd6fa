//! Applies a principal's change of the plan.

use super::NewPlan;
use crate::{Body, Execution, ExecutionEvent, PlanUpdated, Timestamp};

impl Execution {
    /// The event with which the execution carries out this plan from now on.
    pub(super) fn updated(&self, now: Timestamp, new: NewPlan, reason: String) -> Body {
        let NewPlan { plan, tools } = new;
        // What was known about a tool when the execution began to use it holds until its end.
        let tools = tools.into_iter().map(|new| self.tool(&new.used_as).cloned().unwrap_or(new)).collect();
        let deadline = match plan.timeout() {
            limit if limit == self.plan().timeout() => self.deadline,
            limit => limit.map(|limit| now.saturating_add(limit)),
        };
        let revision = self.revision + 1;
        ExecutionEvent::PlanUpdated(Box::new(PlanUpdated { plan: *plan, tools, revision, deadline, reason })).into()
    }
}
