//! Deletes executions: a root once it has ended, and the executions of steps' plans whenever there is one. What is deleted is gone for readers, nothing
//! else is, and what a parent has recorded of a child is not changed by it.

use std::collections::BTreeMap;
use std::time::Duration;

use belay_proto::v1::{self, child_ended::End, execution};
use belay_service_kit::status;
use rand::Rng;
use rand::rngs::StdRng;

use super::audit::{Evidence, SKEW, Violations};
use super::children::Children;
use super::client::{Connection, is_terminal, pause};
use super::hosts;
use super::observed::Observations;
use super::records::Deletion;
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

/// The executions that may be gone since they were deleted.
pub(super) fn gone(evidence: &Evidence<'_>) -> BTreeMap<String, Deletion> {
    let mut deletions = evidence.observed.deletions();
    deletions.retain(|name, _| !evidence.stored.executions.contains_key(name));
    deletions
}

/// B-28: what was deleted is gone, everywhere, after its end was recorded where it belongs.
pub(super) fn audit(evidence: &Evidence<'_>, children: &Children<'_>, violations: &mut Violations) {
    let kept = &evidence.stored.executions;
    for (name, deletion) in evidence.observed.deletions() {
        let Some(acknowledged_at) = deletion.acknowledged_at else { continue };
        if kept.contains_key(&name) {
            violations.push(format!("{name} was deleted, and is there again"));
        }
        if let Some((parent, recorded)) = children.get(&name).and_then(|child| child.recorded())
            && evidence.owners.stored_at(parent, recorded).is_some_and(|recorded| recorded > acknowledged_at + SKEW)
        {
            violations.push(format!("{name} was deleted before {parent} had recorded its end"));
        }
        let of_it = |approval: &&v1::Approval| approval.execution == name;
        if deletion.is_complete
            && let Some(approval) = evidence.stored.approvals.values().find(of_it)
        {
            violations.push(format!("{name} was deleted, and the gate has {}", approval.name));
        }
        if deletion.is_complete
            && let Some(folder) = hosts::own_workspace(&name)
            // Its forks and the executions of its steps work there.
            && !kept.values().any(|kept| hosts::workspace(&kept.execution) == folder)
            && evidence.workspaces.get(&folder).is_some_and(|changes| !changes.is_empty())
        {
            violations.push(format!("{name} was deleted, and its workspace is there"));
        }
    }
}

/// Checks that a parent has recorded the end of a deleted child as a client saw it last.
pub(super) fn of_child(name: &str, ended: &v1::ChildEnded, observed: &Observations) -> Option<String> {
    use execution::State as S;
    if let Some(End::Failure(failure)) = &ended.end
        && failure.reason == "CHILD_LOST"
    {
        return Some(format!("{name} had ended and was deleted, and its parent has lost it"));
    }
    let seen = observed.last_state(name).filter(|state| is_terminal(*state))?;
    let fits = match &ended.end {
        Some(End::Output(_)) => seen == S::Completed,
        // Its outputs may be too large.
        Some(End::Failure(failure)) => seen != S::Completed || failure.reason == "CHILD_REFUSED",
        Some(End::Cancelled(_)) => seen == S::Cancelled,
        None => false,
    };
    trace::count("children deleted after their ends");
    (!fits).then(|| format!("{name} was {seen:?} when it was deleted, and its parent has recorded {:?}", ended.end))
}
