//! Checks the final state: REQUIREMENTS section 4, compared with what clients observed and what the tools did.

use std::collections::{BTreeMap, BTreeSet};

use belay_proto::v1::{self, execution, execution_event::Kind, step};
use serde_json::Value;

use super::archive::Archive;
use super::calls::{Blobs, Call, json};
use super::children;
use super::client::{Order, is_terminal};
use super::damage::Damaged;
use super::decisions::{self, Stored};
use super::deletions;
use super::documents;
use super::effects;
use super::escalations::Escalations;
use super::forger::Repeated;
use super::forks;
use super::hosts::{Inventoried, Owners};
use super::inputs::{self, Inputs};
use super::lateness::Lateness;
use super::looker;
use super::observed::{Observations, ObservedExecution};
use super::outside::{Outside, Run};
use super::picture::{Account, Depth, Fold};
use super::plans;
use super::promises::{self, Promises};
use super::spending::Spending;
use super::tools;
use crate::trace;
use crate::world::TICK;

/// How far one machine's clock may be ahead of another's, in microseconds: one step of the simulation.
pub(super) const SKEW: i64 = TICK.as_micros() as i64;

/// An execution on the server after the last restart.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) execution: v1::Execution,
    pub(super) events: Vec<v1::ExecutionEvent>,
    /// What is in its blobs, by their digests.
    pub(super) blobs: Blobs,
}

/// All violations.
pub(super) type Violations = Vec<String>;

/// All inputs of the audit.
pub(super) struct Evidence<'a> {
    pub(super) stored: &'a Stored,
    pub(super) observed: &'a Observations,
    pub(super) outside: &'a Outside,
    pub(super) workspaces: &'a Inventoried,
    /// Whether the runner has lost its ledger.
    pub(super) ledger_lost: bool,
    pub(super) orders: &'a [Order],
    pub(super) keys: &'a belay_grant::Keys,
    pub(super) owners: &'a Owners,
    /// The contents of the gate's lost stores.
    pub(super) archive: &'a Archive,
    /// The calls whose rows in the ledger could not be read any more.
    pub(super) damaged: &'a Damaged,
    /// The calls that the attacker has made again.
    pub(super) repeated: &'a Repeated,
    /// Whether an executor drives only what it is asked to.
    pub(super) drives_some: bool,
}

impl Evidence<'_> {
    /// Whether the runner has lost its row of this call.
    pub(super) fn row_lost(&self, call: &str) -> bool {
        self.ledger_lost || self.damaged.contains(call)
    }
}

/// What is counted for each execution, by how deep its plan is nested.
const DEPTHS: [&str; 6] = [
    "executions of a request",
    "executions of a step's plan",
    "executions 2 deep",
    "executions 3 deep",
    "executions 4 deep",
    "executions 5 deep",
];

/// The limit of repetitions of a call, within one attempt, because of conflicts with other commits.
const MAX_RERUNS: u32 = 3;
/// The limit of calls of one attempt, after which it fails whatever the last of them was.
const MAX_CALLS: u32 = 10;

