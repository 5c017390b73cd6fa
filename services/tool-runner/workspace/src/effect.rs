//! From an upper folder to a [`Manifest`]: what did the call really change?
//!
//! The upper folder and the workspace are walked side by side, by file descriptor and through no symbolic link. Copies that differ in
//! nothing are no change. A folder that is new, or that hides the one below, is one change with all that is in it.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::fs::fstat;

use crate::{
    conflict::Fingerprint,
    disk::{At as _, IoFailure},
    manifest::{Act, Change, Flag, Flagged, Manifest, collisions, flags},
    open::{FOLDER, names, open_entry, stat_entry},
    overlay_format::{is_opaque, is_whiteout, lies_elsewhere, open_for_reading, was_copied_up},
    path::{OWN, RelPath},
    stat::{FileTime, Stat},
    stores,
    tree::{Content, LeftOut, Limits, Node, Side, Stop, Tree, TreeError, Walk},
    view::View,
};

/// Why there is no effect to be shown or committed.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// What the call touched was changed by somebody else meanwhile.
    #[error("changed by somebody else during the call: {}; run it again on what is there now", shown(paths))]
    Conflict {
        /// Which paths.
        paths: Vec<RelPath>,
    },
    /// The call changed what only Belay does.
    #[error("the call changed `{path}`, which is Belay's own: have it use another name, and leave what has this one")]
    Reserved {
        /// Which.
        path: String,
    },
    /// There is something that cannot be committed, or too much.
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

/// Paths for a sentence.
pub(crate) fn shown(paths: &[RelPath]) -> String {
    let named: Vec<String> = paths.iter().take(5).map(|path| format!("`{path}`")).collect();
    let more = paths.len().saturating_sub(named.len());
    if more == 0 { named.join(", ") } else { format!("{} and {more} more", named.join(", ")) }
}

impl View {
    /// What the call changed. Every process that could write to the view has to be gone.
    ///
    /// # Errors
    ///
    /// [`EffectError::Conflict`] where somebody else changed a touched path since the view began; [`TreeError::Limit`] for more than
    /// `limits` allow.
    pub fn effect(&self, limits: Limits) -> Result<Manifest, EffectError> {
        self.effect_until(limits, &|| false)
    }

    /// The same, until `stop` returns true: it is asked between two entries, and two pieces of a file.
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
            doubts: Vec::new(),
            left_out: Vec::new(),
        };
        survey.folder(upper.as_fd(), self.workspace.root.as_fd(), &RelPath::root()).map_err(vanished)?;
        let Survey { mut changes, doubts, mut left_out, .. } = survey;
        // Later than this is no time at all: a clock that was set back has left it. It must not make the path untouchable.
        let meanwhile = self.began..=self.now()?;
        let mut paths: Vec<RelPath> =
            doubts.into_iter().filter(|(_, changed)| meanwhile.contains(changed)).map(|(path, _)| path).collect();
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

/// The view's own files stay as they are: what went while it was looked at was taken away by somebody else.
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
    /// Touched paths with the time when they last changed in the workspace.
    doubts: Vec<(RelPath, FileTime)>,
    /// Special files.
    left_out: Vec<LeftOut>,
}

