//! The subject of a decision.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{InvalidSeal, canonical, digest_of, from_canonical};

/// The object of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A call that has not run.
    Call,
    /// The changes of a call in its view.
    Effect,
}

/// The subject of a decision, fully resolved: the service that carries it out has no choice left.
///
/// It does not contain the attempt: an approved call that the machine lost may run again under the same approval. Nor does it contain
/// descriptions or a model's own opinion of the risk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The version of this message, [`Subject::VERSION`].
    pub v: u32,
    /// The object of the decision.
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
    /// The hidden parts of `arguments`, `command` and `working_directory`; none when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<HiddenWords>,
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
    /// How much harm it may do.
    pub risk: Risk,
    /// The changes, the gravest first, and equally grave ones by path; empty for a call. A change is referred to by its place here: the paths
    /// of two of them may read alike where secrets are redacted.
    pub changes: Vec<Change>,
    /// The folders in which only plain creations happen, and more of them than one would read one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<Folder>,
    /// The network that a command has, beyond its own loopback; none when it has no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The credentials whose values its program gets, each with the variable that has it: `forge in $FORGE_TOKEN`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reveals: Vec<String>,
}

/// The network of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The name of the profile in the settings of the runner.
    pub profile: String,
    /// Everything that the profile lets the command reach, a line each: another line, and the decision is about something else.
    pub reach: Vec<String>,
}

/// The words of a call that redaction hides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HiddenWords {
    /// The digest of the canonical [`CallWords`], by which the runner gives them to who may see them.
    pub digest: String,
    /// The number of values of which something is hidden, by the rule that hides it first.
    pub rules: BTreeMap<String, u32>,
}

impl HiddenWords {
    /// The rule of a value that is hidden because of its name, or because the tool's schema marks it.
    pub const NAMED: &'static str = "named";
}

/// The words of a call as they are, with nothing hidden: for who may decide, and never stored with a subject.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallWords {
    /// The arguments as JSON text.
    pub arguments: String,
    /// The argument vector of a command; empty for other tools.
    pub command: Vec<String>,
    /// The directory in the workspace in which a command runs; empty for its root.
    pub working_directory: String,
}

impl std::fmt::Debug for CallWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // They have what is hidden elsewhere, which must not appear in logs.
        f.write_str("CallWords(…)")
    }
}

impl CallWords {
    /// The bytes that [`HiddenWords::digest`] is over.
    pub fn canonical_bytes(&self) -> Vec<u8> {
        canonical(self)
    }

    /// Parses them.
    ///
    /// # Errors
    /// [`InvalidSeal::Malformed`] when the bytes are not the words of a call, not canonical, or more than [`Subject::MAX_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidSeal> {
        from_canonical(bytes, Subject::MAX_BYTES)
    }
}

/// A folder whose creations are shown together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    /// Its path, as [`Change::path`].
    pub path: String,
    /// The number of changes in it.
    pub changes: u32,
}

/// The change of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The path, relative to the workspace, as tools take it: a name that is not UTF-8 stands as `hex:` and digits. In a subject its secrets are
    /// redacted, so nothing may be concluded from it.
    pub path: String,
    /// The digest of the path as it is, by which the runner gives it to who may see it; empty where `path` is all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path_digest: String,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// How grave it is, judged on the path as it is.
    pub gravity: Gravity,
    /// Why the path is protected, judged on the path as it is; empty for an ordinary one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub protection: String,
    /// The content's digest before, as `sha256:…`; empty for what is not a file or was not there.
    pub before: String,
    /// The content's digest after; empty for what is not a file or will not be there.
    pub after: String,
    /// The new entry in words, such as `file 0644`, `folder 0755`, `link to ../x`; the old one where it goes.
    pub what: String,
    /// Flags of what a person should check carefully.
    pub flags: Vec<String>,
    /// The index in [`Subject::folders`] of the folder with which it is shown; none for one that is shown by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<u32>,
}

impl Change {
    /// The flag of a change whose path people are not shown in full. It requires approval: a path that is not seen cannot be judged.
    pub const HIDDEN_NAME: &'static str = "hidden_name";

    /// The flag with which people are shown that a path is protected.
    pub const PROTECTED: &'static str = "protected";

    /// The flags as people are shown them: with [`Self::PROTECTED`] when the path is protected.
    pub fn all_flags(&self) -> impl Iterator<Item = &str> {
        let protected = (!self.protection.is_empty()).then_some(Self::PROTECTED);
        protected.into_iter().chain(self.flags.iter().map(String::as_str))
    }
}

/// How grave a change is for the person who decides about it, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gravity {
    /// A change of a protected path.
    Protected,
    /// It has a flag that requires approval.
    Flagged,
    /// A deletion.
    Deleted,
    /// A modification.
    Modified,
    /// A creation with a flag that only informs.
    Remarkable,
    /// A creation.
    Created,
}

/// How much harm may come of what is asked for. What it does decides, and not who asks or what they say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// It reads, or creates files without notable properties.
    Low,
    /// It modifies or deletes files, or has not run and can be discarded.
    Medium,
    /// It changes a protected or flagged path, or has effects outside of the workspace that cannot be undone.
    High,
}

impl Gravity {
    /// The risk of a change.
    pub fn risk(self) -> Risk {
        match self {
            Self::Protected | Self::Flagged => Risk::High,
            Self::Deleted | Self::Modified => Risk::Medium,
            Self::Remarkable | Self::Created => Risk::Low,
        }
    }
}

/// The kind of a change of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The path did not exist.
    Created,
    /// It is modified.
    Modified,
    /// It is deleted.
    Deleted,
}

impl Subject {
    /// Most bytes of a subject: 4 MiB of arguments, and some 200,000 changes.
    pub const MAX_BYTES: usize = 64 * 1024 * 1024;

    /// The version that this build writes and reads.
    pub const VERSION: u32 = 3;

    /// The longest path that people are shown in full, in characters. What shortens a longer one, or redacts it, flags its change as
    /// [`Change::HIDDEN_NAME`].
    pub const MAX_PATH_CHARS: usize = 1_000;

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
    /// [`InvalidSeal::Malformed`] when the bytes are not a subject, not canonical, more than [`Subject::MAX_BYTES`], a call with changes, an effect
    /// without its digest, or a change in a folder that is not listed.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidSeal> {
        let subject: Self = from_canonical(bytes, Self::MAX_BYTES)?;
        if subject.v != Self::VERSION {
            return Err(InvalidSeal::Malformed(format!("version {} is not known here", subject.v)));
        }
        // A call that has not run changed nothing, and an effect is bound by its manifest.
        let fits = match subject.kind {
            Kind::Call => subject.effect_digest.is_empty() && subject.changes.is_empty(),
            Kind::Effect => !subject.effect_digest.is_empty(),
        };
        let is_listed = |folder: u32| usize::try_from(folder).is_ok_and(|folder| folder < subject.folders.len());
        if !subject.changes.iter().filter_map(|change| change.folder).all(is_listed) {
            return Err(InvalidSeal::Malformed("a change names a folder that is not listed".into()));
        }
        if !fits {
            return Err(InvalidSeal::Malformed("its kind does not fit its changes and its effect's digest".into()));
        }
        Ok(subject)
    }
}
