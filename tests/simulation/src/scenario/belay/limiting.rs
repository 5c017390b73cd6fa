//! Limits over executions while processes are killed, power fails and clocks jump: never more at once than may, in order, and no execution waits in vain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_defects::Defect;
use belay_proto::v1::{self, WhenFull, step_spec};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::Code;

use super::client::{RPC_TIMEOUT, connect, pause};
use super::hosts;
use super::outside::Run;
use super::plain::Plain;
use super::site::{CLIENTS, EXECUTOR, GATE, HORIZON, MAX_RECOVERY, RUNNER, SITE};
use super::tools::LOOK;
use crate::checker::Checker;
use crate::fault::{self, Fault, Schedule};
use crate::trace;

/// A site with a single client.
const HERE: fault::Site = fault::Site { everyone: &[EXECUTOR, RUNNER, GATE, CLIENTS[0]], ..SITE };
const PARENT: &str = "namespaces/default";
/// How many executions are started.
const EXECUTIONS: usize = 40;

/// A limit of a plan: its key, how many at once, and what follows when it is full.
type Limit = (&'static str, i32, WhenFull);

/// The kinds of plans: the limits of each, by key, how many at once, and what follows when one is full.
const KINDS: [(&str, &[Limit]); 5] = [
    ("one", &[("one", 1, WhenFull::Wait)]),
    ("two", &[("two", 2, WhenFull::Wait)]),
    ("both", &[("two", 2, WhenFull::Wait), ("one", 1, WhenFull::Wait)]),
    ("latest", &[("latest", 1, WhenFull::CancelOlder)]),
    ("refused", &[("refused", 1, WhenFull::Refuse)]),
];

/// The observations of a client, kept outside of the machines: the executions that were started, and how each ended.
#[derive(Debug, Default)]
struct Seen {
    started: BTreeSet<String>,
    end: Option<BTreeMap<String, v1::execution::State>>,
}

type Record = Arc<Mutex<Seen>>;

/// Belay as it is, with limits over executions.
///
/// # Errors
/// A description of the violation.
pub fn limiting(seed: u64) -> Result<(), String> {
    run(seed)
}

/// A defect of the services' own code: [`Defect::LimitTurnsForgotten`].
///
/// # Errors
/// A description of the violation.
pub fn limit_turns_forgotten(seed: u64) -> Result<(), String> {
    belay_defects::plant(Defect::LimitTurnsForgotten);
    run(seed)
}

/// A defect of the services' own code: [`Defect::LimitsIgnored`].
///
/// # Errors
/// A description of the violation.
pub fn limits_ignored(seed: u64) -> Result<(), String> {
    belay_defects::plant(Defect::LimitsIgnored);
    run(seed)
}

fn run(seed: u64) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let Plain { mut world, checker, outside } = Plain::new(&mut random, seed);
    let record = Record::default();
    world.client(CLIENTS[0], work(random.random(), record.clone(), checker.clone()));
    world.schedule(fault::generate(&mut random, HERE, HORIZON));
    world.schedule(faults(&mut random));

    let failed = |error: Box<dyn std::error::Error>| error.to_string();
    world.run_until(HORIZON, || checker.verdict().is_err()).map_err(failed)?;
    trace::event("all faults have ended");
    world.heal();
    let is_read = || lock(&record).end.is_some();
    let is_over = || is_read() || checker.verdict().is_err();
    if !world.run_until(4 * MAX_RECOVERY, is_over).map_err(failed)? {
        checker.violation("executions wait for limits that nobody holds");
    }
    checker.verdict()?;
    for violation in audit(&lock(&record), &outside.runs()) {
        checker.violation(violation);
    }
    checker.verdict()
}

fn lock(record: &Record) -> std::sync::MutexGuard<'_, Seen> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The executor is killed, and its clock jumps.
fn faults(random: &mut StdRng) -> Schedule {
    let mut schedule = Schedule::new();
    for _ in 0..5 {
        let at = HORIZON.mul_f64(random.random());
        let lasts = Duration::from_millis(random.random_range(50..900));
        schedule.push((at, Fault::Clock { host: EXECUTOR, ahead: random.random_range(-20_000..86_400), lasts }));
        schedule.push((HORIZON.mul_f64(random.random()), Fault::Kill { host: EXECUTOR }));
    }
    schedule
}

