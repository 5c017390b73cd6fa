//! Toolchains that are known by their own shape: a folder with `bin` and what its programs need beside it.

use std::path::{Path, PathBuf};

use super::{Caller, Files};
use crate::{is_system, paths};

/// A shape.
struct Shape {
    kind: &'static str,
    /// The program that has to be in `bin`.
    program: &'static str,
    /// What has to be beside `bin`: a file or folder, or the beginning of its name where it ends with `*`.
    beside: &'static str,
    /// What of it is shown, beside `bin`.
    parts: &'static [&'static str],
}

const SHAPES: [Shape; 8] = [
    Shape {
        kind: "Go",
        program: "go",
        beside: "VERSION",
        parts: &["VERSION", "api", "go.env", "lib", "misc", "pkg", "src", "test"],
    },
    Shape {
        kind: "JDK",
        program: "java",
        beside: "release",
        parts: &["conf", "include", "jmods", "jre", "legal", "lib", "release"],
    },
    Shape { kind: "Node.js", program: "node", beside: "include/node", parts: &["include", "lib"] },
    Shape { kind: "Python", program: "python3", beside: "lib/python3*", parts: &["include", "lib", "lib64"] },
    Shape { kind: "Rust", program: "rustc", beside: "lib/rustlib", parts: &["lib", "libexec"] },
    Shape { kind: "Ruby", program: "ruby", beside: "lib/ruby", parts: &["include", "lib"] },
    // Not `conf`: its settings.xml may hold the passwords of repositories.
    Shape { kind: "Maven", program: "mvn", beside: "boot", parts: &["boot", "conf/logging", "lib"] },
    Shape { kind: "Gradle", program: "gradle", beside: "lib/plugins", parts: &["lib"] },
];

/// A toolchain at its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) kind: &'static str,
    /// What is shown: `bin` first.
    pub(super) parts: Vec<PathBuf>,
}

impl Prefix {
    /// The toolchain whose programs lie in `bin`, a path without links.
    pub(super) fn of(bin: &Path, caller: &Caller, files: &dyn Files) -> Option<Self> {
        let root = bin.parent().filter(|_| bin.file_name() == Some("bin".as_ref()))?;
        if is_system(root) || is_shared(root, caller) || files.is_file(&root.join("pyvenv.cfg")) {
            return None;
        }
        let shape = SHAPES.iter().find(|shape| {
            // A folder of links into toolchains is none itself.
            let program = bin.join(shape.program);
            files.is_program(&program)
                && files.resolve(&program).is_some_and(|real| real.starts_with(root))
                && is_there(&root.join(shape.beside), files)
        })?;
        let parts = shape.parts.iter().map(|part| root.join(part)).filter(|part| {
            // What leads out of the toolchain may lead anywhere.
            files.resolve(part).is_some_and(|real| real.starts_with(root) && real != root)
        });
        Some(Self { kind: shape.kind, parts: std::iter::once(bin.to_owned()).chain(parts).collect() })
    }
}

/// Whether a folder holds more than one toolchain could, whatever its shape.
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
