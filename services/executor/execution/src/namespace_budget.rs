//! The amounts that the calls of a namespace use of its budget for a window of time.
//!
//! A call that begins holds an amount in the window that it begins in, and its end is counted in the same window, whenever that is. What the calls of all
//! executions hold and have used stands in a row of the store, which changes together with their events. [`NamespaceHolds`] gives the changes that follow
//! from the events of one execution, so that the row is the sum over all of them.

use std::collections::BTreeMap;

use crate::{
    Admission, Amounts, Body, BudgetUnit, Event, Execution, NamespaceHold, OperationEnd, OperationEvent, OperationId,
    Period, SubjectKind, Window, Work, window::Minute,
};

/// The budget of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceBudget {
    /// The length of the window.
    pub period: Period,
    /// The most calls in a window; `None` means no limit.
    pub calls: Option<u64>,
    /// The most bytes of output in a window; `None` means no limit.
    pub output_bytes: Option<u64>,
    /// The most tokens of models in a window; `None` means no limit.
    pub tokens: Option<u64>,
    /// The most millionths of a US dollar that models may cost in a window; `None` means no limit.
    pub cost_micros: Option<u64>,
}

/// The amounts of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowUse {
    /// The amounts that calls that have ended have used.
    pub used: Amounts,
    /// The amounts that calls in flight hold.
    pub held: Amounts,
}

/// A change of the amounts of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowChange {
    /// The window.
    pub window: Window,
    /// The amounts that calls that have begun hold.
    pub held: Amounts,
    /// The amounts that calls that have ended held.
    pub released: Amounts,
    /// The amounts that calls that have ended have used.
    pub used: Amounts,
}

impl NamespaceBudget {
    /// The limit of a unit.
    pub fn limit(&self, unit: BudgetUnit) -> Option<u64> {
        match unit {
            BudgetUnit::Calls => self.calls,
            BudgetUnit::OutputBytes => self.output_bytes,
            BudgetUnit::Tokens => self.tokens,
            BudgetUnit::CostMicros => self.cost_micros,
        }
    }

    /// The first unit of which nothing is left in a window.
    pub fn exhausted(&self, used: Amounts) -> Option<BudgetUnit> {
        BudgetUnit::ALL.into_iter().find(|unit| self.is_exhausted(*unit, used))
    }

    fn is_exhausted(&self, unit: BudgetUnit, used: Amounts) -> bool {
        self.limit(unit).is_some_and(|limit| used.of(unit) >= limit)
    }

    /// Whether a call that may use so much may begin in a window. `namespace` is for the words.
    pub fn admit(&self, namespace: &str, needed: Amounts, window: Window, amounts: WindowUse) -> Admission {
        let WindowUse { used, held } = amounts;
        let mut units = BudgetUnit::ALL.into_iter().filter(|unit| needed.of(*unit) > 0);
        if let Some(unit) = units.find(|unit| self.is_exhausted(*unit, used)) {
            let reason = self.in_words(namespace, unit, used.of(unit), window);
            return Admission::Exhausted { reason, until: window.end };
        }
        let amounts = Amounts::from_fn(|unit| {
            let left = self.limit(unit).map_or(u64::MAX, |limit| limit.saturating_sub(used.of(unit)));
            needed.of(unit).min(left)
        });
        let after = used.plus(held).plus(amounts);
        let fits = BudgetUnit::ALL
            .into_iter()
            .all(|unit| needed.of(unit) == 0 || self.limit(unit).is_none_or(|limit| after.of(unit) <= limit));
        if fits { Admission::Held(NamespaceHold { window, amounts }) } else { Admission::Wanted }
    }

    fn in_words(&self, namespace: &str, unit: BudgetUnit, used: u64, window: Window) -> String {
        let (word, limit) = (self.period.word(), self.limit(unit).unwrap_or_default());
        format!(
            "namespace `{namespace}` has used its budget of the {word}: {}; the {word} ends at {}",
            unit.in_words(used, limit),
            Minute(window.end)
        )
    }
}

/// The calls of one execution that hold something of the budget of its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceHolds(BTreeMap<OperationId, HeldCall>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldCall {
    hold: NamespaceHold,
    tool: String,
    /// It waits for an approval before it runs, or for a slot after that: it has not run.
    waits: bool,
}

impl NamespaceHolds {
    /// Returns the holds of the calls in flight.
    pub fn of(execution: &Execution) -> Self {
        let held = execution.operations().filter_map(|operation| {
            let hold = operation.tool_call()?.namespace_hold?;
            let (waits, tool) = (operation.has_not_run(), operation.tool_call()?.tool.clone());
            Some((execution.operation_id(operation.key), HeldCall { hold, tool, waits }))
        });
        Self(held.collect())
    }

