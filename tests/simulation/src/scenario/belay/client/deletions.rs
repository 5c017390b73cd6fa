//! Deletes executions: a root once it has ended, and the executions of steps' plans whenever there is one. What is deleted is gone for readers.

use std::time::Duration;

use belay_proto::v1;
use belay_service_kit::status;
use rand::Rng;
use rand::rngs::StdRng;

use super::super::hosts;
use super::super::records::Observations;
use super::connection::Connection;
use super::pause::pause;
use super::states::is_terminal;
use crate::trace;

/// The outcome of one request.
enum Answer {
    Deleted { complete: bool },
    Refused(String),
    Unknown,
}

async fn ask(
    connection: &mut Connection,
    observed: &Observations,
    name: &str,
    parent_step: &str,
    request_id: &str,
) -> Answer {
    let (name, request_id) = (name.to_owned(), request_id.to_owned());
    let request = v1::DeleteExecutionRequest { name: name.clone(), request_id, ..Default::default() };
    observed.deleting(&name, parent_step);
    trace::event(format_args!("{name} is to be deleted"));
    match connection.try_ask(|mut client| async move { client.delete_execution(request).await }).await {
        Ok(v1::DeleteExecutionResponse { complete }) => {
            observed.deleted(&name, hosts::now_micros(), complete);
            Answer::Deleted { complete }
        }
        Err(Some(status)) => match status::reason(&status) {
            Some(reason) if matches!(&*reason, "END_NOT_RECORDED" | "EXECUTION_NOT_ENDED" | "EXECUTION_NOT_FOUND") => {
                trace::event(format_args!("{name} is not deleted: {reason}"));
                observed.not_deleted(&name);
                Answer::Refused(reason)
            }
            _ => {
                connection.refused(&status);
                Answer::Unknown
            }
        },
        Err(None) => Answer::Unknown,
    }
}

/// Deletes an execution that has ended and belongs to no other, with one request id until everything has forgotten it.
pub(super) async fn delete(name: &str, request_id: &str, observed: &Observations, random: &mut StdRng) {
    let mut connection = Connection::new(observed);
    let mut asked = false;
    loop {
        match ask(&mut connection, observed, name, "", request_id).await {
            Answer::Deleted { complete: true } => break,
            // A clock that is far ahead has freed its name.
            Answer::Refused(reason) if reason == "EXECUTION_NOT_FOUND" && (asked || observed.is_taken(name)) => break,
            Answer::Refused(reason) => {
                return observed.violation(format_args!("{name} has ended and is not deleted: {reason}"));
            }
            Answer::Deleted { complete: false } | Answer::Unknown => asked = true,
        }
        pause(random, 200).await;
    }
    trace::count("executions deleted");
    is_gone(&mut connection, name, observed, random).await;
}

/// A deleted execution is gone for readers.
async fn is_gone(connection: &mut Connection, name: &str, observed: &Observations, random: &mut StdRng) {
    loop {
        let request = v1::GetExecutionRequest { name: name.to_owned(), view: v1::ExecutionView::Basic.into() };
        match connection.try_ask(|mut client| async move { client.get_execution(request).await }).await {
            Ok(found) => {
                return observed.violation(format_args!("{name} was deleted, and is there again: {:?}", found.state()));
            }
            Err(Some(status)) if status::reason(&status).as_deref() == Some("EXECUTION_NOT_FOUND") => return,
            Err(Some(status)) => connection.refused(&status),
            Err(None) => {}
        }
        pause(random, 100).await;
    }
}

/// How often a client asks to delete an execution that has not ended: one of them comes as soon as it has.
const MAX_TRIES: usize = 8;

/// Tries to delete the execution of a step's plan, which is refused until its end is recorded. Returns whether it was deleted.
pub(super) async fn delete_child(
    connection: &mut Connection,
    child: &v1::Execution,
    request_id: &str,
    observed: &Observations,
    random: &mut StdRng,
) -> bool {
    for number in 0..random.random_range(1..=MAX_TRIES) {
        let request_id = format!("{request_id}-{number}");
        match ask(connection, observed, &child.name, &child.parent_step, &request_id).await {
            Answer::Deleted { .. } => {
                trace::count("children deleted");
                is_gone(connection, &child.name, observed, random).await;
                return true;
            }
            Answer::Refused(reason) if reason == "END_NOT_RECORDED" => trace::count("children not deleted yet"),
            Answer::Refused(reason) if reason == "EXECUTION_NOT_ENDED" && !is_terminal(child.state()) => {}
            Answer::Refused(reason) if reason == "EXECUTION_NOT_ENDED" => {
                observed.violation(format_args!("{} had ended, and is not deleted: {reason}", child.name));
            }
            Answer::Refused(_) | Answer::Unknown => return false,
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(1..20))).await;
    }
    false
}
