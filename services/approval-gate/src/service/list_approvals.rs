use belay_proto::v1;
use belay_service_kit::status;
use prost::Message as _;
use tonic::Status;

use crate::{
    Gate,
    gate::unreadable,
    names::parent,
    store::{Filter, Position},
};

/// The maximum size of a page, in bytes, not counting its first approval: a summary may name long paths.
const MAX_PAGE_BYTES: usize = 3 * 1024 * 1024;

pub(super) async fn list_approvals(
    gate: &Gate,
    request: v1::ListApprovalsRequest,
) -> Result<v1::ListApprovalsResponse, Status> {
    let filter = Filter {
        namespace: parent(&request.parent)?,
        execution: request.execution,
        states: request.states,
        id_prefix: request.id_prefix,
    };
    let Page { approvals, next_page_token } = page(gate, filter, request.page_size, &request.page_token).await?;
    Ok(v1::ListApprovalsResponse { approvals, next_page_token })
}

/// A page of approvals, in BASIC view.
pub(super) struct Page {
    pub(super) approvals: Vec<v1::Approval>,
    /// Empty on the last page.
    pub(super) next_page_token: String,
}

/// Reads a page: pending approvals first, the oldest first; then the others, the newest first.
pub(super) async fn page(gate: &Gate, filter: Filter, page_size: i32, page_token: &str) -> Result<Page, Status> {
    let size = match page_size {
        0 => 50,
        size => usize::try_from(size)
            .map_err(|_| Status::from(status::invalid("page_size", "must not be negative")))?
            .min(1000),
    };
    let after = position(page_token).ok_or_else(|| {
        Status::from(status::invalid("page_token", "is not valid: use the next_page_token of a response"))
    })?;
    gate.expire_due().await?;
    let found = gate.store.list(filter, after, size + 1).await.map_err(|error| unreadable(&error))?;
    let mut bytes = 0;
    let fits = |(_, approval): &&(Position, v1::Approval)| {
        let first = bytes == 0;
        bytes += approval.encoded_len();
        first || bytes <= MAX_PAGE_BYTES
    };
    let kept = found.iter().take(size).take_while(fits).count();
    let next_page_token = match kept < found.len() {
        true => found[..kept].last().map(|(position, _)| token(*position)).unwrap_or_default(),
        false => String::new(),
    };
    let approvals = found.into_iter().take(kept).map(|(_, approval)| approval).collect();
    Ok(Page { approvals, next_page_token })
}

/// The page token: the position at which the page ended.
fn token(position: Position) -> String {
    match position {
        Position::Pending(key) => format!("p{key}"),
        Position::Other(key) => format!("o{key}"),
    }
}

fn position(token: &str) -> Option<Position> {
    if token.is_empty() {
        return Some(Position::START);
    }
    let place = match token.split_at_checked(1)? {
        ("p", key) => Position::Pending(key.parse().ok()?),
        ("o", key) => Position::Other(key.parse().ok()?),
        _ => return None,
    };
    Some(place)
}
