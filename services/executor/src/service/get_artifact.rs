use std::{ops::ControlFlow, sync::Arc};

use belay_execution::{Payload, Workspace};
use belay_proto::v1;
use belay_reading::artifacts::{Artifact, ArtifactId, Content, Selection};
use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::{Code, Status};

use super::{artifacts, history::History, watch_execution::Messages};
use crate::{
    ExecutionReader,
    names::{ExecutionName, artifact_name},
    store::blobs::{Opener, Unreadable, digest_bytes},
};

/// How many bytes of a value that is inline are sent at once.
const PIECE: usize = 64 * 1024;

pub(super) async fn get_artifact(
    reading: &Arc<ExecutionReader>,
    request: v1::GetArtifactRequest,
) -> Result<Messages<v1::GetArtifactResponse>, Status> {
    let (name, id) = artifact_name("name", &request.name)?;
    let offset =
        u64::try_from(request.offset).map_err(|_| Status::from(status::invalid("offset", "must not be negative")))?;
    let history = History::of(reading, &name, None, &request.name).await?;
    let made = find(&history, &name, &id).await?;
    let artifact = artifacts::message(&made, &name.to_string(), &history.redactor);
    let mut content = match &made.content {
        Content::File(_) => return Err(not_kept(&artifact, &history.workspace)),
        Content::Output(Payload::Inline(json)) => {
            Bytes::Inline(artifacts::shown_text(json, &history.redactor).into_bytes())
        }
        Content::Output(Payload::Blob(blob)) => {
            let opener = reading.follower.opener(history.key, &name, history.uid.clone()).await?;
            let bytes = digest_bytes(&blob.digest);
            let bytes = bytes.ok_or_else(|| Unreadable::Missing.status(&blob.digest))?;
            Bytes::Blob { opener, bytes, digest: blob.digest.to_string() }
        }
    };
    let first = content.piece(reading, offset).await?.ok_or_else(|| {
        let message = format!("offset: {offset} is after the end of the artifact");
        Status::from(status::error(Code::OutOfRange, reasons::BLOB_OFFSET_OUT_OF_RANGE, message))
    })?;
    let reading = Arc::clone(reading);
    Ok(Box::pin(async_stream::try_stream! {
        let (mut artifact, mut data, mut offset) = (Some(artifact), first, offset);
        loop {
            let length = data.len() as u64;
            if length == 0 && artifact.is_none() {
                break;
            }
            yield v1::GetArtifactResponse {
                artifact: artifact.take(),
                offset: i64::try_from(offset).unwrap_or(i64::MAX),
                data,
            };
            offset += length;
            data = content.piece(&reading, offset).await?.unwrap_or_default();
        }
    }))
}

/// Where the bytes of an output are.
enum Bytes {
    Inline(Vec<u8>),
    Blob { opener: Opener, bytes: [u8; 32], digest: String },
}

impl Bytes {
    /// The piece from an offset on; empty at the end, and `None` after that.
    async fn piece(&mut self, reading: &ExecutionReader, offset: u64) -> Result<Option<Vec<u8>>, Status> {
        match self {
            Self::Inline(text) => {
                let rest = usize::try_from(offset).ok().and_then(|offset| text.get(offset..));
                Ok(rest.map(|rest| rest[..rest.len().min(PIECE)].to_vec()))
            }
            Self::Blob { opener, bytes, digest } => {
                reading.blobs.shown(opener, *bytes, offset).await.map_err(|unreadable| unreadable.status(digest))
            }
        }
    }
}

/// Finds the artifact with this id.
async fn find(history: &History<'_>, name: &ExecutionName, id: &str) -> Result<Artifact, Status> {
    let wanted = ArtifactId::parse(id).ok_or_else(|| not_found(name, id))?;
    let selecting = history.select(|index, is_complete| {
        let is_far_enough = index.last() >= wanted.sequence() || is_complete;
        is_far_enough.then(|| Selection::of(index.artifacts(), [wanted]))
    });
    let (selection, mut found) = (selecting.await?, None);
    let see = |made| {
        found = Some(made);
        ControlFlow::Break(())
    };
    history.artifacts(&selection, see).await?;
    found.ok_or_else(|| not_found(name, id))
}

/// The error of an artifact that an execution does not have.
pub(super) fn not_found(name: &ExecutionName, id: &str) -> Status {
    let message = format!("Execution `{}` has no artifact `{id}`.", name.id);
    let name = format!("{name}/artifacts/{id}");
    status::error(Code::NotFound, reasons::ARTIFACT_NOT_FOUND, message).with("name", name).into()
}

fn not_kept(artifact: &v1::Artifact, workspace: &Workspace) -> Status {
    let v1::Artifact { path, digest, .. } = artifact;
    let place = match workspace {
        Workspace::Directory(path) => format!("the workspace {path}"),
        Workspace::MadeFolder(id) => format!("the folder `{id}`, which the tool runner has made"),
    };
    let message = match artifact.change() {
        v1::path_change::Kind::Deleted => format!("The call deleted `{path}`: there is no content."),
        _ if digest.is_empty() => {
            format!("`{path}` is not a regular file: it is in {place}, and has no content that is kept.")
        }
        _ => format!(
            "The content of `{path}` is not kept: the file is in {place}, until something changes it. As it was committed it has the digest {digest}."
        ),
    };
    status::error(Code::FailedPrecondition, reasons::ARTIFACT_CONTENT_NOT_KEPT, message)
        .with("path", path)
        .with("digest", digest)
        .into()
}
