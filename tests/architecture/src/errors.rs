//! Reasons stand in one table, `services/shared/reasons`: docs/errors.md is what it says, nothing else writes a reason as text, and each is given.

use std::{collections::BTreeSet, fs};

use crate::{house, source};

const PAGE: &str = "docs/errors.md";

/// Text that is a reason's name and means something else: the file, the text, what it is.
const HOMONYMS: &[(&str, &str, &str)] =
    &[("services/shared/telemetry/src/settings.rs", belay_reasons::TIMEOUT, "the end of a variable's name")];

/// The part of a source file that is not tests.
fn production(file: &source::File) -> &str {
    let is_test = file.path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches"));
    if is_test { "" } else { file.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default() }
}

fn sources() -> Vec<source::File> {
    let folders = ["services", "clients/cli/src", "proto/src"];
    let files = folders.into_iter().flat_map(source::rust_files);
    // The table and its pages name every reason; of that crate, only the faults of stores give some.
    let gives = |path: &str| !path.starts_with("services/shared/reasons/") || path.ends_with("/store_fault.rs");
    files.filter(|file| gives(&file.path)).collect()
}

/// The reasons that this source writes as text, with their lines.
fn written(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for word in line.split('"').skip(1).step_by(2) {
            let is_homonym = HOMONYMS.iter().any(|(file, known, _)| *file == path && *known == word);
            if belay_reasons::ALL.iter().any(|reason| reason.name == word) && !is_homonym {
                found.push(format!("{path}:{number}: write `reasons::{word}` instead of the text"));
            }
        }
    }
    found
}

#[test]
fn no_code_writes_a_reason_as_text() {
    let found: Vec<String> = sources().iter().flat_map(|file| written(&file.path, production(file))).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn a_reason_that_is_written_as_text_is_found() {
    let text = "// \"STORE_FULL\"\nlet a = f(\"no\", \"STORE_FULL\");\nlet b = \"STORE_FULLER\";\n";
    assert_eq!(written("a.rs", text), ["a.rs:2: write `reasons::STORE_FULL` instead of the text"]);
}

/// A reason that nothing gives any more leaves the table. gRPC's own codes come from elsewhere.
#[test]
fn every_reason_is_given_by_some_code() {
    let mut given = BTreeSet::new();
    for file in &sources() {
        let code = source::code(production(file));
        let words = code.split(|c: char| !(c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()));
        given.extend(words.filter_map(belay_reasons::find).map(|reason| reason.name));
    }
    let missing: Vec<_> = belay_reasons::ALL
        .iter()
        .filter(|reason| reason.topic != belay_reasons::Topic::Grpc && !given.contains(reason.name))
        .map(|reason| reason.name)
        .collect();
    assert!(missing.is_empty(), "nothing gives these: take them out of services/shared/reasons: {missing:?}");
}

/// S2-FR-063: whoever reads a code finds what it means.
#[test]
fn the_page_says_what_the_table_says() {
    let path = house::root().join(PAGE);
    let page = belay_reasons::page();
    if std::env::var_os("BELAY_UPDATE").is_some() {
        fs::write(&path, &page).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    assert!(text == page, "{PAGE} differs: BELAY_UPDATE=1 cargo test -p belay-architecture-tests errors");
}

/// The reasons that a page links to, as they stand behind `errors.md#`.
fn anchors(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("errors.md#").skip(1);
    links.map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default())
}

#[test]
fn every_link_to_the_page_leads_somewhere() {
    let mut pages: Vec<_> = ["README.md", "SECURITY.md", "ARCHITECTURE.md", "deploy/README.md", "docs/operations.md"]
        .map(|page| house::root().join(page))
        .into();
    let guide = fs::read_dir(house::root().join("docs/user-guide")).expect("the guide is there");
    pages.extend(guide.map(|entry| entry.expect("a folder can be listed").path()));
    let mut seen = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        for anchor in anchors(&text) {
            let known = belay_reasons::ALL.iter().any(|reason| reason.name.to_ascii_lowercase() == anchor);
            assert!(known, "{}: there is no errors.md#{anchor}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "links are found: {seen}");
}
