//! Flags changes to what the configuration of a Git repository names: its hooks, and the files that it includes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    rc::Rc,
};

use belay_workspace::{Content, FileKind, RelPath};

use super::git_config;
use crate::{View, facts::Fact};

/// The flag.
const FLAG: &str = "named_by_config";

/// How much of a file is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How deep files may include each other, as in Git.
const MAX_DEPTH: usize = 10;

/// How many symbolic links a path is followed through.
const MAX_LINKS: usize = 16;

/// Flags the changes in `facts` to what a repository's configuration in `view` names. `root` is the path of the workspace outside of the sandbox.
///
/// A path that is protected because of its name is left to that protection.
pub(super) fn flag(facts: &mut [Fact], view: &dyn View, root: &Path) {
    let mut repositories = Repositories { view, root, known: BTreeMap::new() };
    for fact in facts {
        let Some(folder) = work_tree_folder(&fact.path) else { continue };
        let named = repositories.named(&folder);
        if named.iter().any(|named| named.covers(fact)) && belay_policy::protection(&fact.path.as_text()).is_none() {
            fact.flags.insert(FLAG);
        }
    }
}

/// Whether the facts change what a repository's configuration says: then what it named before counts as well.
pub(super) fn changes_configuration(facts: &[Fact]) -> bool {
    facts.iter().any(|fact| {
        let below_git = fact.path.names().any(|name| name.eq_ignore_ascii_case(".git"));
        let name = fact.path.name().map(OsStr::as_bytes).unwrap_or_default().to_ascii_lowercase();
        let is_configuration = [&b".git"[..], b"config", b"config.worktree", b"commondir"].contains(&name.as_slice());
        fact.flags.contains(FLAG) || below_git && is_configuration
    })
}

/// The folder that a path is in, outside of any `.git`.
fn work_tree_folder(path: &RelPath) -> Option<RelPath> {
    let mut folder = path.parent()?;
    let mut outermost = folder.clone();
    while let Some(parent) = folder.parent() {
        if folder.name().is_some_and(|name| name.eq_ignore_ascii_case(".git")) {
            outermost = parent.clone();
        }
        folder = parent;
    }
    Some(outermost)
}

/// A path that a configuration names, relative to the workspace, in lower case: a file system may fold it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NamedPath {
    path: Vec<u8>,
    /// Whether the whole work tree is in the folder. Then only its files count: Git looks for hooks in no folder below.
    has_work_tree: bool,
}

impl NamedPath {
    fn new(path: &RelPath, work_tree: &RelPath) -> Self {
        let (path, work_tree) = (path.as_bytes().to_ascii_lowercase(), work_tree.as_bytes().to_ascii_lowercase());
        let has_work_tree = path == work_tree || is_below(&work_tree, &path);
        Self { path, has_work_tree }
    }

    /// Whether the fact is about this path, an entry below it, or a link that takes the place of a folder above it.
    fn covers(&self, fact: &Fact) -> bool {
        let path = fact.path.as_bytes().to_ascii_lowercase();
        let is_link = fact.after.as_ref().is_some_and(|node| matches!(node.content, Content::Symlink { .. }));
        let node = fact.after.as_ref().or(fact.before.as_ref());
        let is_folder = node.is_none_or(|node| node.content == Content::Directory);
        let is_in = match below(&path, &self.path) {
            Some(entry) => !(self.has_work_tree && (is_folder || entry.contains(&b'/'))),
            None => path == self.path,
        };
        is_in || is_link && is_below(&self.path, &path)
    }
}

fn is_below(path: &[u8], folder: &[u8]) -> bool {
    below(path, folder).is_some()
}

/// The path relative to a folder that it is in.
fn below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    if folder.is_empty() {
        Some(path).filter(|path| !path.is_empty())
    } else {
        path.strip_prefix(folder)?.strip_prefix(b"/")
    }
}

/// The paths that the repositories around each folder name.
struct Repositories<'a> {
    view: &'a dyn View,
    root: &'a Path,
    known: BTreeMap<RelPath, Rc<BTreeSet<NamedPath>>>,
}

