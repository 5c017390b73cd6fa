//! `belay executions …`.

pub(crate) mod affected;
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

use belay_reasons as reasons;
use tonic::{Code, Status};

use crate::{connect::Client, failure::Failure, plan_file::PlanFile, refused::refused};

/// The report on a refused request that has a plan: what is wrong with the plan is shown in its file.
async fn refused_with_plan(
    client: &mut Client,
    namespace: &str,
    status: &Status,
    name: &str,
    file: Option<&PlanFile>,
) -> Failure {
    if status.code() == Code::InvalidArgument
        && let Some(file) = file
        // The refusal names fields; the plan's own check knows their files and lines, too.
        && let Err(Failure::Report(report)) = super::plan::check(client, namespace, file).await
        && report.code == reasons::PLAN_REFUSED
    {
        return Failure::Report(report);
    }
    refused(status, name)
}
