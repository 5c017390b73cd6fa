//! Calls that have been checked, with the parts of them that could be read.

use crate::{CallDraft, CallPlace, OtherCall, PlanPart, PlannedCall, PlannedStep, Template, ToolStep};

/// The result of checking a call.
pub(super) struct CallPart {
    /// Whether the tool's name is valid.
    pub(super) has_tool: bool,
    /// The arguments, as far as they could be read.
    pub(super) arguments: Template,
    /// Whether all of them could be read.
    pub(super) arguments_are_valid: bool,
}

impl CallPart {
    /// The planned call, when its tool is named.
    pub(super) fn planned<'a>(&'a self, step: usize, place: CallPlace, tool: &'a str) -> Option<PlanPart<'a>> {
        let step = outermost(step);
        let arguments = self.arguments_are_valid.then_some(&self.arguments);
        let call =
            PlannedCall { step, place, tool, arguments, allowed_commands: None, network: None, network_of_plan: None };
        self.has_tool.then_some(PlanPart::Call(call))
    }

    /// The call, after the whole plan has been checked.
    pub(super) fn complete(self, draft: CallDraft) -> OtherCall {
        OtherCall { call: ToolStep { tool: draft.tool, arguments: self.arguments }, verbatim: draft.verbatim }
    }
}

/// A step of the plan that is being checked.
pub(super) fn outermost(step: usize) -> PlannedStep<'static> {
    PlannedStep { step, within: "" }
}
