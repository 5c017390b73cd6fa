//! S2-FR-002, S4-05, S4-07, S4-08: every bad plan is refused in the words that its author needs.

use std::collections::HashSet;

use belay_plan::{Format, Violation};
use belay_plan_tests::{bad, good, parse};

/// A violation as fixtures have it: the line, the field and the message.
fn line(violation: &Violation) -> String {
    let field = if violation.field.is_empty() { String::new() } else { format!("{}: ", violation.field) };
    format!("{} {field}{}", violation.line, violation.message)
}

/// Checks that a message repeats little of a plan, and cannot move or hide the text around it.
#[track_caller]
pub(crate) fn assert_readable(violation: &Violation) {
    let shown = violation.to_string();
    assert!(shown.chars().count() < 1_500, "{shown}");
    let hidden = |c: char| c.is_control() || "\u{200b}\u{200f}\u{202e}\u{feff}".contains(c);
    assert!(!shown.contains(hidden), "{shown:?}");
}

#[test]
fn every_bad_plan_is_refused_in_the_words_that_are_expected() {
    let mut failures = Vec::new();
    let mut names = HashSet::new();
    let plans = bad::plans();
    assert!(plans.len() >= 500, "there are {} bad plans", plans.len());
    for (group, plan) in &plans {
        assert!(names.insert((group, &plan.name)), "{group}: two plans are called {}", plan.name);
        for &format in plan.formats() {
            let found: Vec<String> = match parse(format, &plan.text()) {
                Ok(_) => vec!["it is accepted".to_owned()],
                Err(refused) => {
                    refused.violations.iter().for_each(assert_readable);
                    refused.violations.iter().map(line).collect()
                }
            };
            let is_expected = found.len() == plan.expect.len()
                && found.iter().zip(&plan.expect).all(|(found, expected)| found.starts_with(expected.as_str()));
            if !is_expected {
                failures.push(format!("{group}: {} ({format:?}): {found:#?}", plan.name));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} are refused otherwise:\n{}",
        failures.len(),
        plans.len(),
        failures.join("\n")
    );
}

#[test]
fn the_examples_are_accepted() {
    let examples = good::examples();
    assert!(examples.len() > 20, "there are {} examples", examples.len());
    for example in examples {
        parse(example.format, &example.text).unwrap_or_else(|error| panic!("{}: {error}", example.name));
        parse(Format::Auto, &example.text).unwrap_or_else(|error| panic!("{}: {error}", example.name));
    }
}
