//! Steps whose model works towards a goal, while processes are killed, power fails and clocks jump: no answer that is recorded is asked for again, nothing is
//! done of one that is not, no call of a model runs twice, and no execution uses more tokens than its budget has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_defects::Defect;
use belay_executor::{Answering, ModelServer, Models};
use belay_model::{
    Answer, Api, Arguments, BaseUrl, Call, End, Failure, Limit, Message, Model, Prompt, Refusal, ServedModel,
    TimeLimits, ToolCalls, Usage,
};
use belay_model_http::{Asked, Show};
use belay_proto::v1::{self, execution_event::Kind, step_spec};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::client::{RPC_TIMEOUT, connect, pause};
use super::hosts;
use super::outside::Run;
use super::plain::Plain;
use super::policy::FREE;
use super::site::{CLIENTS, EXECUTOR, GATE, HORIZON, MAX_RECOVERY, RUNNER, SITE};
use super::tools::{APPEND, LOOK, PUT, SEND, WIPE};
use crate::checker::Checker;
use crate::fault::{self, Fault, Schedule};
use crate::trace;

/// A site with a single client.
const HERE: fault::Site = fault::Site { everyone: &[EXECUTOR, RUNNER, GATE, CLIENTS[0]], ..SITE };
const PARENT: &str = "namespaces/default";
/// How many executions are started.
const EXECUTIONS: usize = 8;
/// The model, and the tool by which it is asked.
const MODEL: &str = "scripted";
/// The model that takes over.
const OTHER: &str = "other";
/// The model that forks ask: what they have of another execution says its name, and not theirs.
const OF_FORKS: &str = "of-forks";
/// What the id of a fork has after that of its origin.
const FORK: &str = "-fork";
const ASK_MODEL: &str = "ask_model";
/// The tool by which it judges.
const JUDGE: &str = "judge_criterion";
/// The most that an answer may have, in tokens.
const MAX_OUTPUT: u64 = 2_000;
/// What an answer has more than it may, where the server counts too much.
const TOO_MANY: u64 = 10_000;
/// What precedes the name of an execution in the task of its step.
const MARK: &str = "Work for ";

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

/// A request to the model's server, which counts it whatever becomes of the answer.
#[derive(Debug, Clone)]
struct Request {
    /// The execution that asks, and the turn.
    execution: String,
    turn: usize,
    prompt: String,
    /// The tokens that the server counts, as far as the request allows them.
    tokens: u64,
    /// Those beyond, which it counts if it has told of its count: of others nobody could know.
    beyond: u64,
    /// Whether the answer was given, or nobody was there any more.
    is_given: bool,
    /// Whether it asks for a judgement, and is no turn.
    is_judgement: bool,
}

impl Request {
    /// Whether the step `other` asks, and not `one`.
    fn is_of_other(&self) -> bool {
        let task = self.execution.strip_suffix(FORK).unwrap_or(&self.execution);
        self.prompt.contains(&format!("{task}.other "))
    }
}

/// Every request, by number. Clones share their state.
#[derive(Debug, Clone, Default)]
struct Server {
    requests: Arc<Mutex<Vec<Request>>>,
    seed: u64,
    /// What the execution that asks has in its id after that in the task.
    suffix: &'static str,
}

impl Server {
    fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a request, which another time is answered otherwise; returns its number, how long it takes, and what comes of it.
    fn begin(&self, prompt: &Prompt) -> (usize, Duration, Result<Answer, Failure>) {
        let mut requests = self.requests();
        let number = requests.len();
        let random = &mut StdRng::seed_from_u64(self.seed.wrapping_add(number as u64));
        let written = format!("{prompt:?}");
        let execution = written.split_once(MARK).and_then(|(_, rest)| rest.split(['.', ' ', '\\', '"']).next());
        let execution = format!("{}{}", execution.unwrap_or_default(), self.suffix);
        let is_answer = |message: &&Message| matches!(message, Message::Assistant { .. });
        let turn = prompt.messages.iter().filter(is_answer).count() + 1;
        let counts_too_much = random.random_bool(0.12);
        let usage = Usage {
            input: written.len() as u64 / 6,
            // By which what is recorded is known again.
            output: number as u64 + 1 + if counts_too_much { TOO_MANY } else { 0 },
            ..Usage::default()
        };
        let is_judgement = prompt.tools.first().is_some_and(|tool| tool.name == "verdict");
        let end = match is_judgement {
            false => answer(random, &execution, number, turn, usage),
            true => verdict(random, usage),
        };
        // One that does not reach it, or that it refuses, is not counted.
        let is_counted = !matches!(end, Err(Failure::Unreachable { .. } | Failure::Refused { .. }));
        let tokens = if is_counted { usage.input + number as u64 + 1 } else { 0 };
        let beyond = usage.output - number as u64 - 1;
        trace::event(format_args!(
            "{execution} asks the model in turn {turn}, request {number}, to judge: {is_judgement}"
        ));
        trace::count(if is_judgement { "judgements asked for" } else { "turns asked for" });
        trace::count("requests to a model");
        requests.push(Request { execution, turn, prompt: written, tokens, beyond, is_given: false, is_judgement });
        (number, Duration::from_millis(random.random_range(5..500)), end)
    }
}

