//! `belay schedules pause` and `belay schedules resume`.

use belay_proto::v1::{PauseScheduleRequest, ResumeScheduleRequest};

use super::{ScheduleArg, ask, refused, show};
use crate::{args::help, context::Context, exit::Exit, failure::Failure};

/// Pause a schedule: nothing starts, and the times until it is resumed are skipped
///
/// Executions that run are not stopped. `belay schedules trigger` starts one all the same.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay schedules pause nightly --reason maintenance"))]
pub(crate) struct Pause {
    #[command(flatten)]
    which: ScheduleArg,
    /// The reason, for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Resume a schedule, from its next time on
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay schedules resume nightly"))]
pub(crate) struct Resume {
    #[command(flatten)]
    which: ScheduleArg,
}

/// Pauses it.
pub(crate) async fn pause(context: &Context, verb: Pause) -> Result<Exit, Failure> {
    let name = verb.which.name(context);
    let paused = ask(context, async |client, _| {
        let request = PauseScheduleRequest { name: name.clone(), reason: verb.reason };
        Ok(client.pause_schedule(request).await.map_err(|status| refused(&status, &name))?.into_inner())
    });
    show(context, &paused.await?)
}

/// Resumes it.
pub(crate) async fn resume(context: &Context, verb: Resume) -> Result<Exit, Failure> {
    let name = verb.which.name(context);
    let resumed = ask(context, async |client, _| {
        let request = ResumeScheduleRequest { name: name.clone() };
        Ok(client.resume_schedule(request).await.map_err(|status| refused(&status, &name))?.into_inner())
    });
    show(context, &resumed.await?)
}
