//! Copies layers into the upper directory of a view.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{OFlags, readlinkat, symlinkat},
    io::Errno,
};

use crate::{
    attributes::copy_attributes,
    commit::{Op, slot_name},
    conflict::Position,
    disk::{Disk, IoContext as _, IoFailure},
    dropped::RevertedPath,
    inner::Inner,
    layer::Layer,
    lookup::MergedFolder,
    open::{DIRECTORY, names, open_beneath, open_entry, stat_entry},
    overlay_format::{mark_copied_up, mark_opaque, open_for_reading},
    path::RelPath,
    remove::remove_tree,
    stat::FileKind,
    tree::Stop,
    view::View,
    view_error::ViewError,
};

/// How many bytes of a file are copied before the caller is asked whether to stop.
const CHUNK: u64 = 8 << 20;

/// A view that layers are added to.
pub(crate) struct Fill<'a> {
    inner: &'a Inner,
    view: &'a View,
    stop: Stop<'a>,
    /// The modes of directories that get them at the end: some do not let their owner put anything into them.
    modes: BTreeMap<RelPath, u32>,
}

impl<'a> Fill<'a> {
    pub(crate) fn new(inner: &'a Inner, view: &'a View, stop: Stop<'a>) -> Self {
        Self { inner, view, stop, modes: BTreeMap::new() }
    }

    /// Adds a layer with these of its changes; `slots` is the directory of its files. The caller has compared them with the workspace: the copies hide what has changed there.
    pub(crate) fn add(&mut self, slots: &OwnedFd, layer: &Layer, ops: &[&Op]) -> Result<(), ViewError> {
        for RevertedPath { path, is_mode } in &layer.undone {
            self.undo(path, *is_mode).at("undoing a change of", path)?;
        }
        for op in ops {
            if (self.stop)() {
                return Err(ViewError::Stopped);
            }
            match op {
                Op::Put { path, slot, staged, .. } => {
                    let slot = slot_name(*slot);
                    let disk = &self.inner.disk;
                    let is_as_kept = staged.matches(disk, slots.as_fd(), &slot, path, Position::Moved);
                    if !is_as_kept.unwrap_or(false) {
                        return Err(ViewError::LayerGone { layer: layer.commit.id.clone() });
                    }
                    self.put(path, slots, &slot)?;
                }
                Op::Away { path, .. } => self.away(path)?,
                Op::Meta { path, new, .. } => {
                    self.open(path)?;
                    self.modes.insert(path.clone(), *new);
                }
            }
        }
        Ok(())
    }

    /// Gives directories their modes, those inside of others first.
    pub(crate) fn finish(self) -> Result<(), ViewError> {
        let Some(upper) = self.view.upper()? else { return Ok(()) };
        for (path, mode) in self.modes.iter().rev() {
            let Some((parent, name)) = path.parent().zip(path.name()) else { continue };
            let folder = match open_beneath(&upper, &parent, DIRECTORY) {
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                opened => opened.at("opening the directory of", path)?,
            };
            let found = stat_entry(&folder, name).at("inspecting", path)?;
            if found.is_some_and(|found| found.is_directory()) {
                self.inner.disk.set_mode_of(&folder, name, *mode).at("setting the mode of", path)?;
            }
        }
        Ok(())
    }