/// Compares what is stored with what clients observed and what the tools did.
pub(super) fn audit(evidence: &Evidence<'_>) -> Violations {
    let (kept, observed, runs) = (&evidence.stored.executions, &evidence.observed.all(), &evidence.outside.runs()[..]);
    let plans: BTreeMap<&str, &Order> = evidence.orders.iter().map(|order| (&*order.request_id, order)).collect();
    let mut violations = Violations::new();
    // S2-NFR-005: no acknowledged start is lost. B-15: every execution was requested, and exists once.
    let gone = deletions::gone(evidence);
    for name in observed.keys().filter(|name| !kept.contains_key(*name) && !gone.contains_key(*name)) {
        violations.push(format!("{name} was acknowledged and is gone"));
    }
    let children = children::of(kept, &mut violations);
    let parents = children::parents(kept, &children, &gone);
    children::audit(kept, &children, evidence, &gone, &mut violations);
    children::no_late_runs(&children, &parents, evidence.owners, runs, &mut violations);
    children::one_folder(kept, &parents, runs, &mut violations);
    deletions::audit(evidence, &children, &mut violations);
    looker::audit(evidence, &mut violations);
    for name in kept.keys().filter(|name| !observed.contains_key(*name) && !parents.contains_key(name.as_str())) {
        violations.push(format!("{name} was not requested: a request made two executions"));
    }
    let requested = || observed.iter().filter(|(_, heard)| !heard.request_id.is_empty());
    let requests: BTreeSet<_> = requested().map(|(_, heard)| &heard.request_id).collect();
    if requests.len() != requested().count() {
        violations.push("a request made two executions".to_owned());
    }
    let of_children =
        parents.keys().filter_map(|name| Some((*name, children::heard(kept.get(*name)?, observed.get(*name)))));
    let of_children: BTreeMap<&str, ObservedExecution> = of_children.collect();
    let all_forks = evidence.observed.forks();
    let mut all_calls = BTreeMap::new();
    for (name, kept) in kept {
        let is_child = parents.contains_key(name.as_str());
        let Some(heard) = of_children.get(name.as_str()).or(observed.get(name)) else { continue };
        // The one that a request has started.
        let line = children::line(name, &parents);
        trace::count(DEPTHS[line.len().min(DEPTHS.len()) - 1]);
        let root = match line.last() {
            Some(root) if is_child => observed.get(*root),
            _ => Some(heard),
        };
        let order = root.and_then(|root| plans.get(forks::origin_of(&root.request_id)));
        let mut one = One {
            name,
            kept,
            heard,
            runs,
            owners: evidence.owners,
            healed_at: evidence.observed.healed_at(),
            drives_some: evidence.drives_some,
            damaged: evidence.damaged,
            violations: &mut violations,
        };
        let Some((fold, calls)) = one.replay() else { continue };
        one.totals(&fold);
        if let Some(fork) = all_forks.get(name) {
            if let Some(wrong) = fork.audit(kept) {
                one.violation(wrong);
            }
        } else if !is_child {
            one.plan(&fold, order.map(|order| &order.plan));
            one.inputs(&fold, order.map(|order| &order.inputs));
        }
        one.observations();
        for (call, facts) in &calls {
            one.call(call, facts, &fold);
        }
        for broken in promises::of_runs(&fold, &calls, runs) {
            one.violation(broken);
        }
        let mode = order.map(|order| order.approval_mode).unwrap_or_default();
        all_calls.extend(calls.into_iter().map(|(name, call)| (name, (mode, call))));
    }
    // Stored before it is acted on.
    let of_gone = |call: &str| gone.contains_key(call.split("/steps/").next().unwrap_or_default());
    for run in runs.iter().filter(|run| !all_calls.contains_key(&run.call) && !of_gone(&run.call)) {
        violations.push(format!("{} ran, and its intent is gone", run.call));
    }
    violations.extend(decisions::audit(evidence, &gone, runs, &all_calls));
    violations.extend(effects::audit(evidence, runs, &all_calls));
    violations
}

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

struct One<'a, 'v> {
    name: &'a str,
    kept: &'a Kept,
    heard: &'a ObservedExecution,
    runs: &'a [Run],
    owners: &'a Owners,
    /// The true time at which all faults had ended, in microseconds since the Unix epoch.
    healed_at: Option<i64>,
    /// Whether an executor drives only what it is asked to.
    drives_some: bool,
    damaged: &'a Damaged,
    violations: &'v mut Violations,
}

