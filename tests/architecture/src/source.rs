//! Reading Rust just closely enough to judge it: what is code and what is not, and which paths the code names.

use std::fs;
use std::path::Path;

use crate::house;

/// A source file of the repository.
pub(crate) struct File {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every `.rs` file below the folder (a path from the root, "" for all), in order. What cargo made is not ours.
pub(crate) fn rust_files(folder: &str) -> Vec<File> {
    let mut files = Vec::new();
    collect(&house::root(), &house::root().join(folder), &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                collect(root, &path, files);
            }
        } else if name.ends_with(".rs") {
            let below = path.strip_prefix(root).expect("the folder stands below the root");
            files.push(File {
                path: below.to_str().expect("our files have plain names").to_owned(),
                text: fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            });
        }
    }
}

/// The code alone: comments and the insides of literals are gone, line breaks stay.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = not_code(rest, code.chars().next_back());
        if length == 0 {
            code.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            code.push(' ');
            code.extend(rest[..length].chars().filter(|c| *c == '\n'));
            rest = &rest[length..];
        }
    }
    code
}

/// How many bytes at the beginning of `rest` are one comment or one literal; 0 if it begins with code.
fn not_code(rest: &str, before: Option<char>) -> usize {
    let to_end = |found: Option<usize>| found.unwrap_or(rest.len());
    if rest.starts_with("//") {
        return to_end(rest.find('\n'));
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    // A lifetime has no second quote.
    if rest.starts_with("'\\") || (rest.starts_with('\'') && rest.chars().nth(2) == Some('\'')) {
        return quoted(rest, '\'');
    }
    let raw = rest.strip_prefix('r').filter(|_| !before.is_some_and(is_word_character));
    let raw = raw.or_else(|| rest.strip_prefix("br")).or_else(|| rest.strip_prefix("cr"));
    let Some(raw) = raw else { return 0 };
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    match raw[hashes..].starts_with('"') {
        true => {
            let end = format!("\"{}", "#".repeat(hashes));
            let begin = rest.len() - raw.len() + hashes + 1;
            to_end(rest[begin..].find(&end).map(|at| begin + at + end.len()))
        }
        // `r#name` is a name.
        false => 0,
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A path that code names, and the line (from 1) it stands on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathMention {
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// Every path that the code names, groups written out: `use std::{fs, io::Read}` names `std`, `std::fs` and `std::io::Read`.
/// `code` is what [`code`] made.
pub(crate) fn paths(code: &str) -> Vec<PathMention> {
    let mut found = Vec::new();
    // What stands before each open brace: "std::" for a group of imports, nothing for a block.
    let mut prefixes = vec![String::new()];
    let mut path = String::new();
    let mut line = 1;
    let mut rest = code;
    while let Some(next) = rest.chars().next() {
        let word = rest.find(|c| !is_word_character(c)).unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => next.len_utf8(),
            word => word,
        };
        let token = &rest[..length];
        rest = &rest[length..];
        // In a group, what follows `as` is a name of the code, and no path below the group's.
        if token == "as" && prefixes.last().is_some_and(|group| !group.is_empty() && *group == path) {
            rest = rest.trim_start_matches(' ').trim_start_matches(is_word_character);
            continue;
        }
        if word > 0 || token == "::" {
            path.push_str(token);
            continue;
        }
        if token == "\n" {
            line += 1;
        }
        // A path may go on in the next line, and nothing else ends with a double colon.
        if next.is_whitespace() && (path.is_empty() || path.ends_with("::")) {
            continue;
        }
        let group = if path.ends_with("::") { path.clone() } else { String::new() };
        let ended = path.trim_end_matches("::");
        if !ended.is_empty() {
            let line = if token == "\n" { line - 1 } else { line };
            found.push(PathMention { line, path: ended.to_owned() });
        }
        match token {
            "{" => prefixes.push(group),
            "}" if prefixes.len() > 1 => drop(prefixes.pop()),
            _ => {}
        }
        path.clone_from(prefixes.last().expect("the first is never taken"));
    }
    found
}

#[test]
fn comments_and_literals_are_not_code() {
    let text = r####"
a // unsafe
/* unsafe /* still */ unsafe */ b "unsafe \" unsafe" c
r#"unsafe " unsafe"# d br"unsafe" 'e' '"' f '\'' g<'h> r#i
"####;
    let code = code(text);
    let words: Vec<&str> = code.split_whitespace().collect();
    assert_eq!(words, ["a", "b", "c", "d", "f", "g<'h>", "r#i"]);
    assert_eq!(code.lines().count(), text.lines().count());
}

#[test]
fn grouped_imports_are_written_out() {
    let code = "use std::{\n    fs as files,\n    io::{self, Read},\n};\nfn f() { Instant::now(); brand::x }\n";
    let found: Vec<String> = paths(code).into_iter().map(|named| format!("{} {}", named.line, named.path)).collect();
    for wanted in ["2 std::fs", "3 std::io::self", "3 std::io::Read", "5 Instant::now", "5 brand::x"] {
        assert!(found.iter().any(|named| named == wanted), "{wanted} is not in {found:?}");
    }
    assert!(!found.iter().any(|named| named.ends_with("as") || named.ends_with("files")), "{found:?}");
}
