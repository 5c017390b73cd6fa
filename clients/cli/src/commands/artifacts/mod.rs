//! `belay artifacts …`.

pub(crate) mod get;
pub(crate) mod lineage;
pub(crate) mod list;

use belay_proto::v1::{Artifact, ListArtifactsRequest, artifact::Kind};
use belay_reasons as reasons;
use tonic::{Code, Status};

use crate::{
    args::ExecutionArg,
    connect::Client,
    failure::{Failure, Report},
    lookup, names, next,
};

/// The artifact that a command is about.
#[derive(clap::Args, Debug)]
pub(crate) struct ArtifactArg {
    #[command(flatten)]
    which: ExecutionArg,
    /// The artifact: its id in the list, or the id of a step for its last output, or the path of a file for its last change
    #[arg(value_name = "ARTIFACT")]
    artifact: String,
}

/// The name of the execution and of the artifact that was typed.
async fn resolve(client: &mut Client, namespace: &str, one: &ArtifactArg) -> Result<(String, String), Failure> {
    let execution = lookup::resolve(client, namespace, &one.which.id).await?;
    let typed = one.artifact.as_str();
    if is_artifact_id(typed) {
        return Ok((execution.clone(), format!("{execution}/artifacts/{typed}")));
    }
    let of_step = ListArtifactsRequest {
        parent: format!("{execution}/steps/{typed}"),
        kind: Kind::Output.into(),
        ..ListArtifactsRequest::default()
    };
    let found = match typed.contains('/') {
        true => None,
        false => last(client, of_step, |_| true).await?,
    };
    let of_path = ListArtifactsRequest {
        parent: execution.clone(),
        kind: Kind::File.into(),
        path_prefix: typed.to_owned(),
        ..ListArtifactsRequest::default()
    };
    let found = match found {
        Some(found) => Some(found),
        None => last(client, of_path, |artifact| artifact.path == typed).await?,
    };
    match found {
        Some(found) => Ok((execution, found.name)),
        None => Err(Report::new(
            reasons::ARTIFACT_NOT_FOUND,
            format!("`{typed}` is no artifact: no step of this id has an output, and no call has committed this path"),
        )
        .next(next::about(&["artifacts", "list"], &execution, &[]))
        .into()),
    }
}

/// Whether it has the form of an id in a list: `17` or `17.2`.
fn is_artifact_id(typed: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (event, file) = typed.split_once('.').unwrap_or((typed, "1"));
    is_number(event) && is_number(file)
}

/// The last artifact of a list that is meant; none for a step that there is not.
async fn last(
    client: &mut Client,
    mut request: ListArtifactsRequest,
    is_meant: impl Fn(&Artifact) -> bool,
) -> Result<Option<Artifact>, Status> {
    let mut found = None;
    request.page_size = 1_000;
    loop {
        let page = match client.list_artifacts(request.clone()).await {
            Ok(page) => page.into_inner(),
            Err(status) if status.code() == Code::NotFound && request.parent.contains("/steps/") => return Ok(None),
            Err(status) => return Err(status),
        };
        found = page.artifacts.into_iter().rfind(&is_meant).or(found);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return Ok(found);
        }
    }
}

/// The report on a refused request about an artifact, with the command to type next.
fn refused(status: &Status, execution: &str, artifact: &str) -> Failure {
    let report = Report::of_status(status);
    match status.code() {
        Code::NotFound => report.next(next::about(&["artifacts", "list"], execution, &[])),
        Code::FailedPrecondition => {
            report.next(next::about(&["artifacts", "lineage"], execution, &[names::id(artifact)]))
        }
        _ => report,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_told_from_a_step_and_a_path() {
        assert!(is_artifact_id("17") && is_artifact_id("17.2"));
        for other in ["build", "17.txt", "17.", ".2", "out/17", "v1.2.3", ""] {
            assert!(!is_artifact_id(other), "{other}");
        }
    }
}
