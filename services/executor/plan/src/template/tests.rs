use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::limits::MAX_RESOLVED_BYTES;

/// Resolves a template where each field of `outputs` is the output of the step of that name.
fn resolve(template: &Value, outputs: &Value) -> Result<Value, String> {
    let template = Template::parse(template).expect("the template can be read");
    let value = |step: &str, what| match what {
        StepValue::Outputs => outputs.get(step)?.get("outputs"),
        _ => outputs.get(step),
    };
    template.resolve(&|step, what| value(step, what).map(Cow::Borrowed)).map_err(|error| error.to_string())
}

fn refusal(text: &str) -> String {
    let errors = Template::parse(&json!(text)).expect_err(text);
    assert_eq!(errors.len(), 1);
    errors[0].message.clone()
}

// S4-18, S4-17: a whole-string reference keeps the type of what it names.
#[test]
fn a_whole_string_keeps_the_type() {
    let outputs = json!({"step-1": {
        "n": u64::MAX, "m": i64::MIN, "f": 1.5, "t": true, "z": null, "s": "text", "o": {"a": [1, {"b": 2}]}, "odd key": 3, "": 4, "a.b": 5, "ü": 6
    }});
    for (text, expected) in [
        ("${step-1.result.n}", json!(18_446_744_073_709_551_615_u64)),
        ("${step-1.result.m}", json!(-9_223_372_036_854_775_808_i64)),
        ("${step-1.output.f}", json!(1.5)),
        ("${step-1.result.t}", json!(true)),
        ("${step-1.result.z}", json!(null)),
        ("${step-1.result.s}", json!("text")),
        ("${step-1.result.o}", json!({"a": [1, {"b": 2}]})),
        ("${step-1.result.o.a[1].b}", json!(2)),
        ("${step-1.result.o.a.1.b}", json!(2)),
        ("${step-1.result[\"o\"][\"a\"][0]}", json!(1)),
        ("${step-1.result[\"odd key\"]}", json!(3)),
        ("${step-1[\"result\"][\"\"]}", json!(4)),
        ("${step-1.result[\"a.b\"]}", json!(5)),
        ("${step-1.result[\"\\u00fc\"]}", json!(6)),
        ("${step-1.result.ü}", json!(6)),
        ("${step-1.result}", outputs["step-1"].clone()),
        ("${step-1.output}", outputs["step-1"].clone()),
    ] {
        assert_eq!(resolve(&json!({"p": text}), &outputs), Ok(json!({"p": expected})), "{text}");
    }
}

#[test]
fn inside_a_longer_string_the_value_is_written_out() {
    let outputs = json!({"a": {"s": "x\"y", "n": 3, "l": [1, "two", null]}});
    for (text, expected) in [
        ("<${a.result.s}>", "<x\"y>"),
        ("${a.result.n}${a.result.n}", "33"),
        ("l=${a.result.l} ", "l=[1,\"two\",null] "),
        (" ${a.result.s}", " x\"y"),
        ("$${a.result.s}", "${a.result.s}"),
        ("$${", "${"),
        ("$$${", "$${"),
        ("$${}${a.result.n}", "${}3"),
        ("costs $5, $ and $$ {n} }", "costs $5, $ and $$ {n} }"),
        ("$5 ${a.result.n}$", "$5 3$"),
        ("", ""),
    ] {
        assert_eq!(resolve(&json!([text]), &outputs), Ok(json!([expected])), "{text}");
    }
}

#[test]
fn keys_are_never_templates_and_results_never_expanded_again() {
    let outputs = json!({"a": {"evil": "${a.result.secret}", "secret": "s"}});
    let template = json!({"${a.result.secret}": "${a.result.evil}", "in": "<${a.result.evil}>", "$${": 1});
    let expected = json!({"${a.result.secret}": "${a.result.secret}", "in": "<${a.result.secret}>", "$${": 1});
    assert_eq!(resolve(&template, &outputs), Ok(expected));
}

#[test]
fn a_template_says_what_it_names() {
    let source = json!({"b": {"x/y": ["${s-1.result}", "no", "a ${s_2.output.k} ${s-1.result}"], "t~": "$${no}"}, "a": "${s3.result[0]}"});
    let template = Template::parse(&source).unwrap();
    assert_eq!(template.values().map(|(step, _)| step).collect::<Vec<_>>(), ["s3", "s-1", "s_2", "s-1"]);
    assert_eq!(template.reference_paths(), ["/a", "/b/x~1y/0", "/b/x~1y/2"]);
    assert!(!template.is_constant());
    assert_eq!(template.source(), &source);

    let constant = Template::parse(&json!({"a": "$${no}", "b": [1, "$"]})).unwrap();
    assert!(constant.is_constant());
    assert_eq!(constant.reference_paths(), Vec::<String>::new());
    assert_eq!(constant.resolve(&|_, _| None).unwrap(), json!({"a": "${no}", "b": [1, "$"]}));
}

