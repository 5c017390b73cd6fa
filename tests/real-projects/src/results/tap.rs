//! The Test Anything Protocol, as tape and libuv write it.

use super::outcome::TestOutcome;

/// Reads the outermost lines. The running number is left out, because it depends on what ran before. tape puts the name of a test into a
/// comment before its assertions; libuv puts ` - ` before the name of each test, and what the test printed into comments after it.
pub(super) fn parse(text: &str) -> Vec<(String, TestOutcome)> {
    let mut around = "";
    let mut tests = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            around = name.trim();
        } else if let Some(rest) = line.strip_prefix("not ok ") {
            tests.push(assertion(around, rest, TestOutcome::Failed));
        } else if let Some(rest) = line.strip_prefix("ok ") {
            tests.push(assertion(around, rest, TestOutcome::Passed));
        }
    }
    tests
}

fn assertion(around: &str, rest: &str, ended: TestOutcome) -> (String, TestOutcome) {
    let named = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let (named, around) = named.strip_prefix("- ").map_or((named, around), |own| (own, ""));
    let (name, directive) = named.split_once(" # ").unwrap_or((named, ""));
    let directive = directive.trim_start().to_ascii_uppercase();
    let ended = match (directive.starts_with("SKIP"), directive.starts_with("TODO")) {
        (true, _) => TestOutcome::Skipped,
        // An expected failure.
        (_, true) if ended == TestOutcome::Failed => TestOutcome::Skipped,
        _ => ended,
    };
    let name = name.trim();
    (if around.is_empty() { name.to_owned() } else { format!("{around} > {name}") }, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_are_named_by_their_test_and_not_by_their_number() {
        let text = "TAP version 13
# parse()
ok 1 parses a string
not ok 2 parses 2 > 1
  ---
    at: x
  ...
# stringify()
ok 3 should be equal # SKIP no Symbol
not ok 4 later # TODO
ok 5 - tcp_ping_pong

1..5
# tests 5
# pass  4
";
        let named = |name: &str, ended| (name.to_owned(), ended);
        assert_eq!(
            parse(text),
            [
                named("parse() > parses a string", TestOutcome::Passed),
                named("parse() > parses 2 > 1", TestOutcome::Failed),
                named("stringify() > should be equal", TestOutcome::Skipped),
                named("stringify() > later", TestOutcome::Skipped),
                named("tcp_ping_pong", TestOutcome::Passed),
            ]
        );
    }
}
