//! Clients: they start executions, pause, resume and cancel them, and watch them to their end.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use belay_proto::v1::executor_service_client::ExecutorServiceClient;
use belay_proto::v1::{self, execution, step};
use belay_service_kit::status;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::inputs::Inputs;
use super::observed::Observations;
use super::picture::Depth;
use super::{deletions, forks, hosts, plans, tools, watcher};
use crate::trace;

/// How long an RPC may take before its connection is replaced: turmoil's TCP does not retransmit what a partition dropped.
pub(super) const RPC_TIMEOUT: Duration = Duration::from_millis(1000);

/// Expected reasons: the request may be sent again later, or the execution's state forbids it.
const EXPECTED: [&str; 13] = [
    "EXECUTION_ENDED",
    "FENCED",
    "LIMIT_REACHED",
    "NOTHING_TO_RETRY",
    "PLAN_REFUSED",
    "PLAN_REVISION_MISMATCH",
    "RUNNER_UNAVAILABLE",
    "STOPPING",
    "STORE_FAILED",
    "STORE_FULL",
    "WORKSPACE_FAILED",
    "WRONG_STATE",
    "LEDGER_UNAVAILABLE",
];

/// An execution to start.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) after: Duration,
    pub(super) approval_mode: v1::ApprovalMode,
    /// Empty for the execution's own workspace.
    pub(super) workspace: String,
    pub(super) plan: v1::Plan,
    pub(super) inputs: Inputs,
    /// The plan as its author wrote it, to send instead.
    pub(super) document: Option<String>,
    /// How likely it is that a person has it go on after an end that is no success.
    pub(super) goes_on: f64,
    /// Whether its executor drives only what it is asked to: a client asks again and again.
    pub(super) is_driven: bool,
    /// How likely it is that it is forked after its end.
    pub(super) forks: f64,
    /// How likely it is that it is deleted after its end. With more than 0, the executions of its steps' plans are deleted as well, now and then.
    pub(super) deletes: f64,
    pub(super) request_id: String,
    /// How often it was given before: again after each restore of everything, with request ids of their own for what is asked of the execution.
    pub(super) given_before: u32,
    pub(super) seed: u64,
}

/// A client's connection to the executor, replaced after every failure.
pub(super) struct Connection {
    client: ExecutorServiceClient<Channel>,
    /// Where it connects to.
    uri: &'static str,
    observed: Observations,
    /// Whether the requested execution was lost with the journal.
    is_lost: bool,
    /// The executions that were not there any more because retention had deleted them.
    taken: BTreeSet<String>,
    /// Whether the executor has answered the last request that it does not carry it out.
    is_refused: bool,
    /// Why the executor has refused the last plan.
    plan_refused: Option<String>,
    /// Whether the requested execution may not be there, yet or any more.
    pub(super) may_be_missing: bool,
}

impl Connection {
    pub(super) fn new(observed: &Observations) -> Self {
        Self::to(hosts::EXECUTOR_URI, observed)
    }

    /// A connection to the executor, or to the reader of its journal where there is one: for requests that change nothing.
    pub(super) fn to_either(observed: &Observations, random: &mut StdRng) -> Self {
        if observed.has_reader() && random.random_bool(0.5) {
            trace::count("connections to the one that only reads");
            return Self::to(hosts::READER_URI, observed);
        }
        Self::new(observed)
    }

    /// The same connection, or a new one to either of them where there is a reader.
    pub(super) fn or_either(self, random: &mut StdRng) -> Self {
        if self.observed.has_reader() { Self::to_either(&self.observed, random) } else { self }
    }

    fn to(uri: &'static str, observed: &Observations) -> Self {
        Self {
            client: connect(uri),
            uri,
            observed: observed.clone(),
            is_lost: false,
            taken: BTreeSet::new(),
            is_refused: false,
            plan_refused: None,
            may_be_missing: false,
        }
    }

    /// One for requests that are sent at the same time, on the same way.
    fn another(&self) -> Self {
        Self { client: self.client.clone(), ..Self::new(&self.observed) }
    }

