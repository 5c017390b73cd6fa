//! What follows when a principal changes the plan.

use belay_plan::Input;

use super::{NewPlan, Refused};
use crate::{Body, Execution, ExecutionEvent, PlanUpdated, Timestamp};

impl Execution {
    /// The event with which the execution carries out this plan from now on.
    pub(super) fn updated(&self, now: Timestamp, new: NewPlan, reason: String) -> Result<Body, Refused> {
        let NewPlan { plan, tools } = new;
        if self.stop.is_some() || self.compensation.is_some() {
            return Err(Refused::WrongState(self.state));
        }
        if let Some(change) = self.forbidden_change(&plan) {
            return Err(Refused::PlanChange(change));
        }
        let inputs = self.inputs();
        let is_missing =
            |(name, input): &(&String, &Input)| input.default.is_none() && inputs.get(name.as_str()).is_none();
        if let Some((name, _)) = plan.inputs().iter().find(is_missing) {
            return Err(Refused::NoInput(name.clone()));
        }
        // What was known about a tool when the execution began to use it holds until its end.
        let tools = tools.into_iter().map(|new| self.tool(&new.used_as).cloned().unwrap_or(new)).collect();
        let deadline = match plan.timeout() {
            limit if limit == self.plan().timeout() => self.deadline,
            limit => limit.map(|limit| now.saturating_add(limit)),
        };
        let revision = self.revision + 1;
        Ok(ExecutionEvent::PlanUpdated(Box::new(PlanUpdated { plan: *plan, tools, revision, deadline, reason })).into())
    }
}
