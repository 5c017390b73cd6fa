//! Records of what happened in a run, kept outside of the simulated machines: clients, people and services make them, and audits compare them.

mod deletion;
mod fork;
mod look;
mod mailbox;
mod observed;
mod repeated_calls;
mod stored;

pub(super) use self::deletion::{Deletion, parent_of};
pub(super) use self::fork::{Begin, Fork, origin_of, request_of};
pub(super) use self::look::{Look, LookOrder};
pub(super) use self::mailbox::{Delivery, Mailbox};
pub(super) use self::observed::{Observations, ObservedExecution, leads_to, may_become};
pub(super) use self::repeated_calls::RepeatedCalls;
pub(super) use self::stored::{ExecutionEvidence, StoredData};
