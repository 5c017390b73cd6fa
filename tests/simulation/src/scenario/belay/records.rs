//! Records of what happened, outside of the simulated machines: made by clients, people and services, and compared by the audits.

mod deletion;
mod fork;
mod look;
mod mailbox;
mod repeated_calls;
mod stored;

pub(super) use self::deletion::{Deletion, parent_of};
pub(super) use self::fork::{Begin, Fork, origin_of, request_of};
pub(super) use self::look::{Look, LookOrder};
pub(super) use self::mailbox::{Delivery, Mailbox};
pub(super) use self::repeated_calls::RepeatedCalls;
pub(super) use self::stored::{ExecutionEvidence, StoredData};
