//! An execution as it has ended: its totals, its plan and inputs, and that nothing that was shown is lost.

use belay_proto::v1::{self, execution, execution_event::Kind, step};
use serde_json::Value;

use super::super::calls::json;
use super::super::client::is_terminal;
use super::super::inputs::Inputs;
use super::super::picture::Fold;
use super::super::records::{ExecutionEvidence, ObservedExecution};
use super::super::{documents, plans};
use super::execution::ExecutionAudit;
use crate::trace;

impl<'a> ExecutionAudit<'a, '_> {
    /// Invariants 6 and 8, and 9 as far as possible without an audit log: every step ended, with an event.
    pub(super) fn totals(&mut self, fold: &Fold) {
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
        self.outputs(fold, finished);
        trace::count(match finished.state() {
            E::Completed => "executions completed",
            E::Partial => "executions partial",
            E::Failed => "executions failed",
            E::Cancelled => "executions cancelled",
            _ => "executions timed out",
        });
    }

    /// The outputs are what the plan declares of its steps as they have ended, and what readers get; those of a step that has not completed are null.
    fn outputs(&mut self, fold: &Fold, finished: &v1::ExecutionFinished) {
        use step::State as S;
        let is_over = matches!(finished.state(), execution::State::Completed | execution::State::Partial);
        let declared =
            fold.plan.outputs.as_ref().filter(|_| is_over).map(|outputs| json(Some(outputs), &self.kept.blobs));
        if finished.outputs.is_some() != declared.is_some() || finished.outputs_failure.is_some() {
            self.violation(format_args!("it ended as {:?}, and its outputs are {finished:?}", finished.state()));
        }
        let (Some(Value::Object(declared)), Some(outputs)) = (declared, &finished.outputs) else { return };
        let resolved = declared.into_iter().map(|(name, template)| {
            let text = template.as_str().unwrap_or_default().trim_matches(['$', '{', '}']);
            let (step, what) = text.split_once('.').unwrap_or_default();
            let place = fold.plan.steps.iter().position(|planned| planned.id == step);
            let step = place.map(|place| &fold.picture.steps[place]);
            let state = match step.map(v1::Step::state) {
                Some(S::Completed) => "completed",
                Some(S::Failed) => "failed",
                Some(S::Skipped) => "skipped",
                _ => "cancelled",
            };
            let output = step.filter(|_| state == "completed").and_then(|step| step.output.as_ref());
            (name, if what == "state" { state.into() } else { json(output, &self.kept.blobs) })
        });
        let (expected, found) = (Value::Object(resolved.collect()), json(Some(outputs), &self.kept.blobs));
        if found != expected {
            self.violation(format_args!("its outputs are {found}, and its steps have {expected}"));
        }
        let shown = self.kept.execution.outputs.as_ref();
        if shown != Some(outputs) {
            self.violation(format_args!("its outputs are {outputs:?}, and a reader gets {shown:?}"));
        }
        trace::count("outputs of plans");
    }

    /// The plan is the requested one.
    pub(super) fn plan(&mut self, fold: &Fold, asked: Option<&v1::Plan>) {
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
        let of_plan = |plan: &v1::Plan| {
            (plan.escalation.clone(), plan.resources.clone(), plan.stop_on_error, plan.outputs.clone())
        };
        if let Some(Kind::ExecutionCreated(created)) = self.kept.events.first().and_then(|event| event.kind.as_ref()) {
            let plan = created.plan.clone().unwrap_or_default();
            let (has, wants) = (terms(&plan), terms(asked));
            if has != wants || of_plan(&plan) != of_plan(asked) {
                self.violation(format_args!("its plan says {has:?}, and was to say {wants:?}"));
            }
        }
    }

    /// Its inputs are those that it was started with, and the plan's defaults.
    pub(super) fn inputs(&mut self, fold: &Fold, asked: Option<&Inputs>) {
        let Some(values) = asked.and_then(|asked| asked.values.as_ref()) else { return };
        trace::count("executions with inputs");
        if json(fold.inputs.as_ref(), &self.kept.blobs) != *values {
            self.violation(format_args!("it was to have {values}, and has {:?}", fold.inputs));
        }
    }

    /// Checks that nothing that was shown or acknowledged is lost. S2-NFR-005.
    pub(super) fn observations(&mut self) {
        let kept: &'a ExecutionEvidence = self.kept;
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
}
