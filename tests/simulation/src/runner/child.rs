//! Runs one seed in one process: the runner's side, and the child's.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::env;
use std::panic;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::arguments::{CHILD, DETAILS};
use crate::scenario::Scenario;
use crate::{clock, entropy, trace};

/// The limit of processor time for one seed, in seconds: three times what the longest known seed needs in a debug build (35 s). Without it, a simulation
/// that loops without advancing its time would never end.
const CPU_SECONDS: u64 = 120;
/// The limit of time for one seed, in seconds: one that waits for something that does not come uses no processor time.
const SECONDS: u32 = 600;
/// The futures of a whole cluster are polled on this stack, in bytes, in debug builds too.
const STACK: usize = 32 << 20;

const RESULT_HASH: &str = "result hash ";
const RESULT_COUNT: &str = "result count ";
const RESULT_FAILURE: &str = "result failure ";

/// A child that ended.
#[derive(Debug)]
pub(super) struct FinishedChild {
    pub(super) outcome: Outcome,
    /// `None` when it ended before.
    pub(super) hash: Option<u64>,
    pub(super) counters: BTreeMap<String, u64>,
    /// Its trace and whatever else it printed.
    pub(super) output: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// Why.
    Failed(String),
}

/// Runs one seed in a process of its own and waits for it.
pub(super) fn start(scenario: &str, seed: u64, show_details: bool) -> Result<FinishedChild, String> {
    let binary = env::current_exe().map_err(|error| format!("cannot find this binary: {error}"))?;
    let mut command = Command::new(binary);
    command.args([CHILD, scenario, &seed.to_string()]).args(show_details.then_some(DETAILS));
    let ended = command.output().map_err(|error| format!("cannot start seed {seed}: {error}"))?;

    let mut finished =
        FinishedChild { outcome: Outcome::Passed, hash: None, counters: BTreeMap::new(), output: String::new() };
    let mut failures = Vec::new();
    for line in String::from_utf8_lossy(&ended.stdout).lines() {
        if let Some(hash) = line.strip_prefix(RESULT_HASH) {
            finished.hash = u64::from_str_radix(hash, 16).ok();
        } else if let Some((count, name)) = line.strip_prefix(RESULT_COUNT).and_then(|rest| rest.split_once(' ')) {
            finished.counters.insert(name.to_owned(), count.parse().unwrap_or_default());
        } else if let Some(failure) = line.strip_prefix(RESULT_FAILURE) {
            failures.push(failure.to_owned());
        } else {
            finished.output.push_str(line);
            finished.output.push('\n');
        }
    }
    finished.output.push_str(&String::from_utf8_lossy(&ended.stderr));
    if !ended.status.success() || finished.hash.is_none() {
        failures.push(format!("the process ended with {}", ended.status));
        finished.outcome = Outcome::Failed(failures.join("\n"));
    }
    Ok(finished)
}

/// Runs one seed in this process.
pub(super) fn run(scenario: &Scenario, seed: u64, show_details: bool) -> Result<ExitCode, String> {
    let limit = Rlimit { current: Some(CPU_SECONDS), maximum: Some(CPU_SECONDS) };
    setrlimit(Resource::Cpu, limit).map_err(|error| format!("cannot limit the processor time: {error}"))?;
    // By the kernel's clock; the signal ends the process, and its end names it.
    // SAFETY: it has no memory of ours.
    unsafe { libc::alarm(SECONDS) };

    // A panic in a task of a simulated host ends that task only.
    static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string().replace('\n', " "));
        usual(info);
    }));

    clock::stop();
    entropy::seed(seed);
    let scenario_run = scenario.run;
    // A new thread, because this one has created its HashMap keys before the seed was set.
    let simulation = thread::Builder::new().stack_size(STACK).spawn(move || {
        trace::begin(show_details);
        (scenario_run(seed), trace::summary())
    });
    let ended = simulation.map_err(|error| format!("cannot start a thread: {error}"))?.join();

    let mut failures: Vec<String> =
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|panic| format!("a panic: {panic}")).collect();
    if let Ok((result, summary)) = ended {
        println!("{RESULT_HASH}{:016x}", summary.hash);
        for (name, count) in summary.counters {
            println!("{RESULT_COUNT}{count} {name}");
        }
        failures.extend(result.err().iter().flat_map(|error| error.lines()).map(str::to_owned));
    }
    for failure in &failures {
        println!("{RESULT_FAILURE}{failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
