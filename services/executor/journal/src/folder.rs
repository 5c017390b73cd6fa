//! The folders that the tool runner makes for executions without a named workspace.

/// The folder that an execution works in, by its id, which is unique in the execution's namespace.
///
/// A store knows which executions use a folder, so that the deletion of the last one takes it ([`crate::Deletion::folder`]), and so that no execution
/// is created in a folder that goes with a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// A folder that no execution uses; refused with [`crate::Refused::FolderInUse`] when one does, or an open deletion removes it.
    New(String),
    /// The folder of another execution; refused with [`crate::Refused::FolderGone`] when no execution uses it any more.
    Shared(String),
}

impl Folder {
    /// The folder's id.
    pub fn id(&self) -> &str {
        match self {
            Self::New(id) | Self::Shared(id) => id,
        }
    }
}
