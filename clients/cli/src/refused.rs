//! The report on a refused request about an execution.

use tonic::Status;

use crate::{
    failure::{Failure, Report},
    next,
};

/// The report on what the services refused, with the command that shows its state.
pub(crate) fn refused(status: &Status, name: &str) -> Failure {
    let mut report = Report::of_status(status);
    report.next.get_or_insert_with(|| next::about(&["executions", "get"], name, &[]));
    report.into()
}
