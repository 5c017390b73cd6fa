//! Reads a file of rules for what is hidden as a secret.

use std::{fs, io, os::unix::fs::MetadataExt as _};

use belay_redaction::{MAX_RULES, OwnRule, Redactor, RuleRefusal};
use belay_yaml::{Bounds, Node, Reader, Value, Violation};

use crate::exposure::exposed;

const BOUNDS: Bounds = Bounds { what: "file of rules", max_depth: 4, max_nodes: 2000, max_text: 256 * 1024 };
const RULE: &str = "name pattern";

/// Why a file of rules cannot be used.
#[derive(Debug)]
pub(crate) enum RulesError {
    /// It cannot be read, or others can write it.
    File(String),
    /// Its content is invalid.
    Content(String, Vec<Violation>),
}

/// Reads the file of rules.
pub(crate) fn read(path: &std::path::Path) -> Result<Rules, RulesError> {
    let file = |why: String| RulesError::File(format!("`{}` {why}", path.display()));
    let unreadable = |error: io::Error| file(format!("cannot be read: {error}"));
    let opened = fs::File::open(path).map_err(unreadable)?;
    let metadata = opened.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(file("is not a regular file".to_owned()));
    }
    if metadata.len() > BOUNDS.max_text as u64 {
        return Err(file(format!("has {} bytes, but the limit is {}", metadata.len(), BOUNDS.max_text)));
    }
    if let Some(problem) = exposed(metadata.uid(), metadata.mode(), rustix::process::geteuid().as_raw()) {
        return Err(file(problem));
    }
    let text = io::read_to_string(opened).map_err(unreadable)?;
    parse(&text).map_err(|violations| RulesError::Content(text, violations))
}

/// The rules of a file.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Their names, in the order of the file.
    pub(crate) names: Vec<String>,
    /// The redactor with these and the built-in rules.
    pub(crate) redactor: Redactor,
}

/// Parses a file of rules.
fn parse(text: &str) -> Result<Rules, Vec<Violation>> {
    let root = belay_yaml::parse(text, &BOUNDS).map_err(|violation| vec![violation])?;
    let mut reader = Reader::default();
    let mut rules = Vec::<OwnRule>::new();
    reader.map(&root, "", |reader, key, field, node| match key {
        "rules" => {
            for rule in reader.list(node, field, rule) {
                rules.push(rule);
            }
            Ok(())
        }
        _ => Err("rules"),
    });
    if !reader.has_read("rules") && reader.violations().is_empty() {
        reader.refuse("rules", 0, "is missing: add a list of rules, each with a `name` and a `pattern`");
    }
    if rules.len() > MAX_RULES {
        let line = reader.line_of("rules");
        reader.refuse("rules", line, format!("has {} rules, but the limit is {MAX_RULES}", rules.len()));
    }
    for (index, rule) in rules.iter().enumerate() {
        if rules[..index].iter().any(|earlier| earlier.name() == rule.name()) {
            let field = format!("rules[{index}].name");
            let line = reader.line_of(&field);
            reader.refuse(
                &field,
                line,
                format!("`{}` is the name of an earlier rule: choose another one", rule.name()),
            );
        }
    }
    if reader.violations().is_empty() {
        let names = rules.iter().map(|rule| rule.name().to_owned()).collect();
        match Redactor::new().with_rules(rules) {
            Ok(redactor) => return Ok(Rules { names, redactor }),
            Err(why) => reader.refuse("rules", reader.line_of("rules"), why.to_string()),
        }
    }
    Err(reader.into_violations())
}

fn rule(reader: &mut Reader, node: &Node, field: &str) -> Option<OwnRule> {
    let (mut name, mut pattern) = (None, None);
    if !matches!(node.value, Value::Map(_)) {
        reader.refuse(field, node.line, "must be a rule, such as {name: acme-token, pattern: 'acme_[a-z0-9]{32}'}");
        return None;
    }
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "name" => name = reader.text(node, field),
            "pattern" => pattern = reader.text(node, field),
            _ => return Err(RULE),
        }
        Ok(())
    });
    for (key, what) in [("name", "which approvals count by"), ("pattern", "a regular expression of what to hide")] {
        if !reader.has_read(&format!("{field}.{key}")) {
            reader.refuse(field, node.line, format!("has no `{key}`: add it, {what}"));
        }
    }
    let (name, pattern) = (name?, pattern?);
    match OwnRule::new(&name, &pattern) {
        Ok(rule) => Some(rule),
        Err(refused) => {
            let (key, why) = match refused {
                RuleRefusal::Name(why) => ("name", why),
                RuleRefusal::Pattern(why) => ("pattern", format!("{why} (rule `{}`)", belay_yaml::shown(&name))),
            };
            let field = format!("{field}.{key}");
            let line = reader.line_of(&field);
            reader.refuse(&field, line, why);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn rules_are_read_in_their_order() {
        let rules = parse("rules:\n- {name: a, pattern: 'x_\\d+'}\n- name: b\n  pattern: y (z+)\n").unwrap();
        assert_eq!(rules.names, ["a", "b"]);
        assert_eq!(rules.redactor.redact_text("x_12 y zz").text, "[REDACTED] y [REDACTED]");
    }

    #[test]
    fn what_is_wrong_is_refused_with_line_field_rule_and_reason() {
        let text = "rules:\n- {name: a, pattern: 'x'}\n- name: bad\n  pattern: '(x'\n";
        assert_eq!(refused(text), "line 4: rules[1].pattern: is not a regular expression: unclosed group (rule `bad`)");
        for (text, says) in [
            ("", "must be a mapping"),
            ("rule: []", "did you mean `rules`?"),
            ("{}", "rules: is missing"),
            ("rules: [x]", "rules[0]: must be a rule"),
            ("rules: [{name: a}]", "has no `pattern`"),
            ("rules: [{pattern: a}]", "has no `name`"),
            ("rules: [{name: a, pattern: a, group: 1}]", "use one of name, pattern"),
            ("rules: [{name: a, pattern: 'a*'}]", "empty text"),
            ("rules: [{name: A, pattern: a}]", "rules[0].name: must have"),
            ("rules: [{name: github-token, pattern: a}]", "built-in rule"),
            ("rules: [{name: a, pattern: a}, {name: a, pattern: b}]", "rules[1].name: `a` is the name of an earlier"),
        ] {
            assert!(refused(text).contains(says), "{text}: {}", refused(text));
        }
        let many: String = (0..101).map(|n| format!("- {{name: r{n}, pattern: x}}\n")).collect();
        assert!(refused(&format!("rules:\n{many}")).contains("has 101 rules, but the limit is 100"));
    }
}
