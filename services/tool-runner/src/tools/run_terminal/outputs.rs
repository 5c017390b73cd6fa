//! The outputs of a command: what it has appended to the file that `BELAY_OUTPUT` names.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use serde_json::{Map, Value};

/// The most bytes of the file.
const MAX_BYTES: usize = 1 << 20;

/// The deepest nesting of a JSON object of a line: the result is around it, and steps put what they read into their arguments.
const MAX_DEPTH: usize = 100;

/// The longest name of an output.
const MAX_NAME_BYTES: usize = 64;

/// The bytes of the file, and one more than [`MAX_BYTES`] of a longer one.
pub(super) fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes =
        vec![0; usize::try_from(file.metadata()?.len()).map_or(MAX_BYTES + 1, |size| size.min(MAX_BYTES + 1))];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The outputs: `name=value`, whose value is text, or a JSON object of one line, each of whose members is one.
///
/// # Errors
/// A clause that names the line and says what is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    if bytes.len() > MAX_BYTES {
        return Err(format!(
            "has more than {MAX_BYTES} bytes: write large results to a file of the workspace, and their path here"
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        format!("has bytes in line {line} that are not UTF-8")
    })?;
    let mut outputs = Map::new();
    for (index, line) in text.split('\n').enumerate() {
        let (number, line) = (index + 1, line.strip_suffix('\r').unwrap_or(line));
        if line.trim().is_empty() {
            continue;
        }
        let named = if line.trim_start().starts_with('{') {
            match belay_json::read(line) {
                Ok(value) if !belay_json::has_levels(&value, MAX_DEPTH) => {
                    return Err(format!(
                        "has JSON in line {number} that is nested deeper than {MAX_DEPTH} levels: flatten it"
                    ));
                }
                Ok(Value::Object(members)) => members.into_iter().collect(),
                Ok(_) => Vec::new(),
                Err(refused) => return Err(format!("has JSON in line {number} that cannot be taken: {refused}")),
            }
        } else {
            let (name, value) = line.split_once('=').ok_or_else(|| {
                format!("has the line {number}, which is neither `name=value` nor a JSON object; JSON has room for several lines (`\\n`)")
            })?;
            vec![(name.to_owned(), Value::from(value))]
        };
        for (name, value) in named {
            if !is_name(&name) {
                let name = belay_text::visible_bytes(name.as_bytes());
                return Err(format!(
                    "names an output `{name}` in line {number}: a name has 1 to {MAX_NAME_BYTES} letters, digits, `_` and `-`, and begins with \
                     a letter or `_`"
                ));
            }
            if outputs.contains_key(&name) {
                return Err(format!("names the output `{name}` again in line {number}: each has one value"));
            }
            outputs.insert(name, value);
        }
    }
    Ok(outputs)
}

fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let consists = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    begins && consists && name.len() <= MAX_NAME_BYTES
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(text: &str) -> Result<Value, String> {
        parse(text.as_bytes()).map(Value::Object)
    }

    #[test]
    fn lines_are_texts_or_json_objects() {
        assert_eq!(parsed(""), Ok(json!({})));
        assert_eq!(parsed("a=1\n\n_b-2= x=y \r\n"), Ok(json!({"a": "1", "_b-2": " x=y "})));
        assert_eq!(
            parsed("{\"n\": 3, \"list\": [\"a\\nb\"]}\nlast="),
            Ok(json!({"n": 3, "list": ["a\nb"], "last": ""}))
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, what) in [
            ("a=1\nno", "the line 2, which is neither"),
            ("=1", "an output `` in line 1"),
            ("a b=1", "an output `a b` in line 1"),
            ("1a=1", "an output `1a`"),
            ("a=1\nb=2\na=3", "`a` again in line 3"),
            ("a=1\n{\"a\": 2}", "`a` again in line 2"),
            ("{\"a\": 1, \"a\": 2}", "JSON in line 1"),
            ("{\"a\": 1", "JSON in line 1"),
            ("{\"a\": 123456789012345678901234567890}", "JSON in line 1"),
            (&format!("{}=1", "n".repeat(65)), "in line 1: a name has 1 to 64"),
        ] {
            let refused = parsed(text).expect_err(text);
            assert!(refused.contains(what), "{text}: {refused}");
        }
        let nested = |levels: usize| format!("{{\"a\": {}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(parsed(&nested(99)).is_ok());
        assert!(parsed(&nested(100)).unwrap_err().contains("line 1 that is nested deeper than 100 levels"));
        assert!(parsed(&nested(120)).unwrap_err().contains("nested deeper than 100 levels"));
        assert!(parse(b"a=1\nb=\xff").unwrap_err().contains("line 2"));
        assert!(parse(&vec![b'x'; MAX_BYTES + 1]).unwrap_err().contains("more than 1048576 bytes"));
    }
}
