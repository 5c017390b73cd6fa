//! Changes that require approval whatever the settings are: protected paths, which programs execute or obey without being told to, and flags.

use std::{collections::HashMap, sync::LazyLock};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

mod table;

pub use table::{PROTECTED_PATHS, ProtectedPaths};

/// The flag of a change to a protected path, which rules can name.
pub(crate) const PROTECTED: &str = "protected";

/// The flags that a rule may name.
pub(crate) const FLAGS: [&str; 10] = [
    PROTECTED,
    "link_leaves",
    "set_id_stripped",
    "odd_name",
    "hidden_name",
    "case_collision",
    "bare_repository",
    "named_by_config",
    "executable",
    "made_writable",
];

/// The paths below `.git` that Git writes in everyday work and neither executes nor obeys. Everything else there is protected, including files
/// that later versions of Git may execute or obey.
const GIT_DATA: &[&str] = &[
    "objects",
    "objects/??",
    "objects/??/*",
    "objects/pack",
    "objects/pack/*",
    "objects/info",
    "objects/info/packs",
    "objects/info/commit-graph",
    "objects/info/commit-graphs",
    "objects/info/commit-graphs/*",
    "refs",
    "refs/**",
    "logs",
    "logs/**",
    "head",
    "*_head",
    "index",
    "index.lock",
    "*.lock",
    "packed-refs",
    "auto_merge",
    "merge_mode",
    "merge_msg",
    "squash_msg",
    "*_editmsg",
    "gc.log",
    "gc.pid",
    "description",
    "info",
    "info/exclude",
    "info/refs",
];

/// The names that are compared case-sensitively, and that do not cover a folder's contents: `head` and `owners` are ordinary names.
const EXACT: [&str; 2] = ["HEAD", "OWNERS"];

/// The compiled table.
struct Lookup {
    /// The rows of single names without wildcards.
    names: HashMap<String, usize>,
    /// Everything else, and the row of each glob.
    globs: GlobSet,
    owners: Vec<usize>,
    /// The rows of [`EXACT`].
    exact: HashMap<&'static str, usize>,
    /// [`GIT_DATA`], relative to the folder `.git`.
    git_data: GlobSet,
}

static LOOKUP: LazyLock<Lookup> = LazyLock::new(|| {
    let (mut names, mut exact) = (HashMap::new(), HashMap::new());
    let (mut owners, mut globs) = (Vec::new(), GlobSetBuilder::new());
    for (row, protected) in PROTECTED_PATHS.iter().enumerate() {
        for path in protected.paths {
            if EXACT.contains(path) {
                exact.insert(*path, row);
                continue;
            }
            let path = folded(path);
            if path.contains(['/', '*', '?']) {
                for spelling in [format!("**/{path}"), format!("**/{path}/**")] {
                    globs.add(own(&spelling));
                    owners.push(row);
                }
            } else {
                names.entry(path).or_insert(row);
            }
        }
    }
    let mut git_data = GlobSetBuilder::new();
    for path in GIT_DATA {
        git_data.add(own(path));
    }
    let built = |set: GlobSetBuilder| set.build().expect("the built-in patterns fit into a set");
    Lookup { names, globs: built(globs), owners, exact, git_data: built(git_data) }
});

fn own(pattern: &str) -> globset::Glob {
    GlobBuilder::new(pattern).literal_separator(true).build().expect("the built-in patterns are globs")
}

/// The row of [`PROTECTED_PATHS`] that covers a path: the path itself, or a folder around it. `None` when the path is ordinary.
///
/// Case does not matter, nor does anything else that a file system may fold: `.Git` is `.git` on another machine.
pub(crate) fn row(path: &str) -> Option<usize> {
    let lookup = &*LOOKUP;
    let exact = path.rsplit('/').next().and_then(|name| lookup.exact.get(name)).copied();
    let path = folded(path);
    let named = path.split('/').filter(|name| *name != ".git").filter_map(|name| lookup.names.get(name)).min().copied();
    let globbed = lookup.globs.matches(&path).into_iter().map(|glob| lookup.owners[glob]).min();
    let found = named.into_iter().chain(globbed).chain(exact).min();
    match below_git(&path) {
        // Names below Git's data folders are not file names of tools: a branch may be called `Jenkinsfile`.
        Some(inside) if !inside.is_empty() && lookup.git_data.is_match(inside) => None,
        Some(_) => lookup.names.get(".git").copied().into_iter().chain(found).min(),
        None => found,
    }
}

/// The path below the innermost folder of a repository: after the last `.git/`, and the names of submodules after `modules/`.
fn below_git(path: &str) -> Option<&str> {
    let start = match path.rfind("/.git/") {
        Some(at) => at + "/.git/".len(),
        None if path.starts_with(".git/") => ".git/".len(),
        None => return (path == ".git" || path.ends_with("/.git")).then_some(""),
    };
    let inside = &path[start..];
    // A submodule's folder has the layout of `.git`. Its name may contain slashes, so every possible start of its data is tried.
    let data = ["objects/", "refs/", "logs/"];
    let nested = inside.strip_prefix("modules/").and_then(|rest| {
        let at = data.iter().filter_map(|data| rest.find(&format!("/{data}"))).min();
        at.map(|at| &rest[at + 1..])
            .or_else(|| rest.rsplit_once('/').map(|(_, name)| name).filter(|name| *name != "config"))
    });
    Some(nested.unwrap_or(inside))
}

/// Whether a path is protected.
pub(crate) fn is_protected(path: &str) -> bool {
    row(path).is_some()
}

/// Why a path is protected, that is, which program executes or obeys it; `None` when it is not.
pub fn protection(path: &str) -> Option<&'static str> {
    row(path).map(|row| PROTECTED_PATHS[row].reason)
}

/// Whether a flag requires approval. An unknown flag does: the runner that raised it had a reason.
///
/// `executable` does not: every build creates executables, and a file without the bit can be run through its interpreter. Nor does
/// `made_writable`, which gives a folder's owner a permission that the owner can take anyway.
pub(crate) fn asks(flag: &str) -> bool {
    !matches!(flag, "executable" | "made_writable")
}

/// The description of a flag for reviewers.
pub(crate) fn meaning(flag: &str) -> &'static str {
    match flag {
        PROTECTED => {
            "is a protected path: programs run files there automatically, or take them as configuration or instructions"
        }
        "link_leaves" => "is a link that leads out of the workspace",
        "set_id_stripped" => "was given a set-user-id or set-group-id bit, which is not kept",
        "odd_name" => "has a name that misleads a reader",
        "hidden_name" => {
            "has a name that is not shown in full, because it is very long or has a secret of the call in it"
        }
        "case_collision" => {
            "differs from another file's name only in upper and lower case: on some machines they are the same file"
        }
        "bare_repository" => "configures a bare Git repository: Git obeys it wherever it runs in that folder",
        "named_by_config" => {
            "is named by the configuration of a Git repository: Git runs it as a hook, or obeys it as configuration"
        }
        _ => "should be checked carefully",
    }
}

fn folded(path: &str) -> String {
    if path.is_ascii() {
        return path.to_ascii_lowercase();
    }
    // Upper case first: it also folds letters that lower case does not, such as the long s and the Kelvin sign.
    path.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}
