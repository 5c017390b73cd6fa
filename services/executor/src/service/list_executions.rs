use std::{collections::BTreeMap, sync::Arc};

use belay_execution::digest;
use belay_journal::{AnyOf, Condition, ExecutionKey, Page, Position, Query};
use belay_proto::v1;
use belay_service_kit::status;
use tonic::Status;

use super::filter;
use crate::{
    ExecutionReader,
    names::namespace,
    store::{journal_reads::unreadable, secrets::Sealer},
    wire,
};

/// The parent of all namespaces.
const ALL_NAMESPACES: &str = "namespaces/-";

/// The size of a page of executions or namespaces for which a request names none.
pub(super) const DEFAULT_PAGE_SIZE: usize = 50;

/// How many entries a page has where the request says so many; `default` where it says nothing.
pub(super) fn page_size(requested: i32, default: usize) -> Result<usize, Status> {
    match requested {
        0 => Ok(default),
        size => match usize::try_from(size) {
            Ok(size) => Ok(size.min(1000)),
            Err(_) => Err(status::invalid("page_size", "must not be negative").into()),
        },
    }
}

pub(super) async fn list_executions(
    reading: &Arc<ExecutionReader>,
    request: v1::ListExecutionsRequest,
) -> Result<v1::ListExecutionsResponse, Status> {
    let query = query(&reading.sealer, &request)?;
    let page = page(reading, &query).await?;
    let next_page_token = page.next.map(|next| token(&request, next)).unwrap_or_default();
    Ok(v1::ListExecutionsResponse { executions: page.rows.iter().map(wire::basic).collect(), next_page_token })
}

/// A page of a list. Where nothing can match, none is looked for.
pub(super) async fn page(reading: &ExecutionReader, query: &Query) -> Result<Page, Status> {
    if filter::matches_nothing(&query.filter, query.order) {
        return Ok(Page::default());
    }
    reading.follower.list(query).await.map_err(|error| unreadable(&error))
}

pub(super) fn query(sealer: &Sealer, request: &v1::ListExecutionsRequest) -> Result<Query, Status> {
    let invalid = |field: &str, what: String| Status::from(status::invalid(field, sealer.shown(what)));
    let mut filter = filter::parse(&request.filter).map_err(|error| invalid("filter", error.to_string()))?;
    for AnyOf(any) in &mut filter {
        any.iter_mut().for_each(|condition| as_stored(sealer, condition));
    }
    let names_parent =
        |any: &AnyOf| any.0.iter().any(|one| matches!(one, Condition::Parent(_) | Condition::HasParent(_)));
    if !request.include_children && !filter.iter().any(names_parent) {
        filter.push(AnyOf(vec![Condition::HasParent(false)]));
    }
    let order = filter::order(&request.order_by, &filter).map_err(|what| invalid("order_by", what))?;
    let namespace = match request.parent.as_str() {
        ALL_NAMESPACES => None,
        "" => {
            let what = format!("is required: use namespaces/NAMESPACE, or {ALL_NAMESPACES} for all namespaces");
            return Err(invalid("parent", what));
        }
        parent => Some(namespace("parent", parent)?),
    };
    let after = match request.page_token.as_str() {
        "" => None,
        token => Some(position(request, token).ok_or_else(|| {
            let what = "is not valid: use the next_page_token of a response to the same parent, filter and order_by";
            invalid("page_token", what.to_owned())
        })?),
    };
    Ok(Query { namespace, filter, order, after, limit: page_size(request.page_size, DEFAULT_PAGE_SIZE)? })
}

/// A label is stored with its secrets hidden, and is found by what is stored.
fn as_stored(sealer: &Sealer, condition: &mut Condition) {
    if let Condition::Label(_, key, value) = condition
        && let Some((shown_key, shown)) = sealer.labels(BTreeMap::from([(key.clone(), value.clone())])).pop_first()
    {
        (*key, *value) = (shown_key, shown);
    }
}

/// The position that the next page begins after, and what it is a page of.
fn token(request: &v1::ListExecutionsRequest, next: Position) -> String {
    format!("{}.{}.{}", list_id(request), next.time, next.key.0)
}

fn position(request: &v1::ListExecutionsRequest, token: &str) -> Option<Position> {
    let mut parts = token.split('.');
    let (list, time, key) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && list == list_id(request);
    Some(Position { time: time.parse().ok()?, key: ExecutionKey(key.parse().ok()?) }).filter(|_| is_whole)
}

pub(super) fn list_id(request: &v1::ListExecutionsRequest) -> String {
    let v1::ListExecutionsRequest { parent, filter, order_by, include_children, .. } = request;
    let parts = [parent, filter, order_by].map(|part| format!("{}:{part}", part.len())).concat();
    let list = format!("{parts}{include_children}");
    digest(list.as_bytes()).trim_start_matches("sha256:").chars().take(8).collect()
}
