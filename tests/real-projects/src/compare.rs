//! Comparison of the tests that pass outside and inside.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{pins::Pin, results::Results};

/// The part of a project's tests that may differ with a reason: 0.5 %.
const MAX_DIFFERING: f64 = 0.005;

/// A run of a suite.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its results.
    pub results: Results,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// The same suite outside and inside, one after the other.
#[derive(Clone, Debug)]
pub struct Round {
    /// Outside the sandbox.
    pub outside: Run,
    /// Inside.
    pub inside: Run,
}

/// The result of the rounds of one project.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Comparison {
    /// How often each side ran.
    pub rounds: usize,
    /// Tests that a run outside knew, passed or not.
    pub tests: usize,
    /// Tests that passed in every run outside.
    pub outside: usize,
    /// Tests of `outside` that passed in every run inside.
    pub inside: usize,
    /// Tests that passed in every run outside and failed in a run inside, with the reason where the pin gives one.
    pub differing: Vec<(String, Option<String>)>,
    /// Tests that some run passed and another on the same side did not.
    pub unsteady: Vec<String>,
    /// The median of the ratios of time inside to time outside.
    pub ratio: f64,
    /// The median time outside, in seconds.
    pub outside_seconds: f64,
    /// The median time inside, in seconds.
    pub inside_seconds: f64,
    /// The problems; empty when the results are as the pin expects.
    pub problems: Vec<String>,
}

/// Compares the rounds of a project.
///
/// # Panics
/// When there is no round.
#[must_use]
pub fn compare(pin: &Pin, rounds: &[Round]) -> Comparison {
    let steady = |test: &&String| !pin.unsteady.contains_key(*test);
    let outside = in_all(rounds.iter().map(|round| &round.outside));
    let inside = in_all(rounds.iter().map(|round| &round.inside));
    let differing: Vec<(String, Option<String>)> = (outside.difference(&inside).filter(steady))
        .map(|test| (test.clone(), pin.differs.get(test).cloned()))
        .collect();
    let tests = rounds.iter().map(|round| round.outside.results.total()).max().expect("there is a round");
    let (mut unsteady, of_inside) =
        (sometimes(rounds.iter().map(|round| &round.outside)), sometimes(rounds.iter().map(|round| &round.inside)));
    unsteady.extend(of_inside);
    let problems = problems(pin, rounds, &outside, &differing);
    Comparison {
        rounds: rounds.len(),
        tests,
        outside: outside.len(),
        inside: outside.intersection(&inside).count(),
        differing,
        unsteady: unsteady.into_iter().collect(),
        ratio: median(rounds.iter().map(|round| round.inside.seconds / round.outside.seconds)),
        outside_seconds: median(rounds.iter().map(|round| round.outside.seconds)),
        inside_seconds: median(rounds.iter().map(|round| round.inside.seconds)),
        problems,
    }
}

fn problems(
    pin: &Pin,
    rounds: &[Round],
    outside: &BTreeSet<String>,
    differing: &[(String, Option<String>)],
) -> Vec<String> {
    let mut problems = Vec::new();
    for round in rounds {
        let passed = round.outside.results.passed.len();
        if passed < pin.at_least {
            problems.push(format!("only {passed} tests pass outside, at least {} are expected", pin.at_least));
        }
    }
    for (test, _) in differing.iter().filter(|(_, reason)| reason.is_none()) {
        problems.push(format!("passes outside and not inside: {test}"));
    }
    for test in pin.differs.keys().filter(|test| !differing.iter().any(|(differs, _)| differs == *test)) {
        problems.push(format!("`differs` names a test that does not differ: {test}"));
    }
    #[expect(clippy::cast_precision_loss, reason = "numbers of tests are small")]
    let allowed = outside.len() as f64 * MAX_DIFFERING;
    #[expect(clippy::cast_precision_loss, reason = "numbers of tests are small")]
    if pin.differs.len() as f64 > allowed.ceil() {
        problems.push(format!("{} tests differ, more than 0.5 % of {}", pin.differs.len(), outside.len()));
    }
    problems
}

