//! Budgets, counted from the events alone.

use belay_execution::{Amounts, BudgetLevel, BudgetReport, BudgetUnit};
use belay_plan::{Budget, COMPLETION_TOOL, OnExhausted};

use super::*;

/// A step by its index, or the execution.
type Account = Option<usize>;

/// The amounts that are used and held.
#[derive(Default)]
pub(super) struct Accounts {
    spent: BTreeMap<Account, Amounts>,
    /// The amounts that each operation in flight holds; `None` for a unit that is not limited.
    held: BTreeMap<OperationId, [Option<u64>; 2]>,
    reported: BTreeSet<(Account, usize, BudgetLevel)>,
    /// Calls that were sent after they had been approved.
    dispatched: BTreeSet<OperationId>,
}

const UNITS: [BudgetUnit; 2] = [BudgetUnit::Calls, BudgetUnit::OutputBytes];

fn limit_of(budget: &Budget, unit: usize) -> Option<u64> {
    [budget.calls, budget.output_bytes][unit]
}

impl Audit {
    /// A step and, for one of an entry of a list, that of the list; none for what undoes a step, or commits it.
    fn accounts_of(&self, step: usize) -> Vec<Account> {
        if self.undoes.contains_key(&step) || self.commits_step(step) {
            return Vec::new();
        }
        vec![None, Some(self.lists.get(&step).copied().unwrap_or(step))]
    }

    fn budget_of(&self, account: Account) -> Option<&Budget> {
        match account {
            None => self.plan.budget(),
            Some(step) => self.spec(step).budget(),
        }
    }

    fn spent_of(&self, account: Account, unit: usize) -> u64 {
        self.accounts.spent.get(&account).copied().unwrap_or_default().of(UNITS[unit])
    }

    fn held_of(&self, account: Account, unit: usize) -> u64 {
        let is_of = |id: &OperationId| self.accounts_of(self.step_of(id)).contains(&account);
        self.accounts.held.iter().filter(|(id, _)| is_of(id)).filter_map(|(_, held)| held[unit]).sum()
    }

    /// B-35, number 11: what an operation may use is there, beside all that others may use.
    pub(super) fn hold(&mut self, id: &OperationId, held: [Option<u64>; 2]) {
        for account in self.accounts_of(self.step_of(id)) {
            for unit in 0..UNITS.len() {
                let Some(limit) = self.budget_of(account).and_then(|budget| limit_of(budget, unit)) else { continue };
                let held = held[unit].expect("a limited amount is held");
                assert!(held > 0, "{id} holds nothing of what is limited");
                let taken = self.spent_of(account, unit) + self.held_of(account, unit) + held;
                assert!(taken <= limit, "{id} takes {taken} of {limit} {:?} of {account:?}", UNITS[unit]);
            }
        }
        self.accounts.held.insert(id.clone(), held);
    }

    /// The same of a call, which counts as one, and of whose output it is not known how much it is, also where that is limited later.
    pub(super) fn hold_call(&mut self, id: &OperationId, held: Amounts) {
        if self.is_own_call(id) {
            self.accounts.held.insert(id.clone(), [None; 2]);
            return;
        }
        self.hold(id, [held.calls, held.output_bytes].map(|held| Some(held).filter(|held| *held > 0)));
        let held = [held.calls.max(1), if held.output_bytes == 0 { 32 * 1024 } else { held.output_bytes }];
        self.accounts.held.insert(id.clone(), held.map(Some));
    }

    /// Whether the executor carries it out itself, which no budget of calls limits.
    fn is_own_call(&self, id: &OperationId) -> bool {
        let item = self.agent_item(self.step_of(id));
        // The checks of a completion are calls of a runner.
        item.is_some_and(|item| item["tool"].is_null() || item["tool"] == COMPLETION_TOOL)
            && !self.checking.contains_key(id)
    }

    pub(super) fn was_dispatched(&mut self, call: &OperationId) {
        self.accounts.dispatched.insert(call.clone());
    }

    /// A call that a person was to approve before it ran, and that was not sent since, has used nothing.
    pub(super) fn used_by_call(&self, call: &OperationId, output_bytes: u64) -> Amounts {
        if self.is_own_call(call) {
            return Amounts::default();
        }
        let waited = self.held.get(call).is_some_and(|held| held.kind == Some(SubjectKind::Call));
        if waited && !self.accounts.dispatched.contains(call) {
            return Amounts::default();
        }
        Amounts { calls: 1, output_bytes }
    }

    pub(super) fn spend(&mut self, id: &OperationId, used: Option<Amounts>) {
        let held = self.accounts.held.remove(id).expect("what ends has begun");
        let used =
            used.unwrap_or(Amounts { calls: held[0].unwrap_or_default(), output_bytes: held[1].unwrap_or_default() });
        for account in self.accounts_of(self.step_of(id)) {
            let spent = self.accounts.spent.entry(account).or_default();
            *spent = spent.plus(used);
        }
    }

    pub(super) fn about_budget(&mut self, report: &BudgetReport) {
        let account = report.step.as_ref().map(|step| self.index_of(step).expect("a step"));
        let unit = usize::from(report.unit == BudgetUnit::OutputBytes);
        let limit = self.budget_of(account).and_then(|budget| limit_of(budget, unit)).expect("it is limited");
        let spent = self.spent_of(account, unit);
        assert_eq!((report.spent, report.limit), (spent, limit), "{report:?}");
        match report.level {
            BudgetLevel::Warning => assert!(spent * 5 >= limit * 4 && spent <= limit, "{report:?}"),
            BudgetLevel::Exceeded => assert!(spent >= limit, "{report:?}"),
            // Calls are only overrun by a plan that allows fewer than were made.
            BudgetLevel::Overrun => assert!(spent > limit && (unit == 1 || self.revision > 0), "{report:?}"),
        }
        assert!(self.accounts.reported.insert((account, unit, report.level)), "{report:?} again");
    }

    /// Allows reports again about budgets that a change of the plan has changed.
    pub(super) fn budgets_change(&mut self, plan: &Plan) {
        let before: BTreeMap<String, Option<Budget>> =
            self.plan.steps().iter().map(|step| (step.id().to_owned(), step.budget().copied())).collect();
        let is_changed = |account: Account| match account {
            None => self.plan.budget() != plan.budget(),
            Some(step) => {
                let id = &self.ids[step];
                let now = plan.step_index(id).map(|place| plan.steps()[place].budget().copied());
                now.is_some() && now != before.get(id).copied()
            }
        };
        let kept = self.accounts.reported.iter().copied().filter(|(account, ..)| !is_changed(*account)).collect();
        self.accounts.reported = kept;
    }

    /// Whether a budget that is used up pauses the execution.
    pub(super) fn is_exhausted(&self, follows: OnExhausted) -> bool {
        self.accounts.reported.iter().any(|(account, _, level)| {
            *level == BudgetLevel::Exceeded
                && self.budget_of(*account).is_some_and(|budget| budget.on_exhausted == follows)
        })
    }
}
