//! `belay schedules get`.

use belay_proto::v1::GetScheduleRequest;

use super::{ScheduleArg, ask, refused, show};
use crate::{args::help, context::Context, exit::Exit, failure::Failure};

/// Show a schedule: its next ten times, and what became of the last ones
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay schedules get nightly"))]
pub(crate) struct Get {
    #[command(flatten)]
    which: ScheduleArg,
}

/// Shows it.
pub(crate) async fn get(context: &Context, verb: Get) -> Result<Exit, Failure> {
    let name = verb.which.name(context);
    let found = ask(context, async |client, _| {
        let request = GetScheduleRequest { name: name.clone() };
        let found = client.get_schedule(request).await.map_err(|status| refused(&status, &name))?;
        Ok(found.into_inner())
    });
    show(context, &found.await?)
}
