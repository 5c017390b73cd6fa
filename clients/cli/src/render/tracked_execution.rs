//! An execution as a watcher knows it: the snapshot, moved on by the events after it; and what a person sees of that while it runs.

mod added_steps;
mod execution_events;
mod pause;
mod rows;
mod step_events;
mod steps;
mod waits;

use std::{collections::HashMap, time::Duration};

use belay_proto::v1::{Execution, Step, WaitingReason, step};
use pbjson_types::Timestamp;

use self::{
    pause::Pause,
    steps::{for_each, planned_attempts},
    waits::Question,
};
use super::call;

pub(crate) use steps::{has_ended, machine_time, waited_for_people};

/// The widest column of step ids, and the widest part of a window that it takes.
const ID_COLUMNS: usize = 16;

/// The known state of an execution.
pub(crate) struct TrackedExecution {
    execution: Execution,
    /// Where each step stands in `execution.steps`.
    places: HashMap<String, usize>,
    /// The call of each step, in words, in the order of `execution.steps`.
    calls: Vec<String>,
    /// The dependencies of each step, in the same order.
    depends_on: Vec<Vec<String>>,
    /// Since when each step is in its state, if that is known.
    since: Vec<Option<Timestamp>>,
    /// How wide the column of ids is.
    id_columns: usize,
    pause: Pause,
    /// The questions that calls ask while they run.
    questions: Vec<Question>,
}

impl TrackedExecution {
    /// The state in a snapshot in FULL view.
    pub(crate) fn new(execution: Execution) -> TrackedExecution {
        let places: HashMap<String, usize> =
            execution.steps.iter().enumerate().map(|(place, step)| (step.step_id.clone(), place)).collect();
        let mut calls: Vec<String> = execution.steps.iter().map(call::kind_of).collect();
        let mut depends_on = vec![Vec::new(); calls.len()];
        for step in execution.plan.iter().flat_map(|plan| &plan.steps) {
            if let Some(&place) = places.get(&step.id) {
                calls[place] = call::of_step_now(step, &execution.steps[place]);
                depends_on[place] = call::dependencies(step, |id| places.contains_key(id));
            }
        }
        for (place, step) in execution.steps.iter().enumerate() {
            if let Some(&list) = step.item.as_ref().and_then(|item| places.get(&item.step_id)) {
                let index = step.item.as_ref().and_then(|item| usize::try_from(item.index).ok());
                let planned = execution
                    .plan
                    .iter()
                    .flat_map(|plan| &plan.steps)
                    .find(|planned| planned.id == execution.steps[list].step_id);
                let several = planned.zip(index).and_then(|(planned, index)| call::of_several(planned, index));
                let value = step.item.as_ref().and_then(|item| item.value.as_ref());
                let several = several.or_else(|| call::of_agent(planned?, value, Some(step)));
                calls[place] = several.map_or_else(|| calls[list].clone(), |(_, words)| words);
            }
        }
        for (call, step) in calls.iter_mut().zip(&execution.steps) {
            if let Some(count) = step
                .item_count
                .filter(|_| !matches!(step.detail, Some(step::Detail::Calls(_) | step::Detail::Agent(_))))
            {
                let count = usize::try_from(count).unwrap_or_default();
                *call = for_each(execution.plan.as_ref(), &step.step_id, call, count);
            }
        }
        let since =
            execution.steps.iter().map(|step| step.waiting.as_ref().and_then(|waiting| waiting.begin_time)).collect();
        let id_columns = execution.steps.iter().map(|step| step.step_id.chars().count()).max().unwrap_or(0);
        let id_columns = id_columns.min(ID_COLUMNS);
        let (pause, questions) = (Pause::default(), Vec::new());
        TrackedExecution { execution, places, calls, depends_on, since, id_columns, pause, questions }
    }

    /// Another snapshot of the same execution, after its journal was lost or restored.
    pub(crate) fn renewed(self, execution: Execution) -> TrackedExecution {
        TrackedExecution { pause: self.pause, ..TrackedExecution::new(execution) }
    }

    /// The execution.
    pub(crate) fn execution(&self) -> &Execution {
        &self.execution
    }

    /// A step by its id.
    pub(crate) fn step(&self, id: &str) -> Option<&Step> {
        self.execution.steps.get(*self.places.get(id)?)
    }

    /// The call of a step, in words.
    pub(crate) fn call(&self, id: &str) -> &str {
        self.places.get(id).map_or("", |&place| &self.calls[place])
    }

    /// How long it did nothing but wait for a person, as far as its events have been seen.
    pub(crate) fn paused_for_people(&self) -> Duration {
        self.pause.total
    }

    /// Sets the reasons for which the execution waits, as the server reports them.
    pub(crate) fn wait_for(&mut self, waiting: Vec<WaitingReason>) {
        self.execution.waiting = waiting;
    }

    /// How many attempts the plan gives each call of a step; `None` when the plan is not known.
    pub(crate) fn planned_attempts(&self, step: &Step) -> Option<i32> {
        planned_attempts(self.execution.plan.as_ref(), step)
    }

    /// The approvals that wait for a decision, by name, in the plan's order.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &str> {
        self.execution.steps.iter().flat_map(|step| &step.approvals).map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
