//! Whether a step runs at all: its condition, which is asked once, when it could start. The conditions that are checked before and after its call are
//! evaluated in the same way.

use belay_plan::{CheckPlace, Condition};
use belay_reasons as reasons;

use crate::{Blobs, ConditionResult, ErrorClass, Execution, Failure, StepKey, steps::outputs::values};

/// Whether the condition of a step holds, or one that is checked at this place; `None` while that is not known.
pub(crate) fn holds(
    execution: &Execution,
    step: StepKey,
    place: Option<CheckPlace>,
    condition: &Condition,
    blobs: &dyn Blobs,
) -> Option<Result<bool, Failure>> {
    let failed = |class, reason, message: String| Some(Err(Failure::new(class, reason, message)));
    let values = match values(execution, step, condition.values(), blobs) {
        Ok(values) => values?,
        Err(failure) => return Some(Err(failure)),
    };
    let variables = match condition.resolve(&|id, what| values.get(id, what)) {
        Ok(variables) => variables,
        Err(unresolved) => {
            return failed(ErrorClass::InvalidArguments, reasons::UNRESOLVED_REFERENCE, unresolved.to_string());
        }
    };
    match blobs.evaluate(&execution.steps[step].id, place, condition, variables) {
        ConditionResult::Known(holds) => Some(Ok(holds)),
        ConditionResult::Failed(why) => {
            let message = format!("The condition `{}` {}.", condition.source(), condition.in_words(&why));
            failed(ErrorClass::InvalidArguments, reasons::CONDITION_FAILED, message)
        }
        ConditionResult::Absent(why) => failed(ErrorClass::InvalidArguments, reasons::UNRESOLVED_REFERENCE, why),
        ConditionResult::Wanted => None,
    }
}
