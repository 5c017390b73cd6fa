use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn values() -> Value {
    json!({
        "n": 3, "f": 2.5, "big": 9_007_199_254_740_993_i64, "neg": -4, "text": "héllo", "yes": true, "none": null,
        "list": [1, 2, 3], "people": [{"name": "ann", "age": 30}, {"name": "bob", "age": 17}], "map": {"a": 1, "odd key": 2},
    })
}

fn holds(expression: &str) -> Result<bool, ConditionError> {
    let values = values();
    let condition = Condition::new(expression, &["v", "w"])?;
    condition.evaluate(&[("v", &values), ("w", &Value::from(7))])
}

#[test]
fn expressions_have_the_values_of_the_language() {
    for (expression, expected) in [
        ("true", true),
        ("!v.yes", false),
        ("v.n == 3 && w == 7", true),
        ("v.n == 3.0 && v.f > 2 && v.f * 2 == 5", true),
        ("v.big == 9007199254740993 && v.big != 9007199254740992", true),
        ("v.n + 2 * w - 1 == 16 && -v.neg == 4 && 7 / 2 == 3 && -7 % 3 == -1", true),
        ("7.0 / 2 == 3.5", true),
        ("v.text == 'héllo' && size(v.text) == 5 && v.text.size() == 5", true),
        ("v.text.startsWith('hé') && v.text.endsWith('lo') && v.text.contains('ll')", true),
        ("v.text.matches('^h.l+o$') && !v.text.matches('x')", true),
        ("v.text + '!' == \"héllo!\" && 'a' < 'b' && 'a' <= 'a'", true),
        ("v.none == null && v.n != null", true),
        ("size(v.list) == 3 && v.list[0] == 1 && v.list[2] == 3 && 2 in v.list && !(9 in v.list)", true),
        ("v.list + [4] == [1, 2, 3, 4]", true),
        ("'a' in v.map && v.map['odd key'] == 2 && v.map.a == 1 && size(v.map) == 2", true),
        ("has(v.map.a) && !has(v.map.b)", true),
        ("v.people.all(p, p.age > 16) && v.people.exists(p, p.name == 'bob')", true),
        ("v.people.exists_one(p, p.age > 18) && !v.list.exists_one(x, x > 1)", true),
        ("v.people.filter(p, p.age > 18).map(p, p.name) == ['ann']", true),
        ("v.list.map(x, v.list.map(y, x * y)) == [[1, 2, 3], [2, 4, 6], [3, 6, 9]]", true),
        ("v.list.filter(x, x != 2).size() == 2 && [].all(x, false) && ![].exists(x, true)", true),
        ("v.map.exists(k, k == 'odd key')", true),
        ("(v.yes ? 1 : 2) == 1 && {'a': v.n} == {'a': 3}", true),
        ("int('12') == 12 && int(2.9) == 2 && double('1.5') == 1.5 && string(3) == '3' && bool('true')", true),
        // One side that decides is enough, whatever the other is.
        ("v.missing == 1 || true", true),
        ("true || v.missing == 1", true),
        ("!(v.missing == 1 && false)", true),
        ("v.list.exists(x, v.missing == x || x == 3)", true),
        ("v.n == '3'", false),
        ("v == v && v.people != v.list", true),
    ] {
        assert_eq!(holds(expression), Ok(expected), "{expression}");
    }
}

