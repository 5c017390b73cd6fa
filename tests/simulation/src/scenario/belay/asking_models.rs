//! Steps whose model works towards a goal, while processes are killed, power fails and clocks jump: no answer that is recorded is asked for again, nothing is
//! done of one that is not, no call of a model runs twice, and no execution uses more tokens than its budget has.

mod audit;
mod server;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_defects::Defect;
use belay_proto::v1::{self, step_spec};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::audit::{Recorded, audit};
use self::server::{FORK, MARK, MODEL, OF_FORKS, OTHER, Server, models};
use super::client::{RPC_TIMEOUT, connect, pause};
use super::hosts;
use super::people;
use super::plain::Plain;
use super::policy;
use super::records::Observations;
use super::site::{CLIENTS, EXECUTOR, GATE, HORIZON, MAX_RECOVERY, PEOPLE, RUNNER, SITE};
use super::tools::{APPEND, LOOK, PUBLISH, PUT, REMOVE, SEND, WIPE};
use crate::checker::Checker;
use crate::fault::{self, Fault, Schedule};
use crate::trace;

/// A site with a single client and a person.
const HERE: fault::Site = fault::Site { everyone: &[EXECUTOR, RUNNER, GATE, CLIENTS[0], PEOPLE[0]], ..SITE };
const PARENT: &str = "namespaces/default";
/// How many executions are started.
const EXECUTIONS: usize = 8;

/// Belay as it is, with steps whose model works towards a goal.
///
/// # Errors
/// A description of the violation.
pub fn asking_models(seed: u64) -> Result<(), String> {
    run(seed)
}

/// A defect of the services' own code: [`Defect::LostTurnAskedAgain`].
///
/// # Errors
/// A description of the violation.
pub fn lost_turn_asked_again(seed: u64) -> Result<(), String> {
    belay_defects::plant(Defect::LostTurnAskedAgain);
    run(seed)
}

/// A defect of the services' own code: [`Defect::LostTurnNotCounted`].
///
/// # Errors
/// A description of the violation.
pub fn lost_turn_not_counted(seed: u64) -> Result<(), String> {
    belay_defects::plant(Defect::LostTurnNotCounted);
    run(seed)
}

type Record = Arc<Mutex<Option<Recorded>>>;

fn run(seed: u64) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let server = Server::new(random.random());
    let Plain { mut world, checker, outside } = Plain::with_models(&mut random, seed, models(&server));
    let record = Record::default();
    world.client(CLIENTS[0], work(random.random(), record.clone(), checker.clone()));
    let observed = Observations::of_a_site_that_remembers(&checker);
    world.client(PEOPLE[0], people::decide(random.random(), observed.clone()));
    world.schedule(fault::generate(&mut random, HERE, HORIZON));
    world.schedule(kills(&mut random));

    let failed = |error: Box<dyn std::error::Error>| error.to_string();
    let is_read = || record.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let is_over = || is_read() || checker.verdict().is_err();
    world.run_until(HORIZON, || checker.verdict().is_err()).map_err(failed)?;
    trace::event("all faults have ended");
    world.heal();
    observed.set_healed(world.now_micros());
    if !world.run_until(4 * MAX_RECOVERY, is_over).map_err(failed)? {
        checker.violation("a step with a goal has no end");
    }
    checker.verdict()?;
    let recorded = record.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
    for violation in audit(&recorded, &server.requests(), &outside.runs()) {
        checker.violation(violation);
    }
    checker.verdict()
}

/// The executor is killed more often than others: it is the one that asks.
fn kills(random: &mut StdRng) -> Schedule {
    (0..12).map(|_| (HORIZON.mul_f64(random.random()), Fault::Kill { host: EXECUTOR })).collect()
}

