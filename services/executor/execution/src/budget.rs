//! The amounts that calls use of the budgets of their step and of their plan.
//!
//! A budget limits amounts. What an operation may use is held for it from its intent until its end, which says what it has used; so operations
//! side by side cannot use more together than there is. For one that finds less than it needs there are two cases: others hold the rest, and it
//! waits for their end; or the rest is used, and the budget is exhausted.
//!
//! Counted are the calls of steps and of their checks, and the amounts that the executions of steps' plans have used. A compensation is neither counted
//! nor held back, since it would leave work half done.

use std::{collections::BTreeSet, time::Duration};

use belay_defects::{Defect, is_planted};
use belay_plan::{Budget, OnExhausted, asks_model, is_own_tool};
use belay_reasons as reasons;

use crate::{
    Admission, Allotment, Amounts, Blobs, Body, BudgetLevel, BudgetReport, BudgetUnit, ErrorClass, Execution,
    ExecutionEvent, Failure, Operation, PauseCause, StepKey, Violation,
    event::OUTPUT_HELD,
    state::{Account, AccountKey, DueReports, TurnSupply},
    steps,
};

/// The share of an amount, in percent, from which on a warning is recorded.
const WARNING_PERCENT: u128 = 80;

/// Whether there is enough for the next operation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    /// There is.
    Enough,
    /// Others hold what it needs.
    Held,
    /// All of it is used.
    Exhausted { account: AccountKey, unit: BudgetUnit },
}

impl Execution {
    /// The amounts that its calls have used, those of its steps' plans and those of the execution that it was forked from included.
    pub fn spent(&self) -> Amounts {
        self.account.spent
    }

    /// The limit of one unit, by its plan and by what it was given, and what follows when it is used up: one that has used up what it was given fails, since
    /// nobody can raise that.
    fn limit(&self, account: AccountKey, unit: BudgetUnit) -> Option<(u64, OnExhausted)> {
        let of = |budget: &Budget| {
            let limit = match unit {
                BudgetUnit::Calls => budget.calls,
                BudgetUnit::OutputBytes => budget.output_bytes,
                BudgetUnit::Tokens => budget.tokens,
                BudgetUnit::CostMicros => budget.cost_micros,
            };
            limit.map(|limit| (limit, budget.on_exhausted))
        };
        match account {
            Some(step) => self.steps[step].spec.budget().and_then(of),
            None => {
                let own = self.plan().budget().and_then(of);
                let given = self.created.allotment.and_then(|allotment| allotment.of(unit));
                given.map(|given| (given, OnExhausted::Fail)).into_iter().chain(own).min_by_key(|(limit, _)| *limit)
            }
        }
    }

    /// Whether anything limits what calls use.
    pub(crate) fn has_budgets(&self) -> bool {
        self.created.allotment.is_some() || self.plan().has_budgets()
    }

    /// Whether a call in flight holds something of the budget of the namespace.
    pub(crate) fn has_namespace_holds(&self) -> bool {
        let mut calls = self.operations.iter().filter_map(Operation::tool_call);
        calls.any(|call| call.namespace_hold.is_some())
    }

    /// Whether what the operations of a step use is counted.
    fn is_charged(&self, step: StepKey) -> bool {
        let record = &self.steps[step];
        record.compensates().is_none() && !record.manages_layers()
    }

    /// The accounts that an operation of a step is charged to.
    fn accounts_of(&self, step: StepKey) -> impl Iterator<Item = AccountKey> + use<> {
        let (record, charged) = (&self.steps[step], self.is_charged(step));
        [None, Some(record.runs_for().unwrap_or(step))].into_iter().filter(move |_| charged)
    }

    fn account(&self, account: AccountKey) -> &Account {
        match account {
            Some(step) => &self.steps[step].account,
            None => &self.account,
        }
    }

    fn account_mut(&mut self, account: AccountKey) -> &mut Account {
        match account {
            Some(step) => &mut self.steps[step].account,
            None => &mut self.progress.account,
        }
    }

