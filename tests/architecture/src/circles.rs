//! No two files of a crate, the tests' included, import each other in a circle: each can be read after those that it imports.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    house,
    source::{self, code},
};

/// The files of a crate by the module that each is: `a::b` for `src/a/b.rs`, nothing for `src/lib.rs`.
struct Modules(BTreeMap<Vec<String>, Module>);

struct Module {
    path: String,
    /// The code without its tests and re-exports.
    code: String,
    /// The paths that it re-exports, from the crate's root.
    exports: Vec<Vec<String>>,
}

/// The module of a file below `src/`.
fn module_of(file: &str) -> Vec<String> {
    let mut parts: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(&parts[..], [only] if ["lib", "main"].contains(&only.as_str())) {
        return Vec::new();
    }
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// The code up to its inline tests.
fn without_tests(code: &str) -> &str {
    code.find("#[cfg(test)]\nmod ")
        .filter(|at| code[*at..].lines().nth(1).is_some_and(|line| line.ends_with('{')))
        .map_or(code, |at| &code[..at])
}

/// Takes the re-exports out of the code, and returns them.
fn split_exports(code: &str) -> (String, String) {
    let (mut rest, mut exports) = (String::new(), String::new());
    let mut left = code;
    let is_export = |line: &str| {
        let line = line.trim_start();
        line.starts_with("pub use ")
            || line.starts_with("pub(") && line.split_once(") ").is_some_and(|(_, rest)| rest.starts_with("use "))
    };
    while !left.is_empty() {
        let line = left.split_inclusive('\n').next().unwrap_or(left);
        let taken = match is_export(line) {
            true => left.find(';').map_or(left.len(), |at| at + 1),
            false => line.len(),
        };
        match is_export(line) {
            true => exports.push_str(&left[..taken]),
            false => rest.push_str(line),
        }
        left = &left[taken..];
    }
    (rest, exports)
}

/// A path that stands in a module, from the crate's root; `None` when it leads elsewhere.
fn absolute(path: &str, module: &[String], children: &BTreeSet<String>) -> Option<Vec<String>> {
    let mut parts: Vec<String> = path.split("::").map(str::to_owned).collect();
    let mut base = match parts.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        // One word alone is a name of the code.
        child if parts.len() > 1 && children.contains(child) => {
            let mut absolute = module.to_vec();
            absolute.extend(parts);
            return Some(absolute);
        }
        _ => return None,
    };
    while let Some(first) = parts.first() {
        match first.as_str() {
            "crate" | "self" => {}
            "super" => drop(base.pop()?),
            _ => break,
        }
        parts.remove(0);
    }
    if parts.is_empty() {
        return None;
    }
    base.extend(parts);
    Some(base)
}

/// The paths that the code names, without those that only begin a group: what is in the group stands after them.
fn named(code: &str) -> Vec<String> {
    let named: Vec<String> = source::paths(code).into_iter().map(|named| named.path).collect();
    let begins_group = |at: usize| {
        named.get(at + 1).is_some_and(|next| next.strip_prefix(&*named[at]).is_some_and(|rest| rest.starts_with("::")))
    };
    (0..named.len()).filter(|at| !begins_group(*at)).map(|at| named[at].clone()).collect()
}

impl Modules {
    fn of(folder: &str) -> Self {
        let files = source::rust_files(folder).into_iter().filter_map(|file| {
            let below = file.path.strip_prefix(folder)?.strip_prefix("/src/")?.to_owned();
            // The program beside a library imports the library by its name.
            (below != "main.rs" || !house::root().join(folder).join("src/lib.rs").exists())
                .then_some((module_of(&below), file))
        });
        let files: BTreeMap<_, _> = files.collect();
        let children = |module: &[String]| -> BTreeSet<String> {
            let is_child = |other: &&Vec<String>| other.len() == module.len() + 1 && other.starts_with(module);
            files.keys().filter(is_child).filter_map(|child| child.last().cloned()).collect()
        };
        let modules = files.iter().map(|(module, file)| {
            let whole = code(&file.text);
            let (code, exports) = split_exports(without_tests(&whole));
            let exports = named(&exports);
            let exports = exports.iter().filter_map(|path| absolute(path, module, &children(module))).collect();
            (module.clone(), Module { path: file.path.clone(), code, exports })
        });
        Self(modules.collect())
    }

    /// The module in which the item at this path is defined.
    fn defining(&self, path: &[String], depth: usize) -> Option<&Vec<String>> {
        let longest = (0..=path.len()).rev().find_map(|length| self.0.get_key_value(&path[..length]))?;
        let (module, Module { exports, .. }) = longest;
        let Some(item) = path.get(module.len()) else { return Some(module) };
        let exported = exports.iter().find(|export| export.last() == Some(item) && export.as_slice() != path);
        match exported.filter(|_| depth < 8) {
            Some(export) => self.defining(export, depth + 1),
            None => Some(module),
        }
    }

    /// For each file, the files that it imports.
    fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let imports = self.0.iter().map(|(module, file)| {
            let is_child = |other: &&Vec<String>| other.len() == module.len() + 1 && other.starts_with(module);
            let children = self.0.keys().filter(is_child).filter_map(|child| child.last().cloned()).collect();
            let named = named(&file.code);
            let targets = named.iter().filter_map(|path| self.defining(&absolute(path, module, &children)?, 0));
            let targets = targets.filter(|target| *target != module).map(|target| self.0[target].path.as_str());
            (file.path.as_str(), targets.collect())
        });
        imports.collect()
    }
}

/// The groups of files that reach each other.
fn circles<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<BTreeSet<&'a str>> {
    let reached = |from: &'a str| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for next in imports.get(file).into_iter().flatten() {
                if reached.insert(*next) {
                    open.push(next);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports.keys().map(|file| (*file, reached(file))).collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (file, others) in &reached {
        if others.contains(file) && !found.iter().any(|circle| circle.contains(file)) {
            found.push(others.iter().copied().filter(|other| reached[other].contains(file)).collect());
        }
    }
    found
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let folders = house::crates().into_iter().map(|member| member.folder);
    let (mut found, mut why) = (BTreeSet::new(), String::new());
    for folder in folders {
        let modules = Modules::of(&folder);
        let imports = modules.imports();
        for circle in circles(&imports) {
            for file in &circle {
                let within: Vec<_> = imports[file].intersection(&circle).collect();
                why.push_str(&format!("{file} imports {within:?}\n"));
            }
            why.push('\n');
            found.extend(circle.into_iter().map(str::to_owned));
        }
    }
    assert!(
        found.is_empty(),
        "These files import each other in a circle. Move what both need into a file below them.\n{found:#?}\n{why}"
    );
}

#[test]
fn a_circle_is_found_through_a_re_export_and_not_in_tests() {
    let file = |path: &str, text: &str| {
        let (code, exports) = split_exports(without_tests(text));
        let module = module_of(path);
        let children = ["a".to_owned(), "b".to_owned()].into();
        let exports = named(&exports).iter().filter_map(|path| absolute(path, &module, &children)).collect();
        (module, Module { path: path.to_owned(), code, exports })
    };
    let modules = Modules(
        [
            file("lib.rs", "mod a;\nmod b;\npub use b::{B, C};\n"),
            file("a.rs", "use crate::B;\nstruct A;\n"),
            file("b.rs", "struct B;\nfn b() {\n    super::a::f();\n}\n"),
            file("c.rs", "use crate::a::A;\n\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n"),
            file("d.rs", "use crate::c::C;\n"),
        ]
        .into(),
    );
    assert_eq!(circles(&modules.imports()), [BTreeSet::from(["a.rs", "b.rs"])]);
}
