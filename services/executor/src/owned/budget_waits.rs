//! Loads the executions whose namespaces have room in their budgets again when the executor starts: the operator has raised a limit, or removed it. In all
//! other cases the window has to end, which is a time like any other.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use belay_journal::{AnyOf, Condition, ExecutionRow, Order, OrderBy, Query, StoreError};
use belay_proto::v1::waiting_reason::Kind;

use crate::owned::registry::ExecutionRegistry;

/// How many executions are read at once.
const PAGE: usize = 256;

/// The delay before reading again when the store could not be read.
const REREAD_AFTER: Duration = Duration::from_secs(1);

/// The spacing between executions that are loaded, so that they do not delay others.
const SPACING: Duration = Duration::from_millis(5);

/// Loads every execution that is paused because of the budget of its namespace, where that has room now.
pub(crate) async fn resume_where_room(registry: Weak<ExecutionRegistry>) {
    // By the time of creation: what begins to wait meanwhile has found no room.
    let filter = vec![AnyOf(vec![Condition::WaitsFor(true, Kind::Limit.into())])];
    let order = Order { by: OrderBy::CreateTime, descending: false };
    let mut query = Query { namespace: None, filter, order, after: None, limit: PAGE };
    loop {
        let Some(this) = registry.upgrade() else { return };
        match resume_page(&this, &query).await {
            Ok(None) => return,
            Ok(next) => query.after = next,
            Err(error) => {
                tracing::error!(%error, "The executions that wait for a budget cannot be read; retrying");
                drop(this);
                tokio::time::sleep(REREAD_AFTER).await;
            }
        }
    }
}

/// Loads those of one page; returns where the next one begins.
async fn resume_page(
    registry: &Arc<ExecutionRegistry>,
    query: &Query,
) -> Result<Option<belay_journal::Position>, StoreError> {
    let page = registry.reads.read(|reader| reader.list(query)).await?;
    for row in page.rows {
        if has_room(registry, &row).await? {
            registry.load(row);
            tokio::time::sleep(SPACING).await;
        }
    }
    Ok(page.next)
}

async fn has_room(registry: &ExecutionRegistry, row: &ExecutionRow) -> Result<bool, StoreError> {
    let Some(account) = registry.budgets.of(&row.execution.namespace) else { return Ok(true) };
    account.load(&registry.reads).await?;
    Ok(account.has_room(registry.now()).unwrap_or(true))
}