    /// Whether there is enough for the next operation of a step, a call or an execution of its plan.
    fn supply(&self, step: StepKey) -> Supply {
        let record = &self.steps[step];
        if !steps::makes_calls(record) {
            return Supply::Enough;
        }
        let own = record.call_due().map(|call| call.tool.as_str()).filter(|tool| is_own_tool(tool));
        let mut supply = Supply::Enough;
        for account in self.accounts_of(step) {
            for unit in BudgetUnit::ALL {
                let Some((limit, _)) = self.limit(account, unit) else { continue };
                let Account { spent, held, .. } = self.account(account);
                let left = limit.saturating_sub(spent.of(unit));
                // The execution of a plan may make calls, and ask models.
                let is_used = match unit {
                    _ if steps::carries_out_plan(record) => true,
                    BudgetUnit::Calls | BudgetUnit::OutputBytes => own.is_none(),
                    BudgetUnit::Tokens | BudgetUnit::CostMicros => own.is_some_and(asks_model),
                };
                if !is_used {
                    continue;
                }
                // What the next turn costs depends on its model, and may be nothing.
                if left == 0 && unit == BudgetUnit::CostMicros && self.exhaustion_falls_back(account, unit) {
                    continue;
                }
                if left == 0 {
                    return Supply::Exhausted { account, unit };
                }
                let needed = match unit {
                    BudgetUnit::OutputBytes if !steps::carries_out_plan(record) => left.min(OUTPUT_HELD),
                    // How many tokens a turn may use is known once its prompt is.
                    BudgetUnit::OutputBytes | BudgetUnit::Calls | BudgetUnit::Tokens | BudgetUnit::CostMicros => 1,
                };
                let held = if is_planted(Defect::HeldBudgetIgnored) { 0 } else { held.of(unit) };
                if left - left.min(held) < needed {
                    supply = Supply::Held;
                }
            }
        }
        supply
    }

    /// Whether a step has to wait, because others hold what its next operation needs.
    pub(crate) fn waits_for_budget(&self, step: StepKey) -> bool {
        self.supply(step) == Supply::Held
    }

    /// The event that takes the place of the intent of a step's next operation when a budget is exhausted. It is asked for before the intent is made: what that has in
    /// blobs would belong to no event.
    pub(crate) fn exhausted(&self, step: StepKey) -> Option<Body> {
        let Supply::Exhausted { account, unit } = self.supply(step) else { return None };
        let (_, follows) = self.limit(account, unit)?;
        let report = self.report(account, unit, BudgetLevel::Exceeded);
        if !self.account(account).is_reported(unit, BudgetLevel::Exceeded) {
            return Some(ExecutionEvent::BudgetReported(report).into());
        }
        let used = report.in_words();
        Some(match follows {
            OnExhausted::Pause => {
                let event = ExecutionEvent::Paused {
                    reason: used,
                    discard_calls: false,
                    resume_at: None,
                    cause: PauseCause::Budget,
                };
                event.into()
            }
            OnExhausted::Fail | OnExhausted::NextFallback => {
                let message = format!("The call was not made, because {used}.");
                self.fail(step, Failure::new(ErrorClass::BudgetExhausted, reasons::BUDGET_EXHAUSTED, message))
            }
        })
    }

    /// Whether the next call of a step may begin, as far as the budget of the namespace goes.
    pub(crate) fn admission(&self, step: StepKey, needed: Amounts, blobs: &dyn Blobs) -> Admission {
        if self.is_charged(step) && needed != Amounts::default() { blobs.admit(needed) } else { Admission::Unlimited }
    }

    /// Whether a turn of a model, which may use so much, has to wait because others hold it.
    pub(crate) fn has_to_wait_for(&self, step: StepKey, needed: Amounts) -> bool {
        self.turn_supply(step, needed) == TurnSupply::Held
    }

    /// Whether a budget limits what the calls of a step may cost.
    pub(crate) fn limits_cost(&self, step: StepKey) -> bool {
        self.accounts_of(step).any(|account| self.limit(account, BudgetUnit::CostMicros).is_some())
    }

    /// Whether a budget says that the next model of a step is asked where one may use more than is left of it.
    pub(crate) fn exhaustion_falls_back(&self, account: AccountKey, unit: BudgetUnit) -> bool {
        self.limit(account, unit).is_some_and(|(_, follows)| follows == OnExhausted::NextFallback)
    }

    /// Whether any budget of a step has something that others hold.
    pub(crate) fn is_shared(&self, step: StepKey) -> bool {
        let of_models = [BudgetUnit::Tokens, BudgetUnit::CostMicros];
        self.accounts_of(step).any(|account| of_models.iter().any(|unit| self.account(account).held.of(*unit) > 0))
    }

    /// Whether there is so much for a turn of a model, of the budgets that limit it.
    pub(crate) fn turn_supply(&self, step: StepKey, needed: Amounts) -> TurnSupply {
        let mut supply = TurnSupply::Enough;
        for account in self.accounts_of(step) {
            for unit in [BudgetUnit::Tokens, BudgetUnit::CostMicros] {
                let Some((limit, _)) = self.limit(account, unit) else { continue };
                let Account { spent, held, .. } = self.account(account);
                let left = limit.saturating_sub(spent.of(unit));
                if left.saturating_sub(held.of(unit)) >= needed.of(unit) {
                    continue;
                }
                if held.of(unit) == 0 {
                    return TurnSupply::TooLittle { account, unit, left };
                }
                supply = TurnSupply::Held;
            }
        }
        supply
    }

