//! Audits what a plan says of its steps' order: from the recorded events, and from what the tools really did.

use std::collections::{BTreeMap, BTreeSet};

use belay_proto::v1::{self, ErrorClass, check_place::When, execution_event::Kind, step, step_spec};

use super::calls::{self, Blobs, Call};
use super::features;
use super::inputs;
use super::outside::Run;
use super::picture::Fold;
use super::plans;
use crate::trace;

/// The state of the steps of one execution by the events so far. Steps are indexes into the fold's.
#[derive(Debug, Default)]
pub(super) struct Promises {
    attempts: BTreeMap<usize, Attempts>,
    /// The steps that use their resources.
    using: BTreeSet<usize>,
    checked: BTreeMap<usize, AttemptProgress>,
    /// The steps whose output a person has given, or whose next attempt a person has cancelled.
    by_request: BTreeSet<usize>,
}

/// The attempts of the call that a step makes now.
#[derive(Debug, Default, Clone, Copy)]
struct Attempts {
    /// How many attempts the step had made when it was last made to run again.
    round: i32,
    made: i32,
}

/// How far the newest attempt of a step has come.
#[derive(Debug, Default)]
struct AttemptProgress {
    /// The positions of the calls that have completed.
    done: BTreeSet<usize>,
    /// The position of the newest call.
    newest: Option<usize>,
}

/// Where a call stands in an attempt: after the checks before it.
fn position(spec: &v1::StepSpec, place: Option<&v1::CheckPlace>) -> usize {
    let before = spec.preconditions.len();
    let Some(place) = place else { return before };
    let number = usize::try_from(place.position).unwrap_or_default();
    if place.when() == When::Before { number } else { before + 1 + number }
}

/// The call that one of a step's checks takes.
pub(super) fn call_of_check(spec: &v1::StepSpec, place: v1::CheckPlace) -> Option<v1::ToolStep> {
    let checks = if place.when() == When::Before { &spec.preconditions } else { &spec.postconditions };
    features::call_of(checks.get(usize::try_from(place.position).ok()?)?)
}

/// The positions of the calls of a whole attempt.
fn all_calls(spec: &v1::StepSpec) -> Vec<usize> {
    let is_call = |check: &v1::Check| features::call_of(check).is_some();
    let own = spec.preconditions.len();
    let before = spec.preconditions.iter().enumerate().filter(|(_, check)| is_call(check)).map(|(place, _)| place);
    let after = spec.postconditions.iter().enumerate().filter(|(_, check)| is_call(check));
    before.chain([own]).chain(after.map(|(place, _)| own + 1 + place)).collect()
}

/// Whether a step that failed like this is tried again, according to the contract.
pub(super) fn is_retried(failure: Option<&v1::Failure>) -> bool {
    use ErrorClass as C;
    let class = failure.map(v1::Failure::error_class).unwrap_or_default();
    matches!(class, C::Crash | C::RateLimit | C::Transient | C::Timeout | C::InvalidResult)
}

/// Whether the condition of a step holds, when only the inputs decide that.
fn asked_of_inputs(spec: &v1::StepSpec, fold: &Fold) -> Option<bool> {
    let values = calls::json(fold.inputs.as_ref(), &Blobs::new());
    inputs::holds(&spec.condition, &values)
}

fn max_attempts(spec: &v1::StepSpec) -> i32 {
    spec.retry.as_ref().map_or(1, |retry| retry.max_attempts)
}

impl Promises {
    /// The promises that an event that follows those so far breaks; the fold does not have it yet.
    pub(super) fn before(&mut self, event: &v1::ExecutionEvent, fold: &Fold) -> Vec<String> {
        let Ok(step) = fold.index(event) else { return Vec::new() };
        let Some(kind) = &event.kind else { return Vec::new() };
        let mut broken = self.tries(event, kind, step, fold);
        broken.extend(self.uses(kind, step, fold));
        broken.extend(self.checks(kind, step, fold));
        let id = &fold.plan.steps[step].id;
        broken.into_iter().map(|what| format!("event {} of step {id}: {what}", event.sequence)).collect()
    }

