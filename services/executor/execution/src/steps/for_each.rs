//! Steps that run once for each entry of a list, make several calls, or run again until a condition holds. The step reads the list when it starts, each entry or call is a step of its own,
//! appended to those of the plan, and the step collects their outputs when all have ended.
//!
//! A step that is made to run again reads its list again. The steps for entries that are the same, and that have completed or that a person has
//! skipped, stay as they are.

use std::{collections::BTreeMap, sync::Arc};

use belay_defects::{Defect, is_planted};
use belay_json::{MAX_DEPTH, is_too_deep_text};
use belay_plan::{
    Template, ToolStep,
    limits::{MAX_ITEM_BYTES, MAX_ITEMS, MAX_LIST_BYTES},
};
use belay_reasons as reasons;
use serde_json::Value;

use super::{
    agent,
    entries::{not_started, some_failed},
    layers,
    next::Next,
    outputs::values,
    repeat,
};
use crate::{
    BlobValue, Blobs, Body, ErrorClass, Execution, Failure, Json, Payload, Room, SkipReason, StepEvent, StepKey,
    StepState, StepTrigger, Timestamp, Violation, digest,
    state::{AttemptEnd, StepRecord},
};

/// How many bytes the outputs of the steps for all entries may have together.
const MAX_COLLECTED_BYTES: u64 = 16 * 1024 * 1024;

/// The course of a started step from here.
enum Course {
    /// These entries are listed after those that are listed.
    Entries(Vec<Json>),
    /// Its output is collected.
    Collected(Payload),
    /// It fails.
    Failed(Failure),
}

/// Returns what a started step does next: it reads its list, adds to it, or collects the outputs.
pub(super) fn next(execution: &Execution, step: StepKey, blobs: &dyn Blobs) -> Next {
    let Some(course) = course(execution, step, blobs) else { return Next::Data };
    let record = &execution.steps[step];
    let decided = match course {
        Course::Failed(failure) => Err(failure),
        Course::Collected(output) => Ok(StepEvent::ItemsCollected { output }),
        Course::Entries(items) => {
            let first = record.items.listed.unwrap_or_default();
            let all = first + items.len();
            match blobs.room(record.id.as_str(), all.saturating_sub(record.items.steps.len())) {
                Room::Free => Ok(StepEvent::ItemsListed { first, items }),
                Room::Wanted => return Next::Room,
                Room::Beyond(most) => Err(too_many_steps(record, all, most)),
            }
        }
    };
    Next::Event(match decided {
        Ok(event) => Body::Step { step: record.id.clone(), attempt: record.attempt, event },
        Err(failure) => execution.fail(step, failure),
    })
}

/// Returns the course of a started step; `None` while it needs a blob that has not been read.
fn course(execution: &Execution, step: StepKey, blobs: &dyn Blobs) -> Option<Course> {
    let record = &execution.steps[step];
    if let Some(agent) = record.spec.agent() {
        return Some(match agent::course(execution, record, agent, blobs)? {
            agent::Course::Entries(entries) => Course::Entries(entries),
            agent::Course::Done(output) => Course::Collected(output),
            agent::Course::Failed(failure) => Course::Failed(failure),
        });
    }
    if let Some(repeat) = record.spec.repeat() {
        return Some(match repeat::course(execution, record, repeat, blobs)? {
            repeat::Course::Round(round) => Course::Entries(vec![round]),
            repeat::Course::Enough(output) => Course::Collected(output),
            repeat::Course::Failed(failure) => Course::Failed(failure),
        });
    }
    let Some(listed) = record.items.listed else {
        return Some(entries(execution, step, blobs)?.map_or_else(Course::Failed, Course::Entries));
    };
    match commit_due(execution, record, listed) {
        Some(commit) => Some(Course::Entries(vec![commit])),
        None => Some(collect(execution, record, blobs)?.map_or_else(Course::Failed, Course::Collected)),
    }
}

