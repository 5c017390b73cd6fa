//! Harm that a document may not do to its reader, and that a reader may not do to numbers.

use std::fmt::Write;

use proptest::prelude::*;

use super::{REQUEST, arguments, assert_refused, one_step, read, violations};
use crate::{
    Format, Plan,
    limits::{MAX_DEPTH, MAX_PLAN_BYTES},
};

#[test]
fn numbers_survive_exactly() {
    for number in [
        "18446744073709551615",
        "9007199254740993",
        "-9223372036854775808",
        "0",
        "-1",
        "0.1",
        "1.7976931348623157e308",
        "-0.0",
        "-0",
    ] {
        for text in [
            one_step(&format!("arguments: {{x: {number}}}")),
            format!(r#"{{"id":"p","steps":[{{"id":"a","tool":"t","arguments":{{"x":{number}}}}}]}}"#),
        ] {
            let plan = read(&text);
            let expected: serde_json::Value = serde_json::from_str(number).unwrap();
            let found = &arguments(&plan.steps()[0])["x"];
            // A zero with a sign may come as an integer or as a float: they are the same number.
            assert!(*found == expected || found.as_f64() == Some(0.0) && expected.as_f64() == Some(0.0), "{text}");
        }
    }
    for number in ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"] {
        let text = format!(
            "{{\"id\":\"p\",\"steps\":[{{\"id\":\"a\",\"tool\":\"t\",\"arguments\":{{\"x\":[1.5, {number}]}}}}]}}"
        );
        assert_refused(&text, &[("steps[0].arguments.x[1]: is an integer of more than 64 bits", (1, 64))]);
        assert_refused(
            &one_step(&format!("arguments: {{x: [1.5, {number}]}}")),
            &[("steps[0].arguments.x[1]: is an integer of more than 64 bits", (5, 26))],
        );
    }
    assert_refused(&one_step("arguments: {x: 007}"), &[("steps[0].arguments.x: begins with a zero", (5, 20))]);
    for number in [".nan", ".inf", "-.inf", "1e999"] {
        let found = violations(&one_step(&format!("arguments: {{x: {number}}}")));
        assert!(
            found.len() == 1 && found[0].message.contains("not a finite number") && found[0].line == 5,
            "{found:?}"
        );
    }
    for number in ["NaN", "Infinity", "1e999"] {
        let found = violations(&format!("{{\"id\": \"p\", \"steps\": {number}}}"));
        assert!(found.len() == 1 && found[0].message.starts_with("invalid JSON") && found[0].line == 1, "{found:?}");
    }
}

#[test]
fn what_yaml_can_do_to_a_reader_is_bounded() {
    // Each level says the one before it ten times.
    let mut bomb = "id: p\nmetadata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(bomb, "  a{level}: &a{level} [{aliases}]").unwrap();
    }
    let long = format!("id: p\nmetadata: [&a '{}', {}]", "x".repeat(1 << 20), vec!["*a"; 20].join(", "));
    for (text, expected) in [
        (bomb, "the plan exceeds the limit"),
        (long, "the plan exceeds the limit"),
        ("id: p\nsteps: &x\n  - *x\n".to_owned(), "invalid YAML"),
        ("id: p\nsteps: *nowhere\n".to_owned(), "invalid YAML"),
        ("id: p\n---\nid: q\n".to_owned(), "invalid YAML"),
        ("id: p\nid: q\n".to_owned(), "invalid YAML: `id` is given twice"),
        ("id: p\nmetadata: {x: {a: 1, a: 2}}\n".to_owned(), "invalid YAML: `a` is given twice"),
        ("id: p\nsteps: !!python/object [1]\n".to_owned(), "invalid YAML"),
        ("id: p\nsteps: [\n".to_owned(), "invalid YAML: unclosed bracket"),
        ("id: p\nsteps:\n\t- id: a\n".to_owned(), "invalid YAML: tabs"),
        ("id: p\n? [a]\n: 1\n".to_owned(), "invalid YAML"),
        (format!("id: p\nmetadata: {}", "[".repeat(100_000)), "invalid YAML"),
        (format!("id: p\nmetadata:\n {}", "- ".repeat(100_000)), "the plan is nested deeper than 37 levels"),
        ("{\"id\": \"p\", \"id\": \"q\"}".to_owned(), "invalid JSON: `id` is given twice"),
        ("{\"id\": \"p\",\n\"steps\": [}".to_owned(), "invalid JSON: expected value"),
        ("{\"id\": \"p\"} {".to_owned(), "invalid JSON: trailing characters"),
        ("{\"id\": \"\\ud800\"}".to_owned(), "invalid JSON"),
        ("{\"a\":".repeat(100_000), "the plan is nested deeper than 127 levels"),
    ] {
        let found = violations(&text);
        let shown: String = text.chars().take(80).collect();
        assert!(found.len() == 1 && found[0].message.starts_with(expected), "{found:?} in {shown}");
        assert!(found[0].line > 0 && found[0].column > 0, "{found:?} in {shown}");
        assert_eq!(found[0].field, "");
    }
}

#[test]
fn deep_arguments_are_refused_by_name() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let yaml = |levels: usize| {
        format!("plan:\n  id: p\n  steps:\n    - id: a\n      tool: t\n      arguments: {{x: {}}}", nested(levels))
    };
    let json = |levels: usize| {
        format!(r#"{{"plan":{{"id":"p","steps":[{{"id":"a","tool":"t","arguments":{{"x":{}}}}}]}}}}"#, nested(levels))
    };
    for text in [yaml(MAX_DEPTH), json(MAX_DEPTH)] {
        read(&text);
    }
    for text in [yaml(MAX_DEPTH + 1), json(MAX_DEPTH + 1), json(100)] {
        let found = violations(&text);
        assert!(found.len() == 1 && found[0].field.starts_with("plan.steps[0].arguments.x[0]"), "{found:?}");
        assert!(found[0].message.contains("is nested deeper than 32 levels"), "{found:?}");
    }
}

#[test]
fn a_text_has_a_limit() {
    let text = format!("id: p\n#{}", "x".repeat(MAX_PLAN_BYTES));
    assert_refused(&text, &[("the plan has 4194311 bytes and the limit is 4194304", (0, 0))]);
}

proptest! {
    #[test]
    fn no_text_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), format in prop_oneof![Just(Format::Auto), Just(Format::Yaml), Just(Format::Json)]) {
        let _ = Plan::parse(format, &String::from_utf8_lossy(&bytes));
    }

    // Random bytes seldom come near a plan: damage a good one instead.
    #[test]
    fn no_damaged_plan_panics(start in 0_usize..1000, length in 0_usize..40, patch in "[\\[\\]{}\",: \n&*!|>$a0-]{0,12}", yaml: bool) {
        let text = match yaml {
            true => one_step("arguments:\n      x: [1, {a: ${b.result}}, \"é\"]\n    retry: &r {max_attempts: 2, backoff: [1s]}\n  - <<: {id: b, tool: t}\n    retry: *r"),
            false => REQUEST.to_owned(),
        };
        let start = text.floor_char_boundary(start % text.len());
        let end = text.floor_char_boundary((start + length).min(text.len()));
        let damaged = format!("{}{patch}{}", &text[..start], &text[end..]);
        if let Err(error) = Plan::parse(Format::Auto, &damaged) {
            prop_assert!(!error.violations.is_empty());
            let lines = damaged.split('\n').count();
            prop_assert!(error.violations.iter().all(|violation| violation.line as usize <= lines));
        }
    }
}
