//! An execution that is audited.

use belay_proto::v1::{self, execution_event::Kind};

use super::super::damage::DamagedCalls;
use super::super::hosts::Owners;
use super::super::outside::Run;
use super::super::records::{ExecutionEvidence, ObservedExecution};
use super::evidence::Violations;

pub(super) struct ExecutionAudit<'a, 'v> {
    pub(super) name: &'a str,
    pub(super) kept: &'a ExecutionEvidence,
    pub(super) heard: &'a ObservedExecution,
    pub(super) runs: &'a [Run],
    pub(super) owners: &'a Owners,
    /// The true time at which all faults had ended, in microseconds since the Unix epoch.
    pub(super) healed_at: Option<i64>,
    /// Whether an executor drives only what it is asked to.
    pub(super) drives_some: bool,
    pub(super) damaged: &'a DamagedCalls,
    pub(super) violations: &'v mut Violations,
}

impl<'a> ExecutionAudit<'a, '_> {
    pub(super) fn violation(&mut self, what: impl std::fmt::Display) {
        self.violations.push(format!("{}: {what}", self.name));
    }

    /// Whether a person has said of a step, whose outcome was unknown, that its call is to be made again.
    pub(super) fn is_made_again(&self, step: &str) -> bool {
        let again = |event: &&v1::ExecutionEvent| match &event.kind {
            Some(Kind::StepResolved(resolved)) => resolved.resolution() == v1::StepResolution::Again,
            _ => false,
        };
        self.kept.events.iter().filter(again).any(|event| event.step_id == step)
    }

    /// Whether a step is for an entry of a list, or for a call of a step, that was made to run again and has not read its list since.
    pub(super) fn is_left_over(&self, step: &str) -> bool {
        let Some((list, _)) = step.rsplit_once('~') else { return false };
        self.kept.events.iter().fold(false, |left_over, event| match &event.kind {
            Some(Kind::ExecutionRetried(retried)) if retried.step_ids.iter().any(|id| id == list) => true,
            Some(Kind::StepItemsListed(_)) if event.step_id == list => false,
            _ => left_over,
        })
    }
}