// S4-18: "Cannot resolve path: …", and what was there, without values.
#[test]
fn what_cannot_be_resolved_says_what_was_there() {
    let outputs =
        json!({"step-1": {"content": "classified", "list": [1, 2], "one": [1], "none": [], "void": {}, "null": null}});
    for (reference, found) in [
        ("step-1.result.x", "`step-1.result` has no `x`, only content, list, none, null, one, …"),
        ("step-1.result.contents", "`step-1.result` has no `contents`; did you mean `content`?"),
        ("step-1.result.content.x", "`step-1.result.content` is text"),
        ("step-1.output.content[0]", "`step-1.output.content` is text"),
        ("step-1.result.list[2]", "`step-1.result.list` is a list with 2 entries, [0] to [1]"),
        ("step-1.result.one[1]", "`step-1.result.one` is a list with 1 entry, which is [0]"),
        ("step-1.result.none[0]", "`step-1.result.none` is an empty list"),
        ("step-1.result.list.x", "`step-1.result.list` is a list"),
        ("step-1.result.list[0].x", "`step-1.result.list[0]` is a number"),
        ("step-1.result.void.x", "`step-1.result.void` is an empty object"),
        ("step-1.result.null.x", "`step-1.result.null` is null"),
        ("step-1.result[0]", "`step-1.result` is an object"),
        ("other.result", "step `other` has no output"),
    ] {
        for text in [format!("${{{reference}}}"), format!("in ${{{reference}}} between")] {
            let expected = format!("Cannot resolve path: {reference} ({found})");
            assert_eq!(resolve(&json!([text]), &outputs), Err(expected));
        }
    }
    assert!(
        resolve(&json!("${step-1.result[\"a b\"]}"), &outputs)
            .unwrap_err()
            .starts_with("Cannot resolve path: step-1.result[\"a b\"] (")
    );
}

#[test]
fn an_output_may_be_owned() {
    let template = Template::parse(&json!(["${a.result}", "${a.result.k}", "${a.result.x}"])).unwrap();
    let error = template.resolve(&|_, _| Some(Cow::Owned(json!({"k": [1]})))).unwrap_err();
    assert_eq!(error.to_string(), "Cannot resolve path: a.result.x (`a.result` has no `x`, only k)");
    let template = Template::parse(&json!(["${a.result}", "${a.result.k}"])).unwrap();
    assert_eq!(template.resolve(&|_, _| Some(Cow::Owned(json!({"k": [1]})))).unwrap(), json!([{"k": [1]}, [1]]));
}

#[test]
fn many_references_to_a_large_output_are_refused() {
    let outputs = json!({"a": "x".repeat(MAX_RESOLVED_BYTES / 3)});
    assert!(resolve(&json!(["${a.result}", "<${a.result}>"]), &outputs).is_ok());
    let error = resolve(&json!(["${a.result}", "<${a.result}>", "${a.output}"]), &outputs).unwrap_err();
    assert!(
        error.starts_with("Cannot resolve path: a.output (with it what the step reads exceeds 4194304 bytes"),
        "{error}"
    );
}

#[test]
fn what_becomes_deeper_than_json_is_read_is_refused() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let levels = belay_json::MAX_DEPTH;
    assert!(resolve(&json!({"a": "${a.result}"}), &json!({"a": nested(levels - 1)})).is_ok());
    let error = resolve(&json!({"a": "${a.result}"}), &json!({"a": nested(levels)})).unwrap_err();
    assert!(error.contains("nested deeper than 127 levels"), "{error}");
    assert_eq!(
        resolve(&json!({"a": "${a.result[0]}"}), &json!({"a": nested(levels)})).unwrap()["a"],
        nested(levels - 1)
    );
}