#[test]
fn what_is_wrong_is_said_before_anything_runs() {
    for (expression, said) in [
        ("", "cannot be read"),
        ("v.n ==", "cannot be read"),
        ("v.n = 3", "cannot be read"),
        ("(v.yes", "cannot be read"),
        ("check.result.ok", "`check` is not known: the result of a step is written `${check.result}`"),
        ("ok", "`ok` is not known"),
        ("v.list.all(x, y > 1)", "`y` is not known"),
        ("v.list.all(x, x > 1) && x > 1", "`x` is not known"),
        ("upper(v.text) == 'A'", "there is no function `upper`; there are size, contains"),
        ("size(v.text, 1) == 2", "`size` is called with 2 values, and takes 1"),
        ("v.text.size(1) == 2", "`size` is called with 2 values"),
        ("3", "is a number, and has to be true or false"),
        ("'yes'", "is text, and has to be true or false"),
        ("[v.yes]", "is a list"),
        ("{'a': 1}", "is a map"),
        ("null", "is null"),
        ("v.n + 1", "is a sum"),
        ("-v.n", "is a number"),
        ("size(v.list)", "is a number"),
        ("v.yes ? 1 : 2", "is a number"),
        ("v.list.map(x, x)", "is a list"),
        ("v.list.filter(x, x > 1)", "is a list"),
        ("b'abc' == b'abc'", "has bytes"),
        ("a.B{c: 1} == 1", "makes a `a.B`"),
    ] {
        let error = Condition::new(expression, &["v", "w"]).expect_err(expression).to_string();
        assert!(error.contains(said), "{expression}: {error}");
    }
    let long = format!("v.n == {}", "1".repeat(MAX_BYTES));
    assert!(Condition::new(&long, &["v"]).unwrap_err().to_string().contains("the limit is 4096"));
    let many = vec!["true"; MAX_PARTS].join("&&");
    assert!(Condition::new(&many, &[]).unwrap_err().to_string().contains("more than 500 parts"));
    let chain = format!("{} > 0", vec!["1"; 2_000].join("+"));
    assert!(Condition::new(&chain, &[]).unwrap_err().to_string().contains("more than 500 parts"));
    // On the small stack of a thread, as everything here.
    for (open, close) in [("(", ")"), ("!", ""), ("[", "]"), ("{1:", "}"), ("-", ""), ("true?", ":true")] {
        for count in [4_000 / (open.len() + close.len()), 480, 240, 120, 60] {
            let deep = format!("{}true{} == 1", open.repeat(count), close.repeat(count));
            let _ = Condition::new(&deep, &[]).map(|condition| condition.evaluate(&[]));
        }
    }
    let sum = format!("{} == 249", vec!["1"; 249].join("+"));
    assert_eq!(Condition::new(&sum, &[]).unwrap().evaluate(&[]), Ok(true), "the deepest that is accepted");
}

#[test]
fn what_has_no_value_is_neither_true_nor_false() {
    for (expression, said) in [
        ("v.n", "is a number, and has to be true or false"),
        ("v.missing", "there is no `missing`"),
        ("v.n.x == 1", "takes `x` of a number"),
        ("v.list.x == 1", "takes `x` of a list"),
        ("v.list[3] == 1", "takes the entry 3 of a list that has 3"),
        ("v.list[-1] == 1", "takes the entry -1"),
        ("v.list['a'] == 1", "takes an entry of a list by text"),
        ("v.text > 3", "compares text with a number"),
        ("v.n && true", "has a number where true or false is needed"),
        ("v.text - 'a' == 'b'", "`-` is for numbers, not for text and text"),
        ("v.text + 1 == 'b'", "`+` is not for text and a number"),
        ("v.n / 0 == 1", "divides by zero"),
        ("v.n % 0 == 1", "divides by zero"),
        ("v.f % 2 == 1", "takes a remainder"),
        ("1.0 / 0 > 1", "leaves the numbers that there are"),
        ("9223372036854775807 * 9223372036854775807 > 1", "leaves the numbers that there are"),
        ("size(v.n) == 1", "`size` is not for a number"),
        ("v.n.all(x, true)", "goes through a number"),
        ("1 in v.n", "`in` looks for a number in a number"),
        ("v.text.matches('(')", "has a pattern that is none"),
        ("v.text.matches('a{1000}{1000}')", "has a pattern that is none, or too large"),
        ("int('x') == 1", "reads a whole number"),
        ("has(v.n.x)", "asks whether a number has `x`"),
        ("v.missing == 1 || false", "there is no `missing`"),
        ("v.missing == 1 && true", "there is no `missing`"),
        ("{'a': 1, 'a': 2} == v", "has the key `a` twice"),
        ("{1: 2} == v", "keys are text"),
    ] {
        let error = holds(expression).expect_err(expression).to_string();
        assert!(error.contains(said), "{expression}: {error}");
    }
}

