//! `belay schedules …`.

pub(crate) mod control;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod fire;
pub(crate) mod get;
pub(crate) mod list;

use belay_proto::v1::Schedule;
use belay_reasons as reasons;
use tonic::Status;

use crate::{
    clock,
    connect::{Requirement, Schedules, Session},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    names, next,
    render::schedule,
};

/// The schedule a command is about.
#[derive(clap::Args, Debug)]
pub(crate) struct ScheduleArg {
    /// The schedule: its id or its full name
    #[arg(value_name = "NAME")]
    id: String,
}

impl ScheduleArg {
    /// The full name.
    fn name(&self, context: &Context) -> String {
        match self.id.contains('/') {
            true => self.id.clone(),
            false => format!("{}/schedules/{}", names::parent(&context.namespace), self.id),
        }
    }
}

/// Makes requests about a schedule.
async fn ask<T>(
    context: &Context,
    question: impl AsyncFnOnce(&mut Schedules, &Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    context
        .with_session(Requirement::Records, async |session| {
            let mut client = session.schedules();
            question(&mut client, session).await
        })
        .await
}

/// Shows a schedule after a change.
fn show(context: &Context, shown: &Schedule) -> Result<Exit, Failure> {
    context.screen.show(shown, || schedule::one(shown, clock::now()))?;
    Ok(Exit::OK)
}

/// The report on a refused request about a schedule.
fn refused(status: &Status, name: &str) -> Failure {
    let mut report = Report::of_status(status);
    if report.code == reasons::SCHEDULE_NOT_FOUND {
        report.next = Some(next::command(&["schedules", "list"]));
    }
    report.next.get_or_insert_with(|| next::about(&["schedules", "get"], name, &[]));
    report.into()
}