    /// Sends a request; `None` when there is no response, or an expected refusal.
    pub(super) async fn ask<T, Fut>(&mut self, ask: impl FnOnce(ExecutorServiceClient<Channel>) -> Fut) -> Option<T>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        self.is_refused = false;
        let answer = self.try_ask(ask).await;
        if let Err(Some(status)) = &answer {
            self.refused(status);
        }
        answer.ok()
    }

    /// Sends a request; `Err` with the refusal, of which nothing is recorded, or without one when there is no response.
    pub(super) async fn try_ask<T, Fut>(
        &mut self,
        ask: impl FnOnce(ExecutorServiceClient<Channel>) -> Fut,
    ) -> Result<T, Option<Status>>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        match tokio::time::timeout(RPC_TIMEOUT, ask(self.client.clone())).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(Some),
            Err(_) => {
                trace::event("no answer");
                self.client = connect(self.uri);
                Err(None)
            }
        }
    }

    /// Whether an execution that was requested was lost with the journal, or retention has deleted it.
    pub(super) fn is_gone(&self, name: &str) -> bool {
        self.is_lost || self.taken.contains(name)
    }

    /// Whether what a refusal does not find may be lost with the journal.
    fn may_be_lost(&self, status: &Status) -> bool {
        let is_known = || status::fact(status, "name").is_some_and(|name| self.observed.is_known(&name));
        self.observed.execution_may_be_gone() && !is_known()
    }

    /// The execution that a refusal names, when retention has deleted it.
    fn taken(&self, status: &Status) -> Option<String> {
        status::fact(status, "name").filter(|name| self.observed.is_taken(name))
    }

    /// Records a refusal, which is a violation unless it is expected.
    pub(super) fn refused(&mut self, status: &Status) {
        let (code, message) = (status.code(), status.message());
        trace::event(format_args!("refused: {code:?} {message}"));
        let reason = status::reason(status);
        let is_ours = std::error::Error::source(status).is_none();
        self.is_refused = matches!(code, Code::FailedPrecondition | Code::InvalidArgument | Code::NotFound);
        self.plan_refused = (reason.as_deref() == Some("PLAN_REFUSED")).then(|| message.to_owned());
        match reason.as_deref() {
            Some(reason) if EXPECTED.contains(&reason) => {}
            Some("EXECUTION_NOT_FOUND") if self.may_be_missing => {}
            Some("EXECUTION_NOT_FOUND") if self.may_be_lost(status) => self.is_lost = true,
            Some("EXECUTION_NOT_FOUND" | "EXECUTION_DELETED") if let Some(name) = self.taken(status) => {
                trace::count("requests about what was not kept");
                self.taken.insert(name);
            }
            // By a client.
            Some("EXECUTION_DELETED") if !self.observed.deletions().is_empty() => {}
            Some(reason @ "EXECUTION_NOT_FOUND") => {
                self.observed.violation(format_args!("what was observed is gone: {reason}: {message}"));
            }
            Some(reason) => self.observed.violation(format_args!("{reason}: {message}")),
            None if is_ours && matches!(code, Code::Internal | Code::DataLoss | Code::InvalidArgument) => {
                self.observed.violation(format_args!("{code:?}: {message}"));
            }
            None => self.client = connect(self.uri),
        }
    }
}

pub(super) fn connect(uri: &'static str) -> ExecutorServiceClient<Channel> {
    ExecutorServiceClient::new(hosts::channel(uri))
}

/// One client machine: processes its orders concurrently.
pub(super) async fn work(orders: Vec<Order>, observed: Observations) -> turmoil::Result {
    join_all(orders.into_iter().map(|order| carry_through(order, &observed))).await;
    Ok(())
}

async fn carry_through(mut order: Order, observed: &Observations) {
    tokio::time::sleep(order.after).await;
    loop {
        let restores = observed.restores();
        try_carry_through(&order, observed).await;
        observed.until_settled().await;
        if observed.restores() == restores {
            return observed.ended(&order.request_id);
        }
        trace::count("orders given again");
        order.given_before += 1;
    }
}

