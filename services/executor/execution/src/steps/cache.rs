//! Earlier results of calls, which take the place of a call's own when that has failed and the plan says so (`on_error: {TIMEOUT: use_cache}`).
//!
//! A result serves for the same tool with the same arguments, and only if the call that returned it changed nothing: a change is made, and not looked up.
//! Only steps whose plan says `use_cache` remember theirs.

use belay_plan::RecoveryStrategy;

use super::checks;
use crate::{
    Blobs, CachedFrom, CachedResult, CallIdentity, EarlierResult, Execution, Failure, Payload, Receipt, StepEvent,
    StepKey, StepState, Timestamp, ToolCallRequest,
    state::{OperationEnd, StepCache, StepRecord},
};

impl StepRecord {
    /// A call of its own is requested.
    pub(crate) fn remember_call(&mut self, request: &ToolCallRequest) {
        if request.check.is_some() || !self.spec.may_use_cache() || self.compensates().is_some() {
            return;
        }
        let call = CallIdentity { tool: request.tool.clone(), arguments_digest: request.arguments_digest.clone() };
        match &mut self.cache {
            Some(cache) => cache.call = call,
            None => self.cache = Some(Box::new(StepCache { call, last: None, used: None })),
        }
    }

    /// A call of its own has returned a result.
    pub(crate) fn remember_result(&mut self, result: &Payload, receipt: &Receipt, time: Timestamp) {
        if let Some(cache) = self.cache.as_mut().filter(|_| receipt.effect_digest.is_empty()) {
            cache.last = Some(EarlierResult { call: cache.call.clone(), result: result.clone(), completed_at: time });
        }
    }
}

impl Execution {
    /// The last results of its steps that may take the place of those of other calls.
    pub fn earlier_results(&self) -> impl Iterator<Item = &EarlierResult> {
        self.steps.iter().filter_map(|(_, record)| record.cache.as_ref()?.last.as_ref())
    }

    /// What takes the place of the failure of a step's call: the event with which an earlier result is used, or the failure where there is none; `None` while
    /// that is not known. A failure after which the plan says nothing of the kind stays as it is.
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
        let own = self.earlier_results().filter(|earlier| earlier.call == cache.call);
        let own = own.max_by_key(|earlier| earlier.completed_at);
        let own = own.map(|earlier| (earlier.result.clone(), String::new(), earlier.completed_at));
        let found = match own {
            Some(own) => Some(own),
            None => match blobs.earlier_result(&cache.call) {
                CachedResult::Wanted => return None,
                CachedResult::Absent => None,
                CachedResult::Known { result, execution, completed_at } => {
                    Some((blobs.payload(result), execution, completed_at))
                }
            },
        };
        Some(match found {
            Some((result, execution, completed_at)) => {
                let age = now.since(completed_at);
                StepEvent::CachedResultUsed { failure, result, source: CachedFrom { execution, completed_at, age } }
            }
            None => {
                let message =
                    format!("{} There is no earlier result of the same call to use instead.", failure.message);
                StepEvent::Failed { failure: Failure { message, ..failure }, progress }
            }
        })
    }
}

/// Applies that an earlier result takes the place of a call's own: the step goes on as if its call had returned it.
pub(crate) fn used(
    execution: &mut Execution,
    step: StepKey,
    attempt: u32,
    failure: &Failure,
    (result, source): (&Payload, &CachedFrom),
    time: Timestamp,
) -> Result<(), String> {
    let record = &execution.steps[step];
    let has_failed = record.state == StepState::Running && matches!(record.end, Some(OperationEnd::Failed(_)));
    let may = record.spec.recovery(failure.class) == Some(RecoveryStrategy::UseCache) && record.cache.is_some();
    if attempt != record.attempt || !has_failed || !may || !record.makes_own_call() || execution.stop.is_some() {
        return Err(format!("step `{}` has no failed call whose place an earlier result takes", record.id));
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
