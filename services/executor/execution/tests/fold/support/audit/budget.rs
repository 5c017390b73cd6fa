//! Budgets, counted from the events alone.

use belay_execution::{Amounts, BudgetLevel, BudgetReport, BudgetUnit, ToolCallEnd};
use belay_plan::{Budget, COMPLETION_TOOL, OnExhausted};

use super::*;

/// A step by its index, or the execution.
type Account = Option<usize>;

/// The amounts that are used and held.
#[derive(Default)]
pub(super) struct Accounts {
    spent: BTreeMap<Account, Amounts>,
    /// The amounts that each operation in flight holds; `None` for a unit that is not limited.
    held: BTreeMap<OperationId, [Option<u64>; 4]>,
    reported: BTreeSet<(Account, usize, BudgetLevel)>,
    /// Calls that were sent after they had been approved.
    dispatched: BTreeSet<OperationId>,
}

/// A call that the executor carries out itself.
#[derive(Clone, Copy)]
enum OwnCall {
    Turn,
    Completion,
}

const UNITS: [BudgetUnit; 4] = BudgetUnit::ALL;

fn limit_of(budget: &Budget, unit: usize) -> Option<u64> {
    [budget.calls, budget.output_bytes, budget.tokens, budget.cost_micros][unit]
}

impl Audit {
    /// A step and, for one of an entry of a list, that of the list; none for what undoes a step, or commits it.
    fn accounts_of(&self, step: usize) -> Vec<Account> {
        if self.undoes.contains_key(&step) || self.commits_step(step) || self.rebases(step) {
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

    /// B-35, number 11: what an operation may use is there, beside all that others may use. `units`: those that it uses.
    pub(super) fn hold(&mut self, id: &OperationId, units: &[usize], held: [Option<u64>; 4]) {
        for account in self.accounts_of(self.step_of(id)) {
            for &unit in units {
                let Some(limit) = self.budget_of(account).and_then(|budget| limit_of(budget, unit)) else { continue };
                let held = held[unit].expect("a limited amount is held");
                assert!(held > 0, "{id} holds nothing of what is limited");
                let taken = self.spent_of(account, unit) + self.held_of(account, unit) + held;
                assert!(taken <= limit, "{id} takes {taken} of {limit} {:?} of {account:?}", UNITS[unit]);
            }
        }
        self.accounts.held.insert(id.clone(), held);
    }

    /// The same of a call, which counts as one, and of whose output it is not known how much it is, also where that is limited later; or of a turn of a model, which counts as
    /// none, and whose tokens are.
    pub(super) fn hold_call(&mut self, id: &OperationId, held: Amounts) {
        let all = UNITS.map(|unit| Some(held.of(unit)).filter(|held| *held > 0));
        match self.own_call(id) {
            // What costs nothing holds nothing.
            Some(OwnCall::Turn) if self.asked_model(id) == "free" => self.hold(id, &[2], [None, None, all[2], None]),
            Some(OwnCall::Turn) => self.hold(id, &[2, 3], [None, None, all[2], all[3]]),
            Some(OwnCall::Completion) => self.hold(id, &[], [None; 4]),
            None => {
                self.hold(id, &[0, 1], all);
                let bytes = if held.output_bytes == 0 { 32 * 1024 } else { held.output_bytes };
                self.accounts.held.insert(id.clone(), [Some(held.calls.max(1)), Some(bytes), None, None]);
            }
        }
    }

    /// The call of a turn, or of a completion, which the executor carries out itself.
    fn own_call(&self, id: &OperationId) -> Option<OwnCall> {
        let item = self.agent_item(self.step_of(id))?;
        // The checks of a completion are calls of a runner.
        match (item["tool"].as_str(), self.checking.contains_key(id)) {
            (None, false) if item["turn"].is_number() => Some(OwnCall::Turn),
            (Some(COMPLETION_TOOL), false) => Some(OwnCall::Completion),
            (Some(_) | None, _) => None,
        }
    }

    pub(super) fn was_dispatched(&mut self, call: &OperationId) {
        self.accounts.dispatched.insert(call.clone());
    }

    /// A call that a person was to approve before it ran, and that was not sent since, has used nothing. A turn has used what its server has counted, and all that was held for it where nobody
    /// knows.
    pub(super) fn used_by_call(&self, call: &OperationId, end: &ToolCallEnd) -> Amounts {
        let counted = match end {
            // Whoever has a receipt has what the server counted.
            ToolCallEnd::Completed { receipt, .. }
            | ToolCallEnd::Failed { receipt, .. }
            | ToolCallEnd::Denied { receipt, .. } => receipt.usage,
            ToolCallEnd::Cancelled { .. } | ToolCallEnd::OutcomeUnknown { .. } => None,
        };
        match self.own_call(call) {
            Some(OwnCall::Turn) => {
                let held = self.accounts.held[call];
                let (tokens, cost) = counted.map_or((held[2], held[3]), |usage| {
                    (Some(usage.input_tokens + usage.output_tokens), usage.cost_micros)
                });
                let (tokens, cost_micros) = (tokens.unwrap_or_default(), cost.unwrap_or_default());
                return Amounts { tokens, cost_micros, ..Amounts::default() };
            }
            Some(OwnCall::Completion) => return Amounts::default(),
            None => {}
        }
        let waited = self.held.get(call).is_some_and(|held| held.kind == Some(SubjectKind::Call));
        if waited && !self.accounts.dispatched.contains(call) {
            return Amounts::default();
        }
        Amounts { calls: 1, output_bytes: end.output_bytes(), ..Amounts::default() }
    }

    pub(super) fn spend(&mut self, id: &OperationId, used: Option<Amounts>) {
        let held = self.accounts.held.remove(id).expect("what ends has begun");
        let used = used.unwrap_or_else(|| {
            let [calls, output_bytes, tokens, cost_micros] = held.map(Option::unwrap_or_default);
            Amounts { calls, output_bytes, tokens, cost_micros }
        });
        for account in self.accounts_of(self.step_of(id)) {
            let spent = self.accounts.spent.entry(account).or_default();
            *spent = spent.plus(used);
        }
    }

    /// A step begins with what it has used in another execution.
    pub(super) fn begins_with_spent(&mut self, step: usize, spent: Amounts) {
        self.accounts.spent.insert(Some(step), spent);
    }

    pub(super) fn about_budget(&mut self, report: &BudgetReport) {
        let account = report.step.as_ref().map(|step| self.index_of(step).expect("a step"));
        let unit = UNITS.iter().position(|unit| *unit == report.unit).expect("all are there");
        let limit = self.budget_of(account).and_then(|budget| limit_of(budget, unit)).expect("it is limited");
        let spent = self.spent_of(account, unit);
        assert_eq!((report.spent, report.limit), (spent, limit), "{report:?}");
        match report.level {
            BudgetLevel::Warning => assert!(spent * 5 >= limit * 4 && spent <= limit, "{report:?}"),
            BudgetLevel::Exceeded => assert!(spent >= limit, "{report:?}"),
            // Calls are only overrun by a plan that allows fewer than were made.
            BudgetLevel::Overrun => assert!(spent > limit && (unit > 0 || self.revision > 0), "{report:?}"),
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

    /// Whether a budget may have too little left for a turn of a model. How much a turn may use is the prompt's to say.
    fn may_lack_a_turn(&self, follows: OnExhausted) -> bool {
        let limits = |budget: Option<&Budget>| {
            budget.is_some_and(|budget| {
                budget.on_exhausted == follows && (budget.tokens.is_some() || budget.cost_micros.is_some())
            })
        };
        let steps = self.plan.steps().iter().filter(|step| step.agent().is_some());
        steps.into_iter().any(|step| limits(self.plan.budget()) || limits(step.budget()))
    }

    /// Whether a budget that is used up, or has too little left, pauses the execution.
    pub(super) fn is_exhausted(&self, follows: OnExhausted) -> bool {
        if self.may_lack_a_turn(follows) {
            return true;
        }
        self.accounts.reported.iter().any(|(account, _, level)| {
            *level == BudgetLevel::Exceeded
                && self.budget_of(*account).is_some_and(|budget| budget.on_exhausted == follows)
        })
    }
}