async fn work(seed: u64, record: Record, checker: Checker) -> turmoil::Result {
    let mut random = StdRng::seed_from_u64(seed);
    for number in 0..EXECUTIONS {
        pause(&mut random, 300).await;
        let kind = random.random_range(0..KINDS.len());
        let request = start(&mut random, number, kind);
        loop {
            match tokio::time::timeout(RPC_TIMEOUT, connect(hosts::EXECUTOR_URI).start_execution(request.clone())).await
            {
                Ok(Ok(started)) => {
                    lock(&record).started.insert(started.into_inner().name);
                    break;
                }
                Ok(Err(refused)) if is_full(&refused) => {
                    trace::count("starts that a limit refused");
                    break;
                }
                Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
            if checker.verdict().is_err() {
                return Ok(());
            }
        }
        if random.random_bool(0.2) {
            disturb(&mut random, &record).await;
        }
    }
    loop {
        let ends = ends().await;
        if ends.values().all(|state| is_terminal(*state))
            && lock(&record).started.iter().all(|name| ends.contains_key(name))
        {
            lock(&record).end = Some(ends);
            return Ok(());
        }
        // What was paused by chance goes on.
        for (name, state) in ends {
            if state == v1::execution::State::Paused {
                let request = v1::ResumeExecutionRequest { name, ..Default::default() };
                drop(tokio::time::timeout(RPC_TIMEOUT, connect(hosts::EXECUTOR_URI).resume_execution(request)).await);
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

fn is_full(refused: &tonic::Status) -> bool {
    std::error::Error::source(refused).is_none()
        && refused.code() == Code::ResourceExhausted
        && refused.message().contains("limit `refused`")
}

/// Cancels or pauses one of the executions.
async fn disturb(random: &mut StdRng, record: &Record) {
    let name = {
        let seen = lock(record);
        let place = random.random_range(0..seen.started.len().max(1));
        seen.started.iter().nth(place).cloned()
    };
    let Some(name) = name else { return };
    let mut client = connect(hosts::EXECUTOR_URI);
    // A refusal means that it has ended.
    if random.random_bool(0.5) {
        let request = v1::CancelExecutionRequest { name, reason: "by chance".to_owned(), ..Default::default() };
        drop(tokio::time::timeout(RPC_TIMEOUT, client.cancel_execution(request)).await);
    } else {
        let request = v1::PauseExecutionRequest { name, reason: "by chance".to_owned(), ..Default::default() };
        drop(tokio::time::timeout(RPC_TIMEOUT, client.pause_execution(request)).await);
    }
}

fn start(random: &mut StdRng, number: usize, kind: usize) -> v1::StartExecutionRequest {
    let (name, limits) = KINDS[kind];
    let step = |index: usize| {
        let arguments = Some(v1::Payload::of_json(serde_json::json!({"ms": 20 + 60 * index}).to_string()));
        let tool = v1::ToolStep { tool: LOOK.to_owned(), arguments, ..Default::default() };
        v1::StepSpec { id: format!("s{index}"), kind: Some(step_spec::Kind::Tool(tool)), ..Default::default() }
    };
    let limit = |(key, at_once, when_full): &Limit| v1::ExecutionLimit {
        key: (*key).to_owned(),
        at_once: *at_once,
        rate: None,
        when_full: (*when_full).into(),
    };
    let plan = v1::Plan {
        id: name.to_owned(),
        steps: (0..random.random_range(1..=3)).map(step).collect(),
        limits: limits.iter().map(limit).collect(),
        ..Default::default()
    };
    v1::StartExecutionRequest {
        parent: PARENT.to_owned(),
        execution_id: format!("{name}-{number}"),
        request_id: format!("start-{number}"),
        source: Some(v1::start_execution_request::Source::Plan(plan)),
        ..Default::default()
    }
}

/// The states of all executions.
async fn ends() -> BTreeMap<String, v1::execution::State> {
    loop {
        let request = v1::ListExecutionsRequest { parent: PARENT.to_owned(), page_size: 1_000, ..Default::default() };
        let listed = tokio::time::timeout(RPC_TIMEOUT, connect(hosts::EXECUTOR_URI).list_executions(request)).await;
        if let Ok(Ok(page)) = listed {
            let executions = page.into_inner().executions.into_iter();
            return executions.map(|execution| (execution.name.clone(), execution.state())).collect();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn is_terminal(state: v1::execution::State) -> bool {
    use v1::execution::State as S;
    matches!(state, S::Completed | S::Partial | S::Failed | S::Cancelled | S::TimedOut)
}

/// Compares how executions ended and when their calls ran with what the limits allow.
fn audit(seen: &Seen, runs: &[Run]) -> Vec<String> {
    let Some(ends) = &seen.end else { return vec!["nothing was read".to_owned()] };
    let mut violations = Vec::new();
    for (name, state) in ends {
        trace::count(match state {
            v1::execution::State::Completed => "limited executions that completed",
            _ => "limited executions that were cancelled",
        });
        if !matches!(state, v1::execution::State::Completed | v1::execution::State::Cancelled) {
            violations.push(format!("{name} ended {state:?}"));
        }
    }
    for (key, most) in [("one", 1), ("two", 2), ("latest", 1), ("refused", 1)] {
        let has_key =
            |kind: &str| KINDS.iter().any(|(name, limits)| *name == kind && limits.iter().any(|limit| limit.0 == key));
        let of_key: Vec<(&str, u64, u64)> = runs
            .iter()
            .filter_map(|run| {
                let execution = run.call.split("/steps/").next()?;
                let kind = execution.rsplit('/').next()?.rsplit_once('-')?.0;
                // What its machine took with it has ended some time before.
                has_key(kind).then_some((execution, run.order, run.ended.unwrap_or(run.order)))
            })
            .collect();
        for (_, began, _) in &of_key {
            let at_once: BTreeSet<&str> = of_key
                .iter()
                .filter(|(_, other, ended)| other <= began && began <= ended)
                .map(|(execution, ..)| *execution)
                .collect();
            if at_once.len() > most {
                violations.push(format!("{at_once:?} had a call at once, and the limit {key} allows {most}"));
            }
        }
    }
    violations
}
