//! Converts the tree to values, and collects all violations.

use std::collections::HashMap;

use crate::{Entry, Node, Value, Violation, nearest, seconds, shown};

/// Reads values out of a tree; it records violations and continues.
#[derive(Debug, Default)]
pub struct Reader {
    violations: Vec<Violation>,
    lines: HashMap<String, u32>,
}

impl Reader {
    /// The violations so far, in the order of reading.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The violations, by value.
    pub fn into_violations(self) -> Vec<Violation> {
        self.violations
    }

    /// Whether the file has this field.
    pub fn has_read(&self, field: &str) -> bool {
        self.lines.contains_key(field)
    }

    /// Remembers the line of a field.
    pub fn note_line(&mut self, field: &str, line: u32) {
        self.lines.insert(field.to_owned(), line);
    }

    /// The line of a field, or of the nearest one around it that was written; 0 for the file as a whole.
    pub fn line_of(&self, field: &str) -> u32 {
        let mut field = field;
        loop {
            if let Some(line) = self.lines.get(field) {
                return *line;
            }
            match field.rfind(['.', '[']) {
                Some(end) => field = &field[..end],
                None => return 0,
            }
        }
    }

    /// Records a violation.
    pub fn refuse(&mut self, field: &str, line: u32, message: impl Into<String>) {
        self.violations.push(Violation { field: field.to_owned(), line, message: message.into() });
    }

    /// Passes each entry of a mapping to `take`, which returns the known keys as an error when it does not know one.
    pub fn map<'n>(
        &mut self,
        node: &'n Node,
        field: &str,
        mut take: impl FnMut(&mut Self, &str, &str, &'n Node) -> Result<(), &'static str>,
    ) {
        let Value::Map(entries) = &node.value else {
            let found = node.value.kind();
            return self.refuse(field, node.line, format!("is {found}, and must be a mapping: `key: value`"));
        };
        for Entry { line, key, value } in entries {
            let inner = if field.is_empty() { shown(key) } else { format!("{field}.{}", shown(key)) };
            self.note_line(&inner, *line);
            if let Err(known) = take(self, key, &inner, value) {
                let hint = match nearest(key, known.split(' ')) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("use one of {}", known.replace(' ', ", ")),
                };
                self.refuse(&inner, *line, format!("there is no key `{}` here; {hint}", shown(key)));
            }
        }
    }

    /// The entries of a list, each read by `take`.
    pub fn list<'n, T>(
        &mut self,
        node: &'n Node,
        field: &str,
        mut take: impl FnMut(&mut Self, &'n Node, &str) -> Option<T>,
    ) -> Vec<T> {
        let Value::List(entries) = &node.value else {
            let found = node.value.kind();
            self.refuse(field, node.line, format!("is {found}, and must be a list: write `[…]`"));
            return Vec::new();
        };
        let mut taken = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let field = format!("{field}[{index}]");
            self.note_line(&field, entry.line);
            taken.extend(take(self, entry, &field));
        }
        taken
    }

    /// A list that must not be empty, because an author might expect an empty one to match everything.
    pub fn non_empty_list<'n, T>(
        &mut self,
        node: &'n Node,
        field: &str,
        take: impl FnMut(&mut Self, &'n Node, &str) -> Option<T>,
    ) -> Vec<T> {
        if matches!(&node.value, Value::List(entries) if entries.is_empty()) {
            self.refuse(field, node.line, "is empty: leave it out where there is no condition");
        }
        self.list(node, field, take)
    }

    /// A text.
    pub fn text(&mut self, node: &Node, field: &str) -> Option<String> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            other => {
                self.refuse(field, node.line, format!("is {}, and must be text: put it in quotes", other.kind()));
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn switch(&mut self, node: &Node, field: &str, to: &mut bool) {
        match &node.value {
            Value::Bool(value) => *to = *value,
            other => self.refuse(field, node.line, format!("is {}, and must be true or false", other.kind())),
        }
    }

    /// A duration with its unit, in seconds.
    pub fn duration(&mut self, node: &Node, field: &str) -> Option<u64> {
        let seconds = match &node.value {
            Value::Text(text) => seconds(text),
            _ => None,
        };
        if seconds.is_none() {
            self.refuse(field, node.line, "must be a whole number with a unit: 90s, 15m, 24h or 7d");
        }
        seconds
    }

    /// Reads one of a few words.
    pub fn one_of<T: Copy>(&mut self, node: &Node, field: &str, words: &[(&str, T)]) -> Option<T> {
        let text = match &node.value {
            Value::Text(text) => text.as_str(),
            _ => "",
        };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known = words.iter().map(|(word, _)| *word);
            let hint = nearest(text, known.clone()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let known = known.collect::<Vec<_>>().join(", ");
            self.refuse(field, node.line, format!("must be one of {known}{hint}"));
        }
        found
    }

    /// Reads one of a few words; for any other, `to` keeps its value.
    pub fn word<T: Copy>(&mut self, node: &Node, field: &str, words: &[(&str, T)], to: &mut T) {
        if let Some(value) = self.one_of(node, field, words) {
            *to = value;
        }
    }
}
