//! Blobs as files: `NAMESPACE/EXECUTION/NAME` in one folder.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{BlobError, BlobFile, BlobStore, Disk, Owner, SystemDisk};

/// The end of the name of a file that is being written.
const UNFINISHED: &str = ".new";

/// A store of blobs in a folder. The folder is made with the first blob.
#[derive(Clone, Debug)]
pub struct Folder<D = SystemDisk> {
    root: PathBuf,
    disk: D,
}

impl Folder {
    /// The store in a folder of this machine.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::on(SystemDisk, root)
    }
}

impl<D: Disk> Folder<D> {
    /// The store in a folder of this disk.
    pub fn on(disk: D, root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), disk }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The executions that have blobs, in order.
    ///
    /// # Errors
    /// [`BlobError`] when the folder cannot be read.
    pub fn owners(&self) -> Result<Vec<Owner>, BlobError> {
        let mut owners = Vec::new();
        for namespace in self.names_in(&self.root)? {
            let ids = self.names_in(&self.root.join(&namespace))?;
            owners.extend(ids.into_iter().map(|id| Owner { namespace: namespace.clone(), id }));
        }
        owners.sort_unstable();
        Ok(owners)
    }

    /// The files of an execution with their lengths in bytes, in order.
    ///
    /// # Errors
    /// [`BlobError`] when the folder cannot be read.
    pub fn files(&self, owner: &Owner) -> Result<Vec<(String, u64)>, BlobError> {
        let mut files = Vec::new();
        for name in self.names_in(&self.folder(owner))? {
            match self.length(owner, &name) {
                Ok(length) => files.push((name, length)),
                // It was removed meanwhile.
                Err(BlobError::Missing) => {}
                Err(error) => return Err(error),
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    fn folder(&self, owner: &Owner) -> PathBuf {
        self.root.join(&owner.namespace).join(&owner.id)
    }

    /// The names in a folder; none when it does not exist.
    fn names_in(&self, path: &Path) -> Result<Vec<String>, BlobError> {
        unless_missing(self.disk.names(path)).map(Option::unwrap_or_default)
    }
}

impl<D: Disk> BlobStore for Folder<D> {
    fn write(&self, owner: &Owner, files: &[BlobFile]) -> Result<(), BlobError> {
        if files.is_empty() {
            return Ok(());
        }
        let folder = self.folder(owner);
        self.disk.make_folder(&folder)?;
        for BlobFile { name, bytes } in files {
            let unfinished = folder.join(format!("{name}{UNFINISHED}"));
            self.disk.write(&unfinished, bytes)?;
            self.disk.rename(&unfinished, &folder.join(name))?;
        }
        Ok(self.disk.sync_folder(&folder)?)
    }

    fn read(&self, owner: &Owner, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, BlobError> {
        Ok(self.disk.read(&self.folder(owner).join(name), offset, length)?)
    }

    fn length(&self, owner: &Owner, name: &str) -> Result<u64, BlobError> {
        Ok(self.disk.length(&self.folder(owner).join(name))?)
    }

    fn names(&self, owner: &Owner) -> Result<Vec<String>, BlobError> {
        self.names_in(&self.folder(owner))
    }

    fn remove_files(&self, owner: &Owner, names: &[String]) -> Result<(), BlobError> {
        let folder = self.folder(owner);
        let mut is_changed = false;
        for name in names {
            is_changed |= unless_missing(self.disk.remove_file(&folder.join(name)))?.is_some();
        }
        if is_changed {
            self.disk.sync_folder(&folder)?;
        }
        Ok(())
    }

    fn remove(&self, owner: &Owner) -> Result<(), BlobError> {
        let folder = self.folder(owner);
        self.remove_files(owner, &BlobStore::names(self, owner)?)?;
        if unless_missing(self.disk.remove_folder(&folder))?.is_some() {
            self.disk.sync_folder(&self.root.join(&owner.namespace))?;
        }
        Ok(())
    }
}

/// `None` for what does not exist.
fn unless_missing<T>(done: io::Result<T>) -> Result<Option<T>, BlobError> {
    match done.map_err(BlobError::from) {
        Ok(done) => Ok(Some(done)),
        Err(BlobError::Missing) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn it_conforms() {
        let folder = tempfile::tempdir().unwrap();
        crate::conformance::check(&mut || Box::new(Folder::new(folder.path().join("a/blobs"))));
    }

    #[test]
    fn what_is_there_is_listed_and_is_this_user_s_alone() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Folder::new(folder.path().join("blobs"));
        assert!(blobs.owners().unwrap().is_empty(), "there is no folder, and none is made");
        assert!(!blobs.root().exists());
        let owner = |id: &str| Owner { namespace: "n".into(), id: id.into() };
        let file = |name: &str, length| BlobFile { name: name.into(), bytes: vec![1; length] };
        blobs.write(&owner("b"), &[file("2", 7), file("1", 5)]).unwrap();
        blobs.write(&owner("a"), &[file("1", 1)]).unwrap();
        assert_eq!(blobs.owners().unwrap(), [owner("a"), owner("b")]);
        assert_eq!(blobs.files(&owner("b")).unwrap(), [("1".into(), 5), ("2".into(), 7)]);
        assert!(blobs.files(&owner("c")).unwrap().is_empty());
        let mode = |path: &str| std::fs::metadata(blobs.root().join(path)).unwrap().mode() & 0o777;
        assert_eq!((mode(""), mode("n"), mode("n/b"), mode("n/b/1")), (0o700, 0o700, 0o700, 0o600));
    }
}