/// What a folder holds that is there in both layers.
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
            let Some(found) = stat_entry(upper, &name).at("looking at", &place)? else {
                continue;
            };
            let disk = &self.view.workspace.disk;
            let whiteout = is_whiteout(disk, upper, &name, &found).at("looking at", &place)?;
            if place.is_own() {
                // A mark that hides the one at the top is not the call's doing.
                if whiteout && path.is_root() && name == OsStr::new(OWN) {
                    continue;
                }
                return Err(EffectError::Reserved { path: place.to_string() });
            }
            if whiteout {
                self.away(&pair, &name, &place)?;
                gone.insert(name);
            } else if found.is_special() {
                // What it stands in place of stays as it is.
                self.left_out.push(LeftOut { path: place, kind: found.kind });
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

    /// A name that is gone.
    fn away(&mut self, pair: &Pair<'_>, name: &OsStr, place: &RelPath) -> Result<(), EffectError> {
        if let Some(tree) = self.base(pair, name, place)? {
            let act = Act::Away { base: Fingerprint::of(&tree, self.seen) };
            self.changes.push(Change { path: place.clone(), act, before: tree.nodes, after: vec![], flags: vec![] });
        }
        Ok(())
    }

    /// A folder: one change if it is new or hides the one below, otherwise its mode and what is in it.
    fn directory(&mut self, pair: &Pair<'_>, name: &OsStr, place: &RelPath, found: &Stat) -> Result<(), EffectError> {
        let disk = &self.view.workspace.disk;
        let below = stat_entry(pair.lower, name).at("looking at", place)?.filter(Stat::is_directory);
        let (upper, mode) = open_for_reading(disk, pair.upper, name, found).at("opening", place)?;
        let give_back = || mode.map_or(Ok(()), |mode| disk.set_mode(&upper, mode)).at("giving back the mode of", place);
        let hides = is_opaque(&upper).at("reading the marks of", place)?;
        let Some(below) = below.filter(|_| !hides) else {
            give_back()?;
            return self.put(pair, name, place);
        };
        if lies_elsewhere(&upper).at("reading the marks of", place)? {
            return Err(TreeError::Elsewhere { path: place.to_string() }.into());
        }
        // The set-id bits of a folder are its owner's business: a call neither gives nor takes them.
        let new = found.mode & 0o1777 | below.mode & 0o6000;
        if new != below.mode {
            let act = Act::Meta { inode: below.ino, old: below.mode, new };
            let given = found.mode & !below.mode & 0o6000 != 0;
            let flags = given.then(|| flagged(place, Flag::SetIdStripped)).into_iter().collect();
            self.changes.push(Change { path: place.clone(), act, before: vec![], after: vec![], flags });
        }
        let lower = open_entry(pair.lower, name, FOLDER).at("opening", place)?;
        if stores::are_in(&lower).at("looking into", place)? {
            return Err(EffectError::Reserved { path: place.to_string() });
        }
        self.folder(upper.as_fd(), lower.as_fd(), place)?;
        Ok(give_back()?)
    }

    /// A file, a link or a folder that takes its place.
    fn put(&mut self, pair: &Pair<'_>, name: &OsStr, place: &RelPath) -> Result<(), EffectError> {
        self.walk.turn(Side::Upper);
        let Some(mut after) = self.walk.tree(pair.upper, name, place)? else {
            return Ok(());
        };
        self.left_out.append(&mut after.left_out);
        let before = self.base(pair, name, place)?;
        if before.is_none() {
            self.doubt_if_deleted(pair, name, place, &after)?;
        }
        let mut all: Vec<Flagged> = after.stripped.iter().map(|path| flagged(path, Flag::SetIdStripped)).collect();
        // A folder's parent is written in it, so moving one needs the right to write to it.
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

    /// What the workspace holds at a touched path.
    fn base(&mut self, pair: &Pair<'_>, name: &OsStr, place: &RelPath) -> Result<Option<Tree>, EffectError> {
        self.walk.turn(Side::Workspace);
        let tree = self.walk.tree(pair.lower, name, place)?;
        if let Some(tree) = &tree {
            self.doubts.push((place.clone(), tree.newest()));
        }
        Ok(tree)
    }

    /// A copy of what is no longer there was either renamed by the call, or its original was removed by somebody else. In the second
    /// case the folder shows it.
    fn doubt_if_deleted(
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
        let copied = was_copied_up(&copy).at("reading the marks of", place)?;
        mode.map_or(Ok(()), |mode| disk.set_mode(&copy, mode)).at("giving back the mode of", place)?;
        if copied {
            let folder = Stat::from(fstat(pair.lower).at("looking at", pair.path)?);
            self.doubts.push((place.clone(), folder.modified));
        }
        Ok(())
    }

    /// Marks the names that a folder's changes bring and that differ from a neighbour in case only.
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

fn flagged(path: &RelPath, flag: Flag) -> Flagged {
    Flagged { path: path.clone(), flag }
}

/// Whether a copy differs in nothing that is committed. The set-id bits that it was stripped of are none.
fn same(before: &[Node], after: &[Node]) -> bool {
    let alike = |(one, other): (&Node, &Node)| {
        one.path == other.path && one.content == other.content && one.mode & 0o1777 == other.mode & 0o1777
    };
    before.len() == after.len() && before.iter().zip(after).all(alike)
}

/// Names within a new folder that differ from a neighbour in case only.
fn collisions_inside(nodes: &[Node]) -> Vec<Flagged> {
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
