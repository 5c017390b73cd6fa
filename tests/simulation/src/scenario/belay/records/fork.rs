//! Forks of executions, and what each has to take over.

use std::collections::{BTreeMap, BTreeSet};

use belay_proto::v1::{self, step};

use super::super::plans;

/// A fork, and the execution that it was made of, as it was then.
#[derive(Debug, Clone)]
pub(in super::super) struct Fork {
    pub(in super::super) origin: v1::Execution,
    pub(in super::super) from_step: String,
}

/// The suffix that is added to the request id of an execution for that of its fork.
const SUFFIX: &str = "-fork";

/// The request of a fork.
pub(in super::super) fn request_of(origin: &str) -> String {
    format!("{origin}{SUFFIX}")
}

/// The request with which an execution was started, or the one of which it is a fork.
pub(in super::super) fn origin_of(request_id: &str) -> &str {
    request_id.strip_suffix(SUFFIX).unwrap_or(request_id)
}

/// The beginning of a step of a fork.
#[derive(Debug, PartialEq)]
pub(in super::super) enum Begin {
    Output(Option<v1::Payload>),
    Skipped,
}

impl Fork {
    /// The steps that it has to take over, by their ids.
    pub(in super::super) fn taken_over(&self) -> BTreeMap<&str, Begin> {
        let specs = self.origin.plan.as_ref().map(|plan| &plan.steps[..]).unwrap_or_default();
        let begin = |spec: &v1::StepSpec| {
            let step = self.origin.steps.iter().find(|step| step.step_id == spec.id)?;
            match (step.state(), step.skip_reason()) {
                (step::State::Completed, _) => Some(Begin::Output(step.output.clone())),
                (step::State::Skipped, v1::SkipReason::Requested) => Some(Begin::Skipped),
                _ => None,
            }
        };
        let is_again = |spec: &&v1::StepSpec| spec.id == self.from_step || begin(spec).is_none();
        let mut again: BTreeSet<&str> = specs.iter().filter(is_again).map(|spec| spec.id.as_str()).collect();
        loop {
            let depends = |spec: &&v1::StepSpec| plans::dependencies(spec).iter().any(|on| again.contains(on.as_str()));
            let more: Vec<&str> = specs.iter().filter(depends).map(|spec| spec.id.as_str()).collect();
            let before = again.len();
            again.extend(more);
            if again.len() == before {
                break;
            }
        }
        let taken = specs.iter().filter(|spec| !again.contains(spec.id.as_str()));
        taken.filter_map(|spec| Some((spec.id.as_str(), begin(spec)?))).collect()
    }
}
