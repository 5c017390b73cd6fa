//! A digest of what an execution asks people at the gate. The executor and the gate's list come to the same digest when the gate has everything
//! that the execution waits for, and nothing else of it.

use belay_execution::Execution;
use belay_proto::v1;
use twox_hash::XxHash3_64;

use crate::wire;

/// The digest of one approval or form. Those of an execution are added up, wrapping: their order does not matter.
fn one(call: &str, subject_digest: &str) -> u64 {
    XxHash3_64::oneshot(format!("{call} {subject_digest}").as_bytes())
}

/// The digest of everything that an execution has asked and that is undecided; 0 when that is nothing.
pub(crate) fn of_execution(name: &str, execution: &Execution) -> u64 {
    let asked = execution.requested_approvals().filter_map(|key| {
        let subject_digest = execution.operation(key)?.asked_subject()?;
        Some(one(&wire::call_name(name, &execution.operation_id(key)), subject_digest))
    });
    asked.fold(0, u64::wrapping_add)
}

/// The same of one approval of the gate.
pub(crate) fn of_approval(approval: &v1::Approval) -> u64 {
    one(&approval.call, &approval.subject_digest)
}

/// A number for an execution's name, so that what is compared takes 16 bytes an execution.
pub(crate) fn number_of(execution: &str) -> u64 {
    XxHash3_64::oneshot(execution.as_bytes())
}