/// Mostly that the criterion is met.
fn verdict(random: &mut StdRng, usage: Usage) -> Result<Answer, Failure> {
    if random.random_bool(0.08) {
        return Err(Failure::Cut);
    }
    let arguments = match random.random_range(0..10) {
        0 => json!({"met": "perhaps"}),
        1..4 => json!({"met": false, "why": "scripted"}),
        _ => json!({"met": true, "why": "scripted"}),
    };
    let call = Call { name: "verdict".to_owned(), arguments: Arguments::Object(arguments), server_id: String::new() };
    let (text, reasoning, model) = (String::new(), String::new(), MODEL.to_owned());
    Ok(Answer { text, reasoning, calls: vec![call], end: End::Complete, usage: Some(usage), model })
}

/// Mostly an answer, with calls in the first turns and the completion later.
fn answer(random: &mut StdRng, execution: &str, number: usize, turn: usize, usage: Usage) -> Result<Answer, Failure> {
    let failure = match random.random_range(0..100) {
        0..3 => Some(Failure::Unreachable { why: "scripted".to_owned() }),
        3..6 => Some(Failure::Refused {
            refusal: Refusal::RateLimit,
            status: 429,
            message: "scripted".to_owned(),
            retry_after: Some(Duration::from_millis(700)),
        }),
        6..8 => Some(Failure::Cut),
        8..10 => Some(Failure::Late { limit: Limit::BetweenBytes, after: Duration::from_secs(1) }),
        10..11 => Some(Failure::Truncated { usage: Some(usage) }),
        11..13 => Some(Failure::Refused {
            refusal: Refusal::Credential,
            status: 401,
            message: "scripted".to_owned(),
            retry_after: None,
        }),
        _ => None,
    };
    if let Some(failure) = failure {
        return Err(failure);
    }
    let call = |name: &str, arguments| Call { name: name.to_owned(), arguments, server_id: String::new() };
    let calls = match turn {
        1..=3 if random.random_bool(0.85) => (0..random.random_range(1..=3))
            .map(|place| {
                let tool = *[LOOK, PUT, SEND, SEND, APPEND, APPEND, WIPE, "unknown"].choose(random).expect("not empty");
                let mut arguments =
                    json!({"ms": random.random_range(1..90), "value": format!("{execution}/{number}/{place}")});
                if tool == APPEND {
                    arguments["path"] = format!("{FREE}{}", random.random_range(0..3)).into();
                }
                match random.random_bool(0.05) {
                    true => call(tool, Arguments::Invalid { text: "{".to_owned(), why: "scripted".to_owned() }),
                    false => call(tool, Arguments::Object(arguments)),
                }
            })
            .collect(),
        _ if random.random_bool(0.1) => Vec::new(),
        _ => vec![call("complete_step", Arguments::Object(json!({"result": number})))],
    };
    Ok(Answer {
        text: format!("request {number}"),
        reasoning: String::new(),
        calls,
        end: End::Complete,
        usage: Some(usage),
        model: MODEL.to_owned(),
    })
}

impl ModelServer for Server {
    fn ask<'a>(&'a self, prompt: &'a Prompt, _: i64, _: Show<'a>) -> Answering<'a, Asked> {
        Box::pin(async move {
            let (number, takes, end) = self.begin(prompt);
            tokio::time::sleep(takes).await;
            self.requests()[number].is_given = true;
            end.map(|answer| Asked { answer, parts: 1, request_bytes: 0 })
        })
    }

    fn list(&self, _: i64) -> Answering<'_, Vec<ServedModel>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn models(server: &Server) -> Models {
    let model = |name: &str| Model {
        name: name.to_owned(),
        api: Api::Chat,
        base_url: BaseUrl::parse("http://127.0.0.1:1/v1").expect("it is one"),
        model: MODEL.to_owned(),
        window: 200_000,
        max_output: MAX_OUTPUT,
        tool_calls: ToolCalls::Native,
        price: None,
        limits: TimeLimits::DEFAULT,
        credential: None,
    };
    let served = |name: &str, suffix| {
        let server = Server { suffix, ..server.clone() };
        (model(name), Some(Box::new(server) as Box<dyn ModelServer>))
    };
    Models::new([served(MODEL, ""), served(OTHER, ""), served(OF_FORKS, FORK)])
}

