//! The executor's blobs on the simulated disk.

use std::{io, path::Path};

use belay_blobs::Disk;

use crate::disk::{self, Mode, OpenFile};

/// The simulated disk, as a folder of blobs uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlobDisk;

impl Disk for BlobDisk {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        Ok(disk::make_folder(path)?)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mode = Mode { create: true, writable: true, ..Mode::default() };
        let mut file = OpenFile::open(path, mode)?;
        file.truncate(0)?;
        file.write(bytes, 0)?;
        Ok(file.sync()?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(disk::rename(from, to)?)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        Ok(disk::sync_names(path)?)
    }

    fn read(&self, path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let read = OpenFile::open(path, Mode::default())?.read(&mut bytes, offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        Ok(OpenFile::open(path, Mode::default())?.length()?)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        match disk::exists(path)? {
            true => Ok(disk::names(path)?),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Ok(disk::remove(path, false)?)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        match disk::exists(path)? {
            true => Ok(disk::remove_folder(path)?),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