async fn try_carry_through(order: &Order, observed: &Observations) {
    let mut random = StdRng::seed_from_u64(order.seed);
    let name = start(order, observed, &mut random).await;
    follow(&name, order, observed, &mut random).await;
    let forks = random.random_bool(order.forks);
    let fork = if forks { forks::fork(&name, &order.request_id, observed, &mut random).await } else { None };
    if random.random_bool(order.deletes) {
        deletions::delete(&name, &format!("{}-delete", order.request_id), observed, &mut random).await;
    }
    if let Some((fork, request)) = fork {
        let order = Order { request_id: forks::request_of(&order.request_id), ..order.clone() };
        follow(&fork, &order, observed, &mut random).await;
        forks::repeat(&fork, request, observed).await;
    }
}

/// Attends to an execution and watches it, until its end.
async fn follow(name: &str, order: &Order, observed: &Observations, random: &mut StdRng) {
    let seed = random.random();
    let is_followed = Cell::new(false);
    tokio::join!(attend(name, order, observed, &is_followed, random), async {
        watcher::watch(name, observed, StdRng::seed_from_u64(seed)).await;
        is_followed.set(true);
    });
}

/// Sends the request until there is a response, each time with the same request id. S2-NFR-007, S2-FR-058, B-15.
async fn start(order: &Order, observed: &Observations, random: &mut StdRng) -> String {
    let request = v1::StartExecutionRequest {
        parent: "namespaces/default".to_owned(),
        source: Some(source(order)),
        request_id: order.request_id.clone(),
        start_paused: random.random_bool(0.05),
        approval_mode: order.approval_mode.into(),
        workspace: order.workspace.clone(),
        inputs: order.inputs.given.as_ref().map(|given| v1::Payload::of_json(given.to_string())),
        ..v1::StartExecutionRequest::default()
    };
    let mut connection = Connection::new(observed);
    if let Some(wrong) = &order.inputs.wrong {
        let inputs = Some(v1::Payload::of_json(wrong.to_string()));
        let request_id = format!("{}-wrong", order.request_id);
        let request = v1::StartExecutionRequest { inputs, request_id, ..request.clone() };
        match connection.ask(|mut client| async move { client.start_execution(request).await }).await {
            Some(started) => observed.violation(format_args!("{} was started with {wrong}", started.name)),
            None if connection.plan_refused.take().is_some() => trace::count("inputs refused"),
            None => {}
        }
    }
    loop {
        let request = request.clone();
        let answer = connection.ask(|mut client| async move { client.start_execution(request).await });
        if let Some(execution) = answer.await {
            trace::event(format_args!("{} is {}", order.request_id, execution.name));
            observed.started(&order.request_id, &execution);
            return execution.name;
        }
        if let Some(name) = connection.taken.pop_first() {
            // Its answer was lost, and it was deleted before the request was repeated.
            trace::count("starts of what was not kept");
            return name;
        }
        if let Some(why) = connection.plan_refused.take() {
            observed.violation(format_args!("the plan of {} was refused: {why}", order.request_id));
        }
        pause(random, 200).await;
    }
}

/// The plan as it is sent.
fn source(order: &Order) -> v1::start_execution_request::Source {
    use v1::start_execution_request::Source;
    let Some(text) = order.document.clone() else { return Source::Plan(order.plan.clone()) };
    // JSON is YAML.
    let formats = [v1::PlanFormat::Unspecified, v1::PlanFormat::Json, v1::PlanFormat::Yaml];
    let format = formats[usize::try_from(order.seed % 3).unwrap_or_default()].into();
    trace::count("documents sent");
    Source::Document(v1::PlanDocument { format, text })
}