/// What is recorded of the executions once all have ended.
type Recorded = BTreeMap<String, (v1::Execution, Vec<v1::ExecutionEvent>)>;
type Record = Arc<Mutex<Option<Recorded>>>;

fn run(seed: u64) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let server = Server { seed: random.random(), ..Server::default() };
    let Plain { mut world, checker, outside } = Plain::with_models(&mut random, seed, models(&server));
    let record = Record::default();
    world.client(CLIENTS[0], work(random.random(), record.clone(), checker.clone()));
    world.schedule(fault::generate(&mut random, HERE, HORIZON));
    world.schedule(kills(&mut random));

    let failed = |error: Box<dyn std::error::Error>| error.to_string();
    let is_read = || record.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let is_over = || is_read() || checker.verdict().is_err();
    world.run_until(HORIZON, || checker.verdict().is_err()).map_err(failed)?;
    trace::event("all faults have ended");
    world.heal();
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
        kind: Some(step_spec::Kind::Agent(v1::AgentStep {
            model: MODEL.to_owned(),
            task: format!("{MARK}{id}.{name} and say when it is done."),
            tools: [LOOK, PUT, SEND, APPEND, WIPE].map(str::to_owned).into(),
            effects: effects.into(),
            fallback: has_other.then(|| OTHER.to_owned()).into_iter().collect(),
            ..v1::AgentStep::default()
        })),
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
        let reaches_out = matches!(&step.detail, Some(v1::step::Detail::Tool(detail)) if detail.tool == SEND);
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

/// The reasons for which a step may fail here. With a model that is lost or answers nothing so often that its attempts are used up, it has failed.
const EXPECTED: [&str; 10] = [
    "AGENT_STUCK",
    // The origin of a fork may commit, or drop, what the fork was to take over.
    "LAYER_GONE",
    "LIST_REFUSED",
    "BUDGET_EXHAUSTED",
    "MODEL_ANSWER_INVALID",
    "MODEL_REFUSED",
    "MODEL_TURN_LOST",
    "MODEL_UNAVAILABLE",
    "STEP_CONFLICT",
    "TURN_LIMIT",
];

/// The number of the request whose answer has these tokens.
fn request_of(usage: &v1::ModelUsage) -> Option<usize> {
    usize::try_from(usage.output_tokens).ok()?.checked_rem(TOO_MANY as usize)?.checked_sub(1)
}

