//! Every defect of `services/shared/defects` can be planted, and a test plants it; CONTRIBUTING.md lists those that attacks need.

use std::{collections::BTreeSet, fs};

use crate::{
    house::root,
    source::{File, code, rust_files},
};

/// Where the defects are.
const DEFECTS: &str = "services/shared/defects/src/lib.rs";

/// The function that runs an attack with a defect and without it.
const ATTACK: &str = "assert_attack_needs(";

/// The variants of the enum `Defect`.
fn defects(code: &str) -> BTreeSet<String> {
    let variants = code.split_once("enum Defect {").and_then(|(_, rest)| rest.split_once('}'));
    let (variants, _) = variants.expect("the file has the defects");
    let names = variants.split(',').map(|variant| variant.split('=').next().unwrap_or_default().trim());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The defects that the code names behind this word, and those that it names otherwise.
fn named(code: &str, word: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut behind, mut otherwise) = (BTreeSet::new(), BTreeSet::new());
    for (at, path) in code.match_indices("Defect::") {
        let rest = &code[at + path.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let set = if code[..at].trim_end().ends_with(word) { &mut behind } else { &mut otherwise };
        set.insert(rest[..end].to_owned());
    }
    (behind, otherwise)
}

/// A row of the table in CONTRIBUTING.md.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    defect: &'a str,
    test: &'a str,
    file: &'a str,
}

/// The rows of the table, each of which ends with three names: the defect first, then the test and its file.
fn rows(contributing: &str) -> Vec<Row<'_>> {
    let (_, section) = contributing.split_once("## Planted defects").expect("CONTRIBUTING.md has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter(|line| line.starts_with("| `")).filter_map(row).collect()
}

fn row(line: &str) -> Option<Row<'_>> {
    let names: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
    let (defect, [test, file]) = (names.first()?, names.last_chunk()?);
    Some(Row { defect, test, file })
}

/// The files, without comments, that name a defect.
fn naming() -> Vec<File> {
    let files = ["services", "clients", "tests"].into_iter().flat_map(rust_files);
    let naming = files.filter(|file| file.path != DEFECTS && file.text.contains("Defect::"));
    naming.map(|file| File { text: code(&file.text), ..file }).collect()
}

#[test]
fn every_defect_is_asked_for_and_planted() {
    let text = fs::read_to_string(root().join(DEFECTS)).expect("it can be read");
    let (mut asked, mut planted) = (BTreeSet::new(), BTreeSet::new());
    for file in naming() {
        let (behind, otherwise) = named(&file.text, "is_planted(");
        asked.extend(behind);
        planted.extend(otherwise);
    }
    let defects = defects(&code(&text));
    assert_eq!(defects.difference(&asked).collect::<Vec<_>>(), [""; 0], "no code asks whether they are planted");
    assert_eq!(defects.difference(&planted).collect::<Vec<_>>(), [""; 0], "no test plants them");
}

#[test]
fn the_table_lists_the_defects_that_attacks_need() {
    let contributing = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("it can be read");
    let rows = rows(&contributing);
    let files = naming();
    let attacked: BTreeSet<String> = files.iter().flat_map(|file| named(&file.text, ATTACK).0).collect();
    let listed: BTreeSet<String> = rows.iter().map(|row| row.defect.to_owned()).collect();
    assert_eq!(listed, attacked, "the table in CONTRIBUTING.md, and the attacks");
    for row in rows {
        let file = files.iter().find(|file| file.path == row.file).unwrap_or_else(|| panic!("{row:?}: no such file"));
        assert!(file.text.contains(&format!("fn {}(", row.test)), "{row:?}: no such test");
        assert!(named(&file.text, ATTACK).0.contains(row.defect), "{row:?}: it does not plant the defect");
    }
}

#[test]
fn what_is_named_behind_a_word_is_told_from_the_rest() {
    let code = "if is_planted(Defect::A) {}\nassert_attack_needs(\n    Defect::B, x);\nplant(Defect::C)";
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(named(code, "is_planted("), (set(&["A"]), set(&["B", "C"])));
    assert_eq!(named(code, ATTACK).0, set(&["B"]));
    assert_eq!(defects("pub enum Defect {\n A = 1,\n B,\n}"), set(&["A", "B"]));
    let table = "## Planted defects\n| a | b |\n|---|---|\n| `A` | says `x` | `t` in `f.rs` |\n\n## Next\n| `B` | | `t` in `g.rs` |\n";
    assert_eq!(rows(table), [Row { defect: "A", test: "t", file: "f.rs" }]);
}
