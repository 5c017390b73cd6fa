//! Checks before and after a step's call: expressions, files that exist, programs that succeed, and the schema of its output.
//!
//! An attempt goes through its checks in order: those before the call, the call, the schema of its output, those after it. A file and a program take
//! calls of the same attempt, which carry their place; an expression leaves no event when it holds, since nothing else could have followed. A check that
//! fails ends the step: another attempt would find the same, or do again what the call has done.

use std::{sync::Arc, time::Duration};

use belay_plan::{Check, CheckPlace, ToolStep};
use belay_reasons as reasons;
use serde_json::Value;

use super::{condition, outputs::value_of, request};
use crate::{
    Blobs, Body, ConditionResult, DecideContext, ErrorClass, Execution, Failure, Payload, StepEvent, StepKey,
    Violation,
    state::{AgentEntry, AttemptEnd, StepRecord},
};

/// Returns the next event of a started step that makes calls; `None` while it needs a value that has not been read.
pub(super) fn next(
    execution: &Execution,
    step: StepKey,
    own: &ToolStep,
    context: DecideContext<'_>,
    blobs: &dyn Blobs,
) -> Option<Body> {
    let record = &execution.steps[step];
    let before = record.preconditions();
    if record.checked <= before.len() {
        for (place, check) in before.iter().enumerate().skip(record.checked) {
            if let Some(next) = ask(execution, step, CheckPlace::Before(place), check, context, blobs) {
                return next;
            }
        }
        return request::call(execution, step, own, None, context, blobs);
    }
    let after = record.checked - before.len() - 1;
    if after == 0
        && let Some(schema) = record.output_schema()
    {
        match fits(record, schema, blobs)? {
            Ok(()) => {}
            Err(failure) => return Some(execution.fail(step, failure)),
        }
    }
    for (place, check) in record.postconditions().iter().enumerate().skip(after) {
        if let Some(next) = ask(execution, step, CheckPlace::After(place), check, context, blobs) {
            return next;
        }
    }
    let duration = record.started_at.map_or(Duration::ZERO, |started| context.now.since(started));
    let event = StepEvent::Completed { progress: execution.progress_with(step), duration };
    Some(Body::Step { step: record.id.clone(), attempt: record.attempt, event })
}

/// Evaluates a check: `None` when it holds, otherwise the next event, or that a value has not been read.
fn ask(
    execution: &Execution,
    step: StepKey,
    place: CheckPlace,
    check: &Check,
    context: DecideContext<'_>,
    blobs: &dyn Blobs,
) -> Option<Option<Body>> {
    match check {
        Check::File(call) | Check::Command(call) | Check::Judge(call) => {
            Some(request::call(execution, step, call, Some(place), context, blobs))
        }
        Check::Condition(expression) => match condition::holds(execution, step, Some(place), expression, blobs) {
            None => Some(None),
            Some(Ok(true)) => None,
            Some(Ok(false)) => Some(Some(execution.fail(step, is_false(place, check)))),
            Some(Err(failure)) => Some(Some(execution.fail(step, failure))),
        },
    }
}

/// Whether the output of a step's call fits the schema that the plan gives; `None` while that is not known.
fn fits(record: &StepRecord, schema: &Value, blobs: &dyn Blobs) -> Option<Result<(), Failure>> {
    let value = match record.output.as_ref().map(|output| value_of(&record.id, output, blobs)) {
        None => Value::Null,
        Some(Ok(value)) => value?,
        Some(Err(failure)) => return Some(Err(failure)),
    };
    match blobs.validate(&record.id, schema, value) {
        ConditionResult::Known(true) => Some(Ok(())),
        ConditionResult::Known(false) => Some(Err(invalid_output("."))),
        ConditionResult::Failed(why) | ConditionResult::Absent(why) => Some(Err(invalid_output(&format!(": {why}.")))),
        ConditionResult::Wanted => None,
    }
}

fn invalid_output(why: &str) -> Failure {
    let message = format!("The step's output does not fit its `output_schema`{why} What its call did is done.");
    Failure::new(ErrorClass::PostconditionFailed, reasons::INVALID_OUTPUT, message)
}

fn is_false(place: CheckPlace, check: &Check) -> Failure {
    let (class, reason, kind) = words(place);
    Failure::new(class, reason, format!("A {kind} of the step does not hold: {}.", check.in_words()))
}

fn words(place: CheckPlace) -> (ErrorClass, &'static str, &'static str) {
    match place {
        CheckPlace::Before(_) => (ErrorClass::PreconditionFailed, reasons::PRECONDITION_FAILED, "precondition"),
        CheckPlace::After(_) => (ErrorClass::PostconditionFailed, reasons::POSTCONDITION_FAILED, "postcondition"),
    }
}

/// The failure of a step whose check's call has failed.
pub(super) fn failed(check: Option<&Check>, place: CheckPlace, cause: &Failure) -> Failure {
    let (class, reason, kind) = words(place);
    let what = check.map(Check::in_words).unwrap_or_default();
    let message = format!("A {kind} of the step does not hold: {what}. {}", cause.message);
    Failure {
        last_output: cause.last_output.clone(),
        cause: Some(Arc::new(cause.clone())),
        ..Failure::new(class, reason, message)
    }
}

