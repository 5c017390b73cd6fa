//! Changes of the steps of an execution, besides what becomes of each: another plan, lists, steps that are undone, steps that run again.

use belay_proto::v1::{self, RunWhen, execution, step, step_spec};

use super::super::{client, plans};
use super::Fold;
use crate::trace;

impl Fold {
    /// A plan that has more steps than before, after the others. What has started or ended is as it was.
    pub(super) fn update(&mut self, updated: &v1::ExecutionPlanUpdated) -> Result<(), String> {
        let mut plan = updated.plan.clone().unwrap_or_default();
        self.revision += 1;
        let is_next = updated.revision == self.revision && !self.stopping && self.undone_by.is_empty();
        let mut steps = Vec::new();
        for (index, step) in self.plan.steps.iter().enumerate() {
            if self.entries[index].is_some() || self.undoes[index].is_some() {
                steps.push(step.clone());
                continue;
            }
            let status = &self.picture.steps[index];
            let waits = status.attempt == self.attempts_before[index]
                && matches!(status.state(), step::State::Pending | step::State::Ready);
            let new = plan.steps.iter().position(|new| new.id == step.id).map(|place| plan.steps.remove(place));
            let Some(new) = new.filter(|new| is_next && (waits || new == step)) else {
                return Err(format!(
                    "the plan cannot change to revision {} like this, at step {}",
                    updated.revision, step.id
                ));
            };
            steps.push(new);
        }
        self.go_on();
        let added = std::mem::replace(&mut plan.steps, steps);
        self.plan = plan;
        for step in added {
            let place = |id: &String| self.plan.steps.iter().position(|step| step.id == *id);
            let dependencies: Vec<usize> = plans::dependencies(&step).iter().filter_map(place).collect();
            let index = self.add(step, dependencies, None);
            self.count_open(index);
        }
        trace::count("plans changed");
        Ok(())
    }

    /// Applies the beginning of compensation: nothing is left to run, and what was done is undone, by a step of its own for each.
    pub(super) fn undo(&mut self, started: &v1::ExecutionCompensationStarted) -> Result<(), String> {
        use step::State as S;
        let is_over = |step: &v1::Step| matches!(step.state(), S::Completed | S::Failed | S::Skipped | S::Cancelled);
        if !self.picture.steps.iter().all(is_over) || !self.undone_by.is_empty() {
            return Err("it is undone twice, or while something runs".to_owned());
        }
        let place = |plan: &v1::Plan, id: &String| plan.steps.iter().position(|step| step.id == *id);
        let steps: Vec<usize> = started.step_ids.iter().filter_map(|id| place(&self.plan, id)).collect();
        let completed = steps.iter().copied().filter(|index| self.completed_by[*index] > 0);
        if steps.len() != started.step_ids.len() || completed.collect::<Vec<_>>() != self.to_undo() {
            return Err(format!("{steps:?} are undone, and {:?} have completed", self.to_undo()));
        }
        self.picture.state = execution::State::Running.into();
        self.stopping = false;
        let mut before = None;
        for index in steps {
            let of = &self.plan.steps[index];
            let Some(compensate) = of.compensate.clone() else {
                return Err(format!("step {index} is undone, and has nothing that undoes it"));
            };
            let id = format!("{}~compensate", of.id);
            let undoes = match place(&self.plan, &id) {
                Some(known) => {
                    self.run_again(known);
                    known
                }
                None => {
                    let step = v1::StepSpec {
                        id,
                        timeout: of.timeout,
                        attempt_timeout: of.attempt_timeout,
                        retry: of.retry.clone(),
                        run_when: RunWhen::Always.into(),
                        kind: Some(v1::step_spec::Kind::Tool(*compensate)),
                        ..v1::StepSpec::default()
                    };
                    let added = self.add(step, Vec::new(), None);
                    self.picture.totals.total -= 1;
                    self.undoes[added] = Some(index);
                    added
                }
            };
            self.undone_by.insert(index, undoes);
            self.dependencies[undoes] = before.into_iter().collect();
            self.open[undoes] = self.dependencies[undoes].len();
            self.make_ready(undoes);
            before = Some(undoes);
            trace::count("steps undone");
        }
        Ok(())
    }

