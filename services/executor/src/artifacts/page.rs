//! One page of an execution's artifacts.

use belay_execution::{Body, Event, StepId, ToolCallEnd, ToolCallEvent};
use belay_proto::v1::{self, artifact::Kind};
use belay_redaction::Redactor;
use prost::Message as _;

use super::{ArtifactId, Artifacts, Content, Made};

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
    fn has(&self, made: &Made) -> bool {
        let is_kind = match (&made.content, self.kind) {
            (_, Kind::Unspecified) | (Content::Output(_), Kind::Output) | (Content::File(_), Kind::File) => true,
            (Content::Output(_), Kind::File) | (Content::File(_), Kind::Output) => false,
        };
        let is_path = match &made.content {
            Content::Output(_) => self.path_prefix.is_empty(),
            Content::File(file) => file.path.starts_with(&self.path_prefix),
        };
        is_kind && is_path && self.has_step(&made.step) && self.after.is_none_or(|after| made.id > after)
    }

    fn has_step(&self, step: &StepId) -> bool {
        self.step.as_ref().is_none_or(|wanted| wanted == step)
    }
}

/// A page while it is gathered: events are given to it in order, from the execution's first.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    execution: &'a str,
    redactor: &'a Redactor,
    wanted: Wanted,
    size: usize,
    max_bytes: usize,
    artifacts: Artifacts,
    found: Vec<v1::Artifact>,
    bytes: usize,
    last: Option<ArtifactId>,
    unlisted: u64,
    is_full: bool,
}

impl<'a> Page<'a> {
    /// An empty page of `size` artifacts of the execution with this name, of `max_bytes` unless one alone has more.
    pub(crate) fn new(
        execution: &'a str,
        redactor: &'a Redactor,
        wanted: Wanted,
        size: usize,
        max_bytes: usize,
    ) -> Self {
        Self {
            execution,
            redactor,
            wanted,
            size,
            max_bytes,
            artifacts: Artifacts::default(),
            found: Vec::new(),
            bytes: 0,
            last: None,
            unlisted: 0,
            is_full: false,
        }
    }

    /// Takes the next event. Returns whether the page is full.
    pub(crate) fn apply(&mut self, event: &Event) -> bool {
        if let Body::ToolCall { call, event: ToolCallEvent::Ended(end) } = &event.body
            && self.wanted.has_step(&call.step)
        {
            self.unlisted += unlisted(end);
        }
        for made in self.artifacts.apply(event) {
            if !self.wanted.has(&made) {
                continue;
            }
            let artifact = made.message(self.execution, self.redactor);
            self.bytes += artifact.encoded_len();
            if self.found.len() == self.size || self.bytes > self.max_bytes && !self.found.is_empty() {
                self.is_full = true;
                return true;
            }
            self.last = Some(made.id);
            self.found.push(artifact);
        }
        false
    }

    /// The page.
    pub(crate) fn response(self) -> v1::ListArtifactsResponse {
        let next = self.last.filter(|_| self.is_full);
        v1::ListArtifactsResponse {
            artifacts: self.found,
            next_page_token: next.map(|next| next.to_string()).unwrap_or_default(),
            unlisted_file_count: if self.is_full { 0 } else { i64::try_from(self.unlisted).unwrap_or(i64::MAX) },
        }
    }
}

/// How many entries a call committed that are in no receipt.
fn unlisted(end: &ToolCallEnd) -> u64 {
    match end {
        ToolCallEnd::Completed { receipt, .. } | ToolCallEnd::Failed { receipt, .. } => receipt.unlisted_files,
        ToolCallEnd::Denied { .. } | ToolCallEnd::Cancelled { .. } | ToolCallEnd::OutcomeUnknown { .. } => 0,
    }
}