/// Polls an execution until it has ended: pauses, resumes and cancels it while faults happen, and lets it end afterwards. One whose end may be lost with
/// the journal is polled until it is followed to its end.
async fn attend(name: &str, order: &Order, observed: &Observations, is_followed: &Cell<bool>, random: &mut StdRng) {
    let request_id = match order.given_before {
        0 => order.request_id.clone(),
        before => format!("{}-again-{before}", order.request_id),
    };
    let mut connection = Connection::new(observed);
    let mut may_go_on = random.random_bool(order.goes_on);
    // A request to go on that may yet be carried out: the execution has not ended before that is known.
    let mut unanswered = None;
    for number in 0.. {
        pause(random, 400).await;
        let Some(execution) = look(&mut connection, name, random).await else {
            if connection.is_gone(name) {
                return trace::count("executions gone before their client");
            }
            continue;
        };
        let state = execution.state();
        if is_terminal(state) {
            have_ended(&mut connection, observed, &execution, random).await;
            if let Some(request) = unanswered.take() {
                unanswered = retry(&mut connection, observed, request).await;
                continue;
            }
            if state == execution::State::Completed || !std::mem::replace(&mut may_go_on, false) {
                if observed.end_may_be_gone() && !is_followed.get() {
                    continue;
                }
                return;
            }
            let request = retry_request(name, format!("{request_id}-{number}"), random);
            unanswered = retry(&mut connection, observed, request).await;
            continue;
        }
        let in_doubt = |step: &v1::Step| is_in_doubt(observed, step);
        let request = format!("{request_id}-{number}");
        let chance = random.random_range(0..100);
        let is_wait =
            |step: &v1::Step| matches!(&step.detail, Some(step::Detail::Wait(wait)) if !wait.signal.is_empty());
        if execution.steps.iter().any(is_wait) {
            // Early ones are kept; without one, nothing would end the wait.
            let waits = execution.steps.iter().any(|step| is_wait(step) && step.state() == step::State::Waiting);
            if random.random_bool(if observed.is_healed() && waits { 1.0 } else { 0.1 }) {
                signal(&mut connection, observed, name, format!("{request}-signal")).await;
            }
        }
        if order.is_driven && state != execution::State::Paused && random.random_bool(0.4) {
            resume(&mut connection, observed, name, format!("{request}-drive")).await;
        }
        if order.deletes > 0.0 {
            delete_children(&mut connection, observed, order, &execution, &request, random).await;
        }
        if observed.is_healed() || chance < 20 {
            attend_children(&mut connection, observed, &execution, &request, random).await;
        }
        if execution.steps.iter().any(in_doubt) && (observed.is_healed() || chance < 20) {
            // A person finds out what the call did, or gives up.
            match execution.steps.iter().find(|step| in_doubt(step)) {
                Some(step) if random.random_bool(0.7) => {
                    resolve(&mut connection, observed, step, request, random).await;
                }
                Some(_) | None => cancel(&mut connection, observed, name, request).await,
            }
        } else if state == execution::State::Paused && is_paused_by_plan(&execution) && random.random_bool(0.4) {
            let again = retry_request(name, request, random);
            unanswered = retry(&mut connection, observed, again).await;
            if connection.is_refused {
                is_still_paused(&mut connection, observed, &execution, random).await;
            }
        } else if state == execution::State::Paused {
            if observed.is_healed() || chance < 50 {
                resume(&mut connection, observed, name, request).await;
            }
        } else if !observed.is_healed() {
            match chance {
                0..8 => {
                    let discards_calls = random.random();
                    // A pause ends while it is still being carried out in the executions of the steps' plans.
                    let ends_at_once = carries_out_plans(&execution) && random.random_bool(0.7);
                    let mut another = connection.another();
                    let end = async {
                        if ends_at_once {
                            resume(&mut another, observed, name, format!("{request}-at-once")).await;
                        }
                    };
                    tokio::join!(suspend(&mut connection, observed, name, request.clone(), discards_calls), end);
                }
                8..10 => cancel(&mut connection, observed, name, request).await,
                10..16 => change(&mut connection, observed, &execution, request, random).await,
                16..18 if unanswered.is_none() => {
                    unanswered = retry(&mut connection, observed, retry_request(name, request, random)).await;
                }
                22..60 if to_fall_back(&execution).is_some() => {
                    change(&mut connection, observed, &execution, request, random).await;
                }
                18..22 => update(&mut connection, observed, &execution, request, random).await,
                _ => {}
            }
        }
    }
}

/// Whether its plan has paused it because of what failed.
fn is_paused_by_plan(execution: &v1::Execution) -> bool {
    use step::State as S;
    let is_over = |step: &v1::Step| matches!(step.state(), S::Completed | S::Failed | S::Skipped | S::Cancelled);
    let escalation = execution.plan.as_ref().and_then(|plan| plan.escalation.as_ref());
    escalation.is_some_and(|escalation| escalation.pause)
        && execution.steps.iter().all(is_over)
        && execution.steps.iter().any(|step| step.state() == S::Failed)
}