    /// Every call of a step has its attempts, and the next one takes its place only after these, unless a person does not wait for them.
    fn tries(&mut self, event: &v1::ExecutionEvent, kind: &Kind, step: usize, fold: &Fold) -> Vec<String> {
        let (spec, round) = (&fold.plan.steps[step], fold.attempts_before[step]);
        let before = self.attempts.get(&step).copied().filter(|attempts| attempts.round == round);
        if before.is_none() {
            self.by_request.remove(&step);
        }
        let mut attempts = before.unwrap_or(Attempts { round, made: 0 });
        let (made, most) = (attempts.made, max_attempts(spec));
        let next = spec.fallback.get(fold.calls[step]);
        let mut broken = Vec::new();
        match kind {
            // One that runs after another end of a step is also skipped like this, because of that step.
            Kind::StepSkipped(skipped)
                if skipped.reason() == v1::SkipReason::ConditionFalse
                    && skipped.because.is_empty()
                    && asked_of_inputs(spec, fold) == Some(true) =>
            {
                broken.push("its condition holds, and it is skipped for it".to_owned());
            }
            Kind::StepStarted(_) => {
                if made == 0 && asked_of_inputs(spec, fold) == Some(false) {
                    broken.push("its condition does not hold, and it starts".to_owned());
                }
                attempts.made += 1;
                if made >= most {
                    broken.push(format!("attempt {} of a call that has {most}", made + 1));
                }
            }
            Kind::StepRetryScheduled(_) if made >= most => broken.push(format!("a retry after {made} attempts")),
            Kind::StepFallbackSwitched(switched) => {
                let tools = (fold.call(step).map(|call| &call.tool), next.map(|call| &call.tool));
                if tools != (Some(&switched.failed_tool), Some(&switched.fallback_tool)) {
                    broken.push(format!(
                        "it goes from {} to {}, not as in {tools:?}",
                        switched.failed_tool, switched.fallback_tool
                    ));
                }
                let class = switched.failure.as_ref().map(v1::Failure::error_class);
                let is_gone = class == Some(ErrorClass::AgentUnavailable);
                if event.actor.is_some() {
                    trace::count("calls fallen back to by a person");
                    if fold.picture.steps[step].state() != step::State::BackingOff {
                        broken.push("a person has it fall back, and it waits for no attempt".to_owned());
                    }
                } else if !is_gone && (made < most || !is_retried(switched.failure.as_ref())) {
                    broken.push(format!("it falls back after {made} attempts of {most}: {:?}", switched.failure));
                }
                attempts.made = 0;
            }
            Kind::StepRetryCancelled(_) | Kind::StepOutputSet(_) => drop(self.by_request.insert(step)),
            Kind::StepFailed(failed) => {
                let has_time = spec.timeout.is_none() && spec.group_timeouts.is_empty();
                let is_open = made > 0 && !fold.is_stopping() && has_time;
                let is_asked = self.by_request.contains(&step);
                // A list fails with its entries.
                let is_list = plans::has_entries(spec);
                let is_left = made < most || next.is_some();
                if is_open && !is_asked && !is_list && is_left && is_retried(failed.failure.as_ref()) {
                    broken.push(format!("it gives up after {made} attempts of {most}, before {next:?}"));
                }
            }
            _ => {}
        }
        self.attempts.insert(step, attempts);
        broken
    }

    /// No more steps use a resource at once than the plan lets, from the start of the first attempt to the end of the step.
    fn uses(&mut self, kind: &Kind, step: usize, fold: &Fold) -> Vec<String> {
        let ends = matches!(
            kind,
            Kind::StepCompleted(_) | Kind::StepFailed(_) | Kind::StepSkipped(_) | Kind::StepCancelled(_)
        );
        if ends {
            self.using.remove(&step);
        }
        // The steps for the entries of a list use what it says.
        let begins = matches!(kind, Kind::StepStarted(_)) && !plans::has_entries(&fold.plan.steps[step]);
        if !begins || !self.using.insert(step) {
            return Vec::new();
        }
        let resources = &fold.plan.steps[step].resources;
        let count = |resource: &String| {
            self.using.iter().filter(|other| fold.plan.steps[**other].resources.contains(resource)).count()
        };
        let too_many = resources.iter().filter(|resource| count(resource) > capacity(&fold.plan, resource));
        too_many.map(|resource| format!("{} steps use {resource}", count(resource))).collect()
    }

    /// An attempt makes the calls that its checks take and its own in their order, each after those before it have completed.
    fn checks(&mut self, kind: &Kind, step: usize, fold: &Fold) -> Vec<String> {
        let spec = &fold.plan.steps[step];
        let is_call = matches!(spec.kind, Some(step_spec::Kind::Tool(_))) && !plans::has_entries(spec);
        if !is_call {
            return Vec::new();
        }
        let checked = self.checked.entry(step).or_default();
        let missing = |done: &BTreeSet<usize>, until: usize| -> Vec<usize> {
            all_calls(spec).into_iter().filter(|place| *place < until && !done.contains(place)).collect()
        };
        match kind {
            Kind::StepStarted(_) => *checked = AttemptProgress::default(),
            Kind::ToolCallRequested(requested) => {
                let place = position(spec, requested.check.as_ref());
                checked.newest = Some(place);
                let missing = missing(&checked.done, place);
                if !missing.is_empty() {
                    return vec![format!("call {place} of the attempt is made before {missing:?} held")];
                }
                if let Some(later) = checked.done.range(place..).next() {
                    return vec![format!("call {place} of the attempt is made after {later} has completed")];
                }
            }
            // The place of its own call, which is the newest, is taken by an earlier result.
            Kind::ToolCallCompleted(_) | Kind::StepCachedResultUsed(_) => checked.done.extend(checked.newest),
            Kind::StepResolved(resolved) if resolved.resolution() == v1::StepResolution::Completed => {
                checked.done.extend(checked.newest);
            }
            Kind::StepCompleted(_) if !self.by_request.contains(&step) => {
                let missing = missing(&checked.done, usize::MAX);
                if !missing.is_empty() {
                    return vec![format!("it completes before {missing:?} held")];
                }
            }
            Kind::StepCompleted(_) => drop(self.by_request.remove(&step)),
            _ => {}
        }
        Vec::new()
    }

