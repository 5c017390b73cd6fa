//! `belay executions …`.

pub(crate) mod cancel;
pub(crate) mod delete;
pub(crate) mod diff;
pub(crate) mod edit_plan;
pub(crate) mod events;
pub(crate) mod fork;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod pause;
pub(crate) mod resolve;
pub(crate) mod result;
pub(crate) mod resume;
pub(crate) mod retry;
mod select;
pub(crate) mod signal;
pub(crate) mod step;
pub(crate) mod timeline;
pub(crate) mod watch;
mod watch_all;

use tonic::Status;

use crate::{
    failure::{Failure, Report},
    next,
};

/// The report on a refused request about an execution, with the command that shows its state.
pub(crate) fn refused(status: &Status, name: &str) -> Failure {
    let mut report = Report::of_status(status);
    report.next.get_or_insert_with(|| next::about(&["executions", "get"], name, &[]));
    report.into()
}
