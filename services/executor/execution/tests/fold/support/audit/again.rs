//! Retries, compensations, and changes of the plan.

use super::*;

impl Audit {
    /// A completed step runs again only when it was named, or depends on one that does.
    pub(super) fn retried(&mut self, retried: &Retried, time: Timestamp) {
        let by_plan = retried.escalation;
        // What a failure has stopped runs again by the plan, or when only a pause keeps it from what follows.
        let has_nothing_left = (0..self.ids.len()).all(|step| self.ended.contains(&step));
        let may_go_on = by_plan.is_some() || self.paused && has_nothing_left;
        let is_stopped = self.stop.is_some_and(|stop| !may_go_on || stop != Stop::Error);
        assert!(self.finished || !is_stopped);
        if may_go_on && !self.finished {
            self.stop = None;
        }
        (self.escalations, self.is_escalated) = match by_plan {
            None => (0, false),
            // S2-X-20, S2-FR-061: only what may succeed runs again, as often as the plan says, after its delays.
            Some(retry) => {
                assert!(!self.finished && !self.paused && self.escalates_to().is_none());
                let plan = self.plan.escalation().expect("it escalates");
                assert_eq!((retry.number, retry.retries), (self.escalations + 1, plan.retries));
                assert_eq!(retry.resume_at, time.saturating_add(plan.backoff.delay(self.escalations)));
                (self.paused, self.resume_at) = (true, Some(retry.resume_at));
                (retry.number, false)
            }
        };
        let steps: BTreeSet<usize> = retried.steps.iter().map(|id| self.index_of(id).unwrap()).collect();
        assert!(!steps.is_empty() && steps.len() == retried.steps.len());
        let from = retried.request.from.as_ref().map(|id| self.index_of(id).unwrap());
        for &step in &steps {
            assert!(self.ended.contains(&step), "step {step} has not ended");
            let list = self.lists.get(&step).copied();
            let of_entry = self.items.get(&step).is_some_and(|items| items.iter().any(|item| steps.contains(item)));
            let is_undone = self.undoes.iter().any(|(undoes, (undone, _))| {
                *undone == step && self.completed.contains(undoes) && self.is_being_undone(*undoes)
            });
            assert!(!self.undoes.contains_key(&step));
            let depends = of_entry || is_undone || self.dependencies(step).iter().any(|on| steps.contains(on));
            let named = from == Some(step) || list.is_some() && list == from;
            assert!(!self.completed.contains(&step) || depends || named, "step {step} had completed");
            assert!(list.is_none_or(|list| steps.contains(&list)), "the list of {step} is not read again");
            self.runs_again(step);
        }
        for &step in &steps {
            for dependent in self.dependents(step).iter().filter(|dependent| !steps.contains(dependent)) {
                let has_run = self.attempts.contains_key(dependent) || self.ended.contains(dependent);
                assert!(!has_run, "step {dependent} depends on {step}, which runs again");
            }
        }
        // Every failed step runs again, so that the execution is as if none had failed.
        assert!(self.failed.iter().all(|step| self.undoes.contains_key(step) || self.is_of_agent(*step)));
        self.first_failure = None;
        self.undoing = None;
        if self.finished {
            (self.finished, self.stop, self.paused) = (false, None, false);
        }
    }

    /// A step that has ended is as if it had not run, but for its attempts.
    pub(super) fn runs_again(&mut self, step: usize) {
        assert!(self.ended.remove(&step));
        self.unlikely.remove(&step);
        let counted = self.counted(step);
        if self.completed.remove(&step) {
            self.totals.completed -= counted;
        } else if self.failed.remove(&step) {
            self.totals.failed -= counted;
        } else if self.skipped.remove(&step).is_some() {
            self.totals.skipped -= counted;
        } else {
            self.totals.cancelled -= counted;
        }
        self.order.retain(|completed| *completed != step);
        self.passed.retain(|(of, _)| *of != step);
        for gone in [&mut self.effects, &mut self.left_out, &mut self.to_skip, &mut self.given, &mut self.cached] {
            gone.remove(&step);
        }
        self.not_before.remove(&step);
        self.fallbacks.remove(&step);
        self.listed.remove(&step);
        let attempts = self.attempts.remove(&step).unwrap_or(self.before(step));
        self.attempts_before.insert(step, attempts);
    }

