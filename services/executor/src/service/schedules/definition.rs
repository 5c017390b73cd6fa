//! Names and specifications of schedules, as requests and rows have them.

use belay_proto::v1::{self, schedule::Overlap as OverlapMessage};
use belay_schedule::{Draft, Overlap, SpecificationError};
use belay_service_kit::{names::is_id, status};
use tonic::Status;

use crate::owned::schedule_changes::ScheduleKey;

/// The name of a schedule.
pub(super) fn name((namespace, id): &ScheduleKey) -> String {
    format!("namespaces/{namespace}/schedules/{id}")
}

/// The parts of the name in a request.
pub(super) fn key(name: &str) -> Result<ScheduleKey, Status> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["namespaces", namespace, "schedules", id] if is_id(namespace) && is_id(id) => {
            Ok((namespace.into(), id.into()))
        }
        _ => {
            let message = format!("`{name}` is not the name of a schedule: use namespaces/NAMESPACE/schedules/ID");
            Err(status::invalid("name", message).into())
        }
    }
}

/// A refusal with the field of the specification.
pub(super) fn invalid(error: &SpecificationError) -> Status {
    let field = match error.field {
        field @ ("schedule_id" | "start_time" | "end_time") => field.to_owned(),
        field => format!("schedule.{field}"),
    };
    status::invalid(&field, error.problem.clone()).into()
}

/// The specification in a message, unchecked.
pub(super) fn draft(id: &str, schedule: &v1::Schedule) -> Result<Draft, Status> {
    let overlap = match schedule.overlap() {
        OverlapMessage::Unspecified | OverlapMessage::Skip => Overlap::Skip,
        OverlapMessage::Queue => Overlap::Queue,
        OverlapMessage::CancelOlder => Overlap::CancelOlder,
        OverlapMessage::Allow => Overlap::Allow,
    };
    Ok(Draft {
        name: id.to_owned(),
        cron: Some(schedule.cron.clone()).filter(|line| !line.is_empty()),
        interval: seconds("schedule.interval", schedule.interval.as_ref())?,
        anchor: schedule.anchor_time.as_ref().map(|time| time.seconds),
        time_zone: schedule.time_zone.clone(),
        jitter: seconds("schedule.jitter", schedule.jitter.as_ref())?.unwrap_or(0),
        overlap,
        catch_up: seconds("schedule.catch_up_window", schedule.catch_up_window.as_ref())?,
    })
}

fn seconds(field: &str, duration: Option<&pbjson_types::Duration>) -> Result<Option<i64>, Status> {
    match duration {
        None => Ok(None),
        Some(duration) if duration.nanos == 0 => Ok(Some(duration.seconds)),
        Some(_) => Err(status::invalid(field, "has a fraction of a second: use whole seconds").into()),
    }
}

/// A nominal time.
pub(super) fn time(seconds: i64) -> pbjson_types::Timestamp {
    pbjson_types::Timestamp { seconds, nanos: 0 }
}
