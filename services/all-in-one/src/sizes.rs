//! Measures the stores and the workspaces of a state directory.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use belay_blobs::Folder;
use belay_service_kit::state_files;
use belay_sqlite::{Location, StoreSize};

use crate::{
    StartError,
    state_dir::{BLOBS, WORKSPACES},
};

/// The size of one store.
#[derive(Debug)]
pub struct MeasuredStore {
    /// Its file.
    pub path: PathBuf,
    /// Its size; `None` when there is no such file.
    pub size: Option<StoreSize>,
}

/// The sizes of a state directory.
#[derive(Debug)]
pub struct Sizes {
    /// The journal, the ledger and the gate's store.
    pub stores: [MeasuredStore; 3],
    /// The folder of the executor's blobs.
    pub blobs: PathBuf,
    /// How many files of blobs there are. A blob with secrets has two.
    pub blob_files: u64,
    /// Their size, in bytes.
    pub blob_bytes: u64,
    /// The folder of the directories that the runner made for executions.
    pub workspaces: PathBuf,
    /// How many there are.
    pub workspace_count: u64,
    /// The disk space that they use, in bytes.
    pub workspace_bytes: u64,
}

/// Measures a state directory, whether or not a process has it open. Changes nothing, and reads all of the stores.
///
/// # Errors
/// [`StartError`] when a store cannot be opened: it is of another format, is no database, or may not be read.
pub fn measure_stores(state_dir: &Path) -> Result<Sizes, StartError> {
    let [journal, ledger, approvals] =
        [state_files::JOURNAL, state_files::LEDGER, state_files::APPROVALS].map(|name| state_dir.join(name));
    let sizes = [
        belay_journal_sqlite::measure(&Location::file(&journal))
            .map_err(|error| StartError::journal(&journal, error))?,
        belay_tool_runner::measure(&Location::file(&ledger)).map_err(|error| StartError::sqlite(&ledger, &error))?,
        belay_approval_gate::measure(&Location::file(&approvals))
            .map_err(|error| StartError::approvals(&approvals, &error.0))?,
    ];
    let mut sizes = sizes.into_iter();
    let stores =
        [journal, ledger, approvals].map(|path| MeasuredStore { path, size: sizes.next().expect("one for each") });
    let workspaces = state_dir.join(WORKSPACES);
    let made = folders(&workspaces).iter().flat_map(|namespace| folders(namespace)).collect::<Vec<_>>();
    let workspace_bytes = made.iter().map(|folder| used_by(folder)).sum();
    let blobs = Folder::new(state_dir.join(BLOBS));
    let owners = blobs.owners().unwrap_or_default();
    let files: Vec<u64> =
        owners.iter().flat_map(|owner| blobs.files(owner).unwrap_or_default()).map(|(_, length)| length).collect();
    Ok(Sizes {
        stores,
        blobs: blobs.root().to_owned(),
        blob_files: files.len() as u64,
        blob_bytes: files.iter().sum(),
        workspaces,
        workspace_count: made.len() as u64,
        workspace_bytes,
    })
}

/// The folders in a folder; none when it cannot be read.
fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// The disk space of a tree. What disappears meanwhile, or may not be read, is left out; links are not followed.
fn used_by(path: &Path) -> u64 {
    let (mut bytes, mut left) = (0, vec![path.to_owned()]);
    while let Some(path) = left.pop() {
        let visit = |path: &Path| -> io::Result<(u64, Vec<PathBuf>)> {
            let metadata = fs::symlink_metadata(path)?;
            let below = match metadata.is_dir() {
                true => fs::read_dir(path)?.flatten().map(|entry| entry.path()).collect(),
                false => Vec::new(),
            };
            Ok((metadata.blocks() * 512, below))
        };
        if let Ok((used, below)) = visit(&path) {
            bytes += used;
            left.extend(below);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_workspaces_use_is_counted_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let made = state.join("workspaces/default/e");
        fs::create_dir_all(made.join("deep")).unwrap();
        fs::create_dir_all(state.join("workspaces/other/f")).unwrap();
        fs::write(made.join("deep/file"), vec![1; 300_000]).unwrap();
        fs::write(folder.path().join("elsewhere"), vec![1; 9_000_000]).unwrap();
        std::os::unix::fs::symlink(folder.path(), made.join("link")).unwrap();
        fs::create_dir_all(state.join("blobs/default/e")).unwrap();
        fs::write(state.join("blobs/default/e/ab"), "content").unwrap();
        let sizes = measure_stores(&state).unwrap();
        assert!(sizes.stores.iter().all(|store| store.size.is_none()), "there are no stores, and none is made");
        assert_eq!((sizes.blob_files, sizes.blob_bytes), (1, 7));
        assert_eq!(sizes.workspace_count, 2);
        assert!((300_000..1_000_000).contains(&sizes.workspace_bytes), "{}", sizes.workspace_bytes);
    }
}