#[test]
fn what_is_no_reference_is_refused_with_what_to_write() {
    for (text, expected) in [
        ("${", "is not closed"),
        ("a ${b", "is not closed"),
        ("${a.result", "is not closed"),
        ("${a.result[0", "is not closed"),
        ("${a.result[\"x}", "has a path that cannot be understood"),
        ("${}", "names no step"),
        ("${.result}", "names no step"),
        ("${ a.result}", "names no step"),
        ("${a/b.result}", "names no step"),
        ("${a.foo}", "write `${a.result.foo}`, or `$${a.foo}`"),
        ("${a[0]}", "has a path that cannot be understood"),
        ("${a.}", "has a path that cannot be understood"),
        ("${a.result.}", "has a path that cannot be understood"),
        ("${a.result..b}", "has a path that cannot be understood"),
        ("${a.result[]}", "has a path that cannot be understood"),
        ("${a.result[-1]}", "has a path that cannot be understood"),
        ("${a.result[x]}", "has a path that cannot be understood"),
        ("${a.result[99999999999999999999]}", "has a path that cannot be understood"),
        ("${a.result[\"x\"}", "has a path that cannot be understood"),
        ("${a.result['x']}", "has a path that cannot be understood"),
        ("${a.result x}", "has a path that cannot be understood"),
        ("${a.result.${b.result}}", "has a path that cannot be understood"),
        // X10: neither the environment nor secrets.
        ("${API_KEY}", "write `${STEP.result}` for the output of a step, or `$${API_KEY}` for that text itself"),
        ("${secret:API_KEY}", "no plan has secrets: ask for a network profile"),
    ] {
        let message = refusal(text);
        assert!(message.contains(expected), "{text}: {message}");
        assert!(!message.contains('\n'));
    }
}

#[test]
fn every_wrong_string_is_an_error_with_its_place() {
    let errors = Template::parse(&json!({"a": ["${", "ok", {"b/c": "${x}"}], "z": "${secret:K}"})).unwrap_err();
    let paths: Vec<_> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["/a/0", "/a/2/b~1c", "/z"]);
    assert!(errors[0].to_string().starts_with("/a/0: `${` is not closed"));
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| (0..levels).fold(json!("${a.result}"), |inner, _| json!([inner]));
    assert!(Template::parse(&nested(MAX_DEPTH)).is_ok());
    let errors = Template::parse(&nested(MAX_DEPTH + 1)).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].message.contains("nested deeper than 32 levels"), "{}", errors[0].message);
}

/// Any JSON value of moderate size.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("JSON has no NaN", |f| serde_json::Number::from_f64(f).map(Value::Number)),
        "\\PC{0,8}|[$ {}a.]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,6}", inner, 0..4).prop_map(|map| Value::Object(Map::from_iter(map))),
        ]
    })
}

/// A text that stands for itself in a template.
fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(text.replace("${", "$${")),
        Value::Array(entries) => entries.iter().map(escaped).collect(),
        Value::Object(fields) => fields.iter().map(|(key, field)| (key.clone(), escaped(field))).collect(),
        other => other.clone(),
    }
}

proptest! {
    // S4-18: whatever the output is, it arrives as it was, from wherever it stands.
    #[test]
    fn references_bring_values_as_they_are(value in any_value(), key in "\\PC{0,8}", constant in any_value()) {
        let mut outer = Map::new();
        outer.insert(key.clone(), json!([0, value]));
        let outputs = json!({"s-1": outer});
        let reference = format!("${{s-1.result[{}][1]}}", json!(key));
        let resolved = resolve(&json!({"r": reference, "t": format!("<{reference}>"), "c": escaped(&constant)}), &outputs).unwrap();
        let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        prop_assert_eq!(resolved, json!({"r": value, "t": format!("<{written}>"), "c": constant}));
    }

    #[test]
    fn no_text_panics(text in "[$a\\-.\\[\\]{}\"0\\\\ü]{0,24}|\\PC{0,24}") {
        if let Ok(template) = Template::parse(&json!([text])) {
            let _ = template.resolve(&|_, _| Some(Cow::Owned(json!({"a": ["b"]}))));
        }
    }
}

/// `outputs` names a member of the result, and is written as it was.
#[test]
fn outputs_are_read_by_their_name() {
    let outputs =
        json!({"b": {"exit_code": 0, "outputs": {"version": "1.4", "odd-one": [7]}}, "none": {"exit_code": 0}});
    let resolve = |text: &str| resolve(&json!(text), &outputs);
    assert_eq!(resolve("${b.outputs.version}").unwrap(), json!("1.4"));
    assert_eq!(resolve("v${b.outputs.odd-one[0]}").unwrap(), json!("v7"));
    assert_eq!(resolve("${b.outputs}").unwrap(), json!({"version": "1.4", "odd-one": [7]}));
    assert_eq!(resolve("${none.outputs.version ?? \"0\"}").unwrap(), json!("0"));
    let missing = resolve("${b.outputs.versoin}").unwrap_err().to_string();
    assert!(missing.starts_with("Cannot resolve path: b.outputs.versoin"), "{missing}");
    let template = Template::parse(&json!("${b.outputs.version}")).unwrap();
    assert_eq!(template.values().collect::<Vec<_>>(), [("b", StepValue::Outputs)]);
}

