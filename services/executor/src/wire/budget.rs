//! Messages for what calls use and may use.

use belay_execution::{
    Allotment, Amounts, BudgetLevel, BudgetReport, BudgetUnit, NamespaceBudget, NamespaceHold, Timestamp, Window,
    WindowUse,
};
use belay_proto::v1;

use super::{NotUnderstood, known, time};

/// How far a budget is used, as a message; the level is in the kind of the event.
pub(super) fn budget_report(report: &BudgetReport) -> v1::BudgetReport {
    let BudgetReport { level: _, unit, step, spent, limit } = report;
    let unit = match unit {
        BudgetUnit::Calls => v1::budget_report::Unit::Calls,
        BudgetUnit::OutputBytes => v1::budget_report::Unit::OutputBytes,
        BudgetUnit::Tokens => v1::budget_report::Unit::Tokens,
        BudgetUnit::CostMicros => v1::budget_report::Unit::CostMicros,
    };
    let budget_step_id = step.as_ref().map(|step| step.as_str().to_owned()).unwrap_or_default();
    v1::BudgetReport { unit: unit.into(), budget_step_id, spent: amount(*spent), limit: amount(*limit) }
}

fn amount(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Amounts as a message; `None` when they are all 0.
pub(super) fn amounts(amounts: Amounts) -> Option<v1::BudgetAmounts> {
    (amounts != Amounts::default()).then(|| amounts_message(amounts))
}

/// Amounts as a message.
pub(super) fn amounts_message(amounts: Amounts) -> v1::BudgetAmounts {
    let [calls, output_bytes, tokens, cost_micros] = BudgetUnit::ALL.map(|unit| amount(amounts.of(unit)));
    v1::BudgetAmounts { calls, output_bytes, tokens, cost_micros }
}

/// An allotment as a message.
pub(super) fn allotment_message(allotment: Allotment) -> v1::BudgetAllotment {
    let [calls, output_bytes, tokens, cost_micros] = BudgetUnit::ALL.map(|unit| allotment.of(unit).map(amount));
    v1::BudgetAllotment { calls, output_bytes, tokens, cost_micros }
}

/// Amounts from a message.
pub(super) fn amounts_from(message: v1::BudgetAmounts) -> Amounts {
    let v1::BudgetAmounts { calls, output_bytes, tokens, cost_micros } = message;
    let [calls, output_bytes, tokens, cost_micros] =
        [calls, output_bytes, tokens, cost_micros].map(|amount| u64::try_from(amount).unwrap_or(0));
    Amounts { calls, output_bytes, tokens, cost_micros }
}

/// A call's hold on the budget of its namespace, as a message.
pub(super) fn namespace_hold(NamespaceHold { window, amounts }: NamespaceHold) -> v1::NamespaceHold {
    v1::NamespaceHold {
        window_start_time: Some(time(window.start)),
        window_end_time: Some(time(window.end)),
        amounts: Some(amounts_message(amounts)),
    }
}

/// How far a namespace has used its budget, as a message.
pub(crate) fn namespace_usage(budget: &NamespaceBudget, window: Window, amounts: WindowUse) -> v1::NamespaceUsage {
    let WindowUse { used, held } = amounts;
    let limit = Allotment::from_fn(|unit| budget.limit(unit));
    v1::NamespaceUsage {
        window_start_time: Some(time(window.start)),
        window_end_time: Some(time(window.end)),
        used: Some(amounts_message(used)),
        held: Some(amounts_message(held)),
        limit: Some(allotment_message(limit)),
    }
}

/// A call's hold on the budget of its namespace, from a message.
pub(super) fn namespace_hold_from(hold: v1::NamespaceHold) -> Result<NamespaceHold, NotUnderstood> {
    let v1::NamespaceHold { window_start_time, window_end_time, amounts } = hold;
    let time = |time: Option<pbjson_types::Timestamp>| {
        let time = time.ok_or(NotUnderstood::Missing("the window of a budget"))?;
        Ok(Timestamp::from_micros(belay_proto::micros(&time)))
    };
    let window = Window { start: time(window_start_time)?, end: time(window_end_time)? };
    Ok(NamespaceHold { window, amounts: amounts.map(amounts_from).unwrap_or_default() })
}

/// An allotment from a message.
pub(super) fn allotment_from(message: v1::BudgetAllotment) -> Allotment {
    let v1::BudgetAllotment { calls, output_bytes, tokens, cost_micros } = message;
    let [calls, output_bytes, tokens, cost_micros] =
        [calls, output_bytes, tokens, cost_micros].map(|amount| Some(u64::try_from(amount?).unwrap_or(0)));
    Allotment { calls, output_bytes, tokens, cost_micros }
}

/// How far a budget is used, from a message, and the level.
pub(super) fn report_from(report: v1::BudgetReport, level: BudgetLevel) -> Result<BudgetReport, NotUnderstood> {
    use v1::budget_report::Unit;
    let v1::BudgetReport { unit, budget_step_id, spent, limit } = report;
    let unit = match known(unit, "what a budget limits")? {
        Unit::Calls => BudgetUnit::Calls,
        Unit::OutputBytes => BudgetUnit::OutputBytes,
        Unit::Tokens => BudgetUnit::Tokens,
        Unit::CostMicros => BudgetUnit::CostMicros,
        Unit::Unspecified => return Err(NotUnderstood::Missing("what a budget limits")),
    };
    let [spent, limit] = [spent, limit].map(|amount| u64::try_from(amount).unwrap_or(0));
    let step = (!budget_step_id.is_empty()).then(|| budget_step_id.into());
    Ok(BudgetReport { level, unit, step, spent, limit })
}
