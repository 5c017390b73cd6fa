//! Namespaces as text.

use belay_proto::v1::{BudgetAllotment, Namespace, NamespaceUsage};

use super::{
    text::{Line, Style, clean},
    time,
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
struct Unit {
    name: &'static str,
    used: i64,
    held: i64,
    limit: i64,
}

/// The units that have a limit.
fn units(usage: &NamespaceUsage) -> impl Iterator<Item = Unit> {
    let (used, held) = (usage.used.unwrap_or_default(), usage.held.unwrap_or_default());
    let BudgetAllotment { calls, output_bytes, tokens, cost_micros } = usage.limit.unwrap_or_default();
    let calls = calls.map(|limit| Unit { name: "calls", used: used.calls, held: held.calls, limit });
    let unit = |name, used, held, limit: Option<i64>| limit.map(|limit| Unit { name, used, held, limit });
    let output_bytes = unit("bytes of output", used.output_bytes, held.output_bytes, output_bytes);
    let tokens = unit("tokens", used.tokens, held.tokens, tokens);
    let cost = unit("millionths of a dollar", used.cost_micros, held.cost_micros, cost_micros);
    [calls, output_bytes, tokens, cost].into_iter().flatten()
}

fn is_used_up(usage: &NamespaceUsage) -> bool {
    units(usage).any(|unit| unit.used >= unit.limit)
}

/// `used 3 of 10 calls (1 more held by calls under way), until 2026-11-29 00:00:00`.
fn used(usage: &NamespaceUsage) -> String {
    let unit = |Unit { name, used, held, limit }: Unit| {
        let held = if held > 0 { format!(" ({held} more held by calls under way)") } else { String::new() };
        format!("{used} of {limit} {name}{held}")
    };
    let units: Vec<String> = units(usage).map(unit).collect();
    let until = usage.window_end_time.as_ref().map(|until| format!(", until {}", time::date_and_time(until)));
    format!("used {}{}", units.join(" and "), until.unwrap_or_default())
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
