//! The changes of a call as a value: for people to read, policy to judge, and approvals to be bound to.

use serde::{Deserialize, Serialize};

use crate::{
    conflict::Fingerprint,
    path::RelPath,
    tree::{self, Content, Digest, Node, SpecialFile, write_bytes},
};

/// All changes of one call in a workspace, sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// No change is inside another one, except in a directory whose mode alone changed.
    pub changes: Vec<Change>,
    /// The pipes, sockets and devices that the call left, by path. They are not committed: the workspace keeps what it has at their paths,
    /// and a new directory lacks them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<SpecialFile>,
}

/// A change of one path and everything inside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path.
    pub path: RelPath,
    /// The change.
    #[serde(flatten)]
    pub act: Act,
    /// The old nodes: none, or the top first and then by path. Empty for [`Act::Meta`].
    pub before: Vec<Node>,
    /// The new nodes, likewise.
    pub after: Vec<Node>,
    /// Warnings for people, by path.
    pub flags: Vec<FlaggedPath>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// A file, a link or a whole directory is put there.
    Put {
        /// The entry that it replaces; `None` if there is none.
        base: Option<Fingerprint>,
        /// The new entry.
        staged: Fingerprint,
    },
    /// The entry is removed.
    Away {
        /// The removed entry.
        base: Fingerprint,
    },
    /// The mode of a directory changes; its content stays.
    Meta {
        /// Its inode.
        inode: u64,
        /// The old permission bits.
        old: u32,
        /// The new permission bits.
        new: u32,
    },
}

/// A warning about a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlaggedPath {
    /// The path.
    pub path: RelPath,
    /// The warning.
    pub flag: Flag,
}

/// The kind of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// A file that is newly executable.
    Executable,
    /// The call left a set-user-id or set-group-id bit, which is not committed.
    SetIdStripped,
    /// The call left a directory that its owner cannot write to, which could not be moved: it is committed with write permission.
    MadeWritable,
    /// A symbolic link whose target is outside the workspace, or in Belay's own directory.
    LinkLeaves,
    /// The name has misleading characters: control, bidirectional, zero-width, a line break, or invalid UTF-8.
    OddName,
    /// Another name in the same directory differs in case only: they are one file on some machines.
    CaseCollision,
}

/// The prefix of [`Manifest::canonical_bytes`]. The number is incremented when the encoding changes.
const FORMAT: &[u8] = b"belay manifest 1\n";

impl Manifest {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The bytes that an approval is bound to: for each touched path the digest of the old nodes, and the new nodes.
    ///
    /// The same change to the same content has the same bytes, wherever and whenever it is made: they exclude inodes, times and the rest of
    /// the workspace. So commits to other paths do not invalidate an approval.
    #[must_use]
    pub fn canonical_bytes(&self) -> Vec<u8> {
        let mut out = FORMAT.to_vec();
        for change in &self.changes {
            write_bytes(&mut out, change.path.as_bytes());
            match change.act {
                Act::Put { .. } => out.push(b'p'),
                Act::Away { .. } => out.push(b'a'),
                Act::Meta { old, new, .. } => {
                    out.push(b'm');
                    out.extend_from_slice(&old.to_be_bytes());
                    out.extend_from_slice(&new.to_be_bytes());
                }
            }
            out.push(u8::from(!change.before.is_empty()));
            if !change.before.is_empty() {
                out.extend_from_slice(&tree::digest(&change.before).0);
            }
            out.extend_from_slice(&(change.after.len() as u64).to_be_bytes());
            change.after.iter().for_each(|node| node.write_canonical(&mut out));
        }
        out
    }

    /// The digest of the canonical bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.canonical_bytes())
    }
}

/// The flags of one change by itself; the caller adds those of colliding names, which need its neighbours.
pub(crate) fn flags(before: &[Node], after: &[Node]) -> Vec<FlaggedPath> {
    let mut flags = Vec::new();
    let executable = |node: &Node| matches!(node.content, Content::File { .. }) && node.mode & 0o111 != 0;
    for node in after {
        let was = before.binary_search_by(|old| old.path.cmp(&node.path)).ok().map(|found| &before[found]);
        let mut flag = |flag| flags.push(FlaggedPath { path: node.path.clone(), flag });
        if executable(node) && !was.is_some_and(executable) {
            flag(Flag::Executable);
        }
        if matches!(&node.content, Content::Symlink { target } if leaves(&node.path, target)) {
            flag(Flag::LinkLeaves);
        }
        if was.is_none() && node.path.name().is_some_and(is_odd) {
            flag(Flag::OddName);
        }
    }
    flags
}

fn is_odd(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_none_or(|name| !name.chars().all(belay_text::is_plain))
}

/// Whether a link at `path` leaves the workspace, by its text. Every absolute target does, because it depends on where the workspace is.
fn leaves(path: &RelPath, target: &[u8]) -> bool {
    path.parent().and_then(|folder| crate::lookup::follow_text(&folder, target)).is_none_or(|end| end.is_own())
}

/// The names that differ from another one in case only.
pub(crate) fn collisions<'a>(names: impl Iterator<Item = &'a std::ffi::OsStr>) -> Vec<&'a std::ffi::OsStr> {
    let folded = |name: &std::ffi::OsStr| name.to_string_lossy().to_lowercase();
    let mut names: Vec<_> = names.map(|name| (folded(name), name)).collect();
    names.sort_unstable();
    let groups = names.chunk_by(|one, other| one.0 == other.0).filter(|group| group.len() > 1);
    groups.flatten().map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn a_link_leaves_when_its_text_does() {
        for (at, target) in
            [("a", "/etc"), ("a", ".."), ("d/a", "../../x"), ("a", ".belay/lock"), ("d/e/a", "../../../x")]
        {
            assert!(leaves(&path(at), target.as_bytes()), "{at} -> {target}");
        }
        for (at, target) in [("a", "b"), ("d/a", "../x"), ("d/a", ".."), ("d/e/a", "../../x/./y"), ("a", "x/../y")] {
            assert!(!leaves(&path(at), target.as_bytes()), "{at} -> {target}");
        }
    }

    #[test]
    fn names_that_differ_in_case_collide() {
        let names = ["README", "Readme", "src", "readme", "ÉTÉ", "été", "a"].map(std::ffi::OsStr::new);
        assert_eq!(
            collisions(names.into_iter()),
            ["README", "Readme", "readme", "ÉTÉ", "été"].map(std::ffi::OsStr::new)
        );
    }

    #[test]
    fn misleading_names_are_odd() {
        for odd in ["a\nb", "\u{202e}txt.exe", "a\u{200b}", "\u{1b}[2J"] {
            assert!(is_odd(odd.as_ref()), "{odd:?}");
        }
        assert!(!is_odd("naïve file (1).txt".as_ref()));
    }
}
