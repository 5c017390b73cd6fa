//! Reads Git's configuration files. Pure.
//!
//! Git refuses a file with a mistake. This reader skips the line instead: what it returns may be more than what Git obeys, and never less.

/// A variable of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    /// The name of its section, in lower case.
    pub(super) section: String,
    /// The name of its subsection, if it is in one.
    pub(super) subsection: Option<Vec<u8>>,
    /// Its name, in lower case.
    pub(super) key: String,
    /// Its value, without quotes and escapes; empty if it has none.
    pub(super) value: Vec<u8>,
}

/// The variables of a file, in their order.
pub(super) fn variables(text: &[u8]) -> Vec<Variable> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = Reader { text, at: 0 };
    let (mut section, mut subsection) = (String::new(), None);
    let mut found = Vec::new();
    while let Some(byte) = reader.peek() {
        match byte {
            b'#' | b';' => reader.skip_line(),
            b'[' => {
                let start = reader.at;
                if let Some(header) = reader.header() {
                    (section, subsection) = header;
                } else {
                    reader.at = start;
                    reader.skip_line();
                }
            }
            byte if byte.is_ascii_alphabetic() => {
                let key = reader.word(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
                reader.skip_blanks();
                let value = match reader.peek() {
                    Some(b'=') => {
                        reader.at += 1;
                        reader.value()
                    }
                    Some(b'\n' | b'\r' | b'#' | b';') | None => Vec::new(),
                    Some(_) => {
                        reader.skip_line();
                        continue;
                    }
                };
                let (section, subsection) = (section.clone(), subsection.clone());
                found.push(Variable { section, subsection, key, value });
            }
            byte if byte.is_ascii_whitespace() => reader.at += 1,
            _ => reader.skip_line(),
        }
    }
    found
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next byte, which is consumed. The two bytes that end a line on Windows are one line feed.
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        if byte == b'\r' && self.peek() == Some(b'\n') {
            self.at += 1;
            return Some(b'\n');
        }
        Some(byte)
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|byte| byte != b'\n') {}
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    /// Consumes the bytes that belong to a word, and returns it in lower case.
    fn word(&mut self, belongs: impl Fn(u8) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&belongs) {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.text[start..self.at]).to_ascii_lowercase()
    }

    /// A section header: `[core]`, `[includeIf "gitdir:~/x/"]`, or the old `[section.subsection]`. `None` if it is not valid.
    fn header(&mut self) -> Option<(String, Option<Vec<u8>>)> {
        self.at += 1;
        let name = self.word(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
        let (section, old) = match name.split_once('.') {
            Some((section, rest)) => (section.to_owned(), Some(rest.as_bytes().to_vec())),
            None => (name, None),
        };
        self.skip_blanks();
        match self.next()? {
            b']' => Some((section, old)),
            b'"' => {
                let mut subsection = Vec::new();
                loop {
                    match self.next()? {
                        b'"' => break,
                        b'\n' => return None,
                        b'\\' => subsection.push(self.next().filter(|byte| *byte != b'\n')?),
                        byte => subsection.push(byte),
                    }
                }
                self.skip_blanks();
                (self.next()? == b']').then_some((section, Some(subsection)))
            }
            _ => None,
        }
    }

    /// The value after `=`, up to the end of its last line.
    fn value(&mut self) -> Vec<u8> {
        self.skip_blanks();
        let (mut value, mut quoted) = (Vec::new(), false);
        // The length up to the last byte that is not a blank outside of quotes.
        let mut kept = 0;
        while let Some(byte) = self.next() {
            match byte {
                b'\n' => break,
                b'#' | b';' if !quoted => {
                    self.skip_line();
                    break;
                }
                b'"' => quoted = !quoted,
                b'\\' => {
                    match self.next() {
                        // The line continues.
                        Some(b'\n') | None => continue,
                        Some(b't') => value.push(b'\t'),
                        Some(b'b') => value.push(b'\x08'),
                        Some(b'n') => value.push(b'\n'),
                        Some(other) => value.push(other),
                    }
                    kept = value.len();
                }
                byte => {
                    value.push(byte);
                    if quoted || !byte.is_ascii_whitespace() {
                        kept = value.len();
                    }
                }
            }
        }
        value.truncate(kept);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variables, as `git config --list` shows them.
    fn listed(text: &str) -> Vec<String> {
        let shown = |variable: Variable| {
            let subsection = variable.subsection.map(|name| format!(".{}", String::from_utf8(name).unwrap()));
            let value = String::from_utf8(variable.value).unwrap();
            format!("{}{}.{}={value}", variable.section, subsection.unwrap_or_default(), variable.key)
        };
        variables(text.as_bytes()).into_iter().map(shown).collect()
    }

    #[test]
    fn sections_keys_and_values() {
        for (text, expected) in [
            ("[core]\n\thooksPath = .hooks\n", &["core.hookspath=.hooks"][..]),
            ("[CORE]\nHOOKSPATH=a", &["core.hookspath=a"]),
            ("[core] hooksPath = a\nbare = false", &["core.hookspath=a", "core.bare=false"]),
            ("\u{feff}[core]\r\nhooksPath = a\r\n[x]\r\ny = b\r\n", &["core.hookspath=a", "x.y=b"]),
            ("[includeIf \"gitdir:~/Work/\"]\npath = ../b", &["includeif.gitdir:~/Work/.path=../b"]),
            ("[a \"x \\\"y\\\\ ]\" ]\nb=1", &["a.x \"y\\ ].b=1"]),
            ("[Branch.Main]\nremote = o", &["branch.main.remote=o"]),
            ("[core]\nbare\nx = \n", &["core.bare=", "core.x="]),
            ("[a-b]\nc-d2 = e", &["a-b.c-d2=e"]),
        ] {
            assert_eq!(listed(text), expected, "{text:?}");
        }
    }

    #[test]
    fn quotes_escapes_comments_and_continuations() {
        for (value, expected) in [
            ("a b  \t", "a b"),
            ("a # b", "a"),
            ("a;b", "a"),
            ("\"a # b; c\" ; d", "a # b; c"),
            ("\" a \"  ", " a "),
            ("a\" \"b", "a b"),
            ("a\\\n  b", "a  b"),
            ("a\\\r\nb", "ab"),
            ("\"a\\\nb\"", "ab"),
            ("a \\\n", "a"),
            (r"\\srv\\x", r"\srv\x"),
            (r#"\"a\t\n\b"#, "\"a\t\n\u{8}"),
            ("a = b", "a = b"),
            ("a\\", "a"),
        ] {
            assert_eq!(listed(&format!("[s]\nk = {value}")), [format!("s.k={expected}")], "{value:?}");
        }
    }

    #[test]
    fn lines_with_mistakes_are_skipped() {
        for text in [
            "[core\n[core]\nhooksPath = a",
            "[core \"x\n[core]\nhooksPath = a",
            "[core \"x\" y]\n[core]\nhooksPath = a",
            "[core]\n= b\n1x = c\nx y = d\nhooksPath = a",
            "; [x]\n# y = z\n[core]\n; hooksPath = b\nhooksPath = a # c",
            "[core]\nhooksPath = a\n[",
            "\0\n[core]\nhooksPath = a\n[x \"",
        ] {
            assert_eq!(listed(text), ["core.hookspath=a"], "{text:?}");
        }
        // Without an end.
        for text in ["", "[", "[a", "[a \"", "[a \"b\\", "[a]\nb", "[a]\nb =", "[a]\nb = \"", "[a]\nb = \\"] {
            assert!(listed(text).len() <= 1, "{text:?}");
        }
    }
}
