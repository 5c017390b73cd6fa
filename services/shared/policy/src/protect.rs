//! What asks a person by itself: paths through which a file gains power over machines or agents, and changes that deserve a second look.

use std::sync::LazyLock;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// The flag of a change to a protected path, for rules to name.
pub(crate) const PROTECTED: &str = "protected";

/// The flags that a rule may name.
pub(crate) const FLAGS: [&str; 7] =
    [PROTECTED, "link_leaves", "set_id_stripped", "odd_name", "case_collision", "executable", "made_writable"];

/// The protected paths in lower case, at the top or in any folder.
///
/// The folders above them count themselves: a link in the place of `.git` brings its own hooks.
const PATHS: &[&str] = &[
    ".git",
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".git/modules/**/hooks",
    ".git/modules/**/config",
    ".github",
    ".github/workflows",
    ".vscode",
    ".idea",
    ".envrc",
    ".husky",
    ".mcp.json",
    ".claude",
    ".codex",
    ".agent",
    // Of a workspace further down: what waits there for a decision.
    ".belay",
    "agents.md",
    "claude.md",
];

/// Those of [`PATHS`] that stand for themselves alone: most of what is inside is harmless.
const ALONE: &[&str] = &[".git", ".github"];

static GLOBS: LazyLock<GlobSet> = LazyLock::new(|| {
    let mut set = GlobSetBuilder::new();
    let mut add = |pattern: String| {
        set.add(GlobBuilder::new(&pattern).literal_separator(true).build().expect("our own patterns are globs"));
    };
    for path in PATHS {
        add(format!("**/{path}"));
        if !ALONE.contains(path) {
            add(format!("**/{path}/**"));
        }
    }
    set.build().expect("our own patterns fit into a set")
});

/// Whether a path is protected. Capitals do not count, nor does anything else that a file system may fold away: `.Git` is `.git` on
/// another machine.
pub(crate) fn is_protected(path: &str) -> bool {
    GLOBS.is_match(folded(path))
}

/// Whether a flag asks a person by itself. One that is not known here does: whoever raised it had a reason.
///
/// `executable` does not: every build makes executables, and a file without the bit can be run all the same, by naming its interpreter.
/// `made_writable` gives a folder's owner a right that the owner can take anyway.
pub(crate) fn asks(flag: &str) -> bool {
    !matches!(flag, "executable" | "made_writable")
}

/// What a reviewer is told about a flag.
pub(crate) fn meaning(flag: &str) -> &'static str {
    match flag {
        PROTECTED => "is a protected path: what stands there can run by itself, or steers tools and agents",
        "link_leaves" => "is a link that leads out of the workspace",
        "set_id_stripped" => "was given a set-user-id or set-group-id bit, which is not kept",
        "odd_name" => "has a name that misleads a reader",
        "case_collision" => "has the name of another file but for capitals: they are one file on some machines",
        _ => "should be looked at twice",
    }
}

fn folded(path: &str) -> String {
    if path.is_ascii() {
        return path.to_ascii_lowercase();
    }
    // Upper case first: it unites letters that lower case keeps apart, such as the long s and the Kelvin sign.
    path.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}