/// An execution that its plan has paused because of what failed was refused to run that again, which it must not be while it is paused.
async fn is_still_paused(
    connection: &mut Connection,
    observed: &Observations,
    before: &v1::Execution,
    random: &mut StdRng,
) {
    let now = look(connection, &before.name, random).await;
    if let Some(now) = now.filter(|now| now.last_sequence == before.last_sequence && !is_terminal(now.state())) {
        observed.violation(format_args!("{} waits for a person, who cannot have it run again: {now:?}", now.name));
    }
}

/// Whether a person has to find out what a step's call did. Only calls with external effects, calls of a lost ledger or of a damaged row, and calls whose
/// outcome a replaced journal no longer has and the runner has forgotten, can have an unknown outcome. Anything else that is stuck stays so, and is found.
fn is_in_doubt(observed: &Observations, step: &v1::Step) -> bool {
    let failed_for = |reason: &str| step.failure.as_ref().is_some_and(|failure| failure.reason == reason);
    let is_lost = failed_for("LEDGER_CHANGED")
        || (failed_for("CALL_ACKNOWLEDGED") && !observed.journal_remembers())
        || observed.is_row_damaged(&step.name);
    step.state() == step::State::OutcomeUnknown
        && (matches!(&step.detail, Some(step::Detail::Tool(detail)) if tools::reaches_out(&detail.tool)) || is_lost)
}

/// Finds out what calls did in the executions of the plans that steps have, and pauses, resumes and cancels these now and then.
async fn attend_children(
    connection: &mut Connection,
    observed: &Observations,
    execution: &v1::Execution,
    request_id: &str,
    random: &mut StdRng,
) {
    let mut open = vec![(execution.clone(), request_id.to_owned())];
    while let Some((execution, request_id)) = open.pop() {
        let running = |step: &&v1::Step| step.state() == step::State::Running;
        for step in execution.steps.iter().filter(running) {
            let Some(child) = child_of(connection, step, random).await else { continue };
            let request = format!("{request_id}-{}", step.step_id);
            if let Some(step) = child.steps.iter().find(|step| is_in_doubt(observed, step)) {
                resolve(connection, observed, step, request, random).await;
            } else if is_paused_by_person(&child) && execution.state() != execution::State::Paused {
                resume(connection, observed, &child.name, request).await;
            } else if !observed.is_healed() {
                match random.random_range(0..100) {
                    0..10 => suspend(connection, observed, &child.name, request, random.random()).await,
                    10..15 => cancel(connection, observed, &child.name, request).await,
                    _ => open.push((child, request)),
                }
            } else {
                open.push((child, request));
            }
        }
    }
}

fn carries_out_plans(execution: &v1::Execution) -> bool {
    let is_plan = |step: &v1::Step| matches!(step.detail, Some(step::Detail::Plan(_)));
    execution.steps.iter().any(|step| is_plan(step) && step.state() == step::State::Running)
}

/// Whether the execution of a step's plan waits for a person to resume it: one that was paused with its parent goes on with it.
fn is_paused_by_person(child: &v1::Execution) -> bool {
    let is_by_parent = |reason: &v1::WaitingReason| reason.principal == child.parent_step;
    child.state() == execution::State::Paused && !child.waiting.iter().any(is_by_parent)
}

/// Deletes the executions of the plans that steps have, where it may: those whose end is recorded.
async fn delete_children(
    connection: &mut Connection,
    observed: &Observations,
    order: &Order,
    execution: &v1::Execution,
    request_id: &str,
    random: &mut StdRng,
) {
    let mut open = vec![(execution.clone(), request_id.to_owned())];
    while let Some((execution, request_id)) = open.pop() {
        for step in &execution.steps {
            let chance = if step.state() == step::State::Running { 0.6 } else { 0.1 };
            if !random.random_bool(chance) {
                continue;
            }
            let Some(child) = child_of(connection, step, random).await else { continue };
            let request = format!("{request_id}-{}-delete", step.step_id);
            // Its parent may not be driven, and does not hear of its end.
            if order.is_driven && !is_terminal(child.state()) && random.random_bool(0.5) {
                resume(connection, observed, &child.name, format!("{request}-drive")).await;
            }
            if !deletions::delete_child(connection, &child, &request, observed, random).await {
                open.push((child, request));
            }
        }
    }
}

