//! The paths that ARCHITECTURE.md and CONTRIBUTING.md name are there.

use std::{collections::BTreeSet, fs, path::Path};

use crate::house;

/// The files and folders below `folder`, from the root, with `/`; without what is built and what is hidden.
fn tree(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder can be listed").map(|entry| entry.expect("an entry can be read"))
    {
        let name = entry.file_name();
        if name == "target" || name == "node_modules" || name == ".git" {
            continue;
        }
        let path = entry.path();
        let below = path.strip_prefix(house::root()).expect("it is below the root");
        found.insert(below.to_string_lossy().into_owned());
        if entry.file_type().expect("its type is known").is_dir() {
            tree(&path, found);
        }
    }
}

/// The alternatives of a path with braces: `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn expanded(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((inside, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    inside.split(',').flat_map(|one| expanded(&format!("{before}{}{after}", one.trim()))).collect()
}

/// Lists the paths between backticks in a page, built ones apart: what ends like a file of the repository, or has a `/`, and only characters of its paths.
fn paths(page: &str) -> impl Iterator<Item = &str> {
    let quoted = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter(|text| {
        let ends = [".rs", ".proto", ".md", ".toml"].iter().any(|ending| text.ends_with(ending));
        let is_path = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./{}, ".contains(c));
        is_path
            && !text.starts_with(['/', '.'])
            && !text.starts_with("target/")
            && (ends || text.contains('/'))
            && (text.contains('{') || !text.contains(' '))
    })
}

/// The paths of a page that are not in the tree, whole or as the end of a path.
fn missing<'a>(page: &'a str, tree: &BTreeSet<String>) -> Vec<&'a str> {
    let is_there = |path: &str| {
        let path = path.trim_end_matches('/');
        let below = format!("/{path}");
        tree.contains(path) || tree.iter().any(|one| one.ends_with(&below))
    };
    paths(page).filter(|path| !expanded(path).iter().all(|one| is_there(one))).collect()
}

#[test]
fn every_path_of_the_pages_about_the_code_is_there() {
    let mut all = BTreeSet::new();
    tree(&house::root(), &mut all);
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(house::root().join(page)).expect("the page is there");
        assert!(paths(&text).count() > 20, "{page}: paths are found");
        assert_eq!(missing(&text, &all), [""; 0], "{page} names what is not there");
    }
}

#[test]
fn a_path_that_is_not_there_is_found() {
    let tree = ["a", "a/b.rs", "a/c"].map(str::to_owned).into();
    let page = "`a/b.rs`, `b.rs`, `c/`, `a/{b.rs,c}`, `a and b`: `a/d.rs`, `d.rs`, `a/{b,d}.rs`, `xb.rs`";
    assert_eq!(missing(page, &tree), ["a/d.rs", "d.rs", "a/{b,d}.rs", "xb.rs"]);
}
