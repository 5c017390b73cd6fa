//! docs/user-guide/secrets.md lists the formats of tokens that are recognized, as the table in the code has them.

use std::fs;

use crate::house;

const PAGE: &str = "docs/user-guide/secrets.md";
const BEGIN: &str = "<!-- formats: written by BELAY_UPDATE=1 cargo test -p belay-architecture-tests formats -->\n";
const END: &str = "<!-- end of formats -->\n";

fn list() -> String {
    let formats = belay_redaction::formats();
    let mut list = format!(
        "{} formats, as of {}:\n\n| name | pattern |\n|---|---|\n",
        formats.len(),
        belay_redaction::FORMATS_CHANGED
    );
    for format in formats {
        // In a table `|` would end the cell, in code too.
        list.push_str(&format!(
            "| {} | `{}` |\n",
            format.name,
            format.pattern.replace('|', "\\|").replace('`', "\\x60")
        ));
    }
    list
}

#[test]
fn the_page_lists_the_formats_of_the_table() {
    let path = house::root().join(PAGE);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    let (before, rest) = text.split_once(BEGIN).unwrap_or_else(|| panic!("{PAGE}: {BEGIN} is missing"));
    let (_, after) = rest.split_once(END).unwrap_or_else(|| panic!("{PAGE}: {END} is missing"));
    let wanted = format!("{before}{BEGIN}\n{}\n{END}{after}", list());
    if std::env::var_os("BELAY_UPDATE").is_some() {
        fs::write(&path, &wanted).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
        return;
    }
    assert!(text == wanted, "{PAGE} differs: BELAY_UPDATE=1 cargo test -p belay-architecture-tests formats");
}
