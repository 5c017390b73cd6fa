use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    sync::Arc,
};

use belay_proto::v1;
use belay_reading::artifacts::{Artifact, ArtifactId, Lineage, Selection};
use belay_service_kit::status;
use tonic::Status;

use super::{artifacts, get_artifact::not_found, history::History};
use crate::{ExecutionReader, names::artifact_name};

/// The most artifacts in each direction.
const MAX_ARTIFACTS: usize = 1_000;

/// The most bytes in each direction, unless one alone has more.
const MAX_BYTES: usize = 2 * 1024 * 1024;

pub(super) async fn get_provenance(
    reading: &Arc<ExecutionReader>,
    request: v1::GetProvenanceRequest,
) -> Result<v1::GetProvenanceResponse, Status> {
    let (name, id) = artifact_name("name", &request.name)?;
    let max = match usize::try_from(request.max_artifacts) {
        Ok(0) => MAX_ARTIFACTS,
        Ok(max) => max.min(MAX_ARTIFACTS),
        Err(_) => return Err(status::invalid("max_artifacts", "must not be negative").into()),
    };
    let of = ArtifactId::parse(&id).ok_or_else(|| not_found(&name, &id))?;
    let history = History::of(reading, &name, None, &request.name).await?;
    let execution = name.to_string();

    let name_bytes = of.name(&execution).len() + 16;
    let selecting = history.select(|index, is_complete| {
        let graph = is_complete.then(|| index.artifacts())?;
        Some(graph.has(of).then(|| {
            let up = graph.ancestors(of, max, MAX_BYTES, name_bytes);
            let down = graph.descendants(of, max, MAX_BYTES, name_bytes);
            let wanted: BTreeSet<ArtifactId> =
                up.artifacts.iter().chain(&down.artifacts).copied().chain([of]).collect();
            (Selection::of(graph, wanted), up, down)
        }))
    });
    let (selection, up, down) = selecting.await?.ok_or_else(|| not_found(&name, &id))?;
    let mut found = HashMap::with_capacity(selection.len());
    let see = |made: Artifact| {
        found.insert(made.id, artifacts::message(&made, &execution, &history.redactor));
        ControlFlow::Continue(())
    };
    history.artifacts(&selection, see).await?;
    let artifact = found.remove(&of);
    let mut messages = |lineage: &Lineage| lineage.artifacts.iter().filter_map(|id| found.remove(id)).collect();
    Ok(v1::GetProvenanceResponse {
        artifact,
        ancestors: messages(&up),
        descendants: messages(&down),
        ancestors_truncated: up.is_truncated,
        descendants_truncated: down.is_truncated,
    })
}
