//! Messages for the timeline of an execution's steps.

use belay_proto::v1::{self, timeline_segment};
use belay_reading::timeline::{Kind, Row, Segment};

use super::{execution::step_state, time};

/// The timeline of one step, as a message.
pub(crate) fn timeline_row(Row { step, state, segments }: &Row) -> v1::TimelineRow {
    v1::TimelineRow {
        step_id: step.as_str().to_owned(),
        state: step_state(*state).into(),
        segments: segments.iter().map(segment).collect(),
    }
}

fn segment(Segment { attempt, operation, kind, begin, end }: &Segment) -> v1::TimelineSegment {
    let kind = match kind {
        Kind::Running => timeline_segment::Kind::Running,
        Kind::Person => timeline_segment::Kind::Person,
        Kind::Waiting => timeline_segment::Kind::Waiting,
        Kind::Backoff => timeline_segment::Kind::Backoff,
    };
    v1::TimelineSegment {
        kind: kind.into(),
        attempt: i32::try_from(*attempt).unwrap_or(i32::MAX),
        operation: i32::try_from(*operation).unwrap_or(i32::MAX),
        begin_time: Some(time(*begin)),
        end_time: end.map(time),
    }
}
