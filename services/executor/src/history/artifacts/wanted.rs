//! Which artifacts a page is to have.

use belay_execution::StepId;
use belay_proto::v1::artifact::Kind;

use super::{ArtifactId, Content, Entry, Made, Origin};

/// Which artifacts are listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Only those of this step.
    pub(crate) step: Option<StepId>,
    /// Only those of this kind; unspecified means all.
    pub(crate) kind: Kind,
    /// Only files whose path begins with this; empty means all artifacts.
    pub(crate) path_prefix: String,
    /// Only those after this one.
    pub(crate) after: Option<ArtifactId>,
}

impl Wanted {
    /// Whether artifacts of the entry may be wanted: their paths, which may have secrets, are compared as they are shown.
    pub(super) fn may_have(&self, entry: &Entry) -> bool {
        let is_kind = match (&entry.origin, self.kind) {
            (Origin::Output { .. }, Kind::Unspecified | Kind::Output) => self.path_prefix.is_empty(),
            (Origin::Files(_), Kind::Unspecified | Kind::File) => true,
            (Origin::Output { .. }, Kind::File) | (Origin::Files(_), Kind::Output) => false,
        };
        is_kind && self.step.as_ref().is_none_or(|wanted| *wanted == entry.step)
    }

    /// Whether an artifact of which [`Wanted::may_have`] holds is wanted.
    pub(super) fn has(&self, made: &Made) -> bool {
        match &made.content {
            Content::Output(_) => true,
            Content::File(file) => file.path.starts_with(&self.path_prefix),
        }
    }
}