impl Repositories<'_> {
    /// The paths named by the repositories that a folder is in, or is the top of.
    fn named(&mut self, folder: &RelPath) -> Rc<BTreeSet<NamedPath>> {
        if let Some(known) = self.known.get(folder) {
            return Rc::clone(known);
        }
        let outer = folder.parent().map(|parent| self.named(&parent)).unwrap_or_default();
        let own = self.of_repository(folder);
        let all = if own.is_empty() { outer } else { Rc::new(outer.iter().cloned().chain(own).collect()) };
        self.known.insert(folder.clone(), Rc::clone(&all));
        all
    }

    /// The paths named by the repository whose work tree is this folder; none if it is not one.
    fn of_repository(&self, folder: &RelPath) -> BTreeSet<NamedPath> {
        let mut named = BTreeSet::new();
        let Some(git) = self.resolve(folder, b".git") else { return named };
        if self.view.metadata(&git).is_err() {
            return named;
        }
        // In a submodule and in a linked work tree, `.git` is a file that says where the repository is.
        let elsewhere = self.pointer(&git, b"gitdir:").and_then(|target| self.resolve(folder, &target));
        let git = elsewhere.unwrap_or(git);
        let common = self.resolve(&git, b"commondir").and_then(|file| self.pointer(&file, b""));
        let common = common.and_then(|target| self.resolve(&git, &target)).unwrap_or_else(|| git.clone());
        let mut files = Files { repository: self, work_tree: folder, read: BTreeSet::new(), named: &mut named };
        for (folder, name) in [(&common, "config"), (&git, "config.worktree")] {
            if let Some(file) = self.resolve(folder, name.as_bytes()) {
                files.read(&file, MAX_DEPTH);
            }
        }
        named
    }

    fn read(&self, file: &RelPath) -> Option<Vec<u8>> {
        self.view.read(file, 0, Some(MAX_FILE_BYTES)).ok()
    }

    /// The path in a file that consists of it, after `label`.
    fn pointer(&self, file: &RelPath, label: &[u8]) -> Option<Vec<u8>> {
        Some(self.read(file)?.strip_prefix(label)?.trim_ascii().to_vec()).filter(|target| !target.is_empty())
    }

    /// The path that `text` means in `folder`; `None` if it is not in the workspace.
    fn resolve(&self, folder: &RelPath, text: &[u8]) -> Option<RelPath> {
        let inside = inside(self.root.as_os_str().as_bytes(), folder.as_bytes(), text)?;
        // A name that is not UTF-8 is written in digits, and so is one that would be taken for such.
        let names = inside.split(|byte| *byte == b'/').map(|name| match std::str::from_utf8(name) {
            Ok(text) if !text.starts_with("hex:") => text.to_owned(),
            _ => format!("hex:{}", name.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        });
        let path = names.collect::<Vec<_>>().join("/");
        if path.is_empty() { Some(RelPath::root()) } else { RelPath::parse(&format!("./{path}")).ok() }
    }

    /// The path, and where it leads if it, or a folder above it, is a symbolic link.
    fn with_links(&self, path: RelPath, work_tree: &RelPath) -> BTreeSet<NamedPath> {
        let mut all = BTreeSet::from([NamedPath::new(&path, work_tree)]);
        let mut path = path;
        for _ in 0..MAX_LINKS {
            let Some(target) = self.behind_first_link(&path) else { break };
            if !all.insert(NamedPath::new(&target, work_tree)) {
                break;
            }
            path = target;
        }
        all
    }

    /// Where a path leads after its first symbolic link; `None` if it has none, or leaves the workspace by it.
    fn behind_first_link(&self, path: &RelPath) -> Option<RelPath> {
        let mut above = Vec::new();
        let mut next = Some(path.clone());
        while let Some(folder) = next.filter(|folder| !folder.is_root()) {
            next = folder.parent();
            above.push(folder);
        }
        let link = above.into_iter().rev().find_map(|at| {
            let metadata = self.view.metadata(&at).ok().filter(|found| found.kind == FileKind::Symlink)?;
            Some((at, metadata.target?))
        });
        let (at, mut target) = link?;
        let rest = path.as_bytes().strip_prefix(at.as_bytes())?;
        target.push_str(std::str::from_utf8(rest).ok()?);
        self.resolve(&at.parent()?, target.as_bytes())
    }
}

/// Reads configuration files, and those that they include.
struct Files<'a> {
    repository: &'a Repositories<'a>,
    work_tree: &'a RelPath,
    read: BTreeSet<RelPath>,
    named: &'a mut BTreeSet<NamedPath>,
}

impl Files<'_> {
    fn read(&mut self, file: &RelPath, depth: usize) {
        if depth == 0 || !self.read.insert(file.clone()) {
            return;
        }
        let Some(text) = self.repository.read(file) else { return };
        let folder = file.parent().unwrap_or_else(RelPath::root);
        for variable in git_config::variables(&text) {
            let includes = match (variable.section.as_str(), &variable.subsection, variable.key.as_str()) {
                ("core", None, "hookspath") => false,
                // Every condition counts: the branch and the remotes change.
                ("include", None, "path") | ("includeif", Some(_), "path") => true,
                _ => continue,
            };
            let from = if includes { &folder } else { self.work_tree };
            let Some(path) = self.repository.resolve(from, &variable.value) else { continue };
            self.named.extend(self.repository.with_links(path.clone(), self.work_tree));
            if includes {
                self.read(&path, depth - 1);
            }
        }
    }
}

