//! Keeps docs/requirements.md complete and true: it has a row for every requirement, and lists the tests that show each.
//!
//! `ids.txt` has the id of every requirement. A test names the ids that it shows in a comment. A person writes what must hold, and the status,
//! in the first part of the page. `BELAY_UPDATE=1` writes the second part, which has for each id the test files that name it, and the line that counts the
//! statuses.

mod ids;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use self::table::{FilesByRequirement, Row, Status};
use crate::{house, source};

const PAGE: &str = "docs/requirements.md";
const IDS: &str = include_str!("requirements/ids.txt");

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
    if parts.any(|part| part == "tests" || part == "conformance") || name == "tests.rs" || name == "conformance.rs" {
        return &file.text;
    }
    file.text.find("#[cfg(test)]").map_or("", |at| &file.text[at..])
}

fn named_by_tests(files: &[source::File]) -> FilesByRequirement {
    let mut named = FilesByRequirement::new();
    for file in files {
        for id in ids::named(tests_in(file)) {
            named.entry(id).or_default().insert(file.path.clone());
        }
    }
    named
}

/// Returns the ids of a list, whose comments begin with `#`.
fn listed(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.starts_with('#')).flat_map(ids::named).collect()
}

/// Returns one message for each difference between the list of ids, the rows and the tests.
fn disagreements(all: &[String], rows: &[Row], named: &FilesByRequirement) -> Vec<String> {
    let mut found = Vec::new();
    let mut of_id: BTreeMap<&str, Vec<&Status>> = BTreeMap::new();
    for row in rows {
        of_id.entry(&row.id).or_default().push(&row.status);
    }
    for (n, id) in all.iter().enumerate() {
        if all[..n].contains(id) {
            found.push(format!("{id} is listed twice"));
        }
        let statuses = of_id.remove(id.as_str()).unwrap_or_default();
        let [status] = statuses.as_slice() else {
            found.push(format!("{id} has {} rows, and must have one", statuses.len()));
            continue;
        };
        match (status, named.contains_key(id)) {
            (Status::Shown | Status::Partly(_), false) => {
                found.push(format!("{id} is called `{status}`, and no test names it"));
            }
            (Status::NotYet(_), true) => {
                found.push(format!(
                    "{id} is called `{status}`, and tests name it: write `shown`, or `partly: ` and what is missing"
                ));
            }
            (Status::Invalid(cell), _) => {
                found.push(format!("{id}: `{cell}` is not a status: write `shown`, `partly: …` or `not yet: …`"));
            }
            _ => {}
        }
    }
    found.extend(of_id.keys().map(|id| format!("{id} has a row, and is not in the list of ids")));
    for (id, files) in named.iter().filter(|(id, _)| !all.contains(id)) {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        found.push(format!("{id} is not in the list of ids, and tests name it: {}", files.join(", ")));
    }
    found
}

/// Returns the first line that differs, as a message.
fn stale(text: &str, generated: &str) -> Option<String> {
    let mut lines = generated.lines();
    let mut old = text.lines();
    loop {
        match (old.next(), lines.next()) {
            (None, None) => return None,
            (old, new) if old == new => {}
            (old, new) => {
                return Some(format!(
                    "what is generated is stale; it has\n{}\nand has to have\n{}",
                    old.unwrap_or("nothing"),
                    new.unwrap_or("nothing")
                ));
            }
        }
    }
}

#[test]
fn the_page_says_what_the_tests_say() {
    let path = house::root().join(PAGE);
    let mut text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    let all = listed(IDS);
    let named = named_by_tests(&source::rust_files(""));
    let generated = table::generate(&text, &all, &named);
    if std::env::var_os("BELAY_UPDATE").is_some() && generated != text {
        fs::write(&path, &generated).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
        text.clone_from(&generated);
    }
    let rows = table::rows(&text);
    let mut found = disagreements(&all, &rows, &named);
    found.extend(stale(&text, &generated));
    if !text.lines().any(|line| line == table::counts(&rows)) {
        found.push(format!("no line says `{}`", table::counts(&rows)));
    }
    assert!(
        found.is_empty(),
        "{PAGE}, the list of ids and the tests disagree (BELAY_UPDATE=1 writes the part \"shown by\" and the counts):\n{}\n",
        found.join("\n")
    );
}