/// The entry that commits what the calls of a step have changed, once all of them have completed and it is not listed yet.
fn commit_due(execution: &Execution, record: &StepRecord, listed: usize) -> Option<Json> {
    let is_due =
        record.has_one_effect() && record.spec.several().is_some_and(|several| several.calls().len() == listed);
    let has_done = |&entry: &StepKey| {
        let entry = &execution.steps[entry];
        matches!(entry.state, StepState::Completed | StepState::Skipped) && entry.skipped_group.is_none()
    };
    if is_due && record.items.current().iter().all(has_done) { layers::commit(execution, record) } else { None }
}

/// The entries of the list, or what identifies each of the calls.
fn entries(execution: &Execution, step: StepKey, blobs: &dyn Blobs) -> Option<Result<Vec<Json>, Failure>> {
    let spec = &execution.steps[step].spec;
    match spec.for_each() {
        Some(list) => read(execution, step, list, blobs),
        None => {
            // What the calls of an earlier run have changed was not committed, so all of them are made again.
            let run = execution.steps[step].has_one_effect().then_some(execution.steps[step].attempt);
            let identity = |written| identity(execution, written, run);
            spec.several().map(|several| Ok(several.as_written().map(identity).collect()))
        }
    }
}

/// Identifies a call of several by its tool and a digest of its arguments: as they are written, and when the steps ended that they read. When the plan
/// changes it, or what it reads has run again, it is another call, and is made. Times, and not the values, because a digest of few possible values tells
/// which one it is. `run`: the attempt of a step whose calls have one effect.
fn identity(execution: &Execution, (call, verbatim): (&ToolStep, &[String]), run: Option<u32>) -> Json {
    let read: BTreeMap<&str, Option<i64>> = call
        .arguments
        .values()
        .filter_map(|(id, _)| Some((id, execution.steps[execution.steps.key(id)?].ended_at.map(Timestamp::as_micros))))
        .collect();
    let written = serde_json::json!([call.arguments.source(), verbatim, read]);
    let arguments = digest(Json::canonical(&written).as_str().as_bytes());
    let mut identity = serde_json::json!({"tool": call.tool, "arguments": arguments});
    if let Some(run) = run {
        identity["run"] = run.into();
    }
    Json::canonical(&identity)
}

/// The entries of the list.
fn read(
    execution: &Execution,
    step: StepKey,
    list: &Template,
    blobs: &dyn Blobs,
) -> Option<Result<Vec<Json>, Failure>> {
    let invalid = |reason, message: String| Failure::new(ErrorClass::InvalidArguments, reason, message);
    let values = match values(execution, step, list.values(), blobs) {
        Ok(values) => values?,
        Err(failure) => return Some(Err(failure)),
    };
    let resolved = list.resolve(&|id, what| values.get(id, what));
    Some(match resolved {
        Ok(value) => {
            let entries = belay_plan::entries(value, list.source().as_str().unwrap_or_default());
            entries.and_then(|entries| items(&entries)).map_err(|message| invalid(reasons::LIST_REFUSED, message))
        }
        Err(unresolved) => Err(invalid(reasons::UNRESOLVED_REFERENCE, unresolved.to_string())),
    })
}

fn too_many_steps(record: &StepRecord, entries: usize, most: usize) -> Failure {
    let (of, advice) = match record.spec.agent() {
        Some(_) => (
            "turns and calls of the model",
            "let several steps share the work, or raise `services.executor.steps`, and retry the step",
        ),
        None => ("entries", "give each entry more to do, or let a step's plan have the list"),
    };
    let message = format!(
        "With a step for each of the {entries} {of} the execution would have more than {most} steps, and that is the limit \
         (`services.executor.steps` for the executions in memory; one gets a quarter): {advice}."
    );
    Failure::new(ErrorClass::InvalidArguments, reasons::LIST_REFUSED, message)
}

