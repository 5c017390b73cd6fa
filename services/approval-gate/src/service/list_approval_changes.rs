use belay_grant::Subject;
use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::status;
use prost::Message as _;
use tonic::{Code, Status};

use crate::{
    Gate,
    gate::{no_approval, unreadable},
    names::check_approval,
    preview::listed,
};

/// The maximum size of a page, in bytes, not counting its first change.
const MAX_PAGE_BYTES: usize = 3 * 1024 * 1024;

pub(super) async fn list_approval_changes(
    gate: &Gate,
    request: v1::ListApprovalChangesRequest,
) -> Result<v1::ListApprovalChangesResponse, Status> {
    check_approval("name", &request.name)?;
    let size = page_size(request.page_size)?;
    let start = page_start(&request.page_token)?;
    let subject = subject_of(gate, &request.name).await?;
    let redactor = gate.redactor.clone();
    let changes = gate.store.work(move || listed(&redactor, &subject)).await;
    let total = changes.len();
    let mut bytes = 0;
    let fits = |change: &v1::PathChange| {
        let first = bytes == 0;
        bytes += change.encoded_len();
        first || bytes <= MAX_PAGE_BYTES
    };
    let page: Vec<_> = changes.into_iter().skip(start).take(size).take_while(fits).collect();
    let end = start + page.len();
    Ok(v1::ListApprovalChangesResponse {
        next_page_token: if end < total && !page.is_empty() { end.to_string() } else { String::new() },
        changes: page,
        total: i32::try_from(total).unwrap_or(i32::MAX),
    })
}

/// The subject of an approval, from its stored bytes.
pub(super) async fn subject_of(gate: &Gate, name: &str) -> Result<Subject, Status> {
    let approval = gate.store.get_full(name).await.map_err(|error| unreadable(&error))?;
    let approval = approval.ok_or_else(|| no_approval(name))?;
    if approval.kind() == v1::approval_need::Kind::Form {
        return Err(no_changes(name));
    }
    Subject::parse(&approval.subject).map_err(|error| {
        status::error(
            Code::DataLoss,
            reasons::STORE_CORRUPT,
            format!("The subject of `{name}` cannot be read: {error}."),
        )
        .into()
    })
}

/// A form changes no files.
pub(super) fn no_changes(name: &str) -> Status {
    let message = format!("`{name}` is a form, which changes no files.");
    status::error(Code::NotFound, reasons::CHANGE_NOT_FOUND, message).into()
}

/// The page size: 1,000 by default, at most 10,000.
pub(super) fn page_size(asked: i32) -> Result<usize, Status> {
    match asked {
        0 => Ok(1_000),
        size => usize::try_from(size)
            .map(|size| size.min(10_000))
            .map_err(|_| status::invalid("page_size", "must not be negative").into()),
    }
}

/// Parses a page token: the position at which the previous page ended.
pub(super) fn page_start(token: &str) -> Result<usize, Status> {
    if token.is_empty() {
        return Ok(0);
    }
    let refused = || status::invalid("page_token", "is not valid: use the next_page_token of a response");
    token.parse().map_err(|_| refused().into())
}
