//! The names of the kinds of events: those of the members of `ExecutionEvent.kind`.

use crate::v1::execution_event::Kind;

include!(concat!(env!("OUT_DIR"), "/kinds.rs"));

/// The kind that is transient, as all its events are.
const OUTPUT: &str = "tool_call_output";

/// The names of all kinds of which events are stored, in the order of their numbers.
pub fn stored() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().filter(|name| *name != OUTPUT)
}

/// The name of a kind, such as `step_failed`.
pub fn name(kind: &Kind) -> &'static str {
    name_of(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{StepStarted, ToolCallOutput};

    #[test]
    fn a_kind_has_the_name_that_the_contract_has() {
        let kind = Kind::StepStarted(StepStarted::default());
        assert_eq!(name(&kind), "step_started");
        assert!(stored().any(|stored| stored == "step_started"));
        // What is not stored is in no list.
        let output = name(&Kind::ToolCallOutput(ToolCallOutput::default()));
        assert_eq!((output, stored().any(|stored| stored == output)), (OUTPUT, false));
    }
}
