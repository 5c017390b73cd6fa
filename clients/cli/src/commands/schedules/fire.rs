//! `belay schedules trigger` and `belay schedules backfill`.

use belay_proto::v1::{BackfillScheduleRequest, TriggerScheduleRequest};
use pbjson_types::Timestamp;

use super::{super::run::no_server, ScheduleArg, ask, refused};
use crate::{
    args::help,
    context::Context,
    exit::Exit,
    failure::Failure,
    names, next,
    render::{
        text::{Line, Style},
        time,
    },
};

/// Start an execution of a schedule now, whether or not it is paused or another one runs
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay schedules trigger nightly"))]
pub(crate) struct Trigger {
    #[command(flatten)]
    which: ScheduleArg,
    /// Idempotency key: the same id starts nothing more
    #[arg(long, value_name = "R")]
    request_id: Option<String>,
}

/// Carry out times of a schedule that are over, such as those of an outage
///
/// Times whose executions are there are not carried out again; those whose executions were deleted are. One runs after the other, unless the schedule allows overlaps. At most 1,000 at once.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay schedules backfill nightly --from 2026-12-01T00:00:00Z --to 2026-12-05T00:00:00Z"))]
pub(crate) struct Backfill {
    #[command(flatten)]
    which: ScheduleArg,
    /// The first time
    #[arg(long, value_name = "TIME", value_parser = time::parse_time)]
    from: Timestamp,
    /// The last time, which is over
    #[arg(long, value_name = "TIME", value_parser = time::parse_time)]
    to: Timestamp,
    /// Idempotency key: the same id adds nothing more
    #[arg(long, value_name = "R")]
    request_id: Option<String>,
}

/// Starts one.
pub(crate) async fn trigger(context: &Context, verb: Trigger) -> Result<Exit, Failure> {
    let name = verb.which.name(context);
    let triggered = ask(context, async |client, session| {
        if session.is_embedded() {
            return Err(no_server("schedules trigger"));
        }
        let request = TriggerScheduleRequest { name: name.clone(), request_id: verb.request_id.unwrap_or_default() };
        Ok(client.trigger_schedule(request).await.map_err(|status| refused(&status, &name))?.into_inner())
    })
    .await?;
    let execution = triggered.execution.clone();
    context.screen.show(&triggered, || {
        let line = Line::new("execution ").and(Style::Strong, names::id(&execution));
        vec![line, next::line(next::about(&["executions", "watch"], &execution, &[]))]
    })?;
    Ok(Exit::OK)
}

/// Asks for them.
pub(crate) async fn backfill(context: &Context, verb: Backfill) -> Result<Exit, Failure> {
    let name = verb.which.name(context);
    let filled = ask(context, async |client, session| {
        if session.is_embedded() {
            return Err(no_server("schedules backfill"));
        }
        let request = BackfillScheduleRequest {
            name: name.clone(),
            start_time: Some(verb.from),
            end_time: Some(verb.to),
            request_id: verb.request_id.unwrap_or_default(),
        };
        Ok(client.backfill_schedule(request).await.map_err(|status| refused(&status, &name))?.into_inner())
    })
    .await?;
    context.screen.show(&filled, || {
        let times = if filled.count == 1 { "time is".to_owned() } else { "times are".to_owned() };
        let line = Line::default().and(Style::Good, format!("{} {times} carried out", filled.count));
        vec![line, next::line(next::about(&["schedules", "get"], &name, &[]))]
    })?;
    Ok(Exit::OK)
}
