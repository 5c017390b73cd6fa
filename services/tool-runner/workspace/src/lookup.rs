//! Resolves a path in the two layers of a view, as the overlay shows it.
//!
//! Symbolic links are resolved lexically, name by name: each step inspects one entry of an open directory, and a link that leaves the
//! workspace ends the walk. The result contains no link, and is opened without following any.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    sync::Arc,
};

use rustix::{fs::readlinkat, io::Errno};

use crate::{
    disk::{Disk, IoContext as _},
    open::{DIRECTORY, names, open_entry, stat_entry},
    overlay_format::{is_opaque, is_whiteout},
    path::{RelPath, is_own},
    stat::{FileKind, Stat},
    stores,
    view_error::ViewError,
};

/// The limit of links per path, as in the kernel.
const MAX_LINKS: usize = 40;

/// A directory of a view: its upper directory over that of the workspace.
#[derive(Clone)]
pub(crate) struct MergedFolder<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) path: RelPath,
    pub(crate) upper: Option<Arc<OwnedFd>>,
    pub(crate) lower: Option<Arc<OwnedFd>>,
}

/// The layer of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Upper,
    Lower,
}

/// An existing entry.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) layer: Layer,
    pub(crate) stat: Stat,
}

impl<'a> MergedFolder<'a> {
    /// The directory of the layer that an entry was found in.
    pub(crate) fn layer(&self, layer: Layer) -> BorrowedFd<'_> {
        let folder = if layer == Layer::Upper { &self.upper } else { &self.lower };
        folder.as_ref().expect("an entry was found in it").as_fd()
    }

    /// Its upper directory, which is there once it was created for writing.
    pub(crate) fn upper(&self) -> BorrowedFd<'_> {
        self.layer(Layer::Upper)
    }

    /// The entry of this name.
    pub(crate) fn entry(&self, name: &OsStr) -> Result<Option<Entry>, Errno> {
        if is_own(name) {
            return Ok(None);
        }
        if let Some(upper) = &self.upper
            && let Some(stat) = stat_entry(upper, name)?
        {
            let gone = is_whiteout(self.disk, upper, name, &stat)?;
            return Ok((!gone).then_some(Entry { layer: Layer::Upper, stat }));
        }
        self.below(name).map(|found| found.map(|stat| Entry { layer: Layer::Lower, stat }))
    }

    /// The entry of this name in the workspace, hidden by the upper directory or not.
    pub(crate) fn below(&self, name: &OsStr) -> Result<Option<Stat>, Errno> {
        self.lower.as_ref().map_or(Ok(None), |lower| stat_entry(lower, name))
    }

    /// The subdirectory `name`, whose `entry` was found.
    pub(crate) fn folder(&self, name: &OsStr, entry: Entry) -> Result<Self, ViewError> {
        let path = self.path.join(name);
        let (upper, lower) = self.open_folder(name, entry).at("opening", &path)?;
        if let Some(lower) = &lower
            && stores::is_state_directory(lower).at("inspecting", &path)?
        {
            return Err(ViewError::Stores { path: path.to_string() });
        }
        Ok(Self { disk: self.disk, path, upper: upper.map(Arc::new), lower: lower.map(Arc::new) })
    }

    /// Its upper and lower directory.
    fn open_folder(&self, name: &OsStr, entry: Entry) -> Result<(Option<OwnedFd>, Option<OwnedFd>), Errno> {
        let below = || -> Result<Option<OwnedFd>, Errno> {
            let is_folder = self.below(name)?.is_some_and(|found| found.is_directory());
            self.lower.as_ref().filter(|_| is_folder).map(|lower| open_entry(lower, name, DIRECTORY)).transpose()
        };
        Ok(match entry.layer {
            Layer::Upper => {
                let upper = open_entry(self.layer(Layer::Upper), name, DIRECTORY)?;
                let lower = if is_opaque(&upper)? { None } else { below()? };
                (Some(upper), lower)
            }
            Layer::Lower => (None, below()?),
        })
    }

    /// All entries, by name.
    pub(crate) fn entries(&self) -> Result<Vec<(OsString, Entry)>, Errno> {
        let mut all = Vec::new();
        for layer in [&self.upper, &self.lower].into_iter().flatten() {
            all.extend(names(layer)?);
        }
        all.sort_unstable();
        all.dedup();
        let mut there = Vec::with_capacity(all.len());
        for name in all {
            if let Some(entry) = self.entry(&name)? {
                there.push((name, entry));
            }
        }
        Ok(there)
    }
}

/// The end of a path after its links are followed.
pub(crate) struct PathEntry<'a> {
    /// The parent directory.
    pub(crate) folder: MergedFolder<'a>,
    /// The name; `None` for the root.
    pub(crate) name: Option<OsString>,
    /// The entry.
    pub(crate) entry: Option<Entry>,
}

/// The links that a lookup follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// All: to read content.
    All,
    /// All but the last: to inspect an entry.
    Parents,
    /// None; a link in the path is an error: to change something.
    None,
}

/// Resolves `path` from the root of a view.
pub(crate) fn find<'a>(root: &MergedFolder<'a>, path: &RelPath, follow: Follow) -> Result<PathEntry<'a>, ViewError> {
    let mut links = 0;
    let mut folders = vec![root.clone()];
    let mut ahead: Vec<OsString> = path.names().rev().map(OsStr::to_owned).collect();
    while let Some(name) = ahead.pop() {
        let folder = folders.last().expect("the root is never left").clone();
        let at = folder.path.join(&name);
        let entry = folder.entry(&name).at("inspecting", &at)?;
        let last = ahead.is_empty();
        match entry {
            Some(found) if found.stat.kind == FileKind::Symlink && (!last || follow == Follow::All) => {
                let target = readlinkat(folder.layer(found.layer), &*name, Vec::new()).at("reading the link", &at)?;
                let target = target.into_bytes();
                links += 1;
                if follow == Follow::None || links > MAX_LINKS {
                    return Err(ViewError::Link { path: at.to_string(), target: belay_text::visible_bytes(&target) });
                }
                // Restarts at the root, so that links in the target are followed too.
                let end = follow_text(&folder.path, &target).filter(|end| !end.is_own());
                let end = end.ok_or_else(|| ViewError::Outside {
                    path: at.to_string(),
                    target: belay_text::visible_bytes(&target),
                })?;
                ahead.extend(end.names().rev().map(OsStr::to_owned));
                folders.truncate(1);
            }
            entry if last => return Ok(PathEntry { folder, name: Some(name), entry }),
            Some(found) if found.stat.is_directory() => {
                folders.push(folder.folder(&name, found)?);
            }
            Some(_) => return Err(ViewError::NotADirectory { path: at.to_string() }),
            None => return Err(ViewError::NotFound { path: at.to_string() }),
        }
    }
    Ok(PathEntry { folder: folders.pop().expect("the root is never left"), name: None, entry: None })
}

/// The path that a link in a directory refers to; `None` if it leaves the workspace.
pub(crate) fn follow_text(folder: &RelPath, target: &[u8]) -> Option<RelPath> {
    if target.starts_with(b"/") {
        return None;
    }
    let mut end = folder.clone();
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => end = end.parent()?,
            name => end = end.join(OsStr::from_bytes(name)),
        }
    }
    Some(end)
}
