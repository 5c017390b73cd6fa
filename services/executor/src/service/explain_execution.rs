use std::{ops::ControlFlow, sync::Arc};

use belay_execution::{ExecutionState, LimitState, Timestamp};
use belay_journal::ExecutionRow;
use belay_proto::v1::{self, ExecutionView};
use belay_reading::explanation::{self, CancelRequest, Circumstances, FullLimit, Outlook, explain, next_actions};
use tonic::{Code, Status};

use super::{history::History, room::Room};
use crate::{
    ExecutionReader,
    driver::claims_of,
    feeds::ReadView,
    names::ExecutionName,
    store::{journal_reads::unreadable, secrets::shown},
    wire::{self, StepDetails},
};

/// The most executions of steps that are explained with one.
const MAX_CHILDREN: usize = 8;

/// The most executions that are named of those that hold a limit.
const MAX_HOLDERS: usize = 3;

/// How many causes of an execution have the step as the plan has it, and what its calls printed last.
const FULL_CAUSES: usize = 50;

pub(super) async fn explain_execution(
    reading: &Arc<ExecutionReader>,
    request: v1::ExplainExecutionRequest,
) -> Result<v1::ExplainExecutionResponse, Status> {
    let name = ExecutionName::parse("name", &request.name)?;
    let mut room = Room::new();
    let own = explained(reading, &name, &mut room).await?;
    let mut unread: Vec<String> = own.children.into_iter().rev().collect();
    let (mut children, mut outlooks) = (Vec::new(), Vec::new());
    while let Some(child) = unread.pop().filter(|_| children.len() < MAX_CHILDREN && !room.is_full()) {
        match explained(reading, &ExecutionName::parse("name", &child)?, &mut room).await {
            Ok(found) => {
                unread.extend(found.children.into_iter().rev());
                children.push(found.message);
                outlooks.push(found.outlook);
            }
            // It was deleted, or has not begun.
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => return Err(status),
        }
    }
    let next_actions = next_actions(&own.outlook, &outlooks).iter().map(wire::action).collect();
    Ok(v1::ExplainExecutionResponse { explanation: Some(own.message), children, next_actions })
}

/// An execution that is explained.
struct ExplainedExecution {
    message: v1::Explanation,
    outlook: Outlook,
    /// The executions of steps that explain it, by name.
    children: Vec<String>,
}

async fn explained(
    reading: &Arc<ExecutionReader>,
    name: &ExecutionName,
    room: &mut Room,
) -> Result<ExplainedExecution, Status> {
    let cancel_request = cancel_request(reading, name).await?;
    let is_driven = reading.is_driven(reading.follower.find(name).await?.key);
    let full_limits = full_limits(reading, name).await?;
    let look = |seen: &ReadView<'_>| {
        let waits = seen.waits();
        let mut blockers = waits.execution.clone();
        blockers.extend(reading.availability.beside(seen.execution, &blockers));
        let beside = Circumstances {
            blockers: &blockers,
            step_blockers: &waits.steps,
            cancel_request: cancel_request.as_ref(),
            full_limits: &full_limits,
            is_driven,
        };
        let explanation = explain(&name.to_string(), seen.execution, beside);
        // What it waits for is among the causes.
        let execution = v1::Execution { waiting: Vec::new(), ..seen.execution(ExecutionView::Basic) };
        ExplainedExecution {
            message: message(seen, name, execution, &explanation, room),
            outlook: explanation.outlook(),
            children: explanation.children,
        }
    };
    reading.follower.look(name, look).await
}

/// As much of an explanation as there is room for, with its secrets hidden.
fn message(
    seen: &ReadView<'_>,
    name: &ExecutionName,
    execution: v1::Execution,
    explanation: &explanation::Explanation<'_>,
    room: &mut Room,
) -> v1::Explanation {
    let redactor = seen.redactor();
    room.take(&execution);
    let causes = explanation.causes.iter().enumerate().map(|(place, cause)| {
        let details = if place < FULL_CAUSES { StepDetails::Full } else { StepDetails::Brief };
        shown(&redactor, wire::cause(name, seen.execution, cause, details))
    });
    let (causes, left_out_causes) = room.fill(causes);
    let changes = explanation.changes.iter().map(|change| shown(&redactor, wire::step_change(change)));
    let (changes, left_out_changes) = room.fill(changes);
    let (skipped_steps, left_out_skipped_steps) = room.fill(explanation.skipped.iter().map(wire::skipped_step));
    v1::Explanation {
        execution: Some(execution),
        causes,
        left_out_causes,
        changes,
        left_out_changes,
        skipped_steps,
        left_out_skipped_steps,
    }
}

/// The limits in which the execution waits for its turn.
async fn full_limits(reading: &Arc<ExecutionReader>, name: &ExecutionName) -> Result<Vec<FullLimit>, Status> {
    let look = |seen: &ReadView<'_>| {
        let waits = matches!(seen.execution.limit_state(), LimitState::Waiting(_));
        if waits { claims_of(seen.execution) } else { Vec::new() }
    };
    let claims = reading.follower.look(name, look).await?;
    let (mut full, key) = (Vec::new(), reading.follower.find(name).await?.key);
    for claim in claims {
        let (namespace, at) = (name.namespace.clone(), reading.now().as_micros());
        let asked = claim.clone();
        let standing = reading.follower.read(move |reader| reader.limit_standing(&namespace, key, &asked, at)).await;
        let standing = standing.map_err(|error| unreadable(&error))?;
        if standing.is_free {
            continue;
        }
        let mut holders = Vec::new();
        // In a limit with a rate no execution has to end.
        let named = if standing.frees_at.is_some() { 0 } else { MAX_HOLDERS };
        for holder in standing.holders.iter().take(named) {
            let row = reading.follower.row(*holder).await.map_err(|error| unreadable(&error))?;
            let name = |row: ExecutionRow| ExecutionName { namespace: row.execution.namespace, id: row.execution.id };
            holders.extend(row.map(|row| name(row).to_string()));
        }
        full.push(FullLimit {
            key: claim.key,
            holders,
            held: standing.holders.len(),
            ahead: standing.ahead.len(),
            frees_at: standing.frees_at.map(Timestamp::from_micros),
        });
    }
    Ok(full)
}

/// The request to cancel the execution, if it is cancelled: only its events say who made it.
async fn cancel_request(reading: &Arc<ExecutionReader>, name: &ExecutionName) -> Result<Option<CancelRequest>, Status> {
    let state = reading.follower.look(name, |seen| seen.execution.state()).await?;
    if !matches!(state, ExecutionState::Cancelled | ExecutionState::Cancelling) {
        return Ok(None);
    }
    let history = History::of(reading, name, None, "").await?;
    let mut found = None;
    let see = |event: &belay_execution::Event| {
        found = CancelRequest::after(found.take(), event);
        ControlFlow::Continue(())
    };
    history.read(0, see).await?;
    Ok(found)
}
