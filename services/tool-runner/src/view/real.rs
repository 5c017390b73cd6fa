//! Views of real workspaces.

use belay_workspace::{DroppedChange, FileKind, IoFailure, Metadata, RelPath, ViewError};

use super::{Mount, View};

impl View for belay_workspace::View {
    fn read(&self, path: &RelPath, start: u64, length: Option<u64>) -> Result<Vec<u8>, ViewError> {
        self.read(path, start, length)
    }

    fn size(&self, path: &RelPath) -> Result<u64, ViewError> {
        let failed = |source| IoFailure { doing: "reading the size of", path: path.to_string(), source };
        Ok(self.open(path)?.metadata().map_err(failed)?.len())
    }

    fn metadata(&self, path: &RelPath) -> Result<Metadata, ViewError> {
        self.metadata(path)
    }

    fn list(&self, path: &RelPath) -> Result<Vec<(RelPath, FileKind)>, ViewError> {
        self.list(path)
    }

    fn write(&mut self, path: &RelPath, bytes: &[u8], mode: Option<u32>) -> Result<(), ViewError> {
        self.write(path, bytes, mode)
    }

    fn remove(&mut self, path: &RelPath) -> Result<(), ViewError> {
        self.remove(path)
    }

    fn dropped_changes(&self) -> &[DroppedChange] {
        self.dropped_changes()
    }

    fn unlisted_dropped_changes(&self) -> usize {
        self.unlisted_dropped_changes()
    }

    fn mount(&self) -> Option<Mount> {
        Some(Mount { lower: self.lower(), staging: self.directory(), hidden: self.hidden() })
    }
}
