use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc};

use belay_execution::digest;
use belay_proto::{kinds, v1};
use belay_service_kit::status;
use prost::Message as _;
use tonic::Status;

use super::{history::History, list_executions::page_size};
use crate::{ExecutionReader, names::execution_or_step, store::secrets::Sealer};

/// How many events a page looks at: where few are wanted it is shorter, and may be empty.
const MAX_PAGE_EVENTS: usize = 2_048;

/// How many bytes of events a page has, unless one event alone has more.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024 - 64 * 1024;

pub(super) async fn list_events(
    reading: &Arc<ExecutionReader>,
    request: v1::ListEventsRequest,
) -> Result<v1::ListEventsResponse, Status> {
    let (name, step) = execution_or_step("parent", &request.parent)?;
    let size = page_size(request.page_size, 100)?;
    let kinds = wanted(&reading.sealer, &request.kinds)?;
    let after = match request.page_token.as_str() {
        "" => 0,
        token => position(&request, token).ok_or_else(|| {
            let what = "is not valid: use the next_page_token of a response to the same parent and kinds";
            Status::from(status::invalid("page_token", what))
        })?,
    };
    let history = History::of(reading, &name, step.as_deref(), &request.parent).await?;
    let (mut events, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
    let (mut last, mut next) = (after, None);
    let see = |sequence, event: v1::ExecutionEvent| {
        if looked_at == MAX_PAGE_EVENTS {
            next = Some(last);
            return ControlFlow::Break(());
        }
        looked_at += 1;
        let before = std::mem::replace(&mut last, sequence);
        let is_of_step = step.as_ref().is_none_or(|step| *step == event.step_id);
        let is_of_kind =
            || kinds.is_empty() || event.kind.as_ref().is_some_and(|kind| kinds.contains(kinds::name(kind)));
        if !is_of_step || !is_of_kind() {
            return ControlFlow::Continue(());
        }
        bytes += event.encoded_len();
        if events.len() == size || bytes > MAX_PAGE_BYTES && !events.is_empty() {
            next = Some(before);
            return ControlFlow::Break(());
        }
        events.push(event);
        ControlFlow::Continue(())
    };
    history.watched(after, size, see).await?;
    let next_page_token = next.map(|next| format!("{}.{next}", list_id(&request))).unwrap_or_default();
    Ok(v1::ListEventsResponse { events, next_page_token })
}

/// The kinds that are wanted; none means all.
fn wanted(sealer: &Sealer, named: &[String]) -> Result<BTreeSet<&'static str>, Status> {
    let known = |(index, name): (usize, &String)| {
        kinds::stored().find(|known| known == name).ok_or_else(|| {
            let all: Vec<&str> = kinds::stored().collect();
            let what = format!("`{name}` is not a kind of event that is stored: use one of {}", all.join(", "));
            status::invalid(&format!("kinds[{index}]"), sealer.shown(what)).into()
        })
    };
    named.iter().enumerate().map(known).collect()
}

/// The number of the last event that the pages before have looked at.
fn position(request: &v1::ListEventsRequest, token: &str) -> Option<u64> {
    let (list, after) = token.split_once('.')?;
    after.parse().ok().filter(|_| list == list_id(request))
}

/// Identifies the list that a token belongs to: the method, and what its events are chosen by.
fn list_id(request: &v1::ListEventsRequest) -> String {
    let list = format!("ListEvents {} {}", request.parent, request.kinds.join(" "));
    digest(list.as_bytes()).trim_start_matches("sha256:").chars().take(8).collect()
}