fn items(entries: &[Value]) -> Result<Vec<Json>, String> {
    if entries.len() > MAX_ITEMS {
        return Err(format!(
            "for_each: the list has {} entries, and the limit is {MAX_ITEMS}: give each entry more to do.",
            entries.len()
        ));
    }
    let (mut items, mut bytes) = (Vec::with_capacity(entries.len()), 0);
    for (index, entry) in entries.iter().enumerate() {
        let item = Json::canonical(entry);
        let size = item.as_str().len();
        if size > MAX_ITEM_BYTES {
            return Err(format!(
                "for_each: entry {index} of the list has {size} bytes as JSON, and the limit is {MAX_ITEM_BYTES}: put the content into a \
                 file, and let the entry be its path."
            ));
        }
        bytes += size;
        if bytes > MAX_LIST_BYTES {
            return Err(format!(
                "for_each: the list has more than {MAX_LIST_BYTES} bytes as JSON, which is the limit: put the contents into files, and let \
                 the entries be their paths."
            ));
        }
        items.push(item);
    }
    Ok(items)
}

/// The outputs in the order of the entries, or what is wrong: a step has failed, or the outputs are too large.
fn collect(execution: &Execution, record: &StepRecord, blobs: &dyn Blobs) -> Option<Result<Payload, Failure>> {
    let steps = || record.items.current().iter().map(|&step| &execution.steps[step]);
    let mut failed = steps().filter(|step| !matches!(step.state, StepState::Completed | StepState::Skipped));
    if let Some(first) = failed.next() {
        let entries = if record.spec.for_each().is_some() { "entries" } else { "calls" };
        return Some(Err(some_failed(first, 1 + failed.count(), record.items.current().len(), entries)));
    }
    if let Some(failure) = not_started(execution, record) {
        return Some(Err(failure));
    }
    let size: u64 = steps().filter_map(|step| step.output.as_ref()).map(Payload::size).sum();
    if size > MAX_COLLECTED_BYTES {
        let message = format!(
            "The outputs of the steps for all entries have {size} bytes together, and the limit is {MAX_COLLECTED_BYTES}: let them write files, \
             and return their paths."
        );
        return Some(Err(Failure::new(ErrorClass::InvalidResult, reasons::ITEMS_TOO_LARGE, message)));
    }
    let mut collected: Vec<&StepRecord> = steps().filter(|step| !step.commits_step()).collect();
    if is_planted(Defect::UnorderedCollection) {
        collected.sort_by_key(|step| step.completed_by);
    }
    let (mut list, mut is_wanted) = (String::from("["), false);
    for (index, step) in collected.into_iter().enumerate() {
        if index > 0 {
            list.push(',');
        }
        match &step.output {
            Some(_) if index == 0 && is_planted(Defect::IncompleteCollection) => list.push_str("null"),
            None => list.push_str("null"),
            Some(Payload::Inline(json)) => list.push_str(json.as_str()),
            Some(Payload::Blob(blob)) => match blobs.value(blob) {
                BlobValue::Known(value) => list.push_str(Json::canonical(value).as_str()),
                BlobValue::Unreadable(why) => {
                    let message =
                        format!("The output of step `{}`, the blob {}, cannot be read: {why}.", step.id, blob.digest);
                    return Some(Err(Failure::new(ErrorClass::Internal, reasons::BLOB_DAMAGED, message)));
                }
                BlobValue::Wanted => is_wanted = true,
            },
        }
    }
    list.push(']');
    if !is_wanted && is_too_deep_text(&list) {
        let message = format!(
            "The outputs of the steps for all entries are nested deeper than {MAX_DEPTH} levels together: let them return flatter values."
        );
        return Some(Err(Failure::new(ErrorClass::InvalidResult, reasons::ITEMS_TOO_LARGE, message)));
    }
    (!is_wanted).then(|| Ok(blobs.payload(Json::from_text(list))))
}

