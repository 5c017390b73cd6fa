//! Recognises toolchains by their layout: a directory with `bin` and the files its programs need.

use std::path::{Path, PathBuf};

use super::{Caller, Files};
use crate::{is_system, paths};

/// A layout.
struct Layout {
    kind: &'static str,
    /// The program in `bin`.
    program: &'static str,
    /// The entry that must exist next to `bin`: a file or directory, or the prefix of its name if it ends with `*`.
    beside: &'static str,
    /// The parts that commands see, besides `bin`.
    parts: &'static [&'static str],
}

const LAYOUTS: [Layout; 8] = [
    Layout {
        kind: "Go",
        program: "go",
        beside: "VERSION",
        parts: &["VERSION", "api", "go.env", "lib", "misc", "pkg", "src", "test"],
    },
    Layout {
        kind: "JDK",
        program: "java",
        beside: "release",
        parts: &["conf", "include", "jmods", "jre", "legal", "lib", "release"],
    },
    Layout { kind: "Node.js", program: "node", beside: "include/node", parts: &["include", "lib"] },
    Layout { kind: "Python", program: "python3", beside: "lib/python3*", parts: &["include", "lib", "lib64"] },
    Layout { kind: "Rust", program: "rustc", beside: "lib/rustlib", parts: &["lib", "libexec"] },
    Layout { kind: "Ruby", program: "ruby", beside: "lib/ruby", parts: &["include", "lib"] },
    // Not `conf`: its settings.xml may hold the passwords of repositories.
    Layout { kind: "Maven", program: "mvn", beside: "boot", parts: &["boot", "conf/logging", "lib"] },
    Layout { kind: "Gradle", program: "gradle", beside: "lib/plugins", parts: &["lib"] },
];

/// A toolchain found on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) kind: &'static str,
    /// The visible parts, `bin` first.
    pub(super) parts: Vec<PathBuf>,
}

impl Prefix {
    /// Recognises the toolchain of a `bin` directory, a path without links.
    pub(super) fn of(bin: &Path, caller: &Caller, files: &dyn Files) -> Option<Self> {
        let root = bin.parent().filter(|_| bin.file_name() == Some("bin".as_ref()))?;
        if is_system(root) || is_shared(root, caller) || files.is_file(&root.join("pyvenv.cfg")) {
            return None;
        }
        let layout = LAYOUTS.iter().find(|layout| {
            // A directory of links into toolchains is not a toolchain.
            let program = bin.join(layout.program);
            files.is_program(&program)
                && files.resolve(&program).is_some_and(|real| real.starts_with(root))
                && is_there(&root.join(layout.beside), files)
        })?;
        let parts = layout.parts.iter().map(|part| root.join(part)).filter(|part| {
            // A link out of the toolchain may refer to anything.
            files.resolve(part).is_some_and(|real| real.starts_with(root) && real != root)
        });
        Some(Self { kind: layout.kind, parts: std::iter::once(bin.to_owned()).chain(parts).collect() })
    }
}

/// Whether a directory is too general for one toolchain, whatever its layout.
fn is_shared(root: &Path, caller: &Caller) -> bool {
    let home = caller.home.as_deref();
    let local = home.is_some_and(|home| root == home.join(".local"));
    local || root.parent().is_none_or(|above| above == Path::new("/")) || paths::too_much(root, home).is_some()
}

fn is_there(path: &Path, files: &dyn Files) -> bool {
    match path.to_str().and_then(|text| text.strip_suffix('*')).map(Path::new) {
        None => files.resolve(path).is_some(),
        Some(begin) => {
            let (Some(folder), Some(name)) = (begin.parent(), begin.file_name().and_then(|name| name.to_str())) else {
                return false;
            };
            files.names(folder).iter().any(|entry| entry.starts_with(name))
        }
    }
}
