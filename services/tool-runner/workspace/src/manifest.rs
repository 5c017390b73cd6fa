//! What a call changed, as a value: what a person reads, what policy judges, what an approval is bound to.

use serde::{Deserialize, Serialize};

use crate::{
    conflict::Fingerprint,
    path::RelPath,
    tree::{self, Content, Digest, LeftOut, Node, write_bytes},
};

/// Everything that one call changed in a workspace, sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// No change lies inside another one, except in a folder whose mode alone changed.
    pub changes: Vec<Change>,
    /// The pipes, sockets and devices that the call left, by path. They are no change: what the workspace has at their paths stays, and in
    /// a new folder they are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// What happens to one path, and to all that is inside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub path: RelPath,
    /// What happens.
    #[serde(flatten)]
    pub act: Act,
    /// What was there: nothing, or its top first and then by path. Empty for [`Act::Meta`].
    pub before: Vec<Node>,
    /// What will be there, in the same way.
    pub after: Vec<Node>,
    /// What a person should look at twice, by path.
    pub flags: Vec<Flagged>,
}

/// What happens to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// A file, a link or a whole folder takes its place there.
    Put {
        /// What it displaces; `None` if nothing is there.
        base: Option<Fingerprint>,
        /// What is put.
        staged: Fingerprint,
    },
    /// What is there goes.
    Away {
        /// What goes.
        base: Fingerprint,
    },
    /// A folder keeps its place and contents and gets another mode.
    Meta {
        /// Its inode.
        inode: u64,
        /// Its permission bits before.
        old: u32,
        /// And after.
        new: u32,
    },
}

/// A reason to look at a path twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Flagged {
    /// Where.
    pub path: RelPath,
    /// Why.
    pub flag: Flag,
}

/// Why a path deserves a second look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// A file can be executed that could not before, or was not there.
    Executable,
    /// The call left a set-user-id or set-group-id bit, which is not committed.
    SetIdStripped,
    /// The call left a folder that its owner cannot write to, which could not be moved: it is committed with that right.
    MadeWritable,
    /// A symbolic link whose target is outside the workspace, or in Belay's own folder.
    LinkLeaves,
    /// The name has characters that mislead a reader: control, direction, no width, a line break, or no UTF-8.
    OddName,
    /// Another name in the same folder differs only in case: they are one file on some machines.
    CaseCollision,
}

/// What [`Manifest::canonical_bytes`] begins with. The number rises when the encoding changes.
const FORMAT: &[u8] = b"belay manifest 1\n";

impl Manifest {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The bytes that an approval is bound to: for each touched path what was there (as a digest) and what will be there (node by node).
    ///
    /// The same change to the same contents has the same bytes wherever and whenever it is made: inodes and times are left out, and so
    /// is the rest of the workspace. So a commit to other paths leaves an approval as good as it was.
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

    /// Of the canonical bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.canonical_bytes())
    }
}

/// The flags that one change earns by itself; those of names that collide need its neighbours and are added by the caller.
pub(crate) fn flags(before: &[Node], after: &[Node]) -> Vec<Flagged> {
    let mut flags = Vec::new();
    let executable = |node: &Node| matches!(node.content, Content::File { .. }) && node.mode & 0o111 != 0;
    for node in after {
        let was = before.binary_search_by(|old| old.path.cmp(&node.path)).ok().map(|found| &before[found]);
        let mut flag = |flag| flags.push(Flagged { path: node.path.clone(), flag });
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
    name.to_str().is_none_or(|name| name.chars().any(crate::path::misleads))
}

/// Whether a link at `path` leads out, by its text. An absolute target does, even one that points back in: it means another file
/// wherever the workspace lies elsewhere.
fn leaves(path: &RelPath, target: &[u8]) -> bool {
    path.parent().and_then(|folder| crate::lookup::follow_text(&folder, target)).is_none_or(|end| end.is_own())
}

/// Those of `names` of which there is another one that differs only in case.
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
    fn names_that_differ_in_case_only_collide() {
        let names = ["README", "Readme", "src", "readme", "ÉTÉ", "été", "a"].map(std::ffi::OsStr::new);
        assert_eq!(
            collisions(names.into_iter()),
            ["README", "Readme", "readme", "ÉTÉ", "été"].map(std::ffi::OsStr::new)
        );
    }

    #[test]
    fn names_that_mislead_are_odd() {
        for odd in ["a\nb", "\u{202e}txt.exe", "a\u{200b}", "\u{1b}[2J"] {
            assert!(is_odd(odd.as_ref()), "{odd:?}");
        }
        assert!(!is_odd("naïve file (1).txt".as_ref()));
    }
}