    /// Whether a call follows one that has completed in the same attempt, as what is checked next or the step's own call after a check.
    pub(super) fn goes_on(&self, event: &v1::ExecutionEvent, step: usize, fold: &Fold) -> bool {
        let Some(Kind::ToolCallRequested(requested)) = &event.kind else { return false };
        let place = position(&fold.plan.steps[step], requested.check.as_ref());
        self.checked.get(&step).is_some_and(|checked| checked.done.last().is_some_and(|last| *last < place))
    }
}

/// How many steps may use a resource at once.
fn capacity(plan: &v1::Plan, resource: &str) -> usize {
    let known = plan.resources.iter().find(|known| known.name == resource);
    known.map_or(1, |known| usize::try_from(known.capacity).unwrap_or_default())
}

/// The promises that the runs of an execution's calls break.
pub(super) fn of_runs(fold: &Fold, calls: &BTreeMap<String, Call<'_>>, runs: &[Run]) -> Vec<String> {
    let of_calls = runs.iter().filter_map(|run| Some((run, calls.get_key_value(&run.call)?)));
    let of_calls: Vec<(&Run, &String, &Call<'_>)> = of_calls.map(|(run, (name, call))| (run, name, call)).collect();
    let mut broken = at_once(fold, &of_calls);
    broken.extend(in_order(&of_calls));
    broken.extend(after_checks(fold, calls, runs, &of_calls));
    broken
}

/// The runs of steps that use a resource, those that have ended: never more at once than may use it.
fn at_once(fold: &Fold, runs: &[(&Run, &String, &Call<'_>)]) -> Vec<String> {
    let mut broken = Vec::new();
    let names: BTreeSet<&String> = fold.plan.steps.iter().flat_map(|step| &step.resources).collect();
    for name in names {
        let uses =
            |call: &Call<'_>| fold.undoes[call.step].is_none() && fold.plan.steps[call.step].resources.contains(name);
        let using = runs.iter().filter(|(_, _, call)| uses(call));
        let spans: Vec<(u64, u64, usize)> =
            using.filter_map(|(run, _, call)| Some((run.order, run.ended?, call.step))).collect();
        for (began, ..) in &spans {
            let now = spans.iter().filter(|(other, ended, _)| (other..ended).contains(&began));
            let steps: BTreeSet<usize> = now.map(|(.., step)| *step).collect();
            if steps.len() > 1 {
                trace::count("resources shared");
            }
            if steps.len() > capacity(&fold.plan, name) {
                broken.push(format!("tools of the steps {steps:?} ran at once, which use {name}"));
            }
        }
    }
    broken
}

/// No call of a step runs any more once one that takes its place has run.
fn in_order(runs: &[(&Run, &String, &Call<'_>)]) -> Vec<String> {
    let mut newest = BTreeMap::<(usize, i32), usize>::new();
    let mut broken = Vec::new();
    for (_, name, call) in runs.iter().filter(|(_, _, call)| call.request.check.is_none()) {
        let which = newest.entry((call.step, call.round)).or_default();
        if call.which < *which {
            broken.push(format!("{name} ran after call {which} had taken its place"));
        }
        *which = call.which.max(*which);
    }
    broken
}

/// A step's own call runs only after those that the checks before it take have succeeded in the same attempt.
fn after_checks(
    fold: &Fold,
    calls: &BTreeMap<String, Call<'_>>,
    all: &[Run],
    runs: &[(&Run, &String, &Call<'_>)],
) -> Vec<String> {
    let mut broken = Vec::new();
    for (run, name, call) in runs.iter().filter(|(_, _, call)| call.request.check.is_none()) {
        let spec = &fold.plan.steps[call.step];
        let own = spec.preconditions.len();
        let attempt = name.rsplit_once('.').unwrap_or_default().0;
        for place in all_calls(spec).into_iter().filter(|place| *place < own) {
            let is_it = |(name, call): &(&String, &Call<'_>)| {
                name.rsplit_once('.').is_some_and(|(stem, _)| stem == attempt)
                    && call.request.check.as_ref().is_some_and(|check| position(spec, Some(check)) == place)
            };
            // Of one whose outcome was unknown a person has said it.
            let is_unknown = |call: &Call<'_>| matches!(call.end(), Some(Kind::ToolCallOutcomeUnknown(_)));
            let held = |call: &Call<'_>| {
                let held = call.completed_with().and_then(|run| all.get(run));
                held.is_some_and(|held| held.ended.is_some_and(|ended| ended < run.order)) || is_unknown(call)
            };
            trace::count("calls after their checks");
            if !calls.iter().filter(is_it).any(|(_, call)| held(call)) {
                broken.push(format!("{name} ran, and what has to hold before it ({place}) had not been found to"));
            }
        }
    }
    broken
}
