//! Limits over executions: those that a document has, as limits of plans.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    left_out::Report,
    plan::{Limit, Plan, Step},
    text::Text,
};

/// The most characters of a key.
const MAX_KEY_CHARS: usize = 128;

/// The most limits of a plan.
const MAX_LIMITS: usize = 10;

/// Returns the template of a key.
///
/// # Errors
/// Why a plan has no such key.
pub fn key(name: &Text) -> Result<String, String> {
    match name.literal_chars() {
        0 if name.constant().is_some() => Err("its name is empty".to_owned()),
        chars if chars > MAX_KEY_CHARS => {
            Err(format!("its name has {chars} characters, and the key of a limit at most {MAX_KEY_CHARS}"))
        }
        _ => Ok(name.key()),
    }
}

/// Returns the name with text in front of it where it could be empty: where it has no text of its own, and each input in it is empty by default, or none of those
/// that are declared.
#[must_use]
pub fn never_empty(name: Text, declared: &BTreeMap<String, Value>, front: &str) -> Text {
    let may_be_empty = |input: &str| {
        declared
            .get(input)
            .is_none_or(|input| input.get("default").is_some_and(|default| default.is_null() || default == ""))
    };
    if name.constant().is_some() || name.literal_chars() > 0 || !name.inputs().all(may_be_empty) {
        return name;
    }
    let mut whole = Text::literal(front);
    whole.push(&name);
    whole
}

/// Takes away, and reports, the limits that a plan cannot have: those that are there twice, those that the plan around it holds until it ends, and those
/// beyond the most of a plan.
pub fn leave_out_impossible(plan: &mut Plan, report: &mut Report) {
    of_plan(plan, &[], report);
}

fn of_plan(plan: &mut Plan, held: &[String], report: &mut Report) {
    let mut kept: Vec<Limit> = Vec::new();
    for limit in std::mem::take(&mut plan.limits) {
        let (why, instead) = if kept.iter().any(|other| other.key == limit.key) {
            (format!("the plan has the limit `{}` already", limit.key), "")
        } else if held.contains(&limit.key) {
            let why = format!("the plan around it holds `{}` until it ends, so that it would wait in vain", limit.key);
            (why, "give one of them another key")
        } else if kept.len() == MAX_LIMITS {
            (format!("a plan has at most {MAX_LIMITS} limits"), "combine some of them into one key")
        } else {
            kept.push(limit);
            continue;
        };
        report.add(&limit.place, "limit", why, instead);
    }
    // Keys with inputs are known when an execution starts.
    let constant = kept.iter().filter(|limit| !limit.key.replace("$${", "").contains("${"));
    let held: Vec<String> = held.iter().cloned().chain(constant.map(|limit| limit.key.clone())).collect();
    plan.limits = kept;
    of_steps(&mut plan.steps, &held, report);
}

fn of_steps(steps: &mut [Step], held: &[String], report: &mut Report) {
    for step in steps {
        if let Some(plan) = &mut step.plan {
            of_plan(plan, held, report);
        }
        of_steps(&mut step.steps, held, report);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{left_out::Place, plan::WhenFull};

    fn limits(keys: &[&str]) -> Vec<Limit> {
        let limit = |key: &&str| Limit {
            key: (*key).to_owned(),
            at_once: 1,
            when_full: WhenFull::Wait,
            place: Place::default(),
        };
        keys.iter().map(limit).collect()
    }

    #[test]
    fn keys_have_no_blanks_and_are_neither_empty_nor_too_long() {
        let mut name = Text::literal(" deploy to\n");
        name.push(&Text::reference("inputs.environment ?? \"\""));
        name.push(&Text::reference("inputs.matrix.os ?? \"\""));
        assert_eq!(key(&name).as_deref(), Ok("-deploy-to-${inputs.environment}${inputs.matrix.os ?? \"\"}"));
        assert_eq!(key(&Text::literal("a${b}")).as_deref(), Ok("a$${b}"));
        assert_eq!(key(&Text::default()), Err("its name is empty".to_owned()));
        assert!(key(&Text::literal("x".repeat(129))).is_err_and(|why| why.contains("129 characters")));
    }

    #[test]
    fn a_key_that_could_be_empty_has_text_in_front() {
        let inputs =
            [("ref", json!({"default": ""})), ("nothing", json!({"default": null})), ("environment", json!({}))];
        let declared: BTreeMap<String, Value> =
            inputs.into_iter().map(|(name, input)| (name.to_owned(), input)).collect();
        for (reference, expected) in [
            ("inputs.ref ?? \"\"", "group-${inputs.ref}"),
            ("inputs.nothing ?? null", "group-${inputs.nothing}"),
            ("inputs.other", "group-${inputs.other}"),
            ("inputs.environment ?? \"\"", "${inputs.environment}"),
        ] {
            assert_eq!(never_empty(Text::reference(reference), &declared, "group-").key(), expected);
        }
        assert_eq!(never_empty(Text::literal("a"), &declared, "group-").key(), "a");
    }

    #[test]
    fn a_plan_keeps_no_limit_that_it_could_not_have() {
        let mut report = Report::default();
        let inner = Plan { limits: limits(&["a", "${inputs.x}", "b"]), ..Plan::default() };
        let group = Step { steps: vec![Step::with_plan("inner", inner)], ..Step::default() };
        let mut plan = Plan { limits: limits(&["a", "${inputs.x}", "a"]), steps: vec![group], ..Plan::default() };
        leave_out_impossible(&mut plan, &mut report);
        let keys = |plan: &Plan| plan.limits.iter().map(|limit| limit.key.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&plan), ["a", "${inputs.x}"]);
        assert_eq!(keys(plan.steps[0].steps[0].plan.as_ref().unwrap()), ["${inputs.x}", "b"]);
        let words: Vec<String> = report.finish().into_iter().map(|entry| entry.why).collect();
        assert_eq!(
            words,
            [
                "the plan around it holds `a` until it ends, so that it would wait in vain",
                "the plan has the limit `a` already"
            ]
        );

        let many: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        let mut plan = Plan { limits: limits(&many.iter().map(String::as_str).collect::<Vec<_>>()), ..Plan::default() };
        let mut report = Report::default();
        leave_out_impossible(&mut plan, &mut report);
        assert_eq!((plan.limits.len(), report.finish()[0].why.as_str()), (10, "a plan has at most 10 limits"));
    }
}