/// Tests that name S9-02 twice, S9-03, S9-05 and S9-07.
#[cfg(test)]
fn example() -> FilesByRequirement {
    let file = |path: &str, text: &str| source::File { path: path.to_owned(), text: text.to_owned() };
    named_by_tests(&[
        file("a/src/x.rs", "// S9-01\n#[cfg(test)]\nmod tests {\n    // S9-02\n}\n"),
        file("a/tests/x/main.rs", "// S9-02, S9-03, S9-05, S9-07\n"),
    ])
}

#[test]
fn what_is_not_a_test_shows_nothing() {
    assert_eq!(example().keys().collect::<Vec<_>>(), ["S9-02", "S9-03", "S9-05", "S9-07"]);
}

#[test]
fn the_list_has_every_requirement_once() {
    let all = listed(IDS);
    let of = |family: &str| all.iter().filter(|id| id.rsplit_once('-').is_some_and(|(of, _)| of == family)).count();
    let families = ["S0", "S1", "S2-FR", "S2-NFR", "S2-X", "S3", "S4", "B"];
    assert_eq!(families.map(of), [15, 41, 86, 16, 33, 17, 35, 38]);
    assert_eq!(all.len(), all.iter().collect::<BTreeSet<_>>().len());
    assert_eq!(listed("# S9-01, S9-02\nS9-03..05\n"), ["S9-03", "S9-04", "S9-05"]);
}

#[test]
fn a_row_that_says_something_else_is_found() {
    let text = "\
        | id | what must hold | status |\n\
        |---|---|---|\n\
        | S9-01 | one | shown |\n\
        | S9-02 | two, as in `a \\| b` | shown |\n\
        | S9-03 | three | not yet: there is no tool |\n\
        | S9-04 | four | not yet: there is no tool |\n\
        | S9-04 | four again | not yet: there is no tool |\n\
        | S9-05 | five | not yet |\n\
        | S9-08 | eight | not yet: there is no tool |\n";
    let found = disagreements(&listed("S9-01..06, S9-06"), &table::rows(text), &example());
    assert_eq!(
        found,
        [
            "S9-01 is called `shown`, and no test names it",
            "S9-03 is called `not yet: there is no tool`, and tests name it: write `shown`, or `partly: ` and what is missing",
            "S9-04 has 2 rows, and must have one",
            "S9-05: `not yet` is not a status: write `shown`, `partly: …` or `not yet: …`",
            "S9-06 has 0 rows, and must have one",
            "S9-06 is listed twice",
            "S9-06 has 0 rows, and must have one",
            "S9-08 has a row, and is not in the list of ids",
            "S9-07 is not in the list of ids, and tests name it: a/tests/x/main.rs",
        ]
    );
    let partly = table::rows("| S9-01 | one | partly: half of it |\n");
    assert_eq!(
        disagreements(&listed("S9-01"), &partly, &FilesByRequirement::new()),
        ["S9-01 is called `partly: half of it`, and no test names it"]
    );
}

#[test]
fn counts_and_files_are_generated() {
    let rows =
        "| S9-03 | three | partly: half |\n| S9-02 | two | shown |\n| S9-04 | four | not yet: no |\n\n## Shown by\n";
    let table = "\n| id | shown by |\n|---|---|\n\
        | S9-02 | [a/src/x.rs](../a/src/x.rs), [a/tests/x/main.rs](../a/tests/x/main.rs) |\n\
        | S9-03 | [a/tests/x/main.rs](../a/tests/x/main.rs) |\n";
    let all = listed("S9-02..04");
    let expected = format!("1 shown, 1 partly, 1 not yet\n\n{rows}{table}");
    for old in [format!("0 shown, 9 partly, 9 not yet\n\n{rows}| S9-02 | none |\n"), expected.clone()] {
        assert_eq!(table::generate(&old, &all, &example()), expected);
    }
    assert_eq!(stale(&expected, &expected), None);
    let message = stale("a\nb\n", "a\nc\n").unwrap_or_default();
    assert!(message.ends_with("it has\nb\nand has to have\nc"), "{message}");
    assert!(stale("a\n", "a\nb\n").is_some() && stale("a\nb\n", "a\n").is_some());
}
