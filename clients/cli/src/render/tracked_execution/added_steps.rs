//! The steps that the plan does not name: those that undo others, and those for the entries of a list.

use belay_proto::v1::{
    ExecutionCompensationStarted, Step, StepItem, StepItemsListed, ToolStepDetail, execution, step, step::State,
};
use pbjson_types::Timestamp;

use super::{
    ID_COLUMNS, TrackedExecution,
    steps::{for_each, planned_id},
};
use crate::render::{call, text::shorten, words};

/// The longest entry of a list before what is done for it, in characters.
const MAX_ITEM_CHARS: usize = 40;

impl TrackedExecution {
    /// Adds a step for each step whose effects are undone.
    pub(super) fn compensation_started(&mut self, started: &ExecutionCompensationStarted, at: Option<Timestamp>) {
        self.execution.set_state(execution::State::Running);
        for id in &started.step_ids {
            let Some(&place) = self.places.get(id) else { continue };
            let step = &mut self.execution.steps[place];
            step.set_state(State::Compensating);
            let planned = planned_id(step).to_owned();
            let planned = self.execution.plan.iter().flat_map(|plan| &plan.steps).find(|step| step.id == planned);
            let undoes = planned.and_then(|planned| planned.compensate.as_ref());
            let attempts =
                planned.and_then(|planned| planned.retry.as_ref()).map_or(1, |retry| retry.max_attempts.max(1));
            let tool = undoes.map(|call| call.tool.clone()).unwrap_or_default();
            let step_id = format!("{id}~compensate");
            let before = self.step(&step_id).map_or(0, |step| step.attempt);
            let mut step = Step {
                title: step_id.clone(),
                compensates: id.clone(),
                attempt: before,
                max_attempts: before.saturating_add(attempts),
                detail: Some(step::Detail::Tool(ToolStepDetail { tool: tool.clone() })),
                step_id,
                ..Step::default()
            };
            step.set_state(State::Pending);
            self.put(step, tool, at);
        }
    }

    /// A step has ended that undoes another.
    pub(super) fn undone(&mut self, id: &str, state: State) {
        let compensates = self.step(id).map(|step| step.compensates.clone()).unwrap_or_default();
        let Some(&place) = self.places.get(&compensates) else { return };
        // What could not be undone is there.
        let state = if state == State::Completed { State::Compensated } else { State::Completed };
        self.execution.steps[place].set_state(state);
    }

    /// A step has read the list for each entry of which it runs: there is a step for each.
    pub(super) fn items_listed(&mut self, id: &str, listed: &StepItemsListed, at: Option<Timestamp>) {
        let Some(&list) = self.places.get(id) else { return };
        let planned = self.execution.plan.iter().flat_map(|plan| &plan.steps).find(|planned| planned.id == id);
        let max_attempts =
            planned.and_then(|planned| planned.retry.as_ref()).map_or(1, |retry| retry.max_attempts.max(1));
        let call = planned.map(call::of_step).unwrap_or_default();
        let detail = self.execution.steps[list].detail.clone();
        let of_several = |index| planned.and_then(|planned| call::of_several(planned, index));
        let first = usize::try_from(listed.first).unwrap_or_default();
        let all = first + listed.items.len();
        let several: Vec<_> = (0..all).map(of_several).collect();
        let of_agent: Vec<_> = listed.items.iter().map(|value| call::of_agent(planned?, Some(value), None)).collect();
        let is_agent = of_agent.iter().any(Option::is_some);
        for (index, value) in listed.items.iter().enumerate().map(|(place, value)| (first + place, value)) {
            let step_id = format!("{id}~{index}");
            if let Some(&place) = self.places.get(&step_id) {
                // It ran before, and its step was made to run again.
                let known = &mut self.execution.steps[place];
                if known.state() == State::Pending {
                    known.set_state(State::Ready);
                }
                continue;
            }
            let item =
                StepItem { step_id: id.to_owned(), index: i32::try_from(index).unwrap_or(i32::MAX), value: None };
            let title = step_id.clone();
            let of_agent = of_agent.get(index - first).cloned().flatten();
            let several = several.get(index).cloned().flatten().or(of_agent);
            let detail = match &several {
                Some((tool, _)) => Some(step::Detail::Tool(ToolStepDetail { tool: tool.clone() })),
                None => detail.clone(),
            };
            let mut step = Step { step_id, title, max_attempts, detail, item: Some(item), ..Step::default() };
            step.set_state(State::Ready);
            let words = match several {
                Some((_, words)) => words,
                None => format!("{} · {call}", shorten(&words::payload(value), MAX_ITEM_CHARS)),
            };
            self.put(step, words, at);
        }
        self.execution.steps[list].item_count = Some(i32::try_from(all).unwrap_or(i32::MAX));
        self.calls[list] = if is_agent || several.iter().any(Option::is_some) {
            call
        } else {
            for_each(self.execution.plan.as_ref(), id, &call, all)
        };
    }

    /// A step that the plan does not name, in the place of the one with its id.
    fn put(&mut self, step: Step, call: String, at: Option<Timestamp>) {
        if let Some(&place) = self.places.get(&step.step_id) {
            (self.execution.steps[place], self.calls[place], self.since[place]) = (step, call, at);
            return;
        }
        self.id_columns = self.id_columns.max(step.step_id.chars().count()).min(ID_COLUMNS);
        self.places.insert(step.step_id.clone(), self.execution.steps.len());
        self.execution.steps.push(step);
        self.calls.push(call);
        self.depends_on.push(Vec::new());
        self.since.push(at);
    }
}