/// Compares what is recorded with what the model's server was asked and what the tools did.
fn audit(recorded: &Recorded, requests: &[Request], runs: &[Run]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut acted_on = BTreeSet::new();
    for (name, (execution, events)) in recorded {
        let id = name.rsplit('/').next().unwrap_or_default();
        let own = |request: &&Request| request.execution == id;
        let (mut turns, mut judged) = (BTreeMap::new(), BTreeSet::new());
        let (mut ends, mut lost, mut overran, mut told) = (0, 0, false, BTreeSet::new());
        let carried = events.iter().find_map(|event| match &event.kind {
            Some(Kind::StepConversationCarriedOver(carried)) => Some(carried),
            _ => None,
        });
        if let Some(carried) = carried {
            trace::count(if carried.layers.is_some() { "forks with layers" } else { "forks without layers" });
            let origin = id.strip_suffix(FORK).unwrap_or(id);
            let turn = usize::try_from(carried.turns).unwrap_or_default() + 1;
            let of = |execution: &str| {
                let is_it = |request: &&Request| {
                    request.execution == execution
                        && request.turn == turn
                        && !request.is_of_other()
                        && !request.is_judgement
                };
                requests.iter().find(is_it).map(|request| request.prompt.as_str())
            };
            // What others have changed meanwhile is said where changes are taken over.
            if let (Some(first), Some(next)) = (of(origin), of(id))
                && carried.layers.is_none()
            {
                trace::count("turns of forks that their origins have asked too");
                if first != next {
                    violations
                        .push(format!("{id} asks something else in turn {turn} than {origin}: {next} and {first}"));
                }
            }
        }
        for event in events {
            let call = belay_proto::call_name(name, event);
            match &event.kind {
                Some(Kind::ToolCallRequested(request)) => {
                    let is_turn = [ASK_MODEL, JUDGE].contains(&request.tool.as_str());
                    if request.tool == JUDGE {
                        judged.insert(call.clone());
                    }
                    if is_turn && overran {
                        violations.push(format!("{call} asks the model after the budget was overrun"));
                    }
                    let arguments = request.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
                    if is_turn && arguments.contains(&format!(r#""model":"{OTHER}""#)) {
                        trace::count("turns asked of the next model");
                    }
                    turns.insert(call, is_turn);
                }
                Some(Kind::ToolCallCompleted(completed)) if turns.get(&call) == Some(&true) => {
                    ends += 1;
                    let usage = completed.receipt.as_ref().and_then(|receipt| receipt.usage.as_ref());
                    let number = usage.and_then(request_of);
                    match number.and_then(|number| Some((number, requests.get(number)?))) {
                        Some((number, request)) if request.execution == id => {
                            if request.is_judgement != judged.contains(&call) {
                                violations.push(format!("{call} has the answer to another kind of question"));
                            }
                            if !request.is_judgement {
                                acted_on.insert(number);
                            }
                            told.insert(number);
                        }
                        _ => violations.push(format!("{call} has an answer that no request of {id} was given")),
                    }
                }
                Some(Kind::ToolCallFailed(failed)) if turns.get(&call) == Some(&true) => {
                    ends += 1;
                    let usage = failed.receipt.as_ref().and_then(|receipt| receipt.usage.as_ref());
                    told.extend(usage.and_then(request_of));
                    let reason = failed.failure.as_ref().map(|failure| failure.reason.as_str());
                    lost += usize::from(reason == Some("MODEL_TURN_LOST"));
                }
                Some(Kind::BudgetOverrun(_)) => overran = true,
                _ => {}
            }
        }
        let asked = requests.iter().filter(own).count();
        if asked > ends {
            violations.push(format!("{id} has asked {asked} times, and {ends} ends are recorded"));
        }
        let not_recorded = asked.saturating_sub(ends - lost);
        if not_recorded > lost {
            violations
                .push(format!("{not_recorded} answers for {id} are not recorded, and {lost} are said to be lost"));
        }
        let limit = execution.plan.as_ref().and_then(|plan| plan.budget.as_ref()?.tokens);
        let counted = requests
            .iter()
            .enumerate()
            .filter(|(_, request)| own(request))
            .map(|(number, request)| request.tokens + if told.contains(&number) { request.beyond } else { 0 });
        let spent: u64 = counted.sum();
        if limit.is_some_and(|limit| spent > limit.unsigned_abs()) {
            trace::count("budgets of tokens overrun");
            if !overran {
                violations.push(format!("{id} has spent {spent} tokens, and its budget is {limit:?}"));
            }
        }
        trace::count(match execution.state() {
            v1::execution::State::Completed => "goals reached",
            _ => "goals not reached",
        });
        for step in execution.steps.iter().filter(|step| step.step_id == "one" || step.step_id == "other") {
            let reason = step.failure.as_ref().map_or("", |failure| failure.reason.as_str());
            if step.state() == v1::step::State::Failed && !EXPECTED.contains(&reason) {
                violations.push(format!("{} failed: {:?}", step.name, step.failure));
            }
        }
        (0..lost).for_each(|_| trace::count("turns lost with their executor"));
    }
    // The same record makes the same prompt, byte for byte, and a turn that has its answer is over.
    let mut of_turn: BTreeMap<(&str, &str, usize), Vec<usize>> = BTreeMap::new();
    for (number, request) in requests.iter().enumerate().filter(|(_, request)| !request.is_judgement) {
        let step = if request.is_of_other() { "other" } else { "one" };
        of_turn.entry((&request.execution, step, request.turn)).or_default().push(number);
    }
    for ((execution, step, turn), numbers) in of_turn {
        if numbers.windows(2).any(|pair| requests[pair[0]].prompt != requests[pair[1]].prompt) {
            violations.push(format!("{execution}, {step}: turn {turn} was asked in other words the next time"));
        }
        if let Some(answered) = numbers.iter().position(|number| acted_on.contains(number))
            && answered + 1 < numbers.len()
        {
            violations.push(format!("{execution}, {step}: turn {turn} was asked again after its answer was recorded"));
        }
        (1..numbers.len()).for_each(|_| trace::count("turns asked again"));
    }
    // Only what a recorded answer wants is done, and what cannot be done again is done once.
    let mut sent = BTreeSet::new();
    for run in runs {
        let value = run.arguments["value"].as_str().unwrap_or_default();
        let number = value.split('/').nth(1).and_then(|number| number.parse::<usize>().ok());
        if !number.is_some_and(|number| acted_on.contains(&number) && requests[number].is_given) {
            violations.push(format!("{} was run for {value:?}, of an answer that is not recorded", run.call));
        }
        if run.tool == SEND && !sent.insert(value) {
            violations.push(format!("{} was run a second time for {value:?}", run.call));
        }
        trace::count("runs for a model");
    }
    violations
}
