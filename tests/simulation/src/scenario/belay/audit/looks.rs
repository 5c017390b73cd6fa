//! Audits answers that disagree about the end of an execution.

use belay_proto::v1::execution_event::Kind;

use super::super::records::{Look, LookOrder};
use super::evidence::{Evidence, Violations};
use crate::trace;

/// Checks that an execution that was shown as ended and later as not ended has resumed in between.
pub(super) fn audit(evidence: &Evidence<'_>, violations: &mut Violations) {
    for Look { name, sequence, order } in evidence.observed.looks() {
        let Some(kept) = evidence.stored.executions.get(&name) else { continue };
        trace::count("looks at executions that went on");
        let has_gone_on = kept.events.iter().any(|event| match order {
            LookOrder::EndedBefore => {
                event.sequence <= sequence && matches!(event.kind, Some(Kind::ExecutionFinished(_)))
            }
            LookOrder::EndedAfter => event.sequence > sequence && matches!(event.kind, Some(Kind::ExecutionRetried(_))),
        });
        if !has_gone_on {
            let first = if order == LookOrder::EndedBefore { "its row" } else { "it" };
            violations.push(format!(
                "{first} said that {name} had ended, and another answer that it had not, at event {sequence}"
            ));
        }
    }
}
