//! The table.

use std::fmt::Write as _;

use crate::{
    compare::{Comparison, median},
    pins::Pin,
};

/// The text above the table, made by this command.
const HEAD: &str = "# Suites of public projects, outside and inside the sandbox

<!-- Made by `tests/real-projects/run --docs`; edits are lost. -->

Each project's archive comes from its registry, pinned by version and digest, with its tests in it. Its suite ran **outside** (same uid,
no capabilities, loopback up, no other network) and **inside** through `run_terminal` of the real `belay`, in turns, each in a fresh copy.
The *sets* of passed tests are compared, not their numbers: \"inside\" counts the tests that passed in every run outside and in every run
inside. The ratio is the median over the rounds of the step's time, from its start to its commit, to the time outside. The load average is
that of the last run; a project's figures are from the last run that it was in, maybe beside more work. Where the load is far above the number of
cores, the times say little.

[tests/real-projects](../tests/real-projects/README.md) says how to run it.
";

/// A line for a terminal.
#[must_use]
pub fn line(pin: &Pin, found: &Comparison) -> String {
    let word = if found.problems.is_empty() { "ok" } else { "DIFFERS" };
    format!(
        "{:<11} {:<20} {word:<8} outside {:>5} inside {:>5} of {:>5} tests, {:>6.1} s and {:>6.1} s: {:.2} x",
        pin.language.name(),
        pin.name,
        found.outside,
        found.inside,
        found.tests,
        found.outside_seconds,
        found.inside_seconds,
        found.ratio,
    )
}

/// The page for docs.
///
/// # Panics
/// When there is no project.
#[must_use]
pub fn page(machine: &str, projects: &[(Pin, Comparison)], missing: &[Pin]) -> String {
    let mut page = HEAD.to_owned();
    let sum = |count: fn(&Comparison) -> usize| projects.iter().map(|(_, found)| count(found)).sum::<usize>();
    let (outside, inside) = (sum(|found| found.outside), sum(|found| found.inside));
    let ratio = median(projects.iter().map(|(_, found)| found.ratio));
    write!(
        page,
        "\n{} projects: **{outside} tests pass outside, {inside} of them inside**; median of the ratios {ratio:.2} ×.\nMeasured on {machine}.\n\n\
         | project | version | language | opens | tests | passed outside | passed inside | differing | rounds | outside | inside | ratio |\n\
         |---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        projects.len(),
    )
    .expect("a string grows");
    for (pin, found) in projects {
        let opens: Vec<&str> = pin.opens.iter().map(|opens| opens.name()).collect();
        let row = format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} s | {:.1} s | {:.2} × |\n",
            pin.package,
            pin.version,
            pin.language.name(),
            opens.join(", "),
            found.tests,
            found.outside,
            found.inside,
            found.differing.len(),
            found.rounds,
            found.outside_seconds,
            found.inside_seconds,
            found.ratio,
        );
        page.push_str(&row);
    }
    if !missing.is_empty() {
        let names: Vec<String> =
            missing.iter().map(|pin| format!("{} {} ({})", pin.package, pin.version, pin.language.name())).collect();
        writeln!(page, "\nPinned, and without figures yet: {}.", names.join(", ")).expect("a string grows");
    }
    page.push_str("\n## Tests that differ\n\n");
    let mut none = true;
    for (pin, found) in projects {
        for (test, reason) in &found.differing {
            none = false;
            let reason = reason.as_deref().unwrap_or("not explained").trim();
            writeln!(page, "- **{}**, `{test}`: {reason}", pin.package).expect("a string grows");
        }
    }
    if none {
        page.push_str("None.\n");
    }
    page.push_str("\n## Tests that are not steady\n\nThey pass now and then on the same side, outside too, and are not compared.\n\n");
    let mut none = true;
    for (pin, found) in projects {
        let listed = pin.unsteady.iter().map(|(test, reason)| (test.as_str(), reason.trim()));
        let seen = found.unsteady.iter().filter(|test| !pin.unsteady.contains_key(*test));
        for (test, reason) in listed.chain(seen.map(|test| (test.as_str(), "seen in these rounds"))) {
            none = false;
            writeln!(page, "- **{}**, `{test}`: {reason}", pin.package).expect("a string grows");
        }
    }
    if none {
        page.push_str("None.\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_stands_on_the_page_with_its_reason() {
        let pin = crate::pins::all().unwrap().remove(0);
        let found = Comparison {
            rounds: 3,
            tests: 3,
            outside: 2,
            inside: 1,
            differing: vec![("t".to_owned(), Some("the kernel says so".to_owned()))],
            unsteady: Vec::new(),
            ratio: 1.25,
            outside_seconds: 4.0,
            inside_seconds: 5.0,
            problems: Vec::new(),
        };
        let text = page("a machine", &[(pin.clone(), found.clone())], std::slice::from_ref(&pin));
        assert!(text.contains("2 tests pass outside, 1 of them inside"), "{text}");
        assert!(text.contains("| 3 | 2 | 1 | 1 | 3 | 4.0 s | 5.0 s | 1.25 × |"), "{text}");
        assert!(text.contains("without figures yet: "), "{text}");
        assert!(text.contains("`t`: the kernel says so"), "{text}");
        assert!(line(&pin, &found).contains("1.25 x"));
    }
}
