use std::{ops::ControlFlow, sync::Arc};

use belay_execution::StepId;
use belay_proto::v1;
use belay_reading::artifacts::{Artifact, ArtifactFilter, ArtifactId, ArtifactPage, Page, Selection};
use belay_service_kit::status;
use prost::Message as _;
use tonic::Status;

use super::{
    artifacts,
    history::{History, MAX_SELECTED},
    list_executions::page_size,
};
use crate::{ExecutionReader, names::execution_or_step, wire};

/// How many bytes of artifacts a page has, unless one alone has more.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024 - 64 * 1024;

pub(super) async fn list_artifacts(
    reading: &Arc<ExecutionReader>,
    request: v1::ListArtifactsRequest,
) -> Result<v1::ListArtifactsResponse, Status> {
    let (name, step) = execution_or_step("parent", &request.parent)?;
    let size = page_size(request.page_size, 100)?;
    // The token is the id of the last artifact on the pages before.
    let after = match request.page_token.as_str() {
        "" => None,
        token => Some(ArtifactId::parse(token).ok_or_else(|| {
            Status::from(status::invalid("page_token", "is not one that this method returned: begin without one"))
        })?),
    };
    let kind = wire::artifact_kind_from(request.kind);
    let history = History::of(reading, &name, step.as_deref(), &request.parent).await?;
    let step = step.map(StepId::from);
    let filter = ArtifactFilter { step: step.clone(), kind, path_prefix: request.path_prefix, after };
    let execution = name.to_string();
    let message = |made: &Artifact| {
        let message = artifacts::message(made, &execution, &history.redactor);
        let bytes = message.encoded_len();
        (message, bytes)
    };
    let mut page = Page::new(filter, size, MAX_PAGE_BYTES);
    loop {
        let (filter, count) = (page.filter(), page.missing().min(MAX_SELECTED));
        let selecting = history.select(|index, is_complete| {
            let graph = index.artifacts();
            let selection = Selection::of(graph, graph.candidates(filter).take(count));
            (selection.len() == count || is_complete).then(|| (selection, index.unlisted(step.as_ref())))
        });
        let (selection, unlisted) = selecting.await?;
        let mut is_full = false;
        let see = |made: Artifact| {
            is_full = page.apply(&made, message);
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        history.artifacts(&selection, see).await?;
        if is_full || selection.len() < count {
            let ArtifactPage { artifacts, next, unlisted } = page.finish(unlisted);
            return Ok(v1::ListArtifactsResponse {
                artifacts,
                next_page_token: next.map(|next| next.to_string()).unwrap_or_default(),
                unlisted_file_count: i64::try_from(unlisted).unwrap_or(i64::MAX),
            });
        }
    }
}
