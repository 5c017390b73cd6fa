use std::{ops::ControlFlow, sync::Arc};

use belay_proto::v1;
use belay_reading::timeline::Timeline;
use belay_service_kit::status;
use prost::Message as _;
use tonic::Status;

use super::{history::History, list_executions::page_size};
use crate::{ExecutionReader, feeds::ReadView, names::ExecutionName, wire};

/// How many bytes of rows a page has, unless one row alone has more.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024 - 64 * 1024;

pub(super) async fn get_timeline(
    reading: &Arc<ExecutionReader>,
    request: v1::GetTimelineRequest,
) -> Result<v1::Timeline, Status> {
    let name = ExecutionName::parse("name", &request.name)?;
    // Each page reads all events: by default it has as many rows as fit.
    let size = page_size(request.page_size, usize::MAX)?;
    // The token is the number of rows on the pages before: a row keeps its place.
    let before = match request.page_token.as_str() {
        "" => 0,
        token => token.parse().map_err(|_| {
            Status::from(status::invalid("page_token", "is not one that this method returned: begin without one"))
        })?,
    };
    let history = History::of(reading, &name, None, &request.name).await?;
    let look = |seen: &ReadView<'_>| {
        let execution = seen.execution(v1::ExecutionView::Basic);
        (execution, seen.execution.steps().len(), seen.execution.last_sequence())
    };
    let (execution, steps, last) = reading.follower.look(&name, look).await?;
    let mut timeline = Timeline::default();
    let see = |event: &belay_execution::Event| {
        if event.sequence > last {
            return ControlFlow::Break(());
        }
        timeline.apply(event);
        ControlFlow::Continue(())
    };
    history.read(0, see).await?;
    let (rows, next_page_token) = page(&timeline, before, size, MAX_PAGE_BYTES);
    let pending_steps = i32::try_from(steps.saturating_sub(timeline.rows().len())).unwrap_or(i32::MAX);
    let state = execution.state;
    let v1::Execution { name: execution, plan_id, create_time, end_time, .. } = execution;
    Ok(v1::Timeline { execution, plan_id, state, create_time, end_time, rows, pending_steps, next_page_token })
}

/// The rows after so many, and the token of the next page.
fn page(timeline: &Timeline, before: usize, size: usize, max_bytes: usize) -> (Vec<v1::TimelineRow>, String) {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    let left = timeline.rows().get(before..).unwrap_or_default();
    for row in left.iter().take(size).map(wire::timeline_row) {
        bytes += row.encoded_len();
        if bytes > max_bytes && !rows.is_empty() {
            break;
        }
        rows.push(row);
    }
    let is_last = rows.len() == left.len();
    let next_page_token = if is_last { String::new() } else { (before + rows.len()).to_string() };
    (rows, next_page_token)
}

#[cfg(test)]
mod tests {
    use belay_execution::{Body, Event, StepEvent, Timestamp};

    use super::*;

    #[test]
    fn pages_have_every_row_once() {
        let mut timeline = Timeline::default();
        for n in 0..7 {
            let body = Body::Step { step: format!("s{n}").as_str().into(), attempt: 1, event: StepEvent::Started };
            timeline.apply(&Event { sequence: n + 1, time: Timestamp::from_micros(1), actor: None, body });
        }
        let all = |size: usize, max_bytes: usize| {
            let (mut seen, mut pages, mut token) = (Vec::new(), 0, "0".to_owned());
            while !token.is_empty() {
                let (rows, next) = page(&timeline, token.parse().unwrap(), size, max_bytes);
                seen.extend(rows.into_iter().map(|row| row.step_id));
                (pages, token) = (pages + 1, next);
            }
            (seen.len(), seen.first().cloned(), seen.last().cloned(), pages)
        };
        let seen = |pages| (7, Some("s0".to_owned()), Some("s6".to_owned()), pages);
        assert_eq!(all(1_000, usize::MAX), seen(1));
        assert_eq!(all(3, usize::MAX), seen(3));
        assert_eq!(all(1_000, 1), seen(7), "one alone may have more");
        assert_eq!(page(&timeline, 99, 3, 99), (Vec::new(), String::new()));
    }
}
