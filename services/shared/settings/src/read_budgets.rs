//! Reads the section `budgets`.

use belay_yaml::{Node, Reader, Value};

use crate::{BudgetWindow, NamespaceBudget, NamespaceBudgets, ValueWithOrigin, budgets::EACH};

const BUDGET: &str = "namespace window calls output_bytes tokens cost";

/// The most budgets.
const MAX_BUDGETS: usize = 1000;
/// The largest limit, which is that of a plan's budget as well.
const MAX_AMOUNT: u64 = 1_000_000_000_000_000;
/// The longest id of a namespace.
const MAX_NAMESPACE: usize = 64;

/// Reads all budgets. An invalid one adds violations and is left out.
pub(crate) fn budgets(reader: &mut Reader, node: &Node, field: &str) -> NamespaceBudgets {
    let budgets: Vec<NamespaceBudget> = reader.list(node, field, budget);
    for (at, budget) in budgets.iter().enumerate() {
        let name = &budget.namespace;
        if budgets[..at].iter().any(|earlier| earlier.namespace.value == name.value) {
            let what = format!("has more than one budget for the namespace `{}`: leave one", name.value);
            reader.refuse(field, node.line, what);
        }
    }
    if budgets.len() > MAX_BUDGETS {
        reader.refuse(field, node.line, format!("has {} budgets, but the limit is {MAX_BUDGETS}", budgets.len()));
    }
    NamespaceBudgets(budgets)
}

fn budget(reader: &mut Reader, node: &Node, field: &str) -> Option<NamespaceBudget> {
    let before = reader.violations().len();
    let (mut namespace, mut window) = (None, None);
    let (mut calls, mut output_bytes, mut tokens, mut cost_micros) = (None, None, None, None);
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "namespace" => namespace = self::namespace(reader, node, field),
            "window" => {
                let word = reader.one_of(node, field, &BudgetWindow::WORDS);
                window = word.map(|window| ValueWithOrigin::on_line(window, node.line));
            }
            "calls" => calls = amount(reader, node, field),
            "output_bytes" => output_bytes = amount(reader, node, field),
            "tokens" => tokens = amount(reader, node, field),
            "cost" => cost_micros = dollars(reader, node, field),
            _ => return Err(BUDGET),
        }
        Ok(())
    });
    let required = [("namespace", "such as default, or '*' for each other one"), ("window", "day or month")];
    for (key, what) in required {
        if !reader.has_read(&format!("{field}.{key}")) {
            reader.refuse(field, node.line, format!("has no `{key}`: add it, {what}"));
        }
    }
    let limits = ["calls", "output_bytes", "tokens", "cost"].map(|key| reader.has_read(&format!("{field}.{key}")));
    if limits.iter().all(|is_read| !is_read) {
        reader.refuse(field, node.line, "limits nothing: add `calls`, `output_bytes`, `tokens` or `cost`");
    }
    if reader.violations().len() > before {
        return None;
    }
    Some(NamespaceBudget { namespace: namespace?, window: window?, calls, output_bytes, tokens, cost_micros })
}

/// Reads US dollars, as millionths.
fn dollars(reader: &mut Reader, node: &Node, field: &str) -> Option<ValueWithOrigin<u64>> {
    let number = if let Value::Number(number) = &node.value { number.as_f64() } else { None };
    let micros =
        number.map(|dollars| (dollars * 1e6).round()).filter(|micros| (1.0..=MAX_AMOUNT as f64).contains(micros));
    if micros.is_none() {
        reader.refuse(field, node.line, "must be a number of US dollars such as 1.50, at least 0.000001");
    }
    micros.map(|micros| ValueWithOrigin::on_line(micros as u64, node.line))
}

fn namespace(reader: &mut Reader, node: &Node, field: &str) -> Option<ValueWithOrigin<String>> {
    let name = reader.text(node, field)?;
    let is_id = !name.is_empty()
        && name.len() <= MAX_NAMESPACE
        && !name.starts_with('-')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if name != EACH && !is_id {
        let rule = "must be the id of a namespace, such as default, or '*' for each one without a budget of its own";
        reader.refuse(field, node.line, rule);
        return None;
    }
    Some(ValueWithOrigin::on_line(name, node.line))
}

fn amount(reader: &mut Reader, node: &Node, field: &str) -> Option<ValueWithOrigin<u64>> {
    let number = if let Value::Number(number) = &node.value { number.as_u64() } else { None };
    let amount = number.filter(|amount| (1..=MAX_AMOUNT).contains(amount));
    if amount.is_none() {
        reader.refuse(field, node.line, format!("must be a whole number from 1 to {MAX_AMOUNT}"));
    }
    amount.map(|amount| ValueWithOrigin::on_line(amount, node.line))
}

#[cfg(test)]
mod tests {
    use crate::{BudgetWindow, File, Origin};

    const GOOD: &str = "
budgets:
  - {namespace: default, window: day, calls: 10000, output_bytes: 1000000000}
  - {namespace: '*', window: month, calls: 5}
";

    #[test]
    fn a_namespace_has_its_own_budget_or_that_of_all_others() {
        let budgets = File::parse(GOOD, None).unwrap().budgets;
        let limits = |namespace: &str| {
            let budget = budgets.of(namespace).unwrap();
            let [calls, bytes] =
                [&budget.calls, &budget.output_bytes].map(|limit| limit.as_ref().map(|limit| limit.value));
            (budget.window.value, calls, bytes)
        };
        assert_eq!(limits("default"), (BudgetWindow::Day, Some(10_000), Some(1_000_000_000)));
        assert_eq!(limits("other"), (BudgetWindow::Month, Some(5), None));
        assert_eq!(budgets.0[1].window.origin, Origin::Line(4));
        let own = File::parse(&GOOD.replace("'*'", "team"), None).unwrap().budgets;
        assert_eq!(own.of("other"), None);
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_field() {
        let cases = [
            ("namespace: default, ", "", "budgets[0]: has no `namespace`"),
            ("window: day, ", "", "budgets[0]: has no `window`"),
            ("window: day", "window: week", "budgets[0].window"),
            (", calls: 5", "", "budgets[1]: limits nothing"),
            ("calls: 10000", "calls: 0", "budgets[0].calls: must be a whole number from 1 to 1000000000000000"),
            ("calls: 10000", "calls: -1", "budgets[0].calls"),
            ("output_bytes: 1000000000", "output_bytes: 1GB", "budgets[0].output_bytes"),
            ("namespace: default", "namespace: De fault", "budgets[0].namespace: must be the id of a namespace"),
            ("'*'", "default", "more than one budget for the namespace `default`"),
            ("calls: 5", "money: 5", "money"),
            ("calls: 5", "tokens: 0", "budgets[1].tokens"),
            ("calls: 5", "cost: free", "budgets[1].cost: must be a number of US dollars such as 1.50"),
        ];
        for (right, wrong, says) in cases {
            let violations = File::parse(&GOOD.replacen(right, wrong, 1), None).unwrap_err();
            let text = violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert!(text.contains(says), "{wrong}: {text}");
        }
    }
}
