//! Damaged conditions and templates.

use std::borrow::Cow;

use belay_condition::Condition as Expression;
use belay_plan::{Format, StepKind, Template};
use belay_plan_tests::{bad, parse};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use super::{
    check,
    mutate::{mutated_text, text_mutations},
};

const CONDITIONS: [&str; 12] = [
    "${a.result.failed} == 0 && ${a.result.tests} > 100",
    "size(${a.result.slow}) > 5",
    "${a.result.files}.exists(f, f.endsWith(\".rs\")) || !(${a.state} == 'failed')",
    "has(${a.result}.x) ? ${a.result.n} % 2 == 1 : -${a.result.n} < 1.5e3",
    "${a.result.list}.map(x, x * 2).filter(y, y > 1)[0] in [1, 2, 3]",
    "{'a': 1, \"b\": [null]}['a'] == int('1') && double(2) != 2.5 && string(1) == \"1\"",
    "${[\"a\"].output[\"odd key\"]}.matches('^a+$')",
    "${a.failure} == null && true",
    "((((${a.result}))))",
    "!!!!true == -(-1) > 0",
    "false",
    "${a.result.text}.contains(\"x\").startsWith('y')",
];

const TEMPLATES: [&str; 10] = [
    "${a.result}",
    "n is ${a.result.n}, ${a.output[0].x[\"odd \\\"key\\\"\"]} and $${HOME}",
    "$${",
    "${a.state}: ${a.failure.message}",
    "${[\"a\"].result.list[12345678901234567890]}",
    "$$${a.result}$",
    "${secret:TOKEN}",
    "${a.result",
    "echo ${HOME} $x $$",
    "${a.result.größe}",
];

/// The result of the step `a`.
fn values() -> Value {
    json!({"failed": 0, "tests": 120, "slow": ["a", "b"], "files": ["x.rs"], "n": 3, "list": [1, 2.5, "x", null], "text": "xy", "x": {"y": [[]]},
        "odd key": true})
}

/// A plan in which the step `b` has this member.
fn plan(member: &str, value: &Value) -> String {
    json!({"id": "p", "steps": [{"id": "a", "tool": "t"}, {"id": "b", "tool": "t", member: value}]}).to_string()
}

/// A condition is refused at its field, or it ends, with whatever values.
#[test]
fn conditions() {
    let bad = bad::plans().into_iter().filter(|(group, _)| group == "conditions");
    let bad = bad.filter_map(|(_, plan)| {
        let plan: Value = serde_json::from_str(&plan.text()).ok()?;
        Some(plan["steps"].as_array()?.last()?["condition"].as_str()?.to_owned())
    });
    let seeds: Vec<String> = CONDITIONS.iter().map(|text| (*text).to_owned()).chain(bad).collect();
    let value = values();
    check("expressions::conditions", 6_000, (any::<Index>(), text_mutations()), |(seed, mutations)| {
        let text = mutated_text(&seeds[seed.index(seeds.len())], &mutations);
        let plan = match parse(Format::Json, &plan("condition", &text.clone().into())) {
            Ok(plan) => plan,
            Err(refused) => {
                prop_assert!(
                    refused.violations.iter().all(|violation| violation.field == "steps[1].condition"),
                    "{refused}"
                );
                return Ok(());
            }
        };
        let condition = plan.steps()[1].condition().expect("it was written");
        prop_assert_eq!(condition.source(), &text);
        for given in [&value, &Value::Null, &value["list"]] {
            // What cannot be resolved fails the step, with no evaluation.
            let Ok(values) = condition.resolve(&|_, _| Some(Cow::Borrowed(given))) else { continue };
            let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
            let values: Vec<(&str, &Value)> =
                values.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_ref().ok()?))).collect();
            let expression = Expression::new(condition.expression(), &names).expect("it was checked with the plan");
            if let Err(error) = expression.evaluate(&values) {
                prop_assert!(error.to_string().chars().count() < 1_500, "{error}");
            }
        }
        Ok(())
    });
}

/// The deepest nesting that a condition has room for ends in a refusal or in an expression, on the stack of a thread.
#[test]
fn the_deepest_conditions() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("!", ""),
        ("-", ""),
        ("{1: ", "}"),
        ("size(", ")"),
        ("true ? ", " : true"),
        ("!(", ")"),
    ] {
        let depth = 4_090 / (open.len() + close.len());
        let text = format!("{}true{}", open.repeat(depth), close.repeat(depth));
        if let Err(refused) = parse(Format::Json, &plan("condition", &text.clone().into())) {
            assert!(refused.violations.iter().all(|violation| violation.field == "steps[1].condition"), "{refused}");
            continue;
        }
        let expression = Expression::new(&text, &[]).unwrap();
        let _ = expression.evaluate(&[]);
    }
}

/// A template is refused at its field, or it is a text and references that come back as they were.
#[test]
fn templates() {
    let value = values();
    check("expressions::templates", 6_000, (any::<Index>(), text_mutations()), |(seed, mutations)| {
        let text = mutated_text(TEMPLATES[seed.index(TEMPLATES.len())], &mutations);
        let arguments = json!({"x": [{"y": text}]});
        let plan = match parse(Format::Json, &plan("arguments", &arguments)) {
            Ok(plan) => plan,
            Err(refused) => {
                let is_there = |field: &str| field == "steps[1].arguments.x[0].y";
                prop_assert!(refused.violations.iter().all(|violation| is_there(&violation.field)), "{refused}");
                return Ok(());
            }
        };
        let StepKind::Tool(call) = plan.steps()[1].kind() else { panic!("a call") };
        prop_assert_eq!(call.arguments.source(), &arguments);
        prop_assert_eq!(&Template::parse(call.arguments.source()).expect("it was read before"), &call.arguments);
        prop_assert_eq!(call.arguments.is_constant(), plan.steps()[1].dependencies().is_empty());
        if let Ok(resolved) = call.arguments.resolve(&|_, _| Some(Cow::Borrowed(&value)))
            && call.arguments.is_constant()
        {
            prop_assert_eq!(resolved["x"][0]["y"].as_str().expect("a text"), text.replace("$${", "${"));
        }
        Ok(())
    });
}