fn start(random: &mut StdRng, number: usize) -> v1::StartExecutionRequest {
    let id = format!("goal-{number}");
    let effects = match random.random_bool(0.4) {
        true => v1::calls_step::Effects::PerStep,
        false => v1::calls_step::Effects::PerCall,
    };
    let has_other = random.random_bool(0.4);
    let is_judged = random.random_bool(0.3);
    let judge = || v1::Check {
        check: Some(v1::check::Check::Judge(v1::Judge { criterion: "It is done.".to_owned(), model: String::new() })),
    };
    let step = |name: &str, after: &[&str]| v1::StepSpec {
        id: name.to_owned(),
        depends_on: after.iter().map(|&id| id.to_owned()).collect(),
        kind: Some(step_spec::Kind::Agent(Box::new(v1::AgentStep {
            model: MODEL.to_owned(),
            task: format!("{MARK}{id}.{name} and say when it is done."),
            tools: [LOOK, PUT, SEND, APPEND, PUBLISH, REMOVE, WIPE].map(str::to_owned).into(),
            effects: effects.into(),
            fallback: has_other.then(|| OTHER.to_owned()).into_iter().collect(),
            ..v1::AgentStep::default()
        }))),
        postconditions: is_judged.then(judge).into_iter().collect(),
        ..v1::StepSpec::default()
    };
    let budget = random.random_bool(0.6).then(|| v1::Budget {
        tokens: Some(random.random_range(15_000..90_000)),
        on_exhausted: v1::ExhaustedAction::Fail.into(),
        ..v1::Budget::default()
    });
    // Two beside each other take from one budget.
    let steps = match random.random_bool(0.5) {
        true => vec![step("one", &[]), step("other", &[])],
        false => vec![step("one", &[])],
    };
    v1::StartExecutionRequest {
        parent: PARENT.to_owned(),
        execution_id: id.clone(),
        request_id: format!("start-{number}"),
        approval_mode: policy::approval_mode(random).into(),
        source: Some(v1::start_execution_request::Source::Plan(v1::Plan { id, steps, budget, ..v1::Plan::default() })),
        ..Default::default()
    }
}

async fn work(seed: u64, record: Record, checker: Checker) -> turmoil::Result {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut names, mut forks) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..EXECUTIONS {
        pause(&mut random, 1_500).await;
        let request = start(&mut random, number);
        let started =
            asked(|| async { connect(hosts::EXECUTOR_URI).start_execution(request.clone()).await }, &checker).await;
        let Some(started) = started else { return Ok(()) };
        // Its first turns may have ended by then, and what they have changed is not committed yet.
        let plan = match &request.source {
            Some(v1::start_execution_request::Source::Plan(plan)) => Some(plan),
            _ => None,
        };
        if asks_one_model(plan) && random.random_bool(0.5) {
            forks.extend(fork(&mut random, &started.name, 60, &checker).await);
        }
        names.insert(started.name);
    }
    let mut recorded = Recorded::new();
    for name in names {
        let mut forks_after =
            (!forks.contains(&format!("{name}{FORK}")) && random.random_bool(0.7)).then(|| random.random_range(0..20));
        let execution = loop {
            let request = v1::GetExecutionRequest { name: name.clone(), view: v1::ExecutionView::Full.into() };
            let got = asked(|| async { connect(hosts::EXECUTOR_URI).get_execution(request.clone()).await }, &checker);
            let Some(execution) = got.await else { return Ok(()) };
            let has_ended = is_terminal(execution.state());
            if forks_after.is_some_and(|after| after == 0 || has_ended) && asks_one_model(execution.plan.as_ref()) {
                forks_after = None;
                forks.extend(fork(&mut random, &name, 0, &checker).await);
            }
            if has_ended {
                break execution;
            }
            forks_after = forks_after.map(|after: u32| after.saturating_sub(1));
            find_out(&mut random, &execution).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let Some(events) = events(&name, &checker).await else { return Ok(()) };
        recorded.insert(name, (execution, events));
    }
    for name in forks {
        let Some(execution) = ended(&mut random, &name, &checker).await else { return Ok(()) };
        let Some(events) = events(&name, &checker).await else { return Ok(()) };
        recorded.insert(name, (execution, events));
    }
    *record.lock().unwrap_or_else(PoisonError::into_inner) = Some(recorded);
    Ok(())
}