    /// Asserts that steps that have started or ended are unchanged, and that missing steps are skipped.
    pub(super) fn updated(&mut self, updated: &PlanUpdated) {
        assert!(!self.finished && self.stop.is_none());
        self.revision += 1;
        assert_eq!((updated.revision, updated.plan.id()), (self.revision, self.plan.id()));
        let planned = |step: &usize| {
            !self.removed.contains(step) && !self.lists.contains_key(step) && !self.undoes.contains_key(step)
        };
        for step in (0..self.ids.len()).filter(planned) {
            // What a step may use can be raised while it runs.
            let work = |spec: &StepSpec| StepDraft { budget: None, ..spec.to_draft() };
            let new = updated.plan.step_index(&self.ids[step]).map(|place| work(&updated.plan.steps()[place]));
            if self.attempts.contains_key(&step) || self.ended.contains(&step) {
                assert_eq!(new, Some(work(self.spec(step))), "step {step} has started or ended");
            }
        }
        self.plan = updated.plan.clone();
        for spec in updated.plan.steps() {
            match self.ids.iter().position(|known| known == spec.id()) {
                Some(step) if self.removed.remove(&step) => {
                    // One that an update right before has removed was not skipped for that.
                    let was_skipped = self.skipped.remove(&step).is_some();
                    assert_eq!(self.ended.remove(&step), was_skipped);
                    self.totals.skipped -= usize::from(was_skipped);
                    self.to_skip.remove(&step);
                }
                Some(_) => {}
                None => {
                    self.ids.push(spec.id().to_owned());
                    self.totals.total += 1;
                }
            }
        }
        let is_planned = |step: usize| updated.plan.step_index(&self.ids[step]).is_some();
        let gone = (0..self.ids.len()).filter(|&step| match self.lists.get(&step) {
            Some(&list) => !is_planned(list) && (!self.ended.contains(&step) || self.removed.contains(&step)),
            None => !is_planned(step) && !self.undoes.contains_key(&step),
        });
        self.removed = gone.collect();
    }

    /// A person changes what becomes of a step only while it has nothing in flight.
    pub(super) fn check_can_be_changed(&self, step: usize, attempt: u32) {
        assert_eq!(attempt, self.attempts.get(&step).copied().unwrap_or(self.before(step)));
        assert!(self.stop.is_none() && !self.ended.contains(&step) && !self.unknown.contains(&step));
        let in_flight = self.open.iter().chain(self.waits.keys()).any(|open| self.step_of(open) == step);
        assert!(!in_flight && !self.finished, "step {step} has an operation in flight");
    }

    /// Everything has ended, and not well: what says how it is undone is, the last to complete first.
    pub(super) fn compensation_started(&mut self, steps: &[StepId]) {
        assert!(
            self.undoing.is_none() && !self.paused && !self.finished && self.open.is_empty() && self.waits.is_empty()
        );
        let counted = self.ended.iter().filter(|step| self.counted(**step) == 1).count();
        assert_eq!(counted, self.totals.total, "something is left to end");
        let is_stopped = matches!(self.stop, Some(Stop::Cancel | Stop::Kill | Stop::Deadline));
        assert!(self.totals.failed > 0 || is_stopped && self.totals.completed < self.totals.total);
        let says_how = |step: &usize| {
            let has_done = self.completed.contains(step) || self.has_checks_after(*step) && self.effects.contains(step);
            let has_tried = self.attempts.get(step).is_some_and(|attempts| *attempts > 0) || self.before(*step) > 0;
            has_done
                && has_tried
                && !self.cached.contains(step)
                && self.spec(*step).compensate().is_some()
                && !self.has_entries(*step)
        };
        let mut seen = BTreeSet::new();
        let last = self.order.iter().rev().copied().filter(|step| self.counted(*step) == 1 && says_how(step));
        let expected: Vec<usize> = last.filter(|step| seen.insert(*step)).collect();
        let named: Vec<usize> = steps.iter().map(|id| self.index_of(id).unwrap()).collect();
        assert_eq!(named, expected, "something else is undone, or in another order");
        assert!(!named.is_empty());
        let mut before = None;
        let mut undoing = Vec::new();
        for step in named {
            let id = format!("{}~compensate", self.ids[step]);
            let undoes = match self.index_of(&id) {
                Some(known) => {
                    self.runs_again(known);
                    known
                }
                None => {
                    self.ids.push(id);
                    self.ids.len() - 1
                }
            };
            self.undoes.insert(undoes, (step, before));
            before = Some(undoes);
            undoing.push(undoes);
        }
        self.undoing = Some((undoing, self.stop.take()));
    }

    /// Whether a step compensates another since the execution began or resumed.
    pub(super) fn is_being_undone(&self, undoes: usize) -> bool {
        self.undoing.as_ref().is_some_and(|(steps, _)| steps.contains(&undoes))
    }

    /// Returns the end of the plan's escalation, now that everything has ended and a step has failed: `None` for another retry, which comes first.
    pub(super) fn escalates_to(&self) -> Option<Then> {
        assert!(self.open.is_empty() && self.waits.is_empty() && !self.failed.is_empty() && self.undoing.is_none());
        assert!(matches!(self.stop, None | Some(Stop::Error)) && !self.is_escalated);
        assert_eq!(self.ended.iter().filter(|step| self.counted(**step) == 1).count(), self.totals.total);
        let plan = self.plan.escalation()?;
        let retries = self.escalations < plan.retries && self.unlikely.is_empty();
        (!retries).then_some(plan.then)
    }
}
