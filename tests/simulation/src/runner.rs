//! Runs one process per seed, replays, and prints the verdict in the format of `cargo test`.
//!
//! Hash maps, tokio and SQLite keep state per process, so only a new process depends on nothing but the seed. The test binary starts itself, once
//! per core at a time.
//!
//! `BELAY_SIM_SEEDS=n` runs n seeds of each scenario instead of its own number; `BELAY_SIM_SEED=s` runs only that seed and shows every disk
//! operation. The seeds are the same in every run. With `BELAY_SIM_NEW=1` those of scenarios that hold are new, and the run prints the first of them;
//! `BELAY_SIM_OFFSET=o` starts them at o. A planted bug is looked for at the seed that found it last, and only when that one does not find it, at the
//! others; `BELAY_SIM_SEARCH=1` begins at seed 0.

mod arguments;
mod child;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use self::arguments::{Arguments, Filter};
use self::child::{FinishedChild, Outcome};
use crate::scenario::{Expect, Scenario};

const SEEDS_VARIABLE: &str = "BELAY_SIM_SEEDS";
const SEED_VARIABLE: &str = "BELAY_SIM_SEED";
const NEW_VARIABLE: &str = "BELAY_SIM_NEW";
const OFFSET_VARIABLE: &str = "BELAY_SIM_OFFSET";
const SEARCH_VARIABLE: &str = "BELAY_SIM_SEARCH";
/// The number of seeds that are run twice.
const REPEATED_SEEDS: u64 = 10;
/// How many times its number of seeds a scenario tries at most until everything that it must have met was met.
const MAX_SEEDS_FACTOR: u64 = 20;
/// The maximum number of failing seeds whose output is shown.
const MAX_SHOWN_FAILURES: usize = 3;

/// A test: a scenario and a check.
struct Case<'a> {
    name: String,
    scenario: &'a Scenario,
    check: Check,
}

enum Check {
    Holds { seeds: u64, counted: &'static [&'static str] },
    Repeats,
    Found { violation: &'static str, first: u64, within: u64 },
}

/// The seeds that the environment selects.
struct Seeds {
    /// How many of each scenario that holds, instead of its own number.
    asked: Option<u64>,
    /// The first of the scenarios that hold.
    first: u64,
    /// Whether planted bugs are looked for from seed 0 on.
    searches: bool,
}

/// The `main` of the test binary: runs the scenarios that the command line and the environment select.
pub fn main(scenarios: &[Scenario]) -> ExitCode {
    match run(scenarios) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(scenarios: &[Scenario]) -> Result<ExitCode, String> {
    let arguments = Arguments::parse(env::args().skip(1));
    if let Some(child) = &arguments.child {
        let scenario = scenarios.iter().find(|scenario| scenario.name == child.scenario);
        let scenario = scenario.ok_or_else(|| format!("no scenario is called {:?}", child.scenario))?;
        return child::run(scenario, child.seed, child.show_details);
    }
    let cases = cases(scenarios);
    if arguments.list {
        // `--list --ignored`: no test is ignored.
        let listed: Vec<_> =
            cases.iter().filter(|case| !arguments.ignored && arguments.filter.selects(&case.name)).collect();
        for case in &listed {
            println!("{}: test", case.name);
        }
        // nextest expects names only.
        if !arguments.terse {
            println!("\n{} tests, 0 benchmarks", listed.len());
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(seed) = number(SEED_VARIABLE)? {
        return replay(scenarios, &arguments.filter, seed);
    }
    let searches = number(SEARCH_VARIABLE)?.is_some_and(|searches| searches != 0);
    let seeds = Seeds { asked: number(SEEDS_VARIABLE)?, first: first_seed()?, searches };
    Ok(run_all(&cases, &arguments, &seeds))
}

/// The first seed of the scenarios that hold.
fn first_seed() -> Result<u64, String> {
    if let Some(offset) = number(OFFSET_VARIABLE)? {
        return Ok(offset);
    }
    Ok(match number(NEW_VARIABLE)? {
        None | Some(0) => 0,
        // Above the seeds that every run uses, and short enough to type.
        Some(_) => 1_000_000 + RandomState::new().hash_one(()) % 1_000_000_000,
    })
}

fn number(variable: &str) -> Result<Option<u64>, String> {
    match env::var(variable) {
        Ok(text) => text.parse().map(Some).map_err(|_| format!("{variable}={text:?} is not a whole number")),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(format!("{variable}: {error}")),
    }
}

fn cases<'a>(scenarios: &'a [Scenario]) -> Vec<Case<'a>> {
    let checks = |scenario: &Scenario| match scenario.expect {
        Expect::Holds { seeds, counted } => vec![Check::Holds { seeds, counted }, Check::Repeats],
        Expect::Found { violation, first, within } => vec![Check::Found { violation, first, within }],
    };
    let case = |scenario: &'a Scenario, check: Check| Case {
        name: format!("{}::{}", scenario.name, check.suffix()),
        scenario,
        check,
    };
    scenarios.iter().flat_map(|scenario| checks(scenario).into_iter().map(move |check| case(scenario, check))).collect()
}

