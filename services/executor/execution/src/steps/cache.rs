//! Earlier results of calls, which take the place of a call's own when that has failed and the plan says so (`on_error: {TIMEOUT: use_cache}`).
//!
//! A result serves for the same tool with the same arguments, and only of a tool that changes nothing: a change is made, and not looked up.
//! Only steps whose plan says `use_cache` remember theirs.

use belay_plan::RecoveryStrategy;

use super::checks;
use crate::{
    Blobs, CachedFrom, CachedResult, CallIdentity, EarlierResult, Execution, Failure, Payload, RecoveryClass,
    StepEvent, StepKey, StepState, Timestamp, ToolCallRequest, Violation,
    state::{AttemptEnd, StepCache, StepRecord},
};

impl StepRecord {
    /// A call of its own is requested. A step whose plan says nothing of earlier results any more forgets what it remembers.
    pub(crate) fn remember_call(&mut self, request: &ToolCallRequest) {
        if request.check.is_some() || self.compensates().is_some() {
            return;
        }
        if !self.spec.may_use_cache() {
            self.cache = None;
            return;
        }
        let call = CallIdentity { tool: request.tool.clone(), arguments_digest: request.arguments_digest.clone() };
        let empty = || Box::new(StepCache { calls: Vec::new(), last: None, used: None });
        let cache = self.cache.get_or_insert_with(empty);
        if cache.calls.last() != Some(&call) {
            cache.calls.push(call);
        }
    }

    /// A call of its own has returned a result; only that of a tool that changes nothing can be used again.
    pub(crate) fn remember_result(&mut self, result: &Payload, recovery: Option<RecoveryClass>, time: Timestamp) {
        let Some(cache) = self.cache.as_mut().filter(|_| recovery == Some(RecoveryClass::ReadOnly)) else { return };
        if let Some(call) = cache.calls.last().cloned() {
            cache.last = Some(EarlierResult { call, result: result.clone(), completed_at: time });
        }
    }
}

impl Execution {
    /// The last results of its steps that may take the place of those of other calls.
    pub fn earlier_results(&self) -> impl Iterator<Item = &EarlierResult> {
        self.steps.iter().filter_map(|(_, record)| record.cache.as_ref()?.last.as_ref())
    }

    /// The event that takes the place of a step's failure: an earlier result is used, or the step fails where there is none; `None` while that is not known.
    /// A failure for which the plan has no `use_cache` stays as it is.
    pub(crate) fn instead_of_failure(
        &self,
        step: StepKey,
        failed: StepEvent,
        now: Timestamp,
        blobs: &dyn Blobs,
    ) -> Option<StepEvent> {
        let record = &self.steps[step];
        let StepEvent::Failed { failure, progress } = failed else { return Some(failed) };
        let uses_cache = record.spec.recovery(failure.class) == Some(RecoveryStrategy::UseCache);
        let Some(cache) =
            record.cache.as_ref().filter(|_| uses_cache && self.stop.is_none() && record.makes_own_call())
        else {
            return Some(StepEvent::Failed { failure, progress });
        };
        // That of its own call comes before those of the calls that took its place.
        let mut found = None;
        for call in cache.calls.iter().filter(|call| self.changes_nothing(call)) {
            found = self.earlier_result(call, blobs)?;
            if found.is_some() {
                break;
            }
        }
        Some(match found {
            Some((result, execution, completed_at)) => {
                let age = now.since(completed_at);
                StepEvent::CachedResultUsed { failure, result, source: CachedFrom { execution, completed_at, age } }
            }
            None => {
                let why = match cache.calls.iter().any(|call| self.changes_nothing(call)) {
                    true => "There is no earlier result of the same call to use instead.",
                    false => "No earlier result takes its place, since its tool may change something.",
                };
                let message = format!("{} {why}", failure.message);
                StepEvent::Failed { failure: Failure { message, ..failure }, progress }
            }
        })
    }

    /// The last result of the same call, with the execution that it is from, which is empty for this one, and its time. The outer `None`: it is not known yet.
    fn earlier_result(&self, call: &CallIdentity, blobs: &dyn Blobs) -> Option<Option<(Payload, String, Timestamp)>> {
        let own = self.earlier_results().filter(|earlier| earlier.call == *call);
        if let Some(own) = own.max_by_key(|earlier| earlier.completed_at) {
            return Some(Some((own.result.clone(), String::new(), own.completed_at)));
        }
        match blobs.earlier_result(call) {
            CachedResult::Wanted => None,
            CachedResult::Absent => Some(None),
            CachedResult::Known { result, execution, completed_at } => {
                Some(Some((blobs.payload(result), execution, completed_at)))
            }
        }
    }

    /// Whether the tool of a call changes nothing: a change is made, and not looked up.
    fn changes_nothing(&self, call: &CallIdentity) -> bool {
        let facts = self.tools().iter().find(|facts| facts.tool == call.tool);
        facts.is_some_and(|facts| facts.recovery == RecoveryClass::ReadOnly)
    }
}

/// Applies that an earlier result takes the place of a call's own: the step continues as if its call had returned it.
pub(crate) fn used(
    execution: &mut Execution,
    step: StepKey,
    attempt: u32,
    failure: &Failure,
    (result, source): (&Payload, &CachedFrom),
    time: Timestamp,
) -> Result<(), Violation> {
    let record = &execution.steps[step];
    let has_failed = record.state == StepState::Running && matches!(record.end, Some(AttemptEnd::Failed(_)));
    let may = record.spec.recovery(failure.class) == Some(RecoveryStrategy::UseCache) && record.cache.is_some();
    if attempt != record.attempt || !has_failed || !may || !record.makes_own_call() || execution.stop.is_some() {
        return Err(Violation::NoCachedResult(record.id.clone()));
    }
    execution.update_step(step, |record| {
        record.failed(attempt, failure, time);
        record.end = None;
        if let Some(cache) = &mut record.cache {
            cache.used = Some(source.clone());
        }
    });
    checks::resolved(execution, step, result.clone());
    Ok(())
}