    /// The changes that follow from the next events, one for each window.
    pub fn take(&mut self, events: &[Event]) -> Vec<WindowChange> {
        let mut changes: BTreeMap<Window, WindowChange> = BTreeMap::new();
        for event in events {
            let Body::Operation { id: call, event } = &event.body else { continue };
            match event {
                OperationEvent::Requested(Work::ToolCall(request)) => {
                    let Some(hold) = request.namespace_hold else { continue };
                    self.0.insert(call.clone(), HeldCall { hold, tool: request.tool.clone(), waits: false });
                    let change = change_of(&mut changes, hold.window);
                    change.held = change.held.plus(hold.amounts);
                }
                OperationEvent::Held(requirement) => {
                    if let Some(held) = self.0.get_mut(call) {
                        held.waits = requirement.kind == SubjectKind::Call;
                    }
                }
                OperationEvent::Dispatched => {
                    if let Some(held) = self.0.get_mut(call) {
                        held.waits = false;
                    }
                }
                OperationEvent::Ended(OperationEnd::ToolCall(end)) => {
                    let Some(HeldCall { hold, tool, waits }) = self.0.remove(call) else { continue };
                    let used = end.used(&tool, hold.amounts);
                    let change = change_of(&mut changes, hold.window);
                    change.released = change.released.plus(hold.amounts);
                    change.used = change.used.plus(if waits { Amounts::default() } else { used });
                }
                OperationEvent::Requested(_)
                | OperationEvent::Asked { .. }
                | OperationEvent::Decided { .. }
                | OperationEvent::Reported(_)
                | OperationEvent::Ended(_) => {}
            }
        }
        changes.into_values().collect()
    }
}

fn change_of(changes: &mut BTreeMap<Window, WindowChange>, window: Window) -> &mut WindowChange {
    let none = Amounts::default();
    changes.entry(window).or_insert(WindowChange { window, held: none, released: none, used: none })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Timestamp, event::OUTPUT_HELD};

    fn amounts(calls: u64, output_bytes: u64) -> Amounts {
        Amounts { calls, output_bytes, ..Amounts::default() }
    }

    fn budget(calls: Option<u64>, output_bytes: Option<u64>) -> NamespaceBudget {
        NamespaceBudget { period: Period::Day, calls, output_bytes, tokens: None, cost_micros: None }
    }

    fn admit(budget: &NamespaceBudget, used: Amounts, held: Amounts) -> Admission {
        let needed = Amounts { calls: 1, output_bytes: OUTPUT_HELD, ..Amounts::default() };
        budget.admit("team", needed, Period::Day.window(Timestamp::from_micros(5)), WindowUse { used, held })
    }

    fn held(admission: Admission) -> Option<(u64, u64)> {
        match admission {
            Admission::Held(hold) => Some((hold.amounts.calls, hold.amounts.output_bytes)),
            _ => None,
        }
    }

    /// B-35: what is used and held is never more than the budget, and no call waits for what nothing holds.
    #[test]
    fn a_call_begins_only_when_what_it_may_use_is_free() {
        let ten = budget(Some(10), None);
        assert_eq!(held(admit(&ten, amounts(8, 0), amounts(1, 0))), Some((1, OUTPUT_HELD)));
        assert_eq!(admit(&ten, amounts(8, 0), amounts(2, 0)), Admission::Wanted, "calls in flight hold the rest");
        assert_eq!(
            admit(&ten, amounts(10, 0), amounts(0, 0)),
            Admission::Exhausted {
                reason: "namespace `team` has used its budget of the day: 10 of 10 calls; the day ends at 1970-01-02 00:00 UTC".to_owned(),
                until: Timestamp::from_micros(MICROS_OF_DAY),
            }
        );
        let bytes = budget(None, Some(40_000));
        assert_eq!(held(admit(&bytes, amounts(9, 0), amounts(0, 0))), Some((1, OUTPUT_HELD)));
        assert_eq!(admit(&bytes, amounts(9, 0), amounts(1, OUTPUT_HELD)), Admission::Wanted);
        assert_eq!(held(admit(&bytes, amounts(9, 39_999), amounts(0, 0))), Some((1, 1)), "no more than what is left");
        assert!(matches!(admit(&bytes, amounts(9, 90_000), amounts(0, 0)), Admission::Exhausted { .. }), "an overrun");
    }

    /// A turn of a model uses tokens and no calls: that these are used up does not hide that tokens are.
    #[test]
    fn a_turn_is_not_asked_when_tokens_are_used_up_whatever_else_is() {
        let both = NamespaceBudget { tokens: Some(100), ..budget(Some(10), None) };
        let needed = Amounts { tokens: 50, ..Amounts::default() };
        let window = Period::Day.window(Timestamp::from_micros(5));
        let admit = |tokens| {
            let used = Amounts { calls: 10, tokens, ..Amounts::default() };
            both.admit("team", needed, window, WindowUse { used, held: Amounts::default() })
        };
        assert!(matches!(admit(100), Admission::Exhausted { reason, .. } if reason.contains("tokens")));
        assert!(matches!(admit(120), Admission::Exhausted { .. }), "an overrun");
        assert!(matches!(admit(99), Admission::Held(hold) if hold.amounts.tokens == 1), "the calls do not matter");
    }

    const MICROS_OF_DAY: i64 = 86_400_000_000;
}
