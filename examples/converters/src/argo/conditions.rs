//! `when` and `depends`.

use std::collections::BTreeMap;

use super::values::Values;
use crate::plan::{After, Dependency, RunWhen, Step, cel_text};

/// Converts a `when` to CEL: comparisons with `&&` and `||` between them. `None` for anything else.
pub(super) fn when(text: &str, values: &mut Values) -> Option<String> {
    // Parentheses around an expression of the other kind, `{{= … }}`, are not read either.
    if text.contains("{{=") || text.contains(['(', ')']) {
        return None;
    }
    let all: Option<Vec<String>> = text
        .split("||")
        .map(|part| {
            part.split("&&").map(|one| comparison(one, values)).collect::<Option<Vec<_>>>().map(|all| all.join(" && "))
        })
        .collect();
    let mut all = all?;
    Some(if all.len() == 1 {
        all.remove(0)
    } else {
        all.into_iter().map(|one| format!("({one})")).collect::<Vec<_>>().join(" || ")
    })
}

/// The value of a `when` for an entry that is known: comparisons of constants. `None` when it needs more than that.
pub(super) fn constant(text: &str, item: &serde_json::Value) -> Option<bool> {
    let shown = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut filled = text.replace("{{item}}", &shown(item)).replace("{{ item }}", &shown(item));
    for (name, value) in item.as_object().into_iter().flatten() {
        filled = filled.replace(&format!("{{{{item.{name}}}}}"), &shown(value));
    }
    let one = |part: &str| {
        let (left, right, equal) = match part.split_once("==") {
            Some((left, right)) => (left, right, true),
            None => part.split_once("!=").map(|(left, right)| (left, right, false))?,
        };
        let bare = |side: &str| side.trim().trim_matches(['"', '\'']).to_owned();
        Some((bare(left) == bare(right)) == equal)
    };
    if filled.contains("{{") || filled.contains(['(', ')', '<', '>', '~']) {
        return None;
    }
    let any: Option<Vec<bool>> =
        filled.split("||").map(|part| part.split("&&").map(one).try_fold(true, |all, one| Some(all && one?))).collect();
    any.map(|any| any.into_iter().any(|one| one))
}

fn comparison(text: &str, values: &mut Values) -> Option<String> {
    let operators = ["==", "!=", "<=", ">=", "=~", "<", ">"];
    let (at, operator) = operators
        .iter()
        .filter_map(|operator| Some((text.find(operator)?, *operator)))
        .min_by_key(|(at, operator)| (*at, 9 - operator.len()))?;
    let (left, right) = (text[..at].trim(), text[at + operator.len()..].trim());
    if let Some(cel) = state(left, right, operator, values) {
        return Some(cel);
    }
    let (left, right) = (operand(left, values)?, operand(right, values)?);
    Some(match operator {
        "=~" => format!("{}.matches({})", left.as_text(), right.as_text()),
        "==" | "!=" => format!("{} {operator} {}", left.as_text(), right.as_text()),
        _ => format!("{} {operator} {}", left.as_number()?, right.as_number()?),
    })
}

/// `{{tasks.NAME.status}} == Failed`.
fn state(left: &str, right: &str, operator: &str, values: &Values) -> Option<String> {
    let name = left.strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let (task, field) = name.strip_prefix("steps.").or_else(|| name.strip_prefix("tasks."))?.split_once('.')?;
    let state = match right.trim_matches(['"', '\'']) {
        "Succeeded" => "completed",
        "Failed" | "Error" => "failed",
        "Skipped" | "Omitted" => "skipped",
        _ => return None,
    };
    let operator = Some(operator).filter(|operator| ["==", "!="].contains(operator))?;
    (field == "status").then(|| Some(format!("${{{}.state}} {operator} \"{state}\"", values.tasks.get(task)?.id)))?
}

enum Operand {
    Constant(String),
    Reference(String),
}

impl Operand {
    fn as_text(&self) -> String {
        match self {
            Self::Constant(text) => cel_text(text),
            Self::Reference(reference) => format!("string(${{{reference}}})"),
        }
    }

    fn as_number(&self) -> Option<String> {
        match self {
            Self::Constant(text) => text.parse::<f64>().ok().map(|_| text.clone()),
            Self::Reference(reference) => Some(format!("double(${{{reference}}})")),
        }
    }
}

