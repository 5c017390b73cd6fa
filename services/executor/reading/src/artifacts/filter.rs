//! The filter that selects the artifacts for a page.

use belay_execution::StepId;

use super::{Artifact, ArtifactId, Content, Entry, Origin};

/// A kind of artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Outputs of steps.
    Output,
    /// Files that calls committed.
    File,
}

/// A filter of artifacts.
#[derive(Clone, Debug, Default)]
pub struct ArtifactFilter {
    /// Only those of this step.
    pub step: Option<StepId>,
    /// Only those of this kind.
    pub kind: Option<Kind>,
    /// Only files whose path begins with this; empty means all artifacts.
    pub path_prefix: String,
    /// Only those after this one.
    pub after: Option<ArtifactId>,
}

impl ArtifactFilter {
    /// Whether artifacts of the entry may match: their paths, which may have secrets, are compared as they are shown.
    pub(super) fn may_have(&self, entry: &Entry) -> bool {
        let is_kind = match (&entry.origin, self.kind) {
            (Origin::Output { .. }, None | Some(Kind::Output)) => self.path_prefix.is_empty(),
            (Origin::Files(_), None | Some(Kind::File)) => true,
            (Origin::Output { .. }, Some(Kind::File)) | (Origin::Files(_), Some(Kind::Output)) => false,
        };
        is_kind && self.step.as_ref().is_none_or(|step| *step == entry.step)
    }

    /// Whether an artifact of which [`ArtifactFilter::may_have`] holds matches.
    pub(super) fn has(&self, artifact: &Artifact) -> bool {
        match &artifact.content {
            Content::Output(_) => true,
            Content::File(file) => file.path.starts_with(&self.path_prefix),
        }
    }
}
