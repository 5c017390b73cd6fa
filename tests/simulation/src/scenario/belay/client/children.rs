//! Actions of clients on the executions of the plans that steps have.

use belay_proto::v1::{self, execution, step};
use rand::Rng;
use rand::rngs::StdRng;

use super::super::records::Observations;
use super::connection::Connection;
use super::deletions;
use super::order::Order;
use super::requests::{cancel, look, resolve, resume, suspend};
use super::states::{is_in_doubt, is_paused_by_person, is_terminal};
use crate::trace;

/// Finds out what calls did in the executions of the plans that steps have, and pauses, resumes and cancels these now and then.
pub(super) async fn attend_children(
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

/// Deletes the executions of the plans that steps have, where it may: those whose end is recorded.
pub(super) async fn delete_children(
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
pub(super) async fn have_ended(
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
