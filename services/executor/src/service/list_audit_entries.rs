use std::{ops::ControlFlow, sync::Arc};

use belay_proto::v1::{self, AuditLevel};
use belay_reading::audit;
use belay_service_kit::status;
use prost::Message as _;
use tonic::Status;

use super::{history::History, list_executions::page_size};
use crate::{ExecutionReader, names::execution_or_step, store::secrets::shown, wire};

/// How many events a page looks at: where few are wanted it is shorter, and may be empty.
const MAX_PAGE_EVENTS: usize = 2_048;

/// How many bytes of entries a page has, unless one alone has more.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024 - 64 * 1024;

pub(super) async fn list_audit_entries(
    reading: &Arc<ExecutionReader>,
    request: v1::ListAuditEntriesRequest,
) -> Result<v1::ListAuditEntriesResponse, Status> {
    let (name, step) = execution_or_step("parent", &request.parent)?;
    let size = page_size(request.page_size, 100)?;
    // The token is the number of the last event that the pages before have looked at.
    let after: u64 = match request.page_token.as_str() {
        "" => 0,
        token => token.parse().map_err(|_| {
            Status::from(status::invalid("page_token", "is not one that this method returned: begin without one"))
        })?,
    };
    let history = History::of(reading, &name, step.as_deref(), &request.parent).await?;
    let level = match (request.level(), history.audit_level) {
        (AuditLevel::Unspecified, AuditLevel::Unspecified) => AuditLevel::Standard,
        (AuditLevel::Unspecified, level) | (level, _) => level,
    };
    let (mut entries, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
    let (mut last, mut next) = (after, None);
    let see = |event: &belay_execution::Event| {
        if looked_at == MAX_PAGE_EVENTS {
            next = Some(last);
            return ControlFlow::Break(());
        }
        looked_at += 1;
        let before = std::mem::replace(&mut last, event.sequence);
        let about = event.body.subject().step();
        if step.as_deref().is_some_and(|step| about.is_none_or(|about| about.as_str() != step)) {
            return ControlFlow::Continue(());
        }
        let entry = wire::audit_entry(audit::entry(event));
        if entry.level > level.into() || entry.severity < request.min_severity {
            return ControlFlow::Continue(());
        }
        let entry = shown(&history.redactor, entry);
        bytes += entry.encoded_len();
        if entries.len() == size || bytes > MAX_PAGE_BYTES && !entries.is_empty() {
            next = Some(before);
            return ControlFlow::Break(());
        }
        entries.push(entry);
        ControlFlow::Continue(())
    };
    history.read(after, see).await?;
    let next_page_token = next.map(|next| next.to_string()).unwrap_or_default();
    Ok(v1::ListAuditEntriesResponse { entries, next_page_token, level: level.into() })
}
