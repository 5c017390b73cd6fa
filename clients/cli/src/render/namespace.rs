//! Namespaces as text.

use belay_proto::v1::{BudgetAllotment, Namespace, NamespaceUsage, budget_report::Unit};

use super::{
    text::{Line, Style, clean},
    time, words,
};

/// The width of the column of names.
const NAME_COLUMNS: usize = 16;

/// A line for each: its id, and what it has used of its budget.
pub(crate) fn list(namespaces: &[Namespace]) -> Vec<Line> {
    let line = |namespace: &Namespace| {
        let id = namespace.name.strip_prefix("namespaces/").unwrap_or(&namespace.name);
        let (style, usage) = match &namespace.usage {
            Some(usage) if is_used_up(usage) => (Style::Warn, used(usage)),
            Some(usage) => (Style::Plain, used(usage)),
            None => (Style::Plain, "no budget".to_owned()),
        };
        Line::default().column(Style::Strong, clean(id), NAME_COLUMNS).and(style, usage)
    };
    namespaces.iter().map(line).collect()
}

/// A unit with its amounts.
struct Amount {
    unit: Unit,
    used: i64,
    held: i64,
    limit: i64,
}

/// The units that have a limit.
fn amounts(usage: &NamespaceUsage) -> impl Iterator<Item = Amount> {
    let (used, held) = (usage.used.unwrap_or_default(), usage.held.unwrap_or_default());
    let BudgetAllotment { calls, output_bytes, tokens, cost_micros } = usage.limit.unwrap_or_default();
    let amount = |unit, used, held, limit: Option<i64>| limit.map(|limit| Amount { unit, used, held, limit });
    let calls = amount(Unit::Calls, used.calls, held.calls, calls);
    let output_bytes = amount(Unit::OutputBytes, used.output_bytes, held.output_bytes, output_bytes);
    let tokens = amount(Unit::Tokens, used.tokens, held.tokens, tokens);
    let cost = amount(Unit::CostMicros, used.cost_micros, held.cost_micros, cost_micros);
    [calls, output_bytes, tokens, cost].into_iter().flatten()
}

fn is_used_up(usage: &NamespaceUsage) -> bool {
    amounts(usage).any(|amount| amount.used >= amount.limit)
}

/// `used 3 of 10 calls (1 more held by calls under way), until 2026-11-29 00:00:00`.
fn used(usage: &NamespaceUsage) -> String {
    let amount = |Amount { unit, used, held, limit }: Amount| {
        let more = if unit == Unit::CostMicros { words::dollars(held) } else { held.to_string() };
        let held = if held > 0 { format!(" ({more} more held by calls under way)") } else { String::new() };
        format!("{}{held}", words::of(used, limit, unit))
    };
    let amounts: Vec<String> = amounts(usage).map(amount).collect();
    let until = usage.window_end_time.as_ref().map(|until| format!(", until {}", time::date_and_time(until)));
    format!("used {}{}", amounts.join(" and "), until.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::BudgetAmounts;

    use super::*;

    #[test]
    fn a_namespace_shows_what_it_has_used_and_what_is_held() {
        let usage = NamespaceUsage {
            used: Some(BudgetAmounts { calls: 3, output_bytes: 7, ..BudgetAmounts::default() }),
            held: Some(BudgetAmounts { calls: 1, output_bytes: 0, ..BudgetAmounts::default() }),
            limit: Some(BudgetAllotment { calls: Some(10), output_bytes: Some(7), ..BudgetAllotment::default() }),
            ..NamespaceUsage::default()
        };
        assert_eq!(used(&usage), "used 3 of 10 calls (1 more held by calls under way) and 7 of 7 bytes of output");
        assert!(is_used_up(&usage));
        let calls = NamespaceUsage {
            limit: Some(BudgetAllotment { calls: Some(10), output_bytes: None, ..BudgetAllotment::default() }),
            ..usage
        };
        assert!(!is_used_up(&calls));
    }
}