/// Checks that a step which runs for each entry of a list has started, and that nothing of it is open.
fn check(execution: &Execution, step: StepKey, attempt: u32) -> Result<&StepRecord, Violation> {
    execution.check_can_start()?;
    let record = &execution.steps[step];
    if !record.has_entries() || attempt != record.attempt || !record.needs_operation() {
        let (step, state, attempt) = (record.id.clone(), record.state, record.attempt);
        return Err(Violation::NotListing { step, state, attempt });
    }
    Ok(record)
}

/// The list was read: there is a step for each entry.
pub(crate) fn listed(
    execution: &mut Execution,
    step: StepKey,
    attempt: u32,
    (first, items): (usize, &[Json]),
    time: Timestamp,
) -> Result<(), Violation> {
    let record = check(execution, step, attempt)?;
    // Events of versions before 11 list all entries again where the call that commits is added.
    let (first, items) = match record.items.listed {
        Some(listed) if first == 0 && items.len() == listed + 1 => (listed, &items[listed..]),
        _ => (first, items),
    };
    if !may_list(execution, record, first, items) {
        return Err(Violation::ListedBefore(record.id.clone()));
    }
    // Each entry makes the call at its place in the plan.
    let is_other = |calls: usize| record.items.listed.is_none() && items.len() != calls;
    if record.spec.several().is_some_and(|several| is_other(several.calls().len())) {
        return Err(Violation::OtherCalls { step: record.id.clone(), listed: items.len() });
    }
    let (known, spec) = (record.items.steps.clone(), Arc::clone(&record.spec));
    let (not_before, all) = (repeat::begins_at(record, first, time), first + items.len());
    let mut open = 0;
    for (item, &of_item) in items.iter().zip(known.iter().skip(first)) {
        let record = &execution.steps[of_item];
        if record.unchanged_for(item) {
            continue;
        }
        if record.state.is_terminal() {
            execution.run_again(of_item, time)?;
        }
        execution.update_step(of_item, |record| {
            record.set_item(item.clone());
            (record.to_skip, record.not_before) = (None, not_before);
        });
        execution.replace_spec(of_item, &spec);
        execution.transition_step(of_item, StepTrigger::DependenciesCompleted, time)?;
        open += 1;
    }
    for item in items.iter().skip(known.len().saturating_sub(first)) {
        let added = execution.steps.append_item(step, item.clone(), time).map_err(Violation::DuplicateStep)?;
        execution.steps[added].not_before = not_before;
        execution.index_appended(added);
        execution.count(added, |totals| totals.total += 1);
        open += 1;
    }
    for &beyond in known.iter().skip(all) {
        if execution.steps[beyond].state == StepState::Pending {
            execution.update_step(beyond, |record| {
                record.to_skip.get_or_insert((SkipReason::NotListed, step));
            });
        }
    }
    execution.update_step(step, |record| {
        (record.items.listed, record.items.open) = (Some(all), open);
    });
    execution.mark_listed(step);
    Ok(())
}

/// Whether a step may list so many entries from this position on: the whole list first; after that the entry that commits what its calls have changed, or the
/// next of its rounds.
fn may_list(execution: &Execution, record: &StepRecord, first: usize, items: &[Json]) -> bool {
    let count = items.len();
    if let Some(goal) = record.spec.agent() {
        return agent::may_list(execution, record, goal, first, items);
    }
    let is_one_more = count == 1 && record.items.listed.unwrap_or_default() == first;
    match (record.items.listed, record.spec.repeat()) {
        (_, Some(repeat)) => is_one_more && first < repeat.max() as usize,
        (None, None) => first == 0,
        (Some(listed), None) => is_one_more && commit_due(execution, record, listed).is_some(),
    }
}