fn operand(text: &str, values: &mut Values) -> Option<Operand> {
    let bare = text.trim_matches(['"', '\'']);
    let (converted, unknown) = values.try_text(bare);
    if !unknown.is_empty() {
        return None;
    }
    match (converted.constant(), converted.single_reference()) {
        (Some(constant), _) => Some(Operand::Constant(constant.to_owned())),
        (None, Some(reference)) => Some(Operand::Reference(reference.to_owned())),
        (None, None) => None,
    }
}

/// A formula over the ends of tasks.
#[derive(Debug)]
enum Formula {
    /// The task ended with one of the outcomes of a plan; `None` for a name alone.
    Ended(String, Option<&'static str>),
    Not(Box<Formula>),
    And(Vec<Formula>),
    Or(Vec<Formula>),
}

/// Gives a step the dependencies of a `depends`: outcomes per task where it says that, and else a condition on the tasks' states. `tasks` has the ids, and
/// whether a task may be skipped by a decision. Returns whether it could be said.
pub(super) fn depends(text: &str, tasks: &BTreeMap<String, After>, step: &mut Step) -> bool {
    let Some(formula) = parse(text) else { return false };
    let parts = match formula {
        Formula::And(parts) => parts,
        one => vec![one],
    };
    let plain: Option<Vec<After>> = parts.iter().map(|part| plain(part, tasks)).collect();
    if let Some(after) = plain {
        After::apply(&after, step);
        return true;
    }
    let outcomes: Option<Vec<Dependency>> = parts.iter().map(|part| outcomes(part, tasks)).collect();
    if let Some(outcomes) = outcomes {
        step.depends_on.extend(outcomes);
        return true;
    }
    let mut named = Vec::new();
    let conditions: Option<Vec<String>> = parts.iter().map(|part| condition(part, tasks, &mut named)).collect();
    let Some(conditions) = conditions else { return false };
    named.iter().for_each(|id| step.add_dependency(id));
    step.run_when = Some(RunWhen::Always);
    step.condition = Some(conditions.join(" && "));
    true
}

fn parse(text: &str) -> Option<Formula> {
    let mut tokens = Vec::new();
    let spaced =
        text.replace("&&", " && ").replace("||", " || ").replace('!', " ! ").replace('(', " ( ").replace(')', " ) ");
    tokens.extend(spaced.split_whitespace().rev().map(str::to_owned));
    let formula = or(&mut tokens, 0)?;
    tokens.is_empty().then_some(formula)
}

fn or(tokens: &mut Vec<String>, depth: usize) -> Option<Formula> {
    let mut parts = vec![and(tokens, depth)?];
    while tokens.pop_if(|token| token == "||").is_some() {
        parts.push(and(tokens, depth)?);
    }
    Some(if parts.len() == 1 { parts.remove(0) } else { Formula::Or(parts) })
}

fn and(tokens: &mut Vec<String>, depth: usize) -> Option<Formula> {
    let mut parts = vec![one(tokens, depth)?];
    while tokens.pop_if(|token| token == "&&").is_some() {
        parts.push(one(tokens, depth)?);
    }
    Some(if parts.len() == 1 { parts.remove(0) } else { Formula::And(parts) })
}

fn one(tokens: &mut Vec<String>, depth: usize) -> Option<Formula> {
    if depth > 30 {
        return None;
    }
    match tokens.pop()?.as_str() {
        "!" => Some(Formula::Not(Box::new(one(tokens, depth + 1)?))),
        "(" => {
            let inner = or(tokens, depth + 1)?;
            (tokens.pop()? == ")").then_some(inner)
        }
        word => match word.split_once('.') {
            None => Some(Formula::Ended(word.to_owned(), None)),
            Some((task, "Succeeded")) => Some(Formula::Ended(task.to_owned(), Some("success"))),
            Some((task, "Failed" | "Errored")) => Some(Formula::Ended(task.to_owned(), Some("failure"))),
            Some((task, "Skipped" | "Omitted")) => Some(Formula::Ended(task.to_owned(), Some("skipped"))),
            Some(_) => None,
        },
    }
}

/// A task's name alone: it has to have completed, or been skipped by its own `when`.
fn plain(formula: &Formula, tasks: &BTreeMap<String, After>) -> Option<After> {
    match formula {
        Formula::Ended(task, None) => tasks.get(task).cloned(),
        Formula::Ended(task, Some("success")) => tasks
            .get(task)
            .map(|after| After { may_be_skipped: false, ..after.clone() })
            .filter(|after| !after.may_fail),
        _ => None,
    }
}

/// Outcomes of one task, with `||` between them.
fn outcomes(formula: &Formula, tasks: &BTreeMap<String, After>) -> Option<Dependency> {
    let parts = match formula {
        Formula::Or(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let (mut named, mut on): (Option<&str>, Vec<&'static str>) = (None, Vec::new());
    for part in parts {
        let Formula::Ended(task, outcome) = part else { return None };
        if named.is_some_and(|named| named != task) {
            return None;
        }
        named = Some(task);
        let outcomes: &[&'static str] = match outcome {
            Some("failure") => &["failure"],
            Some("skipped") => &["skipped"],
            Some(_) => &["success"],
            None => &["success", "skipped"],
        };
        outcomes.iter().for_each(|outcome| {
            if !on.contains(outcome) {
                on.push(outcome)
            }
        });
    }
    Some(Dependency::On { step: tasks.get(named?)?.id.clone(), on })
}

/// A formula over the states, in CEL.
fn condition(formula: &Formula, tasks: &BTreeMap<String, After>, named: &mut Vec<String>) -> Option<String> {
    let all = |parts: &[Formula], named: &mut Vec<String>, between: &str| -> Option<String> {
        let parts: Option<Vec<String>> = parts.iter().map(|part| condition(part, tasks, named)).collect();
        Some(format!("({})", parts?.join(between)))
    };
    match formula {
        Formula::Not(inner) => Some(format!("!({})", condition(inner, tasks, named)?)),
        Formula::And(parts) => all(parts, named, " && "),
        Formula::Or(parts) => all(parts, named, " || "),
        Formula::Ended(task, outcome) => {
            let id = &tasks.get(task)?.id;
            named.push(id.clone());
            Some(match outcome {
                Some("failure") => format!("${{{id}.state}} == \"failed\""),
                Some("skipped") => format!("${{{id}.state}} == \"skipped\""),
                Some(_) => format!("${{{id}.state}} == \"completed\""),
                None => format!("${{{id}.state}} in [\"completed\", \"skipped\"]"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn dependencies(text: &str) -> (bool, Value, Option<RunWhen>, Option<String>) {
        let skipped = After { may_be_skipped: true, ..After::completed("b") };
        let tasks = BTreeMap::from([("A".to_owned(), After::completed("a")), ("B".to_owned(), skipped)]);
        let mut step = Step::noop("x", Value::Null);
        let said = depends(text, &tasks, &mut step);
        (said, json!(step.depends_on), step.run_when, step.condition)
    }

    #[test]
    fn depends_are_plain_outcomes_or_a_condition() {
        assert_eq!(dependencies("A"), (true, json!(["a"]), None, None));
        assert_eq!(dependencies("A && B"), (true, json!(["a", "b"]), Some(RunWhen::NoneFailed), None));
        let on = json!([{"step": "a", "on": ["success", "failure"]}, {"step": "b", "on": ["success"]}]);
        assert_eq!(dependencies("(A.Succeeded || A.Failed) && B.Succeeded"), (true, on, None, None));
        let either = "(${a.state} == \"completed\" || ${b.state} == \"failed\")";
        assert_eq!(
            dependencies("A.Succeeded || B.Failed"),
            (true, json!(["a", "b"]), Some(RunWhen::Always), Some(either.to_owned()))
        );
        for text in ["A.AnySucceeded", "A &&", "C", "(A", "", &"!".repeat(1000)] {
            assert!(!dependencies(text).0, "{text:.20}");
        }
    }

    #[test]
    fn a_when_is_compared_as_text_or_as_numbers() {
        let mut values = Values { item: Some("item.value"), ..Values::default() };
        assert_eq!(when("{{item}} == even", &mut values).as_deref(), Some("string(${item.value}) == \"even\""));
        assert_eq!(
            when("{{item}} > 3 && 'a' != b", &mut values).as_deref(),
            Some("double(${item.value}) > 3 && \"a\" != \"b\"")
        );
        for text in ["{{=1}} == 1", "{{unknown}} == 1", "true", "(a == b)"] {
            assert_eq!(when(text, &mut values), None, "{text}");
        }
    }
}