/// The work is bounded by the values that there are, not by how the expression looks.
#[test]
fn an_evaluation_ends_whatever_the_values_are() {
    let evaluate =
        |expression: &str, values: &Value| Condition::new(expression, &["v"]).unwrap().evaluate(&[("v", values)]);
    let list = |count: usize| json!((0..count).collect::<Vec<_>>());
    let nested = "v.all(a, v.all(b, v.all(c, a + b + c >= 0)))";
    assert_eq!(evaluate(nested, &list(20)), Ok(true));
    assert_eq!(evaluate(nested, &list(200)), Err(ConditionError::TooMuch));
    assert_eq!(evaluate("v.all(a, a >= 0)", &list(100_000)), Ok(true), "a long list once");
    assert_eq!(evaluate("v.map(a, a).size() == 50000", &list(50_000)), Ok(true), "gathering copies nothing");
    assert_eq!(evaluate("v.filter(a, v == v).size() == 0", &list(3_000)), Err(ConditionError::TooMuch));
    assert_eq!(evaluate("v.all(a, string(a).matches('^[0-9]+$'))", &list(1_000)), Ok(true), "compiled once");
    let many = "v.all(a, 'x'.matches('x' + string(a)) || true)";
    assert_eq!(evaluate(many, &list(1_000)), Err(ConditionError::TooMuch), "each of them once");
    let text = json!("x".repeat(1_000_000));
    assert_eq!(evaluate("v.contains('y')", &text), Ok(false));
    assert_eq!(evaluate(&vec!["v.contains('y')"; 99].join(" || "), &text), Err(ConditionError::TooMuch));
    assert_eq!(
        evaluate("[1,2,3,4,5,6,7,8].all(a, [1,2,3,4,5,6,7,8].all(b, v.matches('(a*)*b') || true))", &text),
        Err(ConditionError::TooMuch)
    );
    // Doubling: each level would be twice as long as the one before.
    let doubling = (0..40).fold("v".to_owned(), |text, _| format!("[{text}, 1].map(x, x)"));
    let doubled = format!("{doubling} != null");
    assert!(matches!(
        Condition::new(&doubled, &["v"]).map(|it| it.evaluate(&[("v", &text)])),
        Ok(Ok(true) | Err(_)) | Err(_)
    ));
}

proptest! {
    /// Whatever is written, it is refused or has an end.
    #[test]
    fn no_text_stops_the_process(text in "[ -~é]{0,80}") {
        if let Ok(condition) = Condition::new(&text, &["v"]) {
            let _ = condition.evaluate(&[("v", &values())]);
        }
    }

    #[test]
    fn no_expression_stops_the_process(parts in prop::collection::vec(prop::sample::select(vec![
        "v", ".list", ".people", "[0]", "(", ")", "all(x,", "x", "==", "&&", "||", "!", "1", "-", "'a'", ".map(x,", "?", ":", "in", "{", "}", ",", "has(", "size(", "%", "/", "9e999", "null", "\"", "\\",
    ]), 0..24)) {
        if let Ok(condition) = Condition::new(&parts.join(" "), &["v"]) {
            let _ = condition.evaluate(&[("v", &values())]);
        }
    }
}

/// A value that is missing matters only where it is needed: `||`, `&&` and `?:` do without, and `has` of a member of it is false.
#[test]
fn what_is_missing_matters_only_where_it_is_needed() {
    let seven = Value::from(7);
    let evaluate = |expression: &str| {
        Condition::new(expression, &["a", "gone"])
            .unwrap()
            .evaluate_with(&[("a", &seven)], &[("gone", "it was skipped")])
    };
    for (expression, holds) in [
        ("a == 7 || gone.n > 1", true),
        ("gone.n > 1 || a == 7", true),
        ("a == 8 && gone.n > 1", false),
        ("gone.n > 1 && a == 8", false),
        ("a == 7 ? true : gone", true),
        ("has(gone.n)", false),
        ("has(gone.n) && gone.n > 1", false),
        ("!has(gone.n)", true),
    ] {
        assert_eq!(evaluate(expression), Ok(holds), "{expression}");
    }
    for expression in
        ["gone == 7", "a == 8 || gone.n > 1", "gone.n > 1 && a == 7", "gone ? true : false", "size(gone) > 0"]
    {
        assert_eq!(evaluate(expression), Err(ConditionError::Absent("it was skipped".to_owned())), "{expression}");
    }
}