    /// The event that takes the place of a turn that may use more than is left of a budget.
    pub(crate) fn too_little(
        &self,
        step: StepKey,
        account: AccountKey,
        unit: BudgetUnit,
        left: u64,
        needed: u64,
    ) -> Body {
        let (_, follows) = self.limit(account, unit).unwrap_or_default();
        let whose = match account {
            Some(step) => format!("step `{}`", self.steps[step].id),
            None => "the plan".to_owned(),
        };
        let (left, needed) = (unit.amount_in_words(left), unit.amount_in_words(needed));
        let reason = format!("the budget of {whose} has {left} left, and the next turn of the model may use {needed}");
        match follows {
            OnExhausted::Pause => {
                ExecutionEvent::Paused { reason, discard_calls: false, resume_at: None, cause: PauseCause::Budget }
                    .into()
            }
            OnExhausted::Fail | OnExhausted::NextFallback => {
                let message = format!("The model was not asked, because {reason}.");
                self.fail(step, Failure::new(ErrorClass::BudgetExhausted, reasons::BUDGET_EXHAUSTED, message))
            }
        }
    }

    /// How far a budget is used.
    fn report(&self, account: AccountKey, unit: BudgetUnit, level: BudgetLevel) -> BudgetReport {
        let step = account.map(|step| self.steps[step].id.clone());
        let limit = self.limit(account, unit).map(|(limit, _)| limit).unwrap_or_default();
        let spent = self.account(account).spent.of(unit);
        BudgetReport { level, unit, step, spent, limit }
    }

    /// The reason for which it is paused when the model of a step has asked for the verification of what it has done.
    pub fn paused_for_verification(&self) -> Option<&str> {
        self.paused.as_ref()?.verification()
    }

    /// The budget for which it is paused and that is still used up; `None` when it is paused for something else, or not at all.
    pub fn exhausted_budget(&self) -> Option<BudgetReport> {
        self.paused
            .as_ref()
            .filter(|paused| paused.cause == PauseCause::Budget && paused.namespace_budget().is_none())?;
        let with_own = self.steps.iter().filter(|(_, record)| record.spec.budget().is_some());
        let accounts = std::iter::once(None).chain(with_own.map(|(step, _)| Some(step)));
        accounts.flat_map(|account| BudgetUnit::ALL.map(|unit| (account, unit))).find_map(|(account, unit)| {
            let (limit, follows) = self.limit(account, unit)?;
            let report = self.report(account, unit, BudgetLevel::Exceeded);
            let is_open = account.is_none_or(|step| !self.steps[step].state.is_terminal());
            let pauses = follows == OnExhausted::Pause && is_open;
            let is_reported = self.account(account).is_reported(unit, BudgetLevel::Exceeded);
            (report.spent >= limit && is_reported && pauses).then_some(report)
        })
    }

    /// The first report that is to be recorded.
    pub(crate) fn due_report(&self) -> Option<Body> {
        let &(account, unit, level) = self.due_reports.first()?;
        Some(ExecutionEvent::BudgetReported(self.report(account, unit, level)).into())
    }

    /// Takes note of a report.
    pub(crate) fn reported(&mut self, report: &BudgetReport) -> Result<(), Violation> {
        let account = report.step.as_ref().map(|step| self.named(step)).transpose()?;
        let (unit, level) = (report.unit, report.level);
        let is_exhausted =
            self.limit(account, unit).is_some_and(|(limit, _)| self.account(account).spent.of(unit) >= limit);
        let is_due = match level {
            BudgetLevel::Exceeded => is_exhausted && !self.account(account).is_reported(unit, level),
            BudgetLevel::Warning | BudgetLevel::Overrun => self.due_reports.contains(&(account, unit, level)),
        };
        if !is_due || self.report(account, unit, level) != *report {
            return Err(Violation::ReportNotDue(Box::new(report.clone())));
        }
        self.due_reports.remove(&(account, unit, level));
        self.account_mut(account).reported.push((unit, level));
        Ok(())
    }

    /// The amounts to hold for a call of this tool by a step: of output as much as is usual, or what is left.
    pub(crate) fn held_for_call(&self, step: StepKey, tool: &str, turn: Amounts) -> Amounts {
        let left = |unit| {
            let left = self.accounts_of(step).filter_map(|account| {
                let (limit, _) = self.limit(account, unit)?;
                Some(limit.saturating_sub(self.account(account).spent.of(unit)))
            });
            left.min()
        };
        if is_own_tool(tool) {
            return Amounts::from_fn(|unit| left(unit).map_or(0, |_| turn.of(unit)));
        }
        Amounts {
            calls: left(BudgetUnit::Calls).map_or(0, |_| 1),
            output_bytes: left(BudgetUnit::OutputBytes).map_or(0, |left| left.min(OUTPUT_HELD)),
            ..Amounts::default()
        }
    }

