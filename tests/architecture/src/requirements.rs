//! Keeps docs/requirements.md, which lists the tests that show each requirement, up to date.
//!
//! A test names the ids it shows in a comment. The table's third column is exactly the set of test files that name the id, so that a test
//! that goes, or comes, is seen. `BELAY_UPDATE=1` writes that column; the fourth one is a person's word.

mod ids;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use self::table::{Row, Status};
use crate::{house, source};

const TABLE: &str = "docs/requirements.md";

/// For each id the test files that name it.
type Named = BTreeMap<String, BTreeSet<String>>;

/// The part of a source file that tests.
///
/// All of a file under `tests`, of a file of tests in a crate, and of a port's conformance suite; of any other file what follows
/// `#[cfg(test)]`. This crate judges tests and shows nothing itself.
fn tests_in(file: &source::File) -> &str {
    let mut parts = file.path.split('/');
    let name = file.path.rsplit('/').next().unwrap_or_default();
    if file.path.starts_with("tests/architecture/") {
        return "";
    }
    if parts.any(|part| part == "tests") || name == "tests.rs" || name == "conformance.rs" {
        return &file.text;
    }
    file.text.find("#[cfg(test)]").map_or("", |at| &file.text[at..])
}

fn named_by_tests(files: &[source::File]) -> Named {
    let mut named = Named::new();
    for file in files {
        for id in ids::named(tests_in(file)) {
            named.entry(id).or_default().insert(file.path.clone());
        }
    }
    named
}

/// One message for each row that differs from the tests.
fn disagreements(rows: &[Row], named: &Named) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for row in rows {
        let id = &row.id;
        if !seen.insert(id) {
            found.push(format!("{id} has two rows"));
        }
        let files = named.get(id).cloned().unwrap_or_default();
        if row.files != files {
            found.push(format!("{id}: the row has to be\n{}", row.with_files(&files)));
        }
        match (&row.status, files.is_empty()) {
            (Status::Shown | Status::Partly(_), true) => {
                found.push(format!("{id} is called shown, and no test names it"));
            }
            (Status::NotYet(_), false) => {
                found.push(format!(
                    "{id} is called \"not yet\", and tests name it: say `shown`, or `partly: ` and what is missing"
                ));
            }
            (Status::Unclear(word), _) => {
                found.push(format!("{id}: `{word}` is no status; use `shown`, `partly: …` or `not yet`"));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_table_says_what_the_tests_say() {
    let path = house::root().join(TABLE);
    let mut text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{TABLE}: {error}"));
    let named = named_by_tests(&source::rust_files(""));
    if std::env::var_os("BELAY_UPDATE").is_some() {
        text = table::with_files(&text, &named);
        fs::write(&path, &text).unwrap_or_else(|error| panic!("{TABLE}: {error}"));
    }
    let rows = table::rows(&text);
    assert!(!rows.is_empty(), "{TABLE} has no row");
    let found = disagreements(&rows, &named);
    assert!(
        found.is_empty(),
        "{TABLE} and the tests disagree (BELAY_UPDATE=1 writes the column \"shown by\"):\n{}\n",
        found.join("\n")
    );
}

#[test]
fn a_row_that_says_something_else_is_found() {
    let file = |path: &str, text: &str| source::File { path: path.to_owned(), text: text.to_owned() };
    let named = named_by_tests(&[
        file("a/src/x.rs", "// S9-01\n#[cfg(test)]\nmod tests {\n    // S9-02\n}\n"),
        file("a/tests/x/main.rs", "// S9-02, S9-03\n"),
    ]);
    assert_eq!(named.keys().collect::<Vec<_>>(), ["S9-02", "S9-03"], "what is not a test shows nothing");
    let text = "\
        | id | what | shown by | status |\n\
        |---|---|---|---|\n\
        | S9-01 | one |  | shown |\n\
        | S9-02 | two | [a/src/x.rs](../a/src/x.rs) | shown |\n\
        | S9-03 | three | [a/tests/x/main.rs](../a/tests/x/main.rs) | not yet |\n\
        | S9-04 | four |  | not yet |\n\
        | S9-04 | four again |  | maybe |\n";
    let found = disagreements(&table::rows(text), &named);
    let [gone, drifted, early, twice, unclear] = found.as_slice() else { panic!("{found:#?}") };
    assert!(gone.starts_with("S9-01 is called shown, and no test"), "{gone}");
    let corrected = "| S9-02 | two | [a/src/x.rs](../a/src/x.rs), [a/tests/x/main.rs](../a/tests/x/main.rs) | shown |";
    assert_eq!(*drifted, format!("S9-02: the row has to be\n{corrected}"));
    assert!(early.starts_with("S9-03 is called \"not yet\", and tests name it"), "{early}");
    assert_eq!(twice, "S9-04 has two rows");
    assert!(unclear.contains("`maybe` is no status"), "{unclear}");

    let updated = table::with_files(text, &named);
    assert!(updated.contains(corrected), "{updated}");
    assert_eq!(updated.lines().count(), text.lines().count());
}
