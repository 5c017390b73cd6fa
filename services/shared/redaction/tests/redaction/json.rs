//! JSON: what is hidden, and that it comes back exactly.

use std::sync::LazyLock;

use belay_redaction::{NotRestored, Redactor, restore};
use proptest::prelude::*;
use serde_json::{Value, json};

fn shown(value: &Value, marked: &[&str]) -> Value {
    let redacted = Redactor::new().redact_json(value, marked);
    let text = serde_json::to_string(&redacted.hidden).unwrap();
    let hidden = serde_json::from_str(&text).unwrap();
    assert_eq!(restore(redacted.shown.clone(), hidden).unwrap(), *value);
    redacted.shown
}

/// S2-X-16, S2-FR-077a.
#[test]
fn members_whose_name_says_secret_are_hidden_whole() {
    let value = json!({
        "user": "ada", "password": "x", "apiKey": 12345, "token": {"a": [1, 2]}, "credentials": ["a"],
        "max_tokens": 4096, "nextPageToken": "abc", "has": {"client_secret": 1.5},
    });
    let expected = json!({
        "user": "ada", "password": "[REDACTED]", "apiKey": "[REDACTED]", "token": "[REDACTED]", "credentials": "[REDACTED]",
        "max_tokens": 4096, "nextPageToken": "abc", "has": {"client_secret": "[REDACTED]"},
    });
    assert_eq!(shown(&value, &[]), expected);
}

/// S2-X-16.
#[test]
fn references_and_what_says_nothing_stay() {
    let value = json!({
        "password": "${secret:DB}", "token": "${login.output.token}", "secret": null, "api_key": true, "pwd": "",
        "passphrase": "[REDACTED]", "command": "psql -d ${secret:DB}",
    });
    assert_eq!(shown(&value, &[]), value);
    // A reference with something beside it is a value.
    assert_eq!(shown(&json!({"password": "${secret:DB}x"}), &[]), json!({"password": "[REDACTED]"}));
}

/// S2-X-16: parameters that the schema marks.
#[test]
fn what_a_schema_marks_is_hidden_whatever_it_looks_like() {
    let value =
        json!({"body": "plain", "list": [{"x": 1, "y": 2}, {"x": 3}], "a/b": {"c~d": "z"}, "reference": "${secret:A}"});
    let expected = json!({
        "body": "[REDACTED]", "list": [{"x": "[REDACTED]", "y": 2}, {"x": "[REDACTED]"}], "a/b": {"c~d": "[REDACTED]"},
        "reference": "${secret:A}",
    });
    assert_eq!(shown(&value, &["/body", "/list/*/x", "/a~1b/c~0d", "/nowhere/x", "/reference"]), expected);
    assert_eq!(shown(&value, &[""]), json!("[REDACTED]"));
}

#[test]
fn secrets_in_texts_lists_and_names_are_hidden() {
    let token = format!("ghp_{}", "FAKEfake01".repeat(4));
    let value = json!({
        "text": format!("push with {token}!"),
        "argv": ["mysql", "--password", "hunter2", "--token", "-v", "--user", "ada"],
        "env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "LANG", "value": "C"}],
        "seen": {token.clone(): 1, token.replace('F', "G"): {"password": "x"}, "[REDACTED] (2)": 3},
        "number": 5,
    });
    let expected = json!({
        "text": "push with [REDACTED]!",
        "argv": ["mysql", "--password", "[REDACTED]", "--token", "-v", "--user", "ada"],
        "env": [{"name": "DB_PASSWORD", "value": "[REDACTED]"}, {"name": "LANG", "value": "C"}],
        "seen": {"[REDACTED]": 1, "[REDACTED] (3)": {"password": "[REDACTED]"}, "[REDACTED] (2)": 3},
        "number": 5,
    });
    assert_eq!(shown(&value, &[]), expected);
}

#[test]
fn a_literal_is_hidden_in_numbers_too() {
    let redactor = Redactor::new().with_literals(["48151623"]).unwrap();
    let redacted = redactor.redact_json::<&str>(&json!([48151623, 42, 1481516234]), &[]);
    assert_eq!(redacted.shown, json!(["[REDACTED]", 42, "[REDACTED]"]));
}

