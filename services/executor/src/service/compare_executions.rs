use std::{sync::Arc, time::Duration};

use belay_execution::{BlobRef, Payload, StepKey, StepView};
use belay_proto::v1::{self, ExecutionView};
use belay_reading::comparison::{Side, StepRun, compare, output_digest};
use serde_json::{Map, Value, json};
use tonic::Status;

use super::room::Room;
use crate::{
    ExecutionReader,
    feeds::{ReadView, another_has_the_name},
    names::ExecutionName,
    store::{
        blobs::{Opener, Unreadable, digest_bytes},
        secrets::shown,
    },
    wire::{self, StepDetails},
};

/// How many steps are looked at together. Meanwhile nobody else looks at the execution, and each may have an output of 32 KiB.
const STEPS_AT_ONCE: usize = 256;

pub(super) async fn compare_executions(
    reading: &Arc<ExecutionReader>,
    request: v1::CompareExecutionsRequest,
) -> Result<v1::CompareExecutionsResponse, Status> {
    let before = ExecutionName::parse("before", &request.before)?;
    let after = ExecutionName::parse("after", &request.after)?;
    let (before, old) = side(reading, &before).await?;
    let (after, new) = side(reading, &after).await?;
    let found = compare(old, new);
    let mut room = Room::new();
    room.take(&before);
    room.take(&after);
    let execution_changes: Vec<v1::FieldChange> = found.execution.into_iter().map(wire::field_change).collect();
    // They are few and small.
    for change in &execution_changes {
        room.take(change);
    }
    let (plan_changes, left_out_plan_changes) = room.fill(found.plan.into_iter().map(wire::field_change));
    let (input_changes, left_out_input_changes) = room.fill(found.inputs.into_iter().map(wire::field_change));
    let (added_steps, left_out_added_steps) = room.fill(found.added.into_iter());
    let (removed_steps, left_out_removed_steps) = room.fill(found.removed.into_iter());
    let (step_changes, left_out_step_changes) = room.fill(found.steps.into_iter().map(wire::step_changes));
    let (planned_step_changes, left_out_planned_step_changes) =
        room.fill(found.planned.into_iter().map(wire::step_changes));
    Ok(v1::CompareExecutionsResponse {
        before: Some(before),
        after: Some(after),
        plan_changes,
        left_out_plan_changes,
        added_steps,
        left_out_added_steps,
        removed_steps,
        left_out_removed_steps,
        planned_step_changes,
        left_out_planned_step_changes,
        input_changes,
        left_out_input_changes,
        execution_changes,
        step_changes,
        left_out_step_changes,
        equal_steps: i32::try_from(found.equal_steps).unwrap_or(i32::MAX),
    })
}

/// An execution as it is shown, and what is compared of it.
async fn side(reading: &ExecutionReader, name: &ExecutionName) -> Result<(v1::Execution, Side), Status> {
    let (uid, whole) = reading.follower.look(name, |seen| (seen.execution.created().uid.clone(), whole(seen))).await?;
    let (execution, mut side) = whole.map_err(|error| {
        Status::internal(format!("the plan or the inputs of `{}` cannot be written as JSON: {error}", name.id))
    })?;
    let mut opener: Option<Opener> = None;
    loop {
        let first = side.steps.len();
        let look = |seen: &ReadView<'_>| -> Result<Vec<(StepRun, Option<BlobRef>)>, Status> {
            if seen.execution.created().uid != uid {
                return Err(another_has_the_name());
            }
            let keys: Vec<StepKey> =
                seen.execution.steps().skip(first).take(STEPS_AT_ONCE).map(|step| step.key).collect();
            Ok(keys.into_iter().map(|key| run(seen, key)).collect())
        };
        let runs = reading.follower.look(name, look).await??;
        if runs.is_empty() {
            return Ok((execution, side));
        }
        for (mut run, blob) in runs {
            if let Some(blob) = blob {
                let opener = match &opener {
                    Some(opener) => opener,
                    None => {
                        let key = reading.follower.find(name).await?.key;
                        opener.insert(reading.follower.opener(key, name, uid.clone()).await?)
                    }
                };
                let json = blob_text(reading, opener, &blob).await.map_err(|error| error.status(&blob.digest))?;
                run.facts.insert("output".to_owned(), output_digest(&json).into());
            }
            side.steps.push(run);
        }
    }
}

/// Values of an execution that are compared, apart from its steps.
fn whole(seen: &ReadView<'_>) -> Result<(v1::Execution, Side), serde_json::Error> {
    let redactor = seen.redactor();
    let plan = belay_proto::json::of(&shown(&redactor, wire::plan_message(seen.execution.plan())))?;
    let inputs = shown(&redactor, v1::Payload::of_json(seen.execution.inputs().to_string()));
    let inputs = inputs.as_json().map_or_else(|| Ok(json!({})), serde_json::from_str)?;
    let execution = seen.execution(ExecutionView::Basic);
    let mut facts = Map::new();
    facts.insert("state".to_owned(), execution.state().as_str_name().into());
    facts.extend(execution.failure.as_ref().map(|failure| ("failure".to_owned(), failure.reason.clone().into())));
    // A folder that was made for an execution is its own in any case.
    let workspace = Some(&execution.workspace).filter(|workspace| !workspace.is_empty());
    facts.extend(workspace.map(|workspace| ("workspace".to_owned(), workspace.clone().into())));
    Ok((execution, Side { plan, inputs, execution: facts.into(), steps: Vec::new() }))
}

/// How a step went, and the blob that its output is, if it is one.
fn run(seen: &ReadView<'_>, key: StepKey) -> (StepRun, Option<BlobRef>) {
    let view = seen.execution.step(key);
    let step = seen.step(key, StepDetails::Brief);
    let mut facts = Map::new();
    facts.insert("state".to_owned(), step.state().as_str_name().into());
    facts.insert("attempt".to_owned(), step.attempt.into());
    let skipped = (step.skip_reason() != v1::SkipReason::Unspecified).then(|| step.skip_reason().as_str_name());
    facts.extend(skipped.map(|reason| ("skipReason".to_owned(), reason.into())));
    facts.extend(step.failure.as_ref().map(|failure| ("failure".to_owned(), failure.reason.clone().into())));
    let mut blob = None;
    match view.output() {
        Some(output @ Payload::Inline(_)) => {
            let output = shown(&seen.redactor(), wire::payload(output));
            let digest = output.as_json().map(output_digest);
            facts.extend(digest.map(|digest| ("output".to_owned(), Value::from(digest))));
        }
        Some(Payload::Blob(reference)) => blob = Some(reference.clone()),
        None => {}
    }
    (StepRun { step: view.id().clone(), facts, took: took(view) }, blob)
}

/// How long a step took, without waits for decisions; zero for one that has not ended.
fn took(step: StepView<'_>) -> Duration {
    let (Some(started), Some(ended)) = (step.started_at(), step.ended_at()) else { return Duration::ZERO };
    ended.since(started).saturating_sub(step.waited())
}

/// A blob as clients get it.
async fn blob_text(reading: &ExecutionReader, opener: &Opener, blob: &BlobRef) -> Result<String, Unreadable> {
    let digest = digest_bytes(&blob.digest).ok_or(Unreadable::Missing)?;
    let mut text = Vec::new();
    loop {
        let piece = reading.blobs.shown(opener, digest, text.len() as u64).await?;
        let Some(piece) = piece.filter(|piece| !piece.is_empty()) else { break };
        text.extend(piece);
    }
    String::from_utf8(text).map_err(|_| Unreadable::NotJson)
}
