//! The events of an execution, one by one.

use std::collections::{BTreeMap, BTreeSet};

use belay_proto::v1::{self, execution_event::Kind, step};
use serde_json::Value;

use super::super::calls::{Call, json};
use super::super::escalations::Escalations;
use super::super::lateness::Lateness;
use super::super::picture::{Account, Depth, Fold};
use super::super::plans;
use super::super::promises::{self, Promises};
use super::super::records::{ExecutionEvidence, ObservedExecution};
use super::super::spending::Spending;
use super::super::tools;
use super::execution::ExecutionAudit;
use crate::trace;

/// The limit of repetitions of a call, within one attempt, because of conflicts with other commits.
const MAX_RERUNS: u32 = 3;
/// The limit of calls of one attempt, after which it fails whatever the last of them was.
const MAX_CALLS: u32 = 10;

/// The conflicts among the events read so far.
#[derive(Default)]
struct Conflicts {
    /// How many calls of an attempt were discarded because of one, by the attempt's part of their names.
    by_attempt: BTreeMap<String, u32>,
    /// How many calls an attempt had made when one completed, which a check takes or has to follow.
    made: BTreeMap<String, u32>,
    /// The newest call of each attempt.
    newest: BTreeMap<String, String>,
    /// The calls that had not ended when a pause discarded calls.
    discarded: BTreeSet<String>,
}