impl<'a> One<'a, '_> {
    fn violation(&mut self, what: impl std::fmt::Display) {
        self.violations.push(format!("{}: {what}", self.name));
    }

    /// Checks the events one by one: invariants 1, 2, 5, and the server's snapshots in between (B-02).
    fn replay(&mut self) -> Option<(Fold, BTreeMap<String, Call<'a>>)> {
        let kept: &'a Kept = self.kept;
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
            Some(Kind::StepStarted(_)) => {
                let steps = &fold.picture.steps;
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
                    matches!(spec.kind, Some(v1::step_spec::Kind::Tool(_))) && spec.for_each.is_none()
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
        let entries = fold.of_list(list).take(fold.listed.get(&list).copied().unwrap_or_default());
        let outputs = entries.map(|entry| json(fold.picture.steps[entry].output.as_ref(), blobs));
        let (outputs, found) = (Value::from_iter(outputs), json(collected.output.as_ref(), blobs));
        if outputs.as_array().is_some_and(|outputs| outputs.len() > 1) {
            trace::count("lists of several entries collected");
        }
        if found != outputs {
            self.violation(format_args!("event {} collects {found}, and the entries have {outputs}", event.sequence));
        }
    }

    /// Whether a person has said of a step, whose outcome was unknown, that its call is to be made again.
    fn is_made_again(&self, step: &str) -> bool {
        let again = |event: &&v1::ExecutionEvent| match &event.kind {
            Some(Kind::StepResolved(resolved)) => resolved.resolution() == v1::StepResolution::Again,
            _ => false,
        };
        self.kept.events.iter().filter(again).any(|event| event.step_id == step)
    }

    /// Whether a step is for an entry of a list, or for a call of a step, that was made to run again and has not read its list since.
    fn is_left_over(&self, step: &str) -> bool {
        let Some((list, _)) = step.rsplit_once('~') else { return false };
        self.kept.events.iter().fold(false, |left_over, event| match &event.kind {
            Some(Kind::ExecutionRetried(retried)) if retried.step_ids.iter().any(|id| id == list) => true,
            Some(Kind::StepItemsListed(_)) if event.step_id == list => false,
            _ => left_over,
        })
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

    /// Invariants 6 and 8, and 9 as far as possible without an audit log: every step ended, with an event.
    fn totals(&mut self, fold: &Fold) {
        let picture = &fold.picture;
        let finished: Vec<_> = self
            .kept
            .events
            .iter()
            .filter_map(|event| match &event.kind {
                Some(Kind::ExecutionFinished(finished)) => Some((event.sequence, finished)),
                _ => None,
            })
            .collect();
        let ends = finished.len();
        let Some((sequence, finished)) = finished.last().copied().filter(|_| ends == fold.went_on + 1) else {
            return self.violation(format_args!("it ended {ends} times, and went on {} times", fold.went_on));
        };
        if sequence != self.kept.execution.last_sequence || !is_terminal(finished.state()) {
            self.violation(format_args!(
                "it ended at event {sequence}, as {:?}, which is not the last",
                finished.state()
            ));
        }
        // What undoes a step was not to be done.
        let steps = || picture.steps.iter().zip(&fold.undoes).filter(|(_, undoes)| undoes.is_none());
        let count = |state| steps().filter(|(step, _)| step.state() == state).count();
        use step::State as S;
        let counted = [count(S::Completed), count(S::Failed), count(S::Skipped), count(S::Cancelled)];
        let totals = finished.totals.unwrap_or_default();
        let said = [totals.completed, totals.failed, totals.skipped, totals.cancelled]
            .map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        if counted != said || counted.iter().sum::<usize>() != steps().count() {
            self.violation(format_args!(
                "of {} steps it says {said:?}, and there are {counted:?}",
                picture.steps.len()
            ));
        }
        let [completed, failed, skipped, _] = counted;
        use execution::State as E;
        // What was done is undone unless all of it was to be done.
        let is_stopped = matches!(finished.state(), E::Cancelled | E::TimedOut) && completed < steps().count();
        if (failed > 0 || is_stopped) && fold.to_undo().iter().any(|step| !fold.undone_by.contains_key(step)) {
            self.violation(format_args!("it ended as {:?}, and {:?} are not undone", finished.state(), fold.to_undo()));
        }
        let fits = match finished.state() {
            E::Completed => failed == 0 && (completed > 0 || fold.is_skipped_by_conditions()),
            // Or a person skipped a step that others needed, or every step.
            E::Partial => failed > 0 && completed > 0 || failed == 0 && skipped > 0,
            E::Failed => failed > 0,
            _ => completed < steps().count(),
        };
        if !fits {
            self.violation(format_args!("it ended as {:?} with {counted:?}", finished.state()));
        }
        trace::count(match finished.state() {
            E::Completed => "executions completed",
            E::Partial => "executions partial",
            E::Failed => "executions failed",
            E::Cancelled => "executions cancelled",
            _ => "executions timed out",
        });
    }

    /// The plan is the requested one.
    fn plan(&mut self, fold: &Fold, asked: Option<&v1::Plan>) {
        let Some(asked) = asked else { return self.violation("it was not requested") };
        let needs = |plan: &v1::Plan| {
            let planned = plan.steps.iter().filter(|step| !step.id.contains('~'));
            planned.map(|step| (step.id.clone(), plans::dependencies(step))).collect::<Vec<_>>()
        };
        // Its people only add steps to it.
        if !needs(&fold.plan).starts_with(&needs(asked)) || (fold.revision == 0 && needs(asked) != needs(&fold.plan)) {
            self.violation("its plan is not the one that was asked for");
        }
        let terms = |plan: &v1::Plan| plan.steps.iter().map(documents::terms).collect::<Vec<_>>();
        let of_plan = |plan: &v1::Plan| (plan.escalation.clone(), plan.resources.clone(), plan.stop_on_error);
        if let Some(Kind::ExecutionCreated(created)) = self.kept.events.first().and_then(|event| event.kind.as_ref()) {
            let plan = created.plan.clone().unwrap_or_default();
            let (has, wants) = (terms(&plan), terms(asked));
            if has != wants || of_plan(&plan) != of_plan(asked) {
                self.violation(format_args!("its plan says {has:?}, and was to say {wants:?}"));
            }
        }
    }

    /// Its inputs are those that it was started with, and the plan's defaults.
    fn inputs(&mut self, fold: &Fold, asked: Option<&Inputs>) {
        let Some(values) = asked.and_then(|asked| asked.values.as_ref()) else { return };
        trace::count("executions with inputs");
        if json(fold.inputs.as_ref(), &self.kept.blobs) != *values {
            self.violation(format_args!("it was to have {values}, and has {:?}", fold.inputs));
        }
    }

    /// Nothing that was shown or acknowledged is lost. S2-NFR-005.
    fn observations(&mut self) {
        let kept: &'a Kept = self.kept;
        let heard: &'a ObservedExecution = self.heard;
        for (sequence, event) in &heard.events {
            let place = usize::try_from(sequence - 1).ok();
            if place.and_then(|place| kept.events.get(place)) != Some(event) {
                self.violation(format_args!("event {sequence} was shown and is gone"));
            }
        }
        let recorded = |id: &str| {
            kept.events
                .iter()
                .filter(|event| event.actor.as_ref().is_some_and(|actor| actor.request_id == id) && event.sequence > 1)
                .count()
        };
        for request in &heard.requests {
            match recorded(request) {
                1 => {}
                0 => self.violation(format_args!("request {request} was acknowledged and is gone")),
                times => self.violation(format_args!("request {request} was carried out {times} times")),
            }
        }
        if kept.execution.uid != heard.uid {
            self.violation("it is another one now");
        }
    }

    /// Invariants 2 and 12, and what the tool did for this call.
    fn call(&mut self, name: &str, call: &Call<'a>, fold: &Fold) {
        let [end] = call.ends[..] else {
            return self.violation(format_args!("{name} ended {} times", call.ends.len()));
        };
        // In true time: the events have the executor's time, whose clock may have been wrong.
        let ended = self.owners.stored_at(self.name, end.sequence);
        let all: &'a [Run] = self.runs;
        let runs: Vec<(usize, &Run)> = all.iter().enumerate().filter(|(_, run)| run.call == name).collect();
        // S2-FR-057, S2-NFR-007, B-01: an outcome that is stored is never made again.
        for (number, run) in &runs {
            if ended.is_some_and(|ended| run.began > ended + SKEW) {
                self.violation(format_args!(
                    "run {number} of {name} began after the call's end was stored: executed again"
                ));
            }
            if run.arguments != call.json(call.request.arguments.as_ref()) {
                self.violation(format_args!("run {number} of {name} had other arguments than its intent"));
            }
        }
        // What was made to run again since has other results.
        let attempt = name.rsplit_once('/').and_then(|(_, call)| call.split('.').next()?.parse::<i32>().ok());
        let is_superseded = attempt.is_some_and(|attempt| attempt <= fold.attempts_before[call.step])
            || self.is_left_over(&fold.picture.steps[call.step].step_id);
        if !is_superseded {
            self.arguments(name, call, fold);
        }
        let is_manual = tools::reaches_out(&call.request.tool);
        if is_manual && runs.len() > 1 {
            let how = call.twice();
            self.violation(format_args!("{name} was executed again: its body ran {} times{how}", runs.len()));
        }
        let successes: Vec<usize> =
            runs.iter().filter(|(_, run)| run.succeeded == Some(true)).map(|(number, _)| *number).collect();
        match &end.kind {
            Some(Kind::ToolCallCompleted(completed)) => {
                let result = call.json(completed.result.as_ref());
                let from = result["run"].as_u64().and_then(|run| usize::try_from(run).ok());
                // S2-NFR-006: the result is the one that the tool returned for these arguments.
                if !from.is_some_and(|run| successes.contains(&run)) {
                    self.violation(format_args!(
                        "{name} completed with the result of run {from:?}, and not of {successes:?}"
                    ));
                }
                if result["value"] != call.json(call.request.arguments.as_ref())["value"] {
                    self.violation(format_args!("{name} completed with another call's result"));
                }
                if !is_superseded && call.request.check.is_none() {
                    self.output(name, call, completed, fold);
                }
            }
            Some(Kind::ToolCallCancelled(_)) if is_manual && !runs.is_empty() => {
                self.violation(format_args!("{name} was discarded as if it had not run, and its body ran"));
            }
            Some(Kind::ToolCallDenied(_)) if is_manual && !runs.is_empty() => {
                self.violation(format_args!("{name} was denied, and its body ran"));
            }
            Some(Kind::ToolCallOutcomeUnknown(unknown)) => {
                // Only calls with external effects, and calls of a lost ledger, can have an unknown outcome.
                let reason = unknown.failure.as_ref().map_or("", |failure| &*failure.reason);
                if !is_manual && reason != "LEDGER_CHANGED" && !self.damaged.contains(name) {
                    self.violation(format_args!("{name} is said to be in doubt, and it can be made again: {reason}"));
                }
                trace::count("unknown outcomes");
            }
            Some(Kind::ToolCallFailed(failed)) => self.failed(name, failed),
            Some(Kind::ToolCallCancelled(cancelled)) => match &cancelled.failure {
                Some(failure) if failure.reason == "CONFLICT" => trace::count("conflicts"),
                Some(failure) if failure.reason == "FAILED_BESIDE_COMMITS" => {
                    trace::count("calls that run again because others committed beside them");
                }
                Some(failure) if failure.reason == "WORKSPACE_FULL" => trace::count("calls that wait for room"),
                _ => trace::count("calls discarded"),
            },
            Some(Kind::ToolCallDenied(_)) => trace::count("calls denied"),
            _ => {}
        }
    }

    /// A call fails only for its own reasons. It waits for a full disk and for an unavailable service.
    fn failed(&mut self, name: &str, failed: &v1::ToolCallFailed) {
        let Some(failure) = &failed.failure else {
            return self.violation(format_args!("{name} failed without a reason"));
        };
        match &*failure.reason {
            "WORKSPACE_FULL" | "LEDGER_UNAVAILABLE" | "STORE_FULL" => {
                self.violation(format_args!("{name} failed because of a full disk: {failure:?}"));
            }
            "CONFLICT" => trace::count("calls given up after conflicts"),
            _ => {}
        }
    }

    /// A completed call completes its step, once, and its result is the step's output.
    fn output(&mut self, name: &str, call: &Call<'a>, completed: &v1::ToolCallCompleted, fold: &Fold) {
        let step = &fold.picture.steps[call.step];
        // What has to hold after it does not, or the execution was stopped or the step's time was over before that was known; or the call that a check after
        // it takes was denied or skipped, or there is no budget left for it.
        let is_checked = !fold.plan.steps[call.step].postconditions.is_empty();
        let has_not_held = step.failure.as_ref().is_some_and(|failure| {
            use v1::ErrorClass::{ApprovalDenied, BudgetExhausted, PolicyDenied};
            matches!(&*failure.reason, "POSTCONDITION_FAILED" | "STEP_TIMEOUT")
                || matches!(failure.error_class(), ApprovalDenied | BudgetExhausted | PolicyDenied)
        });
        let fits = match step.state() {
            step::State::Completed => true,
            step::State::Failed => is_checked && has_not_held,
            state => is_checked && matches!(state, step::State::Cancelled | step::State::Skipped),
        };
        if !fits || step.output != completed.result {
            self.violation(format_args!("step {} is not what its completed call made it", step.step_id));
        }
        // S2-FR-058: however many attempts, calls and crashes it took, the effect is there once.
        let calls_of_step = name.rsplit_once('/').map_or(name, |(calls, _)| calls);
        let before = fold.attempts_before[call.step];
        let effects = self.runs.iter().filter(|run| {
            let Some((calls, number)) = run.call.rsplit_once('/') else { return false };
            let attempt = number.split('.').next().and_then(|attempt| attempt.parse::<i32>().ok());
            let is_one = run.succeeded == Some(true) && tools::reaches_out(run.tool);
            is_one && calls == calls_of_step && attempt.is_some_and(|attempt| attempt > before)
        });
        let effects = effects.count();
        let is_again = self.is_made_again(&step.step_id);
        if tools::reaches_out(&call.request.tool) && effects != 1 && !(is_again && effects > 1) {
            self.violation(format_args!("{calls_of_step} completed, and its effect happened {effects} times"));
        }
    }

    /// A call gets the arguments of its plan, with the results of earlier steps filled in.
    fn arguments(&mut self, name: &str, call: &Call<'a>, fold: &Fold) {
        let Some(tool) = &call.planned else {
            return self.violation(format_args!("{name} is a call that the plan does not have"));
        };
        if tool.tool != call.request.tool {
            self.violation(format_args!("{name} is of {}, and the plan has {}", call.request.tool, tool.tool));
        }
        let arguments = tool.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
        let planned: Value = serde_json::from_str(arguments).unwrap_or_default();
        let output_of = |id: &str| {
            let step = fold.picture.steps.iter().find(|step| step.step_id == id)?;
            Some(json(step.output.as_ref(), &self.kept.blobs)["run"].clone())
        };
        if call.request.check.is_some() && call.arguments() != planned {
            self.violation(format_args!("{name} was not given {planned}"));
        }
        if planned["value"] == "${item.value}" {
            if call.json(call.request.arguments.as_ref()).get("value") != call.entry.as_ref() {
                self.violation(format_args!("{name} was not given the entry {:?}", call.entry));
            }
            return;
        }
        let own = json(fold.inputs.as_ref(), &self.kept.blobs);
        let template = planned["value"].as_str().and_then(|text| {
            let (before, rest) = text.split_once("${")?;
            let of_input = rest.split_once('}').and_then(|(template, _)| inputs::resolve(template, &own));
            if of_input.is_some() {
                trace::count("inputs used");
            }
            Some((before, of_input.or_else(|| output_of(rest.split_once('.')?.0))?))
        });
        let expected = match template {
            Some(("", run)) => run,
            Some((before, Value::String(text))) => format!("{before}{text}").into(),
            Some((before, run)) => format!("{before}{run}").into(),
            None => planned["value"].clone(),
        };
        if call.json(call.request.arguments.as_ref())["value"] != expected {
            self.violation(format_args!("{name} was not given {expected}"));
        }
    }
}

fn is_over(state: step::State) -> bool {
    use step::State as S;
    matches!(state, S::Completed | S::Failed | S::Skipped | S::Cancelled)
}
