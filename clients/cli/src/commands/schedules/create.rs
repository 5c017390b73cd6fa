//! `belay schedules create`.

use std::{path::PathBuf, time::Duration};

use belay_proto::v1::{
    ApprovalMode, CreateScheduleRequest, Schedule, ScheduledExecution, schedule::Overlap as OverlapMessage,
    scheduled_execution::Source,
};
use clap::ValueEnum;
use pbjson_types::Timestamp;
use tonic::Code;

use super::super::{plan, run};
use crate::{
    args::{Format, PolicyFile, help, label},
    clock,
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    names, next,
    plan_file::PlanFile,
    render::{
        schedule,
        text::{Line, Style},
        time,
    },
};

/// Create a schedule, which starts an execution of a plan at each of its times
///
/// A server fires it: `belay serve`. Each execution has an id that is derived from the schedule and the time in UTC, such as
/// nightly-20260329t003000z, so that no time is carried out twice.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay schedules create nightly plan.yaml --cron '30 2 * * *' --time-zone Europe/Berlin"))]
pub(crate) struct Create {
    /// Its name: 1 to 39 lower-case letters, digits and -
    #[arg(value_name = "NAME")]
    id: String,
    /// The plan: a YAML or JSON file, or - for standard input
    #[arg(value_name = "PLAN", value_hint = clap::ValueHint::FilePath)]
    plan: PathBuf,
    /// When it fires: minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "LINE", required_unless_present = "every", conflicts_with = "every")]
    cron: Option<String>,
    /// Fire at this interval, such as 15m
    #[arg(long, value_name = "D", value_parser = time::parse)]
    every: Option<Duration>,
    /// Count the interval from this time on, such as 2026-12-01T09:00:00Z [default: 1970]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, requires = "every")]
    anchor: Option<Timestamp>,
    /// The time zone of the cron line, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    time_zone: Option<String>,
    /// Delay each time by up to this much, always by the same
    #[arg(long, value_name = "D", value_parser = time::parse)]
    jitter: Option<Duration>,
    /// Handle a time at which an execution of the schedule has not ended in this way
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    overlap: Overlap,
    /// How late an execution may start, such as after an outage [default: 1d]
    #[arg(long, value_name = "D", value_parser = time::parse)]
    catch_up: Option<Duration>,
    /// Create it paused
    #[arg(long)]
    paused: bool,
    /// The folder its executions are confined to [default: a new one for each, under the state directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    workspace: Option<PathBuf>,
    /// A label of its executions; may be given more than once
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    inputs: run::InputArgs,
    /// Handle calls that need approval in this way
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    approve: Approve,
    /// The time limit of each step, such as 90s, instead of the plan's
    #[arg(long, value_name = "D", value_parser = time::parse)]
    step_timeout: Option<Duration>,
    /// Idempotency key: the same request with the same id returns the schedule that it has created
    #[arg(long, value_name = "R")]
    request_id: Option<String>,
    /// Check everything and show when it would fire, without creating it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyFile,
}

/// The handling of a time at which an execution has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Overlap {
    /// The time is skipped
    #[default]
    Skip,
    /// The execution starts when the others have ended
    Queue,
    /// The others are cancelled, and the execution starts when they have ended
    CancelOlder,
    /// The execution starts beside the others
    Allow,
}

/// The treatment of a call that needs approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Approve {
    /// The execution waits for a decision, with `belay approve` from anywhere
    Prompt,
    /// The step fails
    #[default]
    Fail,
}

/// Creates it.
pub(crate) async fn create(context: &Context, verb: Create) -> Result<Exit, Failure> {
    let file = PlanFile::read(&verb.plan).await?;
    let request = request(context, &verb, &file)?;
    let needs = if verb.dry_run { Requirement::Services } else { Requirement::StateDir };
    context
        .with_session(needs, async |session| {
            let created = match session.schedules().create_schedule(request).await {
                Ok(created) => created.into_inner(),
                Err(status) => {
                    if status.code() == Code::InvalidArgument {
                        // The refusal names fields; the plan's own check knows their files and lines, too.
                        plan::check(&mut session.client, &context.namespace, &file).await?;
                    }
                    return Err(Report::of_status(&status).into());
                }
            };
            let begun = if verb.dry_run { "schedule would fire" } else { "schedule created" };
            context.screen.show(&created, || {
                let title = Line::default().and(Style::Good, begun);
                [vec![title], schedule::one(&created, clock::now())].concat()
            })?;
            if session.is_embedded() && !verb.dry_run && context.screen.format == Format::Text {
                let said = "no server runs here, and only a server fires schedules";
                context.screen.say(&Line::default().and(Style::Warn, said));
                context.screen.say(&next::line(next::command(&["serve"])));
            }
            Ok(Exit::OK)
        })
        .await
}

fn request(context: &Context, verb: &Create, file: &PlanFile) -> Result<CreateScheduleRequest, Failure> {
    let workspace = verb.workspace.as_deref().map(|folder| run::workspace(folder, context.target.is_local()));
    let execution = ScheduledExecution {
        source: Some(Source::Document(file.document())),
        labels: verb.labels.iter().cloned().collect(),
        approval_mode: match verb.approve {
            Approve::Prompt => ApprovalMode::Wait.into(),
            Approve::Fail => ApprovalMode::Fail.into(),
        },
        workspace: workspace.transpose()?.unwrap_or_default(),
        inputs: verb.inputs.values()?,
        step_timeout: verb.step_timeout.map(belay_proto::duration),
        ..Default::default()
    };
    let overlap = match verb.overlap {
        Overlap::Skip => OverlapMessage::Skip,
        Overlap::Queue => OverlapMessage::Queue,
        Overlap::CancelOlder => OverlapMessage::CancelOlder,
        Overlap::Allow => OverlapMessage::Allow,
    };
    let schedule = Schedule {
        cron: verb.cron.clone().unwrap_or_default(),
        interval: verb.every.map(belay_proto::duration),
        anchor_time: verb.anchor,
        time_zone: verb.time_zone.clone().unwrap_or_default(),
        jitter: verb.jitter.map(belay_proto::duration),
        overlap: overlap.into(),
        catch_up_window: verb.catch_up.map(belay_proto::duration),
        execution: Some(execution),
        paused: verb.paused,
        pause_reason: if verb.paused { "created paused".to_owned() } else { String::new() },
        ..Default::default()
    };
    Ok(CreateScheduleRequest {
        parent: names::parent(&context.namespace),
        schedule_id: verb.id.clone(),
        schedule: Some(schedule),
        validate_only: verb.dry_run,
        request_id: verb.request_id.clone().unwrap_or_default(),
    })
}