/// The execution of the plan that a step has.
async fn child_of(connection: &mut Connection, step: &v1::Step, random: &mut StdRng) -> Option<v1::Execution> {
    let Some(step::Detail::Plan(detail)) = &step.detail else { return None };
    if detail.execution.is_empty() {
        return None;
    }
    // Its name is known before it is stored.
    connection.may_be_missing = true;
    let child = look(connection, &detail.execution, random).await;
    connection.may_be_missing = false;
    child
}

/// The executions of the plans that the steps of an execution have end before it does, however deep they are.
async fn have_ended(
    connection: &mut Connection,
    observed: &Observations,
    execution: &v1::Execution,
    random: &mut StdRng,
) {
    let mut ended = vec![execution.clone()];
    while let Some(execution) = ended.pop() {
        for step in &execution.steps {
            let Some(child) = child_of(connection, step, random).await else { continue };
            trace::count("children that had ended before");
            if !is_terminal(child.state()) {
                observed.violation(format_args!("{} has ended, and {} has not", execution.name, child.name));
            }
            ended.push(child);
        }
    }
}

/// To have what did not complete run again.
fn retry_request(name: &str, request_id: String, random: &mut StdRng) -> v1::RetryExecutionRequest {
    v1::RetryExecutionRequest {
        name: name.to_owned(),
        skip_failed: random.random_bool(0.2),
        start_paused: random.random_bool(0.1),
        reason: "the seed said so".to_owned(),
        request_id,
        ..v1::RetryExecutionRequest::default()
    }
}

/// Sends it twice. Returns it when there is no answer.
async fn retry(
    connection: &mut Connection,
    observed: &Observations,
    request: v1::RetryExecutionRequest,
) -> Option<v1::RetryExecutionRequest> {
    let mut is_known = false;
    for _ in 0..2 {
        let again = request.clone();
        let answer = connection.ask(|mut client| async move { client.retry_execution(again).await });
        let answer = answer.await;
        is_known |= answer.is_some() || connection.is_refused;
        if let Some(execution) = answer {
            observed.acknowledged(&request.name, request.request_id.clone());
            observed.saw(&execution);
        }
    }
    (!is_known).then_some(request)
}