impl Check {
    fn suffix(&self) -> &'static str {
        match self {
            Self::Holds { .. } => "holds",
            Self::Repeats => "repeats",
            Self::Found { .. } => "is_found",
        }
    }
}

/// Runs one seed of the selected scenarios, showing everything. A planted bug runs only when it is named.
fn replay(scenarios: &[Scenario], filter: &Filter, seed: u64) -> Result<ExitCode, String> {
    let planted = |scenario: &Scenario| matches!(scenario.expect, Expect::Found { .. });
    let selected = scenarios.iter().filter(|scenario| match filter.is_empty() {
        true => !planted(scenario),
        false => filter.selects(scenario.name),
    });
    let mut results = Vec::new();
    for scenario in selected {
        println!("{} with seed {seed}", scenario.name);
        let finished = child::start(scenario.name, seed, true)?;
        print!("{}", finished.output);
        if let Outcome::Failed(why) = &finished.outcome {
            println!("FAILED: {why}");
        }
        results.push((scenario.name.to_owned(), finished.outcome == Outcome::Passed));
    }
    Ok(conclude(&results, scenarios.len() - results.len()))
}

fn run_all(cases: &[Case<'_>], arguments: &Arguments, seeds: &Seeds) -> ExitCode {
    let selected: Vec<_> =
        cases.iter().filter(|case| !arguments.ignored && arguments.filter.selects(&case.name)).collect();
    println!("\nrunning {} tests", selected.len());
    let mut results = Vec::new();
    let seen = SeenHashes::default();
    for case in &selected {
        let verdict = case.verdict(seeds, &seen);
        println!("test {} ... {}", case.name, if verdict.is_ok() { "ok" } else { "FAILED" });
        match &verdict {
            Ok(summary) => println!("     {summary}"),
            Err(why) => println!("{why}"),
        }
        results.push((case.name.clone(), verdict.is_ok()));
    }
    conclude(&results, cases.len() - selected.len())
}

/// Prints the last lines, as libtest does.
fn conclude(results: &[(String, bool)], filtered: usize) -> ExitCode {
    let failed: Vec<_> = results.iter().filter(|(_, passed)| !passed).map(|(name, _)| name).collect();
    if !failed.is_empty() {
        println!("\nfailures:");
        for name in &failed {
            println!("    {name}");
        }
    }
    let (word, passed) = (if failed.is_empty() { "ok" } else { "FAILED" }, results.len() - failed.len());
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; {filtered} filtered out\n",
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The trace hashes of the runs so far, by scenario and seed, so that a repetition takes one run more and not two.
#[derive(Default)]
struct SeenHashes(Mutex<BTreeMap<(&'static str, u64), u64>>);

impl SeenHashes {
    fn traces(&self) -> MutexGuard<'_, BTreeMap<(&'static str, u64), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Case<'_> {
    /// The result of the runs, or why the test failed.
    fn verdict(&self, seeds: &Seeds, seen: &SeenHashes) -> Result<String, String> {
        let &Seeds { asked, first, searches } = seeds;
        match &self.check {
            Check::Holds { seeds, counted } => self.holds(first, asked.unwrap_or(*seeds), counted, seen),
            Check::Repeats => self.repeats(first, asked.unwrap_or(REPEATED_SEEDS).min(REPEATED_SEEDS), seen),
            Check::Found { violation, first, within } => {
                self.is_found(violation, *within, (!searches).then_some(*first))
            }
        }
    }

    fn holds(&self, first: u64, seeds: u64, counted: &[&'static str], seen: &SeenHashes) -> Result<String, String> {
        let one = |seed| child::start(self.scenario.name, seed, false);
        let mut runs: BTreeMap<u64, FinishedChild> =
            for_each(first..first + seeds, one, |_| false)?.into_iter().collect();
        // Something rare may be missing from so few seeds by chance.
        let mut next = first + seeds;
        while let Some(name) = missing(&runs, counted)
            && next < first + MAX_SEEDS_FACTOR * seeds
        {
            runs.extend(for_each(next..next + seeds, one, |run| run.counters.contains_key(name))?);
            next += seeds;
        }
        seen.traces().extend(runs.iter().filter_map(|(seed, run)| Some(((self.scenario.name, *seed), run.hash?))));
        let failures: Vec<_> = runs.iter().filter(|(_, run)| run.outcome != Outcome::Passed).collect();
        if !failures.is_empty() {
            let shown: Vec<_> =
                failures.iter().take(MAX_SHOWN_FAILURES).map(|(seed, run)| self.describe(**seed, run)).collect();
            let all: Vec<_> = failures.iter().map(|(seed, _)| seed.to_string()).collect();
            return Err(format!(
                "{}\n{} of {} seeds failed: {}",
                shown.concat(),
                all.len(),
                runs.len(),
                all.join(", ")
            ));
        }
        if let Some(missing) = missing(&runs, counted) {
            return Err(format!(
                "over {} seeds there were no {missing}: this simulation proves nothing about them",
                runs.len()
            ));
        }
        let hashes: BTreeSet<_> = runs.values().map(|run| run.hash).collect();
        if hashes.len() != runs.len() {
            return Err(format!(
                "{} seeds made only {} different traces: the seed does not decide",
                runs.len(),
                hashes.len()
            ));
        }
        let mut sums = BTreeMap::<&str, u64>::new();
        for (name, count) in runs.values().flat_map(|run| &run.counters) {
            *sums.entry(name).or_default() += count;
        }
        let sums: String = sums.iter().map(|(name, sum)| format!(", {name}: {sum}")).collect();
        Ok(format!("{} seeds from {first} on{sums}", runs.len()))
    }

    fn repeats(&self, first_seed: u64, seeds: u64, seen: &SeenHashes) -> Result<String, String> {
        let name = self.scenario.name;
        let twice = |seed| {
            let before = seen.traces().get(&(name, seed)).copied();
            let first =
                before.map_or_else(|| child::start(name, seed, false).map(|run| run.hash), |hash| Ok(Some(hash)))?;
            Ok((first, child::start(name, seed, false)?.hash))
        };
        for (seed, (first, second)) in for_each(first_seed..first_seed + seeds, twice, |_| false)? {
            if first.is_none() || first != second {
                // Once more, with every detail: what differed is likely to differ again.
                let (first, second) = (child::start(name, seed, true)?, child::start(name, seed, true)?);
                let mut lines = first.output.lines().zip(second.output.lines());
                let differing = lines.find(|(one, other)| one != other);
                let (one, other) = differing.unwrap_or(("(the same lines)", "(the same lines)"));
                return Err(format!("two runs of seed {seed} differ first here:\n  {one}\n  {other}"));
            }
        }
        Ok(format!("{seeds} seeds twice, the same trace each time"))
    }

    /// `known` is the seed that found it last.
    fn is_found(&self, violation: &str, within: u64, known: Option<u64>) -> Result<String, String> {
        let finds = |run: &FinishedChild| matches!(&run.outcome, Outcome::Failed(why) if why.contains(violation));
        if let Some(seed) = known
            && finds(&child::start(self.scenario.name, seed, false)?)
        {
            return Ok(format!("found at seed {seed}"));
        }
        let runs = for_each(0..within, |seed| child::start(self.scenario.name, seed, false), finds)?;
        // One bug may cause several violations: a seed may show another one first.
        let others = runs.iter().filter(|(_, run)| run.outcome != Outcome::Passed && !finds(run));
        let others: Vec<_> = others.map(|(seed, run)| self.describe(*seed, run)).collect();
        match runs.iter().find(|(_, run)| finds(run)) {
            Some((seed, _)) => {
                let moved =
                    known.map_or(String::new(), |known| format!(", and not at {known}, which its scenario names"));
                Ok(format!("found at seed {seed}{moved}; {} seeds failed otherwise", others.len()))
            }
            None => {
                let shown: Vec<_> = others.into_iter().take(MAX_SHOWN_FAILURES).collect();
                Err(format!("{}the planted bug ({violation:?}) was not found within {within} seeds", shown.concat()))
            }
        }
    }

    fn describe(&self, seed: u64, run: &FinishedChild) -> String {
        let why = match &run.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed(why) => why,
        };
        format!(
            "---- {name}, seed {seed} ----\n{}{why}\nreplay: {SEED_VARIABLE}={seed} cargo test -p {} --test simulation -- --exact {name}\n\n",
            run.output,
            env!("CARGO_PKG_NAME"),
            name = self.scenario.name,
        )
    }
}

/// The first of `counted` that happened in none of the runs.
fn missing(runs: &BTreeMap<u64, FinishedChild>, counted: &[&'static str]) -> Option<&'static str> {
    counted.iter().copied().find(|name| runs.values().all(|run| !run.counters.contains_key(*name)))
}

/// Runs `work` for each seed, one per core at a time, until all are done or one result is `enough`. Returns the results in the order of the seeds.
fn for_each<R: Send>(
    seeds: Range<u64>,
    work: impl Fn(u64) -> Result<R, String> + Sync,
    enough: impl Fn(&R) -> bool + Sync,
) -> Result<Vec<(u64, R)>, String> {
    let waiting = Mutex::new(seeds);
    let done = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let Some(seed) = waiting.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                return;
            };
            let result = work(seed);
            if result.as_ref().map_or(true, &enough) {
                stop.store(true, Ordering::Relaxed);
            }
            done.lock().unwrap_or_else(PoisonError::into_inner).push((seed, result));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(worker);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(seed, _)| *seed);
    done.into_iter().map(|(seed, result)| result.map(|result| (seed, result))).collect()
}