    /// The directory in the view, copied up, and open for its owner until the end.
    fn open(&mut self, path: &RelPath) -> Result<MergedFolder<'a>, ViewError> {
        self.view.open_directories(self.view.writable_root()?, path, Some(&mut self.modes))
    }

    /// The directory of a path that is about to be replaced, and its name there.
    fn place<'p>(&mut self, path: &'p RelPath) -> Result<(MergedFolder<'a>, &'p OsStr), ViewError> {
        let (parent, name) = path.parent().zip(path.name()).ok_or(ViewError::Root)?;
        let folder = self.open(&parent)?;
        remove_tree(&self.inner.disk, folder.upper(), name).at("replacing", path)?;
        self.modes.retain(|other, _| other != path && !other.is_inside(path));
        Ok((folder, name))
    }

    fn put(&mut self, path: &RelPath, slots: &OwnedFd, slot: &OsStr) -> Result<(), ViewError> {
        let disk = &self.inner.disk;
        let (folder, name) = self.place(path)?;
        let upper = folder.upper();
        let copied = Copy { disk, is_root: self.inner.owner.is_some(), stop: self.stop };
        copied.tree(slots.as_fd(), slot, upper, name).map_err(|failed| match failed {
            FillError::Stopped => ViewError::Stopped,
            FillError::Io(source) => IoFailure { doing: "copying from a layer", path: path.to_string(), source }.into(),
        })?;
        let Some(below) = folder.below(name).at("inspecting", path)? else { return Ok(()) };
        let made = stat_entry(upper, name).and_then(|made| made.ok_or(Errno::NOENT)).at("inspecting", path)?;
        // Only who may write to it can mark it.
        let opened = |mark: &dyn Fn(OwnedFd) -> Result<(), Errno>, flags| {
            disk.set_mode_of(upper, name, made.mode | 0o700)?;
            mark(open_entry(upper, name, flags)?)?;
            disk.set_mode_of(upper, name, made.mode)
        };
        let marked = match made.kind {
            FileKind::Directory => opened(&|folder| mark_opaque(disk, folder), DIRECTORY),
            FileKind::File if below.is_file() => opened(&|file| mark_copied_up(disk, file), OFlags::RDONLY),
            _ => Ok(()),
        };
        Ok(marked.at("marking", path)?)
    }

    fn away(&mut self, path: &RelPath) -> Result<(), ViewError> {
        let (folder, name) = self.place(path)?;
        let (disk, upper) = (&self.inner.disk, folder.upper());
        if folder.below(name).at("inspecting", path)?.is_some() {
            disk.make_whiteout(upper, name).at("marking as removed", path)?;
            if let Some(owner) = self.inner.owner {
                // A command cannot put anything in the place of what has an owner that it does not see.
                disk.set_owner(upper, name, owner).at("changing the owner of", path)?;
            }
        }
        Ok(())
    }

    /// Lets the view have at a path what the workspace has.
    fn undo(&mut self, path: &RelPath, is_mode: bool) -> Result<(), Errno> {
        let disk = &self.inner.disk;
        let Some(upper) = self.view.upper().map_err(|_| Errno::IO)? else { return Ok(()) };
        let Some((parent, name)) = path.parent().zip(path.name()) else { return Ok(()) };
        let folder = match open_beneath(&upper, &parent, DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            opened => opened?,
        };
        if !is_mode {
            self.modes.retain(|other, _| other != path && !other.is_inside(path));
            return remove_tree(disk, &folder, name);
        }
        if let Ok(Some(below)) = self.inner.parent(path).and_then(|folder| stat_entry(&folder, name)) {
            self.modes.insert(path.clone(), below.mode);
        }
        Ok(())
    }
}

/// Copies trees that nobody else changes.
struct Copy<'a> {
    disk: &'a Disk,
    /// Whether the copies get the owners of what they are made of.
    is_root: bool,
    stop: Stop<'a>,
}

enum FillError {
    Stopped,
    Io(io::Error),
}

impl From<io::Error> for FillError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for FillError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl Copy<'_> {
    fn check(&self) -> Result<(), FillError> {
        if (self.stop)() { Err(FillError::Stopped) } else { Ok(()) }
    }

    fn tree(
        &self,
        from: BorrowedFd<'_>,
        name: &OsStr,
        into: BorrowedFd<'_>,
        new_name: &OsStr,
    ) -> Result<(), FillError> {
        let disk = self.disk;
        self.check()?;
        let found = stat_entry(from, name)?.ok_or(Errno::NOENT)?;
        match found.kind {
            FileKind::Symlink => symlinkat(readlinkat(from, name, Vec::new())?, into, new_name)?,
            FileKind::Directory => {
                disk.create_directory(into, new_name, 0o700)?;
                let (within, mode) = open_for_reading(disk, from, name, &found)?;
                let copy = open_entry(into, new_name, DIRECTORY)?;
                for child in names(&within)? {
                    self.tree(within.as_fd(), &child, copy.as_fd(), &child)?;
                }
                copy_attributes(disk, &within, &copy)?;
                mode.map_or(Ok(()), |mode| disk.set_mode(&within, mode))?;
            }
            FileKind::File => {
                let (file, mode) = open_for_reading(disk, from, name, &found)?;
                let copy = disk.create(into, new_name)?;
                copy_attributes(disk, &file, &copy)?;
                mode.map_or(Ok(()), |mode| disk.set_mode(&file, mode))?;
                self.content(&mut file.into(), &mut copy.into())?;
            }
            FileKind::Fifo | FileKind::Socket | FileKind::Device => return Ok(()),
        }
        if self.is_root {
            disk.set_owner(into, new_name, found.owner)?;
        }
        if found.kind != FileKind::Symlink {
            disk.set_mode_of(into, new_name, found.mode)?;
        }
        Ok(())
    }

    fn content(&self, from: &mut File, into: &mut File) -> Result<(), FillError> {
        while io::copy(&mut from.take(CHUNK), into)? > 0 {
            self.check()?;
        }
        Ok(())
    }
}
