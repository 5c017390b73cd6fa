use std::sync::Arc;

use belay_proto::v1;
use tonic::Status;

use super::list_executions::page_size;
use crate::ExecutionRegistry;

pub(super) async fn list_capabilities(
    registry: &Arc<ExecutionRegistry>,
    request: v1::ListCapabilitiesRequest,
) -> Result<v1::ListCapabilitiesResponse, Status> {
    let size = page_size(request.page_size, 100)?;
    // A later page is of the same list, if the runner still offers it.
    let catalogue = registry.runner.catalogue(request.page_token.is_empty()).await?;
    let page = page(&catalogue.tools, size, &request.page_token);
    Ok(v1::ListCapabilitiesResponse { tool_servers: catalogue.servers.clone(), ..page })
}

/// The page of `tools`, which are in any order, that begins after the name `page_token`.
fn page(tools: &[v1::Tool], size: usize, page_token: &str) -> v1::ListCapabilitiesResponse {
    let mut after: Vec<&v1::Tool> = tools.iter().filter(|tool| tool.name.as_str() > page_token).collect();
    after.sort_by(|a, b| a.name.cmp(&b.name));
    let more = after.len() > size;
    after.truncate(size);
    // The token is the last name of the page.
    let next_page_token = after.last().filter(|_| more).map(|tool| tool.name.clone()).unwrap_or_default();
    let tools = after.into_iter().cloned().collect();
    let step_kinds = vec!["tool".into(), "wait".into()];
    v1::ListCapabilitiesResponse { tools, step_kinds, next_page_token, ..v1::ListCapabilitiesResponse::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_every_tool_once_by_name() {
        let tool = |name: &&str| v1::Tool { name: (*name).into(), ..Default::default() };
        let tools: Vec<v1::Tool> = ["d", "a", "c", "b", "e"].iter().map(tool).collect();
        let (mut names, mut page_token, mut sizes) = (Vec::new(), String::new(), Vec::new());
        loop {
            let page = page(&tools, 2, &page_token);
            assert_eq!(page.step_kinds, ["tool", "wait"]);
            sizes.push(page.tools.len());
            names.extend(page.tools.into_iter().map(|tool| tool.name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!((names.join(""), sizes), ("abcde".to_owned(), vec![2, 2, 1]));
        assert_eq!(page(&tools, 5, "").next_page_token, "", "no empty page follows a full one");
    }
}