impl<'a> ExecutionAudit<'a, '_> {
    /// Checks the events one by one: invariants 1, 2, 5, and the server's snapshots in between (B-02).
    pub(super) fn replay(&mut self) -> Option<(Fold, BTreeMap<String, Call<'a>>)> {
        let kept: &'a ExecutionEvidence = self.kept;
        let heard: &'a ObservedExecution = self.heard;
        let mut fold = Fold::default();
        let mut calls = BTreeMap::<String, Call<'a>>::new();
        let mut not_before = BTreeMap::<usize, i64>::new();
        let mut conflicts = Conflicts::default();
        let mut promises = Promises::default();
        let mut spending = Spending::default();
        let mut escalations = Escalations::default();
        let mut lateness = Lateness::new(self.name, self.owners, self.healed_at, self.drives_some);
        for (event, sequence) in kept.events.iter().zip(1..) {
            if event.sequence != sequence {
                self.violation(format_args!("event {} stands at {sequence}", event.sequence));
                return None;
            }
            let name = belay_proto::call_name(self.name, event);
            self.before(event, &fold, &mut not_before);
            self.conflicts(event, &mut conflicts);
            for broken in promises.before(event, &fold).into_iter().chain(escalations.before(event, &fold)) {
                self.violation(broken);
            }
            if let Some(broken) = spending.of(event, &name) {
                self.violation(broken);
            }
            if let Some(late) = lateness.of(event) {
                self.violation(format_args!("event {sequence}: {late}"));
            }
            if let Err(misfit) = fold.apply(event) {
                self.violation(misfit);
                return None;
            }
            match &event.kind {
                Some(Kind::StepItemsCollected(collected)) => self.collected(event, collected, &fold),
                Some(Kind::ExecutionRecovered(_)) => trace::count("executions recovered"),
                Some(Kind::ToolCallRequested(request)) => {
                    let step = fold.index(event).unwrap_or_default();
                    let kind = fold.plan.steps.get(step).and_then(|step| step.kind.as_ref());
                    // The runner is told the same of those that take its place.
                    let exclusive = matches!(kind, Some(v1::step_spec::Kind::Tool(tool)) if tool.exclusive);
                    let mut call = Call::new(step, exclusive, request, &kept.blobs);
                    (call.which, call.round) = (fold.calls[step], fold.attempts_before[step]);
                    call.planned = match request.check {
                        Some(place) => promises::call_of_check(&fold.plan.steps[step], place),
                        None => fold.call(step).cloned(),
                    };
                    // It only reads, and waits for nobody.
                    call.exclusive &= request.tool != tools::FIND;
                    // What it names may be done again, with another result, after it was undone.
                    if let (Some(undone), Some(planned)) = (fold.undoes.get(step).copied().flatten(), &mut call.planned)
                    {
                        let run = json(fold.picture.steps[undone].output.as_ref(), &kept.blobs)["run"].clone();
                        let arguments = planned.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
                        let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                        if arguments["value"].is_string() {
                            arguments["value"] = run;
                        }
                        planned.arguments = Some(v1::Payload::of_json(arguments.to_string()));
                    }
                    call.entry = fold.entries.get(step).and_then(|entry| Some(entry.as_ref()?.1.clone()));
                    if calls.insert(name.clone(), call).is_some() {
                        self.violation(format_args!("{name} was requested twice"));
                    }
                    let goes_on = promises.goes_on(event, step, &fold);
                    self.number(event, &calls, goes_on);
                }
                Some(
                    Kind::ToolCallCompleted(_)
                    | Kind::ToolCallFailed(_)
                    | Kind::ToolCallCancelled(_)
                    | Kind::ToolCallDenied(_)
                    | Kind::ToolCallOutcomeUnknown(_),
                ) => match calls.get_mut(&name) {
                    Some(call) => call.ends.push(event),
                    None => self.violation(format_args!("{name} ended without having been requested")),
                },
                Some(kind) => {
                    if let Err(misfit) = calls.get_mut(&name).map_or(Ok(()), |call| call.hold(event, kind)) {
                        self.violation(format_args!("{name}: {misfit}"));
                    }
                }
                None => {}
            }
            if let Some(account) = heard.accounts.get(&sequence)
                && !account.agrees_with(&fold.shown())
            {
                let picture = fold.shown();
                self.violation(format_args!(
                    "the server's account at event {sequence} is not what its events make: {account:?}, not {picture:?}"
                ));
            }
        }
        let last = i64::try_from(kept.events.len()).unwrap_or(i64::MAX);
        if let Some(sequence) = heard.accounts.keys().find(|sequence| **sequence > last) {
            self.violation(format_args!("an account at event {sequence} was given, which is gone"));
        }
        let account = Account::new(&kept.execution, Depth::Outputs);
        if !account.agrees_with(&fold.shown()) || kept.execution.last_sequence != last {
            self.violation("the last account is not what the events make");
        }
        Some((fold, calls))
    }

    /// Checks what must be true before an event.
    fn before(&mut self, event: &v1::ExecutionEvent, fold: &Fold, not_before: &mut BTreeMap<usize, i64>) {
        use step::State as S;
        if let Some(Kind::ExecutionRetried(retried)) = &event.kind {
            let is_again =
                |step: &usize| fold.plan.steps.get(*step).is_some_and(|step| retried.step_ids.contains(&step.id));
            not_before.retain(|step, _| !is_again(step));
        }
        let Ok(step) = fold.index(event) else { return };
        let time = event.record_time.as_ref().map_or(0, belay_proto::micros);
        match &event.kind {
            Some(Kind::StepFailed(failed)) if event.attempt == fold.attempts_before[step] => {
                let late = failed.failure.as_ref().is_some_and(|failure| failure.reason == "STEP_TIMEOUT");
                if late && !fold.plan.steps[step].group_timeouts.is_empty() {
                    trace::count("steps that their group left no time");
                }
            }
            Some(Kind::StepStarted(_)) => {
                let steps = &fold.picture.steps;
                // The call that commits what others have changed starts once these have completed.
                let commits = fold.commits_step(step);
                let is_first = event.attempt == fold.attempts_before[step] + 1 && !commits;
                if let Some(group) = fold.group_that_failed(step).filter(|_| is_first) {
                    self.violation(format_args!("step {step} started after another of the group {group} had failed"));
                }
                if !fold.may_run(step) {
                    self.violation(format_args!(
                        "step {step} started before the steps that it depends on had ended as it wants"
                    ));
                }
                let is_active = |place: usize, other: &v1::Step| {
                    let waits =
                        matches!(other.state(), S::Pending | S::OutcomeUnknown | S::AwaitingApproval | S::Waiting)
                            || is_over(other.state());
                    !waits && other.attempt > fold.attempts_before[place]
                };
                // A wait holds no slot.
                let is_call = |step: usize| {
                    let spec = &fold.plan.steps[step];
                    // Nor does a step that has others run for the entries of its list.
                    matches!(spec.kind, Some(v1::step_spec::Kind::Tool(_))) && !plans::has_entries(spec)
                };
                let others = steps
                    .iter()
                    .enumerate()
                    .filter(|(other, status)| *other != step && is_call(*other) && is_active(*other, status));
                let at_once = others.count() + 1;
                let most = usize::try_from(fold.plan.parallelism.max(1)).unwrap_or(usize::MAX);
                // A retry keeps its slot, and an approved call waits for one.
                if event.attempt == fold.attempts_before[step] + 1 && is_call(step) && at_once > most {
                    self.violation(format_args!("{at_once} steps at once, and at most {most} may be"));
                }
                if event.attempt != steps[step].attempt + 1 || not_before.get(&step).is_some_and(|at| time < *at) {
                    self.violation(format_args!("attempt {} of step {step} started out of turn", event.attempt));
                }
            }
            Some(Kind::StepRetryAdvanced(_)) => {
                trace::count("attempts advanced");
                not_before.insert(step, time);
            }
            Some(Kind::StepFallbackSwitched(_)) => {
                not_before.insert(step, time);
            }
            Some(Kind::StepRetryScheduled(retry)) => {
                trace::count("retries");
                not_before.insert(step, retry.retry_time.as_ref().map_or(0, belay_proto::micros));
            }
            _ => {}
        }
        if event.attempt == fold.attempts_before[step] && matches!(event.kind, Some(Kind::StepStarted(_))) {
            self.violation(format_args!("attempt {} of step {step} was made before", event.attempt));
        }
        if is_over(fold.picture.steps[step].state()) {
            self.violation(format_args!("event {} is about step {step}, which had ended", event.sequence));
        }
    }

    /// A list is collected with the outputs of the steps for its entries, in their order, and nothing for those that were skipped.
    fn collected(&mut self, event: &v1::ExecutionEvent, collected: &v1::StepItemsCollected, fold: &Fold) {
        let Ok(list) = fold.index(event) else { return };
        let blobs = &self.kept.blobs;
        let entries: Vec<usize> =
            fold.of_list(list).take(fold.listed.get(&list).copied().unwrap_or_default()).collect();
        let is_kept = |entry: &&usize| !fold.picture.steps[**entry].skipped_group.is_empty();
        let kept = entries.iter().find(is_kept);
        let outputs = entries.iter().filter(|entry| !fold.commits_step(**entry));
        let outputs = outputs.map(|entry| json(fold.picture.steps[*entry].output.as_ref(), blobs));
        let (outputs, found) = (Value::from_iter(outputs), json(collected.output.as_ref(), blobs));
        // Of rounds the last one is enough, and the others were not.
        let outputs = match fold.plan.steps[list].repeat {
            None => outputs,
            Some(_) => {
                trace::count("rounds that were enough");
                outputs.as_array().and_then(|rounds| rounds.last()).cloned().unwrap_or_default()
            }
        };
        if outputs.as_array().is_some_and(|outputs| outputs.len() > 1) {
            trace::count("lists of several entries collected");
        }
        if let Some(kept) = kept {
            self.violation(format_args!("step {list} completes, and its group let entry {kept} not start"));
        }
        if found != outputs {
            self.violation(format_args!("event {} collects {found}, and the entries have {outputs}", event.sequence));
        }
    }

    /// The calls of an attempt are numbered from 1, and there is another only after one that was discarded, or when a person says so of one whose outcome
    /// was unknown.
    fn number(&mut self, event: &v1::ExecutionEvent, calls: &BTreeMap<String, Call<'_>>, goes_on: bool) {
        let name = belay_proto::call_name(self.name, event);
        let parts = name.rsplit_once('.').and_then(|(stem, number)| Some((stem, number.parse::<u32>().ok()?)));
        let Some((stem, number)) = parts else {
            return self.violation(format_args!("{name} is no name of a call"));
        };
        if number > 1 {
            // The numbers between are those of questions.
            let before = (1..number).rev().find_map(|number| calls.get(&format!("{stem}.{number}")));
            let discarded = |call: &Call<'_>| matches!(call.ends[..], [end] if matches!(end.kind, Some(Kind::ToolCallCancelled(_))));
            let unknown = |call: &Call<'_>| matches!(call.ends[..], [end] if matches!(end.kind, Some(Kind::ToolCallOutcomeUnknown(_))));
            let is_again = before.is_some_and(unknown) && self.is_made_again(&event.step_id);
            let completed = |call: &Call<'_>| matches!(call.ends[..], [end] if matches!(end.kind, Some(Kind::ToolCallCompleted(_))));
            // Or the attempt goes on to what is checked next, or from there to the step's own call.
            let goes_on = before.is_some_and(|before| (completed(before) || unknown(before)) && goes_on);
            if !is_again && !goes_on && !before.is_some_and(discarded) {
                self.violation(format_args!("{name} follows a call that was not discarded"));
            }
        }
    }

    /// A call that conflicts with another commit is repeated exactly three times before its attempt fails with that conflict.
    fn conflicts(&mut self, event: &v1::ExecutionEvent, conflicts: &mut Conflicts) {
        let is_conflict =
            |failure: &Option<v1::Failure>| failure.as_ref().is_some_and(|failure| failure.reason == "CONFLICT");
        let name = belay_proto::call_name(self.name, event);
        let (attempt, number) = name.rsplit_once('.').unwrap_or_default();
        let so_far = conflicts.by_attempt.get(attempt).copied().unwrap_or_default();
        let made = conflicts.made.get(attempt).copied().unwrap_or_default();
        match &event.kind {
            Some(Kind::ExecutionPaused(paused)) if paused.discard_calls => {
                conflicts.discarded.extend(conflicts.newest.values().cloned());
            }
            Some(Kind::ToolCallRequested(_)) => {
                conflicts.newest.insert(attempt.to_owned(), name.clone());
                if so_far > MAX_RERUNS {
                    self.violation(format_args!("{name} was made after {so_far} conflicts in the attempt"));
                }
            }
            // The pause asked for the end of this call, and the one after it is made because of the resumption.
            Some(Kind::ToolCallCancelled(cancelled))
                if is_conflict(&cancelled.failure) && so_far == MAX_RERUNS && conflicts.discarded.contains(&name) => {}
            Some(Kind::ToolCallCancelled(cancelled)) if is_conflict(&cancelled.failure) => {
                conflicts.by_attempt.insert(attempt.to_owned(), so_far + 1);
            }
            Some(Kind::ToolCallCompleted(_)) => {
                conflicts.by_attempt.remove(attempt);
                conflicts.made.insert(attempt.to_owned(), number.parse().unwrap_or_default());
            }
            Some(Kind::ToolCallFailed(failed))
                if is_conflict(&failed.failure)
                    && so_far != MAX_RERUNS
                    && number.parse::<u32>().is_ok_and(|number| number - made < MAX_CALLS) =>
            {
                self.violation(format_args!("{name} was given up after {so_far} other conflicts in the attempt"));
            }
            _ => {}
        }
    }
}

fn is_over(state: step::State) -> bool {
    use step::State as S;
    matches!(state, S::Completed | S::Failed | S::Skipped | S::Cancelled)
}
