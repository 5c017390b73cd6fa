//! JUnit's XML, as pytest, `node --test`, ctest and JUnit write it.

use roxmltree::{Document, Node, ParsingOptions};

use super::outcome::TestOutcome;

/// Reads the test cases: their names are what stands around them, from the outside in.
pub(super) fn parse(text: &str) -> Result<Vec<(String, TestOutcome)>, String> {
    // What tests print may hold control characters, which XML cannot say and some runners write all the same.
    let clean: String =
        text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t' | '\r') { '?' } else { c }).collect();
    let options = ParsingOptions { allow_dtd: false, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&clean, options).map_err(|error| error.to_string())?;
    Ok(document
        .descendants()
        .filter(|node| node.has_tag_name("testcase"))
        .map(|case| (name(case), ended(case)))
        .collect())
}

fn name(case: Node<'_, '_>) -> String {
    let suites = case.ancestors().skip(1).filter(|node| node.has_tag_name("testsuite"));
    let mut parts: Vec<&str> = suites.filter_map(|suite| suite.attribute("name")).collect();
    parts.reverse();
    let class = case.attribute("classname").filter(|class| !parts.contains(class));
    let own = case.attribute("name").unwrap_or_default();
    parts.extend(class);
    parts.push(own);
    parts.join(" > ")
}

fn ended(case: Node<'_, '_>) -> TestOutcome {
    let has = |names: &[&str]| case.children().any(|child| names.contains(&child.tag_name().name()));
    // ctest says `notrun` and `disabled` in an attribute.
    let status = case.attribute("status").unwrap_or("run");
    if has(&["failure", "error"]) || status == "fail" {
        TestOutcome::Failed
    } else if has(&["skipped"]) || !matches!(status, "run" | "pass" | "passed") {
        TestOutcome::Skipped
    } else {
        TestOutcome::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_named_by_what_stands_around_them() {
        let text = r#"<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="0">
<testcase classname="tests.test_x" name="test_a[&lt;1&gt;]" time="0.1" />
<testcase classname="tests.test_x" name="test_b"><failure message="no">trace</failure></testcase>
<testcase classname="tests.test_x" name="test_c"><skipped type="pytest.skip"/></testcase>
<testcase classname="tests.test_x" name="test_d"><error/></testcase>
<testsuite name="inner"><testcase classname="inner" name="e"/></testsuite>
</testsuite></testsuites>"#;
        let named: Vec<_> = parse(text).unwrap();
        assert_eq!(named[0], ("pytest > tests.test_x > test_a[<1>]".to_owned(), TestOutcome::Passed));
        assert_eq!(
            named.iter().map(|(_, ended)| *ended).skip(1).collect::<Vec<_>>(),
            [TestOutcome::Failed, TestOutcome::Skipped, TestOutcome::Failed, TestOutcome::Passed]
        );
        assert_eq!(named[4].0, "pytest > inner > e");
    }

    #[test]
    fn ctest_says_what_did_not_run_in_an_attribute() {
        let text = r#"<testsuite name="ctest"><testcase name="a" classname="a" status="run"/>
<testcase name="b" classname="b" status="notrun"/><testcase name="c" classname="c" status="fail"/></testsuite>"#;
        let ended: Vec<_> = parse(text).unwrap().into_iter().map(|(_, ended)| ended).collect();
        assert_eq!(ended, [TestOutcome::Passed, TestOutcome::Skipped, TestOutcome::Failed]);
    }

    #[test]
    fn a_control_character_in_the_output_does_not_cost_the_whole_file() {
        let text = "<testsuite name=\"s\"><testcase name=\"a\"/><system-out>\u{1b}[1m</system-out></testsuite>";
        assert_eq!(parse(text).unwrap().len(), 1);
        assert!(parse("<testsuite><testcase name=").is_err());
    }
}