/// An execution that has ended; `None` once a violation is known.
async fn ended(random: &mut StdRng, name: &str, checker: &Checker) -> Option<v1::Execution> {
    loop {
        let request = v1::GetExecutionRequest { name: name.to_owned(), view: v1::ExecutionView::Full.into() };
        let got =
            asked(|| async { connect(hosts::EXECUTOR_URI).get_execution(request.clone()).await }, checker).await?;
        if is_terminal(got.state()) {
            return Some(got);
        }
        find_out(random, &got).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whether a fork of an execution of this plan asks the model of forks alone, by which its requests are known.
fn asks_one_model(plan: Option<&v1::Plan>) -> bool {
    let steps = plan.map(|plan| &plan.steps[..]).unwrap_or_default();
    let falls_back =
        |step: &v1::StepSpec| matches!(&step.kind, Some(step_spec::Kind::Agent(agent)) if !agent.fallback.is_empty());
    steps.len() == 1 && !steps.iter().any(falls_back)
}

/// Forks an execution after a turn of its model; returns the name of the fork, unless no turn can follow there after so many more tries.
async fn fork(random: &mut StdRng, name: &str, mut tries: u32, checker: &Checker) -> Option<String> {
    let id = name.rsplit('/').next().unwrap_or_default();
    let request = v1::ForkExecutionRequest {
        name: name.to_owned(),
        execution_id: format!("{id}{FORK}"),
        from_step: "one".to_owned(),
        after_turn: Some(if tries > 0 { 1 } else { random.random_range(1..=3) }),
        model: OF_FORKS.to_owned(),
        on_current_files: true,
        request_id: format!("{id}{FORK}"),
        ..v1::ForkExecutionRequest::default()
    };
    loop {
        if checker.verdict().is_err() {
            return None;
        }
        let mut client = connect(hosts::EXECUTOR_URI);
        let forked = client.fork_execution(request.clone());
        match tokio::time::timeout(RPC_TIMEOUT, forked).await {
            Ok(Ok(forked)) => {
                trace::count("goals forked after a turn");
                return Some(forked.into_inner().name);
            }
            Ok(Err(status)) if status.code() == tonic::Code::InvalidArgument && tries > 0 => {
                tries -= 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(Err(status)) if status.code() == tonic::Code::InvalidArgument => {
                trace::count("forks refused where no turn can follow");
                return None;
            }
            Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Asks until there is an answer; `None` once a violation is known.
async fn asked<T, F: Future<Output = Result<tonic::Response<T>, tonic::Status>>>(
    request: impl Fn() -> F,
    checker: &Checker,
) -> Option<T> {
    loop {
        if checker.verdict().is_err() {
            return None;
        }
        if let Ok(Ok(answer)) = tokio::time::timeout(RPC_TIMEOUT, request()).await {
            return Some(answer.into_inner());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Says what calls did whose outcome is unknown: those that change something outside.
async fn find_out(random: &mut StdRng, execution: &v1::Execution) {
    let is_unknown = |step: &&v1::Step| {
        let reaches_out =
            matches!(&step.detail, Some(v1::step::Detail::Tool(detail)) if [SEND, PUBLISH].contains(&&*detail.tool));
        step.state() == v1::step::State::OutcomeUnknown && reaches_out
    };
    for step in execution.steps.iter().filter(is_unknown) {
        let failed = random.random_bool(0.5);
        let request = v1::ResolveStepRequest {
            name: step.name.clone(),
            resolution: if failed { v1::StepResolution::Failed } else { v1::StepResolution::Completed }.into(),
            result: (!failed).then(|| v1::Payload::of_json("null")),
            reason: "the seed said so".to_owned(),
            ..v1::ResolveStepRequest::default()
        };
        // A refusal means that somebody else was faster, or that the executor is away.
        drop(tokio::time::timeout(RPC_TIMEOUT, connect(hosts::EXECUTOR_URI).resolve_step(request)).await);
        trace::count("unknown outcomes of a model's calls");
    }
}

async fn events(name: &str, checker: &Checker) -> Option<Vec<v1::ExecutionEvent>> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListEventsRequest { parent: name.to_owned(), page_token, ..Default::default() };
        let page = asked(|| async { connect(hosts::EXECUTOR_URI).list_events(request.clone()).await }, checker).await?;
        all.extend(page.events);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Some(all);
        }
    }
}

fn is_terminal(state: v1::execution::State) -> bool {
    use v1::execution::State as S;
    matches!(state, S::Completed | S::Partial | S::Failed | S::Cancelled | S::TimedOut)
}
