//! From an upper directory to a [`Manifest`]: what did the call change?
//!
//! Walks the upper directory and the workspace in parallel, by file descriptor and through no symbolic link. Identical copies are not
//! changes. A directory that is new, or opaque, is one change with its whole content.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::fs::fstat;

use crate::{
    conflict::Fingerprint,
    disk::{IoContext as _, IoFailure},
    manifest::{Act, Change, Flag, FlaggedPath, Manifest, collisions, flags},
    open::{DIRECTORY, names, open_entry, stat_entry},
    overlay_format::{is_opaque, is_whiteout, lies_elsewhere, open_for_reading, was_copied_up},
    path::{OWN, RelPath, shown},
    stat::{FileTime, Stat},
    stores,
    tree::{Content, Limits, Node, Side, SpecialFile, Stop, Tree, TreeError, Walk},
    view::View,
};

/// Why the effect cannot be shown or committed.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// A touched path was changed by someone else meanwhile.
    #[error("changed by someone else during the call: {}", shown(paths))]
    Conflict {
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// The call changed files of Belay.
    #[error("the call changed `{path}`, which belongs to Belay: use another name, and leave the existing one alone")]
    Reserved {
        /// The path.
        path: String,
    },
    /// It contains something that cannot be committed, or too much.
    #[error(transparent)]
    Tree(TreeError),
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl From<TreeError> for EffectError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Reserved { path } => Self::Reserved { path },
            other => Self::Tree(other),
        }
    }
}

impl View {
    /// The changes of the call. No process may write to the view any more.
    ///
    /// # Errors
    ///
    /// [`EffectError::Conflict`] if a touched path was changed by someone else since the view began; [`TreeError::Limit`] if `limits` are
    /// exceeded.
    pub fn effect(&self, limits: Limits) -> Result<Manifest, EffectError> {
        self.effect_until(limits, &|| false)
    }

    /// As [`View::effect`], until `stop` returns true; it is polled between entries and between chunks of a file.
    ///
    /// # Errors
    ///
    /// As for [`View::effect`], and [`TreeError::Stopped`].
    pub fn effect_until(&self, limits: Limits, stop: Stop<'_>) -> Result<Manifest, EffectError> {
        let Some(upper) = self.upper()? else {
            return Ok(Manifest::default());
        };
        let seen = self.now()?;
        let mut survey = Survey {
            view: self,
            seen,
            walk: Walk::new(&self.workspace.disk, limits, Side::Upper).until(stop),
            changes: Vec::new(),
            suspects: Vec::new(),
            left_out: Vec::new(),
        };
        survey.folder(upper.as_fd(), self.workspace.root.as_fd(), &RelPath::root()).map_err(vanished)?;
        let Survey { mut changes, suspects, mut left_out, .. } = survey;
        // A later time stems from a clock that was set back. It must not make the path uncommittable.
        let meanwhile = self.began..=self.now()?;
        let mut paths: Vec<RelPath> =
            suspects.into_iter().filter(|(_, changed)| meanwhile.contains(changed)).map(|(path, _)| path).collect();
        if !paths.is_empty() {
            paths.sort();
            paths.dedup();
            return Err(EffectError::Conflict { paths });
        }
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        left_out.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Manifest { changes, left_out })
    }

    fn now(&self) -> Result<FileTime, IoFailure> {
        self.workspace.disk.now(&self.workspace.own).at("reading the time of", self.workspace.path.display())
    }
}

/// The files of the view do not change, so a vanished file was removed from the workspace by someone else.
fn vanished(error: EffectError) -> EffectError {
    match error {
        EffectError::Io(failure) | EffectError::Tree(TreeError::Io(failure)) if failure.is_gone() => {
            EffectError::Conflict { paths: vec![RelPath::parse(&failure.path).unwrap_or_else(|_| RelPath::root())] }
        }
        other => other,
    }
}

struct Survey<'a> {
    view: &'a View,
    seen: FileTime,
    walk: Walk<'a>,
    changes: Vec<Change>,
    /// Touched paths, with the time of their last change in the workspace.
    suspects: Vec<(RelPath, FileTime)>,
    /// Special files.
    left_out: Vec<SpecialFile>,
}

/// A directory that exists in both layers.
struct Pair<'f> {
    upper: BorrowedFd<'f>,
    lower: BorrowedFd<'f>,
    path: &'f RelPath,
}

