use std::sync::Arc;

use belay_execution::StepKey;
use belay_proto::v1;
use belay_service_kit::status;
use prost::Message as _;
use tonic::Status;

use super::list_executions::page_size;
use crate::{ExecutionReader, feeds::ReadView, names::ExecutionName, wire::StepDetails};

/// How many bytes of steps a page has, unless one step alone has more.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024 - 64 * 1024;

pub(super) async fn list_steps(
    reading: &Arc<ExecutionReader>,
    request: v1::ListStepsRequest,
) -> Result<v1::ListStepsResponse, Status> {
    let name = ExecutionName::parse("parent", &request.parent)?;
    let details = match request.view() {
        v1::StepView::Unspecified | v1::StepView::Basic => StepDetails::Brief,
        v1::StepView::Full => StepDetails::Full,
    };
    let size = page_size(request.page_size, 100)?;
    // The token is the number of steps on the pages before. The plan does not change.
    let before = match request.page_token.as_str() {
        "" => 0,
        token => token.parse().map_err(|_| {
            Status::from(status::invalid("page_token", "is not one that this method returned: begin without one"))
        })?,
    };
    reading.follower.look(&name, |seen| page(seen, before, size, details)).await
}

fn page(seen: &ReadView<'_>, before: usize, size: usize, details: StepDetails) -> v1::ListStepsResponse {
    let keys: Vec<StepKey> = seen.execution.steps().skip(before).take(size + 1).map(|step| step.key).collect();
    let (mut steps, mut bytes) = (Vec::new(), 0);
    for &key in keys.iter().take(size) {
        let step = seen.step(key, details);
        bytes += step.encoded_len();
        if bytes > MAX_PAGE_BYTES && !steps.is_empty() {
            break;
        }
        steps.push(step);
    }
    let is_last = steps.len() == keys.len();
    let next_page_token = if is_last { String::new() } else { (before + steps.len()).to_string() };
    let last_sequence = i64::try_from(seen.execution.last_sequence()).unwrap_or(i64::MAX);
    v1::ListStepsResponse { steps, next_page_token, last_sequence }
}
