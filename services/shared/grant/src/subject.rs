//! The subject of a decision.

use serde::{Deserialize, Serialize};

use crate::{Invalid, canonical, digest_of, from_canonical};

/// What a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A call that has not run.
    Call,
    /// What a call changed in its view.
    Effect,
}

/// The subject of a decision, fully resolved: the service that carries it out has no choice left.
///
/// It does not contain the attempt: an approved call that the machine lost may run again under the same approval. Nor does it contain
/// descriptions or a model's own opinion of the risk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The version of this message; 1 now.
    pub v: u32,
    /// What the decision is about.
    pub kind: Kind,
    /// `namespaces/*/executions/*`.
    pub execution: String,
    /// The step's id.
    pub step: String,
    /// The tool's canonical name.
    pub tool: String,
    /// The arguments as JSON text, secrets redacted, for display.
    pub arguments: String,
    /// `sha256:` over the canonical arguments as they were sent; this binds the decision.
    pub arguments_digest: String,
    /// The argument vector of a command, secrets redacted; empty for other tools.
    pub command: Vec<String>,
    /// The directory in the workspace in which a command runs; empty for its root.
    pub working_directory: String,
    /// The workspace's path.
    pub workspace: String,
    /// The sandbox layers around it, by name; empty for tools that run inside the runner.
    pub enforced: Vec<String>,
    /// The revision of the policy that required the approval.
    pub policy_revision: i64,
    /// The id of the rule that required it.
    pub rule: String,
    /// The reason that rule gives.
    pub reason: String,
    /// The digest of the effect's manifest; empty for a call.
    pub effect_digest: String,
    /// What happens to each path, sorted; empty for a call.
    pub changes: Vec<Change>,
}

/// What happens to one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The path, relative to the workspace; bytes that are not UTF-8 stand as `\xNN`.
    pub path: String,
    /// What happens.
    pub kind: ChangeKind,
    /// The content's digest before, as `sha256:…`; empty for what is not a file or was not there.
    pub before: String,
    /// The content's digest after; empty for what is not a file or will not be there.
    pub after: String,
    /// What will be there in words, such as `file 0644`, `folder 0755`, `link to ../x`; what was there where it goes.
    pub what: String,
    /// What a person should check carefully, by flag name.
    pub flags: Vec<String>,
}

/// What happens to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Nothing was there.
    Created,
    /// It is modified.
    Modified,
    /// It is deleted.
    Deleted,
}

impl Subject {
    /// Most bytes of a subject: 4 MiB of arguments, and some 200,000 changes.
    pub const MAX_BYTES: usize = 64 * 1024 * 1024;

    /// The bytes that are digested, stored and shown.
    pub fn canonical_bytes(&self) -> Vec<u8> {
        canonical(self)
    }

    /// The digest of the canonical bytes.
    pub fn digest(&self) -> String {
        digest_of(&self.canonical_bytes())
    }

    /// Parses a subject.
    ///
    /// # Errors
    /// [`Invalid::Malformed`] when the bytes are not a subject, not canonical, more than [`Subject::MAX_BYTES`], a call with changes, or an effect
    /// without its digest.
    pub fn parse(bytes: &[u8]) -> Result<Self, Invalid> {
        let subject: Self = from_canonical(bytes, Self::MAX_BYTES)?;
        if subject.v != 1 {
            return Err(Invalid::Malformed(format!("version {} is not known here", subject.v)));
        }
        // A call that has not run changed nothing, and an effect is bound by its manifest.
        let fits = match subject.kind {
            Kind::Call => subject.effect_digest.is_empty() && subject.changes.is_empty(),
            Kind::Effect => !subject.effect_digest.is_empty(),
        };
        if !fits {
            return Err(Invalid::Malformed("its kind does not fit its changes and its effect's digest".into()));
        }
        Ok(subject)
    }
}