/// All entries have ended: the step completes with their outputs, or with that of its last round.
pub(crate) fn collected(
    execution: &mut Execution,
    step: StepKey,
    attempt: u32,
    output: &Payload,
) -> Result<(), Violation> {
    let record = check(execution, step, attempt)?;
    if record.items.listed.is_none() {
        return Err(Violation::NotListed(record.id.clone()));
    }
    execution.update_step(step, |record| {
        (record.end, record.output) = (Some(AttemptEnd::Completed), Some(output.clone()));
    });
    Ok(())
}

/// A step has ended. The one that runs for each entry has one less to wait for; without that one, the steps for its entries do not start.
pub(crate) fn ended(execution: &mut Execution, step: StepKey) {
    if let Some(list) = execution.steps[step].runs_for() {
        if execution.steps[list].items.current().binary_search(&step).is_ok() {
            execution.update_step(list, |record| record.items.open -= 1);
            commit_skipped(execution, step, list);
        }
        return;
    }
    if execution.stop.is_some() {
        // The stop is the reason for what is still open.
        return;
    }
    let record = &execution.steps[step];
    let reason = match (record.state, record.skipped) {
        // A person has given the output, or does without it.
        (StepState::Completed, _) | (_, Some((SkipReason::Requested, _))) => SkipReason::Requested,
        (_, Some((SkipReason::PlanUpdated, _))) => SkipReason::PlanUpdated,
        (StepState::Failed, _) => SkipReason::DependencyFailed,
        _ => SkipReason::DependencySkipped,
    };
    for index in 0..record.items.steps.len() {
        let item = execution.steps[step].items.steps[index];
        if execution.steps[item].state == StepState::Pending {
            execution.update_step(item, |record| {
                record.to_skip.get_or_insert((reason, step));
            });
        }
    }
}

/// An entry has failed: where its step fails fast, the entries that have not started are to be skipped.
pub(crate) fn failed(execution: &mut Execution, entry: StepKey) {
    let record = &execution.steps[entry];
    if let Some(list) = record.runs_for().filter(|_| record.spec.fail_fast()) {
        skip_unstarted(execution, list, entry);
    }
}

/// Marks the entries or calls of a step that have not started: they are to be skipped because of one that has failed. Rounds after the first are made like
/// further attempts, and what its calls have changed is committed once all have completed.
pub(crate) fn skip_unstarted(execution: &mut Execution, list: StepKey, failed: StepKey) {
    let record = &execution.steps[list];
    if record.spec.repeat().is_some() && record.items.current().len() > 1 {
        return;
    }
    for index in 0..execution.steps[list].items.current().len() {
        let other = execution.steps[list].items.current()[index];
        let record = &execution.steps[other];
        if record.state == StepState::Ready && !record.has_started() && !record.commits_step() {
            execution.update_step(other, |record| {
                record.to_skip.get_or_insert((SkipReason::StopOnError, failed));
            });
        }
    }
}

/// A step whose calls have one effect is skipped with the call that was to commit it: nothing that it did is there.
fn commit_skipped(execution: &mut Execution, step: StepKey, whole: StepKey) {
    let record = &execution.steps[step];
    let end = match record.skipped {
        Some((SkipReason::Requested, _)) => AttemptEnd::SkipRequested,
        Some((SkipReason::ApprovalSkipped | SkipReason::NonInteractive, _)) => AttemptEnd::Skipped,
        _ => return,
    };
    if record.commits_step() && execution.stop.is_none() && execution.steps[whole].needs_operation() {
        execution.update_step(whole, |record| record.end = Some(end));
    }
}

impl StepRecord {
    /// Whether a step that has ended for an entry of a list need not run for this entry.
    fn unchanged_for(&self, item: &Json) -> bool {
        let by_a_person = matches!(
            self.skipped,
            Some((SkipReason::Requested | SkipReason::ApprovalSkipped | SkipReason::NonInteractive, _))
        );
        let has_done = self.state == StepState::Completed || self.state == StepState::Skipped && by_a_person;
        has_done && (self.item.as_ref() == Some(item) || is_planted(Defect::StaleEntries))
    }
}