/// The tests that passed in every run.
fn in_all<'a>(runs: impl Iterator<Item = &'a Run>) -> BTreeSet<String> {
    runs.map(|run| run.results.passed.clone()).reduce(|all, one| &all & &one).unwrap_or_default()
}

/// The tests that passed in some run and not in another.
fn sometimes<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> BTreeSet<String> {
    let any: BTreeSet<String> = runs.clone().flat_map(|run| run.results.passed.iter().cloned()).collect();
    &any - &in_all(runs)
}

/// The middle one; of an even number the mean of the middle two.
///
/// # Panics
/// When there is none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::pins::Language;

    fn pin(differs: &[(&str, &str)], unsteady: &[(&str, &str)]) -> Pin {
        let named = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(test, why)| ((*test).to_owned(), (*why).to_owned())).collect()
        };
        Pin {
            name: "x".into(),
            folder: "x".into(),
            language: Language::C,
            package: "x".into(),
            version: "1".into(),
            archives: BTreeMap::new(),
            opens: BTreeSet::new(),
            quick: false,
            programs: Vec::new(),
            run: String::new(),
            results: crate::results::Format::Tap,
            limit_seconds: 1,
            at_least: 2,
            differs: named(differs),
            unsteady: named(unsteady),
        }
    }

    fn run(passed: &[&str], seconds: f64) -> Run {
        let passed = passed.iter().map(|test| (*test).to_owned()).collect();
        Run { results: Results { passed, ..Results::default() }, seconds }
    }

    fn round(outside: &[&str], inside: &[&str]) -> Round {
        Round { outside: run(outside, 2.0), inside: run(inside, 3.0) }
    }

    #[test]
    fn sets_are_compared_and_not_counts() {
        let found = compare(&pin(&[], &[]), &[round(&["a", "b"], &["a", "c"])]);
        assert_eq!((found.outside, found.inside), (2, 1));
        assert_eq!(found.differing, [("b".to_owned(), None)]);
        assert_eq!(found.problems, ["passes outside and not inside: b"]);
    }

    #[test]
    fn a_difference_needs_a_reason_and_a_reason_a_difference() {
        let known = pin(&[("b", "why")], &[]);
        assert_eq!(compare(&known, &[round(&["a", "b"], &["a"])]).problems, [""; 0]);
        let gone = compare(&known, &[round(&["a", "b"], &["a", "b"])]);
        assert_eq!(gone.problems, ["`differs` names a test that does not differ: b"]);
        let many = pin(&[("a", "why"), ("b", "why")], &[]);
        assert_eq!(compare(&many, &[round(&["a", "b"], &[])]).problems, ["2 tests differ, more than 0.5 % of 2"]);
    }

    #[test]
    fn what_fails_outside_now_and_then_is_not_compared() {
        let rounds = [round(&["a", "b", "c"], &["a", "b"]), round(&["a", "b"], &["a", "b"])];
        let found = compare(&pin(&[], &[]), &rounds);
        assert_eq!((found.problems.len(), found.unsteady), (0, vec!["c".to_owned()]));
        let listed = compare(&pin(&[], &[("b", "a race")]), &[round(&["a", "b"], &["a"])]);
        assert_eq!(listed.problems, [""; 0]);
        // Once inside is enough to differ.
        let rounds = [round(&["a", "b"], &["a"]), round(&["a", "b"], &["a", "b"])];
        assert_eq!(compare(&pin(&[], &[]), &rounds).problems.len(), 1);
    }

    #[test]
    fn a_suite_that_did_not_start_is_a_problem() {
        let found = compare(&pin(&[], &[]), &[round(&["a"], &["a"])]);
        assert_eq!(found.problems, ["only 1 tests pass outside, at least 2 are expected"]);
    }

    #[test]
    fn times_are_medians() {
        assert!((median([3.0, 1.0, 9.0].into_iter()) - 3.0).abs() < f64::EPSILON);
        assert!((median([1.0, 2.0].into_iter()) - 1.5).abs() < f64::EPSILON);
        let found = compare(&pin(&[], &[]), &[round(&["a", "b"], &["a", "b"])]);
        assert!((found.ratio - 1.5).abs() < f64::EPSILON);
    }
}
