use belay_proto::{runner_v1, v1};
use belay_service_kit::status;
use tonic::Status;

use crate::Calls;

pub(super) fn list_tools(
    calls: &Calls,
    request: &runner_v1::ListToolsRequest,
) -> Result<runner_v1::ListToolsResponse, Status> {
    let size = match request.page_size {
        0 => 100,
        size => usize::try_from(size)
            .map_err(|_| Status::from(status::invalid("page_size", "must not be negative")))?
            .min(1000),
    };
    // The token is the last name of the previous page.
    let mut tools: Vec<v1::Tool> =
        calls.registry.tools().filter(|tool| tool.name.as_str() > request.page_token.as_str()).take(size + 1).collect();
    let more = tools.len() > size;
    tools.truncate(size);
    let next_page_token = tools.last().filter(|_| more).map(|tool| tool.name.clone()).unwrap_or_default();
    let (ledger_id, tool_servers) = (calls.ledger_id().to_owned(), calls.registry.servers().to_vec());
    Ok(runner_v1::ListToolsResponse { tools, next_page_token, ledger_id, tool_servers })
}