/// Adds a step to the plan, and renames one that waits.
async fn update(
    connection: &mut Connection,
    observed: &Observations,
    execution: &v1::Execution,
    request_id: String,
    random: &mut StdRng,
) {
    let Some(mut plan) = execution.plan.clone() else { return };
    let waits = |step: &v1::Step| step.state() == step::State::Pending && step.attempt == 0;
    if let Some(waiting) = execution.steps.iter().find(|step| waits(step))
        && let Some(step) = plan.steps.iter_mut().find(|step| step.id == waiting.step_id)
    {
        step.title = format!("revision {}", execution.plan_revision + 1);
    }
    let is_call = |step: &&v1::StepSpec| matches!(step.kind, Some(v1::step_spec::Kind::Tool(_)));
    let Some(like) = plan.steps.iter().find(is_call).cloned() else { return };
    let on = plan.steps[random.random_range(0..plan.steps.len())].id.clone();
    let kind = like.kind.map(|kind| match kind {
        v1::step_spec::Kind::Tool(tool) => {
            v1::step_spec::Kind::Tool(v1::ToolStep { arguments: Some(v1::Payload::of_json(r#"{"value":0}"#)), ..tool })
        }
        other => other,
    });
    let (id, depends_on) = (format!("s{}", plan.steps.len()), vec![on]);
    plan.steps.push(v1::StepSpec { id, depends_on, kind, ..v1::StepSpec::default() });
    let request = v1::UpdatePlanRequest {
        name: execution.name.clone(),
        source: Some(v1::update_plan_request::Source::Plan(plan)),
        revision: Some(execution.plan_revision),
        reason: "the seed said so".to_owned(),
        request_id: request_id.clone(),
        ..v1::UpdatePlanRequest::default()
    };
    for _ in 0..2 {
        let request = request.clone();
        let answer = connection.ask(|mut client| async move { client.update_plan(request).await });
        if let Some(execution) = answer.await {
            observed.acknowledged(&execution.name, request_id.clone());
            observed.saw(&execution);
        }
    }
}

/// A step that waits for its next attempt, and has had a call to fall back to.
fn to_fall_back(execution: &v1::Execution) -> Option<&v1::Step> {
    let specs = || execution.plan.iter().flat_map(|plan| &plan.steps);
    let falls_back = |step: &&v1::Step| {
        let id = step.step_id.split('~').next().unwrap_or_default();
        let has_fallback = |spec: &v1::StepSpec| spec.id == id && !spec.fallback.is_empty();
        step.state() == step::State::BackingOff && specs().any(has_fallback)
    };
    execution.steps.iter().find(falls_back)
}

/// Changes what becomes of a step that waits to start, or for its next attempt.
async fn change(
    connection: &mut Connection,
    observed: &Observations,
    execution: &v1::Execution,
    request_id: String,
    random: &mut StdRng,
) {
    use step::State::{BackingOff, Pending, Ready};
    let can_change = |step: &&v1::Step| matches!(step.state(), Pending | Ready | BackingOff);
    let steps: Vec<&v1::Step> = execution.steps.iter().filter(can_change).collect();
    if steps.is_empty() {
        return;
    }
    let to_fall_back = to_fall_back(execution);
    let is_fallback = to_fall_back.is_some() && random.random_bool(0.7);
    let step = to_fall_back.filter(|_| is_fallback).unwrap_or(steps[random.random_range(0..steps.len())]);
    let (name, reason, id) = (step.name.clone(), "the seed said so".to_owned(), request_id.clone());
    let answer = match if is_fallback { 4 } else { random.random_range(0..4) } {
        0 => {
            let request = v1::SkipStepRequest { name, reason, request_id: id, etag: String::new() };
            connection.ask(|mut client| async move { client.skip_step(request).await }).await
        }
        1 => {
            let output = Some(v1::Payload::of_json(r#"{"run":0}"#));
            let request = v1::SetStepOutputRequest { name, output, reason, request_id: id, etag: String::new() };
            connection.ask(|mut client| async move { client.set_step_output(request).await }).await
        }
        change => {
            let change = match change {
                2 => v1::RetryChange::Now,
                3 => v1::RetryChange::Cancel,
                _ => v1::RetryChange::Fallback,
            };
            let change = change.into();
            let request = v1::RetryStepRequest { name, change, reason, request_id: id, etag: String::new() };
            connection.ask(|mut client| async move { client.retry_step(request).await }).await
        }
    };
    if let Some(execution) = answer {
        trace::count("steps changed by a person");
        observed.acknowledged(&execution.name, request_id);
        observed.saw(&execution);
    }
}

async fn look(connection: &mut Connection, name: &str, random: &mut StdRng) -> Option<v1::Execution> {
    let name = name.to_owned();
    let execution = if random.random_bool(0.2) {
        let longest_wait = Some(belay_proto::duration(RPC_TIMEOUT / 2));
        let request = v1::WaitExecutionRequest { name, longest_wait };
        let answer = connection.ask(|mut client| async move { client.wait_execution(request).await });
        answer.await?
    } else {
        let view = v1::ExecutionView::Full.into();
        let request = v1::GetExecutionRequest { name, view };
        let answer = connection.ask(|mut client| async move { client.get_execution(request).await });
        answer.await?
    };
    connection.observed.saw(&execution);
    if random.random_bool(0.3) {
        with_outputs(connection, &execution).await;
    }
    Some(execution)
}

/// The execution with the outputs of its steps, when it is still in this state.
pub(super) async fn with_outputs(connection: &mut Connection, execution: &v1::Execution) -> Option<v1::Execution> {
    let view = v1::StepView::Full.into();
    let request = v1::ListStepsRequest { parent: execution.name.clone(), page_size: 1_000, view, ..Default::default() };
    let answer = connection.ask(|mut client| async move { client.list_steps(request).await });
    let page = answer.await.filter(|page| page.last_sequence == execution.last_sequence)?;
    let whole = v1::Execution { steps: page.steps, ..execution.clone() };
    connection.observed.saw_to(&whole, Depth::Outputs);
    Some(whole)
}

async fn cancel(connection: &mut Connection, observed: &Observations, name: &str, request_id: String) {
    let request = v1::CancelExecutionRequest {
        name: name.to_owned(),
        reason: "the seed said so".to_owned(),
        request_id: request_id.clone(),
        ..v1::CancelExecutionRequest::default()
    };
    let answer = connection.ask(|mut client| async move { client.cancel_execution(request).await });
    if let Some(execution) = answer.await {
        trace::count("cancellations");
        observed.acknowledged(name, request_id);
        observed.saw(&execution);
    }
}

/// The same signal twice, with one request id: one of them counts.
async fn signal(connection: &mut Connection, observed: &Observations, name: &str, request_id: String) {
    let payload = v1::payload::Content::Json(r#"{"run":0}"#.to_owned());
    let request = v1::SignalExecutionRequest {
        name: name.to_owned(),
        signal: plans::SIGNAL.to_owned(),
        payload: Some(v1::Payload { content: Some(payload) }),
        request_id: request_id.clone(),
    };
    for _ in 0..2 {
        let request = request.clone();
        let answer = connection.ask(|mut client| async move { client.signal_execution(request).await });
        if let Some(execution) = answer.await {
            trace::count("signals");
            observed.acknowledged(name, request_id.clone());
            observed.saw(&execution);
        }
    }
}

/// Says what a call did whose outcome is unknown.
async fn resolve(
    connection: &mut Connection,
    observed: &Observations,
    step: &v1::Step,
    request_id: String,
    random: &mut StdRng,
) {
    let (resolution, result) = match random.random_range(0..3) {
        0 => (v1::StepResolution::Completed, Some(v1::Payload::of_json(r#"{"run":0}"#))),
        1 => (v1::StepResolution::Failed, None),
        _ => (v1::StepResolution::Again, None),
    };
    let request = v1::ResolveStepRequest {
        name: step.name.clone(),
        resolution: resolution.into(),
        result,
        reason: "the seed said so".to_owned(),
        request_id: request_id.clone(),
        ..v1::ResolveStepRequest::default()
    };
    let answer = connection.ask(|mut client| async move { client.resolve_step(request).await });
    if let Some(execution) = answer.await {
        trace::count("unknown outcomes resolved");
        observed.acknowledged(&execution.name, request_id);
        observed.saw(&execution);
    }
}

async fn suspend(
    connection: &mut Connection,
    observed: &Observations,
    name: &str,
    request_id: String,
    discard_calls: bool,
) {
    let request = v1::PauseExecutionRequest {
        name: name.to_owned(),
        reason: "the seed said so".to_owned(),
        request_id: request_id.clone(),
        discard_calls,
        ..v1::PauseExecutionRequest::default()
    };
    let answer = connection.ask(|mut client| async move { client.pause_execution(request).await });
    if let Some(execution) = answer.await {
        trace::count("pauses");
        observed.acknowledged(name, request_id);
        observed.saw(&execution);
    }
}

async fn resume(connection: &mut Connection, observed: &Observations, name: &str, request_id: String) {
    let request = v1::ResumeExecutionRequest {
        name: name.to_owned(),
        request_id: request_id.clone(),
        ..v1::ResumeExecutionRequest::default()
    };
    let answer = connection.ask(|mut client| async move { client.resume_execution(request).await });
    if let Some(execution) = answer.await {
        trace::count("resumptions");
        observed.acknowledged(name, request_id);
        observed.saw(&execution);
    }
}

/// Waits for up to `longest` milliseconds.
pub(super) async fn pause(random: &mut StdRng, longest: u64) {
    tokio::time::sleep(Duration::from_millis(random.random_range(10..longest))).await;
}

pub(super) fn is_terminal(state: execution::State) -> bool {
    use execution::State as S;
    matches!(state, S::Completed | S::Partial | S::Failed | S::Cancelled | S::TimedOut)
}