    /// The steps for the entries of a step's list.
    pub(in super::super) fn of_list(&self, list: usize) -> impl Iterator<Item = usize> + '_ {
        let is_of =
            move |entry: &Option<(usize, serde_json::Value)>| entry.as_ref().is_some_and(|entry| entry.0 == list);
        self.entries.iter().enumerate().filter(move |(_, entry)| is_of(entry)).map(|(index, _)| index)
    }

    /// A step has read its list: for each entry there is a step. What was done for the same entry stays.
    pub(super) fn list(&mut self, list: usize, listed: &v1::StepItemsListed) -> Result<(), String> {
        use step::State as S;
        let is_list = plans::has_entries(&self.plan.steps[list]) && self.entries[list].is_none();
        if !is_list || self.picture.steps[list].state() != S::Running {
            return Err(format!("step {list} reads a list"));
        }
        let known: Vec<usize> = self.of_list(list).collect();
        let first = usize::try_from(listed.first).map_err(|_| "the position of an entry")?;
        if first > 0 && self.listed.get(&list) != Some(&first) {
            return Err(format!("step {list} lists entries from {first} on"));
        }
        let spec = &self.plan.steps[list];
        if spec.repeat.as_ref().is_some_and(|repeat| listed.items.len() != 1 || first >= repeat.max as usize) {
            return Err(format!("step {list} begins round {} of at most {:?}", first + 1, spec.repeat));
        }
        if first > 0 && spec.repeat.is_some() {
            trace::count("rounds after the first");
        }
        self.listed.insert(list, first + listed.items.len());
        for (number, item) in listed.items.iter().enumerate().map(|(place, item)| (first + place, item)) {
            let item = item.as_json().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
            let index = match known.get(number) {
                None => {
                    let of = &self.plan.steps[list];
                    let kind = match &of.kind {
                        Some(step_spec::Kind::Calls(listed)) => {
                            let call = listed.calls.get(number).cloned().or_else(|| plans::commit_of(listed));
                            call.map(|call| {
                                trace::count("calls side by side");
                                step_spec::Kind::Tool(v1::ToolStep { exclusive: listed.exclusive, ..call })
                            })
                        }
                        kind => kind.clone(),
                    };
                    let step = v1::StepSpec {
                        kind,
                        id: format!("{}~{number}", of.id),
                        depends_on: Vec::new(),
                        run_when: 0,
                        condition: String::new(),
                        for_each: None,
                        repeat: None,
                        ..of.clone()
                    };
                    self.add(step, Vec::new(), Some((list, item)))
                }
                Some(&index) => {
                    let status = &self.picture.steps[index];
                    let by_a_person = matches!(
                        status.skip_reason(),
                        v1::SkipReason::Requested | v1::SkipReason::ApprovalSkipped | v1::SkipReason::NonInteractive
                    );
                    let is_done = status.state() == S::Completed || status.state() == S::Skipped && by_a_person;
                    let is_same = self.entries[index].as_ref().is_some_and(|(_, before)| *before == item);
                    if is_done && is_same {
                        trace::count("entries that stay");
                        continue;
                    }
                    if matches!(status.state(), S::Completed | S::Failed | S::Skipped | S::Cancelled) {
                        self.run_again(index);
                    }
                    self.entries[index] = Some((list, item));
                    index
                }
            };
            self.picture.steps[index].set_state(S::Ready);
        }
        trace::count("lists read");
        Ok(())
    }

    /// A step that has ended begins again.
    pub(super) fn run_again(&mut self, index: usize) {
        use step::State as S;
        let state = self.picture.steps[index].state();
        self.count(index, |totals| match state {
            S::Completed => totals.completed -= 1,
            S::Failed => totals.failed -= 1,
            S::Skipped => totals.skipped -= 1,
            _ => totals.cancelled -= 1,
        });
        self.completed_by[index] = 0;
        let step = &mut self.picture.steps[index];
        self.attempts_before[index] = step.attempt;
        self.calls[index] = 0;
        *step = v1::Step {
            step_id: std::mem::take(&mut step.step_id),
            attempt: step.attempt,
            failed_attempts: std::mem::take(&mut step.failed_attempts),
            state: S::Pending.into(),
            ..v1::Step::default()
        };
    }

    /// How many of its dependencies a step still waits for.
    pub(super) fn count_open(&mut self, index: usize) {
        use step::State as S;
        let met = self.dependencies[index].iter().filter(|on| self.is_met(index, **on)).count();
        self.open[index] = self.dependencies[index].len() - met;
        if self.open[index] > 0 && self.picture.steps[index].state() == S::Ready {
            self.picture.steps[index].set_state(S::Pending);
        }
        self.make_ready(index);
    }

    /// A person changes what becomes of a step that has nothing in flight.
    pub(super) fn change(&mut self, index: usize, sequence: i64) -> Result<(), String> {
        use step::State::{BackingOff, Pending, Ready};
        let state = self.picture.steps[index].state();
        if self.stopping || !matches!(state, Pending | Ready | BackingOff) {
            return Err(format!("event {sequence} changes step {index}, which is {state:?}"));
        }
        self.go_on();
        Ok(())
    }

    /// It does not only wait for approvals any longer.
    pub(super) fn go_on(&mut self) {
        if self.picture.state == i32::from(execution::State::AwaitingApproval) {
            self.picture.state = execution::State::Running.into();
        }
    }

    /// Applies a retry: steps that did not complete run again, and those that depend on them.
    pub(super) fn retry(&mut self, retried: &v1::ExecutionRetried) -> Result<(), String> {
        use step::State as S;
        let is_over = |state| matches!(state, S::Completed | S::Failed | S::Skipped | S::Cancelled);
        let has_ended = client::is_terminal(self.picture.state());
        let named = |id: &String| self.plan.steps.iter().position(|step| step.id == *id);
        let steps: Vec<usize> = retried.step_ids.iter().filter_map(named).collect();
        let all = steps.len() == retried.step_ids.len() && !steps.is_empty();
        // What a failure has stopped has ended by now: the plan itself has it run again.
        let by_plan = retried.escalation.is_some();
        let has_nothing_left = self.picture.steps.iter().all(|step| is_over(step.state()));
        if by_plan && (has_ended || !has_nothing_left) {
            return Err(format!("{retried:?} cannot be yet"));
        }
        let is_for_this = has_nothing_left && self.picture.state() == execution::State::Paused;
        if !all
            || !has_ended && self.stopping && !by_plan && !is_for_this
            || steps.iter().any(|step| !is_over(self.picture.steps[*step].state()))
        {
            return Err(format!("{retried:?} cannot be"));
        }
        if !has_ended && !self.undone_by.is_empty() {
            return Err("it goes on while it is undone".to_owned());
        }
        for &index in &steps {
            let is_of_list = self.entries[index].as_ref().is_some_and(|(list, _)| steps.contains(list));
            let is_of_list = is_of_list || self.of_list(index).any(|entry| steps.contains(&entry));
            let is_of_list = is_of_list || self.shown_state(index) == S::Compensated;
            let depends = is_of_list || self.dependencies[index].iter().any(|on| steps.contains(on));
            if self.picture.steps[index].state() == S::Completed && !depends {
                return Err(format!("step {index} had completed, and runs again"));
            }
            self.run_again(index);
        }
        if has_ended {
            self.undone_by.clear();
            for index in (0..self.undoes.len()).filter(|index| self.undoes[*index].is_some()) {
                self.dependencies[index].clear();
            }
            self.went_on += 1;
            (self.stopping, self.picture.end_time) = (false, None);
            self.picture.state = execution::State::Running.into();
        } else if is_for_this && !by_plan {
            self.stopping = false;
        } else if by_plan {
            self.stopping = false;
            self.picture.state = execution::State::Paused.into();
            trace::count("retries by the plan");
        } else {
            self.go_on();
        }
        self.picture.failure = None;
        for index in 0..self.open.len() {
            self.count_open(index);
        }
        trace::count("executions retried");
        Ok(())
    }
}