    /// The amounts that the execution of a step's plan may use: all that nothing else holds of the budgets of the step and the plan.
    pub(crate) fn allotment_for(&self, step: StepKey) -> Option<Allotment> {
        let free = |unit| {
            let free = self.accounts_of(step).filter_map(|account| {
                let (limit, _) = self.limit(account, unit)?;
                let Account { spent, held, .. } = self.account(account);
                Some(limit.saturating_sub(spent.plus(*held).of(unit)))
            });
            free.min()
        };
        let allotment = Allotment::from_fn(free);
        (allotment != Allotment::default()).then_some(allotment)
    }

    /// Steps that have started waited so long for a person to raise a budget, which does not count towards their time limits.
    pub(crate) fn forgive_wait(&mut self, waited: Duration) {
        let waiting: BTreeSet<StepKey> = self.index.to_request.iter().copied().collect();
        // The limit of a step with a goal is for all its entries together.
        let wholes = waiting.iter().map(|&step| &self.steps[step]).filter(|record| record.is_of_agent());
        let wholes: BTreeSet<StepKey> = wholes.filter_map(|record| record.runs_for()).collect();
        for step in waiting.into_iter().chain(wholes) {
            self.update_step(step, |record| record.waited += waited);
        }
    }

    /// Holds what an operation may use.
    pub(crate) fn hold(&mut self, operation: &Operation) {
        for account in self.accounts_of(operation.key.step) {
            let held = &mut self.account_mut(account).held;
            *held = held.plus(operation.held());
        }
    }

    /// Gives back what an operation that has ended might have used.
    pub(crate) fn release(&mut self, operation: &Operation) {
        for account in self.accounts_of(operation.key.step) {
            let held = &mut self.account_mut(account).held;
            *held = held.minus(operation.held());
        }
    }

    /// Charges what an operation of a step has used.
    pub(crate) fn spend(&mut self, step: StepKey, spent: Amounts) {
        for account in self.accounts_of(step) {
            let before = self.account(account).spent;
            self.account_mut(account).spent = before.plus(spent);
            self.note_reports(account);
        }
    }

    /// A step begins with what it has used in another execution.
    pub(crate) fn begin_with_spent(&mut self, step: StepKey, spent: Amounts) {
        self.account_mut(Some(step)).spent = spent;
        self.note_reports(Some(step));
    }

    /// Takes note of what is to be reported of a budget.
    fn note_reports(&mut self, account: AccountKey) {
        for unit in BudgetUnit::ALL {
            // An overrun takes the place of a warning that was not recorded yet.
            self.due_reports.remove(&(account, unit, BudgetLevel::Warning));
            if let Some(level) = self.level_to_report(account, unit) {
                self.due_reports.insert((account, unit, level));
            }
        }
    }

    fn level_to_report(&self, account: AccountKey, unit: BudgetUnit) -> Option<BudgetLevel> {
        let (limit, _) = self.limit(account, unit)?;
        let account = self.account(account);
        let spent = account.spent.of(unit);
        let level = if spent > limit {
            BudgetLevel::Overrun
        } else if u128::from(spent) * 100 >= u128::from(limit) * WARNING_PERCENT {
            BudgetLevel::Warning
        } else {
            return None;
        };
        (!account.is_reported(unit, level)).then_some(level)
    }

    /// Forgets what was reported of a budget that is another one now.
    pub(crate) fn forget_reports(&mut self, account: AccountKey) {
        self.account_mut(account).reported.clear();
    }

    /// Finds again what operations in flight hold, and what is to be reported.
    pub(crate) fn recount_budgets(&mut self) {
        let steps: Vec<StepKey> = self.steps.iter().map(|(step, _)| step).collect();
        let accounts = || std::iter::once(None).chain(steps.iter().copied().map(Some));
        accounts().for_each(|account| self.account_mut(account).held = Amounts::default());
        let operations: Vec<Operation> = self.operations.iter().cloned().collect();
        operations.iter().for_each(|operation| self.hold(operation));
        self.due_reports = DueReports::new();
        accounts().for_each(|account| self.note_reports(account));
    }

    /// Whether the amounts held and the reports due follow from the operations in flight and the amounts used. Costs as much as there are steps.
    pub fn are_budgets_consistent(&self) -> bool {
        let mut recounted = self.clone();
        recounted.recount_budgets();
        recounted == *self
    }
}