#[test]
fn hidden_parts_of_another_value_are_refused_and_never_printed() {
    let redacted = Redactor::new().redact_json::<&str>(&json!({"a": {"password": "hunter2"}}), &[]);
    assert!(!format!("{:?}", redacted.hidden).contains("hunter2"));
    assert_eq!(restore(json!({"a": 1}), redacted.hidden), Err(NotRestored { pointer: "/a/password".to_owned() }));
}

/// Values with names, texts and shapes of all kinds, secrets among them.
fn values() -> impl Strategy<Value = Value> {
    let token = "gh[ps]_[A-Za-z0-9]{36}";
    let text =
        prop_oneof![".{0,12}", token, "password=[a-z0-9]{8}", Just("[REDACTED]".to_owned()), Just("~/a".to_owned())];
    let name =
        prop_oneof![".{0,6}", token, Just("password".to_owned()), Just("a/b~c".to_owned()), Just("value".to_owned())];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|number: f64| Value::from(number)),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        let members = prop::collection::btree_map(name.clone(), inner.clone(), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Value::from),
            members.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn the_exact_value_comes_back(value in values()) {
        static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::new);
        let redacted = REDACTOR.redact_json(&value, &["/a~1b~0c", "/*/0"]);
        // No token is left anywhere, names included.
        let text = redacted.shown.to_string();
        prop_assert!(!regex::Regex::new("gh[ps]_[A-Za-z0-9]{36}").unwrap().is_match(&text), "{}", text);
        prop_assert_eq!(restore(redacted.shown, redacted.hidden).unwrap(), value);
    }
}

#[test]
fn a_working_directory_and_a_version_are_no_secrets_under_any_name() {
    let value = serde_json::json!({
        "PWD": "/workspace",
        "dependencies": {"pbkdf2-password": "1.2.1", "keycloak-token": "^10.2.0"},
        "env": [{"name": "PWD", "value": "/workspace"}],
    });
    assert_eq!(Redactor::new().redact_json::<&str>(&value, &[]).shown, value);
    let value = serde_json::json!({"PWD": "hunter2", "password": "1.2", "db_password": "10.2.0-Tr0ub4dor3"});
    let shown = Redactor::new().redact_json::<&str>(&value, &[]).shown;
    assert_eq!(shown, serde_json::json!({"PWD": "[REDACTED]", "password": "1.2", "db_password": "[REDACTED]"}));
}

/// A value that a schema marks and that is too short to be looked for in texts is hidden where it is the whole of a value, and nowhere else.
#[test]
fn a_short_value_is_hidden_as_a_whole_alone() {
    let redactor =
        Redactor::new().with_whole_values(["4711".to_owned(), "hush".to_owned()]).with_whole_values(["7".to_owned()]);
    let value =
        json!({"pin": "4711", "n": 4711, "seven": [7, "7", 70], "text": "hush 4711", "word": "hush", "hush": 1});
    let shown = redactor.redact_json::<&str>(&value, &[]);
    let wanted = json!({"pin": "[REDACTED]", "n": "[REDACTED]", "seven": ["[REDACTED]", "[REDACTED]", 70], "text": "hush 4711", "word": "[REDACTED]", "hush": 1});
    assert_eq!(shown.shown, wanted);
    assert_eq!(belay_redaction::restore(shown.shown, shown.hidden).unwrap(), value);
    assert!(redactor.may_hide_json(&value.to_string()));
    assert_eq!(redactor.redact_text("4711").text, "4711");
}

#[test]
fn marked_parts_are_those_that_redaction_would_hide() {
    let value = json!({"a": [{"k": 1, "x": 2}, {"k": {"deep": "s"}}], "b/c": true, "d": {"k": 3}});
    let places = |pointers: &[&str]| {
        belay_redaction::marked(&value, pointers).into_iter().map(|(place, _)| place).collect::<Vec<_>>()
    };
    assert_eq!(places(&["/a/*/k", "/b~1c", "/none"]), ["/a/0/k", "/a/1/k", "/b~1c"]);
    assert_eq!(places(&["/*/k", "/d"]), ["/d"], "what lies in another part is not repeated");
    assert_eq!(places(&[""]), [""]);
    assert_eq!(places(&[]), Vec::<String>::new());
    let mut leaves = Vec::new();
    belay_redaction::leaves(&value["a"][1], &mut |leaf| leaves.push(leaf));
    assert_eq!(leaves, ["k", "deep", "s"]);
}