/// Applies that a call of a check has completed, or the step's own call with checks after it: the attempt continues.
pub(super) fn passed(execution: &mut Execution, step: StepKey, place: Option<CheckPlace>) {
    let sequence = execution.last_sequence + 1;
    execution.update_step(step, |record| {
        record.checked = 1 + record.position(place);
        (record.operations_before_purpose, record.conflicts, record.failed_during_commits) =
            (record.operations, 0, false);
        record.questions = 0;
        if place.is_none() {
            record.completed_by = sequence;
        }
    });
}

/// A principal says what a call did whose outcome was unknown.
pub(crate) fn resolved(execution: &mut Execution, step: StepKey, result: Payload) {
    let record = &execution.steps[step];
    let is_own = record.makes_own_call();
    let has_more = record.has_checks_after();
    match (is_own, has_more) {
        (true, false) => execution.update_step(step, |record| {
            (record.end, record.output) = (Some(AttemptEnd::Completed), Some(result));
        }),
        (true, true) => {
            execution.update_step(step, |record| record.output = Some(result));
            passed(execution, step, None);
        }
        // What a check returned is of no use to other steps.
        (false, _) => execution.update_step(step, |record| {
            (record.checked, record.operations_before_purpose) = (record.checked + 1, record.operations);
            record.questions = 0;
        }),
    }
}

impl StepRecord {
    /// The checks before its call; empty for a step whose entries do the work, that compensates another, or that commits.
    pub(crate) fn preconditions(&self) -> &[Check] {
        let is_checked = match self.agent_entry() {
            // Before the model is asked for the first time.
            Some(_) => self.is_first_turn(),
            None => self.is_checked(),
        };
        if is_checked { self.spec.preconditions() } else { &[] }
    }

    /// The checks after its call.
    pub(crate) fn postconditions(&self) -> &[Check] {
        if self.is_checked_after() { self.spec.postconditions() } else { &[] }
    }

    fn output_schema(&self) -> Option<&Value> {
        self.spec.output_schema().filter(|_| self.is_checked_after())
    }

    /// Whether what it returns is checked. Of a step with a goal, that is what the model says that it has done.
    fn is_checked_after(&self) -> bool {
        match self.agent_entry() {
            Some(entry) => matches!(entry, AgentEntry::Completion { .. }),
            None => self.is_checked(),
        }
    }

    fn is_checked(&self) -> bool {
        !self.has_entries() && self.compensates().is_none() && !self.commits_step()
    }

    /// Whether anything is checked once its call has ended with a result.
    pub(crate) fn has_checks_after(&self) -> bool {
        self.output_schema().is_some() || !self.postconditions().is_empty()
    }

    /// Whether what its attempt is at is its own call, and not that of a check.
    pub(crate) fn makes_own_call(&self) -> bool {
        self.checked == self.preconditions().len()
    }

    /// Whether its own call is the next that it makes: no check before it takes one.
    pub(crate) fn makes_own_call_next(&self) -> bool {
        let left = self.preconditions().iter().skip(self.checked);
        !self.has_done() && !left.into_iter().any(|check| check.call().is_some())
    }

    /// The call that it makes next, as far as no check between is one that takes no call: that of a check, or its own.
    pub(crate) fn call_due(&self) -> Option<&ToolStep> {
        let is_call = |check: &&Check| check.call().is_some();
        let check = match self.has_done() {
            false => self.preconditions().iter().skip(self.checked).find(is_call),
            true => {
                let asked = self.checked - self.preconditions().len() - 1;
                self.postconditions().iter().skip(asked).find(is_call)
            }
        };
        match check.and_then(Check::call) {
            Some(call) => Some(call),
            None if self.has_done() => None,
            None => self.current_call(),
        }
    }

    /// Whether the call of its attempt has ended with a result.
    pub(crate) fn has_done(&self) -> bool {
        self.checked > self.preconditions().len()
    }

    /// Whether a check after its call, which it has made, takes a call.
    pub(crate) fn has_calls_left(&self) -> bool {
        let asked = self.checked.saturating_sub(self.preconditions().len() + 1);
        self.postconditions().iter().skip(asked).any(|check| check.call().is_some())
    }

    /// Where in an attempt a call stands; `None` is the step's own.
    pub(crate) fn position(&self, place: Option<CheckPlace>) -> usize {
        let before = self.preconditions().len();
        match place {
            Some(CheckPlace::Before(place)) => place,
            None => before,
            Some(CheckPlace::After(place)) => before + 1 + place,
        }
    }

    /// Checks that the next call of its attempt can be this one.
    pub(crate) fn check_can_call(&self, place: Option<CheckPlace>) -> Result<(), Violation> {
        let is_one = match place {
            None => true,
            Some(place) => {
                let checks = match place {
                    CheckPlace::Before(_) => self.preconditions(),
                    CheckPlace::After(_) => self.postconditions(),
                };
                !checks.is_empty() && self.spec.check(place).is_some_and(|check| check.call().is_some())
            }
        };
        let is_next = if self.has_done() {
            matches!(place, Some(CheckPlace::After(_))) && self.position(place) >= self.checked
        } else {
            !matches!(place, Some(CheckPlace::After(_))) && self.position(place) >= self.checked
        };
        if is_one && is_next {
            return Ok(());
        }
        Err(Violation::NoSuchCall { step: self.id.clone(), check: place, checked: self.checked })
    }
}
