//! Forks executions that have ended.

use belay_proto::v1;
use belay_service_kit::status;
use rand::Rng;
use rand::rngs::StdRng;
use tonic::Code;

use super::super::records::{Fork, Observations, request_of};
use super::connection::Connection;
use super::pause::pause;
use super::requests::with_outputs;
use crate::trace;

/// Forks an execution that has ended; returns the name of the fork and the request, unless nothing would run or too much would be taken over.
pub(super) async fn fork(
    name: &str,
    request_id: &str,
    observed: &Observations,
    random: &mut StdRng,
) -> Option<(String, v1::ForkExecutionRequest)> {
    let mut connection = Connection::new(observed);
    let origin = loop {
        let request = v1::GetExecutionRequest { name: name.to_owned(), view: v1::ExecutionView::Full.into() };
        let got = connection.ask(|mut client| async move { client.get_execution(request).await }).await;
        if let Some(execution) = got
            && let Some(whole) = with_outputs(&mut connection, &execution).await
        {
            break whole;
        }
        if connection.is_gone(name) {
            return None;
        }
        pause(random, 100).await;
    };
    let steps = origin.plan.as_ref().map(|plan| &plan.steps[..]).unwrap_or_default();
    let from_step = match steps.is_empty() || random.random_bool(0.4) {
        true => String::new(),
        false => steps[random.random_range(0..steps.len())].id.clone(),
    };
    let request = v1::ForkExecutionRequest {
        name: name.to_owned(),
        from_step: from_step.clone(),
        request_id: request_of(request_id),
        ..v1::ForkExecutionRequest::default()
    };
    loop {
        let asked = request.clone();
        match connection.try_ask(|mut client| async move { client.fork_execution(asked).await }).await {
            Ok(fork) => {
                trace::count("executions forked");
                trace::event(format_args!("{} is a fork of {name} from {from_step:?}", fork.name));
                observed.started(&request_of(request_id), &fork);
                observed.forked(&fork.name, Fork { origin, from_step });
                return Some((fork.name, request));
            }
            Err(Some(status)) if status::reason(&status).as_deref() == Some("NOTHING_TO_RETRY") => {
                let all = steps.len();
                if (Fork { origin: origin.clone(), from_step }).taken_over().len() < all {
                    observed.violation(format_args!("{name} is not forked, although something would run: {status:?}"));
                }
                return None;
            }
            Err(Some(status)) if status.message().contains("cannot be taken over") => {
                trace::count("forks of too much refused");
                return None;
            }
            Err(Some(status)) => connection.refused(&status),
            Err(None) => {}
        }
        if connection.is_gone(name) {
            return None;
        }
        pause(random, 200).await;
    }
}

/// Asks for a fork once more, as somebody whose reply was lost does. It is the same one or was deleted, whatever has become of its origin.
pub(super) async fn repeat(fork: &str, request: v1::ForkExecutionRequest, observed: &Observations) {
    let mut connection = Connection::new(observed);
    let origin = request.name.clone();
    match connection.try_ask(|mut client| async move { client.fork_execution(request).await }).await {
        Ok(again) if again.name == fork => trace::count("forks asked for again"),
        Ok(again) => {
            observed
                .violation(format_args!("{fork} is asked for again, and {} is another fork of {origin}", again.name));
        }
        Err(Some(status)) if status.code() == Code::NotFound && observed.execution_may_be_gone() => {}
        Err(Some(status))
            if status.code() == Code::NotFound && status::fact(&status, "name").as_deref() != Some(fork) =>
        {
            observed.violation(format_args!("{fork} is asked for again, and its request is refused: {status:?}"));
        }
        Err(_) => {}
    }
}
