//! Clients: they start executions, pause, resume and cancel them, and watch them to their end.

mod changes;
mod children;
mod connection;
mod deletions;
mod forks;
mod order;
mod pause;
mod requests;
mod states;

use std::cell::Cell;

use belay_proto::v1::{self, execution, step};
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::changes::{change, update};
use self::children::{attend_children, delete_children, have_ended};
use self::requests::{cancel, look, resolve, resume, retry, retry_request, signal, suspend};
use self::states::{carries_out_plans, is_in_doubt, is_paused_by_plan, to_fall_back};
use super::records::{Observations, request_of};
use super::watcher;
use crate::trace;

pub(super) use self::connection::{Connection, RPC_TIMEOUT, connect};
pub(super) use self::order::Order;
pub(super) use self::pause::pause;
pub(super) use self::requests::with_outputs;
pub(super) use self::states::is_terminal;

/// A client machine: processes its orders concurrently.
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
        let order = Order { request_id: request_of(&order.request_id), ..order.clone() };
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