impl Survey<'_> {
    fn folder(&mut self, upper: BorrowedFd<'_>, lower: BorrowedFd<'_>, path: &RelPath) -> Result<(), EffectError> {
        let pair = Pair { upper, lower, path };
        let before = self.changes.len();
        let mut gone = BTreeSet::new();
        let mut put = BTreeSet::new();
        for name in names(upper).at("listing the changes in", path)? {
            let place = path.join(&name);
            let Some(found) = stat_entry(upper, &name).at("inspecting", &place)? else {
                continue;
            };
            let disk = &self.view.workspace.disk;
            let whiteout = is_whiteout(disk, upper, &name, &found).at("inspecting", &place)?;
            if place.is_own() {
                // A whiteout that hides `.belay` at the top is not made by the call.
                if whiteout && path.is_root() && name == OsStr::new(OWN) {
                    continue;
                }
                return Err(EffectError::Reserved { path: place.to_string() });
            }
            if whiteout {
                self.away(&pair, &name, &place)?;
                gone.insert(name);
            } else if found.is_special() {
                // The entry that it replaces stays as it is.
                self.left_out.push(SpecialFile { path: place, kind: found.kind });
            } else if found.is_directory() {
                self.directory(&pair, &name, &place, &found)?;
                put.insert(name);
            } else {
                self.put(&pair, &name, &place)?;
                put.insert(name);
            }
        }
        self.flag_collisions(&pair, before, &gone, &put)
    }

    /// A deleted name.
    fn away(&mut self, pair: &Pair<'_>, name: &OsStr, place: &RelPath) -> Result<(), EffectError> {
        if let Some(tree) = self.base(pair, name, place)? {
            let act = Act::Away { base: Fingerprint::of(&tree, self.seen) };
            self.changes.push(Change { path: place.clone(), act, before: tree.nodes, after: vec![], flags: vec![] });
        }
        Ok(())
    }

    /// A directory: one change if it is new or opaque, otherwise its mode and its content.
    fn directory(&mut self, pair: &Pair<'_>, name: &OsStr, place: &RelPath, found: &Stat) -> Result<(), EffectError> {
        let disk = &self.view.workspace.disk;
        let below = stat_entry(pair.lower, name).at("inspecting", place)?.filter(Stat::is_directory);
        let (upper, mode) = open_for_reading(disk, pair.upper, name, found).at("opening", place)?;
        let restore_mode =
            || mode.map_or(Ok(()), |mode| disk.set_mode(&upper, mode)).at("restoring the mode of", place);
        let hides = is_opaque(&upper).at("reading the overlay attributes of", place)?;
        let Some(below) = below.filter(|_| !hides) else {
            restore_mode()?;
            return self.put(pair, name, place);
        };
        if lies_elsewhere(&upper).at("reading the overlay attributes of", place)? {
            return Err(TreeError::Elsewhere { path: place.to_string() }.into());
        }
        // The set-id bits of a directory are its owner's: a call neither sets nor clears them.
        let new = found.mode & 0o1777 | below.mode & 0o6000;
        if new != below.mode {
            let act = Act::Meta { inode: below.ino, old: below.mode, new };
            let given = found.mode & !below.mode & 0o6000 != 0;
            let flags = given.then(|| flagged(place, Flag::SetIdStripped)).into_iter().collect();
            self.changes.push(Change { path: place.clone(), act, before: vec![], after: vec![], flags });
        }
        let lower = open_entry(pair.lower, name, DIRECTORY).at("opening", place)?;
        if stores::is_state_directory(&lower).at("inspecting", place)? {
            return Err(EffectError::Reserved { path: place.to_string() });
        }
        self.folder(upper.as_fd(), lower.as_fd(), place)?;
        Ok(restore_mode()?)
    }

    /// A new or replaced file, link or directory.
    fn put(&mut self, pair: &Pair<'_>, name: &OsStr, place: &RelPath) -> Result<(), EffectError> {
        self.walk.turn(Side::Upper);
        let Some(mut after) = self.walk.tree(pair.upper, name, place)? else {
            return Ok(());
        };
        self.left_out.append(&mut after.left_out);
        let before = self.base(pair, name, place)?;
        if before.is_none() {
            self.suspect_if_deleted(pair, name, place, &after)?;
        }
        let mut all: Vec<FlaggedPath> = after.stripped.iter().map(|path| flagged(path, Flag::SetIdStripped)).collect();
        // Moving a directory writes its `..` entry, so it has to be writable.
        let top = after.nodes.first_mut().expect("a tree has a top");
        if top.content == Content::Directory && top.mode & 0o200 == 0 && !rustix::process::geteuid().is_root() {
            top.mode |= 0o200;
            all.push(flagged(place, Flag::MadeWritable));
        }
        if before.as_ref().is_some_and(|before| same(&before.nodes, &after.nodes)) {
            return Ok(());
        }
        let act = Act::Put {
            base: before.as_ref().map(|tree| Fingerprint::of(tree, self.seen)),
            staged: Fingerprint::of(&after, self.seen),
        };
        let before = before.map_or_else(Vec::new, |tree| tree.nodes);
        all.extend(flags(&before, &after.nodes));
        all.extend(collisions_inside(&after.nodes));
        all.sort();
        self.changes.push(Change { path: place.clone(), act, before, after: after.nodes, flags: all });
        Ok(())
    }

    /// The content of the workspace at a touched path.
    fn base(&mut self, pair: &Pair<'_>, name: &OsStr, place: &RelPath) -> Result<Option<Tree>, EffectError> {
        self.walk.turn(Side::Workspace);
        let tree = self.walk.tree(pair.lower, name, place)?;
        if let Some(tree) = &tree {
            self.suspects.push((place.clone(), tree.newest()));
        }
        Ok(tree)
    }

    /// A copy of a file that no longer exists was either renamed by the call, or its original was removed by someone else. In the second
    /// case the modification time of the directory shows it.
    fn suspect_if_deleted(
        &mut self,
        pair: &Pair<'_>,
        name: &OsStr,
        place: &RelPath,
        after: &Tree,
    ) -> Result<(), EffectError> {
        if !after.top.is_directory() && !after.top.is_file() {
            return Ok(());
        }
        let disk = &self.view.workspace.disk;
        let (copy, mode): (OwnedFd, _) = open_for_reading(disk, pair.upper, name, &after.top).at("opening", place)?;
        let copied = was_copied_up(&copy).at("reading the overlay attributes of", place)?;
        mode.map_or(Ok(()), |mode| disk.set_mode(&copy, mode)).at("restoring the mode of", place)?;
        if copied {
            let folder = Stat::from(fstat(pair.lower).at("inspecting", pair.path)?);
            self.suspects.push((place.clone(), folder.modified));
        }
        Ok(())
    }

    /// Flags new names that differ from a neighbour in case only.
    fn flag_collisions(
        &mut self,
        pair: &Pair<'_>,
        first: usize,
        gone: &BTreeSet<OsString>,
        put: &BTreeSet<OsString>,
    ) -> Result<(), EffectError> {
        if put.is_empty() {
            return Ok(());
        }
        let mut there: BTreeSet<OsString> = names(pair.lower).at("listing", pair.path)?.into_iter().collect();
        there.retain(|name| !gone.contains(name));
        there.extend(put.iter().cloned());
        let collide = collisions(there.iter().map(OsString::as_os_str));
        for change in &mut self.changes[first..] {
            let new =
                matches!(change.act, Act::Put { base: None, .. }) && change.path.parent().as_ref() == Some(pair.path);
            if new && change.path.name().is_some_and(|name| collide.contains(&name)) {
                change.flags.push(flagged(&change.path, Flag::CaseCollision));
                change.flags.sort();
            }
        }
        Ok(())
    }
}

fn flagged(path: &RelPath, flag: Flag) -> FlaggedPath {
    FlaggedPath { path: path.clone(), flag }
}

/// Whether a copy is identical in everything that is committed. Stripped set-id bits do not count.
fn same(before: &[Node], after: &[Node]) -> bool {
    let alike = |(one, other): (&Node, &Node)| {
        one.path == other.path && one.content == other.content && one.mode & 0o1777 == other.mode & 0o1777
    };
    before.len() == after.len() && before.iter().zip(after).all(alike)
}

/// Names in a new directory that differ from a neighbour in case only.
fn collisions_inside(nodes: &[Node]) -> Vec<FlaggedPath> {
    let mut by_folder = std::collections::BTreeMap::<RelPath, Vec<&RelPath>>::new();
    for node in nodes.iter().skip(1) {
        by_folder.entry(node.path.parent().expect("it is in a folder")).or_default().push(&node.path);
    }
    let mut found = Vec::new();
    for (folder, paths) in by_folder {
        let names = collisions(paths.iter().filter_map(|path| path.name()));
        found.extend(names.into_iter().map(|name| flagged(&folder.join(name), Flag::CaseCollision)));
    }
    found
}
