//! The crates that decide are pure: time, randomness, files and sockets are arguments. So a simulation, a property test and a replay can run the same
//! code as production.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, PackageId};

use crate::{house, layers, source};

/// Crates with I/O, async, randomness or the wire format: pure crates must not depend on them.
const IMPURE_CRATES: &[&str] =
    &["getrandom", "hyper", "libsqlite3-sys", "mio", "prost", "rand", "rusqlite", "rustix", "tokio", "tonic"];

/// Paths that a pure crate's source must not name, not even in its tests. With `::` at the end: anything below.
const IMPURE_PATHS: &[&str] =
    &["Instant::now", "SystemTime::now", "rand::", "std::env", "std::fs", "std::net", "std::process", "std::thread"];

/// The package's runtime dependencies, itself included, each with the package through which it was first reached. Build scripts and tests do not run
/// in production and are left out.
fn reached<'a>(graph: &'a Metadata, from: &'a PackageId) -> BTreeMap<&'a PackageId, &'a PackageId> {
    let nodes = &graph.resolve.as_ref().expect("the graph was asked for").nodes;
    let nodes: BTreeMap<_, _> = nodes.iter().map(|node| (&node.id, node)).collect();
    let mut reached = BTreeMap::from([(from, from)]);
    let mut open = vec![from];
    while let Some(id) = open.pop() {
        for dependency in &nodes[id].deps {
            let runs = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if runs && !reached.contains_key(&dependency.pkg) {
                reached.insert(&dependency.pkg, id);
                open.push(&dependency.pkg);
            }
        }
    }
    reached
}

/// How the package is reached: `belay-plan → … → tokio`.
fn trail(graph: &Metadata, reached: &BTreeMap<&PackageId, &PackageId>, to: &PackageId) -> String {
    let mut names = vec![graph[to].name.as_str()];
    let mut at = to;
    while reached[at] != at {
        at = reached[at];
        names.push(graph[at].name.as_str());
    }
    names.reverse();
    names.join(" → ")
}

/// Returns a trail for each impure crate that the named crate reaches.
fn impurities(graph: &Metadata, name: &str) -> Vec<String> {
    let package = graph.workspace_packages().into_iter().find(|package| package.name == name);
    let package = package.unwrap_or_else(|| panic!("{name} is not a member"));
    let reached = reached(graph, &package.id);
    let impure = reached.keys().filter(|id| IMPURE_CRATES.contains(&graph[**id].name.as_str()));
    impure.map(|id| trail(graph, &reached, id)).collect()
}

/// The impure paths that the source names, with their lines.
fn impure_paths(text: &str) -> BTreeSet<String> {
    let named = source::paths(&source::code(text));
    let impure = |path: &str| IMPURE_PATHS.iter().any(|impure| format!("::{path}").contains(&format!("::{impure}")));
    let found = named.into_iter().filter(|named| impure(&named.path));
    found.map(|named| format!("{}: {}", named.line, named.path)).collect()
}

#[test]
fn pure_crates_reach_no_runtime_no_store_and_no_wire() {
    let graph = house::resolved();
    let crates = house::crates();
    let pure = crates.iter().filter(|member| layers::is_pure(&member.name));
    let found: Vec<String> = pure.flat_map(|member| impurities(&graph, &member.name)).collect();
    assert!(found.is_empty(), "a pure crate reaches what is not:\n{}\n", found.join("\n"));
}

#[test]
fn pure_sources_name_no_clock_no_chance_and_no_io() {
    let crates = house::crates();
    let pure: Vec<_> = crates.iter().filter(|member| layers::is_pure(&member.name)).collect();
    assert!(!pure.is_empty(), "the pure crates are known by their layer");
    let mut found = Vec::new();
    for file in pure.iter().flat_map(|member| source::rust_files(&format!("{}/src", member.folder))) {
        found.extend(impure_paths(&file.text).iter().map(|impure| format!("{}:{impure}", file.path)));
    }
    assert!(found.is_empty(), "take it as an argument instead:\n{}\n", found.join("\n"));
}

#[test]
fn an_impure_crate_is_found_however_far_away() {
    let found = impurities(&house::resolved(), "belay-cli");
    for (crate_, why) in [("tokio", "directly"), ("libsqlite3-sys", "through the bundle")] {
        let trail = found.iter().find(|trail| trail.ends_with(&format!(" → {crate_}")));
        let trail = trail.unwrap_or_else(|| panic!("the command line reaches {crate_} {why}: {found:?}"));
        assert!(trail.starts_with("belay-cli → "), "{trail}");
    }
}

#[test]
fn an_impure_path_is_found_however_it_is_written() {
    let text = "use std::{collections::BTreeMap, fs};\n// std::net\nlet t = std::time::SystemTime::now();\nlet x = rand::random();\nbrand::x(rand);\n";
    let found: Vec<String> = impure_paths(text).into_iter().collect();
    assert_eq!(found, ["1: std::fs", "3: std::time::SystemTime::now", "4: rand::random"]);
}
