//! The section `credentials`: the values that the network's proxy puts into requests, and where each may go.

use std::path::Path;

use belay_network::{Credential, CredentialSource};

/// A credential of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorCredential {
    /// Where its value may go, and how.
    pub credential: Credential,
    /// The source of its value.
    pub source: CredentialSource,
}

impl OperatorCredential {
    /// The key of its source in the file.
    pub(crate) fn source_key(&self) -> &'static str {
        match &self.source {
            CredentialSource::File(_) => "file",
            CredentialSource::Environment(_) => "environment",
            CredentialSource::Systemd(_) => "systemd",
            CredentialSource::Command(_) => "command",
        }
    }

    /// The file with its value.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.source {
            CredentialSource::File(file) => Some(file),
            CredentialSource::Environment(_) | CredentialSource::Systemd(_) | CredentialSource::Command(_) => None,
        }
    }

    /// The file with its value, or the program that prints it: what no command may change.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.source {
            CredentialSource::File(file) => Some(file),
            CredentialSource::Command(words) => words.first().map(Path::new),
            CredentialSource::Environment(_) | CredentialSource::Systemd(_) => None,
        }
    }
}