/// A text in which a reference leads nowhere is null as a whole; what stands beside it is as it would be.
#[test]
fn what_leads_nowhere_is_null() {
    let output = |step: &str, value: StepValue| -> Option<Cow<'static, Value>> {
        match (step, value) {
            ("there", StepValue::Result) => Some(Cow::Owned(json!({"n": 7, "none": null}))),
            ("skipped", StepValue::State) => Some(Cow::Owned("skipped".into())),
            _ => None,
        }
    };
    let template = json!({
        "n": "${there.result.n}", "none": "${there.result.none}", "typo": "${there.result.m}",
        "skipped": "${skipped.result.path}", "text": "at ${skipped.result.path} or ${there.result.n}", "state": "${skipped.state}",
        "default": "${skipped.result.path ?? \"/\"}", "deep": ["${skipped.result}", {"n": "${there.result.n}!"}], "constant": [1, "$${x}"],
    });
    let resolved = Template::parse(&template).unwrap().resolve_or_null(&output).unwrap();
    let expected = json!({
        "n": 7, "none": null, "typo": null, "skipped": null, "text": null, "state": "skipped", "default": "/", "deep": [null, {"n": "7!"}],
        "constant": [1, "${x}"],
    });
    assert_eq!(resolved, expected);
    let large = |_: &str, _| Some(Cow::Owned(json!("x".repeat(MAX_RESOLVED_BYTES / 2))));
    let template = Template::parse(&json!(["${a.result}", "${a.result}"])).unwrap();
    assert!(matches!(template.resolve_or_null(&large), Err(UnresolvedReference::TooLarge { .. })));
    let deep = |_: &str, _| Some(Cow::Owned((1..belay_json::MAX_DEPTH).fold(json!(1), |inner, _| json!([inner]))));
    let resolve = |value: Value| Template::parse(&value).unwrap().resolve_or_null(&deep);
    assert!(resolve(json!("${a.result}")).is_ok());
    assert!(matches!(resolve(json!([["${a.result}"]])), Err(UnresolvedReference::TooDeep)));
}

/// The value after `??` takes the place of a reference that leads nowhere or to null, and keeps its type.
#[test]
fn the_first_that_is_there_is_chosen() {
    let output = |step: &str, value: StepValue| -> Option<Cow<'static, Value>> {
        match (step, value) {
            ("there", StepValue::Result) => Some(Cow::Owned(json!({"n": 7, "none": null, "text": "t"}))),
            _ => None,
        }
    };
    let resolve =
        |text: &str| Template::parse(&json!(text)).unwrap().resolve(&output).map_err(|error| error.to_string());
    for (text, expected) in [
        ("${there.result.n ?? 0}", json!(7)),
        ("${gone.result.n ?? there.result.n}", json!(7)),
        ("${gone.result ?? there.result.missing ?? 0}", json!(0)),
        ("${there.result.none ?? \"x\"}", json!("x")),
        ("${there.result.none??null}", json!(null)),
        ("${there.result.none ?? gone.result}", json!(null)),
        ("${there.result.none}", json!(null)),
        (
            "is ${gone.result ?? [1, {\"a\": \"}\"}]} and ${there.result.text ?? \"u\"}",
            json!("is [1,{\"a\":\"}\"}] and t"),
        ),
        ("${gone.result ?? [\"there\"].result.n}", json!(7)),
        ("${gone.result ?? [\"there\", 2]}", json!(["there", 2])),
        ("${gone.result ?? true}", json!(true)),
        ("${gone.result ?? -1.5}", json!(-1.5)),
    ] {
        assert_eq!(resolve(text), Ok(expected), "{text}");
    }
    assert_eq!(
        resolve("${gone.result.n ?? there.result.missing}").unwrap_err(),
        "Cannot resolve path: gone.result.n (step `gone` has no output)",
        "the first of them is named"
    );
    let template = Template::parse(&json!("${a.result ?? b.state ?? 0}")).unwrap();
    assert_eq!(template.values().collect::<Vec<_>>(), [("a", StepValue::Result), ("b", StepValue::State)]);
    for (text, says) in [
        ("${a.result ??}", "needs a reference or a JSON value after `??`"),
        ("${a.result ?? }", "needs a reference or a JSON value after `??`"),
        ("${a.result ?? nonsense}", "is not a reference"),
        ("${a.result ?? 'x'}", "names no step"),
        ("${a.result ?? \"x}", "needs a reference or a JSON value"),
        ("${a.result ?? 0", "is not closed"),
        ("${a ?? 0}", "is not a reference"),
    ] {
        let errors = Template::parse(&json!(text)).unwrap_err();
        assert!(errors[0].message.contains(says), "{text}: {}", errors[0].message);
    }
    // What is not known yet is not chosen instead of.
    let mut room = 1_000;
    let (value, remain) = Template::parse(&json!("${gone.result ?? 0}")).unwrap().resolve_known(&output, &mut room);
    assert_eq!((value, remain), (json!("${gone.result ?? 0}"), true));
}