/// The path that `text` in a configuration means, relative to the workspace at `root`: relative to `folder` in it, or absolute. `None` if it is
/// empty or not in the workspace, as a path that begins with `~` or `%(prefix)` never is.
fn inside(root: &[u8], folder: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || text.starts_with(b"~") || text.starts_with(b"%(prefix)") || text.contains(&0) {
        return None;
    }
    let whole = if text.starts_with(b"/") { text.to_vec() } else { [root, folder, text].join(&b'/') };
    let mut names: Vec<&[u8]> = Vec::new();
    for name in whole.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let root: Vec<&[u8]> = root.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    Some(names.strip_prefix(root.as_slice())?.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use belay_workspace::{Act, Change, Digest, FileTime, Fingerprint, Manifest, Node};

    use super::*;
    use crate::facts::facts;

    #[test]
    fn a_path_is_relative_to_its_folder_or_absolute() {
        for (folder, text, expected) in [
            ("", ".hooks", Some(".hooks")),
            ("", "./tools//hooks/", Some("tools/hooks")),
            ("", ".", Some("")),
            (".git", "../.gitconfig", Some(".gitconfig")),
            (".git", "local", Some(".git/local")),
            ("sub", "../hooks", Some("hooks")),
            ("sub", "../../w/hooks", Some("hooks")),
            ("", "../hooks", None),
            ("", "../wide/hooks", None),
            ("", "/home/me/w/hooks", Some("hooks")),
            ("sub", "/home/me/w/./x/../hooks", Some("hooks")),
            ("", "/home/me/w", Some("")),
            ("", "/home/me/wide/hooks", None),
            ("", "/etc/hooks", None),
            ("", "/dev/null", None),
            ("", "~/hooks", None),
            ("", "~me/w/hooks", None),
            ("", "%(prefix)/hooks", None),
            ("", "", None),
        ] {
            let found = inside(b"/home/me/w", folder.as_bytes(), text.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{folder:?} {text:?}");
        }
    }

    /// A fact about a new entry.
    fn created(path: &str, content: Content) -> Fact {
        let path = RelPath::parse(path).unwrap();
        let time = FileTime(0, 0);
        let staged =
            Fingerprint { digest: Digest::of(b""), inode: 1, mode: 0o644, size: 0, modified: time, seen: time };
        let act = Act::Put { base: None, staged };
        let after = vec![Node { path: path.clone(), mode: 0o644, content }];
        let change = Change { path, act, before: Vec::new(), after, flags: Vec::new() };
        facts(&Manifest { changes: vec![change], ..Manifest::default() }).remove(0)
    }

    #[test]
    fn a_named_path_covers_what_is_in_it_and_links_that_take_its_place() {
        let [work_tree, root] = ["sub", "."].map(|path| RelPath::parse(path).unwrap());
        for (named, path, covered, as_link) in [
            ("sub/tools/hooks", "sub/tools/hooks", true, true),
            ("sub/tools/hooks", "sub/tools/hooks/pre-commit", true, true),
            ("sub/tools/hooks", "sub/tools/hooks/lib/x", true, true),
            ("sub/tools/hooks", "SUB/Tools/HOOKS/x", true, true),
            ("sub/tools/hooks", "sub/tools", false, true),
            ("sub/tools/hooks", "sub", false, true),
            ("sub/tools/hooks", "sub/tools/hooks.md", false, false),
            ("sub/tools/hooks", "sub/too", false, false),
            ("sub", "sub/x", false, true),
            ("sub", "sub/x/y", false, false),
            (".", "x", false, true),
            (".", "sub/x", false, false),
        ] {
            let named = NamedPath::new(&RelPath::parse(named).unwrap(), if named == "." { &root } else { &work_tree });
            let directory = created(path, Content::Directory);
            let link = created(path, Content::Symlink { target: b"x".to_vec() });
            assert_eq!((named.covers(&directory), named.covers(&link)), (covered, as_link), "{named:?} {path}");
        }
    }

    #[test]
    fn a_path_below_git_belongs_to_the_folder_around_it() {
        for (path, folder) in [
            ("a", "."),
            ("x/y/a", "x/y"),
            (".git/config", "."),
            ("x/.git/modules/lib/config", "x"),
            ("x/.git/modules/y/.git/config", "x"),
        ] {
            assert_eq!(work_tree_folder(&RelPath::parse(path).unwrap()).unwrap().to_string(), folder, "{path}");
        }
    }
}
